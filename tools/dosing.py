"""Make docs/dosing.md and its pictures: adaptive against continuous dosing on the shipped cards. Part of ``make docs``."""

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
from onco_gym.cards import Card, card_files, load_card
from onco_gym.foundation.intervals import mean
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.patients import CausalGenerator
from onco_gym.trials.plots import COLOURS, draw_curve, save
from onco_gym.trials.statistics import Times
from pages import DOCS, IMAGES, NOTE, generated_by, parser, table, write

PATIENTS, SEED = 1000, 11  # the rules were chosen with other seeds
YEARS = 10
HORIZON = 174  # cycles of the tumour in the picture
RULES = {"continuous": None, "published rule": (HALVED, 0.0), "narrow rule": (-0.3, -0.2)}
"""Arms: the changes of the sum of diameters at which an adaptive arm pauses and resumes treatment."""
CASES = {
    "nsclc": {"gefitinib_erlotinib": "egfr_sensitising and ecog <= 1", "osimertinib": "egfr_sensitising and ecog <= 1"},
    "melanoma": {"vemurafenib": "BRAF_V600 and ecog <= 1", "dabrafenib_trametinib": "BRAF_V600 and ecog <= 1"},
    "breast": {"palbociclib_letrozole": "hr_positive and not endocrine_resistant and ecog <= 1"},
    "colorectal": {"cetuximab_folfiri": "not RAS_mutant and not BRAF_V600E and left_sided and ecog <= 1"},
}
"""Regimens to try and their populations, by card. Other cards are not on the page."""
TEXT = r"""{mark}
# Dosing

In `onco_gym/NSCLC-Dose-v0` and its siblings on the other cards, you choose how much of which regimen to give, cycle by cycle.
{note}

```python
import onco_gym as og
from onco_gym.agents.adaptive import AdaptiveDose, time_to_progression

engine = og.make_engine("NSCLC-Dose")
agent = AdaptiveDose(engine.card, "osimertinib", stop=-0.3, restart=-0.2)
run = og.rollout(engine, agent, n=500, seed=0, keep_observations=True)
weeks, progressed = time_to_progression(engine.card, run, "baseline")
```

## Actions

An action is a `Box` of intensities from 0 to 1, one for each anti-cancer regimen of the card. The regimen with the highest
intensity is given, at that share of its standard dose. Below 0.05 nothing is given. This is a **pause**, and it keeps the line
open. A regimen that you leave for another is closed, however little of it was given.

A regimen that cannot be given becomes a drug holiday, as in the plain environments: nothing acts in that cycle. There is no
action for best supportive care. To the tumour, pausing for good is the same.

## Drug levels

Kill, toxicity and exposure follow the drug level $\ell$, which is 1 under the standard dose. It depends on the dose $d$ and on
the regimen's `carryover` $k$, the share of a cycle's level that is left a cycle later (from the longest half-life among its
drugs):

$$\ell \leftarrow k\,\ell + (1 - k)\,d \qquad\text{and where nothing is on board}\qquad \ell \leftarrow d$$

- The first dose loads. So does the first dose after a pause that was long enough for the drug to disappear.
- In a pause the level is multiplied by $k$ each cycle. It keeps acting until it is below 0.05, which counts as nothing.
- Nothing acts in a cycle held for toxicity, as in the plain environments, and nothing is left after it.
- What is left of a drug is dropped when another one is given, or when its own regimen can no longer be given.

With the standard dose in every cycle this is the plain environment, up to rounding. A test checks this on all cards.

Regimens with `max_cycles` have a limit on their cumulative level: half the dose can be given for twice as many cycles. The
risk of grade 3+ events and the tumour's adaptation (`fading_per_cycle`) follow exposure in the same way.

The agent sees two fields more than in the plain environment: `drug_level` at the end of the last cycle, and the `dose` that was
ordered for it.

## Progression in a pause

RECIST compares with the smallest sum of diameters in the line. In the model, a regimen that continues after progression keeps
only part of its kill (`beyond_progression`), because growth under a drug means that the drug is failing. Regrowth without the
drug does not mean that, and adaptive therapy intends it. Pauses therefore have rules of their own:

- If nothing was given since the last scan, a scan shows progression if the sum is 20% and 5 mm above the *baseline* of the
  line. New lesions do not count.
- When dosing resumes, it is judged from the sum measured then, or from the baseline if that was smaller. Growth beyond the
  baseline is never forgiven.
- A pause shorter than the time between two scans changes nothing.
- The rules hold only while the regimen could be given again.

The IMPROVE trial counted "progression on treatment" in this spirit.

## Adaptive therapy

Drug-sensitive cells take room from resistant ones. Killing as many of them as possible frees that room. Adaptive therapy keeps
them alive: it treats only until the tumour has shrunk, and treats again when it has grown back (Gatenby 2009).

In castration-resistant prostate cancer, abiraterone was stopped at half the initial PSA and restarted at the initial PSA. The
median time to progression was 33.5 months, against 14.3 in patients who had chosen continuous dosing (17 and 16 patients, not
randomised; Zhang 2017 and 2022). In colorectal cancer, intermittent panitumumab and FOLFIRI gave 17.5 months to progression on
treatment and a median survival of 35.1 months. Continuous treatment gave 11.2 and 36.3 months (IMPROVE, a phase 2 trial that
was randomised but not designed to compare its arms).

There are three agents, which see nothing but observations:

- `ConstantDose(card, regimen, intensity=1)` gives the maximum dose continuously.
- `AdaptiveDose(card, regimen, stop, restart, intensity=1, rest=0)` pauses when the sum of diameters has changed by `stop` since
  the start of the line, and treats again at `restart`. The defaults are the published rule, with half the volume ({stop} of the
  sum of diameters) in place of half the PSA. With `rest` above 0 it gives a reduced dose instead of pausing (dose modulation,
  Enriquez-Navas 2016).
- `GuidelineDose(card)` is the guideline agent at standard dose. The other two take it as `then`, for the lines after
  progression.

## How we tested it

We simulated {patients} patients per case for {years} years. All arms had the same patients with the same chance:

- *Continuous* is the maximum dose in every cycle.
- The *published rule* stops at half the volume and restarts at the size before treatment.
- The *narrow rule* stops when the sum of diameters is 30% smaller (a response) and restarts when it is 20% smaller. We chose
  this rule among about ten, on other patients and for all cards together.

The cases are:

{cases}

### With death switched off

The **time to progression** is the time until a scan shows a sum 20% and 5 mm above the one before treatment, in every arm. Most
models of adaptive therapy use this definition (Strobl 2021). Many patients die before that, and more of them if the tumour is
kept larger. So we first switch death off and keep everything else the same:

{tumours}
*Gain* is the mean over patients of the difference from their own continuous arm, with its 95% interval. *Dose* is the share of
the standard dose until progression or death.

![Share of tumours that have not progressed](images/dosing_progression.png)

![One tumour under continuous and adaptive dosing](images/dosing_patient.png)

The second picture shows the patient at the 75th percentile of the gain, among those who progressed in both arms.

### With death

This table has median months to progression by three definitions. Deaths before progression are censored.

- *On treatment* is the environment's definition (see above).
- *From baseline* is the definition just used.
- *RECIST* counts 20% above the smallest sum, whether or not a drug is given.

Survival and quality-adjusted life include the guideline's later lines after progression, which is counted by the environment's
definition in all arms.

{clinic}
## What to make of it

{verdict}

For RECIST, the first intended regrowth is already a progression, so adaptive dosing has to lose by strict RECIST. Counting on
treatment favours it, because growth in a pause does not count against it, up to the baseline. The baseline is the definition
that is fair to both.

The published rule lets tumours grow back to their first size. With scans every six to nine weeks, a fast tumour is well above
that size before anybody sees it. In the prostate trial, PSA was measured monthly, in a slower disease. So the rule gains in slow
tumours and loses in fast ones.

Gains from the baseline are smaller than the published ones, for these reasons:

- In the model, clones share room in log volume (Gompertz), up to a capacity far above any tumour. A tumour of 30 cm³ slows a
  resistant clone by a third compared with one of 1 cm³, but does not hold it. Strobl (2021) found the same far from capacity. In
  spheroids and in co-cultures of cells with EGFR mutations, sensitive cells hold resistant ones back by more than their cost of
  resistance (Bacevic 2017, Farrokhian 2022). The model has no such effect.
- Most resistance on the cards is incomplete, so the full dose slows resistant clones too.
- Resistance is also acquired, and the more sensitive cells are alive, the more of it.

In the model a larger tumour kills sooner (`burden_exponent`), so a gain in time to progression can be lost in survival. An agent
trained on the reward weighs the two and need not choose adaptive dosing. None of this was calibrated on intermittent treatment:
the cards are fitted to continuous arms.

## Sources

Gatenby, Cancer Res 2009;69:4894. Enriquez-Navas, Sci Transl Med 2016;8:327ra24. Zhang, Nat Commun 2017;8:1816; the same trial,
eLife 2022;11:e76284. Bacevic, Nat Commun 2017;8:1995. Strobl, Cancer Res 2021;81:1135. Farrokhian, Sci Adv 2022;8:eabm7212.
IMPROVE: Avallone, J Clin Oncol 2025;43:829.
"""


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


def compare(card: Card, regimen: str, population: str, n: int, seed: int) -> dict[str, Arm]:
    """Run every arm of :data:`RULES` on the same ``n`` patients with the same chance, for any card and regimen."""
    patients = CausalGenerator(card).sample(n, seed, where=population)
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
        alone = rollout(real, agent(rule), n, seed, keep_observations=True)
        later = rollout(real, agent(rule, next_lines), n, seed)
        arms[name] = Arm(
            tumour=times(rollout(lasting, agent(rule), n, seed, keep_observations=True), "baseline"),
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


def verdict(results: dict[tuple[str, str], dict[str, Arm]]) -> list[str]:
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
    return [said, "", *lines]


def page(results: dict[tuple[str, str], dict[str, Arm]]) -> str:
    """The text of docs/dosing.md."""
    tumours, clinic = [], []
    for (name, regimen), arms in results.items():
        control = arms["continuous"]
        for label, arm in arms.items():
            difference = arm.tumour.months - control.tumour.months
            first = (f"{name}, `{regimen}`" if arm is control else "", label, f"{arm.dose:.0%}")
            shares = f"{(difference > 0).mean():.0%}", f"{(difference < 0).mean():.0%}"
            against = (gain(arm.tumour.months, control.tumour.months), *shares)
            tumours.append((*first, median(arm.tumour), *(("", "", "") if arm is control else against)))
            later = (gain(arm.overall.months, control.overall.months), gain(arm.qalys, control.qalys, 2))
            seen = (median(arm.environment), median(arm.baseline), median(arm.nadir), median(arm.overall))
            clinic.append((*first[:2], *seen, *(("", "") if arm is control else later)))
    head, medians = ["regimen", "arm"], ["on treatment", "from baseline", "RECIST", "overall survival"]
    parts = {
        "mark": generated_by(__file__),
        "note": NOTE,
        "patients": f"{PATIENTS:,}",
        "years": YEARS,
        "stop": f"{-HALVED:.0%}",
        "tumours": "\n".join(table([*head, "dose", "median, months", "mean gain, months", "longer in", "shorter in"], tumours)),
        "clinic": "\n".join(table([*head, *medians, "gain in survival, months", "gain in quality-adjusted life, years"], clinic)),
        "cases": "\n".join(f"- {name}, `{regimen}`: `{CASES[name][regimen]}`" for name, regimen in results),
        "verdict": "\n".join(verdict(results)),
    }
    text = TEXT
    for key, value in parts.items():
        text = text.replace("{" + key + "}", str(value))
    return text


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
    """Simulate the arms, write the page, draw the pictures."""
    parser(__file__, __doc__).parse_args(arguments)
    cases = [(name, regimen) for name in CASES if name in card_files() for regimen in CASES[name]]
    results = {}
    for name, regimen in track(cases, "adaptive against continuous dosing"):
        results[name, regimen] = compare(load_card(name), regimen, CASES[name][regimen], PATIENTS, SEED)
    write(DOCS / "dosing.md", page(results))
    draw_progression(results, IMAGES / "dosing_progression.png")
    gains = {}
    for case, arms in results.items():
        gains[case] = (arms["narrow rule"].tumour.months - arms["continuous"].tumour.months).mean()
    name, regimen = max(gains, key=gains.__getitem__)
    draw_patient(load_card(name), regimen, CASES[name][regimen], IMAGES / "dosing_patient.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
