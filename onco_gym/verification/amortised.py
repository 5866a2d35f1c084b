"""A network that predicts which regimens are worth trying as a patient's next line.

The network is trained on patients whose lines were searched with every regimen. It sees everything that is true of a patient and
the current state of their expected course, and predicts how good each regimen would be as the next line. With it,
:func:`.solver.by_lines` tries the best few instead of all. A network belongs to one card and is kept beside it.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.special import softmax

from onco_gym.cards.folder import CardError, cards_folder, kept_beside
from onco_gym.cards.load import digest
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.simulator.state import Journey
from onco_gym.verification.course import Cases, Sequence, advance, begin, cases
from onco_gym.verification.solver import Shortlist, by_lines, permitted

PATIENTS = 6144
"""Patients that a network learns from. None of them is a patient of an environment."""
COHORT_SEED = 2**20 + 11
SHARE = 7
"""One in this many regimens is tried as the next line."""
WIDTH = 64
EPOCHS, BATCH, RATE = 40, 512, 2e-3
SHARP = 0.02
"""Temperature of the targets: a regimen that is better by this value is e times as likely."""
AT_ONCE = 256
"""Patients whose lines are searched at once."""

Weights = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Network:
    """See the module.

    Attributes:
        card_digest: the digest of the card that it was trained on.
        weights: arrays by name, float32.
    """

    card_digest: str
    weights: dict[str, NDArray[np.float32]]

    def shortlist(self, engine: Engine, who: Cases, n: int, among: NDArray[np.bool_] | None = None) -> Shortlist:
        """A shortlist for :func:`.solver.by_lines`: the regimens that the network predicts are best as the next line.

        Args:
            engine: the environment; its actions must be regimens.
            who: (…, n * P) patients, P for each sequence; the network looks at the first of them.
            n: number of sequences.
            among: (R, n) regimens that may be given; by default all that the guideline does not forbid.
        """
        firsts = who.take(np.arange(n) * (who.key.shape[-1] // n))
        open_to = permitted(engine, firsts, n)
        asked = open_to if among is None else among
        few = round(len(asked) / SHARE)
        seen = jnp.asarray((features(firsts, open_to) - self.weights["mean"][:, None]) / self.weights["scale"][:, None])

        def choose(decisions: Sequence, since: NDArray[np.int32]) -> NDArray[np.bool_]:
            before = decisions if since.any() else decisions[:0]  # at the first visit no course is needed
            now = _at(engine, firsts, jnp.asarray(before, jnp.int32), jnp.asarray(since))
            logits = np.where(asked, np.asarray(_logits(self.weights, seen, now)), -np.inf)
            out = np.zeros(asked.shape, bool)
            np.put_along_axis(out, np.argsort(-logits, 0)[:few], True, 0)
            return out & asked

        return choose


def features(who: Cases, open_to: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(F, n) features of patients."""
    patient = who.patient
    positive = (patient.growth[None], patient.sensitivity, patient.frailty[None], patient.hazard[None])
    plain = (patient.ecog[None], patient.adherence[None], patient.delay[None], patient.shown)
    rows = [np.log(np.maximum(np.asarray(part, np.float32), 1e-3)) for part in positive]
    rows += [np.maximum(np.asarray(patient.clones, np.float32), -15.0), *(np.asarray(part, np.float32) for part in plain)]
    return np.concatenate([*rows, open_to.astype(np.float32)])


def where(engine: Engine, journey: Journey) -> jax.Array:
    """(S, n) features of the current state of expected courses."""
    state = journey.state
    few = (
        state.cycle / engine.horizon,
        state.volume / 5.0,
        state.performance,
        state.held,
        state.line,
        state.progressed,
        state.uncontrolled,
        state.failed,
        state.since_scan / 4.0,
    )
    present = (state.last == jnp.arange(len(engine.scenario.regimens))[:, None]).astype(jnp.float32)
    counts = jnp.log1p(jnp.concatenate([state.exposure, state.adapted]))
    clones = jnp.maximum(state.clones, -15.0) / 5.0
    return jnp.concatenate([jnp.stack(few), clones, state.response, state.toxicity, state.barred, counts, present])


@jax.jit
def _logits(weights: Weights, seen: jax.Array, now: jax.Array) -> jax.Array:
    """(R, n) logits from scaled :func:`features` and :func:`where`."""
    hidden = jax.nn.relu(weights["seen"] @ seen + weights["now"] @ now + weights["seen_bias"][:, None])
    hidden = jax.nn.relu(weights["then"] @ hidden + weights["then_bias"][:, None])
    return weights["out"] @ hidden + weights["out_bias"][:, None]


@functools.partial(jax.jit, static_argnums=0)
def _at(engine: Engine, who: Cases, decisions: jax.Array, since: jax.Array) -> jax.Array:
    """(S, n) the state of the courses under ``decisions`` (H, n) at the start of cycle ``since`` (n,)."""

    def cycle(carry: tuple[Journey, jax.Array], decision: jax.Array) -> tuple[tuple[Journey, jax.Array], None]:
        journey, kept = carry
        kept = jnp.where(journey.state.cycle == since, where(engine, journey), kept)
        return (advance(engine, journey, decision, reading="expected")[0], kept), None

    start = begin(engine, who, reading="expected")
    return jax.lax.scan(cycle, (start, where(engine, start)), decisions)[0][1]


def train(engine: Engine, patients: int = PATIENTS, seed: int = 0, progress: Progress = silent) -> Network:
    """Search the best lines of patients and learn from them.

    Args:
        engine: the environment; its actions must be regimens.
        patients: how many patients to learn from.
        seed: the same card and seed give the same network on the same machine.
        progress: called after every batch of patients and every epoch.
    """
    others = make_engine(engine.card, engine.generator.sample(patients, seed=COHORT_SEED + seed))
    rows: list[tuple[NDArray[Any], ...]] = []
    for start in range(0, patients, AT_ONCE):
        count = min(AT_ONCE, patients - start)
        who = cases(others, count, start)
        seen = features(who, permitted(others, who, count))

        def keep(
            decisions: Sequence, since: NDArray[np.int32], table: NDArray[np.float32], who: Cases = who, seen: Any = seen
        ) -> None:
            some = np.isfinite(table).any(0)
            now = np.asarray(_at(others, who, jnp.asarray(decisions, jnp.int32), jnp.asarray(since)))
            rows.append((seen[:, some], now[:, some], softmax(table[:, some] / SHARP, 0)))

        by_lines(others, who, count, engine.horizon, on_line=keep)
        progress("searching lines", start + count, patients)
    seen, now, target = (np.concatenate(part, 1) for part in zip(*rows, strict=True))
    mean, scale = seen.mean(1), np.maximum(seen.std(1), 1e-2)
    weights = _learned((seen - mean[:, None]) / scale[:, None], now, target, seed, progress)
    return Network(digest(engine.card), {**weights, "mean": mean, "scale": scale})


def _learned(
    seen: NDArray[np.float32], now: NDArray[np.float32], target: NDArray[np.float32], seed: int, progress: Progress
) -> dict[str, NDArray[np.float32]]:
    """Weights trained to give regimens the probabilities ``target`` (R, m)."""
    regimens, count = target.shape
    rng = np.random.default_rng([seed, 17])
    shapes = {"seen": (WIDTH, len(seen)), "now": (WIDTH, len(now)), "then": (WIDTH, WIDTH), "out": (regimens, WIDTH)}
    weights: Weights = {name: rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {f"{name}_bias": np.zeros(shapes[name][0], np.float32) for name in ("seen", "then", "out")}
    batch = min(BATCH, count)
    batches = count // batch
    adam = optax.adamw(optax.cosine_decay_schedule(RATE, batches * EPOCHS), weight_decay=1e-3)

    def loss(weights: Weights, x: jax.Array, now: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.mean(optax.softmax_cross_entropy(_logits(weights, x, now).T, target.T))

    @jax.jit
    def update(weights: Weights, state: Any, *batch: jax.Array) -> tuple[Weights, Any]:
        change, state = adam.update(jax.grad(loss)(weights, *batch), state, weights)
        return optax.apply_updates(weights, change), state  # type: ignore[return-value]

    state = adam.init(weights)
    for epoch in range(EPOCHS):
        for some in rng.permutation(count)[: batches * batch].reshape(batches, batch):
            weights, state = update(weights, state, *(jnp.asarray(part[:, some]) for part in (seen, now, target)))
        progress("learning", epoch + 1, EPOCHS)
    return {name: np.asarray(values, np.float32) for name, values in weights.items()}


# ------------------------------------------------------------------------------------------------ files


def network_file(card: str) -> Path:
    """Where the network of a shipped card is kept."""
    return kept_beside(card, "networks", ".npz")


def write_network(path: str | os.PathLike[str], network: Network) -> None:
    """Write a network as an NPZ file, in half precision."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: values.astype(np.float16) for name, values in network.weights.items()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, card_digest=np.array(network.card_digest), **arrays)


def read_network(path: str | os.PathLike[str]) -> Network:
    """A network from its file; nothing is unpickled.

    Raises:
        CardError: if the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        card = str(arrays.pop("card_digest"))
        weights = {name: values.astype(np.float32) for name, values in arrays.items()}
        if set(weights) != set(_NAMES) or not all(np.isfinite(values).all() for values in weights.values()):
            raise ValueError("its arrays are not those of a network")
    except Exception as error:  # a damaged archive can raise anything
        raise CardError(f"{path}: is not a network: {error}") from None
    return Network(card, weights)


_NAMES = ("seen", "seen_bias", "now", "then", "then_bias", "out", "out_bias", "mean", "scale")


def network_for(engine: Engine) -> Network | None:
    """The network of an environment's card, or None if there is none that fits."""
    return _shipped().get(digest(engine.card))


@functools.cache
def _shipped() -> dict[str, Network]:
    found = [read_network(path) for path in sorted((cards_folder() / "networks").glob("*.npz"))]
    return {one.card_digest: one for one in found}
