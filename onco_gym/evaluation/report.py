"""A page that shows an evaluation: one HTML file with its pictures inside, readable on light and dark screens."""

import base64
import html
import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from onco_gym.agents import Agent, rollout
from onco_gym.evaluation.figures import GUIDELINE, Evaluation, EvaluationError
from onco_gym.evaluation.tables import MISSING, compared, fairness_rows, rows
from onco_gym.foundation.intervals import Interval
from onco_gym.foundation.pages import COLOURS, INK, NOTE, colour, figure, section, table, write_page
from onco_gym.interfaces.engine import OWN, Engine
from onco_gym.journeys import from_actions
from onco_gym.journeys.picture import timeline


def write_report(
    path: str | os.PathLike[str],
    evaluations: Sequence[Evaluation],
    engine: Engine,
    agent: Agent,
    curve: Sequence[tuple[float, float]] = (),
    title: str | None = None,
) -> None:
    """Write the page, atomically.

    Args:
        path: the HTML file.
        evaluations: evaluations on the same patients, the agent's own first.
        engine: the compiled environment that they were made on; its split does not matter.
        agent: the agent of the first evaluation; it treats three patients once more, for the timelines.
        curve: (steps, mean return) pairs of its training, if it was trained.
        title: by default the disease and the agent.

    Raises:
        EvaluationError: if there is no evaluation, or if they are of different patients.
    """
    if not evaluations:
        raise EvaluationError("a report needs at least one evaluation")
    first = evaluations[0]
    engine = engine if first.stamp.split == OWN else engine.on(first.stamp.split)
    for one in evaluations:
        if (one.stamp, one.episodes, one.seed) != (first.stamp, first.episodes, first.seed):
            raise EvaluationError(f"{one.agent} and {first.agent} were evaluated on different patients, expected the same")
    heading = title or f"{engine.card.title}: {first.agent}"
    parts = [_opening(heading, evaluations, engine)]
    parts.append(section("Figures", table(("", *(one.agent for one in evaluations)), rows(evaluations)), _INTERVALS))
    concordance, carbon = (
        "share of decisions, percent",
        "Carbon per patient, kg CO2e. Patients who live longer are treated longer.",
    )
    figures = [
        _bars(evaluations, "score", "score", "Score, with 95% intervals."),
        figure(lambda axes: _survival(axes, evaluations), "Overall survival, Kaplan-Meier."),
        _bars(evaluations, "concordance", concordance, "Decisions inside the guideline's acceptability region, percent.", 100),
        _bars(evaluations, "carbon_kg", "kg CO2e", carbon),
    ]
    if curve:
        figures.insert(0, figure(lambda axes: _learning(axes, curve), "Mean return while training."))
    parts.append(section("Pictures", f'<div class="pair">{"".join(figures)}</div>'))
    fair = fairness_rows(first)
    if fair:
        head = ("attribute", "effect", "nats", "decisions that change", "starts of a line that change")
        parts.append(section(f"Fairness of {first.agent}", table(head, fair), _TWINS))
    parts.append(_journeys(first, engine, agent))
    body = "\n".join(parts)
    write_page(path, heading, body)


_INTERVALS = (
    "Brackets hold 95% intervals. They cover chance among patients, but not the errors of the simulator itself. Time was "
    "measured on the machine of the run and is not reproducible."
)
_TWINS = (
    "The agent is asked again about every patient's twin, who differs in one protected attribute: either only as shown to the "
    "agent (direct), or with everything that follows from it, such as tests and delays (total). Nats are the Jensen-Shannon "
    "divergence, less chance."
)


def _opening(heading: str, evaluations: Sequence[Evaluation], engine: Engine) -> str:
    first = evaluations[0]
    names = ", ".join(one.agent for one in evaluations)
    years = first.follow_up_months / 12
    beside = next((one for one in evaluations[1:] if one.agent == GUIDELINE), None)
    verdict = "" if beside is None else f"<p><strong>{html.escape(compared(first, beside))}</strong></p>\n"
    said = (
        f"Environment {first.stamp.environment}, card {engine.card.id} ({first.stamp.card_digest}). "
        f"{first.episodes:,} simulated patients of the {first.stamp.split} split, seed {first.seed}, the same for every agent, "
        f"followed for {years:.1f} years. "
        f"Agents: {names}. "
        f"Score: {first.reference.says}, by mean return. "
        f"onco_gym {first.stamp.version}."
    )
    note = f'<p class="note">{NOTE} All patients are simulated.</p>'
    return f"<h1>{html.escape(heading)}</h1>\n{verdict}<p>{html.escape(said)}</p>\n{note}"


def _bars(evaluations: Sequence[Evaluation], name: str, label: str, caption: str, times: float = 1.0) -> str:
    """A bar with its interval for each agent; ``name`` is a figure of the evaluation."""
    found: list[Interval] = [getattr(one, name) for one in evaluations]
    values = times * np.nan_to_num([one.value for one in found])
    low = values - times * np.array([one.low for one in found])
    high = times * np.array([one.high for one in found]) - values
    errors = np.nan_to_num(np.maximum([low, high], 0), posinf=0)
    places = np.arange(len(found))
    reach = max(float((values + errors[1]).max()), 1e-9)

    def draw(axes: Any) -> None:
        axes.barh(places, values, 0.62, color=[colour(number) for number in range(len(found))])
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, capsize=3, lw=1.2)
        for place, one, value, error in zip(places, found, values, errors[1], strict=True):
            text = f"{value:,.1f}" if np.isfinite(one.value) else MISSING
            axes.text(max(value + error, 0) + 0.02 * reach, place, text, va="center")
        axes.set(yticks=places, yticklabels=[one.agent for one in evaluations], ylim=(len(found) - 0.45, -0.55))
        axes.set(xlabel=label, xlim=(min(float((values - errors[0]).min()), 0), 1.15 * reach))

    return figure(draw, caption, 2.6)


def _survival(axes: Any, evaluations: Sequence[Evaluation]) -> None:
    months = np.linspace(0, evaluations[0].follow_up_months, 200)
    for number, one in enumerate(evaluations):
        share = 100 * one.runs.overall.curve(months)
        axes.plot(months, share, color=colour(number), lw=1.8, label=one.agent, ls=("-", "--", ":", "-.")[number // 8 % 4])
    axes.set(xlabel="months", ylabel="alive, percent", ylim=(0, 101), xlim=(0, months[-1]))
    axes.set_xticks(np.arange(0, months[-1] + 1, 12))
    axes.legend(frameon=False)


def _learning(axes: Any, curve: Sequence[tuple[float, float]]) -> None:
    steps, returns = np.asarray(curve, float).T
    axes.plot(steps, returns, color=COLOURS[0], lw=1.8)
    axes.set(xlabel="steps", ylabel="mean return")
    axes.ticklabel_format(axis="x", style="plain")
    axes.locator_params(axis="x", nbins=5)


def _journeys(first: Evaluation, engine: Engine, agent: Agent) -> str:
    """Timelines of three patients: the quartiles of weeks lived under the agent."""
    order = np.argsort(first.runs.weeks, kind="stable")
    chosen = list(dict.fromkeys(int(order[round(share * (len(order) - 1))]) for share in (0.25, 0.5, 0.75)))
    pictures = []
    for patient in chosen:
        caption = (
            f"Patient {patient} (seed {first.seed + patient}), who lived {first.runs.weeks[patient]:.0f} weeks in the evaluation."
        )
        data = base64.b64encode(draw_journey(engine, agent, first.seed + patient)).decode()
        pictures.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    note = (
        "Patients at the lower quartile, the median and the upper quartile of weeks lived under the agent, treated by it once "
        "more. An agent that chooses at random may choose differently this time."
    )
    return section(f"Three patients of {first.agent}", "\n".join(pictures), note)


def draw_journey(engine: Engine, agent: Agent, seed: int) -> bytes:
    """The journey of the patient of ``reset(seed=seed)`` under an agent, as a PNG."""
    journey = from_actions(engine, *rollout(engine, agent, 1, seed).of(0))
    written = io.BytesIO()
    timeline(journey).savefig(written, format="png", facecolor="white", metadata={"Software": None})
    return written.getvalue()
