import json

import numpy as np
import pytest
from paged import write_boards

from onco_gym.agents import load_agent, play, rollout
from onco_gym.interfaces.engine import make_engine
from onco_gym.leaderboard.drugs import CLASSES, drug_classes, short_name
from onco_gym.leaderboard.explorations import COHORT, SHOWN, ExplorationError, explore, read_explorations, write_explorations
from onco_gym.leaderboard.pages.site import Site
from onco_gym.leaderboard.pages.sources import FolderSource
from onco_gym.leaderboard.seasons import season_engine


@pytest.fixture(scope="module")
def venue():
    return make_engine("onco_gym/NSCLC-v0", split="validation")


@pytest.fixture(scope="module")
def clinician(venue):
    return explore(venue, load_agent(venue, "clinician"), "clinician")


@pytest.fixture(scope="module")
def scored(venue):
    """A policy with scores, and nothing else."""

    class Scored:
        def scores(self, observation):
            return np.tile(np.arange(len(venue.scenario.regimens), dtype=np.float32), (len(observation), 1))

        def act(self, observation, mask):
            raise AssertionError("it was asked twice")

    return explore(venue, Scored(), "scored")


def tracks(exploration, who):
    return [track for patient in exploration.patients for track in patient.tracks if track.who == who]


def test_every_entry_meets_the_same_patients(clinician, scored):
    assert len(clinician.patients) == SHOWN
    assert [one.number for one in clinician.patients] == [one.number for one in scored.patients]
    assert [one.facts for one in clinician.patients] == [one.facts for one in scored.patients]
    assert tracks(clinician, "guideline") == tracks(scored, "guideline")
    weeks = [track.weeks for track in tracks(clinician, "guideline")]
    assert weeks == sorted(weeks, reverse=True)
    assert weeks[0] > 2 * weeks[-1]


def test_journeys_are_those_of_the_rollout(venue, clinician):
    episodes = rollout(venue, load_agent(venue, "clinician"), COHORT)
    for patient, track in zip(clinician.patients, tracks(clinician, "entry"), strict=True):
        i = patient.number
        assert track.weeks == pytest.approx(episodes.weeks[i], abs=0.01)
        assert track.died == episodes.died[i]
        assert [one.regimen for one in track.decisions] == [r for r in episodes.given[:, i] if r >= 0]
        total = sum(sum(one.terms.values()) for one in track.decisions)
        assert total == pytest.approx(episodes.returns[i], abs=0.01)
        assert sum(len(one.doses) for one in track.given) == sum(one.cycles for one in track.decisions)
    for i, fate in enumerate(clinician.cohort):
        assert (fate.number, fate.died) == (i, episodes.died[i])
        assert fate.change == pytest.approx(episodes.best_change[i], abs=0.001) or (
            fate.change > 0 and episodes.best_change[i] == 0
        )
        assert sum(count for _, _, count in fate.spans) == episodes.cycles[:, i].sum()


def test_chances_add_up_over_what_could_be_given(clinician, scored):
    for exploration in (clinician, scored):
        for decision in (one for track in tracks(exploration, "entry") for one in track.decisions):
            chances = decision.chances
            assert len(chances) == len(exploration.treatments)
            assert sum(chance for chance in chances if chance is not None) == pytest.approx(1, abs=0.002)
            assert chances[decision.regimen] is not None
    assert any(None in one.chances for track in tracks(clinician, "entry") for one in track.decisions)
    for track in tracks(scored, "entry"):
        for one in track.decisions:  # the last regimen that can be given has the highest score
            assert one.regimen == max(i for i, chance in enumerate(one.chances) if chance is not None)


def test_the_optimum_is_no_worse_than_anybody(clinician):
    gains = []
    for patient in clinician.patients:
        entry, guideline, best = patient.tracks
        assert best.quality_weeks >= max(entry.quality_weeks, guideline.quality_weeks)
        gains.append(best.quality_weeks - guideline.quality_weeks)
    assert max(gains) > 10


def test_the_optimum_is_a_journey_that_can_be_played(venue, clinician):
    class Reading:
        def __init__(self, given):
            self.given = iter(given)

        def act(self, observation, mask):
            return np.array([next(self.given)], np.int32)

    patient = clinician.patients[4]
    best = patient.tracks[2]
    origin = venue.origins(1, patient.number)
    cycles = [one.regimen for one in best.decisions for _ in range(one.cycles)]
    again = play(venue.deciding("cycles"), Reading(cycles), origin)
    assert again.weeks[0] == pytest.approx(best.weeks, abs=0.01)


def test_files_are_read_back_and_stay_small(clinician, tmp_path):
    write_explorations(tmp_path, "0" * 12, [clinician])
    assert read_explorations(tmp_path, "0" * 12) == (clinician,)
    assert (tmp_path / "journeys" / f"{'0' * 12}.json").stat().st_size < 300_000
    assert read_explorations(tmp_path, "1" * 12) == ()


def test_pages_of_real_journeys_are_small(clinician, tmp_path):
    made = write_boards(tmp_path, 1)[1]
    write_explorations(tmp_path / made.board, made.id, [clinician])
    site = Site(FolderSource(tmp_path))
    assert len(site.entry(made.board, made.id)) < 100_000
    for patient in clinician.patients:
        page = site.journey(made.board, made.id, "NSCLC-v0", patient.number)
        assert len(page) < 200_000
        assert len(json.dumps(site.journey_json(made.board, made.id, "NSCLC-v0", patient.number))) < 40_000
        for track in patient.tracks:
            assert page.count(f'id="{"decision" if track.who == "entry" else track.who}-') == len(track.decisions)


def test_patients_of_a_season_are_refused(venue):
    with pytest.raises(ExplorationError, match="expected 'validation'"):
        explore(season_engine("onco_gym/NSCLC-v0", bytes(32)), load_agent(venue, "random"), "random")


def test_drug_classes_are_an_oncologists(card):
    found = {one.name: drug_classes(card, one) for one in card.regimens}
    assert found["best_supportive_care"] == found["drug_holiday"] == ("No anticancer drug",)
    assert {name for names in found.values() for name in names} <= set(CLASSES)
    wanted = {
        "NSCLC": {
            "osimertinib_platinum_pemetrexed": ("Targeted therapy", "Chemotherapy"),
            "pembrolizumab_carboplatin_paclitaxel": ("Chemotherapy", "Immunotherapy"),
            "trastuzumab_deruxtecan": ("Antibody-drug conjugate",),
        },
        "Breast": {
            "palbociclib_letrozole": ("Targeted therapy", "Endocrine therapy"),
            "sacituzumab_govitecan": ("Antibody-drug conjugate",),
            "eribulin_capecitabine": ("Chemotherapy",),
        },
        "Colorectal": {"folfiri": ("Chemotherapy",), "cetuximab": ("Targeted therapy",)},
        "Melanoma": {"nivolumab_ipilimumab": ("Immunotherapy",), "dacarbazine": ("Chemotherapy",)},
    }[card.id]
    assert {name: found[name] for name in wanted} == wanted


def test_names_fit_into_a_chart(card):
    names = [short_name(one) for one in card.regimens]
    assert len(set(names)) == len(names)
    assert all(1 <= len(name) <= 40 and name[0].isupper() and "_" not in name for name in names)
