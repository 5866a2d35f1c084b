"""The best sequence of decisions for a patient, found by inverse simulation.

Lines first: from the first visit on, each regimen is tried as the next line, until progression, with the guideline's choices
after it; the best is kept, and the line after it is looked for. Beside it, weights of all regimens, constant over stretches of
the horizon, climb the gradient of the expected value while they are drawn towards one regimen each (:mod:`.relaxed`). Then
cycles: the best sequence so far is changed in windows (a boundary moved, a stretch replaced, a pause put in) as long as that
gains anything, by the exact value of the discrete sequence.
"""

import functools
import itertools
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.planner import usual
from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import blend
from onco_gym.simulator.state import Journey
from onco_gym.verification.course import Cases, Sequence, advance, begin, crisp, move

LANES = 2048
"""Courses that are simulated at once."""
SHIFTS = (1, 2, 4, 8, 16)
"""Cycles by which boundaries are moved."""


@dataclass(frozen=True)
class Effort:
    """How long to look.

    Attributes:
        lines: lines that are looked for one after the other.
        moves: changes of a sequence tried in a round.
        rounds: at most so many rounds.
        patience: rounds without a gain after which a patient's sequence is left as it is.
    """

    lines: int = 4
    moves: int = 160
    rounds: int = 8
    patience: int = 2


USUAL = Effort()


@dataclass(frozen=True, eq=False)
class Plans:
    """The best sequences found, one per patient.

    Attributes:
        decisions: (H, n) int32.
        value: (n,) of each, in the reading in which it was looked for.
        tried: (n,) courses simulated for each patient.
    """

    decisions: Sequence
    value: NDArray[np.float32]
    tried: NDArray[np.int64]


def improve(
    engine: Engine,
    who: Cases,
    starts: Listed[Sequence],
    expected: bool = True,
    effort: Effort = USUAL,
    seed: int = 0,
    among: NDArray[np.bool_] | None = None,
    since: NDArray[np.int32] | None = None,
) -> Plans:
    """The best of ``starts``, changed in windows as long as that gains anything.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n * P) patients: P that one and the same sequence is for, patient by patient.
        starts: (H, n) sequences to start from.
        expected: the reading in which sequences are valued; if not, with each patient's own chance.
        effort: how long to look.
        seed: of the changes that are tried at random.
        among: (R, n) regimens that may be given; by default all that the guideline does not forbid.
        since: (n,) the first cycle that may be changed; by default 0.
    """
    n = starts[0].shape[1]
    values = np.stack([value_of(engine, who, start, expected) for start in starts])
    best = values.argmax(0)
    decisions = np.stack(starts)[best, :, np.arange(n)].T.copy()
    value = values[best, np.arange(n)]
    tried = np.full(n, len(starts), np.int64)
    open_to = permitted(engine, who, n) if among is None else among
    rng = np.random.default_rng([seed, 11])
    idle = np.zeros(n, int)
    for _ in range(effort.rounds):
        active = np.flatnonzero(idle < effort.patience)
        if not len(active):
            break
        moves = _moves(decisions[:, active], open_to[:, active], effort.moves, rng, engine.scenario.holiday)
        if since is not None:
            moves = moves._replace(first=np.maximum(moves.first, since[active, None]))
        found = _try(engine, who, decisions, active, moves, expected)
        tried[active] += found.shape[1] + 1
        decisions, value, gained = _adopt(engine, who, decisions, value, active, moves, found, expected)
        idle[active] = np.where(gained, 0, idle[active] + 1)
    return Plans(decisions, value, tried)


class Moves(NamedTuple):
    """Changes of sequences, C for each of m patients: cycles first..last - 1 are given to a regimen."""

    first: NDArray[np.int32]  # (m, C)
    last: NDArray[np.int32]  # (m, C)
    regimen: NDArray[np.int32]  # (m, C)


def permitted(engine: Engine, who: Cases, n: int) -> NDArray[np.bool_]:
    """(R, n) the regimens that the guideline does not forbid a patient at the first visit, all tests known."""
    size = who.key.shape[0] // n
    return np.asarray(_permitted(engine, who.take(np.arange(n) * size)))


@functools.partial(jax.jit, static_argnums=0)
def _permitted(engine: Engine, who: Cases) -> jax.Array:
    journey = begin(engine, who, False)
    state = journey.state
    hearing = engine.hear(journey._replace(state=state._replace(result_cycle=jnp.zeros_like(state.result_cycle))))
    forbidden = VERDICTS.index("contraindicated")
    codes = [engine.panel.opinion(jnp, hearing, jnp.full_like(state.last, r)).code for r in range(len(engine.scenario.regimens))]
    return jnp.stack(codes) != forbidden


def _moves(decisions: Sequence, open_to: NDArray[np.bool_], count: int, rng: np.random.Generator, holiday: int) -> Moves:
    """``count`` changes for each patient: all boundaries moved, all stretches replaced, and windows at random for the rest."""
    horizon, n = decisions.shape
    regimens = open_to.shape[0]
    rows = np.zeros((3, n, count), np.int32)
    short = horizon * (horizon + 1) // 2 * regimens <= count
    for i in range(n):
        row, can = decisions[:, i], np.flatnonzero(open_to[:, i])
        if short:
            first, last = np.triu_indices(horizon)
            made = [(int(f), int(t) + 1, int(r)) for f, t in zip(first, last, strict=True) for r in can]
        else:
            made = _structured(row, can, holiday)
        made = made if len(made) <= count else [made[k] for k in rng.permutation(len(made))[:count]]
        rows[:, i, : len(made)] = np.array(made, np.int32).T if made else rows[:, i, :0]
        rest = count - len(made)
        if rest:
            start = rng.integers(0, horizon, rest)
            length = np.exp(rng.uniform(0, np.log(horizon), rest)).astype(int) + 1
            rows[:, i, len(made) :] = start, np.minimum(start + length, horizon), rng.choice(can, rest)
    return Moves(*rows)


def _structured(row: NDArray[np.int32], can: NDArray[np.intp], holiday: int) -> list[tuple[int, int, int]]:
    horizon = len(row)
    cuts = np.flatnonzero(np.diff(row)) + 1
    edges = [0, *cuts.tolist(), horizon]
    made = []
    for cut in cuts.tolist():
        for by in SHIFTS:
            made.append((cut, min(cut + by, horizon), int(row[cut - 1])))
            made.append((max(cut - by, 0), cut, int(row[cut])))
    for start, end in itertools.pairwise(edges):
        made += [(start, end, int(r)) for r in can if r != row[start]]
        if end - start > 2:
            made += [(start + 1, end, holiday), ((start + end) // 2, end, holiday)]
    return made


def _try(engine: Engine, who: Cases, decisions: Sequence, which: NDArray[np.intp], moves: Moves, expected: bool) -> Any:
    """(m, C) the value of every change for the patients ``which``."""
    count = moves.first.shape[1]
    patient = np.repeat(which, count)
    first, last, regimen = (part.reshape(-1) for part in moves)
    return values_of(engine, who, decisions, patient, first, last, regimen, expected).reshape(-1, count)


def _adopt(
    engine: Engine,
    who: Cases,
    decisions: Sequence,
    value: NDArray[np.float32],
    which: NDArray[np.intp],
    moves: Moves,
    found: NDArray[np.float32],
    expected: bool,
) -> tuple[Sequence, NDArray[np.float32], NDArray[np.bool_]]:
    """The sequences with the best change, or with the best few that do not overlap, whichever is worth more."""
    gain = found - value[which, None]
    one, many = decisions.copy(), decisions.copy()
    for row, i in enumerate(which):
        order = np.argsort(-gain[row])[:8]
        taken = np.zeros(len(decisions), bool)
        for number, k in enumerate(order):
            first, last = moves.first[row, k], moves.last[row, k]
            if gain[row, k] <= 0 or taken[first:last].any():
                continue
            taken[max(first - 1, 0) : last + 1] = True
            many[first:last, i] = moves.regimen[row, k]
            if number == 0:
                one[first:last, i] = moves.regimen[row, k]
    best = np.where(gain.max(1) > 0, found.max(1), value[which])
    together = value_of(engine, who, many, expected)[which]
    both = together > best
    decisions = one
    decisions[:, which[both]] = many[:, which[both]]
    after = value.copy()
    after[which] = np.maximum(together, best)
    return decisions, after, after[which] > value[which] + 1e-5


def value_of(engine: Engine, who: Cases, decisions: Sequence, expected: bool = True) -> NDArray[np.float32]:
    """(n,) the value of ``decisions`` (H, n), as it is."""
    n = decisions.shape[1]
    zero = np.zeros(n, np.int32)
    return values_of(engine, who, decisions, np.arange(n), zero, zero, zero, expected=expected)


def values_of(
    engine: Engine,
    who: Cases,
    decisions: Sequence,
    patient: NDArray[Any],
    first: NDArray[Any],
    last: NDArray[Any],
    regimen: NDArray[Any],
    expected: bool = True,
) -> NDArray[np.float32]:
    """(L,) the value of the sequences of ``patient`` (L,) with the cycles ``first``..``last`` - 1 given to ``regimen``."""
    n = decisions.shape[1]
    size = who.key.shape[0] // n
    at_once = max(LANES // size, 1)
    out = np.empty(len(patient), np.float32)
    held = jnp.asarray(decisions, jnp.int32)
    for start in range(0, len(patient), at_once):
        some = np.resize(np.arange(start, min(start + at_once, len(patient))), at_once)  # one shape, one compilation
        lanes = [jnp.asarray(part[some], jnp.int32) for part in (patient, first, last, regimen)]
        out[some] = np.asarray(_values(engine, who, held, *lanes, size, expected))
    return out


@functools.partial(jax.jit, static_argnums=(0, 7, 8))
def _values(
    engine: Engine,
    who: Cases,
    decisions: jax.Array,
    patient: jax.Array,
    first: jax.Array,
    last: jax.Array,
    regimen: jax.Array,
    size: int,
    expected: bool,
) -> jax.Array:
    """(L,) mean over the ``size`` that a sequence is for."""
    rows = (patient[:, None] * size + jnp.arange(size)).reshape(-1)
    own = jnp.repeat(jnp.take(decisions, patient, axis=1), size, axis=1)
    first, last, regimen = (jnp.repeat(part, size) for part in (first, last, regimen))

    def cycle(carry: tuple[Journey, jax.Array], at: tuple[jax.Array, jax.Array]) -> tuple[tuple[Journey, jax.Array], None]:
        journey, value = carry
        time, usual = at
        decision = jnp.where((time >= first) & (time < last), regimen, usual)
        after, _, terms, _ = move(engine, journey, decision, expected)
        return (after, value + blend(engine.weights, terms)), None

    start = begin(engine, who.take(rows), expected)
    times = jnp.arange(decisions.shape[0])
    (_, value), _ = jax.lax.scan(cycle, (start, jnp.zeros(rows.shape)), (times, own))
    return jnp.mean(value.reshape(-1, size), 1)


# ------------------------------------------------------------------------------------------------ lines first


def by_lines(
    engine: Engine,
    who: Cases,
    n: int,
    horizon: int,
    lines: int = 4,
    among: NDArray[np.bool_] | None = None,
    begun: tuple[Sequence, NDArray[np.int32]] | None = None,
) -> tuple[Sequence, int]:
    """((H, n) sequences found line by line, courses simulated for each patient).

    The guideline's own choices come first; then each line in turn is replaced by the regimen after which, with the guideline's
    choices to follow, the course is worth most. Where ``among`` (R, n) says which regimens may be given, those it leaves out
    become a pause. ``begun`` are (H, n) decisions that were made already, and (n,) how many of them.
    """
    open_to = permitted(engine, who, n) if among is None else among
    regimens = open_to.shape[0]
    none = np.full(n, -1, np.int32)
    made, since = begun if begun is not None else (np.zeros((horizon, n), np.int32), np.zeros(n, np.int32))
    decisions, value, ends = _lines(engine, who, made, np.arange(n), since, none)
    tried = 1
    for _ in range(lines):
        patient, regimen = np.nonzero(open_to.T & (since < horizon)[:, None])
        if not len(patient):
            break
        found, worth, stops = _lines(engine, who, decisions, patient, since[patient], regimen.astype(np.int32))
        tried += regimens
        table = np.full((n, regimens), -np.inf, np.float32)
        table[patient, regimen] = worth
        best = table.argmax(1)
        place = np.full((n, regimens), -1)
        place[patient, regimen] = np.arange(len(patient))
        chosen = place[np.arange(n), best]
        better = (table.max(1) > value + 1e-6) & (chosen >= 0)
        decisions[:, better] = found[:, chosen[better]]
        value[better] = table.max(1)[better]
        ends[better] = stops[chosen[better]]
        since = np.where(better, ends, _next_change(decisions, since))
    if among is not None:
        decisions = np.where(among[decisions, np.arange(n)], decisions, engine.scenario.holiday)
    return decisions, tried


def _next_change(decisions: Sequence, since: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n,) the cycle in which what is given at ``since`` ends."""
    horizon, n = decisions.shape
    time = np.arange(horizon)[:, None]
    at = decisions[np.minimum(since, horizon - 1), np.arange(n)]
    changed = (time > since) & (decisions != at)
    return np.where(changed.any(0), changed.argmax(0), horizon).astype(np.int32)


def _lines(
    engine: Engine,
    who: Cases,
    decisions: Sequence,
    patient: NDArray[Any],
    since: NDArray[Any],
    regimen: NDArray[Any],
) -> tuple[Sequence, NDArray[np.float32], NDArray[np.int32]]:
    """((H, L) decisions, (L,) values, (L,) cycle in which the line ended) of a line of ``regimen`` begun at ``since``."""
    horizon, n = decisions.shape
    size = who.key.shape[0] // n
    at_once = max(LANES // size, 1)
    made = np.empty((horizon, len(patient)), np.int32)
    worth, ends = np.empty(len(patient), np.float32), np.empty(len(patient), np.int32)
    held = jnp.asarray(decisions, jnp.int32)
    for start in range(0, len(patient), at_once):
        some = np.resize(np.arange(start, min(start + at_once, len(patient))), at_once)
        lanes = [jnp.asarray(part[some], jnp.int32) for part in (patient, since, regimen)]
        given, value, end = _line(engine, who, held, *lanes, size)
        made[:, some], worth[some], ends[some] = np.asarray(given), np.asarray(value), np.asarray(end)
    return made, worth, ends


@functools.partial(jax.jit, static_argnums=(0, 6))
def _line(
    engine: Engine,
    who: Cases,
    decisions: jax.Array,
    patient: jax.Array,
    since: jax.Array,
    regimen: jax.Array,
    size: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As :func:`_lines`.

    One sequence is made for all ``size`` together: the guideline's choices are those for the first, and the line ends when most
    have progressed.
    """
    lanes = patient.shape[0]
    rows = (patient[:, None] * size + jnp.arange(size)).reshape(-1)
    own = jnp.take(decisions, patient, axis=1)
    scenario = engine.scenario

    class _Carry(NamedTuple):
        journey: Journey
        value: jax.Array  # (L * size,)
        on: jax.Array  # (L,) bool: the line that is tried still goes on
        end: jax.Array  # (L,) int32

    def cycle(carry: _Carry, at: tuple[jax.Array, jax.Array]) -> tuple[_Carry, jax.Array]:
        time, planned = at
        otherwise, hearing = usual(engine, crisp(carry.journey))
        begun = time >= since
        on = carry.on & begun & (regimen >= 0)
        decision = jnp.where(begun, jnp.where(on, regimen, otherwise[::size]), planned)
        after, events = advance(engine, carry.journey, jnp.repeat(decision, size), expected=True)
        terms, _ = engine.personal(hearing, carry.journey, after, events)
        value = carry.value + blend(engine.weights, terms)
        done = (jnp.mean((after.state.progressed > 0.5).reshape(lanes, size), 1) > 0.5) & begun
        still = carry.on & ~(done & (regimen != scenario.supportive)) & ~(begun & (regimen == scenario.holiday))
        end = jnp.where(carry.on & ~still, time + 1, carry.end)
        return _Carry(after, value, still, end), decision

    start = begin(engine, who.take(rows), expected=True)
    horizon = decisions.shape[0]
    carry = _Carry(start, jnp.zeros(rows.shape), jnp.ones(lanes, bool), jnp.full(lanes, horizon, jnp.int32))
    carry, given = jax.lax.scan(cycle, carry, (jnp.arange(horizon), own))
    return given, jnp.mean(carry.value.reshape(-1, size), 1), carry.end
