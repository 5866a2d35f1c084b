"""cohort."""

import re

import pytest

from onco_gym.cards import load_card
from onco_gym.patients import read_cohort


def test_a_cohort_is_written_and_used(command, tmp_path):
    path = tmp_path / "cohort.parquet"
    where = ("--where", "EGFR_L858R and age > 70", "--do", "insurance=medicaid", "rural=true", "adherence=.9")
    code, out, err = command("cohort", "nsclc", "-n", 60, "--seed", 4, *where, "-o", path)
    card = load_card("nsclc")
    patients = [read_cohort(path, card).row(card, index) for index in range(60)]
    assert (code, err) == (0, "")
    assert int(re.search(r"(\d+) were drawn", out)[1]) > 60
    for patient in patients:
        assert patient["driver"] == "EGFR_L858R"
        assert patient["age"] > 70
        assert (patient["insurance"], patient["rural"], patient["adherence"]) == ("medicaid", True, 0.9)
    assert command("rollout", "guideline", "--env", "NSCLC", "-n", 32, "--cohort", path).code == 0
    code, _, err = command("rollout", "guideline", "--env", "Breast", "-n", 32, "--cohort", path)
    assert (code, "holds patients of 'NSCLC'" in err) == (2, True)


def test_the_same_seed_gives_the_same_cohort(command, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert command("cohort", "NSCLC-Dose", "--patients", 20, "--seed", seed, "--out", tmp_path / name).code == 0
    a, b, c = (read_cohort(tmp_path / name, load_card("nsclc")).digest for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--out"),
        (("--where", "age >", "--out", "x.parquet"), "age >"),
        (("--where", "height > 2", "--out", "x.parquet"), "'height'"),
        (("--where", "age > " + "9" * 5000, "--out", "x.parquet"), "5006 characters"),
        (("--where", "age > 1e999", "--out", "x.parquet"), "1e999"),
        (("--where", "not " * 300 + "EGFR_L858R", "--out", "x.parquet"), "too deeply nested"),
        (("--where", "1 / 0 > age", "--out", "x.parquet"), "1 / 0"),
        (("--where", "-EGFR_L858R > 0", "--out", "x.parquet"), "EGFR_L858R"),
        (("--do", "age", "--out", "x.parquet"), "NAME=VALUE"),
        (("--do", "age=old", "--out", "x.parquet"), "'old'"),
        (("--do", "insurance=gold", "--out", "x.parquet"), "'gold'"),
        (("--do", "EGFR_L858R=false", "--out", "x.parquet"), "'driver'"),
    ],
)
def test_errors_are_one_line(refused, arguments, named):
    refused(named, "cohort", "nsclc", *arguments)
