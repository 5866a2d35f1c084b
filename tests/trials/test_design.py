"""Trial design: candidates, power, sensitivity."""

import numpy as np
import pytest

from onco_gym.cards import load_card
from onco_gym.trials import Setting, TrialError
from onco_gym.trials.design import Candidate, PowerStudy, Sensitivity, optimise, score
from onco_gym.trials.ensemble import ensemble_file, load_ensemble

EGFR = Setting("(EGFR_ex19del or EGFR_L858R) and ecog <= 1")


def test_the_better_drug_scores_higher(nsclc):
    good, bad = (score(nsclc, Candidate(EGFR, drug), "best_supportive_care", 300) for drug in ("osimertinib", "docetaxel"))
    assert good.efficacy.value > bad.efficacy.value
    assert good.safety.value > bad.safety.value
    assert good.total > bad.total
    assert 0 <= good.diversity <= 1


def test_diversity_counts_those_who_are_left_out(nsclc):
    """A trial of men only leaves women without any gain."""
    everybody, men = (
        score(nsclc, Candidate(Setting(population), "carboplatin_paclitaxel"), "best_supportive_care", 500)
        for population in ("ecog <= 1", "ecog <= 1 and sex == 'male'")
    )
    assert men.diversity == 0
    assert men.least_served == "sex = female"
    assert everybody.diversity > 0.2


def test_optimisation_finds_the_right_drug(nsclc):
    drugs = ("osimertinib", "docetaxel", "carboplatin_paclitaxel", "pembrolizumab")
    ranked = optimise(nsclc, [Candidate(EGFR, drug) for drug in drugs], "best_supportive_care", n=400)
    assert ranked[0].candidate.protocol == "osimertinib"
    assert {one.candidate.protocol for one in ranked} == set(drugs)
    assert not ranked[0].dominated
    assert ranked[0].n == 400
    assert ranked[-1].n == 200
    with pytest.raises(TrialError, match="no candidate"):
        optimise(nsclc, [], "best_supportive_care")


@pytest.mark.slow
def test_power_rises_with_patients_and_is_alpha_without_a_difference(nsclc):
    study = PowerStudy(nsclc, EGFR, "osimertinib", "gefitinib_erlotinib", pool=1500)
    few, many = (study.power(n, repeats=60) for n in (20, 150))
    assert few.power.value < many.power.value
    assert many.power.value > 0.9
    assert many.events > few.events
    null = PowerStudy(nsclc, EGFR, "osimertinib", "osimertinib", pool=3000).power(100, repeats=200)
    assert null.power.value < 0.08
    worse = PowerStudy(nsclc, EGFR, "gefitinib_erlotinib", "osimertinib", pool=1500).power(150, repeats=40)
    assert worse.power.value < 0.05
    with pytest.raises(TrialError, match="expected 2 to 300"):
        study.power(301)


@pytest.mark.slow
def test_the_sample_size_reaches_its_power(nsclc):
    study = PowerStudy(nsclc, EGFR, "osimertinib", "gefitinib_erlotinib", pool=1000)
    found = study.sample_size(0.8, repeats=60)
    assert found.power.value >= 0.8
    assert 10 < found.n < 200
    assert study.power(max(found.n // 3, 2), repeats=60).power.value < 0.8
    with pytest.raises(TrialError, match="reach a power"):
        PowerStudy(nsclc, EGFR, "osimertinib", "osimertinib", pool=400).sample_size(0.8, repeats=50)
    with pytest.raises(TrialError, match="between 0 and 1"):
        study.sample_size(1.0)


@pytest.fixture(scope="module")
def sensitivity():
    card = load_card("nsclc")
    ensemble = load_ensemble(card, ensemble_file("nsclc"))
    return Sensitivity(card, EGFR, "osimertinib", ensemble, "pfs_months", n=150, months=48)


def test_sensitivity_finds_what_the_arm_depends_on(sensitivity):
    names = sensitivity.names
    assert any("egfr_3g" in name for name in names)
    assert not any("kill ret" in name or "pemetrexed" in name for name in names)
    effects = sensitivity.one_at_a_time()
    sizes = [abs(one.high - one.low) for one in effects]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0


def test_global_sensitivity_explains_the_variance(sensitivity):
    effects = sensitivity.everything_at_once(samples=16, most=4)
    totals = np.array([one.total for one in effects])
    assert len(effects) == 4
    assert np.isfinite(totals).all()
    assert totals.max() > 0.1
    assert (np.diff(totals) <= 1e-9).all()
