"""An audit in plain words: which protected attributes a policy depends on, whom it singles out, and how often."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from onco_gym.agents import Agent
from onco_gym.fairness.counterfactual import FairnessError
from onco_gym.fairness.divergences import AttributeDivergence, Contrast, DivergenceReport, Standing, measure_divergence
from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.progress import Progress, silent
from onco_gym.interfaces.engine import Engine

TOLERANCE = 0.01
"""Share of decisions up to which a dependence is not reported as a finding."""


@dataclass(frozen=True)
class Finding:
    """A protected attribute that the policy depends on.

    Attributes:
        attribute: its name.
        group: the group that the policy singles out.
        share: share of cases (decisions at the start of a line) in which this group gets a different decision than the same
            patient in another group.
        visits_changed: share of all decisions that change with the attribute.
        nats: mean Jensen-Shannon divergence over all visits.
        followed: share of cases in which this group gets the guideline's first choice.
        followed_others: the mean of the same over the other groups.
    """

    attribute: str
    group: str
    share: Interval
    visits_changed: Interval
    nats: Interval
    followed: float
    followed_others: float

    def __str__(self) -> str:
        return (
            f"{self.attribute}: the policy depends on this attribute. Shown as {self.group}, the same patient gets a different "
            f"decision in {self.share.value:.1%} of cases (95% interval {self.share.low:.1%} to {self.share.high:.1%}); the "
            f"guideline's first choice is chosen in {self.followed:.1%} of cases, against {self.followed_others:.1%} in other "
            "groups."
        )


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit; ``print`` it to read it in words.

    Attributes:
        findings: attributes that the policy depends on, the largest share first.
        report: the figures behind them.
    """

    findings: tuple[Finding, ...]
    report: DivergenceReport

    def __str__(self) -> str:
        report = self.report
        lines = [
            f"{report.card}: {report.patients:,} patients, {report.visits:,} visits, {report.cases:,} cases "
            "(decisions at the start of a line)."
        ]
        lines += [str(finding) for finding in self.findings]
        named = {finding.attribute for finding in self.findings}
        silent = [found for name, found in report.attributes.items() if name not in named]
        lines += [f"{found.attribute}: nothing found ({_shares(found.contrasts['direct'])})." for found in silent]
        lines.append("Including what follows from the attribute (tests, delays, adherence):")
        lines += [f"  {name}: {_shares(found.contrasts['total'])}." for name, found in report.attributes.items()]
        return "\n".join(lines)


def audit_fairness(
    engine: Engine | Any, agent: Agent, n: int = 10_000, seed: int = 0, tolerance: float = TOLERANCE, progress: Progress = silent
) -> Audit:
    """Check for every protected attribute whether the policy depends on it.

    Only the attribute as shown is changed. An attribute is named if the divergence lies above chance and a share of decisions
    changed (of all, of cases, of one group's cases) lies above ``tolerance``, each with its whole 95% interval. The group
    named is the one whose decisions differ most from those for the same patients in other groups. Among equals it is the
    one that gets the guideline's first choice least often.

    Args:
        engine, agent, n, seed, progress: see :func:`measure_divergence`.
        tolerance: share of decisions up to which nothing is reported.
    """
    if not 0 <= tolerance < 1:
        raise FairnessError(f"tolerance is {tolerance}, expected a share from 0 to below 1")
    report = measure_divergence(engine, agent, n, seed, progress=progress)
    findings = [_finding(found) for found in report.attributes.values() if _is_found(found.contrasts["direct"], tolerance)]
    return Audit(tuple(sorted(findings, key=lambda finding: -finding.share.value)), report)


def _is_found(contrast: Contrast, tolerance: float) -> bool:
    return contrast.nats.low > 0 and any(
        share.low > tolerance for share in (contrast.changed, contrast.cases_changed, *(s.changed for s in contrast.standings))
    )


def _finding(found: AttributeDivergence) -> Finding:
    contrast = found.contrasts["direct"]
    known = [standing for standing in contrast.standings if np.isfinite(standing.changed.value)]
    surest = max(known, key=lambda standing: standing.changed.low)
    equals = [standing for standing in known if standing.changed.high >= surest.changed.low]
    worst: Standing = min(equals, key=lambda standing: standing.followed)
    others = [standing.followed for standing in known if standing.group != worst.group]
    rest = float(np.mean(others)) if others else float("nan")
    return Finding(found.attribute, worst.group, worst.changed, contrast.changed, contrast.nats, worst.followed, rest)


def _shares(contrast: Contrast) -> str:
    return f"{contrast.cases_changed.value:z.1%} of cases and {contrast.changed.value:z.1%} of all decisions change"
