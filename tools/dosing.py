"""Renew the figures of docs/dosing.md: adaptive against continuous dosing on the shipped cards. Part of ``make docs``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from onco_gym.agents import Agent, Episodes, rollout
from onco_gym.agents.adaptive import HALVED, AdaptiveDose, ConstantDose, GuidelineDose, time_to_progression, without_death
from onco_gym.cards import Card, load_card
from onco_gym.foundation.intervals import mean
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.patients import CausalGenerator
from onco_gym.trials.plots import COLOURS, draw_curve, save
from onco_gym.trials.statistics import Times
from pages import DOCS, IMAGES, NOTE, parser, renew, table

PATIENTS, SEED = 1000, 11  # the rules were chosen with other seeds
YEARS = 10
HORIZON = 174  # cycles of the tumour in the picture
RULES = {"continuous": None, "published rule": (HALVED, 0.0), "narrow rule": (-0.3, -0.2)}
"""Arms: the changes of the sum of diameters at which an adaptive arm pauses and resumes treatment."""
CASES = {
    ("nsclc", "gefitinib_erlotinib"): "egfr_sensitising and ecog <= 1",
    ("nsclc", "osimertinib"): "egfr_sensitising and ecog <= 1",
    ("melanoma", "vemurafenib"): "BRAF_V600 and ecog <= 1",
    ("melanoma", "dabrafenib_trametinib"): "BRAF_V600 and ecog <= 1",
    ("breast", "palbociclib_letrozole"): "hr_positive and not endocrine_resistant and ecog <= 1",
    ("colorectal", "cetuximab_folfiri"): "not RAS_mutant and not BRAF_V600E and left_sided and ecog <= 1",
}
"""Cards and regimens to try, and their populations."""


@dataclass(frozen=True)
class Arm:
    """One arm of a case. Times are of first lines; survival and quality of life include the guideline's later lines.

    Attributes:
        tumour: time to 20% above the baseline, with death switched off.
        baseline: the same with death; patients who die first are censored.
        environment, nadir: likewise, by the environment's definition and by RECIST.
        overall: survival with later lines.
        dose: mean share of the standard dose until progression or death.
        qalys: (n,) quality-adjusted life years with later lines.
    """

    tumour: Times
    baseline: Times
    environment: Times
    nadir: Times
    overall: Times
    dose: float
    qalys: NDArray[np.float32]


def compare(card: Card, regimen: str, population: str) -> dict[str, Arm]:
    """Run every arm of :data:`RULES` on the same patients with the same chance, for any card and regimen."""
    patients = CausalGenerator(card).sample(PATIENTS, SEED, where=population)
    horizon = int(YEARS * WEEKS_PER_YEAR / card.cycle_weeks)

    def engine(of: Card) -> Engine:
        return make_engine(of, cohort=patients, kind="dose", terms=("outcome",), horizon=horizon)

    lasting, real, next_lines = engine(without_death(card)), engine(card), GuidelineDose(card)

    def agent(rule: tuple[float, float] | None, then: Agent | None = None) -> Agent:
        if rule is None:
            return ConstantDose(card, regimen, then=then)
        return AdaptiveDose(card, regimen, *rule, then=then)

    def times(run: Episodes, reference: str) -> Times:
        weeks, event = time_to_progression(card, run, reference)
        return Times(weeks.astype(float) / WEEKS_PER_MONTH, event)

    arms = {}
    for name, rule in RULES.items():
        alone = rollout(real, agent(rule), PATIENTS, SEED, keep_observations=True)
        later = rollout(real, agent(rule, next_lines), PATIENTS, SEED)
        undying = rollout(lasting, agent(rule), PATIENTS, SEED, keep_observations=True)
        arms[name] = Arm(
            tumour=times(undying, "baseline"),
            baseline=times(alone, "baseline"),
            environment=times(alone, "environment"),
            nadir=times(alone, "nadir"),
            overall=Times(later.weeks.astype(float) / WEEKS_PER_MONTH, later.died),
            dose=_dose(card, alone),
            qalys=later.terms["outcome"],
        )
    return arms


def _dose(card: Card, run: Episodes) -> float:
    """Mean share of the standard dose ordered until death or progression by the environment's definition."""
    weeks, _ = time_to_progression(card, run, "environment")
    before = np.arange(len(run.actions))[:, None] * card.cycle_weeks < weeks
    ordered = run.actions.max(2)
    return float(ordered[before & (ordered >= 0)].mean())


def gain(arm: NDArray[np.floating], control: NDArray[np.floating], digits: int = 1) -> str:
    """Mean difference, patient by patient, with its 95% interval."""
    return f"{mean(np.asarray(arm, float) - control):+.{digits}f}"


def median(times: Times) -> str:
    """Kaplan-Meier median in months."""
    value = times.median().value
    return f"{value:.1f}" if np.isfinite(value) else "not reached"


def verdict(results: dict[tuple[str, str], dict[str, Arm]]) -> str:
    """Where the narrow rule helps, in words."""
    lines = []
    for question, of in (
        ("Time to progression, from the baseline and with death switched off", lambda arm: arm.tumour.months),
        ("Time to progression on treatment, or death", lambda arm: arm.environment.months),
        ("Time to progression from the baseline, or death", lambda arm: arm.baseline.months),
        ("Time to progression by strict RECIST, or death", lambda arm: arm.nadir.months),
        ("Overall survival with later lines", lambda arm: arm.overall.months),
        ("Quality-adjusted life with later lines", lambda arm: arm.qalys),
    ):
        found: dict[str, list[str]] = {"longer": [], "shorter": [], "no clear difference": []}
        for (_, regimen), arms in results.items():
            difference = mean(np.asarray(of(arms["narrow rule"]), float) - of(arms["continuous"]))
            key = "longer" if difference.low > 0 else "shorter" if difference.high < 0 else "no clear difference"
            found[key].append(f"`{regimen}`")
        said = "; ".join(f"{key}: {', '.join(names)}" for key, names in found.items() if names)
        lines.append(f"- {question}: {said}.")
    said = "The narrow rule against continuous dosing, mean over patients. A difference is clear if its 95% interval excludes 0:"
    return "\n".join([said, "", *lines])


def figures(results: dict[tuple[str, str], dict[str, Arm]]) -> dict[str, str]:
    """The generated parts of the page."""
    tumours, clinic = [], []
    for (name, regimen), arms in results.items():
        control = arms["continuous"]
        for label, arm in arms.items():
            difference = arm.tumour.months - control.tumour.months
            first = (f"{name}, `{regimen}`" if arm is control else "", label)
            shares = f"{(difference > 0).mean():.0%}", f"{(difference < 0).mean():.0%}"
            against = (gain(arm.tumour.months, control.tumour.months), *shares)
            dose = f"{arm.dose:.0%}", median(arm.tumour)
            tumours.append((*first, *dose, *(("", "", "") if arm is control else against)))
            later = (gain(arm.overall.months, control.overall.months), gain(arm.qalys, control.qalys, 2))
            seen = map(median, (arm.environment, arm.baseline, arm.nadir, arm.overall))
            clinic.append((*first, *seen, *(("", "") if arm is control else later)))
    head, medians = ["regimen", "arm"], ["on treatment", "from baseline", "RECIST", "overall survival"]
    return {
        "cases": "\n".join(f"- {name}, `{regimen}`: `{population}`" for (name, regimen), population in CASES.items()),
        "tumours": table([*head, "dose", "median, months", "mean gain, months", "longer in", "shorter in"], tumours),
        "clinic": table([*head, *medians, "gain in survival, months", "gain in quality-adjusted life, years"], clinic),
        "verdict": verdict(results),
    }


def draw_progression(results: dict[tuple[str, str], dict[str, Arm]], path: Path) -> None:
    """Share of tumours that have not progressed, arm by arm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), dpi=100, layout="constrained")
    for axes, ((name, regimen), arms) in zip(figure.subplots(2, 3, sharey=True).ravel(), results.items(), strict=True):
        for colour, (label, arm) in zip(COLOURS, arms.items(), strict=False):
            draw_curve(axes, arm.tumour, 84, label, colour, band=False)
        axes.set_title(f"{name}: {regimen}", fontsize=9)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"Tumours less than 20% above their size before treatment; death switched off. {NOTE}", fontsize=10)
    save(figure, path)


def draw_patient(card: Card, regimen: str, population: str, path: Path) -> None:
    """One tumour under both ways of dosing: its clones, and when the drug was given."""
    from matplotlib.figure import Figure

    n = 200
    patients = CausalGenerator(card).sample(n, SEED, where=population)
    engine = make_engine(without_death(card), cohort=patients, kind="dose", terms=(), horizon=HORIZON)
    narrow = AdaptiveDose(card, regimen, *(RULES["narrow rule"] or ()))
    agents = {"continuous": ConstantDose(card, regimen), "narrow rule": narrow}
    runs = {label: rollout(engine, agent, n, SEED, keep_observations=True) for label, agent in agents.items()}
    (before, ended), (after, ended_too) = (time_to_progression(card, runs[label]) for label in agents)
    seen = np.flatnonzero(ended & ended_too)  # progressed in both arms
    typical = seen[np.argsort((after - before)[seen])[int(0.75 * len(seen))]]
    figure = Figure(figsize=(10, 4.6), dpi=100, layout="constrained")
    for axes, (label, run) in zip(figure.subplots(1, 2, sharey=True), runs.items(), strict=True):
        _draw_tumour(axes, engine, run, int(typical))
        months = time_to_progression(card, run)[0][typical] / WEEKS_PER_MONTH
        axes.set_title(f"{label}: {months:.0f} months to progression", fontsize=9)
    figure.axes[0].set_ylabel("cm³")
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines() if not line.get_label().startswith("_")}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=8, frameon=False, fontsize=8)
    figure.suptitle(f"One tumour under {regimen}: its clones, and the drug (bars). {NOTE}", fontsize=9)
    save(figure, path)


def _draw_tumour(axes: Any, engine: Engine, run: Episodes, patient: int) -> None:
    from onco_gym.interfaces.single import OncologyEnv

    env = OncologyEnv(engine.card, cohort=engine.cohort, kind="dose", terms=(), horizon=engine.horizon, render_mode="ansi")
    env.reset(seed=SEED + patient)
    for action in run.actions[:, patient]:
        env.step(action)
    states = [snapshot.journey.state for snapshot in env.history]
    months = np.arange(len(states)) * engine.card.cycle_weeks / WEEKS_PER_MONTH
    clones = np.exp(np.array([state.clones[:, 0] for state in states]))
    axes.plot(months, clones.sum(1), color="k", lw=1.6, label="all")
    for index, clone in enumerate(engine.card.clones):
        if clones[:, index].max() > 0.02:
            axes.plot(months, clones[:, index], color=f"C{index}", lw=1, label=clone.name)
    start = np.exp(float(states[0].volume[0]))
    axes.axhline(1.2**3 * start, color="0.6", lw=0.8, ls=":")
    given = run.actions[:, patient].max(1) > 0
    at_foot = axes.get_xaxis_transform()
    axes.bar(months[:-1][given], 0.04, width=months[1], align="edge", color="#b08900", lw=0, transform=at_foot)
    axes.set(yscale="log", ylim=(1e-3, 5 * start), xlabel="months")


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate the arms, renew the page, draw the pictures."""
    parser(__file__, __doc__).parse_args(arguments)
    results = {}
    for (name, regimen), population in track(CASES.items(), "adaptive against continuous dosing"):
        results[name, regimen] = compare(load_card(name), regimen, population)
    renew(DOCS / "dosing.md", __file__, figures(results))
    draw_progression(results, IMAGES / "dosing_progression.png")
    gains = {
        case: (arms["narrow rule"].tumour.months - arms["continuous"].tumour.months).mean() for case, arms in results.items()
    }
    name, regimen = max(gains, key=gains.__getitem__)
    draw_patient(load_card(name), regimen, CASES[name, regimen], IMAGES / "dosing_patient.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
