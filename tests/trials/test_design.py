"""Trial design: candidates, power, sensitivity."""

import math
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import refuses

from onco_gym.cards import load_card
from onco_gym.trials import Setting, TrialError, design
from onco_gym.trials.design import Candidate, PowerStudy, Sensitivity, optimise, schoenfeld_events, score
from onco_gym.trials.ensemble import ensemble_file, load_ensemble
from onco_gym.trials.statistics import Times

EGFR = Setting("(EGFR_ex19del or EGFR_L858R) and ecog <= 1")


def test_the_better_drug_scores_higher(nsclc):
    good, bad = (score(nsclc, Candidate(EGFR, drug), "best_supportive_care", 300) for drug in ("osimertinib", "docetaxel"))
    assert good.efficacy.value > bad.efficacy.value
    assert good.safety.value > bad.safety.value
    assert good.total > bad.total
    assert 0 <= good.diversity <= 1


def test_diversity_counts_those_who_are_left_out(nsclc):
    """A trial of men only leaves women without any gain."""
    trials = [Candidate(Setting(who), "carboplatin_paclitaxel") for who in ("ecog <= 1", "ecog <= 1 and sex == 'male'")]
    everybody, men = (score(nsclc, one, "best_supportive_care", 500) for one in trials)
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


@pytest.fixture
def exponential(monkeypatch):
    """Makes power studies of two exponential arms with a given hazard ratio."""

    def arm(card, figures, setting, protocol, n, seed, months):
        times = Times(np.random.default_rng(seed).exponential(float(protocol), n), np.ones(n, bool)).until(months)
        return SimpleNamespace(progression_free=times, overall=times)

    monkeypatch.setattr(design, "simulated_arm", arm)
    monkeypatch.setattr(design, "params", lambda card: None)

    def study(ratio, pool=40_000, **options):
        return PowerStudy(None, EGFR, str(10 / ratio), "10", pool=pool, **options)

    return study


def test_schoenfelds_formula():
    assert schoenfeld_events(0.5) == pytest.approx(65.3, abs=0.1)
    assert schoenfeld_events(0.7, power=0.9) == pytest.approx(330.4, abs=0.1)
    assert schoenfeld_events(1 / 0.7, power=0.9) == pytest.approx(schoenfeld_events(0.7, power=0.9))
    assert schoenfeld_events(0.7, alpha=0.1) < schoenfeld_events(0.7)
    assert schoenfeld_events(1.0) == math.inf
    assert all(math.isnan(schoenfeld_events(ratio)) for ratio in (0.0, math.inf, math.nan))


@pytest.mark.parametrize(("ratio", "power"), [(0.4, 0.8), (0.6, 0.9), (0.75, 0.8)])
def test_where_hazards_are_proportional_the_events_are_schoenfelds(exponential, ratio, power):
    """Within the error of the simulation: 3% of the search, 4% of the repeated trials and 5% of the pool."""
    study = exponential(ratio)
    wanted = schoenfeld_events(ratio, power)
    found = study.sample_size(power, repeats=600)
    assert found.events == pytest.approx(wanted, rel=0.12)
    formula = study.power(round(found.n * wanted / found.events), repeats=1500)
    assert formula.power.value == pytest.approx(power, abs=0.04)


def test_the_hazard_ratio_is_that_of_the_arms(exponential):
    found = exponential(0.6, pool=2000).hazard_ratio
    assert found.low < 0.6 < found.high
    assert found.high - found.low < 0.1


def test_the_significance_level_is_two_sided(exponential):
    study, normal = exponential(0.6), NormalDist()
    for alpha in (0.01, 0.05, 0.2):
        found = study.power(60, repeats=1500, alpha=alpha)
        expected = normal.cdf(-math.log(0.6) * math.sqrt(found.events) / 2 - normal.inv_cdf(1 - alpha / 2))
        assert found.power.value == pytest.approx(expected, abs=0.04)
    null = exponential(1.0).power(60, repeats=2000)
    assert null.power.value == pytest.approx(0.025, abs=0.011)  # only a better treatment counts


@pytest.mark.parametrize("ratio", [1.0, 0.97, 1.5])
def test_a_trial_that_cannot_succeed_says_the_hazard_ratio(exponential, ratio):
    said = r"400 patients per arm reach a power of \d+%, not 80%: the hazard ratio .* is (0|1)\.\d\d"
    with pytest.raises(TrialError, match=said):
        exponential(ratio, pool=2000).sample_size(0.8, repeats=100)


def test_powers_near_one_need_repeats(exponential):
    study = exponential(0.3)
    with pytest.raises(TrialError, match=r"300 simulated trials cannot show a power of 0\.999: expected at least 1000"):
        study.sample_size(0.999, repeats=300)
    found = study.sample_size(0.99, repeats=100)
    assert found.power.value >= 0.99
    assert found.events == pytest.approx(schoenfeld_events(0.3, 0.99), rel=0.3)


def test_wrong_power_studies_get_one_clear_error(exponential):
    refuses(TrialError, "no endpoint 'response'", exponential, 0.5, endpoint="response")
    refuses(TrialError, "accrual is -1 and", exponential, 0.5, accrual=-1.0)
    refuses(TrialError, "at least 10", exponential, 0.5, pool=9)
    study = exponential(0.5, pool=10)
    assert 0 <= study.power(2, repeats=20).power.value <= 1
    refuses(TrialError, "significance level is 0", study.power, 2, alpha=0.0)
    refuses(TrialError, "at least 1", study.power, 2, repeats=0)


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
