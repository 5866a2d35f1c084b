"""What can be observed of a patient: scans, ctDNA, laboratory values and test results, never the clones themselves."""

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.cards.scenarios import Params, Scenario
from onco_gym.foundation.arrays import settled, total
from onco_gym.simulator.chance import Channel, Expected, Sampled
from onco_gym.simulator.state import Journey, Patient, State

PROGRESSION, MINIMUM_MM = 1.2, 5.0
"""RECIST 1.1: 20% and at least 5 mm above the nadir (Eisenhauer, Eur J Cancer 2009;45:228)."""
MRI_ERROR = 0.5
"""Error of a sum of diameters on MRI, as a share of the error on CT; our estimate."""


def diameter(volume: jax.Array, lesions: jax.Array) -> jax.Array:
    """(n,) mm, the sum of diameters of ``lesions`` equal spheres with a total ``volume`` (log cm3)."""
    return 10.0 * jnp.exp((volume + np.float32(np.log(6 / np.pi)) + 2.0 * jnp.log(lesions)) / 3.0)


def visible_volume(volume: jax.Array) -> jax.Array:
    """(n,) log(1 + cm3): growth that a scan could show; microscopic regrowth does not count."""
    return jax.nn.softplus(volume)


def measure(
    params: Params, patient: Patient, volume: jax.Array, chance: Sampled | Expected, precision: jax.Array | float = 1.0
) -> jax.Array:
    """(n,) mm, the sum of diameters as a reader measures it; ``precision`` scales the error."""
    return diameter(volume, patient.lesions) * (1 + params.scan_error * precision * chance.normal(Channel.SCAN))


def scans_by(params: Params, cycle: jax.Array) -> jax.Array:
    """(n,) scheduled scans in the first ``cycle`` cycles; intervals need not be whole numbers of cycles."""
    time = cycle.astype(jnp.float32) + 1e-3
    regular = jnp.maximum(jnp.floor((time - params.scan_start) / params.scan_every), 0.0)
    return regular + total((time >= jnp.asarray(params.scan_early)[:, None]).astype(jnp.float32))


def is_scheduled(params: Params, cycle: jax.Array) -> jax.Array:
    """(n,) whether a scheduled scan falls into ``cycle``."""
    return scans_by(params, cycle) > scans_by(params, cycle - 1)


def last_scan(params: Params, cycle: jax.Array) -> jax.Array:
    """(n,) time of the last scheduled scan in the first ``cycle`` cycles, in cycles; 0 before the first."""
    time = cycle.astype(jnp.float32) + 1e-3
    early = jnp.asarray(params.scan_early)[:, None]
    regular = params.scan_start + jnp.floor((time - params.scan_start) / params.scan_every) * params.scan_every
    return jnp.where(time >= params.scan_start, regular, jnp.max(jnp.where(time >= early, early, 0.0), 0))


def scan(
    scenario: Scenario,
    params: Params,
    patient: Patient,
    state: State,
    chance: Sampled | Expected,
    imaging: jax.Array | None = None,
    turns: jax.Array | None = None,
) -> State:
    """Scan the patients who are due: RECIST against the line's nadir, new lesions, markers at progression.

    ``imaging`` (n,) orders the scan: 0 none, 1 CT, 2 MRI, which has half the error; None follows the schedule.

    Between scheduled scans, a tumour that has grown past the limit may be noticed, and is then scanned. Patients who continue
    the same treatment past progression can progress again, relative to the sum measured then.

    ``turns`` is as in :func:`onco_gym.foundation.arrays.settled`.
    """
    volume, visible = state.volume, visible_volume(state.volume)
    due_now = is_scheduled(params, state.cycle) if imaging is None else imaging > 0
    scheduled = due_now.astype(jnp.float32)
    precision = 1.0 if imaging is None else jnp.where(imaging == 2, MRI_ERROR, 1.0)
    measured = measure(params, patient, volume, chance, precision)
    limit = jnp.maximum(state.nadir * PROGRESSION, state.nadir + MINIMUM_MM)
    larger = chance.above(measured / limit - 1, 1.4 * params.scan_error + 1e-3)
    noticed = chance.event(params.unscheduled * larger * (1 - state.progressed), Channel.SYMPTOMS)
    due = scheduled + (1 - scheduled) * noticed
    new = chance.event(-jnp.expm1(-params.new_lesion * jnp.maximum(visible - state.scanned, 0.0)), Channel.NEW_LESION)
    tested = jnp.zeros_like(due)
    for test in np.flatnonzero(scenario.repeated):
        tested = jnp.maximum(tested, state.result_cycle[test] <= state.cycle)
    just = due * chance.either(larger, new)
    due, just, measured, visible = settled(turns, (due, just, measured, visible))
    progressed = state.progressed + (1 - state.progressed) * just
    grows = chance.above(measured / state.baseline - 1, 1.4 * params.scan_error + 1e-3)
    share = state.clones[1:] - volume
    found = chance.above(share - jnp.log(params.marker_detection), jnp.float32(0.7))
    return state._replace(
        progressed=progressed,
        uncontrolled=_blend(due, progressed + (1 - progressed) * state.uncontrolled * grows, state.uncontrolled),
        failed=state.failed + just,
        diameter=_blend(due, measured, state.diameter),
        nadir=_blend(just, measured, _blend(due, jnp.minimum(measured, state.nadir), state.nadir)),
        scanned=_blend(due, visible, state.scanned),
        since_scan=(1 - due) * (state.since_scan + 1),
        marker=_blend(just * tested, found, state.marker),
    )


def allowed(params: Params, state: State) -> jax.Array:
    """(R, n) 1 where a regimen can be given; in the expected reading, the probability that it can.

    A regimen cannot be given if it was stopped for toxicity, is past its last cycle, needs a fitter patient, or is an earlier
    line that was left for another.
    """
    rules = (params.max_ecog[:, None], params.max_cycles[:, None], params.active[:, None])
    treatment = state.treatment if state.treatment.ndim == 2 else one_hot(state.treatment, len(params.active))
    return allowed_where(*rules, state.performance, state.exposure, treatment, state.barred)


def allowed_where(
    max_ecog: jax.Array,
    max_cycles: jax.Array,
    active: jax.Array,
    performance: jax.Array,
    exposure: jax.Array,
    treatment: jax.Array,
    barred: jax.Array,
) -> jax.Array:
    """The rule behind :func:`allowed`, for arrays of one shape: three that describe regimens, then four from patients' states."""
    fit = (jnp.floor(performance + 0.5) <= max_ecog) & (exposure < max_cycles)
    left = jnp.minimum(exposure, 1.0) * (1 - treatment) * active
    return fit.astype(jnp.float32) * (1 - barred) * (1 - left)


def ctdna(params: Params, journey: Journey, chance: Sampled) -> jax.Array:
    """(n,) log10 molecules per ml as measured now."""
    shed = journey.state.volume + params.ctdna_error * chance.normal(Channel.CTDNA)
    return jax.nn.softplus(shed + journey.patient.shedding * np.float32(np.log(10))) * np.float32(1 / np.log(10))


def observe(scenario: Scenario, params: Params, journey: Journey) -> jax.Array:
    """(F, n) the observation, with every number in 0..1; ``scenario.fields`` describes them."""
    patient, state, key = journey
    chance = Sampled(key, state.cycle)
    volume = state.volume
    traits, biomarkers = len(scenario.traits), len(scenario.biomarkers)
    known = (state.result_cycle <= state.cycle).astype(jnp.float32)
    tests = jnp.stack([known[test] for test in scenario.biomarker_test]) if biomarkers else jnp.zeros((0, volume.shape[0]))
    error = params.laboratory_error
    burden = jnp.maximum(volume - params.log_reference, 0.0)
    blood = state.toxicity[0]  # the first organ class is haematological
    raw = [
        state.cycle.astype(jnp.float32),
        state.line,
        jnp.floor(state.performance + 0.5),
        state.progressed,
        state.diameter,
        state.diameter / state.baseline - 1,
        state.diameter / state.nadir - 1,
        state.since_scan,
        ctdna(params, journey, chance),
        (0.7 + 0.45 * burden) * (1 + error * chance.normal(Channel.LDH)),
        (42.0 - 4.0 * state.performance) * (1 + 0.5 * error * chance.normal(Channel.ALBUMIN)),
        4.5 / (1 + 0.6 * blood) * (1 + 2 * error * chance.normal(Channel.NEUTROPHILS)),
        state.held,
        state.hospital,
    ]
    first = traits + biomarkers + len(scenario.tests)
    dynamic = jnp.stack(
        [
            jnp.clip((value - field.low) / (field.high - field.low), 0.0, 1.0)
            for value, field in zip(raw, scenario.fields[first:], strict=False)
        ]
    )
    rows = [
        patient.shown[:traits],
        patient.shown[traits:] * tests,
        known,
        dynamic,
        state.toxicity / 5.0,
        state.marker,
        one_hot(state.last, len(scenario.regimens)),
        jnp.minimum(state.exposure / scenario.horizon, 1.0),
    ]
    return jnp.concatenate(rows)


def one_hot(index: jax.Array, size: int) -> jax.Array:
    """(size, n) 1 at ``index``, else 0."""
    return (index[None] == jnp.arange(size, dtype=index.dtype)[:, None]).astype(jnp.float32)


def _blend(share: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return old + share * (new - old)
