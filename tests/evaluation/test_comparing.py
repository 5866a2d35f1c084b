"""Two agents on the same patients: who fares better, where they part, for whom."""

import json

import numpy as np
import pytest
from conftest import refuses

import onco_gym as og
from onco_gym.cli import main
from onco_gym.evaluation import EvaluationError

PATIENTS = 200


@pytest.fixture(scope="module")
def engine():
    return og.make_engine("nsclc", split="test")


@pytest.fixture(scope="module")
def found(engine):
    return og.compare(engine, "guideline", "pembrolizumab", PATIENTS)


def test_the_differences_are_those_of_the_patients(engine, found):
    one, other = (
        og.rollout(engine, og.load_agent(engine, name), PATIENTS, keep_observations=True)
        for name in ("guideline", "pembrolizumab")
    )
    gain = one.returns.astype(float) - other.returns
    assert found.gain.value == pytest.approx(gain.mean())
    assert found.improvement.value == pytest.approx(np.mean(gain > 0) + np.mean(gain == 0) / 2)
    assert found.weeks.value == pytest.approx(float((one.weeks - other.weeks).mean()), abs=1e-3)
    assert found.gain.low <= found.gain.value <= found.gain.high


def test_every_patient_is_treated_alike_or_parts_somewhere(found):
    parted = sum(one.patients for one in found.partings)
    assert parted == round(PATIENTS * (1 - found.alike))
    assert 0 < found.alike < 0.5
    assert {one.second for one in found.partings} <= {"pembrolizumab", "drug_holiday", "best_supportive_care"}
    assert all(one.first != one.second for one in found.partings)
    counts = [one.patients for one in found.partings]
    assert counts == sorted(counts, reverse=True)
    weighed = sum(one.patients * one.gain.value for one in found.partings) / PATIENTS
    assert weighed == pytest.approx(found.gain.value, abs=1e-3)  # those treated alike have no difference


def test_subgroups_have_the_gains_of_their_patients(engine, found):
    sexes = [one for one in found.subgroups if one.name.startswith("sex")]
    assert sum(one.patients for one in sexes) == PATIENTS
    assert sum(one.patients * one.gain.value for one in sexes) / PATIENTS == pytest.approx(found.gain.value)


def test_an_agent_cannot_be_told_apart_from_itself(engine):
    same = og.compare(engine, "guideline", "guideline", 40)
    assert (same.gain, same.improvement.value, same.alike, same.partings) == ((0, 0, 0), 0.5, 1.0, [])


def test_one_patient_is_too_few(engine):
    refuses(EvaluationError, "expected at least 2 patients", og.compare, engine, "guideline", "random", 1)


def test_the_command_shows_all_of_it(tmp_path, capsys):
    path = tmp_path / "compared.json"
    assert main(["compare", "guideline", "random", "--env", "NSCLC", "-n", "60", "--json", str(path), "-q"]) == 0
    shown, written = capsys.readouterr().out, json.loads(path.read_text())
    assert "Where they part for the first time" in shown
    assert "chance that a patient does better" in shown
    assert written["patients"] == 60
    assert written["stamp"]["split"] == "test"
    assert main(["compare", "guideline", "nobody", "--env", "NSCLC"]) == 2
