"""Measure how good inverse verification is: the figures of docs/verification.md, card by card.

    python benchmarks/verification.py nsclc                            # all parts: about half an hour on two cores
    python benchmarks/verification.py nsclc --part brute rivals --json runs/verification-nsclc.json

Parts: ``brute`` (all sequences of a short horizon), ``rivals`` (guideline, constants, a learned policy, cross-entropy search with
ten times the courses), ``values`` (the values of agents and plans when they are played), ``warm`` (lines that the
network suggests), ``reconstruction`` (inferred decisions, detected false claims), ``coverage`` (of intervals), ``speed``.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import load_agent, play, rollout
from onco_gym.agents.belief import Cloud
from onco_gym.cards import card_files, card_id
from onco_gym.foundation.files import replacing
from onco_gym.foundation.intervals import mean
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.verification import Cases, cases, follow, misfit, optimal, reconstruct, record_episodes, verify
from onco_gym.verification.amortised import network_for
from onco_gym.verification.course import Sequence, filled, redrawn
from onco_gym.verification.records import Record
from onco_gym.verification.scoring import LEVEL, compared
from onco_gym.verification.solver import BRIEF, by_lines, improve, permitted, totals_of, value_of

DRAWS = 32
"""Number of draws of chance under which plan and guideline are played."""
POLICIES = Path(__file__).parents[1] / "baselines" / "policies"
Floats = NDArray[np.float64]


# ------------------------------------------------------------------------------------------------ short horizons


def menus(engine: Engine, who: Cases, n: int, count: int) -> Sequence:
    """(count, n) a pause and random regimens that a patient may be given."""
    rng, open_to = np.random.default_rng(0), permitted(engine, who, n)
    holiday = engine.scenario.holiday
    rows = []
    for i in range(n):
        others = rng.permutation(np.setdiff1d(np.flatnonzero(open_to[:, i]), [holiday]))[: count - 1]
        rows.append(np.concatenate([[holiday], others, np.full(count - 1 - len(others), holiday)]))
    return np.array(rows, np.int32).T


def brute(card: str, patients: int = 200, cycles: int = 6, regimens: int = 8) -> dict[str, Any]:
    """Compare all sequences of a short horizon with what the solver finds."""
    engine = make_engine(card, horizon=cycles)
    who = cases(engine, patients, 31)
    menu = menus(engine, who, patients, regimens)
    every = np.array(list(itertools.product(range(regimens), repeat=cycles)), np.int16).T
    best = np.empty(patients)
    for i in range(patients):
        best[i] = totals_of(engine, who, patients, menu[:, i][every], np.full(every.shape[1], i))[0].max()
    among = np.zeros((len(engine.scenario.regimens), patients), bool)
    among[menu, np.arange(patients)] = True
    plans = optimal(engine, who, among=among)
    share = plans.value / best
    return {
        "patients": patients,
        "within_1_percent": float((share >= 0.99).mean()),
        "worst": float(share.min()),
        "highest": float(share.max()),
        "tried": float(plans.tried.mean()),
        "sequences": every.shape[1],
    }


# ------------------------------------------------------------------------------------------------ rivals


def cross_entropy(engine: Engine, who: Cases, n: int, courses: int, block: int = 4, seed: int = 0) -> Floats:
    """(n,) the best value that a cross-entropy search over blocks of cycles finds with ``courses`` courses per patient."""
    rng, open_to, horizon = np.random.default_rng(seed), permitted(engine, who, n), engine.horizon
    blocks, drawn = -(-horizon // block), 300
    weight = np.repeat((open_to / open_to.sum(0))[None], blocks, 0)  # (blocks, R, n)
    best = np.full(n, -np.inf)
    for _ in range(courses // drawn):
        edges = np.cumsum(weight, 1)
        point = rng.random((blocks, drawn, n))
        choice = (point[:, None] > edges[:, :, None]).sum(1).clip(0, open_to.shape[0] - 1)  # (blocks, drawn, n)
        sequences = np.repeat(choice, block, 0)[:horizon].reshape(horizon, -1)
        value = totals_of(engine, who, n, sequences, np.tile(np.arange(n), drawn))[0].reshape(drawn, n)
        best = np.maximum(best, value.max(0))
        if np.ptp(value, 0).max() < 1e-6:  # all draws have the same value, and will keep it
            break
        elite = np.argsort(-value, 0)[: drawn // 10]
        chosen = np.take_along_axis(choice, elite[None], 1)
        share = np.stack([(chosen == r).mean(1) for r in range(open_to.shape[0])], 1)
        weight = 0.3 * weight + 0.7 * share
    return best


def played(engine: Engine, agent: str, n: int, seed: int) -> Sequence:
    """(H, n) the agent's decisions; after the end, those of the guideline."""
    given = rollout(engine, load_agent(engine, agent, seed), n, seed).given
    begun = filled(engine, given), (given >= 0).sum(0).astype(np.int32)
    return by_lines(engine, cases(engine, n, seed), n, engine.horizon, lines=0, begun=begun)[0]


def learned(card: str) -> str:
    """The best learned policy of a card."""
    return str(POLICIES / f"{card_id(card_files()[card])}-v0" / "guided_ppo-0.onnx")


def rivals(card: str, patients: int = 64, seed: int = 2500) -> dict[str, Any]:
    """Compare the solver's sequences with others, in expectation: shares of patients for whom the other is better."""
    engine = make_engine(card)
    n = patients
    who = cases(engine, n, seed)
    plans, brief = optimal(engine, who), optimal(engine, who, effort=BRIEF)
    found: dict[str, Any] = {"patients": n, "optimum": float(plans.value.mean()), "tried": float(plans.tried.mean())}
    found |= {"brief": float(brief.value.mean()), "brief_tried": float(brief.tried.mean())}
    constants = np.stack([value_of(engine, who, np.full((engine.horizon, n), r)) for r in range(len(engine.scenario.regimens))])
    others = {
        "guideline": value_of(engine, who, played(engine, "guideline", n, seed)),
        "constant": np.where(permitted(engine, who, n), constants, -np.inf).max(0),
        "learned": value_of(engine, who, played(engine, learned(card), n, seed)),
        "cross_entropy": cross_entropy(engine, who, n, 10 * int(plans.tried.mean())),
    }
    for name, value in others.items():
        better = value / np.maximum(plans.value, 1e-6) - 1
        shares = {"better_1_percent": float((better > 0.01).mean()), "most": float(better.max())}
        found[name] = {"mean": float(value.mean()), **shares}
    return found


# ------------------------------------------------------------------------------------------------ values


def values(card: str, patients: int = 256, more: int = 1536, many: int = 768) -> dict[str, Any]:
    """Mean values, with each patient's own chance: agents, plans made at the first visit, and hindsight, by the brief search.

    The gain of the best plan over the guideline is quick to find, so it is measured in ``more`` patients. Searching for a plan
    over draws of chance takes long, so it is done for ``many`` patients.
    """
    engine = make_engine(card)
    seed, n = 700, patients
    who = cases(engine, n, seed)
    sequences = {name: played(engine, name, n, seed) for name in ("random", "guideline", "planner")}
    sequences["learned"] = played(engine, learned(card), n, seed)
    sequences["expected optimum"] = optimal(engine, who, effort=BRIEF).decisions
    sequences["plan on what is known"] = blind(engine, n, seed)
    worth = {name: follow(engine, who, one, "sampled").worth.sum(0) for name, one in sequences.items()}
    late = optimal(engine, who, mode="hindsight", starts=list(sequences.values()), effort=BRIEF)
    worth["hindsight"] = late.value
    rows = {}
    for name, value in worth.items():
        rows[name] = {"value": mean(value).value, **gained(value - worth["guideline"])}
    over = mean(worth["planner"] - worth["plan on what is known"])._asdict()
    plan = planned(engine, more, seed)
    drawn = planned(engine, many, seed, "drawn")
    return {"patients": n, "agents": rows, "planner_over_open_loop": over, "plan": plan, "plan_over_draws": drawn}


def planned(engine: Engine, n: int, seed: int, mode: Literal["expected", "drawn"] = "expected") -> dict[str, float]:
    """The value of the best plan in the search, and when it is played under draws of chance, beside the guideline.

    Both are played under the same :data:`DRAWS` draws, which differ from those of the search.
    """
    who = cases(engine, n, seed)
    plans = optimal(engine, who, mode=mode, effort=BRIEF)
    many = redrawn(who, np.arange(DRAWS))
    guided = filled(engine, play(engine, load_agent(engine, "guideline"), many.origin).given)
    both = np.repeat(plans.decisions, DRAWS, 1), guided
    had, usual = (value_of(engine, many, one, "sampled").reshape(n, DRAWS).mean(1) for one in both)
    levels = {"looked_for": float(plans.value.mean()), "played": float(had.mean()), "guideline": float(usual.mean())}
    return {"patients": n, **levels, **gained(had - usual)}


def gained(difference: Floats) -> dict[str, float]:
    """The mean gain and its 95% interval."""
    return dict(zip(("gain", "gain_low", "gain_high"), mean(difference), strict=True))


def blind(engine: Engine, n: int, seed: int, size: int = 16) -> Sequence:
    """(H, n) plans made at the first visit for look-alikes, with what the planner knows then."""
    _, observation, mask = engine.receive(engine.origins(n, seed))
    cloud = Cloud(engine, size, seed)
    cloud.update(np.asarray(observation), np.asarray(mask))
    assert cloud.journey is not None
    nobody = jnp.full(cloud.journey.key.shape, -1, jnp.int32)  # they are not in the engine's cohort
    return optimal(engine, Cases(cloud.journey.patient, cloud.journey.key, nobody), n, effort=BRIEF).decisions


# ------------------------------------------------------------------------------------------------ a warm start


def warm(card: str, patients: int = 256) -> dict[str, Any]:
    """Compare lines from all regimens with lines that the network suggests, before and after the search that follows."""
    engine = make_engine(card)
    who, network = cases(engine, patients, 900), network_for(engine)
    if network is None:
        return {"network": None}
    found: dict[str, Any] = {"patients": patients}
    for name, advice in (("all", None), ("advised", network.shortlist(engine, who, patients))):
        lines, courses = by_lines(engine, who, patients, engine.horizon, shortlist=advice)
        after = improve(engine, who, [lines], effort=BRIEF)
        found[name] = {
            "courses": courses,
            "value": float(value_of(engine, who, lines).mean()),
            "courses_after_search": float(courses + after.tried.mean()),
            "value_after_search": float(after.value.mean()),
        }
    return found


# ------------------------------------------------------------------------------------------------ honesty


def falsified(engine: Engine, kept: Record, share: float = 0.2, seed: int = 0) -> Sequence:
    """(T, n) the decisions, with a share of each patient's replaced by false claims of other regimens."""
    rng, out = np.random.default_rng(seed), kept.actions.copy()
    for i in range(out.shape[1]):
        lived = np.flatnonzero(out[:, i] >= 0)
        for time_ in rng.choice(lived, max(1, round(share * len(lived))), replace=False):
            out[time_, i] = rng.choice(np.setdiff1d(np.arange(len(engine.scenario.regimens)), [out[time_, i]]))
    return out


def reconstruction(card: str, patients: int = 256) -> dict[str, Any]:
    """Infer the clinician's decisions from what was seen, and measure how well false claims stand out."""
    engine = make_engine(card)
    kept = record_episodes(engine, load_agent(engine, "clinician"), patients, seed=40)
    who = kept.who(engine)
    found = reconstruct(engine, who, kept.observed)
    passive = (engine.scenario.holiday, engine.scenario.supportive)
    seen = (found.decisions >= 0) & (kept.actions >= 0)
    acting = seen & ~np.isin(kept.actions, passive)
    same = found.decisions == kept.actions
    clear = acting & (found.margin > 2)
    honest = misfit(engine, who, kept.observed, kept.actions).sum(0) - found.misfit
    forged = misfit(engine, who, kept.observed, falsified(engine, kept)).sum(0) - found.misfit
    cycles = (kept.actions >= 0).sum(0)

    def area(some: NDArray[np.bool_]) -> float:
        one, other = honest[some], forged[some]
        return float((other[:, None] > one).mean() + 0.5 * (other[:, None] == one).mean())

    return {
        "patients": patients,
        "recovered": float(same[acting].mean()),
        "recovered_where_clear": float(same[clear].mean()),
        "clear": float(clear.sum() / acting.sum()),
        "area_all": area(cycles > 0),
        "area_from_5_cycles": area(cycles >= 5),
        "patients_from_5_cycles": int((cycles >= 5).sum()),
    }


def coverage(card: str, patients: int = 128, repeats: int = 12) -> dict[str, Any]:
    """How often 90% intervals of regret and of weeks contain the truth, which is taken from all draws of all repeats."""
    engine = make_engine(card)
    kept = record_episodes(engine, load_agent(engine, "clinician"), patients, seed=60)
    who, done = kept.who(engine), filled(engine, kept.actions)
    best = optimal(engine, who, effort=BRIEF).decisions
    drawn = [compared(engine, who, done, best, seed) for seed in range(repeats)]
    rows = {}
    for number, name in enumerate(("regret", "weeks")):
        every = np.stack([one[number] for one in drawn])  # (repeats, 3, n)
        inside = []
        for k in range(repeats):  # the truth, without the draws behind the interval
            truth = np.delete(every[:, 0], k, 0).mean(0)
            # The others' mean is uncertain too, by a known share of the interval's own width.
            half = (every[k, 2] - every[k, 1]) / 2 * np.sqrt(1 + 1 / (repeats - 1))
            inside.append(np.abs(every[k, 0] - truth) <= half + 1e-9)
        rows[name] = float(np.mean(inside))
    return {"patients": patients, "level": LEVEL, **rows}


def speed(card: str, episodes: tuple[int, ...] = (250, 1000)) -> dict[str, Any]:
    """Seconds that verification takes after compilation, and how they grow."""
    engine = make_engine(card)
    agent = load_agent(engine, "clinician")
    verify(engine, record_episodes(engine, agent, 64, seed=3))
    rows = {}
    for count in episodes:
        kept = record_episodes(engine, agent, count, seed=10_000)
        marks: list[tuple[str, float]] = []

        def mark(stage: str, done: int, total: int, marks: list[tuple[str, float]] = marks) -> None:
            marks.append((stage, time.perf_counter()))

        begun = time.perf_counter()
        verify(engine, kept, progress=mark)
        rows[str(count)] = round(time.perf_counter() - begun, 1)
        stages = {name: round(after - at, 1) for (name, at), (_, after) in itertools.pairwise(marks)}
    return {"seconds": rows, "stages_of_last": stages}


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    part.__name__: part for part in (brute, rivals, values, warm, reconstruction, coverage, speed)
}


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", help="the name of a shipped card")
    text = "parts to run; by default all"
    parser.add_argument("--part", nargs="+", choices=tuple(PARTS), default=list(PARTS), metavar="PART", help=text)
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE; figures of other parts in it are kept")
    arguments = parser.parse_args()
    target = Path(arguments.json) if arguments.json else None
    figures = json.loads(target.read_text()) if target and target.exists() else {}
    for part in arguments.part:
        begun = time.perf_counter()
        figures[part] = PARTS[part](arguments.card)
        print(f"{arguments.card} {part} ({time.perf_counter() - begun:.0f} s): {json.dumps(figures[part])}", flush=True)
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as temporary:
                temporary.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
