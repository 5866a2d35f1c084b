"""Cohorts: sampling, conditions, interventions, exact counterfactuals, files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym import CausalGenerator, CohortError, load_card, read_cohort, write_cohort
from onco_gym.patients.traits import encode


@pytest.fixture
def generator(card):
    return CausalGenerator(card)


def same(a, b):
    return all(np.array_equal(a.columns[name], b.columns[name]) for name in a.columns)


def test_same_seed_same_cohort(generator):
    assert same(generator.sample(200, seed=3), generator.sample(200, seed=3))
    assert not same(generator.sample(200, seed=3), generator.sample(200, seed=4))


def test_conditions_hold_and_say_what_they_cost(nsclc):
    cohort = CausalGenerator(nsclc).sample(300, where="EGFR_L858R and age > 70")
    driver = next(variable for variable in nsclc.variables if variable.name == "driver")
    assert (cohort.columns["driver"] == driver.levels.index("EGFR_L858R")).all()
    assert (cohort.columns["age"] > 70).all()
    assert len(cohort) == 300
    assert cohort.drawn > 3000


def test_a_condition_that_never_holds_is_an_error(nsclc, monkeypatch):
    monkeypatch.setattr("onco_gym.patients.causal.MOST_DRAWS", 20_000)
    with pytest.raises(CohortError, match="holds for 0 of"):
        CausalGenerator(nsclc).sample(10, where="age > 70 and age < 60")


def test_interventions_reach_descendants_only(card, generator):
    before = generator.sample(4000, seed=1)
    after = generator.sample(4000, seed=1, do={"insurance": "medicaid"})
    children = {variable.name for variable in card.variables if "insurance" in variable.parents}
    assert children
    for variable in card.variables:
        changed = not np.array_equal(before.columns[variable.name], after.columns[variable.name])
        assert changed == (variable.name == "insurance" or variable.name in children), variable.name
        if changed:
            assert variable.tier in ("social", "access")


def test_an_intervention_must_make_sense(generator):
    for do, message in [
        ({"insurance": "gold"}, "expected one of"),
        ({"age": 500}, "expected a number in"),
        ({"shoe_size": 40}, "do names 'shoe_size'; expected some of"),
        ({"rural": "yes"}, "expected True or False"),
    ]:
        with pytest.raises(CohortError, match=message):
            generator.sample(5, do=do)


def test_a_flag_sets_its_variable(nsclc):
    generator = CausalGenerator(nsclc)
    patient = generator.sample(3, do={"ALK": True}).row(nsclc, 0)
    assert patient["driver"] == "ALK"
    with pytest.raises(CohortError, match="expected True, as for every flag; to unset it, set 'driver'"):
        generator.sample(3, do={"ALK": False})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), level=st.sampled_from(["commercial", "medicare", "medicaid", "uninsured"]))
def test_counterfactuals_are_exact(seed, level):
    card = load_card("colorectal")
    generator = CausalGenerator(card)
    cohort = generator.sample(64, seed=seed)
    insurance = next(variable for variable in card.variables if variable.name == "insurance")
    twin = generator.counterfactual(cohort, {"insurance": level})
    back = generator.counterfactual(twin, {})
    assert same(twin, back), "doing nothing must change nothing"
    already = cohort.columns["insurance"] == insurance.levels.index(level)
    for name in cohort.columns:
        assert np.array_equal(cohort.columns[name][already], twin.columns[name][already]), "who was so already stays so"
    biology = [variable.name for variable in card.variables if variable.tier in ("biology", "demographic")]
    for name in biology:
        assert np.array_equal(cohort.columns[name], twin.columns[name])
    assert all(np.array_equal(cohort.effects[name], twin.effects[name]) for name in cohort.effects), "twins share their effects"


def test_hold_keeps_what_would_follow(nsclc):
    generator = CausalGenerator(nsclc)
    cohort = generator.sample(3000, seed=2)
    free = generator.counterfactual(cohort, {"sex": "female"})
    held = generator.counterfactual(cohort, {"sex": "female"}, hold=["biology"])
    assert not np.array_equal(free.columns["driver"], cohort.columns["driver"])
    assert np.array_equal(held.columns["driver"], cohort.columns["driver"])
    with pytest.raises(CohortError, match="hold names 'luck', expected a variable or a tier of NSCLC"):
        generator.counterfactual(cohort, {}, hold=["luck"])


def test_noise_inferred_from_a_bare_table_reproduces_it(card, generator):
    cohort = generator.sample(500, seed=5)
    completed = generator.complete(cohort.columns)
    again = generator.counterfactual(completed, {}).columns
    assert all(np.allclose(again[name], column, rtol=1e-9) for name, column in cohort.columns.items())


def test_social_position_never_touches_biology(card, generator):
    """Twins that differ in every social attribute have the same body: same tumour, same sensitivities, same hazards."""
    cohort = generator.sample(500, seed=6)
    changes = {"race_ethnicity": "black", "insurance": "uninsured", "deprivation": 5.0, "rural": True}
    twin = generator.counterfactual(cohort, changes)
    one, two = encode(card, cohort), encode(card, twin)
    access = {"adherence", "delay", "result_cycle", "wait", "shown", "travel_case", "groups"}
    for name in one._fields:
        if name not in access:
            assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert not np.array_equal(one.delay, two.delay)


def test_prevalence_follows_the_card(nsclc):
    cohort = CausalGenerator(nsclc).sample(40_000, seed=0)
    levels = next(variable.levels for variable in nsclc.variables if variable.name == "driver")
    share = {level: float(np.mean(cohort.columns["driver"] == code)) for code, level in enumerate(levels)}
    assert 0.05 < share["EGFR_ex19del"] + share["EGFR_L858R"] < 0.25
    assert 0.01 < share["ALK"] < 0.06
    assert 0.05 < share["KRAS_G12C"] < 0.16


def test_a_file_keeps_everything(tmp_path, card, generator):
    cohort = generator.sample(50, seed=7)
    read = read_cohort(write_cohort(tmp_path / "patients.parquet", cohort, card), card)
    assert same(cohort, read)
    for kind in ("noise", "effects"):
        mine, theirs = getattr(cohort, kind), getattr(read, kind)
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert [path.name for path in tmp_path.iterdir()] == ["patients.parquet"]


def test_a_bare_table_is_enough(tmp_path, nsclc):
    path = write_cohort(tmp_path / "full.parquet", CausalGenerator(nsclc).sample(20, seed=8), nsclc)
    table = pq.read_table(path)
    bare = table.select([name for name in table.column_names if ":" not in name])
    pq.write_table(bare.replace_schema_metadata(None), tmp_path / "bare.parquet")
    assert len(read_cohort(tmp_path / "bare.parquet", nsclc)) == 20


def test_damaged_files_are_refused(tmp_path, nsclc):
    whole = write_cohort(tmp_path / "whole.parquet", CausalGenerator(nsclc).sample(20, seed=9), nsclc)
    data = whole.read_bytes()
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(data[: len(data) // 2])
    refuses(CohortError, "not a complete Parquet file", read_cohort, cut, nsclc)
    refuses(CohortError, "not a complete Parquet file", read_cohort, tmp_path / "missing.parquet", nsclc)
    refuses(CohortError, "holds patients of 'NSCLC'", read_cohort, whole, load_card("breast"))
    table = pq.read_table(whole)
    for other, said in (
        (table.replace_schema_metadata({"onco_gym": "{"}), "metadata is damaged"),
        (table.drop_columns(["age"]), "no column 'age'"),
        (table.set_column(table.column_names.index("age"), "age", pa.array([400.0] * 20)), "'age' holds 400"),
    ):
        pq.write_table(other, tmp_path / "other.parquet")
        refuses(CohortError, said, read_cohort, tmp_path / "other.parquet", nsclc)
