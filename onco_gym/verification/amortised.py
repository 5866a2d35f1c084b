"""A network that goes from a patient to decisions: the search starts where patients like this one ended.

It is trained on solved patients. It sees all that is true of a patient and where their expected course stands, and says what the
best sequence gives next; sequences are drawn from it along the course that they lead to. A network belongs to one card and is
kept beside it.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from onco_gym.cards.files import CardError, card_files, cards_folder
from onco_gym.cards.load import digest
from onco_gym.files import replacing
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.patients import CausalGenerator
from onco_gym.simulator.state import Journey
from onco_gym.verification.course import Cases, Sequence, advance, begin, beside, cases
from onco_gym.verification.solver import Effort, by_lines, improve, permitted

PATIENTS = 2048
"""Solved patients that a network learns from; none of them is a patient of an environment."""
COHORT_SEED = 2**20 + 11
THOROUGH = Effort(rounds=16, patience=4)
WIDTH = 64
EPOCHS, BATCH, RATE = 24, 1024, 2e-3
LANES = 2048
"""Sequences that are drawn at once."""
AT_ONCE = 256
"""Patients that are solved at once."""

Weights = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Network:
    """See the module.

    Attributes:
        card_digest: of the card whose patients it knows.
        weights: arrays by name, float32.
    """

    card_digest: str
    weights: dict[str, NDArray[np.float32]]

    def propose(self, engine: Engine, who: Cases, n: int, horizon: int, count: int, seed: int = 0) -> list[Sequence]:
        """``count`` sequences (H, n): the likeliest, and draws.

        Args:
            engine: the environment; its actions must be regimens.
            who: (…, n * P) patients: P that one and the same sequence is for; the network looks at the first of them.
            n: sequences wanted of each kind.
            horizon: cycles.
            count: how many.
            seed: of the draws.
        """
        size = who.key.shape[0] // n
        firsts = who.take(np.arange(n) * size)
        open_to = permitted(engine, firsts, n)
        seen = (features(firsts, open_to) - self.weights["mean"][:, None]) / self.weights["scale"][:, None]
        patient, greedy = np.tile(np.arange(n), count), np.repeat(np.arange(count) == 0, n)
        out = np.empty((horizon, len(patient)), np.int32)

        def some_of(start: int) -> None:
            some = np.resize(np.arange(start, min(start + LANES, len(patient))), LANES)
            rows, key = patient[some], jax.random.fold_in(jax.random.key(seed), start)
            drawn = _draw(engine, self.weights, firsts.take(rows), seen[:, rows], open_to[:, rows], greedy[some], key, horizon)
            out[:, some] = np.asarray(drawn)

        beside(some_of, range(0, len(patient), LANES))
        return list(out.reshape(horizon, count, n).transpose(1, 0, 2))


def features(who: Cases, open_to: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(F, n) what the network sees of patients."""
    patient = who.patient
    positive = (patient.growth[None], patient.sensitivity, patient.frailty[None], patient.hazard[None])
    plain = (patient.ecog[None], patient.adherence[None], patient.delay[None], patient.shown)
    rows = [np.log(np.maximum(np.asarray(part, np.float32), 1e-3)) for part in positive]
    rows += [np.maximum(np.asarray(patient.clones, np.float32), -15.0), *(np.asarray(part, np.float32) for part in plain)]
    return np.concatenate([*rows, open_to.astype(np.float32)])


def where(engine: Engine, journey: Journey) -> jax.Array:
    """(S, n) what the network sees of where expected courses stand."""
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


def _logits(weights: Weights, known: jax.Array, now: jax.Array) -> jax.Array:
    """(R, n) from what is :func:`_known` of patients and :func:`where` they stand."""
    hidden = jax.nn.relu(known + weights["now"] @ now)
    hidden = jax.nn.relu(weights["then"] @ hidden + weights["then_bias"][:, None])
    return weights["out"] @ hidden + weights["out_bias"][:, None]


def _known(weights: Weights, seen: jax.Array) -> jax.Array:
    """(WIDTH, n) from scaled :func:`features`."""
    hidden = jax.nn.relu(weights["seen"] @ seen + weights["seen_bias"][:, None])
    return weights["known"] @ hidden + weights["known_bias"][:, None]


@functools.partial(jax.jit, static_argnums=(0, 7))
def _draw(
    engine: Engine,
    weights: Weights,
    who: Cases,
    seen: jax.Array,
    open_to: jax.Array,
    greedy: jax.Array,
    key: jax.Array,
    horizon: int,
) -> jax.Array:
    """(H, L) sequences; ``greedy`` ones take what is likeliest."""
    known = _known(weights, seen)

    def cycle(journey: Journey, time: jax.Array) -> tuple[Journey, jax.Array]:
        noise = jnp.where(greedy, 0.0, jax.random.gumbel(jax.random.fold_in(key, time), open_to.shape))
        logits = _logits(weights, known, where(engine, journey)) + noise
        decision = jnp.argmax(jnp.where(open_to, logits, -jnp.inf), 0).astype(jnp.int32)
        return advance(engine, journey, decision, expected=True)[0], decision

    return jax.lax.scan(cycle, begin(engine, who, expected=True), jnp.arange(horizon))[1]


@functools.partial(jax.jit, static_argnums=0)
def _along(engine: Engine, who: Cases, decisions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """((H, S, n) where courses stand before each of ``decisions`` (H, n), (H, n) how likely patients are to live to it)."""

    def cycle(journey: Journey, decision: jax.Array) -> tuple[Journey, tuple[jax.Array, jax.Array]]:
        return advance(engine, journey, decision, expected=True)[0], (where(engine, journey), journey.state.alive)

    return jax.lax.scan(cycle, begin(engine, who, expected=True), decisions)[1]


def train(
    engine: Engine,
    patients: int = PATIENTS,
    effort: Effort = THOROUGH,
    seed: int = 0,
    on_stage: Callable[[str, float], None] = lambda stage, share: None,
) -> Network:
    """Solve patients and learn from them.

    Args:
        engine: the environment; its actions must be regimens.
        patients: how many to solve.
        effort: how long to look for each one's best sequence.
        seed: same card and seed, same network on the same machine.
        on_stage: called with (what is being done, share of it that is done).
    """
    others = make_engine(engine.card, CausalGenerator(engine.card).sample(patients, seed=COHORT_SEED + seed))
    horizon, rows, solved = engine.horizon, [], []
    for start in range(0, patients, AT_ONCE):
        count = min(AT_ONCE, patients - start)
        who = cases(others, count, start)
        lines, _ = by_lines(others, who, count, horizon, effort.lines)
        best = improve(others, who, [lines], True, effort, seed).decisions
        rows.append(features(who, permitted(others, who, count)))
        solved.append((best, *map(np.asarray, _along(others, who, jnp.asarray(best)))))
        on_stage("solving patients", (start + count) / patients)
    seen = np.concatenate(rows, 1)
    decisions, now, alive = (np.concatenate(part, -1) for part in zip(*solved, strict=True))
    mean, scale = seen.mean(1), np.maximum(seen.std(1), 1e-2)
    weights = _learned(
        (seen - mean[:, None]) / scale[:, None], now, decisions, alive, len(engine.scenario.regimens), seed, on_stage
    )
    return Network(digest(engine.card), {**weights, "mean": mean, "scale": scale})


def _learned(
    seen: NDArray[np.float32],
    now: NDArray[np.float32],
    decisions: Sequence,
    alive: NDArray[np.float32],
    regimens: int,
    seed: int,
    on_stage: Callable[[str, float], None],
) -> dict[str, NDArray[np.float32]]:
    """Weights under which ``decisions`` (H, n) are likely, each weighed by the chance of living to it."""
    horizon, n = decisions.shape
    rng = np.random.default_rng([seed, 17])
    shapes = {"seen": (WIDTH, len(seen)), "known": (WIDTH, WIDTH), "now": (WIDTH, now.shape[1])}
    shapes |= {"then": (WIDTH, WIDTH), "out": (regimens, WIDTH)}
    weights: Weights = {name: rng.normal(0, (1.5 / shape[1]) ** 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {f"{name}_bias": np.zeros(shapes[name][0], np.float32) for name in ("seen", "known", "then", "out")}
    batches = horizon * n // BATCH
    adam = optax.adamw(optax.cosine_decay_schedule(RATE, batches * EPOCHS), weight_decay=1e-3)

    def loss(weights: Weights, x: jax.Array, now: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
        logits = _logits(weights, _known(weights, x), now).T
        return jnp.sum(weight * optax.softmax_cross_entropy_with_integer_labels(logits, y)) / jnp.sum(weight)

    @jax.jit
    def update(weights: Weights, state: Any, *batch: jax.Array) -> tuple[Weights, Any]:
        change, state = adam.update(jax.grad(loss)(weights, *batch), state, weights)
        return optax.apply_updates(weights, change), state  # type: ignore[return-value]

    state = adam.init(weights)
    for epoch in range(EPOCHS):
        for some in rng.permutation(horizon * n)[: batches * BATCH].reshape(batches, BATCH):
            time, patient = some // n, some % n
            batch = seen[:, patient], now[time, :, patient].T, decisions[time, patient], alive[time, patient]
            weights, state = update(weights, state, *map(jnp.asarray, batch))
        on_stage("learning", (epoch + 1) / EPOCHS)
    return {name: np.asarray(values, np.float32) for name, values in weights.items()}


# ------------------------------------------------------------------------------------------------ files


def network_file(card: str | os.PathLike[str]) -> Path:
    """Where the network of a card is kept: in ``networks`` beside it."""
    path = card_files().get(str(card), Path(card))
    return path.parent / "networks" / f"{path.stem}.npz"


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
    except Exception as error:  # a damaged archive raises whatever its reader trips over
        raise CardError(f"{path}: is not a network: {error}") from None
    return Network(card, weights)


_NAMES = ["seen", "seen_bias", "known", "known_bias", "now", "then", "then_bias", "out", "out_bias", "mean", "scale"]


def network_for(engine: Engine) -> Network | None:
    """The network of an environment's card, or None where there is none that fits."""
    return _shipped().get(digest(engine.card))


@functools.cache
def _shipped() -> dict[str, Network]:
    found = [read_network(path) for path in sorted((cards_folder() / "networks").glob("*.npz"))]
    return {one.card_digest: one for one in found}
