"""record and verify."""

import functools
import json

import pytest

from onco_gym import verification
from onco_gym.cards import card_files
from onco_gym.interfaces import engine as interfaces
from onco_gym.interfaces.engine import make_engine
from onco_gym.verification import Effort, read_record, verify

N, SEED, HORIZON = 24, 7, 10  # as in tests/verification, where the same is compiled
QUICK = Effort(lines=2, islands=2, draws=1, moves=40, rounds=3)


@pytest.fixture
def brief(monkeypatch):
    """Short episodes, and a search that takes little time."""
    monkeypatch.setattr(interfaces, "make_engine", functools.partial(make_engine, horizon=HORIZON))
    monkeypatch.setattr(verification, "verify", functools.partial(verify, effort=QUICK))


def test_episodes_are_recorded_and_verified(printed, refused, brief, tmp_path):
    episodes, page, found = tmp_path / "episodes.json", tmp_path / "report.html", tmp_path / "found.json"
    asked = ("record", "clinician", "--env", "melanoma", "-n", N, "--seed", SEED, "--out", episodes)
    assert printed(*asked) == f"wrote {N} episodes of clinician to {episodes}\n"
    kept = read_record(episodes, make_engine("melanoma", horizon=HORIZON, split="test"))
    assert (kept.agent, kept.seed, len(kept)) == ("clinician", SEED, N)
    out = printed("verify", episodes, "--agent", "clinician", "--json", found, "--html", page)
    assert "clinician on Melanoma; 90% intervals" in out
    assert "decisions that the agent makes again" in out
    assert "lost most:" in out
    assert out.endswith(f"wrote {found}\nwrote {page}\n")
    assert len(json.loads(found.read_text())["episodes"]) == N
    assert "<svg" in page.read_text()
    own = tmp_path / "mine.toml"
    own.write_text(card_files()["melanoma"].read_text().replace("cycle_weeks = 3", "cycle_weeks = 4", 1))
    refused("card_digest", "verify", episodes, "--env", own)
