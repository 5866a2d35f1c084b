"""Boards with entries and journeys of our choice, for tests of pages."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from made import BOARD, drawn, entry

from onco_gym.foundation.intervals import Interval
from onco_gym.leaderboard.boards import FILE, board_folders
from onco_gym.leaderboard.entries import write_entry
from onco_gym.leaderboard.explorations import (
    Administration,
    Decision,
    Exploration,
    Explored,
    Fate,
    Happening,
    Scan,
    Track,
    Treatment,
    write_explorations,
)
from onco_gym.leaderboard.judgements import Population, Subgroup
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.metrics import METRICS

TREATMENTS = (
    Treatment("best_supportive_care", "Best supportive care", "Best supportive care", ("No anticancer drug",)),
    Treatment("alectinib", "Alectinib", "Alectinib 600 mg twice daily", ("Targeted therapy",)),
    Treatment("crizotinib", "Crizotinib", "Crizotinib 250 mg twice daily", ("Targeted therapy",)),
    Treatment("pembro_chemo", "Pembro chemo", "Pembrolizumab with platinum", ("Chemotherapy", "Immunotherapy")),
)
CHANCES = (0.1, 0.7, None, 0.2)


def track(who, weeks, died, regimens=(1, 3, 0)):
    """A life in which each regimen is given for a third of the time."""
    part = weeks / len(regimens)
    cycles = max(round(part / 3), 1)
    begins = [3 * cycles * place for place in range(len(regimens))]
    terms = {"outcome": 0.2, "guideline": 0.01, "fairness": 0.0, "carbon": -0.002}
    return Track(
        who=who,
        weeks=weeks,
        died=died,
        quality_weeks=0.8 * weeks,
        decisions=tuple(
            Decision(week, cycles, regimen, "preferred", CHANCES if who == "entry" else (), terms)
            for week, regimen in zip(begins, regimens, strict=True)
        ),
        scans=tuple(Scan(week, 50.0, change) for week, change in ((0.0, 0.0), (6.0, -0.4), (12.0, 0.3))),
        given=tuple(
            Administration(week, regimen, (1.0,) * (cycles - 1) + (0.0,)) for week, regimen in zip(begins, regimens, strict=True)
        ),
        events=(
            Happening(6.0, "outcome", "response", "Response"),
            Happening(12.0, "outcome", "progression", "Progression"),
            Happening(3.0, "toxicity", "skin", "Grade 3+: rash"),
        ),
    )


def exploration(stamp):
    """Journeys of two patients, in a cohort of six."""
    patients = tuple(
        Explored(
            number,
            (("age", "63 years"), ("sex", "female"), ("brain metastases", "no")),
            (track("entry", 60.0, True), track("guideline", 40.0, True), track("optimum", 261.0, False)),
        )
        for number in (4, 7)
    )
    cohort = tuple(
        Fate(number, 20.0 + 40 * number, number < 5, 0.4 - 0.25 * number, 15.0, ((1, 0, 5), (3, 5, 5))) for number in range(6)
    )
    return Exploration("an agent", stamp, "Advanced lung cancer", 3.0, 261.0, TREATMENTS, patients, cohort)


def judged(one, seed=0):
    """An entry with every figure."""
    rng, (found,) = np.random.default_rng(seed), one.judgements
    values = {name: float(rng.uniform(0.1, 0.9)) for name in METRICS if name != "score"}
    figures = {name: Interval(value, value - 0.05, value + 0.05) for name, value in values.items()} | found.figures
    gain = Interval(-0.1, -0.2, 0.0)
    return replace(
        one,
        judgements=(
            replace(
                found,
                figures=figures,
                unfairness={"sex": Interval(0.5, 0.1, 0.9)},
                terms={"outcome": Interval(1.4, 1.3, 1.5)},
                subgroups=[Subgroup("sex: female", 120, gain, gain), Subgroup("sex: male", 280, gain, gain)],
                populations=[Population("older", "patients of 75 years and more", 500, Interval(50, 45, 55), gain)],
            ),
        ),
    )


def write_boards(folder, count=5, **changes):
    """A folder with a board: the guideline, and entries of as many accounts, the better ones later. Returns the entries."""
    board = Path(folder) / BOARD.name
    board.mkdir(parents=True)
    (board / FILE).write_text((board_folders()[BOARD.name] / FILE).read_text())
    usual = entry(0, drawn(70, 0), "reference", kind="reference", agent="guideline", policies={})
    made = [replace(usual, manifest=Manifest(name="Guideline", authors=["onco_gym"]))]
    for number in range(1, count + 1):
        made.append(entry(number, drawn(60 + 3 * number, number), f"account{number}", policies={}))
    made.append(entry(900, drawn(50, 9), "account1", published=False, policies={}))
    made = [replace(judged(one, place), **changes.get(one.id, {})) for place, one in enumerate(made)]
    for one in made:
        write_entry(board, one, {})
    for one in made[:3]:
        write_explorations(board, one.id, [exploration(one.judgements[0].stamp)])
    return made
