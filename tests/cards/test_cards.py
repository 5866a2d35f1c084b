"""Cards: what is wrong with one is said in one error, with file, key, value and what was expected."""

import re
import time
import tomllib

import numpy as np
import pytest
from conftest import refuses
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


GROWTH = r"(\[growth\]\n(?:.+\n)*?)source = .+\n"


@pytest.mark.parametrize(
    ("pattern", "new", "said"),
    [
        (r"\[growth\]\n", "[growth]\ncolour = 3\n", "growth.colour = 3: expected no such key"),
        (GROWTH, r"\1", "growth.source: expected a value, but the key is missing"),
        (GROWTH, r'\1source = "hearsay"\n', "growth.source = 'hearsay': expected one of the sources"),
        (r"discontinuation = 0\.\d+", "discontinuation = 1.5", "discontinuation = 1.5: expected less than or equal to 1"),
        (
            'name = "age"\n',
            'name = "age"\nparents = ["comorbidity"]\n',
            "'age <- comorbidity <- age': expected a patient graph without cycles",
        ),
        ('regimen = "osimertinib"', 'regimen = "osimertinibb"', "regimen = 'osimertinibb': expected one of the regimens"),
        (r'protocol = "[^"]+"', 'protocol = "elixir"', "elixir"),
        (r'population = "[^"]+"', "population = \"__import__('os')\"", "not allowed"),
        (r'(name = "comorbidity"\n(?:.+\n)*?parents = \[)', r'\1"deprivation", ', "never on biology"),
        ("^", "# a comment\n", "first line"),
        (r"(?s)^.*$", "id = 'x\n[", "is not TOML"),
    ],
)
def test_cards_that_are_wrong(tmp_path, text, pattern, new, said):
    assert said in broken(tmp_path, re.sub(pattern, new, text, count=1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('variable = "ecog"', 'variable = "deprivation"', "demography or biology"),
        ('adherence = "adherence"', 'adherence = "rural"', "numeric access variables"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 10", "more than reference_cm3"),
        ("scan_error = 0.05", "scan_error = 0.5", "less than or equal to 0.25"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 1e308", "growth.capacity_cm3 = 1e+308: expected less than or equal to"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 1e999", "growth.capacity_cm3 = inf: expected a finite number"),
        ("capacity_cm3 = 14137", "capacity_cm3 = 0x" + "f" * 5000, "growth.capacity_cm3 = a value of type int"),
        ("capacity_cm3 = 14137", "capacity_cm3 = " + "9" * 5000, "capacity_cm3 = 999"),
        ("horizon_cycles = 87", "horizon_cycles = 87.0", "horizon_cycles = 87.0: expected a valid integer"),
        ("median = 4\n", "median = 0\n", "variables[test_delay_days].median = 0: expected numbers from 1e-12 to 1e+12"),
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
    refuses(CardError, f"one of {', '.join(card_files())}", load_card, "liver")
    refuses(CardError, "cannot be read", load_card, "/nowhere/liver.toml")
    refuses(CardError, "cannot be read", load_card, "liver\0.toml")


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


NO_CONDITIONS = ["", "age >", "print(age)", "age.real", "lambda: 1", "age ** 9", "weight > 3", "x" * 3000]
OF_LEVELS = ["driver", "driver > 'ALK'", "driver == 'RET'", "age in [1, 2]", "driver in []", "driver == ['none', 'ALK']"]
TOO_LARGE = ["age > " + "9" * 400, "age > " + "9" * 5000, "age > 1e999"]
TOO_DEEP = ["(" * 500 + "age" + ")" * 500, "not " * 300 + "ALK", "age" + " + 1" * 300, "driver == 'ALK' == 'none'"]


@pytest.mark.parametrize("text", [*NO_CONDITIONS, *OF_LEVELS, *TOO_LARGE, *TOO_DEEP])
def test_expressions_that_are_refused(text):
    with pytest.raises(ExpressionError):
        parse(text, LEVELS)


def test_nested_comparisons_cost_no_more_than_their_length():
    text = "age"
    for _ in range(60):
        text = f"1 < ({text}) < 9"
    start = time.perf_counter()
    parse(text, LEVELS)
    assert time.perf_counter() - start < 1


def test_why_an_expression_cannot_be_read():
    refuses(ExpressionError, "too deeply nested", parse, "-" * 300 + "age", LEVELS)
    refuses(ExpressionError, "surrogates not allowed", parse, "age > 1\udcff", LEVELS)


@pytest.mark.parametrize("text", ["1 / 0 > age", "-ALK > 0"])
def test_expressions_that_cannot_be_computed(text):
    with pytest.raises(ExpressionError, match="cannot be computed"):
        parse(text, LEVELS)({"age": np.array([50.0]), "ALK": np.array([True])})


def test_expressions_that_are_read():
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
