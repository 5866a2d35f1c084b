"""Finds the best sequence of decisions for a patient by inverse simulation.

The search starts with lines. From the first visit on, each regimen is tried as the next line until progression, followed by the
guideline's choices. The best is kept, and the search goes on to the next line. Another start comes from gradient ascent on the
expected value (:mod:`.relaxed`): weights of all regimens, constant over stretches of the horizon, converge to one regimen each.
Blocks of cycles come next. On several islands, sequences are drawn at random, and the share of each regimen in each block moves
towards the best draws (the cross-entropy method). Single cycles come last. The best few sequences of a patient are changed (other
regimens in windows, shifts, joins of two sequences) as long as that improves the exact value of the discrete sequence.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.planner import usual
from onco_gym.foundation.threads import beside
from onco_gym.interfaces.engine import Engine
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.rewards import blend
from onco_gym.simulator.state import Journey
from onco_gym.verification.course import QUALITY, Cases, Reading, Sequence, advance, begin, crisp, in_parts, move

LANES = 2048
"""Courses simulated at once."""
BLOCK = 128
"""Patients whose sequences are changed together; blocks of patients run in parallel."""
ELITE = 10
"""Best sequences of a patient that are kept for further changes."""
BLOCKS = 22
"""Approximate number of blocks of cycles with one regimen each, in sequences drawn at random."""
DRAWN = 100
"""Sequences drawn at random in a round. The best tenth of them determine the next draws."""
LEAN = 0.7
"""How far the shares of the regimens move towards those of the best in a round."""
SHIFTS = (-4, -2, -1, 1, 2, 4)
"""Cycles by which the rest of a sequence is shifted."""


Valued = Callable[[Sequence, NDArray[Any]], NDArray[np.float32]]
"""Maps sequences (H, C, m) for patients (m,) to their values (C, m)."""
Shortlist = Callable[[Sequence, NDArray[np.int32]], NDArray[np.bool_]]
"""Maps (H, n) decisions and (n,) the first open cycle to (R, n) the regimens worth trying from that cycle on."""


@dataclass(frozen=True)
class Effort:
    """How long to search.

    Attributes:
        lines: number of lines to search, one after the other.
        islands: groups of a patient's sequences that first evolve separately, from random sequences; 0 for none.
        draws: rounds of drawing, on each island.
        moves: changes of a patient's sequences tried in a round, on all islands together.
        rounds: largest number of rounds of changes; on islands half as many.
        patience: rounds without a gain after which the search for a patient stops.
    """

    lines: int = 4
    islands: int = 8
    draws: int = 15
    moves: int = 320
    rounds: int = 80
    patience: int = 20


THOROUGH = Effort()
BRIEF = Effort(islands=0, moves=128, rounds=5, patience=2)
"""For many episodes: simulates less than a tenth of the courses and finds nearly the same value."""


@dataclass(frozen=True, eq=False)
class Plans:
    """The best sequences found, one per patient.

    Attributes:
        decisions: (H, n) int32.
        value: (n,) the value of each, in the reading used by the search.
        tried: (n,) courses simulated for each patient.
    """

    decisions: Sequence
    value: NDArray[np.float32]
    tried: NDArray[np.int64]


def improve(
    engine: Engine,
    who: Cases,
    starts: Listed[Sequence],
    reading: Reading = "expected",
    effort: Effort = THOROUGH,
    seed: int = 0,
    among: NDArray[np.bool_] | None = None,
    since: NDArray[np.int32] | None = None,
) -> Plans:
    """Improve the best of ``starts`` as long as changes gain anything.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n * P) patients, P for each sequence, patient by patient.
        starts: (H, n) sequences to start from.
        reading: the reading in which sequences are valued.
        effort: how long to search.
        seed: the seed of the changes that are tried.
        among: (R, n) regimens that may be given; by default all that the guideline does not forbid.
        since: (n,) the first cycle that may be changed; by default 0. Earlier cycles are those of the first of ``starts``.
    """
    n = starts[0].shape[1]
    size = who.key.shape[-1] // n
    open_to = permitted(engine, who, n) if among is None else among
    fixed = np.zeros(n, np.int32) if since is None else since
    pool = np.stack(starts, 1)  # (H, K, n)
    pool = np.where(np.arange(len(pool))[:, None, None] < fixed, pool[:, :1], pool)

    def block(first: int) -> Plans:
        some = np.arange(first, min(first + BLOCK, n))
        few = who.take(jnp.asarray((some[:, None] * size + np.arange(size)).reshape(-1)))

        def valued(sequences: Sequence, patient: NDArray[Any]) -> NDArray[np.float32]:
            horizon, count, m = sequences.shape
            each = sequences.reshape(horizon, -1), np.tile(patient, count)
            return totals_of(engine, few, len(some), *each, reading)[0].reshape(count, m)

        task = _Task(valued, np.arange(len(some)), open_to[:, some], fixed[some])
        return _search(task, pool[:, :, some], effort, np.random.default_rng([seed, 11, first]))

    parts = beside(block, range(0, n, BLOCK))
    joined = (np.concatenate([getattr(part, name) for part in parts], -1) for name in ("decisions", "value", "tried"))
    return Plans(*joined)


class _Task(NamedTuple):
    """Whose sequences are searched, m at a time."""

    valued: Valued
    patient: NDArray[Any]  # (m,)
    open_to: NDArray[np.bool_]  # (R, m) regimens that may be given
    since: NDArray[np.int32]  # (m,) the first cycle that may be changed


def _search(task: _Task, pool: Sequence, effort: Effort, rng: np.random.Generator) -> Plans:
    """Like :func:`improve`, from ``pool`` (H, K, n)."""
    n = pool.shape[2]
    worth, tried = task.valued(pool, task.patient), np.full(n, pool.shape[1], np.int64)
    if effort.islands:
        # Each island evolves separately, from random sequences to a few that are changed. Then all islands are joined.
        many = np.tile(task.patient, effort.islands)
        there = _Task(task.valued, many, task.open_to[:, many], task.since[many])
        drawn, value = _drawn(there, pool[:, :1, many], effort.draws, rng)
        apart = replace(effort, moves=effort.moves // effort.islands, rounds=effort.rounds // 2)
        drawn, value, took = _evolved(there, drawn, value, apart, rng)
        pool = np.concatenate([pool, drawn.reshape(len(pool), -1, n)], 1)
        worth = np.concatenate([worth, value.reshape(-1, n)])
        tried += effort.islands * (len(task.open_to) + effort.draws * DRAWN) + took.reshape(-1, n).sum(0)
    pool, worth, took = _evolved(task, pool, worth, effort, rng)
    return Plans(pool[:, 0].astype(np.int32), worth[0], tried + took)


def _evolved(
    task: _Task, pool: Sequence, worth: NDArray[np.float32], effort: Effort, rng: np.random.Generator
) -> tuple[Sequence, NDArray[np.float32], NDArray[np.int64]]:
    """Change ``pool`` (H, K, m). Returns (H, ELITE, m) sequences, best first, their values, and (m,) how many were tried."""
    fill = np.arange(max(pool.shape[1], ELITE)) % pool.shape[1]
    pool, worth = _best(pool[:, fill], worth[fill])
    tried, idle = np.zeros(len(task.patient), np.int64), np.zeros(len(task.patient), int)
    for _ in range(effort.rounds):
        active = np.flatnonzero(idle < effort.patience)
        if not len(active):
            break
        new = _changed(pool[:, :, active], task.open_to[:, active], task.since[active], effort.moves, rng)
        value = task.valued(new, task.patient[active])
        kept, best = _best(np.concatenate([pool[:, :, active], new], 1), np.concatenate([worth[:, active], value]))
        idle[active] = np.where(best[0] > worth[0, active] + 1e-5, 0, idle[active] + 1)
        pool[:, :, active], worth[:, active] = kept, best
        tried[active] += effort.moves
    return pool, worth, tried


def _drawn(task: _Task, begun: Sequence, draws: int, rng: np.random.Generator) -> tuple[Sequence, NDArray[np.float32]]:
    """(H, K, m) the best sequences drawn at random, block by block, and their values.

    Before ``since`` (m,) they equal ``begun`` (H, 1, m). The draws include every allowed regimen given throughout.
    """
    valued, patient, open_to, since = task
    (regimens, m), horizon = open_to.shape, len(begun)
    time = np.arange(horizon)[:, None, None]
    blocks = min(BLOCKS, horizon)
    shares = np.repeat((open_to / open_to.sum(0))[None], blocks, 0)  # (blocks, R, m)
    always = np.broadcast_to(np.where(open_to, np.arange(regimens)[:, None], open_to.argmax(0)), (horizon, regimens, m))
    pool = np.where(time < since, begun, always)
    worth = valued(pool, patient)
    for _ in range(draws):
        edges = np.cumsum(shares, 1)
        edges /= edges[:, -1:]  # the last regimen with a share ends at exactly 1, so later ones are never drawn
        point, choice = rng.random((blocks, DRAWN, m)), np.zeros((blocks, DRAWN, m), np.int32)
        for edge in np.moveaxis(edges[:, :-1], 1, 0):
            choice += point >= edge[:, None]
        new = np.where(time < since, begun, choice[np.arange(horizon) * blocks // horizon])
        value = valued(new, patient)
        pool, worth = _best(np.concatenate([pool, new], 1), np.concatenate([worth, value]))
        best = np.take_along_axis(choice, np.argsort(-value, 0)[None, : DRAWN // 10], 1)
        found = np.stack([(best == regimen).mean(1) for regimen in range(regimens)], 1)
        shares = (1 - LEAN) * shares + LEAN * found
    return pool, worth


def _best(pool: Sequence, worth: NDArray[np.float32]) -> tuple[Sequence, NDArray[np.float32]]:
    """The :data:`ELITE` best of sequences (H, C, n) with values (C, n), best first. Equal values count once."""
    order = np.argsort(-worth, axis=0)
    ranked = np.take_along_axis(worth, order, 0)
    again = np.concatenate([np.zeros((1, worth.shape[1]), bool), np.abs(np.diff(ranked, axis=0)) < 1e-6])
    order = np.take_along_axis(order, np.argsort(again, axis=0, kind="stable")[:ELITE], 0)
    return pool[:, order, np.arange(pool.shape[2])], np.take_along_axis(worth, order, 0)


def _changed(
    pool: Sequence, open_to: NDArray[np.bool_], since: NDArray[np.int32], count: int, rng: np.random.Generator
) -> Sequence:
    """(H, count, n) changed sequences of ``pool`` (H, K, n), the better ones more often."""
    horizon, elite, n = pool.shape
    shape, each, time = (count, n), np.arange(n), np.arange(horizon)[:, None, None]
    base = (elite * rng.random(shape) ** 2).astype(int)
    made = pool[:, base, each]
    # Some continue like another sequence, and some are shifted in time.
    joined, cut = rng.random(shape) < 0.15, rng.integers(0, horizon, shape)
    made = np.where(joined & (time >= cut), pool[:, rng.integers(0, elite, shape), each], made)
    moved, cut, by = rng.random(shape) < 0.15, rng.integers(0, horizon, shape), rng.choice(SHIFTS, shape)
    source = np.where(time < cut, time, np.where(time < cut + by, np.maximum(cut - 1, 0), time - by))
    made = np.where(moved, np.take_along_axis(made, np.clip(source, 0, horizon - 1), 0), made)
    # In one to three windows another regimen is given: for a stretch, to the end, or for a random length.
    edge = np.ones((1, elite, n), bool)
    change = pool[1:] != pool[:-1]
    begins = np.maximum.accumulate(np.where(np.concatenate([edge, change]), time, 0), 0)
    ends = np.minimum.accumulate(np.where(np.concatenate([change, edge]), time + 1, horizon)[::-1], 0)[::-1]
    ranked, number = np.argsort(~open_to, axis=0, kind="stable"), open_to.sum(0)
    windows = rng.choice((1, 2, 3), shape, p=(0.5, 0.3, 0.2)) * ~(moved & (rng.random(shape) < 0.7))
    for window in range(3):
        first = rng.integers(0, horizon, shape)
        first = np.where(rng.random(shape) < 0.5, begins[first, base, each], first)
        length, kind = np.exp(rng.random(shape) * np.log(horizon + 0.99)).astype(int), rng.random(shape)
        last = np.minimum(first + length, horizon)
        last = np.where(kind < 0.35, ends[first, base, each], np.where(kind < 0.5, horizon, last))
        regimen = ranked[(rng.random(shape) * number).astype(int), each]
        near = np.where(rng.random(shape) < 0.5, np.maximum(first - 1, 0), np.minimum(last, horizon - 1))
        kind = rng.random(shape)
        regimen = np.where(kind < 0.3, pool[near, base, each], regimen)
        used = pool[rng.integers(0, horizon, shape), rng.integers(0, elite, shape), each]
        regimen = np.where((kind >= 0.3) & (kind < 0.5), used, regimen)
        made = np.where((window < windows) & (time >= first) & (time < last), regimen, made)
    return np.where(time < since, pool[:, :1], made)


def permitted(engine: Engine, who: Cases, n: int) -> NDArray[np.bool_]:
    """(R, n) the regimens that the guideline does not forbid at the first visit if all tests are known."""
    size = who.key.shape[-1] // n
    return np.asarray(_permitted(engine, who.take(np.arange(n) * size)))


@functools.partial(jax.jit, static_argnums=0)
def _permitted(engine: Engine, who: Cases) -> jax.Array:
    journey = begin(engine, who, "sampled")
    state = journey.state
    hearing = engine.hear(journey._replace(state=state._replace(result_cycle=jnp.zeros_like(state.result_cycle))))
    forbidden = VERDICTS.index("contraindicated")
    codes = [engine.panel.opinion(jnp, hearing, jnp.full_like(state.last, r)).code for r in range(len(engine.scenario.regimens))]
    return jnp.stack(codes) != forbidden


def value_of(engine: Engine, who: Cases, decisions: Sequence, reading: Reading = "expected") -> NDArray[np.float32]:
    """(n,) the value of ``decisions`` (H, n)."""
    n = decisions.shape[1]
    return totals_of(engine, who, n, decisions, np.arange(n), reading)[0]


def totals_of(
    engine: Engine, who: Cases, n: int, sequences: Sequence, patient: NDArray[Any], reading: Reading = "expected"
) -> NDArray[np.float32]:
    """(2, L) the value of ``sequences`` (H, L), and the quality-adjusted life years in it.

    Sequence l is for ``patient`` (L,) among the n in ``who`` (…, n * P). Both are means over P.
    """
    size = who.key.shape[-1] // n

    def some(lanes: NDArray[np.intp]) -> list[jax.Array]:
        decisions = jnp.asarray(sequences[:, lanes], jnp.int32)
        return [_totals(engine, _taken(who, patient[lanes], size), decisions, size, reading)]

    return in_parts(some, len(patient), max(LANES // size, 1))[0]


@functools.partial(jax.jit, static_argnums=2)
def _taken(who: Cases, patient: jax.Array, size: int) -> Cases:
    """(…, L * size) the ``size`` patients of each of the sequences of ``patient`` (L,)."""
    return who.take((patient[:, None] * size + jnp.arange(size)).reshape(-1))


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _totals(engine: Engine, who: Cases, decisions: jax.Array, size: int, reading: Reading) -> jax.Array:
    """(2, L) totals of ``decisions`` (H, L) for ``who`` (…, L * size)."""

    def cycle(carry: tuple[Journey, jax.Array], decision: jax.Array) -> tuple[tuple[Journey, jax.Array], None]:
        journey, total = carry
        after, _, terms, _ = move(engine, journey, jnp.repeat(decision, size), reading)
        return (after, total + jnp.stack([blend(engine.weights, terms), terms[QUALITY]])), None

    start = begin(engine, who, reading), jnp.zeros((2, who.key.shape[-1]))
    total = jax.lax.scan(cycle, start, decisions)[0][1]
    return jnp.mean(total.reshape(2, -1, size), 2)


# ------------------------------------------------------------------------------------------------ lines first


def by_lines(
    engine: Engine,
    who: Cases,
    n: int,
    horizon: int,
    lines: int = 4,
    among: NDArray[np.bool_] | None = None,
    begun: tuple[Sequence, NDArray[np.int32]] | None = None,
    shortlist: Shortlist | None = None,
    on_line: Callable[[Sequence, NDArray[np.int32], NDArray[np.float32]], None] = lambda decisions, since, table: None,
) -> tuple[Sequence, int]:
    """((H, n) sequences found line by line, largest number of courses simulated for a patient).

    The search starts from the guideline's own choices. Then each line in turn is replaced by the regimen that makes the course
    worth most when the guideline's choices follow it.

    Args:
        engine: the environment; its actions must be regimens.
        who: (…, n * P) patients, P for each sequence, patient by patient.
        n: number of sequences.
        horizon: cycles.
        lines: how many lines to search.
        among: (R, n) regimens that may be given; others become a pause. By default all that are not forbidden.
        begun: (H, n) decisions already made, and (n,) how many of them.
        shortlist: chooses the regimens to try, instead of all.
        on_line: called for every line with (H, n) decisions so far, (n,) the cycle it begins in, and (R, n) the value of each
            regimen as this line, -inf where it was not tried.
    """
    open_to = permitted(engine, who, n) if among is None else among
    none, each = np.full(n, -1, np.int32), np.arange(n)
    made, since = begun if begun is not None else (np.zeros((horizon, n), np.int32), np.zeros(n, np.int32))
    decisions, value, ends = _lines(engine, who, made, each, since, none)
    tried = 1
    for _ in range(lines):
        wanted = open_to & (since < horizon)
        if shortlist is not None:
            wanted &= shortlist(decisions, since)
            tried += int(since.any())
        patient, regimen = np.nonzero(wanted.T)
        if not len(patient):
            break
        found, worth, stops = _lines(engine, who, decisions, patient, since[patient], regimen.astype(np.int32))
        tried += int(wanted.sum(0).max())
        table, place = np.full(wanted.shape, -np.inf, np.float32), np.zeros(wanted.shape, int)
        table[regimen, patient], place[regimen, patient] = worth, np.arange(len(patient))
        on_line(decisions, since, table)
        best = table.argmax(0)
        chosen, better = place[best, each], table.max(0) > value + 1e-6
        decisions[:, better] = found[:, chosen[better]]
        value[better] = table.max(0)[better]
        ends[better] = stops[chosen[better]]
        since = np.where(better, ends, _next_change(decisions, since))
    if among is not None:
        decisions = np.where(among[decisions, each], decisions, engine.scenario.holiday)
    return decisions, tried


def _next_change(decisions: Sequence, since: NDArray[np.int32]) -> NDArray[np.int32]:
    """(n,) the cycle in which the regimen given at ``since`` ends."""
    horizon, n = decisions.shape
    time = np.arange(horizon)[:, None]
    at = decisions[np.minimum(since, horizon - 1), np.arange(n)]
    changed = (time > since) & (decisions != at)
    return np.where(changed.any(0), changed.argmax(0), horizon).astype(np.int32)


def _lines(
    engine: Engine, who: Cases, decisions: Sequence, patient: NDArray[Any], since: NDArray[Any], regimen: NDArray[Any]
) -> tuple[Sequence, NDArray[np.float32], NDArray[np.int32]]:
    """((H, L) decisions, (L,) values, (L,) cycle in which the line ended) of a line of ``regimen`` begun at ``since``."""
    size = who.key.shape[-1] // decisions.shape[1]

    def some(lanes: NDArray[np.intp]) -> tuple[jax.Array, ...]:
        parts = (jnp.asarray(part, jnp.int32) for part in (decisions[:, patient[lanes]], since[lanes], regimen[lanes]))
        return _line(engine, _taken(who, patient[lanes], size), *parts, size)

    made, worth, ends = in_parts(some, len(patient), max(LANES // size, 1))
    return made, worth, ends


@functools.partial(jax.jit, static_argnums=(0, 5))
def _line(
    engine: Engine, who: Cases, decisions: jax.Array, since: jax.Array, regimen: jax.Array, size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Like :func:`_lines`, for ``who`` (…, L * size) who got ``decisions`` (H, L) up to ``since`` (L,).

    All ``size`` patients share one sequence. The guideline's choices are those for the first patient, and the line ends when
    most have progressed.
    """
    lanes, scenario = regimen.shape[0], engine.scenario

    class _Carry(NamedTuple):
        journey: Journey
        value: jax.Array  # (L * size,)
        on: jax.Array  # (L,) bool: the line being tried goes on
        end: jax.Array  # (L,) int32

    def cycle(carry: _Carry, at: tuple[jax.Array, jax.Array]) -> tuple[_Carry, jax.Array]:
        time, planned = at
        otherwise, hearing = usual(engine, crisp(carry.journey))
        begun = time >= since
        on = carry.on & begun & (regimen >= 0)
        decision = jnp.where(begun, jnp.where(on, regimen, otherwise[::size]), planned)
        after, events = advance(engine, carry.journey, jnp.repeat(decision, size), reading="expected")
        terms, _ = engine.personal(hearing, carry.journey, after, events)
        value = carry.value + blend(engine.weights, terms)
        done = (jnp.mean((after.state.progressed > 0.5).reshape(lanes, size), 1) > 0.5) & begun
        still = carry.on & ~(done & (regimen != scenario.supportive)) & ~(begun & (regimen == scenario.holiday))
        end = jnp.where(carry.on & ~still, time + 1, carry.end)
        return _Carry(after, value, still, end), decision

    start = begin(engine, who, reading="expected")
    horizon = decisions.shape[0]
    carry = _Carry(start, jnp.zeros(who.key.shape[-1]), jnp.ones(lanes, bool), jnp.full(lanes, horizon, jnp.int32))
    carry, given = jax.lax.scan(cycle, carry, (jnp.arange(horizon), decisions))
    return given, jnp.mean(carry.value.reshape(-1, size), 1), carry.end
