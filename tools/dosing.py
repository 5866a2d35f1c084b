"""Make docs/dosing.md and its pictures: adaptive against continuous dosing on the shipped cards. Part of ``make docs``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from onco_gym.agents import Episodes, rollout
from onco_gym.agents.adaptive import (
    HALVED,
    AdaptiveDose,
    ConstantDose,
    DoseAgent,
    GuidelineDose,
    time_to_progression,
    without_death,
)
from onco_gym.cards import Card, card_files, load_card
from onco_gym.foundation.intervals import mean
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.patients import CausalGenerator
from onco_gym.trials.plots import COLOURS, draw_curve, save
from onco_gym.trials.statistics import Times
from pages import DOCS, IMAGES, NOTE, generated_by, parser, table, write

PATIENTS, SEED = 1000, 11  # rules were looked at with other seeds
YEARS = 10
HORIZON = 174  # cycles of the tumour that is drawn
RULES = {"continuous": None, "published rule": (HALVED, 0.0), "narrow rule": (-0.3, -0.2)}
"""Arms: the change of the sum of diameters at which an adaptive arm pauses, and at which it treats again."""
CASES = {
    "nsclc": {
        "gefitinib_erlotinib": "egfr_sensitising and ecog <= 1",
        "osimertinib": "egfr_sensitising and ecog <= 1",
    },
    "melanoma": {
        "vemurafenib": "BRAF_V600 and ecog <= 1",
        "dabrafenib_trametinib": "BRAF_V600 and ecog <= 1",
    },
    "breast": {"palbociclib_letrozole": "hr_positive and not endocrine_resistant and ecog <= 1"},
    "colorectal": {"cetuximab_folfiri": "not RAS_mutant and not BRAF_V600E and left_sided and ecog <= 1"},
}
"""Regimens to try and whom to try them on, by card. A card that is not here is not on the page."""
TEXT = r"""{mark}
# Dosing

`onco_gym/NSCLC-Dose-v0` and its like on the other cards: how much of which regimen, cycle by cycle. {note}

```python
import gymnasium as gym

import onco_gym
from onco_gym.agents import rollout
from onco_gym.agents.adaptive import AdaptiveDose, ConstantDose, GuidelineDose, time_to_progression

env = gym.make("onco_gym/NSCLC-Dose-v0")
card = onco_gym.load_card("nsclc")
run = rollout(env.unwrapped.engine, AdaptiveDose(card, "osimertinib", stop=-0.3, restart=-0.2), 500, keep_observations=True)
weeks, progressed = time_to_progression(card, run, "baseline")
```

## What an action means

A `Box` of intensities from 0 to 1, one per anti-cancer regimen of the card. The regimen with the highest intensity is given, at
that share of its standard dose. Below 0.05 nothing is given: a **pause**. A pause keeps the line open; a regimen left for
another is closed, however little was had of it. A regimen that cannot be given becomes a drug holiday, as in the plain
environments: nothing acts in that cycle. There is no action for best supportive care; pausing for good is the same to the
tumour.

**Level.** Kill, toxicity and exposure follow the drug level $\ell$, which is 1 under the standard dose. With dose $d$ and the
regimen's `carryover` $k$ (the share of a cycle's level that is still there a cycle later, from the longest half-life among its
drugs):

$$\ell \leftarrow k\,\ell + (1 - k)\,d \qquad\text{and where nothing is on board}\qquad \ell \leftarrow d$$

- The first dose loads. So does the first after a pause that was long enough for the drug to go.
- In a pause the level falls by $k$ a cycle and goes on acting, until it is below 0.05, which counts as nothing.
- Nothing acts in a cycle held for toxicity, as in the plain environments, and nothing is left after it.
- What is left of a drug is forgotten when another one is given, or when its own regimen can no longer be given.

At standard dose in every cycle this is the plain environment, up to rounding; a test holds all cards to it. Regimens with a
`max_cycles` have a limit on their cumulated level: half the dose can be given for twice the cycles. The same holds for the risk
of grade 3+ events and for the tumour's adaptation (`fading_per_cycle`), which both follow exposure.

**Seen** beside what the plain environment shows: `drug_level` at the end of the last cycle, and `dose`, what was ordered for
it.

## Progression in a pause

RECIST compares with the smallest sum of the line, and in the model a regimen that goes on after progression keeps only part of
its kill (`beyond_progression`): growth under a drug means that the drug fails. Regrowth without the drug does not mean that,
and adaptive therapy intends it. So here, where nothing was given since the last scan, a scan shows progression if the sum is
20% and 5 mm above the *baseline* of the line, and new lesions do not count; when dosing is taken up again, it is judged from
the sum measured then, or from the baseline if that was smaller. Growth beyond the baseline is never forgiven, a pause shorter
than the time between two scans changes nothing, and it holds only while the regimen could be given again. The IMPROVE trial
counted "progression on treatment" in this spirit.

## Adaptive therapy

Drug-sensitive cells take room from resistant ones. Killing as many of them as possible frees that room; adaptive therapy keeps
them alive by treating only until the tumour has shrunk, and again when it has grown back (Gatenby 2009). In
castration-resistant prostate cancer, stopping abiraterone at half the initial PSA and restarting at the initial PSA gave a
median time to progression of 33.5 months against 14.3 in patients who had chosen continuous dosing (17 and 16 patients, not
randomised; Zhang 2017 and 2022). In colorectal cancer, intermittent panitumumab and FOLFIRI gave 17.5 months to progression on
treatment, continuous 11.2, and a median survival of 35.1 and 36.3 months (IMPROVE, a phase 2 that was randomised but not made
to compare).

Agents, which see observations only:

- `ConstantDose(card, regimen, intensity=1)`: the maximum dose, continuously.
- `AdaptiveDose(card, regimen, stop, restart, intensity=1, rest=0)`: pauses when the sum of diameters has changed by `stop`
  since the start of the line, and treats again at `restart`. The defaults are the published rule, with half the volume ({stop}
  of the sum of diameters) for half the PSA. `rest` above 0 rests at a reduced dose instead (dose modulation, Enriquez-Navas
  2016).
- `GuidelineDose(card)`: the guideline agent at standard dose. The other two take it as `then`, for the lines after progression.

## How it was tested

{patients} patients a case, the same patients with the same chance in every arm, {years} years. *Continuous* is the maximum dose
in every cycle. The *published rule* stops at half the volume and restarts at the size before treatment. The *narrow rule* stops
at 30% less in diameter (a response) and restarts at 20% less; it was chosen among about ten, on other patients and for all
cards together.

{cases}

**Time to progression** is the time until a scan shows a sum 20% and 5 mm above that before treatment, in all arms alike: the
definition of most models of adaptive therapy (Strobl 2021). Many patients die before that, and more of them where the tumour is
kept larger; so first with death switched off, everything else being the same.

{tumours}
Gain: mean over patients of the difference to their own continuous arm, with its 95% interval. Dose: share of the standard dose
until progression or death.

![Share of tumours that have not progressed](images/dosing_progression.png)

![One tumour under continuous and adaptive dosing](images/dosing_patient.png)

The tumour drawn is that of the patient at the 75th percentile of the gain, of those who progressed in both.

**With death.** Median months to progression, death before it being censored, by three definitions: *on treatment* is the
environment's (above), *from baseline* the one just used, and *RECIST* counts 20% above the smallest sum whether or not a drug
is given. Then survival and quality-adjusted life with the guideline's later lines after progression, in all arms by the
environment's definition.

{clinic}
## What to make of it

{verdict}

For RECIST the first intended regrowth is a progression, so by its letter adaptive dosing must lose. Counted on treatment it is
favoured: what grew in a pause, up to the baseline, is not held against it. The baseline is the definition that is fair to both.

The published rule lets tumours grow back to their first size. With scans every six to nine weeks a fast one is well above it
before that is seen; in the trial PSA was measured monthly, in a slower disease. So it gains in slow tumours and loses in fast
ones.

Gains from the baseline are smaller than the published ones, for reasons that can be named:

- Room is shared in log volume (Gompertz), up to a capacity far above any tumour. A tumour of 30 cm³ slows a resistant clone by
  a third against one of 1 cm³; it does not hold it. Strobl (2021) found the same far from capacity. In spheroids and in
  co-cultures of cells with EGFR mutations, sensitive cells hold resistant ones back by more than their cost of resistance
  (Bacevic 2017, Farrokhian 2022); the model has no such effect.
- Most resistance on the cards is incomplete, so that the full dose slows resistant clones too.
- Resistance is also acquired, the more the more sensitive cells live.

A larger tumour kills sooner in the model (`burden_exponent`), so what is won in time to progression can be lost in survival; an
agent trained on the reward weighs the two and need not choose adaptive dosing. None of this was calibrated on intermittent
treatment: the cards are fitted to continuous arms.

## Sources

Gatenby, Cancer Res 2009;69:4894. Enriquez-Navas, Sci Transl Med 2016;8:327ra24. Zhang, Nat Commun 2017;8:1816; the same trial,
eLife 2022;11:e76284. Bacevic, Nat Commun 2017;8:1995. Strobl, Cancer Res 2021;81:1135. Farrokhian, Sci Adv 2022;8:eabm7212.
IMPROVE: Avallone, J Clin Oncol 2025;43:829.
"""


@dataclass(frozen=True)
class Arm:
    """One arm of a case. Times are of first lines; ``later`` is with the guideline's lines after progression.

    Attributes:
        tumour: to 20% above the baseline, with death switched off.
        baseline: the same with death, who dies first being censored.
        environment, nadir: likewise, as the environment counts, and as RECIST counts.
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
    """Every arm of :data:`RULES` on the same ``n`` patients with the same chance; works for any card and regimen."""
    patients = CausalGenerator(card).sample(n, seed, where=population)
    horizon = int(YEARS * WEEKS_PER_YEAR / card.cycle_weeks)

    def engine(of: Card) -> Engine:
        return make_engine(of, cohort=patients, kind="dose", terms=("outcome",), horizon=horizon)

    lasting, real, next_lines = engine(without_death(card)), engine(card), GuidelineDose(card)

    def agent(rule: tuple[float, float] | None, then: DoseAgent | None = None) -> DoseAgent:
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
    """Mean share of the standard dose ordered until progression, as the environment counts, or death."""
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
        ("Time to progression by RECIST's letter, or death", lambda arm: arm.nadir.months),
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
    return ["The narrow rule against continuous dosing, mean over patients, where the 95% interval leaves no doubt:", "", *lines]


def page(results: dict[tuple[str, str], dict[str, Arm]]) -> str:
    """The text of docs/dosing.md."""
    tumours, clinic = [], []
    for (name, regimen), arms in results.items():
        control = arms["continuous"]
        for label, arm in arms.items():
            difference = arm.tumour.months - control.tumour.months
            first = (f"{name}, `{regimen}`" if arm is control else "", label, f"{arm.dose:.0%}")
            against = (
                gain(arm.tumour.months, control.tumour.months),
                f"{(difference > 0).mean():.0%}",
                f"{(difference < 0).mean():.0%}",
            )
            tumours.append((*first, median(arm.tumour), *(("", "", "") if arm is control else against)))
            later = (gain(arm.overall.months, control.overall.months), gain(arm.qalys, control.qalys, 2))
            seen = (median(arm.environment), median(arm.baseline), median(arm.nadir), median(arm.overall))
            clinic.append((*first[:2], *seen, *(("", "") if arm is control else later)))
    head = ["regimen", "arm"]
    parts = {
        "mark": generated_by(__file__),
        "note": NOTE,
        "patients": f"{PATIENTS:,}",
        "years": YEARS,
        "stop": f"{-HALVED:.0%}",
        "tumours": "\n".join(table([*head, "dose", "median, months", "mean gain, months", "longer in", "shorter in"], tumours)),
        "clinic": "\n".join(
            table(
                [
                    *head,
                    "on treatment",
                    "from baseline",
                    "RECIST",
                    "overall survival",
                    "gain in survival, months",
                    "gain in quality-adjusted life, years",
                ],
                clinic,
            )
        ),
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
    """One tumour under both ways of dosing: clones, and when the drug was given."""
    from matplotlib.figure import Figure

    n = 200
    engine = make_engine(
        without_death(card),
        cohort=CausalGenerator(card).sample(n, SEED, where=population),
        kind="dose",
        terms=(),
        horizon=HORIZON,
    )
    agents = {
        "continuous": ConstantDose(card, regimen),
        "narrow rule": AdaptiveDose(card, regimen, *(RULES["narrow rule"] or ())),
    }
    runs = {label: rollout(engine, agent, n, SEED, keep_observations=True) for label, agent in agents.items()}
    (before, ended), (after, ended_too) = (time_to_progression(card, runs[label]) for label in agents)
    seen = np.flatnonzero(ended & ended_too)  # progression came in both
    typical = seen[np.argsort((after - before)[seen])[int(0.75 * len(seen))]]
    figure = Figure(figsize=(10, 4.6), dpi=100, layout="constrained")
    for axes, (label, run) in zip(figure.subplots(1, 2, sharey=True), runs.items(), strict=True):
        _draw_tumour(axes, engine, run, int(typical))
        axes.set_title(
            f"{label}: {time_to_progression(card, run)[0][typical] / WEEKS_PER_MONTH:.0f} months to progression", fontsize=9
        )
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


def _mean_gain(arms: dict[str, Arm]) -> float:
    return float((arms["narrow rule"].tumour.months - arms["continuous"].tumour.months).mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, write, draw."""
    parser(__file__, __doc__).parse_args(arguments)
    cases = [(name, regimen) for name in CASES if name in card_files() for regimen in CASES[name]]
    results = {}
    for name, regimen in track(cases, "adaptive against continuous dosing"):
        results[name, regimen] = compare(load_card(name), regimen, CASES[name][regimen], PATIENTS, SEED)
    write(DOCS / "dosing.md", page(results))
    draw_progression(results, IMAGES / "dosing_progression.png")
    name, regimen = max(results, key=lambda case: _mean_gain(results[case]))
    draw_patient(load_card(name), regimen, CASES[name][regimen], IMAGES / "dosing_patient.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
