"""Renew the figures of docs/calibration.md, and draw its pictures: published arms, simulated. Part of ``make docs``."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.progress import track

from onco_gym.cards import Card, card_files, load_card
from onco_gym.cards.load import digest
from onco_gym.trials.plots import against_published, published_panels, save
from onco_gym.trials.published import Reproduction, accuracy, relative_error, reproduce, side_by_side
from pages import DOCS, IMAGES, parser, renew, table

PATIENTS, SEEDS = 1000, (1, 2, 3)  # the seed of the shipped fits was 0
PANELS = {
    "nsclc": ["FLAURA", "ALEX", "CROWN", "KEYNOTE-024", "KEYNOTE-189", "KEYNOTE-407", "OAK", "IPASS"],
    "breast": ["CLEOPATRA", "DESTINY-Breast03", "HER2CLIMB", "PALOMA-2", "SOLAR-1", "KEYNOTE-355", "ASCENT", "PALOMA-3"],
    "colorectal": ["KEYNOTE-177", "PARADIGM", "PRIME", "BREAKWATER", "BEACON CRC", "SUNLIGHT", "CRYSTAL", "RECOURSE"],
    "melanoma": ["CheckMate 067", "RELATIVITY-047", "CheckMate 066", "COMBI-d", "COLUMBUS", "DREAMseq", "KEYNOTE-006", "BRIM-3"],
}
"""Trials to draw, by card. For other cards, the first eight by name are drawn."""
EARLIER = ("MONALEESA-3", "coBRIM")
"""Check trials that an earlier version was fitted to."""


def targets(runs: Sequence[Sequence[Reproduction]], use: str) -> str:
    """A table of targets: means over runs and, of several, the lowest and the highest figure."""
    rows = []
    for figures in zip(*(accuracy(run, use) for run in runs), strict=True):
        values = [figure.value for figure in figures]
        mean = replace(figures[0], value=float(np.mean(values)))
        spread = f" ({min(values):.1%} to {max(values):.1%})" if len(runs) > 1 else ""
        if mean.count:
            rows.append((mean.title, f"{mean.value:.1%}{spread}", mean.wanted, mean.count, "yes" if mean.reached else "**no**"))
    return table(["figure", "found", "wanted", "over", "reached"], rows)


def without(runs: Sequence[Sequence[Reproduction]], trials: Sequence[str]) -> str:
    """The main figures of the check arms without some trials, in words."""
    kept = [accuracy([row for row in run if row.arm.trial not in trials], "check") for run in runs]
    values = np.array([[figure.value for figure in figures] for figures in kept])  # (runs, figures)
    pfs, overall, _, _, ratios, *_ = values.mean(0)
    each = ", ".join(f"{value:.1%}" for value in values[:, 4])
    inside = f"PFS hazard ratio inside the interval in {ratios:.1%} of {kept[0][4].count} ({each})"
    return f"Without {' and '.join(trials)}, over the same seeds: PFS error {pfs:.1%}, OS error {overall:.1%}, {inside}."


def arm_row(row: Reproduction) -> tuple[str, ...]:
    """One row of a table of arms."""
    arm, (*texts, ratio, marks) = row.arm, row.texts()
    if ratio and arm.pfs_hazard_ratio_interval:
        ratio += " ({:.2f} to {:.2f})".format(*arm.pfs_hazard_ratio_interval)
    protocol = f"{arm.prior} then {arm.protocol}" if arm.prior else arm.protocol
    return arm.trial, f"`{arm.population}`", protocol, *texts, ratio, marks


def worst(rows: list[Reproduction]) -> str:
    """The ten largest misses, as a list."""
    found = []
    for row in rows:
        label = f"{row.arm.trial}, {row.arm.protocol.split('>')[0].strip()}"
        for name, title in (("pfs_months", "median PFS"), ("os_months", "median OS")):
            median = row.figures.get(name)
            error = relative_error(*median) if median else None
            if error is not None:
                size = abs(np.log1p(max(error, -0.95))) / 0.15
                found.append((size, f"{label}: {title} {side_by_side(*median, '.1f')} months"))
        rates = ("response", row.arm.response, row.result.response.value), ("grade 3+", row.arm.grade3, row.result.grade3.value)
        for name, published, seen in (*rates, *row.landmarks()):
            if published is not None:
                found.append((abs(seen - published) / 0.08, f"{label}: {name} {side_by_side(seen, published, '.0%')}"))
    return "\n".join(f"- {text}" for _, text in sorted(found, key=lambda pair: -pair[0])[:10])


def section(name: str, card: Card, rows: list[Reproduction]) -> list[str]:
    """A card's part of the page."""
    place = ["trial", "population", "prior lines, then protocol"]
    head = [*place, "response", "PFS, months", "OS, months", "grade 3+", "PFS HR", "landmarks"]
    parts = [f"## {card.title}", f"Card `{name}`, digest `{digest(card)}`."]
    for use, title in (("fit", "Fitted arms"), ("check", "Check arms, never fitted")):
        parts += [f"**{title}**", targets([rows], use)]
    parts.append(f"![Simulated against published](images/calibration_{name}.png)")
    parts.append(f"![Simulated curves of the main trials](images/trials_{name}.png)")
    parts += ["**The largest misses**", worst(rows)]
    for use, title in (("fit", "Fitted arms, simulated / published"), ("check", "Check arms, simulated / published")):
        chosen = [arm_row(row) for row in rows if row.arm.use == use]
        parts += [f"<details><summary>{title}</summary>", table(head, chosen), "</details>"]
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate the arms, renew the page, draw the pictures."""
    parser(__file__, __doc__).parse_args(arguments)
    cards = {name: load_card(name) for name in card_files()}
    every: list[list[Reproduction]] = [[] for _ in SEEDS]
    sections: list[str] = []
    for name, card in track(cards.items(), "simulating published arms"):
        runs = [reproduce(card, PATIENTS, seed) for seed in SEEDS]
        for all_cards, rows in zip(every, runs, strict=True):
            all_cards += rows
        sections += section(name, card, runs[0])
        save(against_published(runs[0], card.title), IMAGES / f"calibration_{name}.png")
        trials = PANELS.get(name) or sorted({arm.trial for arm in card.arms})[:8]
        save(published_panels(runs[0], trials, card.title), IMAGES / f"trials_{name}.png")
    pooled = [
        f"## All {len(every[0])} arms of {len(cards)} cards",
        f"These tables show the mean of {len(SEEDS)} seeds (lowest to highest). The cards below show the first seed.",
    ]
    for use, title in (("fit", "Fitted"), ("check", "Check, never fitted")):
        pooled += [f"**{title}**", targets(every, use)]
    parts = {"without": without(every, EARLIER), "pooled": "\n\n".join(pooled), "cards": "\n\n".join(sections)}
    renew(DOCS / "calibration.md", __file__, parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
