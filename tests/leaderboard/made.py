"""Entries with figures of our choice, for tests of what is made from figures."""

import datetime

import numpy as np

from onco_gym.evaluation.figures import Reference
from onco_gym.foundation.intervals import mean
from onco_gym.interfaces.stamp import Stamp
from onco_gym.leaderboard.boards import read_board
from onco_gym.leaderboard.entries import Entry
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.manifests import Manifest

BOARD = read_board("nsclc-2026")
PATIENTS = 400
DAY = datetime.datetime(2026, 11, 2, tzinfo=datetime.UTC)


def judgement(returns, environment="onco_gym/NSCLC-v0"):
    """A judgement with these returns, whose scale is that of the score."""
    values = np.asarray(returns, np.float32)
    return Judgement(
        stamp=Stamp(environment, "0" * 16, "own", "0" * 64, {}, 174, "events", ("outcome",), "0"),
        reference=Reference("planner", 100.0, 0.0, 80.0),
        figures={"score": mean(values.astype(float))},
        unfairness={},
        terms={},
        subgroups=[],
        populations=[],
        decisions=3.0,
        returns=values,
        qalys=values,
        weeks=values,
        died=values,
    )


def entry(number, returns, account="someone", published=True, **changes):
    made = Entry(
        id=f"{number:012x}",
        board=BOARD.name,
        season=BOARD.season.name,
        account=account,
        kind="verified",
        manifest=Manifest(name=f"policy {number}", authors=["Someone"]),
        submitted=DAY + datetime.timedelta(hours=number),
        policies={"onco_gym/NSCLC-v0": "0" * 64},
        agent="",
        state="done",
        reason="",
        published=published,
        judgements=(judgement(returns),),
    )
    return Entry(**{**vars(made), **changes})


def drawn(mean_score, seed, noise=1.0):
    """Returns on common patients: patients differ far more than agents do."""
    patients = np.random.default_rng(0).normal(0, 30, PATIENTS)
    return mean_score + patients + np.random.default_rng(seed).normal(0, noise, PATIENTS)
