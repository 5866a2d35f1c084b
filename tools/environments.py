"""Make envs/README.md, the pages in docs/environments and their pictures, from the cards. Part of ``make docs``."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.progress import track

from onco_gym.cards import Card, card_files, load_card
from onco_gym.cards.scenarios import footprint, scenario
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.rewards import TERMS, UNITS, card_weights
from pages import DOCS, IMAGES, NOTE, ROOT, generated_by, parser, table, write

GENERATED = generated_by(__file__)


def catalogue(cards: dict[str, Card]) -> str:
    """The text of envs/README.md."""
    rows = [
        (
            f"[`onco_gym/{card.id}-v0`](../docs/environments/{name}.md)",
            f"[{name}.toml]({name}.toml)",
            card.title,
            len(scenario(card).fields),
            len(card.regimens),
            len(card.clones),
            len(card.variables),
            len(card.guideline),
            f"{sum(arm.use == 'fit' for arm in card.arms)} + {sum(arm.use == 'check' for arm in card.arms)}",
            len(card.sources),
        )
        for name, card in cards.items()
    ]
    counts = ["observations", "actions", "clones", "patient variables", "rules", "arms (fit + check)", "sources"]
    lines = [
        GENERATED,
        "# Cards",
        "",
        "A card holds everything that onco_gym knows about a disease: patients, regimens, biology, guideline, rewards and",
        "published trial arms. Every figure has a unit and a source. To add a disease, add a card;",
        "[CONTRIBUTING.md](../CONTRIBUTING.md) explains how.",
        "",
        *table(["id", "card", "disease", *counts], rows),
        "Every card also comes as `-Dose-v0`, `-Workflow-v0` and `mo-...-v0`.",
        'For a card of your own, use `onco_gym/Card-v0`: `gym.make("onco_gym/Card-v0", card="my.toml")`.',
        "",
        NOTE,
    ]
    return "\n".join(lines) + "\n"


def page(name: str, card: Card) -> str:
    """The text of an environment's page."""
    layout = scenario(card)
    years = card.horizon_cycles * card.cycle_weeks / WEEKS_PER_YEAR
    doses = "an intensity for each anti-cancer regimen ([dosing](../dosing.md))"
    tests = ", ".join(test.name for test in card.tests)
    orders = f"{tests}, ctDNA, imaging, evidence, regimen, next visit ([workflow](../workflow.md))"
    lines = [
        GENERATED,
        f"# onco_gym/{card.id}-v0: {card.title}",
        "",
        card.summary.strip(),
        "",
        f"A step is {card.cycle_weeks:g} weeks. Episodes terminate at death and are truncated after {card.horizon_cycles} cycles",
        f"({years:.1f} years). {NOTE}",
        "",
        *table(
            ["id", "action", "reward"],
            [
                (f"`onco_gym/{card.id}-v0`", f"one of {len(card.regimens)} regimens", "a number"),
                (f"`onco_gym/mo-{card.id}-v0`", "the same", "a vector: " + ", ".join(TERMS)),
                (f"`onco_gym/{card.id}-Dose-v0`", doses, "a number"),
                (f"`onco_gym/{card.id}-Workflow-v0`", orders, "a number"),
            ],
        ),
        f"![Survival, progression, response and toxicity of the guideline agent](../images/{name}.png)",
        "",
        "## Actions",
        "",
        *table(
            ["", "regimen", "route", "kill per cycle (log, at sensitivity 1)", "grade 3+ over a course", "last cycle", "sources"],
            [
                (
                    index,
                    f"`{regimen.name}` {regimen.title}",
                    regimen.route,
                    ", ".join(f"{mechanism} {kill:.2f}" for mechanism, kill in regimen.kill.items()) or "-",
                    f"{1 - np.prod([1 - share for share in regimen.toxicity.values()]):.0%}",
                    regimen.max_cycles or "-",
                    ", ".join(regimen.source),
                )
                for index, regimen in enumerate(card.regimens)
            ],
        ),
        "## Observation",
        "",
        "Every number lies between 0 and 1. `low` and `high` are the raw values that are shown as 0 and 1.",
        "",
        *table(
            ["", "field", "unit", "low", "high"],
            [(field.index, f"`{field.name}`", field.unit, f"{field.low:g}", f"{field.high:g}") for field in layout.fields],
        ),
        "## Patients",
        "",
        *table(
            ["variable", "tier", "distribution", "parents", "protected", "seen", "sources"],
            [
                (
                    f"`{variable.name}`",
                    variable.tier,
                    variable.kind,
                    ", ".join(variable.parents) or "-",
                    "yes" if variable.protected else "",
                    f"after {variable.test}" if variable.test else ("yes" if variable.observed else "no"),
                    ", ".join(variable.source),
                )
                for variable in card.variables
            ],
        ),
        "## Clones",
        "",
        *table(
            ["clone", "", "escapes", "sources"],
            [
                (
                    f"`{clone.name}`",
                    clone.title,
                    ", ".join(f"{mechanism} {share:.0%}" for mechanism, share in clone.resistance.items()) or "nothing",
                    ", ".join(clone.source),
                )
                for clone in card.clones
            ],
        ),
        "## Guideline",
        "",
        "The rules are in order of preference. The guideline agent follows the first rule that applies.",
        "",
        *table(
            ["line", "when", "regimen", "status", "level", "sources"],
            [
                (
                    ", ".join(map(str, rule.lines)) or "any",
                    f"`{rule.when}`" if rule.when else "always",
                    rule.regimen,
                    rule.status.replace("_", " "),
                    rule.level,
                    ", ".join(rule.source),
                )
                for rule in card.guideline
            ],
        ),
        "This is the panel of experts, and what each of them accepts:",
        "",
        *table(
            ["expert", "", "accepts", "evidence", "at other lines", "refuses"],
            [
                (
                    expert.name,
                    expert.title,
                    ", ".join(status.replace("_", " ") for status in expert.accepts),
                    f"level A to {expert.level}",
                    "yes" if expert.early else "no",
                    f"more than {expert.max_toxicity:.0%} grade 3+ where `{expert.frail}`" if expert.frail else "-",
                )
                for expert in card.experts
            ],
        ),
        "## Rewards",
        "",
        "Weights are in quality-adjusted life years per unit of the term. [rewards.md](../rewards.md) explains the terms.",
        "",
        *table(["term", "unit", "weight"], [(name, UNITS[name], weight) for name, weight in card_weights(card).items()]),
        f"Footprints in kg CO2e, at the clinic's hour ({card.clinic_hour}:00) in the grid zone {card.grid_zone}:",
        "",
        *table(
            ["item", "as measured", "share of electricity", "here", "sources"],
            [
                (one.item, f"{one.kgco2e:g}", f"{one.grid_share:.0%}", f"{footprint(card, one.item):.3g}", ", ".join(one.source))
                for one in card.footprints
            ],
        ),
        "## Tests",
        "",
        *table(
            ["test", "", "turnaround, days", "kg CO2e", "USD", "sources"],
            [
                (f"`{one.name}`", one.title, f"{one.turnaround_days:g}", one.kgco2e, f"{one.cost_usd:g}", ", ".join(one.source))
                for one in card.tests
            ],
        ),
        "## Published arms",
        "",
        *table(
            ["trial", "population", "line", "protocol", "n", "response", "PFS, months", "OS, months", "use", "sources"],
            [
                (
                    f"{arm.trial} {arm.year}",
                    arm.published_population,
                    arm.line,
                    arm.protocol,
                    arm.n or "-",
                    "-" if arm.response is None else f"{arm.response:.0%}",
                    arm.pfs_months or "-",
                    arm.os_months or "-",
                    arm.use,
                    ", ".join(arm.source),
                )
                for arm in card.arms
            ],
        ),
        "## Sources",
        "",
        "*seen*: we saw the figures in the source. *partly*: we saw some of them. *recalled*: not checked. *estimate*: our own.",
        "",
        *table(
            ["key", "source", "doi", "checked"],
            [(f"`{key}`", source.cite, source.doi or "-", source.checked) for key, source in card.sources.items()],
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def draw(card: Card, path: Path) -> None:
    """Survival, progression, response and toxicity of the guideline agent, by first regimen."""
    from matplotlib.figure import Figure

    from onco_gym.agents import load_agent, rollout
    from onco_gym.interfaces.engine import make_engine

    engine = make_engine(card)
    n = 4096
    runs = {agent: rollout(engine, load_agent(engine, agent), n) for agent in ("guideline", "random", "best_supportive_care")}
    guideline = runs["guideline"]
    first = guideline.given[0]
    often = np.argsort(-np.bincount(first, minlength=len(card.regimens)))
    common = [index for index in often if (first == index).sum() >= 60][:6]
    months = np.linspace(0, engine.horizon * card.cycle_weeks / WEEKS_PER_MONTH - 0.5, 200)

    def curve(weeks: np.ndarray) -> np.ndarray:
        return (weeks[:, None] / WEEKS_PER_MONTH > months - 1e-9).mean(0)

    drawing = Figure(figsize=(11, 8.6), dpi=90, layout="constrained")
    survival, progression, response, harm = drawing.subplots(2, 2).ravel()
    for agent, run in runs.items():
        survival.plot(months, curve(run.weeks), color="0.4", ls={"guideline": "-", "random": "--"}.get(agent, ":"), label=agent)
    for index in common:
        label = f"{card.regimens[index].name} ({(first == index).mean():.0%})"
        survival.plot(months, curve(guideline.weeks[first == index]), lw=1, label=label)
        progression.plot(months, curve(guideline.progression_weeks[first == index]), lw=1)
    progression.plot(months, curve(guideline.progression_weeks), color="0.4")
    survival.set(title="Overall survival", ylim=(0, 1), xlabel="months")
    progression.set(title="Free of progression, guideline agent", ylim=(0, 1), xlabel="months", xlim=(0, 48))
    about = "agents; guideline agent by first regimen"
    drawing.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False, title=about)
    change = np.sort(guideline.best_change)[::-1] * 100
    response.bar(np.linspace(0, 100, n), change, width=100 / n, color=np.where(change <= -30, "C2", "C7"))
    response.axhline(-30, color="k", lw=0.6)
    rate = (guideline.best_change <= -0.3).mean()
    response.set(title=f"Deepest change in the first line, % (response {rate:.0%})", xlabel="% of patients", ylim=(-100, 5))
    names = [card.regimens[index].name for index in common]
    harm.barh(names, [guideline.severe[first == index].mean() * 100 for index in common], color="C1")
    harm.invert_yaxis()
    harm.tick_params(axis="y", labelsize=8)
    harm.set(title="Grade 3+ event in any line, by first regimen, %", xlim=(0, 100))
    drawing.suptitle(f"{card.title}: {n} simulated patients. {NOTE}", fontsize=10)
    drawing.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them with ``--check``."""
    options = parser(__file__, __doc__)
    options.add_argument("--check", action="store_true", help="write nothing, and fail if a page does not match its card")
    check = options.parse_args(arguments).check
    cards = {name: load_card(name) for name in card_files()}
    texts = {ROOT / "envs" / "README.md": catalogue(cards)}
    texts.update({DOCS / "environments" / f"{name}.md": page(name, card) for name, card in cards.items()})
    if check:
        wrong = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
        stale = [str(path.relative_to(ROOT)) for path in wrong]
        if stale:
            print(f"these pages do not match the cards: {', '.join(stale)}; run make docs", file=sys.stderr)
        return bool(stale)
    for path, text in texts.items():
        write(path, text)
    IMAGES.mkdir(exist_ok=True)
    for name, card in track(list(cards.items()), "drawing"):
        draw(card, IMAGES / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
