"""Visits: what is known of a patient at each cycle. A journey is made from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onco_gym.cards import Card
from onco_gym.interfaces.render import Snapshot
from onco_gym.journeys.events import JourneyError


@dataclass(frozen=True)
class Visit:
    """A patient at one visit, the start of a cycle. Names are the card's.

    Attributes:
        cycle: cycles since the first visit, which is 0.
        given: the regimen of the cycle that ends here; None at the first visit.
        dose: the share of its dose that was given, 0..1; 0 for a held cycle.
        tests: tests with a result by now.
        diameter: mm, the sum of diameters, if there was a scan.
        change: relative change in the sum since the start of the line, if there was a scan.
        progressed: whether the disease has progressed on the current line.
        progressions: progressions found so far; by default one for each line that has progressed.
        severe: the organ class of a grade 3+ event in the cycle, or empty.
        grades: toxicity grade by organ class.
        stopped: whether toxicity stopped the regimen for good in this cycle.
        markers: resistant clones found by now.
        ecog: ECOG performance status.
        alive: false if the patient died before this visit.
        ended: whether follow-up ends here with the patient alive.
    """

    cycle: int
    given: str | None = None
    dose: float = 1.0
    tests: tuple[str, ...] = ()
    diameter: float | None = None
    change: float | None = None
    progressed: bool = False
    progressions: int | None = None
    severe: str = ""
    grades: Mapping[str, float] = field(default_factory=dict)
    stopped: bool = False
    markers: tuple[str, ...] = ()
    ecog: int | None = None
    alive: bool = True
    ended: bool = False


def visits_of(card: Card, history: Sequence[Snapshot], ended: bool) -> Iterator[Visit]:
    """The history that an environment kept, as visits. In cycles between two visits, only the treatment is known."""
    regimens, organs = [regimen.name for regimen in card.regimens], [organ.name for organ in card.organs]
    before, earlier = history[0].state, Visit(0)
    for number, snapshot in enumerate(history):
        state = snapshot.state
        last, alive, scanned = int(state.last[0]), bool(state.alive[0] > 0.5), bool(state.since_scan[0] == 0)
        cycle, cycles = int(state.cycle[0]), max(int(state.cycle[0] - before.cycle[0]), 1)
        received = (float(state.exposure[last, 0]) - float(before.exposure[last, 0])) / cycles
        given = regimens[last] if last >= 0 else None
        dose = min(max(received, 0.0), 1.0) if last >= 0 else 1.0
        known = {"tests": earlier.tests, "markers": earlier.markers, "progressions": earlier.progressions}
        going_on = earlier.progressed and given == earlier.given
        for between in range(cycle - cycles + 1, cycle):
            yield Visit(between, given, dose, progressed=going_on, **known)  # type: ignore[arg-type] # of several types
        earlier = Visit(
            cycle=cycle,
            given=given,
            dose=dose,
            tests=tuple(test.name for test, at in zip(card.tests, state.result_cycle[:, 0], strict=True) if at <= state.cycle[0]),
            diameter=float(state.diameter[0]) if scanned else None,
            change=float(state.diameter[0] / state.baseline[0] - 1) if scanned else None,
            progressed=bool(state.progressed[0] > 0.5),
            progressions=round(float(state.failed[0])),
            severe=organs[int(np.argmax(state.toxicity[:, 0]))] if state.held[0] > 0.5 else "",
            grades={organ: float(grade) for organ, grade in zip(organs, state.toxicity[:, 0], strict=True)},
            stopped=bool(state.barred.sum() > before.barred.sum()),
            markers=tuple(clone.name for clone, found in zip(card.clones[1:], state.marker[:, 0], strict=True) if found > 0.5),
            ecog=int(np.floor(state.performance[0] + 0.5)),
            alive=alive,
            ended=ended and alive and number == len(history) - 1,
        )
        yield earlier
        before = state


def check_visits(card: Card, visits: Sequence[Visit]) -> None:
    """Raise :class:`JourneyError` for the first visit that does not fit the card or the one before it."""
    if not visits:
        raise JourneyError("there are no visits, expected at least the first visit")
    allowed = {
        "regimen": {regimen.name for regimen in card.regimens},
        "test": {test.name for test in card.tests},
        "organ class": {organ.name for organ in card.organs},
        "clone": {clone.name for clone in card.clones[1:]},
    }
    for number, visit in enumerate(visits):
        where = f"visit {number}"
        if not isinstance(visit, Visit):
            raise JourneyError(f"{where} is {type(visit).__name__}, expected a Visit")
        if visit.cycle != number:
            raise JourneyError(f"{where}: cycle is {visit.cycle!r}, expected every cycle once, from 0")
        if (visit.given is None) != (number == 0):
            raise JourneyError(f"{where}: given is {visit.given!r}, expected None at the first visit and a regimen afterwards")
        if not isinstance(visit.dose, int | float) or not 0 <= visit.dose <= 1:
            raise JourneyError(f"{where}: dose is {visit.dose!r}, expected a share in 0..1")
        if number and not visits[number - 1].alive:
            raise JourneyError(f"{where} follows death at cycle {number - 1}, expected no more visits")
        named = [("test", name) for name in visit.tests] + [("clone", name) for name in visit.markers]
        named += [("organ class", name) for name in (visit.severe, *visit.grades) if name]
        named += [("regimen", visit.given)] if visit.given is not None else []
        for what, name in named:
            if name not in allowed[what]:
                raise JourneyError(f"{where} names {what} {name!r}, expected one of {', '.join(sorted(allowed[what]))}")
