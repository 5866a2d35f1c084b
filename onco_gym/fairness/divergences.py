"""Exact fairness: ask the policy again about every patient's twins."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Agent, rollout
from onco_gym.fairness.asking import Policy
from onco_gym.fairness.comparison import Compared, Comparison, changed, compare, divergence
from onco_gym.fairness.counterfactual import EFFECTS, Effect, FairnessError, checked_effect, chosen_attributes, engine_of
from onco_gym.fairness.groups import WITHIN, GroupMetrics, group_metrics
from onco_gym.fairness.need import Guide
from onco_gym.foundation.intervals import Interval, mean_by_patient
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine


@dataclass(frozen=True)
class Pair:
    """Patients of one group compared with their twins in another.

    Attributes:
        group: the patients' group.
        other: the twins' group.
        visits, cases: number of states compared, and of those in which a line was due to start.
        nats: mean Jensen-Shannon divergence over visits, minus chance.
        changed: share of decisions changed, over cases.
    """

    group: str
    other: str
    visits: int
    cases: int
    nats: Interval
    changed: Interval


@dataclass(frozen=True)
class Standing:
    """How the policy would treat all patients if they belonged to one group.

    Attributes:
        group: its name.
        changed: share of cases in which this group gets a different decision than the same patient in another group.
        followed: share of cases in which the guideline's first choice is chosen.
    """

    group: str
    changed: Interval
    followed: float


@dataclass(frozen=True, eq=False)
class Contrast:
    """How far a policy's answers for patients and their twins are apart, for one attribute and effect. H steps, n patients.

    Attributes:
        effect: what else changed with the attribute.
        nats: mean Jensen-Shannon divergence over visits and other groups, minus chance; natural logarithm, at most log 2.
        chance: what chance alone would show, in nats. It is subtracted from ``nats``, and 0 for a policy with probabilities.
        changed: share of decisions changed (total variation), over all visits.
        cases_changed: the same over cases, the decisions at the start of a line.
        by_step: (H,) mean divergence by step of the episode, minus chance; NaN where nobody was left.
        by_state: (H, n) divergence at each visited state, mean over the other groups, including chance; NaN elsewhere.
        pairs: the same for each pair of groups.
        standings: one for each group.
        lost: comparisons that were not made because the twin had died.
    """

    effect: Effect
    nats: Interval
    chance: float
    changed: Interval
    cases_changed: Interval
    by_step: NDArray[np.float64]
    by_state: NDArray[np.float32]
    pairs: tuple[Pair, ...]
    standings: tuple[Standing, ...]
    lost: int


@dataclass(frozen=True, eq=False)
class AttributeDivergence:
    """The divergence for one protected attribute.

    Attributes:
        attribute: its name.
        contrasts: one for each effect that was asked for.
        groups: how the groups were treated and fared, among patients of equal need.
    """

    attribute: str
    contrasts: dict[Effect, Contrast]
    groups: tuple[GroupMetrics, ...]


@dataclass(frozen=True, eq=False)
class DivergenceReport:
    """The divergences of a policy; ``print`` it for tables.

    Attributes:
        card: id of the card.
        patients, visits, cases: how many were examined.
        exact: whether the policy gave probabilities.
        attributes: divergences by attribute.
    """

    card: str
    patients: int
    visits: int
    cases: int
    exact: bool
    attributes: dict[str, AttributeDivergence]

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """One row per attribute and effect: attribute, effect, nats, chance, share of visits and share of cases changed."""
        return [
            (name, effect, f"{r.nats:z.4f}", f"{r.chance:.4f}", f"{r.changed:z.1%}", f"{r.cases_changed:z.1%}")
            for name, found in self.attributes.items()
            for effect, r in found.contrasts.items()
        ]

    def group_rows(self) -> list[tuple[str, str, str, str, str, str, str]]:
        """One row per group: attribute, group, patients, treated, weeks until then, quality-adjusted life years, weeks lived."""
        return [
            (name, g.group, f"{g.patients}", f"{g.treated:.1%}", f"{g.delay_weeks:.1f}", f"{g.qalys:.2f}", f"{g.weeks:.0f}")
            for name, found in self.attributes.items()
            for g in found.groups
        ]

    def __str__(self) -> str:
        head = f"{self.card}: {self.patients:,} patients, {self.visits:,} visits, {self.cases:,} of them with a line due to start"
        divergences = [("attribute", "effect", "nats", "by chance", "visits changed", "cases changed"), *self.rows()]
        groups = [("attribute", "group", "patients", "treated", "weeks until then", "QALYs", "weeks lived"), *self.group_rows()]
        return "\n\n".join([head, _table(divergences), "Groups, among equal need:", _table(groups)])


def measure_divergence(
    engine: Engine | Any,
    agent: Agent,
    n: int = 1000,
    seed: int = 0,
    attributes: Collection[str] | None = None,
    effect: Effect | None = None,
    within: int = WITHIN,
    progress: Progress = silent,
) -> DivergenceReport:
    """Measure how differently the policy decides for the same patient in another group.

    This rolls the agent out on ``n`` patients, replays them and their twins in every other group of each attribute under the
    same decisions, and asks the agent about all of them at every visit.

    Args:
        engine: an engine, or an environment of any kind.
        agent: see :class:`onco_gym.agents.Agent`. If it has ``probabilities``, its distributions are compared. If not, it is
            asked twice each time, and what chance alone would show is subtracted. It must not remember patients between calls.
        n: number of patients. Patient ``i`` is the same as in ``rollout(engine, agent, n, seed)``.
        seed: the same seed gives the same patients and the same chance.
        attributes: by default all protected ones.
        effect: ``"direct"`` or ``"total"``, see :data:`onco_gym.fairness.Effect`; by default both.
        within: treatment that begins within this many cycles counts as in time.
        progress: called after every step.

    Raises:
        FairnessError: for unknown attributes or effects.
        AgentError: for an agent that gives invalid answers.
    """
    compiled = engine_of(engine)
    names = chosen_attributes(compiled.card, attributes)
    effects = EFFECTS if effect is None else (checked_effect(effect),)
    if within < 0:
        raise FairnessError(f"within is {within}, expected a number of cycles from 0")
    policy, episodes = Policy(compiled, agent), rollout(compiled, agent, n, seed)
    origin = episodes.origin
    levels = dict(compiled.scenario.groups)
    contrasts: dict[str, dict[Effect, Contrast]] = {name: {} for name in names}
    for kind in effects:
        walk = compare(compiled, policy, episodes, names, kind, progress)
        for name in names:
            contrasts[name][kind] = _contrast(walk, kind, name, levels[name], len(episodes.actions))
    need = Guide(compiled.card).at_start(compiled, origin)
    first_dose = np.maximum(walk.start, np.asarray(compiled.patients(origin.row).delay))
    metrics = {
        name: group_metrics(compiled, episodes, levels[name], walk.groups[name], need, first_dose, within) for name in names
    }
    found = {name: AttributeDivergence(name, contrasts[name], metrics[name]) for name in names}
    return DivergenceReport(compiled.card.id, n, walk.visits, len(walk.patient), policy.exact, found)


def _contrast(walk: Comparison, effect: Effect, name: str, levels: tuple[str, ...], steps: int) -> Contrast:
    every, group = walk.twins[name], walk.groups[name]
    cases, numbers = every[every["case"]], range(len(levels))
    pairs = [
        _pair(every[(every["group"] == one) & (every["value"] == other)], levels[one], levels[other])
        for one, other in itertools.permutations(numbers, 2)
    ]
    excess = (every["nats"] - every["chance"]).astype(float)
    state, states = every["step"].astype(np.int64) * len(group) + every["patient"], steps * len(group)
    with np.errstate(invalid="ignore"):
        by_step = np.bincount(every["step"], excess, steps) / np.bincount(every["step"], minlength=steps)
        by_state = np.bincount(state, every["nats"], states) / np.bincount(state, minlength=states)
    return Contrast(
        effect=effect,
        nats=divergence(every),
        chance=float(every["chance"].mean()) if len(every) else 0.0,
        changed=changed(every),
        cases_changed=changed(cases),
        by_step=by_step,
        by_state=by_state.astype(np.float32).reshape(steps, len(group)),
        pairs=tuple(pairs),
        standings=tuple(_standing(walk, cases, levels[number], number, group) for number in numbers),
        lost=walk.lost[name],
    )


def _pair(some: Compared, group: str, other: str) -> Pair:
    cases = some[some["case"]]
    return Pair(group, other, len(some), len(cases), divergence(some), changed(cases))


def _standing(walk: Comparison, cases: Compared, name: str, number: int, group: NDArray[np.int64]) -> Standing:
    involved = cases[(cases["group"] == number) | (cases["value"] == number)]
    own, twins = group[walk.patient] == number, cases[(cases["value"] == number) & np.isfinite(cases["followed"])]
    followed = np.concatenate([walk.followed[own], twins["followed"]])
    patients = np.concatenate([walk.patient[own], twins["patient"]])
    return Standing(name, changed(involved, number), mean_by_patient(patients, followed).value)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
