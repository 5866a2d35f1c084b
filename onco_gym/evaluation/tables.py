"""The figures of evaluations in words, for the terminal and for the page."""

import math
from collections.abc import Callable, Iterable, Sequence

from onco_gym.evaluation.comparing import HeadToHead
from onco_gym.evaluation.figures import Evaluation, improvement
from onco_gym.evaluation.rollouts import RolloutSummary
from onco_gym.foundation.intervals import Interval, mean

MISSING = "-"
Form = Callable[[float], str]


def shown(interval: Interval | None, form: Form) -> str:
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


def compared(one: Evaluation, other: Evaluation) -> str:
    """Two sentences: which of two agents does better on the same patients, in return and in quality-adjusted life years."""
    gain = mean(one.runs.returns - other.runs.returns)
    life = mean(one.runs.terms["outcome"] - other.runs.terms["outcome"])
    does = "does better than" if gain.low > 0 else "does worse than" if gain.high < 0 else "cannot be told apart from"
    unseen = ", whom no training met" if one.stamp.split == "test" else ""
    return (
        f"{one.agent} {does} {other.agent}: its mean return is {abs(gain.value):.3f} {'higher' if gain.value >= 0 else 'lower'} "
        f"(95% interval of the difference {gain.low:+.3f} to {gain.high:+.3f}), on the same {one.episodes:,} patients{unseen}. "
        f"In quality-adjusted life years the difference is {life.value:+.3f} ({life.low:+.3f} to {life.high:+.3f})."
    )


def rows(evaluations: Sequence[Evaluation]) -> list[tuple[str, ...]]:
    """One row per figure: its name and unit, then its value in each evaluation."""
    first = evaluations[0]
    one, two, percent, whole = "{:.1f}".format, "{:.2f}".format, "{:.1%}".format, "{:,.0f}".format

    def row(title: str, name: str, form: Form) -> tuple[str, ...]:
        return (title, *(shown(getattr(evaluation, name), form) for evaluation in evaluations))

    def rows_of(title: str, name: str, keys: Iterable[str], form: Form) -> list[tuple[str, ...]]:
        return [(title.format(key), *(shown(getattr(e, name)[key], form) for e in evaluations)) for key in keys]

    result = [
        row(f"score (0 random, 100 {first.reference.name})", "score", one),
        row("return, mean", "returns", two),
        row("return, interquartile mean", "iqm", two),
        row("quality-adjusted life years", "qalys", two),
        row("median survival, months", "median_survival", one),
        *rows_of("{}-year survival", "survival", first.survival, percent),
        row("decisions within the guideline", "concordance", percent),
        row("any grade 3+ event", "grade3", percent),
        row("carbon, kg CO2e per patient", "carbon_kg", whole),
    ]
    if any(evaluation.cost_usd.value > 0 for evaluation in evaluations):
        result.append(row("tests, USD per patient", "cost_usd", whole))
    result += rows_of("term {}", "terms", ("guideline", "fairness"), "{:.3f}".format)
    if len(evaluations) > 1:
        others = [shown(improvement(first, other), two) for other in evaluations[1:]]
        result.append((f"chance that {first.agent} does better", MISSING, *others))
    result += [
        ("microseconds per decision, one patient", *(whole(evaluation.timing.one_us) for evaluation in evaluations)),
        ("microseconds per decision, in a batch", *(two(evaluation.timing.batch_us) for evaluation in evaluations)),
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


def comparison_rows(found: HeadToHead) -> list[tuple[str, str]]:
    """One row per figure of a comparison: its name and unit, and its value."""
    return [
        ("return", f"{found.gain:+.3f}"),
        ("chance that a patient does better", f"{found.improvement:.1%}"),
        ("quality-adjusted life years", f"{found.qalys:+.3f}"),
        ("weeks lived", f"{found.weeks:+.1f}"),
        ("carbon, kg CO2e per patient", f"{found.carbon_kg:+,.0f}"),
        ("patients who are treated alike", f"{found.alike:.1%}"),
    ]


def parting_rows(found: HeadToHead, most: int) -> list[tuple[str, ...]]:
    """One row for each of the ``most`` frequent first differences: line, both regimens, patients, and what becomes of them."""
    return [
        (f"{one.line}", one.first, one.second, f"{one.patients:,}", f"{one.gain:+.3f}", f"{one.weeks:+.1f}")
        for one in found.partings[:most]
    ]


def subgroup_rows(found: HeadToHead) -> list[tuple[str, str, str]]:
    """One row per subgroup: its name, its patients, and the difference in return."""
    return [(one.name, f"{one.patients:,}", f"{one.gain:+.3f}") for one in found.subgroups]
