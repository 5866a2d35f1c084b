"""Scripted agents for the workflow: the guideline's regimens, and three ways of testing."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.protocol import AgentError
from onco_gym.agents.simple import Facts, GuidelineAgent, Knowledge, Masks, Observations
from onco_gym.cards import Card
from onco_gym.cards.scenario import column_range, columns_of, scenario
from onco_gym.cards.schema import Categorical
from onco_gym.interfaces.workflow import IMAGING, action_parts, observation_fields
from onco_gym.knowledge import Guideline

Testing = Literal["indicated", "never", "everything"]
Result = Mapping[str, float]
"""What a test could show, by the names that guideline rules use."""
Orders = dict[str, NDArray[np.int64]]
"""Parts of an action by name, each (n,)."""


class WorkflowAgent:
    """Gives what :class:`GuidelineAgent` gives for what is known, and orders tests in one of three ways.

    ``"indicated"``: before the first line and at progression, the tests that could change the guideline's next choice. The first
    line waits for results that could rule that choice out; where these come from sequencing, ctDNA is asked for as well, since
    it is back sooner. At progression, where sequencing could change the choice, ctDNA is asked for and the treatment goes on for
    one more cycle.
    ``"never"``: no tests.
    ``"everything"``: every test, ctDNA and an MRI at every visit, and a visit every cycle; it waits likewise.

    The first two have CTs at the card's usual interval, and see patients who are stable without infusions at scans only.

    Args:
        card: the card.
        testing: one of the three.
    """

    PATIENCE = 1  # cycles without treatment in which results are awaited; a second one costs more than it brings
    SETTLED = 4  # cycles of a regimen after which a patient can be stable
    TOLERATED = 2.0  # grade of toxicity below which a patient can be stable

    def __init__(self, card: Card, testing: Testing = "indicated") -> None:
        if testing not in get_args(Testing):
            raise AgentError(f"testing is {testing!r}, expected one of {', '.join(get_args(Testing))}")
        self._testing, self._card, self._scenario = testing, card, scenario(card)
        self._parts = action_parts(card)
        self._guideline, self._knowledge, self._indications = GuidelineAgent(card), Knowledge(card), Indications(card)
        self._added = {field.name: field for field in observation_fields(self._scenario)[len(self._scenario.fields) :]}
        self._at_home = np.array([regimen.route in ("oral", "none") for regimen in card.regimens])
        self._sequencing = np.array(self._scenario.repeated)[:, None]  # (T, 1)
        start = sum(self._parts.values()) - self._parts["next_visit"] - self._parts["regimen"]
        self._regimens = slice(start, start + self._parts["regimen"])

    def act(self, observation: Observations, mask: Masks) -> NDArray[np.int64]:
        """(n, parts) actions; ``observation`` (n, F) and ``mask`` (n, choices of all parts) are the workflow's."""
        known, can = self._knowledge(observation), mask[:, self._regimens]
        orders: Orders = {name: np.zeros(len(observation), np.int64) for name in self._parts}
        orders["regimen"] = self._guideline.act(observation, can)
        if self._testing != "never":
            first = np.flatnonzero(known["line"] == 0)
            self._before_first_line(first, observation[first], can[first], orders)
            on_treatment = (known["line"] > 0) & (self._current(known) != self._scenario.supportive)
            failed = np.flatnonzero(on_treatment & (known["progressed"] > 0.5))
            self._at_progression(failed, observation[failed], can[failed], orders)
        if self._testing == "everything":
            orders.update({name: np.ones_like(orders[name]) for name in (*self._scenario.tests, "ctdna")})
            orders["imaging"][:] = IMAGING.index("MRI")
        else:
            self._follow(known, orders)
        return np.stack([orders[name] for name in self._parts], 1)

    def _before_first_line(self, rows: NDArray[np.intp], observation: Observations, can: Masks, orders: Orders) -> None:
        """Order what could change the choice for patients ``rows``, and wait for what could rule it out."""
        if not len(rows):
            return
        known = self._knowledge(observation)
        self._order(rows, observation, self._indications.helpful(known, can), orders)
        patient = np.rint(known["cycle"]) < self.PATIENCE
        decisive = self._indications.ruling_out(known, can) & patient
        orders["ctdna"][rows] = (decisive & self._sequencing).any(0)
        orders["regimen"][rows] = np.where(decisive.any(0), self._scenario.holiday, orders["regimen"][rows])

    def _at_progression(self, rows: NDArray[np.intp], observation: Observations, can: Masks, orders: Orders) -> None:
        """Order what could change the choice for patients ``rows``, and go on until ctDNA is back."""
        if not len(rows):
            return
        known = self._knowledge(observation)
        helpful = self._indications.helpful(known, can)
        self._order(rows, observation, helpful, orders)
        current = self._current(known)
        wanted = (helpful & self._sequencing).any(0) | self._indications.resistance(known, can)
        wanted &= can[np.arange(len(rows)), current] & (self._raw(observation, "cycles_since_ctdna") > 0.5)
        orders["ctdna"][rows] = wanted
        orders["regimen"][rows] = np.where(wanted, current, orders["regimen"][rows])

    def _order(self, rows: NDArray[np.intp], observation: Observations, tests: NDArray[np.bool_], orders: Orders) -> None:
        for name, wanted in zip(self._scenario.tests, tests, strict=True):
            orders[name][rows] = wanted & (self._raw(observation, f"pending_{name}") < 0.5)

    def _follow(self, known: Facts, orders: Orders) -> None:
        """Scans and visits."""
        regimen, usual = orders["regimen"], self._card.observation.scan_every_cycles
        given = np.stack([known.raw(f"prior_{name}") for name in self._scenario.regimens], 1)
        worst = np.stack([known.raw(f"toxicity_{name}") for name in self._scenario.organs]).max(0)
        stable = (
            self._at_home[regimen] & (regimen == self._current(known)) & (given[np.arange(len(regimen)), regimen] >= self.SETTLED)
        )
        stable &= (known["line"] > 0) & (known["progressed"] < 0.5) & (worst < self.TOLERATED) & (known["held"] < 0.5)
        since = np.rint(known["cycles_since_scan"]).astype(np.int64)
        cycles = np.where(stable, np.clip(usual - since, 1, self._parts["next_visit"]), 1)
        orders["next_visit"] = cycles - 1
        scan = (since + cycles >= usual) & (regimen != self._scenario.supportive)
        orders["imaging"] = scan * IMAGING.index("CT")

    def _current(self, known: Facts) -> NDArray[np.intp]:
        """(n,) the regimen of the last cycle; the first of the card before there was one."""
        return np.stack([known.raw(f"regimen_{name}") for name in self._scenario.regimens], 1).argmax(1)

    def _raw(self, observation: Observations, name: str) -> NDArray[np.float32]:
        """(n,) a field that the workflow adds, in its unit."""
        field = self._added[name]
        values: NDArray[np.float32] = field.low + (field.high - field.low) * observation[:, field.index]
        return values


class Indications:
    """What tests could mean for the guideline's next choice, by supposing every result, one at a time.

    Methods take n patients: what is ``known`` of them, and which regimens they ``can`` be given (n, R).

    Args:
        card: the card.
    """

    def __init__(self, card: Card) -> None:
        self._scenario, self._guideline = scenario(card), Guideline(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        self._results = {test: tuple(results(card, test)) for test in self._scenario.tests}
        self._markers = tuple({f"marker_{clone}": 1.0} for clone in self._scenario.clones[1:])

    def helpful(self, known: Facts, can: Masks) -> NDArray[np.bool_]:
        """(T, n) tests without a result, of which some result would change the choice."""
        now = self._choice(known, can, {})
        return self._tests(known, lambda result: self._choice(known, can, result) != now)

    def ruling_out(self, known: Facts, can: Masks) -> NDArray[np.bool_]:
        """(T, n) tests without a result, of which some result would rule the choice out."""
        chosen = self._guideline.regimen[:, None] == self._choice(known, can, {})
        recommends = self._guideline.recommends

        def ruled_out(result: Result) -> NDArray[np.bool_]:
            about = self._guideline.matches(_suppose(known, result, len(can))) & chosen
            found: NDArray[np.bool_] = about[~recommends].any(0) | ~about[recommends].any(0)
            return found

        return self._tests(known, ruled_out)

    def resistance(self, known: Facts, can: Masks) -> NDArray[np.bool_]:
        """(n,) whether finding a resistant clone would change the choice."""
        now = self._choice(known, can, {})
        return np.logical_or.reduce([self._choice(known, can, marker) != now for marker in self._markers])

    def _tests(self, known: Facts, judge: Callable[[Result], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        rows = []
        for test, found in self._results.items():
            unknown = known[f"known_{test}"] < 0.5
            rows.append(unknown & np.logical_or.reduce([judge(result) for result in found]) if unknown.any() else unknown)
        return np.stack(rows)

    def _choice(self, known: Facts, can: Masks, result: Result) -> NDArray[np.int64]:
        had = np.stack([known.raw(f"prior_{name}") > 0.5 for name in self._scenario.regimens], 1)
        supposed = _suppose(known, result, len(can))
        return self._guideline.first_choice(supposed, can & ~(had & self._active), self._scenario.supportive)


def _suppose(known: Facts, result: Result, n: int) -> Any:
    return ChainMap({name: np.full(n, value) for name, value in result.items()}, known)  # type: ignore[arg-type] # read only


def results(card: Card, test: str) -> Iterator[Result]:
    """What ``test`` could show: nothing found, or one thing at a time."""
    shown = [variable for variable in card.variables if variable.test == test and variable.observed]
    nothing: dict[str, float] = {f"known_{test}": 1.0}
    for variable in shown:
        nothing.update(dict.fromkeys(columns_of(variable), 0.0))
        if isinstance(variable, Categorical):
            nothing[variable.name] = -1
    yield nothing
    for variable in shown:
        if not isinstance(variable, Categorical):
            yield {**nothing, variable.name: column_range(variable)[1]}
            continue
        for code, column in enumerate(columns_of(variable)):
            yield {**nothing, variable.name: code, column: 1.0}
