"""Renew docs/policies.md: where learned policies differ from the guideline, and for whom. Part of ``make baselines``."""

import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from onco_gym.agents import Agent, Episodes, GuidelineAgent, load_agent, rollout
from onco_gym.evaluation.report import draw_journey
from onco_gym.foundation.files import replacing
from onco_gym.foundation.units import WEEKS_PER_MONTH
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.knowledge.panel import VERDICTS
from pages import CARDS, DOCS, IMAGES, ROOT, paired, parser, renew, table

POLICIES = ROOT / "baselines" / "policies"
PATIENTS, SEED = 2000, 500_000  # used neither for training nor for evaluating the baselines
FEWEST = 60  # fewest patients in a group that is shown


def differing(engine: Engine, run: Episodes) -> list[tuple[object, ...]]:
    """The most frequent departures from the guideline: when, from what, to what."""
    steps, names = run.steps, engine.scenario.regimens
    assert steps is not None
    fields = {field.name: field for field in engine.scenario.fields}
    line = fields["line"]
    guideline, counts, decisions = GuidelineAgent(engine.card), Counter[tuple[str, str, str]](), 0
    for cycle in range(len(run.actions)):
        here = run.actions[cycle] >= 0
        seen, mask, chosen = steps.observations[cycle][here], steps.masks[cycle][here], run.actions[cycle][here]
        advised = guideline.act(seen, mask)
        decisions += len(chosen)
        had = np.rint(line.low + (line.high - line.low) * seen[:, line.index]).astype(int)
        progressed = seen[:, fields["progressed"].index] > 0.5
        for index in np.flatnonzero(advised != chosen):
            state = "progressed" if progressed[index] else "no progression"
            when = f"line {had[index]}, {state}" if had[index] else "before the first line"
            counts[when, names[advised[index]], names[chosen[index]]] += 1
    return [(when, old, new, f"{count / decisions:.1%}") for (when, old, new), count in counts.most_common(8)]


def groups(engine: Engine, run: Episodes, gain: NDArray[np.floating]) -> list[tuple[object, ...]]:
    """The groups that gain most and least, by what is known about patients at the second visit."""
    assert run.steps is not None
    seen = run.steps.observations[1]
    rows = []
    for name in (*engine.scenario.traits, *engine.scenario.biomarkers):
        field = next(field for field in engine.scenario.fields if field.name == name)
        column = seen[:, field.index]
        if set(np.unique(column)) - {0.0, 1.0}:
            continue
        inside = column > 0.5
        if FEWEST <= inside.sum() <= PATIENTS - FEWEST:
            rows.append((gain[inside].mean(), (name, int(inside.sum()), paired(gain[inside], 0))))
    rows.sort(key=lambda row: -row[0])
    return [row for _, row in (*rows[:4], *rows[-3:])]


def section(name: str, engine: Engine, agent: Agent, run: Episodes, other: Episodes) -> list[str]:
    """The section on one disease."""
    gain = run.terms["outcome"].astype(float) - other.terms["outcome"]
    shares = []
    for one in (run, other):
        codes = one.verdicts[one.verdicts >= 0]
        shares.append([f"{np.mean(codes == code):.0%}" for code in range(len(VERDICTS))])
    figures = [
        ("return", *_pair(run.returns, other.returns)),
        ("quality-adjusted years", *_pair(run.terms["outcome"], other.terms["outcome"])),
        ("months lived", *_pair(run.weeks / WEEKS_PER_MONTH, other.weeks / WEEKS_PER_MONTH)),
        ("cycles without treatment", *_pair(_idle(engine, run), _idle(engine, other))),
        ("lines of treatment", *_pair(_lines(engine, run), _lines(engine, other))),
        ("kg CO2e", *_pair(run.carbon_kg, other.carbon_kg)),
    ]
    parts = [
        f"## {name}",
        table(["", "learned", "guideline", "difference"], figures),
        "What the panel says about the decisions:",
        table(["verdict", "learned", "guideline"], zip(VERDICTS, *shares, strict=True)),
        "Where the policy departs from the guideline most often, as a share of all its decisions:",
        table(["when", "guideline", "learned", "share"], differing(engine, run)),
        "Who gains most and least in quality-adjusted years (groups overlap):",
        table(["group", "patients", "learned - guideline"], groups(engine, run, gain)),
    ]
    order = np.argsort(gain)
    shown = {"gains most": order[-1], "ranks in the middle": order[len(order) // 2], "loses most": order[0]}
    for title, patient in shown.items():
        file = IMAGES / f"policy_{name.lower()}_{title.split()[0]}.png"
        with replacing(file) as temporary:
            temporary.write_bytes(draw_journey(engine, agent, SEED + int(patient)))
        told = f"The patient who {title}: {gain[patient]:+.2f} years (seed {SEED + int(patient)})."
        parts += [told, f"![{told}](images/{file.name})"]
    return parts


def _pair(one: NDArray[np.floating], other: NDArray[np.floating]) -> tuple[str, str, str]:
    form = ".0f" if other.mean() > 100 else ".2f"
    return format(one.mean(), form), format(other.mean(), form), paired(one, other)


def _idle(engine: Engine, run: Episodes) -> NDArray[np.floating]:
    """(n,) cycles on a holiday or supportive care."""
    return np.isin(run.by_cycle(), (engine.scenario.holiday, engine.scenario.supportive)).sum(0).astype(float)


def _lines(engine: Engine, run: Episodes) -> NDArray[np.floating]:
    """(n,) different anti-cancer regimens given."""
    active = [index for index, regimen in enumerate(engine.card.regimens) if regimen.active]
    return np.stack([(run.given == index).any(0) for index in active]).sum(0).astype(float)


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the page."""
    parser(__file__, __doc__).parse_args(arguments)
    parts: list[str] = []
    for card in track(CARDS, "learned policies"):
        engine = make_engine(card)
        name = engine.card.id
        file = POLICIES / f"{name}-v0" / "guided_ppo-0.onnx"
        if not file.exists():
            sys.exit(f"{file.relative_to(ROOT)} is missing: python baselines/run.py --env {name}-v0 --algorithm guided_ppo")
        agent = load_agent(engine, str(file))
        run = rollout(engine, agent, PATIENTS, SEED, keep_steps=True)
        parts += section(name, engine, agent, run, rollout(engine, GuidelineAgent(engine.card), PATIENTS, SEED))
    renew(DOCS / "policies.md", __file__, {"policies": "\n\n".join(parts)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
