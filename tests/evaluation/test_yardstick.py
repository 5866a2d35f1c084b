"""The planner as 100 of the score: measured once, kept beside the card, of no use once the card has changed."""

import json

import pytest
from conftest import CARDS

from onco_gym.cards import CardError, load_card
from onco_gym.cards.load import digest
from onco_gym.evaluation import yardsticks
from onco_gym.evaluation.yardsticks import measure, read_yardstick, write_yardstick, yardstick, yardstick_file
from onco_gym.interfaces.engine import make_engine


@pytest.mark.parametrize("card", CARDS)
def test_on_every_card_the_planner_is_surely_better_than_the_guideline(card):
    found = read_yardstick(yardstick_file(card))
    assert found.card_digest == digest(load_card(card)), "the card has changed: onco-gym yardstick ID"
    value, low, high = found.gain
    assert 0 < low < value < high
    assert found.planner - found.guideline == pytest.approx(value, abs=1e-4)
    assert found.reach(found.random, found.guideline) > 1
    assert found.split == "test"
    assert found.patients >= 1000


def test_a_yardstick_fits_one_card_its_weights_and_its_horizon():
    engine = make_engine("nsclc")
    assert yardstick(engine) is not None
    assert yardstick(make_engine("nsclc", decide="cycles")) == yardstick(engine)
    assert yardstick(make_engine("nsclc", horizon=10)) is None
    assert yardstick(make_engine("nsclc", weights={"carbon": -1.0})) is None
    assert yardstick(make_engine("nsclc", kind="dose")) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"card_digest": "x"}', '{"random": 1, "guideline": 0}'])
def test_a_damaged_yardstick_gives_one_clear_error(tmp_path, content):
    path = tmp_path / "card.json"
    path.write_text(content)
    with pytest.raises(CardError, match="is not a yardstick"):
        read_yardstick(path)


def test_a_guideline_no_better_than_random_is_no_yardstick(tmp_path):
    content = json.loads(yardstick_file("nsclc").read_text())
    path = tmp_path / "card.json"
    path.write_text(json.dumps({**content, "guideline": content["random"]}))
    with pytest.raises(CardError, match="not above random play"):
        read_yardstick(path)


@pytest.mark.slow
def test_measuring_is_the_same_every_time_and_survives_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(yardsticks, "AT_ONCE", 8)
    engine, done = make_engine("melanoma", horizon=6), []
    found = measure(engine, 16, 5, lambda stage, count, total: done.append((count, total)))
    assert done == [(8, 16), (16, 16)]
    assert found == measure(engine, 16, 5)
    write_yardstick(tmp_path / "yardsticks" / "card.json", found)
    assert read_yardstick(tmp_path / "yardsticks" / "card.json") == found
