"""Carbon intensity of electricity, and footprints that follow it."""

import itertools

import numpy as np
import pytest

from onco_gym.cards import CardError
from onco_gym.cards.grid import _zones, intensity, zones
from onco_gym.cards.scenarios import footprint


@pytest.mark.parametrize("zone", zones())
def test_a_day_averages_to_the_year(zone):
    hourly = intensity(zone)
    assert hourly.shape == (24,)
    assert (hourly > 0).all()
    assert hourly.mean() == pytest.approx(_zones()["means"][zone])


@pytest.mark.parametrize("zone", zones())
def test_low_hours_are_below_high_hours(zone):
    table = _zones()
    shape = table["shapes"][next(kind for kind, members in table["kinds"].items() if zone in members)]
    hourly = intensity(zone)
    low, high = hourly[shape["low_hours"]], hourly[shape["high_hours"]]
    assert np.ptp(low) == np.ptp(high) == pytest.approx(0)
    assert low.max() == pytest.approx(hourly.min())
    assert high.min() == pytest.approx(hourly.max())
    assert low.max() < high.min()


def test_every_zone_has_one_kind_of_grid():
    assert sorted(itertools.chain.from_iterable(_zones()["kinds"].values())) == zones()
    assert set(_zones()["kinds"]) == set(_zones()["shapes"])


def test_hours_between_are_interpolated_across_midnight():
    """United States: 1.08 of the mean until 21:00, 0.92 from 11:00; 04:00 lies half way."""
    assert intensity("USA")[[21, 4, 11]] == pytest.approx([369.5 * 1.08, 369.5, 369.5 * 0.92])


def test_an_unknown_zone_is_refused():
    with pytest.raises(CardError, match=r"no grid zone 'XXX'; expected one of AUS, AUT"):
        intensity("XXX")


def test_the_table_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        intensity("USA")[0] = 0.0


def at(card, zone, hour):
    return card.model_copy(update={"grid_zone": zone, "clinic_hour": hour})


def test_a_footprint_follows_its_electricity(nsclc):
    """A CT of 9.2 kg, measured in Australia (548.7 g/kWh), is four fifths electricity."""
    world = at(nsclc, "AUS", 10)
    assert footprint(world, "ct") == pytest.approx(9.2 * (0.2 + 0.8 * intensity("AUS")[10] / 548.7))
    assert footprint(at(nsclc, "USA", 10), "ct") == pytest.approx(6.456, abs=1e-3)
    sweden, poland = (footprint(at(nsclc, zone, 10), "ct") for zone in ("SWE", "POL"))
    assert 0.2 * 9.2 < sweden < footprint(nsclc, "ct") < poland


def test_the_hour_counts(nsclc):
    noon, evening = (footprint(at(nsclc, "DEU", hour), "ct") for hour in (12, 19))
    assert noon < evening


def test_what_takes_no_electricity_is_the_same_everywhere(nsclc):
    for item, kg in (("km", 0.168), ("infusion", 8.8)):
        assert footprint(at(nsclc, "SWE", 3), item) == footprint(at(nsclc, "IND", 19), item) == kg


def test_an_item_that_is_not_on_the_card_costs_nothing(nsclc):
    bare = nsclc.model_copy(update={"footprints": ()})
    assert footprint(bare, "ct") == 0.0


def test_every_card_has_a_known_zone(card):
    assert card.grid_zone in zones()
    assert card.clinic_hour in range(24)
