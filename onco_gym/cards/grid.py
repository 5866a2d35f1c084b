"""Carbon intensity of electricity by zone and hour of the day. This is the embedded default, from ``envs/grid/zones.toml``."""

import functools
import tomllib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards.folder import CardError, cards_folder


@functools.cache
def _zones() -> dict[str, Any]:
    return tomllib.loads((cards_folder() / "grid" / "zones.toml").read_text(encoding="utf-8"))


def zones() -> list[str]:
    """The known zones: ISO 3166 codes of three letters, and WLD for the world."""
    return sorted(_zones()["means"])


@functools.cache
def intensity(zone: str) -> NDArray[np.float64]:
    """(24,) gCO2e per kWh in each hour of an average day, local time; its mean is the annual mean of the zone.

    Raises:
        CardError: for an unknown zone.
    """
    table = _zones()
    if zone not in table["means"]:
        raise CardError(f"there is no grid zone {zone!r}; expected one of {', '.join(zones())}")
    kind = next(name for name, members in table["kinds"].items() if zone in members)
    shape = table["shapes"][kind]
    points = dict.fromkeys(shape["low_hours"], shape["lowest"]) | dict.fromkeys(shape["high_hours"], shape["highest"])
    hours = sorted(points)
    factors = np.interp(np.arange(24), hours, [points[hour] for hour in hours], period=24)
    hourly: NDArray[np.float64] = table["means"][zone] * factors / factors.mean()
    hourly.flags.writeable = False  # all callers share one array
    return hourly
