"""The figures of a card that calibration may move: their places, how they move, and their bounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Params, params
from onco_gym.knowledge.plausibility import NO_TARGET, RESISTANT
from onco_gym.trials.arms import Candidates

Path = tuple[str | int, ...]
"""The place of a figure in a card: table, name of the row, key, and anything below it. Cases have numbers."""

NOWHERE = -7.9
"""A clone with at most this log10 fraction is irrelevant to a subgroup. Such figures do not move."""


@dataclass(frozen=True)
class Parameter:
    """A figure, or several that move together.

    Attributes:
        name: for reports.
        paths: its places in the card.
        start: its values there, before fitting.
        scale: what one unit of the fit means: the logarithm of a factor, or a shift.
        low, high: bounds.
        law: how it moves. ``factor`` multiplies it. ``shift`` adds to it (figures that are logarithms or may be 0). ``rest``
            multiplies its distance from 1 (shares near 1).
    """

    name: str
    paths: Sequence[Path]
    start: Sequence[float]
    scale: float
    low: float
    high: float
    law: Literal["factor", "shift", "rest"] = "factor"

    def values(self, x: float) -> list[float]:
        """Its values ``x`` units from the start."""
        return [min(max(self._moved(start, x), min(self.low, start)), max(self.high, start)) for start in self.start]

    def _moved(self, start: float, x: float) -> float:
        if x == 0 or self.law == "shift":
            return start + self.scale * x
        factor = float(np.exp(self.scale * x))
        return start * factor if self.law == "factor" else 1 - max(1 - start, 0.03) * factor


def fitted_parameters(card: Card) -> list[Parameter]:
    """Every parameter of ``card``.

    One drug has one kill per mechanism: regimens with equal kill by a mechanism share the drug and move together. If the
    card says that one subgroup is less sensitive than another, this order is knowledge and is kept.
    """
    return [*_kills(card), *_sensitivities(card), *_clones(card), *_disease(card)]


def _kills(card: Card) -> Iterator[Parameter]:
    drugs: dict[tuple[str, float], list[str]] = {}
    for regimen in card.regimens:
        for mechanism, value in regimen.kill.items():
            drugs.setdefault((mechanism, value), []).append(regimen.name)
    for (mechanism, value), regimens in drugs.items():
        paths: list[Path] = [("regimens", regimen, "kill", mechanism) for regimen in regimens]
        yield Parameter(f"kill {mechanism} ({regimens[0]})", paths, [value] * len(paths), 0.25, 0.02, 3.0)


def _sensitivities(card: Card) -> Iterator[Parameter]:
    """The spread of each mechanism, and its sensitivities where the target is present.

    The case nearest to 1 is the reference for the kill. It does not move, and no other case crosses it. That a target is absent
    is knowledge and does not move either.
    """
    direct = [mechanism for mechanism in card.mechanisms if mechanism.kind != "immune" and mechanism.spread > 0]
    if direct:
        paths: list[Path] = [("mechanisms", mechanism.name, "spread") for mechanism in direct]
        yield Parameter("spread of direct mechanisms", paths, [m.spread for m in direct], 0.25, 0.15, 1.2)
    for mechanism in card.mechanisms:
        if mechanism.fading_per_cycle > 0:
            path: Path = ("mechanisms", mechanism.name, "fading_per_cycle")
            yield Parameter(f"fading {mechanism.name}", [path], [mechanism.fading_per_cycle], 0.4, 0.0005, 0.08)
        if mechanism.kind == "immune":
            path = ("mechanisms", mechanism.name, "spread")
            yield Parameter(f"spread {mechanism.name}", [path], [mechanism.spread], 0.25, 0.4, 2.5)
        known = [case.value for case in mechanism.sensitivity]
        present = [i for i, value in enumerate(known) if value > (0.02 if mechanism.kind == "immune" else NO_TARGET)]
        if not present:
            continue
        reference = min(present, key=lambda i: abs(known[i] - 1))
        for i in present:
            if i != reference:
                low = known[reference] if known[i] > known[reference] else 0.02
                high = known[reference] if known[i] < known[reference] else 3.0
                path = ("mechanisms", mechanism.name, "sensitivity", i, "value")
                yield Parameter(f"sensitivity {mechanism.name} [{i}]", [path], [known[i]], 0.3, low, high)


def _clones(card: Card) -> Iterator[Parameter]:
    """The figures of the resistant clones. The fit does not change which of them count as resistant."""
    for clone in card.clones[1:]:
        at: Path = ("clones", clone.name)
        for i, case in enumerate(clone.log10_fraction):
            if case.value > NOWHERE:
                path = (*at, "log10_fraction", i, "value")
                yield Parameter(f"fraction {clone.name} [{i}]", [path], [case.value], 0.6, -11.0, -0.4, "shift")
        yield Parameter(f"spread {clone.name}", [(*at, "spread")], [clone.spread], 0.3, 0.3, 3.5)
        if clone.acquired:
            path = (*at, "acquired", "per_cycle")
            yield Parameter(f"acquired {clone.name}", [path], [clone.acquired.per_cycle], 1.0, 1e-11, 2e-3)
        for mechanism, value in clone.resistance.items():
            path = (*at, "resistance", mechanism)
            low, high = (RESISTANT, 0.995) if value >= RESISTANT else (0.0, RESISTANT - 0.01)
            yield Parameter(f"resistance {clone.name} {mechanism}", [path], [value], 0.3, low, high, "rest")
        yield Parameter(f"fitness cost {clone.name}", [(*at, "fitness_cost")], [clone.fitness_cost], 0.08, 0.0, 0.7, "shift")


def _disease(card: Card) -> Iterator[Parameter]:
    growth = card.growth
    for i, case in enumerate(growth.per_cycle):
        yield Parameter(f"growth [{i}]", [("growth", "per_cycle", i, "value")], [case.value], 0.2, 0.04, 0.6)
    cases = growth.initial_cm3
    paths: list[Path] = [("growth", "initial_cm3", i, "value") for i in range(len(cases))]
    yield Parameter("initial volume", paths, [case.value for case in cases], 0.2, 10, 200)

    def one(table: str, key: str, scale: float, low: float, high: float) -> Parameter:
        return Parameter(f"{table} {key}", [(table, key)], [getattr(getattr(card, table), key)], scale, low, high)

    yield one("growth", "spread", 0.25, 0.15, 0.9)
    yield one("survival", "background_per_cycle", 0.3, 3e-4, 3e-3)
    yield one("survival", "tumour_per_cycle", 0.25, 0.002, 0.08)
    yield one("survival", "burden_exponent", 0.2, 0.2, 1.5)
    yield one("survival", "per_ecog", 0.15, 1.2, 2.4)
    yield one("survival", "per_failed_line", 0.15, 1.5, 4.0)  # survival shortens with every line, in every cancer here
    yield one("survival", "spread", 0.3, 0.1, 1.2)
    yield one("observation", "new_lesion", 0.3, 0.1, 5.0)
    yield one("observation", "unscheduled", 0.25, 0.1, 0.6)
    if any(mechanism.kind == "immune" for mechanism in card.mechanisms):
        yield one("immune", "onset", 0.25, 0.05, 0.35)
        yield one("immune", "waning", 0.4, 0.002, 0.5)
        yield one("immune", "memory_half", 0.3, 0.02, 1.0)
    if card.immune.shared > 0:
        path: Path = ("immune", "shared")
        yield Parameter("immune shared", [path], [card.immune.shared], 0.12, 0.0, 0.95, "shift")


# ------------------------------------------------------------------------------------------------ cards with other figures


def with_figures(card: Card, figures: Mapping[Path, float]) -> Card:
    """``card`` with other figures. It is not validated again, because only numbers within bounds change."""
    for path, value in figures.items():
        card = _replaced(card, path, value)
    return card


def _replaced(node: Any, path: Path, value: float) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, BaseModel):
        return node.model_copy(update={str(head): _replaced(getattr(node, str(head)), rest, value)})
    if isinstance(node, dict):
        return {**node, head: _replaced(node[head], rest, value)}
    index = head if isinstance(head, int) else next(i for i, row in enumerate(node) if row.name == head)
    return (*node[:index], _replaced(node[index], rest, value), *node[index + 1 :])


def figures_at(moved: Sequence[Parameter], x: NDArray[np.float64]) -> dict[Path, float]:
    """The card's figures at ``x``, one number per parameter in its own units."""
    pairs = zip(moved, x, strict=True)
    return {path: value for one, at in pairs for path, value in zip(one.paths, one.values(float(at)), strict=True)}


def write_figures(document: Any, figures: Mapping[Path, float]) -> None:
    """Write figures, to four significant digits, into a card's TOML document, in place."""
    for path, value in figures.items():
        if path[-1] == "value" and not isinstance(_child(document, path[:-2]), list):
            path = path[:-2]  # a plain number stands for the only case
        _child(document, path[:-1])[path[-1]] = float(f"{value:.4g}")


def _child(node: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        named = isinstance(node, list) and isinstance(step, str)
        node = next(row for row in node if row["name"] == step) if named else node[step]
    return node


# ------------------------------------------------------------------------------------------------ what arms depend on


def reads(card: Card, candidates: Candidates) -> Params:
    """Which of a card's figures the candidates of an arm depend on, as arrays of booleans."""
    everything = Params(*(np.ones(np.shape(value), bool) for value in params(card)))
    regimens = len(card.regimens)
    used = np.unique(np.concatenate([np.ravel(candidates.prior.regimen), np.ravel(candidates.plan.regimen)]))
    rows = np.zeros(2 * regimens, bool)
    rows[used] = rows[used + regimens] = True
    kills = params(card).regimens[rows, : len(card.mechanisms)].any(0)
    traits = candidates.traits

    def cases(table: NDArray[Any], case: NDArray[Any]) -> NDArray[np.bool_]:
        return np.stack([np.isin(np.arange(table.shape[-1]), row) for row in np.atleast_2d(case)])

    return everything._replace(
        regimens=np.broadcast_to(rows[:, None], everything.regimens.shape),
        sensitivity=cases(everything.sensitivity, traits.sensitivity_case) & kills[:, None],
        sensitivity_spread=kills,
        fading=kills,
        resistance=np.broadcast_to(kills[None], everything.resistance.shape),
        fraction=cases(everything.fraction, traits.fraction_case),
        growth=cases(everything.growth, traits.growth_case)[0],
        initial=cases(everything.initial, traits.initial_case)[0],
    )


def differs(read: Params, one: Params, other: Params) -> bool:
    """Whether two sets of figures differ anywhere that is ``read``."""
    return any(bool(np.any((a != b) & where)) for where, a, b in zip(read, one, other, strict=True))
