"""Scripted agents for the workflow: the guideline's regimens, and three ways of testing."""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, ObservationReader, Observations, ObservedFacts
from onco_gym.agents.protocol import AgentError
from onco_gym.agents.simple import GuidelineAgent
from onco_gym.cards import Card
from onco_gym.cards.scenarios import column_range, columns_of, scenario
from onco_gym.cards.schema import Categorical
from onco_gym.interfaces.workflow import IMAGING, action_parts, observation_fields
from onco_gym.knowledge import Guideline

Testing = Literal["indicated", "never", "everything"]
Result = Mapping[str, float]
"""What a test could show, by the names that guideline rules use."""
Orders = dict[str, NDArray[np.int64]]
"""Parts of an action by name, each (n,)."""


class WorkflowAgent:
    """Gives the regimens of :class:`GuidelineAgent`, and orders tests in one of three ways.

    ``"indicated"``: the agent orders, before the first line and at progression, the tests that could change the guideline's next
    choice. The first line waits for results that could rule that choice out. If these come from sequencing, the agent also
    orders ctDNA, which is back sooner. At progression, if sequencing could change the choice, the agent orders ctDNA and
    continues the treatment for one more cycle.
    ``"never"``: no tests.
    ``"everything"``: every test, ctDNA and an MRI at every visit, and a visit every cycle. The agent waits in the same way.

    The first two order CTs at the card's usual interval, and see stable patients without infusions only at scans.

    Args:
        card: the card.
        testing: one of the three ways.
    """

    PATIENCE = 1  # cycles without treatment to wait for results; a second one costs more than it gains
    SETTLED = 4  # cycles of a regimen after which a patient can be stable
    TOLERATED = 2.0  # grade of toxicity below which a patient can be stable

    def __init__(self, card: Card, testing: Testing = "indicated") -> None:
        if testing not in get_args(Testing):
            raise AgentError(f"testing is {testing!r}, expected one of {', '.join(get_args(Testing))}")
        self._testing, self._card, self._scenario = testing, card, scenario(card)
        self._parts = action_parts(card)
        self._guideline, self._indications = GuidelineAgent(card), Indications(card)
        self._knowledge = ObservationReader(card, observation_fields(self._scenario))
        self._at_home = np.array([regimen.route in ("oral", "none") for regimen in card.regimens])
        self._sequencing = np.array(self._scenario.repeated)[:, None]  # (T, 1)
        start = sum(self._parts.values()) - self._parts["next_visit"] - self._parts["regimen"]
        self._regimens = slice(start, start + self._parts["regimen"])

    def act(self, observation: Observations, mask: Masks) -> NDArray[np.int64]:
        """(n, parts) actions; ``observation`` (n, F) and ``mask`` (n, choices of all parts) come from the workflow."""
        known, can = self._knowledge(observation), mask[:, self._regimens]
        orders: Orders = {name: np.zeros(len(observation), np.int64) for name in self._parts}
        orders["regimen"] = self._guideline.act(observation, can)
        if self._testing != "never":
            first = np.flatnonzero((known["line"] == 0) & (np.rint(known["cycle"]) <= self.PATIENCE))
            self._before_first_line(first, observation[first], can[first], orders)
            treated = (known["line"] > 0) & (known.current != self._scenario.supportive)
            failed = np.flatnonzero(treated & (known["progressed"] > 0.5))
            self._at_progression(failed, observation[failed], can[failed], orders)
        if self._testing == "everything":
            orders.update({name: np.ones_like(orders[name]) for name in (*self._scenario.tests, "ctdna")})
            orders["imaging"][:] = IMAGING.index("MRI")
        else:
            self._follow(known, orders)
        return np.stack([orders[name] for name in self._parts], 1)

    def _before_first_line(self, rows: NDArray[np.intp], observation: Observations, can: Masks, orders: Orders) -> None:
        """Order tests that could change the choice for patients ``rows``, and wait for those that could rule it out."""
        if not len(rows):
            return
        helpful, decisive, _ = self._indications(observation, can)
        self._order(rows, observation, helpful, orders)
        decisive &= np.rint(self._knowledge(observation)["cycle"]) < self.PATIENCE
        orders["ctdna"][rows] = (decisive & self._sequencing).any(0)
        orders["regimen"][rows] = np.where(decisive.any(0), self._scenario.holiday, orders["regimen"][rows])

    def _at_progression(self, rows: NDArray[np.intp], observation: Observations, can: Masks, orders: Orders) -> None:
        """Order tests that could change the choice for patients ``rows``, and continue treatment until ctDNA is back."""
        if not len(rows):
            return
        helpful, _, resistance = self._indications(observation, can)
        self._order(rows, observation, helpful, orders)
        known = self._knowledge(observation)
        wanted = (helpful & self._sequencing).any(0) | resistance
        wanted &= can[np.arange(len(rows)), known.current] & (known.raw("cycles_since_ctdna") > 0.5)
        orders["ctdna"][rows] = wanted
        orders["regimen"][rows] = np.where(wanted, known.current, orders["regimen"][rows])

    def _order(self, rows: NDArray[np.intp], observation: Observations, tests: NDArray[np.bool_], orders: Orders) -> None:
        known = self._knowledge(observation)
        for name, wanted in zip(self._scenario.tests, tests, strict=True):
            orders[name][rows] = wanted & (known.raw(f"pending_{name}") < 0.5)

    def _follow(self, known: ObservedFacts, orders: Orders) -> None:
        """Order scans and visits."""
        regimen, usual = orders["regimen"], self._card.observation.scan_every_cycles
        worst = np.stack([known.raw(f"toxicity_{name}") for name in self._scenario.organs]).max(0)
        stable = self._at_home[regimen] & (known.cycles[np.arange(len(regimen)), regimen] >= self.SETTLED)
        stable &= (
            (regimen == known.current)
            & (known["line"] > 0)
            & (known["progressed"] < 0.5)
            & (worst < self.TOLERATED)
            & (known["held"] < 0.5)
        )
        since = np.rint(known["cycles_since_scan"]).astype(np.int64)
        cycles = np.where(stable, np.clip(usual - since, 1, self._parts["next_visit"]), 1)
        orders["next_visit"] = cycles - 1
        scan = (since + cycles >= usual) & (regimen != self._scenario.supportive)
        orders["imaging"] = scan * IMAGING.index("CT")


class Indicated(NamedTuple):
    """What tests could mean for the guideline's next choice. n patients, T tests."""

    helpful: NDArray[np.bool_]  # (T, n) there is no result yet, and some result would change the choice
    decisive: NDArray[np.bool_]  # (T, n) there is no result yet, and some result would rule the choice out
    resistance: NDArray[np.bool_]  # (n,) finding a resistant clone would change the choice


class Indications:
    """Asks the guideline what it would choose after each possible result of each test.

    Args:
        card: the card.
    """

    def __init__(self, card: Card) -> None:
        self._scenario, self._guideline, self._knowledge = scenario(card), Guideline(card), ObservationReader(card)
        self._active = np.array([regimen.active for regimen in card.regimens])
        by_test = {test: tuple(results(card, test)) for test in self._scenario.tests}
        clones = [{f"marker_{clone}": 1.0} for clone in self._scenario.clones[1:]]
        self._supposed: list[Result] = [{}, *(result for found in by_test.values() for result in found), *clones]
        self._shows = np.array([-1, *(test for test, found in enumerate(by_test.values()) for _ in found), *[-2] * len(clones)])

    def __call__(self, observation: Observations, can: Masks) -> Indicated:
        """Ask the guideline about n patients.

        Args:
            observation: (n, F); only the plain environment's fields are read.
            can: (n, R) which regimens can be given.
        """
        known, times = self._knowledge(observation), len(self._supposed)
        had = known.cycles > 0.5
        facts = self._suppose(known, observation)  # all at once: the cost grows with the rules, not with the patients
        choices = self._guideline.first_choice(facts, np.tile(can & ~(had & self._active), (times, 1)), self._scenario.supportive)
        now = np.tile(choices[: len(can)], times)
        about = self._guideline.matches(facts) & (self._guideline.regimen[:, None] == now)
        recommends = self._guideline.recommends
        changed = (choices != now).reshape(times, -1)
        ruled_out = (about[~recommends].any(0) | ~about[recommends].any(0)).reshape(times, -1)
        unknown = np.stack([known[f"known_{test}"] < 0.5 for test in self._scenario.tests])
        tests = range(len(unknown))
        return Indicated(
            unknown & np.stack([changed[self._shows == test].any(0) for test in tests]),
            unknown & np.stack([ruled_out[self._shows == test].any(0) for test in tests]),
            changed[self._shows == -2].any(0),
        )

    def _suppose(self, known: ObservedFacts, observation: Observations) -> Any:
        """The facts of all patients, once for each supposed result."""
        n = len(observation)
        names = {name for result in self._supposed for name in result}
        columns = {
            name: np.concatenate([np.full(n, result[name]) if name in result else known[name] for result in self._supposed])
            for name in names
        }
        return ChainMap(columns, self._knowledge(np.tile(observation, (len(self._supposed), 1))))  # type: ignore[arg-type] # read only


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
