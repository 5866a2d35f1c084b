"""A board that is judged in a second, for tests of what happens around judging. As a script it is a worker for that board."""

import datetime
import functools
import os
import sys
from pathlib import Path

# Most of a worker's start is compiling; see tests/conftest.py.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[2] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

import numpy as np
import onnx
import tomlkit

from onco_gym.agents.onnx_check import sealed, unsealed
from onco_gym.agents.onnxfile import Operator, written
from onco_gym.interfaces.engine import make_engine
from onco_gym.leaderboard import judging
from onco_gym.leaderboard.boards import FILE, Board, Season, write_season
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.seasons import commitment
from onco_gym.leaderboard.store import Store
from onco_gym.leaderboard.worker import Worker

NAME = "onco_gym/NSCLC-Dose-v0"
SECRET = bytes(range(32))
BOARD = Board(
    name="tiny",
    title="Tiny",
    about="",
    track="dose",
    environments=[NAME],
    patients=16,
    metrics=["score", "qalys", "computing_ug"],
    season=Season(name="one", opened=datetime.date(2026, 1, 1), commitment=commitment("tiny", "one", SECRET)),
)
ENDED = BOARD.model_copy(update={"season": BOARD.season.model_copy(update={"secret": SECRET.hex()})})
"""The board when its season has ended."""
MANIFEST = Manifest(name="A policy", authors=["Someone"])


def quick(put):
    """Judge without twins, and on one other population of few patients. ``put(module, name, value)`` replaces values."""
    every = judging.shifts
    put(judging, "shifts", lambda card, cohort: list(every(card, cohort))[:1])
    put(judging, "other_figures", lambda card: None)
    put(judging, "remembers", lambda agent: True)
    put(judging, "ELSEWHERE", 16)


def write_board(folder, season):
    """The board as a folder."""
    folder.mkdir(parents=True)
    kept = {name: value for name, value in BOARD.model_dump().items() if name not in ("name", "season")}
    (folder / FILE).write_text(tomlkit.dumps(kept))
    write_season(folder, season)


def roomy(per_day=100):
    """The board with other caps."""
    return BOARD.model_copy(update={"caps": BOARD.caps.model_copy(update={"per_day": per_day, "per_month": 10_000})})


@functools.cache
def policy(seed=0, copy=0):
    """Some policy file for the board. Copies decide alike and differ in what their file says."""
    engine, rng = make_engine(NAME), np.random.default_rng(seed)
    size = (len(engine.kind.fields), engine.kind.mask_size)
    made = onnx.ModelProto.FromString(
        unsealed(written([Operator("Gemm", (rng.normal(size=size), rng.normal(size=size[1])))], engine))
    )
    made.doc_string = f"copy {copy}"
    return sealed(made.SerializeToString())


if __name__ == "__main__":
    quick(setattr)
    Worker(Store(sys.argv[1]), [(BOARD, SECRET)], lease=float(sys.argv[2])).run()
