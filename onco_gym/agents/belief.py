"""Beliefs about a patient: a particle filter, called a cloud, of simulated patients.

At the first visit, and when a test result arrives, the cloud is filled with look-alikes: the patients nearest in everything that
is known. In every cycle they receive the same treatment, each with its own chance; look-alikes who come later first live through
all of it. What the clinic sees (scans, toxicity, tests) is then set to what was observed. Members whose tumours do not fit the
scan and the ctDNA, or who would hardly have lived this long, are replaced by members that fit. The cloud represents what remains
unknown: the clones, the sensitivities and the growth rate.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.patients import splits
from onco_gym.simulator.admission import admit
from onco_gym.simulator.chance import Weighed, mix, numbered
from onco_gym.simulator.observation import allowed, diameter
from onco_gym.simulator.state import Journey, Patient, State
from onco_gym.simulator.transition import step

DONORS = 32_768
"""Patients among whom look-alikes are found. None of them is a patient of an environment."""
MATCHING = {"biomarker": 3.0, "trait": 1.0}
"""Weights of differences between look-alikes: in biomarkers, and in everything else."""
SLACK = 0.10
"""Log error added to the measurement errors, because the cloud is finite and no member is the patient."""
JITTER = 0.06
"""Log standard deviation of the noise added to the growth, sensitivities and clones of a copy."""


class Sighting(NamedTuple):
    """What is observed of n patients, in raw units, and what is remembered. Arrays are NumPy or JAX."""

    known: Any  # (T, n) bool
    shown: Any  # (traits + biomarkers, n) scaled; 0 where not known
    cycle: Any  # (n,) int32
    line: Any  # (n,)
    ecog: Any  # (n,)
    progressed: Any  # (n,)
    diameter: Any  # (n,) mm
    baseline: Any  # (n,) mm
    nadir: Any  # (n,) mm
    since_scan: Any  # (n,)
    ctdna: Any  # (n,) log10 molecules per ml
    held: Any  # (n,)
    hospital: Any  # (n,)
    toxicity: Any  # (O, n)
    marker: Any  # (K - 1, n)
    last: Any  # (n,) int32, -1 before the first cycle
    exposure: Any  # (R, n)
    mask: Any  # (R, n) bool
    treatment: Any  # (n,) int32 regimen of the current line, -1 before the first
    failed: Any  # (n,) progressions so far


def read(scenario: Scenario, observation: NDArray[np.float32], mask: NDArray[np.bool_], before: Sighting | None) -> Sighting:
    """Read an observation (n, F) of patients last seen as ``before``. A patient at cycle 0 is new."""
    rows = np.asarray(observation, np.float32).T
    raw = {field.name: field.raw(rows[field.index]) for field in scenario.fields if field.block == "course"}
    toxicity, marker, last, exposure = (rows[scenario.block(name)] for name in ("toxicity", "marker", "regimen", "exposure"))
    given = np.where(last.max(0) > 0.5, last.argmax(0), -1).astype(np.int32)
    cycle = np.rint(raw["cycle"]).astype(np.int32)
    progressed = raw["progressed"]
    treatment, failed = np.full(len(cycle), -1, np.int32), np.zeros(len(cycle), np.float32)
    if before is not None:
        old = cycle > 0
        treatment = np.where(old, np.asarray(before.treatment), treatment)
        just = (progressed > 0.5) & ((np.asarray(before.progressed) < 0.5) | (raw["line"] > np.asarray(before.line) + 0.5))
        failed = np.where(old, np.asarray(before.failed) + just, failed)
    active = ~np.isin(given, (scenario.holiday, scenario.supportive)) & (given >= 0)
    treatment = np.where(active, given, treatment).astype(np.int32)
    size = np.maximum(raw["diameter"], 1e-3)
    return Sighting(
        known=rows[scenario.block("test")] > 0.5,
        shown=rows[: len(scenario.traits) + len(scenario.biomarkers)],
        cycle=cycle,
        line=np.rint(raw["line"]),
        ecog=np.rint(raw["ecog"]),
        progressed=progressed,
        diameter=size,
        baseline=size / np.maximum(1 + raw["change_from_baseline"], 1e-3),
        nadir=size / (1 + raw["change_from_nadir"]),
        since_scan=np.rint(raw["cycles_since_scan"]),
        ctdna=raw["ctdna"],
        held=raw["held"],
        hospital=raw["hospital_days"],
        toxicity=toxicity * 5.0,
        marker=marker,
        last=given,
        exposure=exposure * scenario.horizon,
        mask=np.asarray(mask, bool).T,
        treatment=treatment,
        failed=failed.astype(np.float32),
    )


class Cloud:
    """A cloud of ``size`` simulated patients for each of n real ones.

    Args:
        engine: the environment.
        size: patients in each cloud.
        seed: the same seed gives the same clouds.
    """

    def __init__(self, engine: Engine, size: int, seed: int = 0) -> None:
        self.engine, self.size, self.seed = engine, size, seed
        self._donors = _donors(engine)
        self.journey: Journey | None = None  # (..., n * size), each patient's cloud is contiguous
        self.seen: Sighting | None = None
        self._first: Sighting | None = None  # each patient as first seen
        self._given = np.zeros((engine.horizon, 0), np.int32)  # the regimen of every cycle since then
        self._turn = 0

    def update(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> Sighting:
        """Update the clouds with an observation. Patients at cycle 0 are new; the others had the treatment that it shows."""
        scenario, n = self.engine.scenario, len(observation)
        before = self.seen if self.seen is not None and len(self.seen.cycle) == n else None
        seen = read(scenario, observation, mask, before)
        first = np.ones(n, bool) if before is None else np.asarray(seen.cycle == 0)
        new = first.copy()  # whose cloud is filled
        if before is None or self._first is None:
            self._first, self._given = seen, np.zeros((self.engine.horizon, n), np.int32)
        else:
            new |= (np.asarray(seen.known) & ~np.asarray(before.known)).any(0)
            self._first = jax.tree.map(lambda a, b: np.where(first, a, b), seen, self._first)
            cycles = np.arange(self.engine.horizon)[:, None]
            since = (cycles >= np.asarray(before.cycle)) & (cycles < np.asarray(seen.cycle))
            self._given = np.where(since, np.maximum(seen.last, 0), self._given).astype(np.int32)
        self._turn += 1
        key, journey = self._keys(n * self.size), self.journey
        if new.any() or journey is None:
            rows = self._donors.nearest(seen, self.size)
            known = self._first._replace(known=seen.known, shown=seen.shown)
            patient = self._donors.patients(rows.reshape(-1))
            fresh = _begun(scenario, self.engine.params, patient, known, key, self.size)
            where = jnp.asarray(np.repeat(new, self.size))
            journey = fresh if new.all() or journey is None else jax.tree.map(lambda a, b: jnp.where(where, a, b), fresh, journey)
        self.journey = _carried(scenario, self.engine.params, journey, seen, self._given, key, self.size)
        self.seen = seen
        return seen

    def _keys(self, count: int) -> jax.Array:
        return numbered(jnp.arange(count, dtype=jnp.uint32), jnp.uint32((self.seed * 0x9E3779B9 + self._turn) & 0xFFFFFFFF))


class _Donors:
    """The pool from which look-alikes are taken."""

    def __init__(self, engine: Engine) -> None:
        other = make_engine(engine.card, engine.generator.sample(DONORS, seed=splits.DONORS), terms=("outcome",))
        self.patients = other.patients
        shown = np.asarray(other.patients().shown)
        scenario = engine.scenario
        self._tests = np.array(scenario.biomarker_test, int)
        self._traits = len(scenario.traits)
        self._shown = shown.T * self._weight(np.ones((len(scenario.tests), 1), bool)).T  # (D, F)

    def _weight(self, known: NDArray[np.bool_]) -> NDArray[np.float32]:
        """(F, n) weight of a difference; 0 where a biomarker is not known."""
        n = known.shape[1]
        rows = [np.full((self._traits, n), MATCHING["trait"]), MATCHING["biomarker"] * known[self._tests]]
        return np.concatenate(rows).astype(np.float32)

    def nearest(self, seen: Sighting, size: int) -> NDArray[np.int32]:
        """(n, size) the donors who look most like each patient."""
        weight = self._weight(np.asarray(seen.known))
        mine = np.asarray(seen.shown) * weight
        out = np.empty((mine.shape[1], size), np.int32)
        asked = (weight > 0).T
        patterns, kinds = np.unique(asked, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):  # patients with the same known tests
            of = np.flatnonzero(kinds.ravel() == number)
            donors = self._shown[:, pattern]
            squares = (donors**2).sum(1)
            for part in np.array_split(of, -(-len(of) // 256)):
                distance = squares - 2 * mine[pattern][:, part].T @ donors.T
                out[part] = np.argpartition(distance, size, axis=1)[:, :size]
        return out


@functools.lru_cache(maxsize=8)
def _donors(engine: Engine) -> _Donors:
    return _Donors(engine)


@functools.partial(jax.jit, static_argnums=(0, 5))
def _begun(scenario: Scenario, params: Params, patient: Patient, seen: Sighting, key: jax.Array, size: int) -> Journey:
    """Look-alikes at the first visit, with the tumour size that was measured."""
    seen = _repeated(seen, size)
    traits = len(scenario.traits)
    known = jnp.concatenate([jnp.ones((traits, key.shape[-1]), bool), seen.known[jnp.asarray(scenario.biomarker_test, int)]])
    results = jnp.where(seen.known, 0.0, jnp.maximum(patient.result_cycle, seen.cycle + 1.0))
    patient = patient._replace(
        shown=jnp.where(known, seen.shown, patient.shown),
        ecog=jnp.where(seen.cycle == 0, seen.ecog, patient.ecog),
        result_cycle=results,
    )
    journey = admit(scenario, params, patient, key)
    # The sum of diameters is proportional to the cube root of the volume.
    shift = 3 * (jnp.log(seen.diameter) - jnp.log(diameter(journey.state.volume, patient.lesions)))
    shift = jnp.clip(shift, -6.0, 6.0)
    patient = patient._replace(clones=patient.clones + shift)
    state = journey.state._replace(clones=journey.state.clones + shift, volume=journey.state.volume + shift)
    return _clothed(params, Journey(patient, state, key), seen)


@functools.partial(jax.jit, static_argnums=(0, 6))
def _carried(
    scenario: Scenario, params: Params, journey: Journey, seen: Sighting, given: jax.Array, key: jax.Array, size: int
) -> Journey:
    """The cloud at a visit, after the treatment ``given`` (horizon, n) since it was last seen."""
    n = seen.cycle.shape[0]
    wide = _repeated(seen, size)
    before, journey = journey.state, journey._replace(key=key)
    lived = jnp.repeat(given, size, axis=1)

    def cycle(state: State) -> State:
        regimen = jnp.take_along_axis(lived, state.cycle[None], axis=0, mode="clip")[0]
        after, _ = step(scenario, params, journey._replace(state=state), regimen, draw=Weighed)
        return jax.tree.map(lambda old, new: jnp.where(state.cycle < wide.cycle, new, old), state, after.state)

    state = jax.lax.while_loop(lambda state: jnp.any(state.cycle < wide.cycle), cycle, before)
    state = state._replace(result_cycle=before.result_cycle)
    # How well each member fits the measurements.
    volume = state.volume
    scanned = (wide.since_scan == 0).astype(jnp.float32)
    size_miss = (jnp.log(wide.diameter) - jnp.log(diameter(volume, journey.patient.lesions))) / (params.scan_error + SLACK / 3)
    ten = np.float32(np.log(10))
    expected = jax.nn.softplus(volume + journey.patient.shedding * ten) / ten
    shed_miss = (wide.ctdna - expected) * ten / (params.ctdna_error + 3 * SLACK)
    log_weight = -0.5 * (scanned * jnp.minimum(size_miss**2, 30.0) + jnp.minimum(shed_miss**2, 20.0))
    log_weight = (log_weight + jnp.log(jnp.maximum(state.alive, 1e-6))).reshape(n, size)
    weight = jax.nn.softmax(log_weight, axis=1)
    # Systematic resampling: members are copied in proportion to their weights. Equal weights keep everybody.
    offset = (mix(key[0].reshape(n, size)[:, 0] ^ jnp.uint32(0x68E31DA4)) >> 8).astype(jnp.float32) * np.float32(2.0**-24)
    points = (jnp.arange(size)[None] + offset[:, None]) / size
    chosen = jnp.sum(points[:, :, None] > jnp.cumsum(weight, 1)[:, None, :], 2).clip(0, size - 1)
    flat = (chosen + jnp.arange(n)[:, None] * size).reshape(-1)
    thin = 1 / jnp.sum(weight**2, 1) < 0.5 * size  # few members carry the weight: their copies are made to differ
    patient, state = (jax.tree.map(lambda x: jnp.take(x, flat, axis=-1), part) for part in (journey.patient, state))
    moved = jnp.repeat(thin, size).astype(jnp.float32) * JITTER

    def noise(number: int) -> jax.Array:
        bits = mix(key[0] ^ jnp.uint32((number * 0x9E3779B9 + 0x7F4A7C15) & 0xFFFFFFFF))
        return sum(((bits >> shift) & 0xFF).astype(jnp.float32) for shift in (0, 8, 16, 24)) * np.float32(1 / 147.8) - 3.45

    rows = patient.sensitivity.shape[0]
    patient = patient._replace(
        growth=patient.growth * jnp.exp(moved * noise(0)),
        sensitivity=patient.sensitivity * jnp.exp(moved * jnp.stack([noise(i + 1) for i in range(rows)])),
    )
    return _clothed(params, Journey(patient, state, key), wide)


def _clothed(params: Params, journey: Journey, seen: Sighting) -> Journey:
    """The cloud with everything that the clinic sees set to what was observed."""
    state = journey.state
    state = state._replace(
        cycle=seen.cycle,
        alive=jnp.ones_like(state.alive),
        toxicity=seen.toxicity,
        performance=jnp.clip(state.performance, seen.ecog - 0.5, seen.ecog + 0.49),
        held=seen.held,
        hospital=seen.hospital,
        barred=jnp.zeros_like(state.barred),
        exposure=seen.exposure,
        last=seen.last,
        treatment=seen.treatment,
        line=seen.line,
        progressed=seen.progressed,
        failed=seen.failed,
        diameter=seen.diameter,
        baseline=seen.baseline,
        nadir=seen.nadir,
        since_scan=seen.since_scan,
        marker=seen.marker,
        result_cycle=jnp.where(seen.known, 0.0, jnp.maximum(state.result_cycle, seen.cycle + 1.0)),
    )
    barred = ((allowed(params, state) > 0.5) & ~seen.mask).astype(jnp.float32)
    return journey._replace(state=state._replace(barred=barred))


def _repeated(seen: Sighting, size: int) -> Sighting:
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), size, axis=-1), seen)
