"""trial, calibrate and design."""

import json

import pytest

from onco_gym.cards import load_card
from onco_gym.trials import plots
from onco_gym.trials.design import schoenfeld_events
from onco_gym.trials.ensemble import ensemble_file, load_ensemble

EGFR = "(EGFR_ex19del or EGFR_L858R) and ecog <= 1"


def test_trial(printed, tmp_path):
    out, plot = tmp_path / "out.json", tmp_path / "km.png"
    arms = ["--arm", "osimertinib", "--arm", "gefitinib_erlotinib > osimertinib"]
    said = printed("trial", "nsclc", "--population", EGFR, *arms, "-n", 200, "--seed", 0, "--json", out, "--plot", plot)
    assert "Hazard ratios against gefitinib_erlotinib > osimertinib" in said
    assert "not for treating patients" in said
    assert said.endswith(f"wrote {out}\nwrote {plot}\n")
    content = json.loads(out.read_text())
    assert [arm["protocol"] for arm in content["arms"]] == arms[1::2]
    assert content["arms"][0]["curves"]["os"][0] == 1.0
    assert content["comparisons"][0]["pfs_hazard_ratio"]["interval_with_uncertain_figures"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "included"), [([], "chance and uncertain figures of the card"), (["--no-ensemble"], "chance only")]
)
def test_table_picture_and_json_show_one_hazard_ratio(printed, options, included, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    out = tmp_path / "out.json"
    arms = ["--arm", "osimertinib", "--arm", "gefitinib_erlotinib"]
    where = ["--population", EGFR, "--json", out, "--plot", "km.png"]
    said = printed("trial", "nsclc", *arms, *where, "-n", 200, *options)
    assert f"95% intervals include {included}." in said
    assert f"95% intervals of hazard ratios (HR) include {included}." in figures[0].get_suptitle()
    comparison = json.loads(out.read_text())["comparisons"][0]
    for name, axes in zip(("pfs_hazard_ratio", "os_hazard_ratio"), figures[0].axes, strict=False):
        row = comparison[name]
        low, high = row.get("interval_with_uncertain_figures", row["interval"])
        text = f"{row['value']:.2f} ({low:.2f} to {high:.2f})"
        assert text in said
        assert f"HR {text}" in axes.get_legend().get_texts()[0].get_text()


def test_a_trial_reports_its_progress(command, monkeypatch):
    monkeypatch.setattr("onco_gym.cli.screen.FIRST_LINE", 0.0)
    asked = ("trial", "nsclc", "--population", EGFR, "--arm", "osimertinib", "-n", 200, "--no-ensemble")
    assert "onco-gym: arms 1 of 1, " in command(*asked).err
    assert command(*asked, "--quiet").err == ""


def test_check(printed, tmp_path):
    out, plot = tmp_path / "check.json", tmp_path / "check.png"
    said = printed("calibrate", "melanoma", "--check", "-n", 100, "--json", out, "--plot", plot)
    assert "Check arms, never fitted" in said
    assert "CheckMate 067" in said
    assert len(json.loads(out.read_text())["arms"]) == len(load_card("melanoma").arms)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_calibrate_fits_a_card_in_place(command, printed, few_trials):
    before = few_trials.read_text()
    said = printed("calibrate", few_trials, "-n", 60, "--rounds", 1)
    assert "Figures that moved" in said
    assert f"wrote {few_trials}\n" in said
    assert few_trials.read_text() != before
    card = load_card(few_trials)
    ensemble = load_ensemble(card, ensemble_file(few_trials))
    assert len(ensemble.offsets) == 24
    ensemble_file(few_trials).unlink()
    assert command("calibrate", few_trials, "-n", 200, "--ensemble").code == 0
    assert load_ensemble(card, ensemble_file(few_trials)) is not None


@pytest.mark.slow
def test_calibrate_writes_elsewhere_and_reports_its_progress(command, few_trials, monkeypatch):
    monkeypatch.setattr("onco_gym.cli.screen.FIRST_LINE", 0.0)
    before, other = few_trials.read_text(), few_trials.with_name("other.toml")
    ran = command("calibrate", few_trials, "-n", 60, "--rounds", 1, "-o", other)
    assert ran.code == 0
    assert "onco-gym: figures moved 1 of " in ran.err
    assert "onco-gym: steps tried 1 of " in ran.err
    assert ", round 1, " in ran.err
    assert "onco-gym: members of the ensemble 1 of 24, " in ran.err
    assert few_trials.read_text() == before
    assert load_card(other).calibration.rounds == 1


def test_design(printed, tmp_path):
    out = tmp_path / "design.json"
    arms = ["--arm", "osimertinib", "--arm", "carboplatin_paclitaxel", "--arm", "gefitinib_erlotinib"]
    options = ["-n", 200, "--repeats", 50, "--json", out, "--sensitivity", "response", "--samples", 8]
    said = printed("design", "nsclc", "--population", EGFR, *arms, *options)
    assert "Candidates against gefitinib_erlotinib" in said
    assert "patients per arm reach a power" in said
    assert "What response depends on" in said
    content = json.loads(out.read_text())
    size = content["sample_size"]
    assert size["power"] >= 0.8
    assert size["schoenfeld_events"] == pytest.approx(schoenfeld_events(size["hazard_ratio"]["value"]))
    assert f"{size['events']:.0f} simulated, {size['schoenfeld_events']:.0f} by Schoenfeld's" in " ".join(said.split())
    assert content["sensitivity"]
    assert content["candidates"][0]["qaly_gained"]["value"] > 0
