"""Simulated trials: what users rely on, and what was published."""

import itertools
import json
import math

import numpy as np
import pytest
from conftest import CARDS, OTHERS_SLOW, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.cards import load_card
from onco_gym.cards.protocols import ProtocolError, Stage, parse_protocol
from onco_gym.cards.scenarios import params
from onco_gym.trials import Setting, TrialError, as_json, reproduce, run_trial
from onco_gym.trials.arms import patients_of, recruit, run_arm
from onco_gym.trials.ensemble import ensemble_file, load_ensemble
from onco_gym.trials.parameters import with_figures
from onco_gym.trials.published import accuracy, landmark, setting_of
from onco_gym.trials.statistics import Times, fast_log_hazard_ratio, hazard_ratio, log_rank_z, rate
from onco_gym.trials.trial import FIGURES, RESAMPLES, _resampled

EGFR = Setting("(EGFR_ex19del or EGFR_L858R) and ecog <= 1")


def trial(card, population, *protocols, n=600, **options):
    return run_trial(load_card(card), Setting(population, options.pop("prior", "")), protocols, n=n, **options)


# ------------------------------------------------------------------------------------------------ protocols


def test_protocols_are_read():
    names = ("a", "b", "c_d")
    assert parse_protocol("a", names) == (Stage("a"),)
    three = (Stage("a", cycles=4), Stage("b", share=0.31), Stage("c_d", cycles=6, toxicity=True))
    assert parse_protocol(" a(4) >b( 31% )> c_d(toxicity, 6)", names) == three


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected regimens"),
        ("leeches", "there is no regimen 'leeches': expected one of a, b"),
        ("a > > b", "cannot read ''"),
        ("a(0)", "cannot read '0'"),
        ("a(101%)", "cannot read '101%'"),
        ("a(print(1))", "cannot read 'a\\(print"),
        (" > ".join(["a"] * 13), "at most 12"),
    ],
)
def test_wrong_protocols_are_refused(text, said):
    with pytest.raises(ProtocolError, match=said):
        parse_protocol(text, ("a", "b"))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_protocol_or_one_clear_error(text):
    said = ""
    try:
        stages = parse_protocol(text, ("a", "b"))
    except ProtocolError as error:
        stages, said = (), str(error)
    assert bool(stages) != bool(said)
    assert len(said) < 400


def test_stages_follow_cycles_toxicity_and_shares():
    """Three drugs in turn, four cycles each and no progression in between: each stage is given as long as it says."""
    card = load_card("nsclc")
    plan = recruit(card, EGFR, "osimertinib(4) > drug_holiday(2) > docetaxel(25%)", 2000).plan
    names = [regimen.name for regimen in card.regimens]
    assert (plan.regimen[0] == names.index("osimertinib")).all()
    assert (plan.cycles[0] == 4).all()
    assert (plan.cycles[1] == 2).all()
    third = plan.regimen[2] == names.index("docetaxel")
    assert third.mean() == pytest.approx(0.25, abs=0.04)
    assert (plan.regimen[2][~third] == names.index("best_supportive_care")).all()
    assert (plan.count == 2 + third).all()


def test_fixed_cycles_end_a_regimen(nsclc):
    short, long = (run_arm(nsclc, params(nsclc), EGFR, text, 600) for text in ("osimertinib(4)", "osimertinib"))
    assert np.median(short.progression) < np.median(long.progression) - 2
    assert np.median(short.progression) > 4


def test_switching_on_toxicity_gives_the_next_regimen(nsclc):
    """Those who stopped gefitinib for toxicity get osimertinib at once instead of a pause."""
    protocols = ("gefitinib_erlotinib", "gefitinib_erlotinib(toxicity) > osimertinib")
    pause, switch = (run_arm(nsclc, params(nsclc), EGFR, text, 1500) for text in protocols)
    stopped = pause.stopped
    assert 0.02 < stopped.mean() < 0.5
    assert switch.progression[stopped].mean() > pause.progression[stopped].mean()
    untouched = ~(pause.stopped | switch.stopped)
    assert np.array_equal(pause.progression[untouched], switch.progression[untouched])


# ------------------------------------------------------------------------------------------------ running a trial


def test_same_seed_same_trial_and_another_seed_another(nsclc):
    one, two, other = (as_json(run_trial(nsclc, EGFR, ["osimertinib"], n=200, seed=seed)) for seed in (3, 3, 4))
    assert one == two
    assert one["arms"] != other["arms"]


def test_arms_share_patients_and_chance_unless_independent(nsclc):
    shared = run_trial(nsclc, EGFR, ["osimertinib", "osimertinib"], n=200)
    assert np.array_equal(shared.arms[0].overall.months, shared.arms[1].overall.months)
    assert shared.os_hazard_ratios[0].value == pytest.approx(1)
    apart = run_trial(nsclc, EGFR, ["osimertinib", "osimertinib"], n=200, independent=True)
    assert not np.array_equal(apart.arms[0].overall.months, apart.arms[1].overall.months)


@pytest.mark.slow
def test_an_arm_against_itself_covers_one(nsclc):
    """The 95% interval of the hazard ratio covers 1 in 95% of 200 repeated trials: 190, within three standard deviations."""
    covered = {"pfs": 0, "os": 0}
    for seed in range(200):
        one, other = (run_arm(nsclc, params(nsclc), EGFR, "osimertinib", 100, 2 * seed + arm, 48.0) for arm in (0, 1))
        for name, time, event in (("pfs", "progression", "progressed"), ("os", "survival", "died")):
            times = [Times(getattr(course, time).astype(float), getattr(course, event)) for course in (one, other)]
            ratio = hazard_ratio(*times)
            covered[name] += ratio.low <= 1 <= ratio.high
    assert 181 <= covered["pfs"] <= 199, covered
    assert 181 <= covered["os"] <= 199, covered


@pytest.mark.parametrize("card", OTHERS_SLOW, indirect=True)
def test_doubling_kill_rates_lengthens_progression_free_survival(card):
    """Every regimen of the card, in the first of its published settings: longer PFS and longer survival, without exception."""
    settings = {}
    for arm in card.arms:
        settings.setdefault(arm.protocol.split(">")[0].split("(")[0].strip(), setting_of(arm))
    regimens = [regimen for regimen in card.regimens if regimen.active and regimen.name in settings]
    assert len(regimens) >= 14
    for regimen in regimens:
        doubled = {("regimens", regimen.name, "kill", mechanism): 2 * kill for mechanism, kill in regimen.kill.items()}
        arm = (settings[regimen.name], regimen.name, 500)
        before, after = (run_arm(card, params(one), *arm, months=72) for one in (card, with_figures(card, doubled)))
        assert after.progression.mean() > before.progression.mean(), regimen.name
        assert np.median(after.progression) >= np.median(before.progression), regimen.name
        assert after.survival.mean() > before.survival.mean(), regimen.name


def test_prior_lines_select_and_weigh(nsclc):
    """Second-line patients have had their first line, are of the population at enrolment, and do worse."""
    first = run_trial(nsclc, Setting("ecog <= 1 and not squamous"), ["docetaxel"], n=400)
    later = run_trial(nsclc, Setting("ecog <= 1 and not squamous", "platinum_pemetrexed"), ["docetaxel"], n=400)
    assert later.arms[0].n == 400
    assert later.arms[0].overall.median().value < first.arms[0].overall.median().value


def test_the_patients_behind_a_course_are_those_of_the_population(nsclc):
    setting = Setting("KRAS_G12C and ecog <= 1", "pembrolizumab_platinum_pemetrexed")
    course = run_arm(nsclc, params(nsclc), setting, "sotorasib", 150, seed=2)
    cohort = patients_of(nsclc, setting, 150, 2, course)
    driver = next(variable for variable in nsclc.variables if variable.name == "driver")
    assert (cohort.columns["driver"] == driver.levels.index("KRAS_G12C")).all()
    assert len(cohort) == 150


def test_scans_of_the_trial_leave_earlier_lines_alone(nsclc):
    """Who enrols after a prior line does not depend on how the trial scans."""
    rows = []
    for weeks in ((6.0,), (12.0,)):
        setting = Setting("ecog <= 1 and not squamous", "platinum_pemetrexed", weeks)
        rows.append(run_arm(nsclc, params(nsclc), setting, "docetaxel", 300).row)
    assert np.array_equal(*rows)


def test_small_trials_recruit(nsclc):
    for seed in range(8):
        assert len(run_arm(nsclc, params(nsclc), Setting("", "docetaxel > pembrolizumab"), "osimertinib", 2, seed).best) == 2


def test_a_median_that_only_some_figures_reach_has_no_zero_bound(nsclc):
    members = load_ensemble(nsclc, ensemble_file("nsclc")).members(nsclc)
    result = run_trial(nsclc, Setting("ALK and ecog <= 1"), ["lorlatinib"], n=300, months=60, ensemble=members)
    low, high = result.uncertainty[0]["pfs_months"]
    assert low > 12
    assert high >= low


def test_follow_up_censors(nsclc):
    short = run_trial(nsclc, EGFR, ["osimertinib"], n=300, months=6)
    arm = short.arms[0]
    assert arm.overall.months.max() <= 6
    assert (arm.overall.months[~arm.overall.event] == 6).all()
    assert math.isinf(arm.overall.median().value)
    plain = as_json(short)
    assert plain["arms"][0]["os_months"]["value"] is None
    json.dumps(plain, allow_nan=False)


def test_intervals_carry_what_we_do_not_know(card):
    name = card.id.lower()
    ensemble = load_ensemble(card, ensemble_file(name))
    assert ensemble is not None, "every shipped card has an ensemble"
    assert len(ensemble.offsets) >= 16
    protocol = next(regimen.name for regimen in card.regimens if regimen.active)
    result = run_trial(card, Setting("ecog <= 1"), [protocol, "best_supportive_care"], n=400, ensemble=ensemble.members(card))
    wide = result.uncertainty[0]["os_months"]
    own = result.arms[0].overall.median()
    assert wide[0] <= own.value <= wide[1]
    assert wide[1] - wide[0] > 0.9 * (own.high - own.low)
    low, high = result.ratio_uncertainty[0]["os_hazard_ratio"]
    assert low <= result.os_hazard_ratios[0].value <= high
    for bounds in (*result.uncertainty, *result.ratio_uncertainty):
        assert all(low <= high for low, high in bounds.values())
    assert 0 <= result.uncertainty[0]["response"][0] <= result.uncertainty[0]["response"][1] <= 1


def test_intervals_are_never_narrower_than_chance(nsclc):
    """Also where all or none of few patients respond, who show no chance when they are drawn again."""
    result = run_trial(nsclc, EGFR, ["osimertinib"], n=6, ensemble=[params(nsclc)])
    (arm,) = as_json(result)["arms"]
    for name in FIGURES:
        low, high = (math.inf if bound is None else bound for bound in arm[name]["interval"])
        wider_low, wider_high = (math.inf if bound is None else bound for bound in arm[name]["interval_with_uncertain_figures"])
        assert wider_low <= low <= high <= wider_high, name
    assert result.uncertainty[0]["disease_control"][0] < 1


def test_intervals_of_hazard_ratios_have_the_ties_of_the_ratio(nsclc):
    """Progression is seen at scans, so times are tied: Breslow's ratios are nearer to 1 than Efron's, by 3% here."""
    result = run_trial(nsclc, EGFR, ["osimertinib", "gefitinib_erlotinib"], n=300, ensemble=[params(nsclc)])
    rng = np.random.default_rng([0, 23])
    drawn = [[arm.progression_free for arm in _resampled(result.arms, False, rng)] for _ in range(RESAMPLES)]
    ratios = np.sort([hazard_ratio(*times).value for times in drawn])
    (shown,) = result.hazard_ratios("pfs")
    assert (shown.low, shown.high) == pytest.approx((ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES)]), rel=0.01)


def test_without_events_a_hazard_ratio_cannot_be_told(nsclc):
    result = run_trial(nsclc, EGFR, ["osimertinib", "gefitinib_erlotinib"], n=6, months=1, ensemble=[params(nsclc)])
    (shown,) = result.hazard_ratios("os")
    assert math.isnan(shown.value)
    assert (shown.low, shown.high) == (0, math.inf)


# ------------------------------------------------------------------------------------------------ statistics


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), ratio=st.floats(0.3, 2.5), censored=st.floats(5, 60))
def test_the_fast_hazard_ratio_is_that_of_cox(seed, ratio, censored):
    rng = np.random.default_rng(seed)
    treated, control = (Times(rng.exponential(10 / r, 200), np.ones(200, bool)).until(censored) for r in (ratio, 1.0))
    assert fast_log_hazard_ratio(treated, control) == pytest.approx(math.log(hazard_ratio(treated, control).value), abs=0.02)


def test_hazard_ratios_at_the_edges():
    event, nothing = Times(np.arange(1.0, 21), np.ones(20, bool)), Times(np.full(20, 30.0), np.zeros(20, bool))
    assert hazard_ratio(nothing, event).value == 0
    assert hazard_ratio(event, nothing).value == math.inf
    assert math.isnan(hazard_ratio(nothing, nothing).value)
    apart = hazard_ratio(Times(event.months + 100, event.event), event)
    assert not apart.value > 1
    assert abs(log_rank_z(event, event)) < 0.01


def by_hand(times):
    """Months at which the Kaplan-Meier curve and the bounds of its log-log interval come down to one half."""
    survival, variance, rows = 1.0, 0.0, []
    for month in np.unique(times.months[times.event]):
        risk, events = (times.months >= month).sum(), (times.event & (times.months == month)).sum()
        survival *= 1 - events / risk
        variance += events / (risk * max(risk - events, 1))  # Greenwood
        half = 1.959964 * math.sqrt(variance) / abs(math.log(survival)) if survival > 0 else 0.0
        rows.append((month, survival, survival ** math.exp(half), survival ** math.exp(-half)))
    return tuple(next((row[0] for row in rows if row[column] <= 0.5 + 1e-12), math.inf) for column in (1, 2, 3))


def leukemia():
    """6-MP against placebo (Freireich, Blood 1963;21:699)."""
    months = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    event = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    return Times(np.array(months, float), np.array(event, bool)), Times(np.array(placebo, float), np.ones(21, bool))


def maintenance():
    """Maintained against not maintained (``aml`` in R's survival)."""
    months = [9, 13, 13, 18, 23, 28, 31, 34, 45, 48, 161]
    event = [1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0]
    control = Times(np.array([5, 5, 8, 8, 12, 16, 23, 27, 30, 33, 43, 45], float), np.arange(12) != 5)
    return Times(np.array(months, float), np.array(event, bool)), control


def lung():
    """Women against men, in days (``lung`` in R's survival)."""
    from lifelines.datasets import load_lung

    table = load_lung()
    groups = [table[table.sex == sex] for sex in (2, 1)]
    return [Times(group.time.to_numpy(float), group.status.to_numpy(bool)) for group in groups]


@pytest.mark.parametrize(
    ("data", "medians", "chi2", "efron", "breslow"),
    [
        (leukemia, (23, 8), 16.79, -1.572, -1.509),
        (maintenance, (31, 23), 3.40, -0.916, -0.904),
        (lung, (426, 270), 10.33, -0.531, -0.530),
    ],
)
def test_statistics_are_those_of_the_textbooks(data, medians, chi2, efron, breslow):
    """Three data sets with ties: figures as R's survival prints them, and lifelines' log-rank test."""
    from lifelines.statistics import logrank_test

    treated, control = data()
    for times, median in zip((treated, control), medians, strict=True):
        found = times.median()
        assert (found.value, found.low, found.high) == by_hand(times)
        assert found.value == median
    assert log_rank_z(treated, control) == pytest.approx(-math.sqrt(chi2), abs=0.002)
    peer = logrank_test(treated.months, control.months, treated.event, control.event)
    assert log_rank_z(treated, control) ** 2 == pytest.approx(peer.test_statistic, rel=1e-9)
    assert math.log(hazard_ratio(treated, control).value) == pytest.approx(efron, abs=0.001)
    assert fast_log_hazard_ratio(treated, control) == pytest.approx(breslow, abs=0.001)


@pytest.mark.parametrize("n", [2, 6, 8, 14, 200, 250, 400])
def test_a_curve_that_comes_down_to_one_half_has_reached_the_median(n):
    times = Times(np.arange(1.0, n + 1), np.arange(n) < n // 2)
    assert times.median().value == n // 2


def test_medians_and_rates():
    times = Times(np.arange(1.0, 102), np.ones(101, bool))
    assert times.median().value == 51
    assert times.median().low < 51 < times.median().high
    assert landmark(times, times, "OS20") == pytest.approx(81 / 101)
    share = rate(np.array([True] * 3 + [False] * 7))
    assert (share.value, round(share.low, 3), round(share.high, 3)) == (0.3, 0.108, 0.603)  # Wilson
    assert rate(np.zeros(10, bool)).low == 0


# ------------------------------------------------------------------------------------------------ what was published


EACH = {
    "fit": {"median PFS": 0.16, "median OS": 0.17, "response rate": 0.70, "grade 3+ rate": 0.70, "PFS hazard ratio": 0.50},
    "check": {"median PFS": 0.30, "median OS": 0.30},
}
"""Of hazard ratios there are 9 to 18 on a card, each with an error of 7% by 400 patients alone."""
TOGETHER = {
    "fit": {"median PFS": 0.11, "median OS": 0.15, "response rate": 0.80, "grade 3+ rate": 0.75, "PFS hazard ratio": 0.75}
    | {"landmarks": 0.75, "tails": 0.85},
    "check": {"median PFS": 0.20, "median OS": 0.25, "response rate": 0.60, "PFS hazard ratio": 0.55, "tails": 0.75},
}


def check_figures(rows, limits):
    """Medians are wrong by so much at most, and of other figures so many come out at least."""
    for use, wanted in limits.items():
        found = {figure.title.split(",")[0]: figure.value for figure in accuracy(rows, use)}
        for title, limit in wanted.items():
            assert found[title] <= limit if title.startswith("median") else found[title] >= limit, (rows[0], use, title)


def test_published_arms_come_out():
    """As docs/calibration.md reports, with other patients (400 an arm, another seed): each card by itself, and all together."""
    every = [reproduce(load_card(name), n=400, seed=77) for name in CARDS]
    for rows in every:
        check_figures(rows, EACH)
    check_figures(list(itertools.chain(*every)), TOGETHER)


def test_no_chemotherapy_cures_colorectal_cancer():
    """Without immunotherapy nearly everybody progresses within five years."""
    for protocol in ("panitumumab_folfox", "cetuximab_folfiri", "bevacizumab_doublet", "encorafenib_cetuximab_folfox"):
        population = "BRAF_V600E and ecog <= 1" if "encorafenib" in protocol else "not RAS_mutant and not msi_high and ecog <= 1"
        arm = trial("colorectal", population, protocol, "folfox").arms[0]
        assert landmark(arm.progression_free, arm.overall, "PFS59") < 0.1, protocol


def test_every_card_keeps_a_quarter_of_its_trials_apart(card):
    trials = {arm.trial for arm in card.arms}
    kept = {arm.trial for arm in card.arms if arm.use == "check"}
    assert len(kept) >= 0.25 * len(trials)
    assert not kept & {arm.trial for arm in card.arms if arm.use == "fit"}
    assert card.calibration is not None
    assert set(card.calibration.trials) == trials - kept


def test_gefitinib_fails_without_an_egfr_mutation():
    population = "not squamous and smoking == 'never' and ecog <= 1 and driver == 'none'"
    result = trial("nsclc", population, "gefitinib_erlotinib", "carboplatin_paclitaxel")
    assert result.arms[0].response.value < 0.06
    assert result.pfs_hazard_ratios[0].low > 1.5


def test_anti_egfr_antibodies_fail_in_ras_mutant_colorectal_cancer():
    wrong = trial("colorectal", "RAS_mutant and ecog <= 1", "panitumumab_folfox", "folfox")
    assert wrong.pfs_hazard_ratios[0].value > 0.9
    right = trial("colorectal", "not RAS_mutant and ecog <= 1", "panitumumab_folfox", "folfox")
    assert right.pfs_hazard_ratios[0].high < 0.95
    alone = trial("colorectal", "RAS_mutant and ecog <= 2", "cetuximab", "best_supportive_care", prior="folfox > folfiri")
    assert alone.arms[0].response.value < 0.04
    assert alone.pfs_hazard_ratios[0].value > 0.85


def test_alpelisib_needs_pik3ca():
    arms = ("alpelisib_fulvestrant", "fulvestrant")
    who = (f"hr_positive and {gene} and ecog <= 1" for gene in ("PIK3CA", "not PIK3CA"))
    present, absent = (trial("breast", one, *arms, prior="letrozole").pfs_hazard_ratios[0].value for one in who)
    assert present < 0.8
    assert absent > present + 0.1


def test_immunotherapy_shows_its_plateau():
    """Survival at 3 and 5 years of immunotherapy arms, fitted and check: within 8 points (1 more for chance); curves flatten."""
    misses = []
    for name in ("nsclc", "melanoma", "colorectal"):
        card = load_card(name)
        immune = {mechanism.name for mechanism in card.mechanisms if mechanism.kind == "immune"}
        drugs = {regimen.name for regimen in card.regimens if immune & set(regimen.kill)}
        arms = [arm for arm in card.arms if arm.protocol.split(">")[0].strip() in drugs]
        arms = [arm for arm in arms if {"OS36", "OS60"} & set(arm.landmarks)]
        seeds = [reproduce(card, 1000, seed=seed, arms=arms) for seed in (1, 2, 3)]
        for rows in zip(*seeds, strict=True):
            seen = np.mean([[simulated for _, _, simulated in row.landmarks()] for row in rows], 0)
            marks = [(mark, wanted) for mark, wanted, _ in rows[0].landmarks()]
            misses += [abs(at - wanted) for (mark, wanted), at in zip(marks, seen, strict=True) if mark in ("OS36", "OS60")]
            times = [(row.result.progression_free, row.result.overall) for row in rows]
            early, late, later = (np.mean([landmark(*pair, f"OS{month}") for pair in times]) for month in (24, 48, 72))
            assert later / late > late / early - 0.1
    assert len(misses) >= 18
    assert max(misses) <= 0.09
    assert np.mean(np.array(misses) <= 0.08) >= 0.85


# ------------------------------------------------------------------------------------------------ wrong input


@pytest.mark.parametrize(
    ("population", "prior", "protocol", "said"),
    [
        ("ecog <= 1", "", "leeches", "there is no regimen 'leeches'"),
        ("ecog <= 1", "leeches", "docetaxel", "there is no regimen 'leeches'"),
        ("ecog <= 1", "", "docetaxel > osimertinib > docetaxel", "'docetaxel' appears twice"),
        ("ecog > 7", "", "docetaxel", "holds for 0 of"),
        ("__import__('os').system('true')", "", "docetaxel", "not allowed"),
        ("EGFR_L858", "", "docetaxel", "names 'EGFR_L858'"),
        ("ecog <= 1 and squamous and ALK and age < 30", "osimertinib > docetaxel", "docetaxel", "expected at least|could enrol"),
    ],
)
def test_wrong_trials_get_one_clear_error(nsclc, population, prior, protocol, said):
    with pytest.raises(TrialError, match=said):
        run_trial(nsclc, Setting(population, prior), [protocol], n=50)


def test_impossible_schedules_are_refused(nsclc):
    with pytest.raises(TrialError, match="a scan interval is 1 weeks, expected 3"):
        run_trial(nsclc, Setting("ecog <= 1", scan_weeks=(1,)), ["docetaxel"], n=50)
    refuses(TrialError, "follow-up", run_trial, nsclc, Setting("ecog <= 1"), ["docetaxel"], n=50, months=0)
    refuses(TrialError, "at least one arm", run_trial, nsclc, Setting("ecog <= 1"), [])
