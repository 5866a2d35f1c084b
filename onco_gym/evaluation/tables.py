"""The figures of evaluations in words, for the terminal and for the page."""

import math
from collections.abc import Callable, Sequence

from onco_gym.evaluation.figures import Evaluation, improvement
from onco_gym.evaluation.rollouts import RolloutSummary
from onco_gym.foundation.intervals import Interval

MISSING = "-"


def shown(interval: Interval | None, form: Callable[[float], str]) -> str:
    """``1.40 (1.32 to 1.48)``; a bound that was not reached is left open."""
    if interval is None:
        return "beyond follow-up"
    if math.isnan(interval.value):
        return MISSING
    if math.isinf(interval.value):
        return "not reached"
    if math.isnan(interval.low):
        return form(interval.value)
    high = form(interval.high) if math.isfinite(interval.high) else "not reached"
    low = form(interval.low) if math.isfinite(interval.low) else MISSING
    return f"{form(interval.value)} ({low} to {high})"


def rows(evaluations: Sequence[Evaluation]) -> list[tuple[str, ...]]:
    """One row per figure: its name and unit, then its value in each evaluation."""
    first = evaluations[0]
    two, percent, whole = "{:.2f}".format, "{:.1%}".format, "{:,.0f}".format

    def row(title: str, cell: Callable[[Evaluation], str]) -> tuple[str, ...]:
        return (title, *(cell(one) for one in evaluations))

    result = [
        row(f"score (0 random, 100 {first.reference.name})", lambda e: shown(e.score, "{:.1f}".format)),
        row("return, mean", lambda e: shown(e.returns, two)),
        row("return, interquartile mean", lambda e: shown(e.iqm, two)),
        row("quality-adjusted life years", lambda e: shown(e.qalys, two)),
        row("median survival, months", lambda e: shown(e.median_survival, "{:.1f}".format)),
        *(row(f"{year}-year survival", lambda e, year=year: shown(e.survival[year], percent)) for year in first.survival),  # type: ignore[misc]
        row("decisions within the guideline", lambda e: shown(e.concordance, percent)),
        row("any grade 3+ event", lambda e: shown(e.grade3, percent)),
        row("carbon, kg CO2e per patient", lambda e: shown(e.carbon_kg, whole)),
    ]
    if any(one.cost_usd.value > 0 for one in evaluations):
        result.append(row("tests, USD per patient", lambda e: shown(e.cost_usd, whole)))
    result += [
        row(f"term {term}", lambda e, term=term: shown(e.terms[term], "{:.3f}".format))  # type: ignore[misc]
        for term in ("guideline", "fairness")
    ]
    if len(evaluations) > 1:
        others = [shown(improvement(first, one), two) if one is not first else MISSING for one in evaluations]
        result.append((f"chance that {first.agent} does better", *others))
    result += [
        row("microseconds per decision, one patient", lambda e: whole(e.timing.one_us)),
        row("microseconds per decision, in a batch", lambda e: two(e.timing.batch_us)),
    ]
    return result


def fairness_rows(evaluation: Evaluation) -> list[tuple[str, str, str, str, str]]:
    """One row per attribute and effect: attribute, effect, nats, share of decisions and of starts of a line that change."""
    if evaluation.fairness is None:
        return []
    return [
        (name, effect, f"{found.nats:z.4f}", f"{found.changed:z.1%}", f"{found.cases_changed:z.1%}")
        for name, effects in evaluation.fairness.attributes.items()
        for effect, found in effects.items()
    ]


def rollout_rows(found: RolloutSummary) -> list[tuple[str, str]]:
    """One row per figure of a rollout: its name and unit, and its value."""
    three, percent, whole = "{:.3f}".format, "{:.1%}".format, "{:,.0f}".format
    months = "{:.1f}".format
    name, apart = max(found.divergence.items(), key=lambda item: item[1].nats - item[1].chance)
    return [
        ("patients", f"{found.episodes:,}, followed for {found.follow_up_months:.0f} months"),
        ("quality-adjusted life years", shown(found.qalys, three)),
        ("return, all four terms", shown(found.returns, three)),
        ("median survival, months", shown(found.median_survival, months)),
        *((f"{year}-year survival", shown(share, percent)) for year, share in found.survival.items()),
        ("first-line response", shown(found.response, percent)),
        ("median time to progression or death, months", shown(found.median_progression, months)),
        ("any grade 3+ event", shown(found.grade3, percent)),
        ("decisions within the guideline", shown(found.concordance, percent)),
        ("contraindicated decisions", shown(found.contraindicated, percent)),
        ("largest divergence between groups", f"{name} {apart.nats:.4f} nats (by chance {apart.chance:.4f})"),
        ("carbon, kg CO2e per patient", shown(found.carbon_kg, whole)),
        *([("tests, USD per patient", shown(found.cost_usd, whole))] if found.cost_usd.value > 0 else []),
        *((f"first cycle: {regimen}", percent(share)) for regimen, share in [*found.first_cycle.items()][:5]),
    ]
