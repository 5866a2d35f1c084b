"""cohort."""

import re

from onco_gym.cards import load_card
from onco_gym.patients import read_cohort


def test_a_cohort_is_written_and_used(printed, refused, tmp_path):
    path = tmp_path / "cohort.parquet"
    where = ("--where", "EGFR_L858R and age > 70", "--do", "insurance=medicaid", "rural=true", "adherence=.9")
    out = printed("cohort", "nsclc", "-n", 60, "--seed", 4, *where, "-o", path)
    card = load_card("nsclc")
    patients = [read_cohort(path, card).row(card, index) for index in range(60)]
    assert int(re.search(r"(\d+) were drawn", out)[1]) > 60
    for patient in patients:
        assert patient["driver"] == "EGFR_L858R"
        assert patient["age"] > 70
        assert (patient["insurance"], patient["rural"], patient["adherence"]) == ("medicaid", True, 0.9)
    printed("rollout", "guideline", "--env", "NSCLC", "-n", 32, "--cohort", path)
    refused("holds patients of 'NSCLC'", "rollout", "guideline", "--env", "Breast", "-n", 32, "--cohort", path)


def test_the_same_seed_gives_the_same_cohort(command, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert command("cohort", "NSCLC-Dose", "--patients", 20, "--seed", seed, "--out", tmp_path / name).code == 0
    a, b, c = (read_cohort(tmp_path / name, load_card("nsclc")).digest for name in "abc")
    assert a == b != c
