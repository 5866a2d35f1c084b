"""What the journey explorer shows: an agent's decisions on a few public patients, beside the guideline's and the best possible.

Patients are those of the validation split, never those of a season, and the same for all entries.
"""

import functools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from onco_gym.agents import Agent, Episodes, load_agent, play, rollout
from onco_gym.agents.onnxfile import certain, choose
from onco_gym.agents.protocol import remembers
from onco_gym.cards.schema import Derived, Variable
from onco_gym.evaluation.figures import GUIDELINE
from onco_gym.foundation.files import replacing
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.results import from_plain, read_plain, to_plain
from onco_gym.foundation.units import WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.render import raw_values
from onco_gym.interfaces.single import snapshots
from onco_gym.interfaces.stamp import Stamp
from onco_gym.journeys.graph import from_visits
from onco_gym.journeys.visits import Visit, visits_of
from onco_gym.knowledge.panel import VERDICTS
from onco_gym.leaderboard.drugs import drug_classes, short_name
from onco_gym.leaderboard.entries import JOURNEYS
from onco_gym.rewards import TERMS
from onco_gym.verification.course import cases_at, filled
from onco_gym.verification.scoring import optimal
from onco_gym.verification.solver import BRIEF

SPLIT = "validation"
SHOWN = 12
"""Patients whose journeys are shown."""
COHORT = 60
"""Patients whose outcomes are shown."""
Who = Literal["entry", "guideline", "optimum"]
ENTRY: Who = "entry"
USUAL: Who = "guideline"
OPTIMUM: Who = "optimum"


class ExplorationError(ValueError):
    """Journeys that cannot be shown. The message says what was expected."""


@dataclass(frozen=True)
class Treatment:
    """A regimen of the card.

    Attributes:
        name: on the card.
        label: the same, for people to read.
        title: with doses.
        classes: of its drugs.
    """

    name: str
    label: str
    title: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """A decision.

    Attributes:
        week: since the first visit.
        cycles: for how many cycles it was carried out.
        regimen: what was given; an index into the treatments.
        verdict: of the panel; one of :data:`onco_gym.knowledge.panel.VERDICTS`.
        chances: how likely the agent was to choose each regimen; None for one that could not be given. Empty for the optimum.
        terms: what was gained until the next decision, in quality-adjusted life years, by reward term.
    """

    week: float
    cycles: int
    regimen: int
    verdict: str
    chances: tuple[float | None, ...]
    terms: dict[str, float]


@dataclass(frozen=True)
class Scan:
    """A scan: the week, the sum of diameters in mm, and its change since the start of the line as a share."""

    week: float
    mm: float
    change: float


@dataclass(frozen=True)
class Administration:
    """A regimen without interruption: from which week, and the share of each cycle's dose that was given."""

    week: float
    regimen: int
    doses: tuple[float, ...]


@dataclass(frozen=True)
class Happening:
    """An event: in which week, its kind and name in the journey's graph, and in words."""

    week: float
    kind: str
    name: str
    label: str


@dataclass(frozen=True)
class Track:
    """A patient's journey under one decider.

    Attributes:
        who: the decider.
        weeks: lived within follow-up.
        died: whether the patient died within follow-up.
        quality_weeks: quality-adjusted weeks.
        decisions, scans, given, events: in the order of time.
    """

    who: Who
    weeks: float
    died: bool
    quality_weeks: float
    decisions: tuple[Decision, ...]
    scans: tuple[Scan, ...]
    given: tuple[Administration, ...]
    events: tuple[Happening, ...]


@dataclass(frozen=True)
class Explored:
    """A patient whose journeys are shown.

    Attributes:
        number: the seed of its episode.
        facts: what is known at the first visit: name and value, in words.
        tracks: the entry's, the guideline's and the optimum.
    """

    number: int
    facts: tuple[tuple[str, str], ...]
    tracks: tuple[Track, ...]


@dataclass(frozen=True)
class Fate:
    """What became of a patient under the entry.

    Attributes:
        number: the seed of its episode.
        weeks: lived within follow-up.
        died: whether the patient died within follow-up.
        change: best change of the sum of diameters in the first line, as a share.
        progression: week of the first progression; None if there was none.
        spans: (regimen, first cycle, number of cycles) of what was given.
    """

    number: int
    weeks: float
    died: bool
    change: float
    progression: float | None
    spans: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Exploration:
    """Journeys of one entry in one environment.

    Attributes:
        name: of the agent.
        stamp: what they were made with.
        title: of the card.
        cycle_weeks: weeks of a cycle.
        follow_up_weeks: how long patients are followed.
        treatments: the card's regimens.
        patients: a few patients, from those who live longest under the guideline to those who live shortest.
        cohort: more patients, without their decisions.
    """

    name: str
    stamp: Stamp
    title: str
    cycle_weeks: float
    follow_up_weeks: float
    treatments: tuple[Treatment, ...]
    patients: tuple[Explored, ...]
    cohort: tuple[Fate, ...]


def explore(engine: Engine, agent: Agent, name: str, progress: Progress = silent) -> Exploration | None:
    """Let an agent treat public patients, and note what the explorer shows.

    Args:
        engine: the environment, on the validation split. What all entries share is kept with it.
        agent: who decides. How likely its choices were comes from a softmax over the ``scores`` of a policy file, or from
            ``probabilities``; an agent with neither is certain.
        name: what to call it.
        progress: told about every stage.

    Returns:
        The journeys; None if an action is not a regimen.

    Raises:
        ExplorationError: if the engine has other patients: those of a season are secret.
        AgentError: if the agent gives an invalid action.
    """
    if engine.kind.name != "regimen":
        return None
    if engine.split != SPLIT:
        raise ExplorationError(f"the patients are of the split {engine.split!r}, expected {SPLIT!r}")
    progress(f"looking for the best journeys, {engine.id}", 0, 0)
    shared = _shared(engine)
    progress(f"following the journeys of {name}, {engine.id}", 0, 0)
    noting = _Noting(engine, agent)
    episodes = rollout(engine, noting, COHORT, keep_steps=True)
    patients = []
    for place, (number, guideline, best) in enumerate(zip(shared.chosen, shared.guideline, shared.best, strict=True)):
        progress(f"following the journeys of {name}, {engine.id}", place, len(shared.chosen))
        entry = _track(engine, episodes, number, ENTRY, [some[number] for some in noting.noted])
        optimum = max((best, guideline, entry), key=lambda track: track.quality_weeks)
        tracks = (entry, guideline, _as_optimum(optimum))
        patients.append(Explored(number, tuple(_facts(engine, episodes, number)), tracks))
    return Exploration(
        name=name,
        stamp=engine.stamp,
        title=engine.card.title,
        cycle_weeks=engine.card.cycle_weeks,
        follow_up_weeks=engine.horizon * engine.card.cycle_weeks,
        treatments=tuple(
            Treatment(one.name, short_name(one), one.title, drug_classes(engine.card, one)) for one in engine.card.regimens
        ),
        patients=tuple(patients),
        cohort=tuple(_fate(engine, episodes, number) for number in range(COHORT)),
    )


def write_explorations(folder: str | os.PathLike[str], entry: str, explorations: Sequence[Exploration]) -> None:
    """Write the journeys of an entry, by its id, into a board's folder, whole or not at all."""
    path = explorations_file(folder, entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        plain = [to_plain(one) for one in explorations]
        temporary.write_text(json.dumps(plain, separators=(",", ":"), allow_nan=False) + "\n", encoding="utf-8")


def read_explorations(folder: str | os.PathLike[str], entry: str) -> tuple[Exploration, ...]:
    """The journeys of an entry, by its id, in a board's folder; none if it has no file.

    Raises:
        ExplorationError: if the file is damaged.
    """
    path = explorations_file(folder, entry)
    if not path.is_file():
        return ()
    try:
        return from_plain(tuple[Exploration, ...], read_plain(path))
    except ValueError as error:
        raise ExplorationError(f"{path}: {error}") from None


def explorations_file(folder: str | os.PathLike[str], entry: str) -> Path:
    """Where a board's folder keeps the journeys of an entry, by its id."""
    return Path(folder) / JOURNEYS / f"{entry}.json"


class _Noting:
    """An agent whose chances of choosing each regimen are noted at every visit."""

    def __init__(self, engine: Engine, agent: Agent) -> None:
        self._agent, self._parts, self.remembers = agent, tuple(engine.kind.parts.values()), remembers(agent)
        self._scores, self._probabilities = (getattr(agent, name, None) for name in ("scores", "probabilities"))
        self.noted: list[NDArray[Any]] = []

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        if self._scores is not None:  # asked once, because an agent may remember what it is asked
            scores = self._scores(observation)
            self.noted.append(softmax(np.where(mask, scores.astype(np.float64), -np.inf), axis=1))
            return choose(scores, mask, self._parts)
        if self._probabilities is not None:
            self.noted.append(self._probabilities(observation, mask))
            return self._agent.act(observation, mask)
        action = self._agent.act(observation, mask)
        self.noted.append(certain(action, self._parts))
        return action


@dataclass(frozen=True)
class _Shared:
    """What is the same for all entries: the patients, and their journeys under the guideline and the best sequence found."""

    chosen: tuple[int, ...]
    guideline: tuple[Track, ...]
    best: tuple[Track, ...]


@functools.lru_cache(maxsize=8)
def _shared(engine: Engine) -> _Shared:
    noting = _Noting(engine, load_agent(engine, GUIDELINE))
    usual = rollout(engine, noting, COHORT, keep_steps=True)
    order = np.lexsort((np.arange(COHORT), -usual.weeks))
    chosen = [int(order[int((place + 0.5) * COHORT / SHOWN)]) for place in range(SHOWN)]
    origin = usual.origin.take(np.array(chosen))
    begun = filled(engine, usual.by_cycle()[:, chosen])
    plans = optimal(engine, cases_at(engine, origin), mode="hindsight", starts=[begun], effort=BRIEF)
    best = play(engine.deciding("cycles"), _Reading(plans.decisions), origin, keep_steps=True)
    return _Shared(
        tuple(chosen),
        tuple(_track(engine, usual, number, USUAL, [some[number] for some in noting.noted]) for number in chosen),
        tuple(_track(engine, best, place, OPTIMUM, []) for place in range(SHOWN)),
    )


class _Reading:
    """An agent that reads out decisions (H, n), cycle by cycle; what cannot be given becomes a pause."""

    def __init__(self, decisions: NDArray[np.int32]) -> None:
        self._decisions = iter(decisions)

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[Any]:
        return next(self._decisions)


def _track(engine: Engine, episodes: Episodes, i: int, who: Who, chances: Sequence[NDArray[Any]]) -> Track:
    """The journey of patient ``i`` of ``episodes``."""
    visits = _visits(engine, episodes, i)
    graph = from_visits(engine.card, engine.cohort.row(engine.card, int(episodes.origin.row[i])), visits)
    events = [event for _, event in graph.nodes(data=True)]
    names, weeks = engine.scenario.regimens, engine.card.cycle_weeks
    return Track(
        who=who,
        weeks=_short(episodes.weeks[i], 2),
        died=bool(episodes.died[i]),
        quality_weeks=_short(episodes.terms["outcome"][i] * WEEKS_PER_YEAR, 2),
        decisions=tuple(_decisions(engine, episodes, i, chances)),
        scans=tuple(
            Scan(one.cycle * weeks, _short(one.diameter, 1), _short(one.change or 0.0, 3))
            for one in visits
            if one.diameter is not None and one.alive
        ),
        given=tuple(
            Administration(event["week"], names.index(event["name"]), tuple(_short(float(d), 2) for d in event["doses"].split()))
            for event in events
            if event["kind"] == "treatment"
        ),
        events=tuple(
            Happening(event["week"], event["kind"], event["name"], event["label"])
            for event in events
            if event["kind"] in ("test", "biomarker", "toxicity", "outcome")
        ),
    )


def _visits(engine: Engine, episodes: Episodes, i: int) -> list[Visit]:
    given = episodes.by_cycle()[:, i]
    history, ended = snapshots(engine.deciding("cycles"), *episodes.origin.of(i), given[given >= 0].tolist())
    return list(visits_of(engine.card, history, ended))


def _decisions(engine: Engine, episodes: Episodes, i: int, chances: Sequence[NDArray[Any]]) -> Iterator[Decision]:
    """The decisions on patient ``i``. Without chances, decisions for the same regimen in a row count as one."""
    steps, given = episodes.steps, episodes.given[:, i]
    assert steps is not None
    worth = steps.terms[:, :, i] * np.array([engine.weights[name] for name in TERMS])  # (H, terms) quality-adjusted life years
    cycle, at, length = 0, 0, int(steps.lengths[i])
    while at < length:
        end = at + 1
        while not chances and end < length and given[end] == given[at]:
            end += 1
        cycles = int(episodes.cycles[at:end, i].sum())
        allowed = steps.masks[at, i]
        yield Decision(
            week=cycle * engine.card.cycle_weeks,
            cycles=cycles,
            regimen=int(given[at]),
            verdict=VERDICTS[int(episodes.verdicts[at, i])],
            chances=tuple(_short(chance, 4) if can else None for chance, can in zip(chances[at], allowed, strict=True))
            if chances
            else (),
            terms={name: _short(value, 4) for name, value in zip(TERMS, worth[at:end].sum(0), strict=True)},
        )
        cycle, at = cycle + cycles, end


def _as_optimum(track: Track) -> Track:
    """The same journey, as the best that is known."""
    return replace(track, who=OPTIMUM, decisions=tuple(replace(one, chances=()) for one in track.decisions))


def _facts(engine: Engine, episodes: Episodes, i: int) -> Iterator[tuple[str, str]]:
    """What is known of patient ``i`` at the first visit, in words."""
    card = engine.card
    row = engine.cohort.row(card, int(episodes.origin.row[i]))
    known = _visits(engine, episodes, i)[0].tests
    for variable in card.variables:
        if variable.name == card.performance.variable:
            yield "ECOG", f"{row[variable.name]:g}"
        elif variable.observed and not isinstance(variable, Derived) and (variable.test is None or variable.test in known):
            yield _words(variable.name), _value(variable, row[variable.name])
    for test in card.tests:
        if test.name not in known:
            yield test.title, "no result yet"


def _value(variable: Variable, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _words(value)
    return f"{value:.{0 if value >= 10 else 1}f}".removesuffix(".0") + f" {variable.unit}".rstrip()


def _words(name: str) -> str:
    """A name of the card, with genes in capitals."""
    return re.sub(r"\b[a-z]+[0-9]+\b", lambda gene: gene[0].upper(), name.replace("_", " "))


def _fate(engine: Engine, episodes: Episodes, i: int) -> Fate:
    steps = episodes.steps
    assert steps is not None
    given = episodes.given[: int(steps.lengths[i]), i].tolist()
    cycles = episodes.cycles[: len(given), i]
    spans: list[tuple[int, int, int]] = []
    for regimen, first, count in zip(given, (cycles.cumsum() - cycles).tolist(), cycles.tolist(), strict=True):
        if spans and spans[-1][0] == regimen:
            first, count = spans[-1][1], spans.pop()[2] + count
        spans.append((regimen, first, count))
    progressed = episodes.progressed[i] and episodes.progression_weeks[i] < episodes.weeks[i]
    return Fate(
        number=i,
        weeks=_short(episodes.weeks[i], 2),
        died=bool(episodes.died[i]),
        change=_short(_best_change(engine, episodes, i), 3),
        progression=_short(episodes.progression_weeks[i], 2) if progressed else None,
        spans=tuple(spans),
    )


def _best_change(engine: Engine, episodes: Episodes, i: int) -> float:
    """The deepest change in the first line. Where the tumour never shrank, it is the smallest growth that was seen."""
    found, steps = float(episodes.best_change[i]), episodes.steps
    if found < 0 or steps is None:
        return found
    seen = [raw_values(engine.scenario, one) for one in steps.observations[1 : int(steps.lengths[i]) + 1, i]]
    grown = [values["change_from_baseline"] for values in seen if values["line"] < 1.5]
    return max(min(grown, default=0.0), 0.0)


def _short(value: float, digits: int) -> float:
    """A number with few digits, so that files stay small."""
    return round(float(value), digits) + 0.0
