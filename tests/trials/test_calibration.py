"""Calibration: figures move where they should, files are safe, nothing depends on when it was interrupted."""

import json

import numpy as np
import pytest
import tomlkit
from conftest import CARDS, refuses, with_trials
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.cards import card_files, load_card
from onco_gym.cards.scenarios import params, scenario
from onco_gym.trials import TrialError
from onco_gym.trials.arms import recruit, simulate
from onco_gym.trials.calibration import Fit, calibrate
from onco_gym.trials.crossval import cross_validate
from onco_gym.trials.ensemble import StaleError, draw_ensemble, load_ensemble
from onco_gym.trials.parameters import differs, figures_at, fitted_parameters, reads, with_figures, write_figures
from onco_gym.trials.published import reproduce, setting_of


@settings(max_examples=6, deadline=None)
@given(name=st.sampled_from(CARDS), seed=st.integers(0, 10_000))
def test_figures_written_to_the_file_are_those_simulated(tmp_path_factory, name, seed):
    """Moving parameters in memory and in the file is the same, to the four digits that are written."""
    card = load_card(name)
    moved = fitted_parameters(card)
    x = np.random.default_rng(seed).normal(0, 1, len(moved))
    figures = figures_at(moved, x)
    document = tomlkit.parse(card_files()[name].read_text())
    write_figures(document, figures)
    path = tmp_path_factory.mktemp("cards") / "moved.toml"
    path.write_text(tomlkit.dumps(document))
    for one, other in zip(params(with_figures(card, figures)), params(load_card(path)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-3)


def test_every_parameter_moves_something_and_stays_in_bounds(card):
    own = params(card)
    everything = type(own)(*(np.ones(np.shape(value), bool) for value in own))
    for one in fitted_parameters(card):
        for x in (-60.0, 60.0):
            values = one.values(x)
            bounds = [(min(one.low, start), max(one.high, start)) for start in one.start]
            assert all(low <= value <= high for value, (low, high) in zip(values, bounds, strict=True)), one.name
        far = [params(with_figures(card, figures_at([one], np.array([x])))) for x in (-1.0, 1.0)]
        assert any(differs(everything, own, other) for other in far), one.name
        assert one.values(0.0) == list(one.start)


def test_what_an_arm_does_not_read_does_not_change_it(nsclc):
    arm = next(arm for arm in nsclc.arms if arm.trial == "PAPILLON" and not arm.control)
    candidates = recruit(nsclc, setting_of(arm), arm.protocol, 60)
    read, own = reads(nsclc, candidates), params(nsclc)
    before = simulate(scenario(nsclc), own, candidates, 60)
    silent = 0
    for one in fitted_parameters(nsclc):
        other = params(with_figures(nsclc, figures_at([one], np.array([1.0]))))
        if not differs(read, own, other):
            silent += 1
            after = simulate(scenario(nsclc), other, candidates, 60)
            assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)), one.name
    assert silent > 30


def test_a_fit_gets_better_and_writes_what_it_was_fitted_on(few_trials, tmp_path):
    start = Fit(load_card(few_trials), 80, 0)
    before = start.loss(start.look(start.position.x)[2], start.position.x)
    fit = calibrate(few_trials, tmp_path / "out.toml", tmp_path / "state.json", n=80, rounds=2)
    assert fit.position.loss < before
    card = load_card(tmp_path / "out.toml")
    assert card.calibration.trials == ("KEYNOTE-177",)
    assert not (tmp_path / "state.json").exists()
    again = Fit(card, 80, 0)
    assert again.loss(again.look(again.position.x)[2], again.position.x) <= before


def test_interrupted_or_not_a_fit_is_the_same(few_trials, tmp_path):
    calibrate(few_trials, tmp_path / "whole.toml", tmp_path / "a.json", n=60, rounds=2)

    def stop(stage, done, total):
        if "round 2" in stage and done == 3:  # in the middle of the second round
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(few_trials, tmp_path / "parts.toml", tmp_path / "b.json", n=60, rounds=2, progress=stop)
    assert not (tmp_path / "parts.toml").exists()
    assert json.loads((tmp_path / "b.json").read_text())["round"] == 1
    calibrate(few_trials, tmp_path / "parts.toml", tmp_path / "b.json", n=60, rounds=2)
    assert (tmp_path / "parts.toml").read_text() == (tmp_path / "whole.toml").read_text()


def test_check_arms_are_never_looked_at(few_trials, tmp_path):
    document = tomlkit.parse(few_trials.read_text())
    for arm in document["arms"]:
        if arm["use"] == "check":
            arm["pfs_months"] = 40.0
    other = tmp_path / "other.toml"
    other.write_text(tomlkit.dumps(document))
    outputs = []
    for path in (few_trials, other):
        calibrate(path, tmp_path / "out.toml", tmp_path / "state.json", n=60, rounds=1)
        outputs.append(params(load_card(tmp_path / "out.toml")))
    assert all(np.array_equal(a, b) for a, b in zip(*outputs, strict=True))


def test_an_effect_of_a_trial_moves_its_own_arms_only_and_stays_out_of_the_card(two_trials):
    fit = Fit(load_card(two_trials), 80, 0)
    x = np.zeros(len(fit.pull))
    x[len(fit.parameters)] = 2.0  # growth in the first trial
    (own, before, _), (moved, after, _) = fit.look(np.zeros(len(x))), fit.look(x)
    for arm, one, other in zip(fit.panel.arms, before, after, strict=False):
        same = np.array_equal(one.progression_free.months, other.progression_free.months)
        assert same == (arm.trial != fit.panel.trials[0])
    assert all(np.array_equal(a, b) for a, b in zip(own.params, moved.params, strict=True))
    fit.position.x = x
    growth, hazard = fit.effects()[fit.panel.trials[0]]
    assert (growth, hazard) == (pytest.approx(np.exp(0.2)), 1)


def test_trials_are_foretold_interrupted_or_not(two_trials, tmp_path):
    card = load_card(two_trials)
    whole = cross_validate(card, tmp_path / "a.json", n=60, patients=60)
    assert [one.trial for one in whole] == ["RAISE", "VELOUR"]
    for one in whole:
        assert {row.arm.trial for row in one.rows} == {one.trial}
        medians = [median for row in one.rows for median in (row.arm.pfs_months, row.arm.os_months)]
        assert len(one.medians) == sum(median is not None and median < 60 for median in medians)

    def stop(stage, done, total):
        if stage == "trials left out":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cross_validate(card, tmp_path / "b.json", n=60, patients=60, progress=stop)
    assert list(json.loads((tmp_path / "b.json").read_text())["without"]) == ["RAISE"]
    parts = cross_validate(card, tmp_path / "b.json", n=60, patients=60)
    for one, other in zip(whole, parts, strict=True):
        assert one.medians == other.medians
        assert [row.figures for row in one.rows] == [row.figures for row in other.rows]
    assert not list(tmp_path.glob("?.json"))
    (tmp_path / "c.json").write_text("{}")
    refuses(TrialError, "is not the state of a cross-validation", cross_validate, card, tmp_path / "c.json", n=60)


def test_a_trial_cannot_be_foretold_from_none(few_trials, tmp_path):
    refuses(TrialError, "has 1 trial to fit", cross_validate, load_card(few_trials), tmp_path / "state.json", n=60)


@pytest.mark.slow
def test_a_trial_left_out_is_as_if_it_had_not_been_fitted(tmp_path):
    """Against a fit from the same start that never saw the trial."""
    trials = ("RAISE", "VELOUR", "TRIBE", "PRIME", "CRYSTAL")
    start = with_trials(tmp_path / "start.toml", dict.fromkeys(trials, "fit"))
    fitted = tmp_path / "fitted.toml"
    calibrate(start, fitted, tmp_path / "state.json", n=400, rounds=6)
    found = {one.trial: one.rows for one in cross_validate(load_card(fitted), tmp_path / "cv.json", n=400, patients=800)}
    gaps, moves = [], []
    for trial in trials[1:4]:
        without = with_trials(tmp_path / "without.toml", {name: "check" if name == trial else "fit" for name in trials})
        calibrate(without, tmp_path / "refitted.toml", tmp_path / "state.json", n=400, rounds=6)
        all_fitted, refitted = (
            reproduce(card, 800, 1, [arm for arm in card.arms if arm.trial == trial])
            for card in (load_card(fitted), load_card(tmp_path / "refitted.toml"))
        )
        for quick, slow, seen in zip(found[trial], refitted, all_fitted, strict=True):
            medians = [np.log(row.result.progression_free.median().value) for row in (quick, slow, seen)]
            gaps.append(abs(medians[0] - medians[1]))
            moves.append(abs(medians[2] - medians[1]))
    assert np.mean(gaps) < max(0.06, 0.7 * np.mean(moves))


def test_a_state_of_something_else_is_refused(few_trials, tmp_path):
    state = tmp_path / "state.json"
    state.write_text('{"x": [1, 2]')
    refuses(TrialError, "is not the state of a fit", calibrate, few_trials, tmp_path / "out.toml", state, n=60, rounds=1)
    stamp = {"card": "other", "n": 60, "seed": 0, "x": [0.0], "round": 1, "damping": 1, "loss": 1, "stalled": 0, "harm": []}
    state.write_text(json.dumps(stamp))
    refuses(TrialError, "another card, seed or number", calibrate, few_trials, tmp_path / "out.toml", state, n=60, rounds=1)


def test_an_ensemble_of_other_figures_is_stale(few_trials, tmp_path):
    card = load_card(few_trials)
    drawn = draw_ensemble(card, 60, members=3)
    path = tmp_path / "ensemble.json"
    drawn.write(path)
    assert np.allclose(load_ensemble(card, path).offsets, drawn.offsets, atol=1e-3)
    other = with_figures(card, {("survival", "per_ecog"): card.survival.per_ecog * 1.1})
    with pytest.raises(StaleError, match="other figures"):
        load_ensemble(other, path)
    assert load_ensemble(card, tmp_path / "none.json") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', '{"a": null}', "[1, 2]", '"text"'])
def test_a_file_that_is_no_ensemble_is_refused(nsclc, tmp_path, text):
    path = tmp_path / "ensemble.json"
    path.write_text(text)
    with pytest.raises(TrialError):
        load_ensemble(nsclc, path)


def test_a_card_without_arms_cannot_be_fitted(nsclc):
    with pytest.raises(TrialError, match="no published arms"):
        Fit(nsclc.model_copy(update={"arms": ()}))
