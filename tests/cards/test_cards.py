"""Cards: what is wrong with one is said in one error, with file, key, value and what was expected."""

import re
import tomllib

import pytest
from pydantic import ValidationError

from onco_gym.cards import CardError, card_files, digest, load_card
from onco_gym.cards.checks import conditions
from onco_gym.cards.citations import citation
from onco_gym.cards.expressions import ExpressionError, parse
from onco_gym.cards.schema import Card


@pytest.fixture
def text():
    return card_files()["nsclc"].read_text()


def broken(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(CardError) as error:
        load_card(path)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_unknown_key(tmp_path, text):
    message = broken(tmp_path, text.replace("[growth]\n", "[growth]\ncolour = 3\n"))
    assert "growth.colour" in message
    assert "no such key" in message


def test_missing_source(tmp_path, text):
    message = broken(tmp_path, re.sub(r"(\[growth\]\n(?:.+\n)*?)source = .+\n", r"\1", text))
    assert "growth.source" in message
    assert "missing" in message


def test_source_that_is_not_listed(tmp_path, text):
    message = broken(tmp_path, re.sub(r"(\[growth\]\n(?:.+\n)*?)source = .+\n", r'\1source = "hearsay"' + "\n", text))
    assert "hearsay" in message
    assert "sources" in message


def test_probability_out_of_range(tmp_path, text):
    message = broken(tmp_path, re.sub(r"discontinuation = 0\.\d+", "discontinuation = 1.5", text, count=1))
    assert "regimens[" in message
    assert "1.5" in message
    assert "less than or equal to 1" in message


def test_cycle_in_the_graph(tmp_path, text):
    age = text.index('name = "age"')
    end = text.index("\n\n", age)
    block = text[age:end] + '\nparents = ["comorbidity"]'
    message = broken(tmp_path, text[:age] + block + text[end:])
    assert "cycles" in message
    assert "age" in message


def test_unknown_regimen_in_a_rule(tmp_path, text):
    message = broken(tmp_path, text.replace('regimen = "osimertinib"', 'regimen = "osimertinibb"', 1))
    assert "osimertinibb" in message
    assert "regimens" in message


def test_unknown_regimen_in_an_arm(tmp_path, text):
    assert "elixir" in broken(tmp_path, re.sub(r'protocol = "[^"]+"', 'protocol = "elixir"', text, count=1))


def test_social_position_cannot_reach_biology(tmp_path, text):
    start = text.index('name = "comorbidity"')
    parents = text.index("parents = [", start)
    message = broken(tmp_path, text[:parents] + 'parents = ["deprivation", ' + text[parents + len("parents = [") :])
    assert "never on biology" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('variable = "ecog"', 'variable = "deprivation"', "demography or biology"),
        ('adherence = "adherence"', 'adherence = "rural"', "numeric access variables"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 10", "more than reference_cm3"),
        ("scan_error = 0.05", "scan_error = 0.5", "less than or equal to 0.25"),
        ("capacity_cm3 = 14137", "capacity_cm3 = true", "growth.capacity_cm3 = True: expected a valid number"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 1e308", "growth.capacity_cm3 = 1e+308: expected less than or equal to"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 1e999", "growth.capacity_cm3 = inf: expected a finite number"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 0x" + "f" * 5000, "growth.capacity_cm3 = a value of type int"),
        ("capacity_cm3 = 14137", "capacity_cm3 = " + "9" * 400, "growth.capacity_cm3 = 999"),
        ("capacity_cm3 = 14137", "capacity_cm3 = " + "9" * 5000, "capacity_cm3 = 999"),
        ("horizon_cycles = 87", "horizon_cycles = 87.0", "horizon_cycles = 87.0: expected a valid integer"),
        ("median = 4\n", "median = 0\n", "variables[test_delay_days].median = 0.0: expected a number of at least 1e-12"),
        ("memory_half = ", "memory_half = 1e-300 # ", "immune.memory_half = 1e-300: expected greater than"),
        ("[growth]", "[growth]\nx = " + "[" * 1500 + "]" * 1500, "too deeply nested"),
        ("[growth]", "[growth]\nx" + ".x" * 1500 + " = 1", "growth.x = a value of type dict"),
    ],
)
def test_figures_that_make_no_sense(tmp_path, text, old, new, message):
    assert old in text
    assert message in broken(tmp_path, text.replace(old, new))


def with_every_figure(value, new):
    """(a copy of a table in which every figure is ``new``, how many there were)."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        changed = {key: with_every_figure(item, new) for key, item in pairs}
        copy = {key: item for key, (item, _) in changed.items()}
        return copy if isinstance(value, dict) else list(copy.values()), sum(count for _, count in changed.values())
    figure = isinstance(value, int | float) and not isinstance(value, bool)
    return new if figure else value, int(figure)


@pytest.mark.parametrize("value", [True, "1", 1e308, float("inf"), float("nan"), 10**400], ids=lambda value: str(value)[:6])
def test_every_figure_is_a_number_of_sane_size(text, value):
    data, figures = with_every_figure(tomllib.loads(text), value)
    with pytest.raises(ValidationError) as error:
        Card.model_validate(data)
    refused = [one for one in error.value.errors() if one["type"] != "too_short"]  # a list without what was refused in it
    assert len(refused) == figures > 1000


def test_whole_numbers_are_numbers(tmp_path, text):
    path = tmp_path / "whole.toml"
    path.write_text(text.replace("capacity_cm3 = 14137", "capacity_cm3 = 14137.0"))
    assert digest(load_card(path)) == digest(load_card("nsclc"))


def test_an_expression_that_calls_a_function(tmp_path, text):
    assert "not allowed" in broken(tmp_path, re.sub(r'population = "[^"]+"', "population = \"__import__('os')\"", text, count=1))


def test_not_toml_at_all(tmp_path):
    assert "is not TOML" in broken(tmp_path, "id = 'x\n[")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "missing"), (b'id = "X\xff"', "is not TOML"), (b'id = "X\0"', "is not TOML"), (None, "Is a directory")],
)
def test_files_that_are_no_cards(tmp_path, content, message):
    path = tmp_path / "card.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(CardError, match=message):
        load_card(path)


def test_a_card_cut_short(tmp_path, text):
    assert "expected" in broken(tmp_path, text[: len(text) // 3].rsplit("\n\n", 1)[0])


def test_no_such_card():
    with pytest.raises(CardError, match=f"one of {', '.join(card_files())}"):
        load_card("liver")
    with pytest.raises(CardError, match="cannot be read"):
        load_card("/nowhere/liver.toml")
    with pytest.raises(CardError, match="cannot be read"):
        load_card("liver\0.toml")


def test_id_must_come_first(tmp_path, text):
    assert "first line" in broken(tmp_path, "# a comment\n" + text)


def test_every_card_has_what_it_must(card):
    assert len(card.regimens) >= 12
    assert {"best_supportive_care", "drug_holiday"} <= {regimen.name for regimen in card.regimens}
    assert {variable.name for variable in card.variables if variable.protected} >= {"race_ethnicity", "sex", "insurance"}
    assert len(card.arms) >= 20
    trials = {arm.trial: arm.use for arm in card.arms}
    share = sum(use == "check" for use in trials.values()) / len(trials)
    assert 0.15 <= share <= 0.35
    assert any(rule.status == "contraindicated" for rule in card.guideline)
    assert citation(card).count("@misc") >= 20


def test_parents_are_what_the_distributions_read(card):
    for variable in card.variables:
        assert bool(variable.parents) == bool(list(conditions(variable))), variable.name


def test_digest_follows_content(tmp_path, text):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(text)
    second.write_text(text.replace("scan_error = 0.05", "scan_error = 0.06"))
    assert digest(load_card(first)) == digest(load_card("nsclc"))
    assert digest(load_card(first)) != digest(load_card(second))


LEVELS = {"age": None, "driver": ("none", "ALK"), "ALK": None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age >",
        "print(age)",
        "age.real",
        "[1][0]",
        "lambda: 1",
        "driver > 'ALK'",
        "driver == 'RET'",
        "driver",
        "weight > 3",
        "age in [1, 2]",
        "x" * 3000,
        "(" * 500 + "age" + ")" * 500,
        "age ** 9",
        "age if age else 1",
        "driver in []",
        "driver == ['none', 'ALK']",
        "age > " + "9" * 400,
        "age > " + "9" * 5000,
        "age > 1e999",
        "not " * 300 + "ALK",
        "age" + " + 1" * 300,
        "driver == 'ALK' == 'none'",
    ],
)
def test_expressions_that_are_refused(text):
    with pytest.raises(ExpressionError):
        parse(text, LEVELS)


def test_nested_comparisons_cost_no_more_than_their_length():
    import time

    text = "age"
    for _ in range(60):
        text = f"1 < ({text}) < 9"
    start = time.perf_counter()
    parse(text, LEVELS)
    assert time.perf_counter() - start < 1


def test_why_an_expression_cannot_be_read():
    with pytest.raises(ExpressionError, match="too deeply nested"):
        parse("-" * 300 + "age", LEVELS)
    with pytest.raises(ExpressionError, match="surrogates not allowed"):
        parse("age > 1\udcff", LEVELS)


@pytest.mark.parametrize("text", ["1 / 0 > age", "-ALK > 0"])
def test_expressions_that_cannot_be_computed(text):
    import numpy as np

    with pytest.raises(ExpressionError, match="cannot be computed"):
        parse(text, LEVELS)({"age": np.array([50.0]), "ALK": np.array([True])})


def test_expressions_that_are_read():
    import numpy as np

    columns = {"age": np.array([50.0, 80.0]), "driver": np.array([0, 1]), "ALK": np.array([False, True])}
    for text, expected in {
        "age > 70": [0, 1],
        "not ALK": [1, 0],
        "driver == 'ALK' and 60 < age <= 80": [0, 1],
        "driver in ['none', 'ALK']": [1, 1],
        "driver != 'ALK' or age >= 80": [1, 1],
        "(age - 50) / 10 * 2 > 5": [0, 1],
    }.items():
        assert parse(text, LEVELS).holds(columns).astype(int).tolist() == expected, text
