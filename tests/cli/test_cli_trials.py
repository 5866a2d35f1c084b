"""trial, calibrate and design."""

import json

import numpy as np
import pytest

from onco_gym.cards import load_card
from onco_gym.trials import plots
from onco_gym.trials.design import schoenfeld_events
from onco_gym.trials.ensemble import ensemble_file, load_ensemble

EGFR = "(EGFR_ex19del or EGFR_L858R) and ecog <= 1"


def test_trial(command, tmp_path):
    out, plot = tmp_path / "out.json", tmp_path / "km.png"
    arms = ["--arm", "osimertinib", "--arm", "gefitinib_erlotinib > osimertinib"]
    ran = command("trial", "nsclc", "--population", EGFR, *arms, "-n", 200, "--seed", 0, "--json", out, "--plot", plot)
    assert (ran.code, ran.err) == (0, "")
    assert "Hazard ratios against gefitinib_erlotinib > osimertinib" in ran.out
    assert "not for treating patients" in ran.out
    assert ran.out.endswith(f"wrote {out}\nwrote {plot}\n")
    content = json.loads(out.read_text())
    assert [arm["protocol"] for arm in content["arms"]] == arms[1::2]
    assert content["arms"][0]["curves"]["os"][0] == 1.0
    assert content["comparisons"][0]["pfs_hazard_ratio"]["interval_with_uncertain_figures"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "included"), [([], "chance and uncertain figures of the card"), (["--no-ensemble"], "chance only")]
)
def test_table_picture_and_json_show_one_hazard_ratio(command, options, included, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    out = tmp_path / "out.json"
    arms = ["--arm", "osimertinib", "--arm", "gefitinib_erlotinib"]
    where = ["--population", EGFR, "--json", out, "--plot", "km.png"]
    code, said, _ = command("trial", "nsclc", *arms, *where, "-n", 200, *options)
    assert code == 0
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


@pytest.mark.parametrize(
    ("population", "prior", "protocol", "said"),
    [
        ("ecog <= 1", "", "docetaxl", "(did you mean 'docetaxel'?)"),
        ("ecog > 7", "", "docetaxel", "holds for 0 of"),
        ("__import__('os').system('true')", "", "docetaxel", "not allowed"),
        ("ecog <= 1 and squamous and ALK and age < 30", "osimertinib > docetaxel", "docetaxel", ""),
    ],
)
def test_wrong_trials_get_one_clear_error(refused, population, prior, protocol, said):
    asked = ("--population", population, "--prior", prior, "--arm", protocol, "-n", 50, "--no-ensemble")
    refused(said, "trial", "nsclc", *asked)


def test_check(command, tmp_path):
    out, plot = tmp_path / "check.json", tmp_path / "check.png"
    ran = command("calibrate", "melanoma", "--check", "-n", 100, "--json", out, "--plot", plot)
    assert (ran.code, ran.err) == (0, "")
    assert "Check arms, never fitted" in ran.out
    assert "CheckMate 067" in ran.out
    assert len(json.loads(out.read_text())["arms"]) == len(load_card("melanoma").arms)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_calibrate_fits_a_card_in_place(command, few_trials):
    before = few_trials.read_text()
    ran = command("calibrate", few_trials, "-n", 60, "--rounds", 1)
    assert (ran.code, ran.err) == (0, "")
    assert "Figures that moved" in ran.out
    assert f"wrote {few_trials}\n" in ran.out
    assert few_trials.read_text() != before
    card = load_card(few_trials)
    ensemble = load_ensemble(card, ensemble_file(few_trials))
    assert len(ensemble.offsets) == 24
    figures = [float(member.growth[0]) for member in ensemble.members(card)]
    assert np.std(figures) > 0
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


def test_design(command, tmp_path):
    out = tmp_path / "design.json"
    arms = ["--arm", "osimertinib", "--arm", "carboplatin_paclitaxel", "--arm", "gefitinib_erlotinib"]
    options = ["-n", 200, "--repeats", 50, "--json", out, "--sensitivity", "response", "--samples", 8]
    ran = command("design", "nsclc", "--population", EGFR, *arms, *options)
    assert (ran.code, ran.err) == (0, "")
    assert "Candidates against gefitinib_erlotinib" in ran.out
    assert "patients per arm reach a power" in ran.out
    assert "What response depends on" in ran.out
    content = json.loads(out.read_text())
    size = content["sample_size"]
    assert size["power"] >= 0.8
    assert size["schoenfeld_events"] == pytest.approx(schoenfeld_events(size["hazard_ratio"]["value"]))
    assert f"{size['events']:.0f} simulated, {size['schoenfeld_events']:.0f} by Schoenfeld's" in " ".join(ran.out.split())
    assert content["sensitivity"]
    assert content["candidates"][0]["qaly_gained"]["value"] > 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("trial", "nsclc"), "--arm"),
        (("trial", "nscl", "--arm", "docetaxel"), "(did you mean 'NSCLC'?)"),
        (("calibrate", "nsclc", "--json", "x.json"), "--json and --plot need --check"),
        (("calibrate", "nsclc", "--check", "--out", "x.toml"), "it cannot be combined with --out or --ensemble"),
        (("calibrate", "nsclc", "--out", "x.txt"), "does not end in .toml"),
        (("design", "nsclc", "--arm", "osimertinib"), "at least two --arm"),
        (("design", "nsclc", "--arm", "a", "--arm", "b", "--endpoint", "oss"), "(did you mean 'os'?)"),
        (("design", "nsclc", "--arm", "a", "--arm", "b", "--sensitivity", "respons"), "(did you mean 'response'?)"),
        (("design", "nsclc", "--arm", "docetaxl", "--arm", "docetaxel"), "(did you mean 'docetaxel'?)"),
    ],
)
def test_errors_are_one_line(refused, arguments, named):
    refused(named, *arguments)
