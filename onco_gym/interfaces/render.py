"""Rendering of a journey: a chart in text, and a picture."""

import io
import textwrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.scenarios import Field, Scenario
from onco_gym.simulator.state import Journey, State

DISCLAIMER = "Simulated patient. Research software, not for treating patients."


class Snapshot(NamedTuple):
    """A patient at the end of a cycle."""

    journey: Journey  # NumPy arrays, batch of one
    observation: NDArray[np.float32]  # (F,)
    reward: float  # of the preceding cycle

    @property
    def state(self) -> State:
        """The state, hidden parts included."""
        return self.journey.state


def raw_values(scenario: Scenario, observation: NDArray[np.float32]) -> dict[str, float]:
    """Observation fields by name, in their units."""
    return {field.name: field.low + (field.high - field.low) * float(observation[field.index]) for field in scenario.fields}


def regimen_title(card: Card, index: int) -> str:
    """The regimen's title, or a dash before the first cycle."""
    return card.regimens[index].title if index >= 0 else "-"


def chart(card: Card, scenario: Scenario, history: list[Snapshot], last: int | None = None) -> str:
    """The patient's chart as text: traits, test results, and the ``last`` cycles (by default all) as a table."""
    now = raw_values(scenario, history[-1].observation)
    facts = [_fact(field, now[field.name]) for field in scenario.fields[: len(scenario.traits)] if now[field.name] != 0]
    known = [
        f"{test}: " + (", ".join(_positive(scenario, now, number)) or "nothing found")
        if now[f"known_{test}"]
        else f"{test}: no result"
        for number, test in enumerate(scenario.tests)
    ]
    alive = bool(history[-1].state.alive[0])
    weeks = int(history[-1].state.cycle[0] * scenario.cycle_weeks)
    total = sum(snapshot.reward for snapshot in history)
    lines = [
        f"{card.title}, week {weeks}: {'alive' if alive else 'died'}, {total:.2f} quality-adjusted life years",
        "Patient  " + "; ".join(facts),
        "Tests    " + "; ".join(known),
        "",
        f"{'week':>5} {'treatment':34} {'sum mm':>7} {'change':>7} {'ctDNA':>6} {'ECOG':>4} {'line':>4}  events",
    ]
    for before, after in list(zip([None, *history[:-1]], history, strict=True))[-(last or len(history)) :]:
        values = raw_values(scenario, after.observation)
        size, change = after.state.diameter[0], after.state.diameter[0] / after.state.baseline[0] - 1
        lines.append(
            f"{int(after.state.cycle[0] * scenario.cycle_weeks):>5} "
            f"{regimen_title(card, int(after.state.last[0]))[:34]:34} "
            f"{size:>7.0f} {change:>+7.0%} {values['ctdna']:>6.1f} "
            f"{values['ecog']:>4.0f} {values['line']:>4.0f}  {', '.join(_events(scenario, before, after))}"
        )
    return "\n".join([*lines, "", DISCLAIMER])


def _fact(field: Field, value: float) -> str:
    """A trait in words: only the name if it is true or false, the name and the value if it is a number."""
    return field.name.replace("=", " ") if field.unit == "0 or 1" else f"{field.name} {value:.3g}"


def _positive(scenario: Scenario, values: dict[str, float], test: int) -> list[str]:
    names = [name for name, owner in zip(scenario.biomarkers, scenario.biomarker_test, strict=True) if owner == test]
    return [name.replace("=", " ") for name in names if values[name] > 0.5 and not name.endswith("=none")]


def _events(scenario: Scenario, before: Snapshot | None, after: Snapshot) -> list[str]:
    """What happened in the cycle that led to ``after``, in words."""
    state, events = after.state, []
    if before is not None:
        if state.progressed[0] > before.state.progressed[0]:
            events.append("progression")
        if state.line[0] > before.state.line[0]:
            events.append(f"line {int(state.line[0])} starts")
        if state.barred.sum() > before.state.barred.sum():
            events.append("stopped for toxicity")
    if state.held[0] > 0:
        worst = scenario.organs[int(np.argmax(state.toxicity[:, 0]))]
        events.append(f"grade 3+ {worst}")
    if not state.alive[0]:
        events.append("death")
    return events


def figure(card: Card, scenario: Scenario, history: list[Snapshot]) -> Any:
    """The journey as a matplotlib figure: burden and scans, treatments as lanes, toxicity, performance, events."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weeks = np.array([int(snap.state.cycle[0]) for snap in history]) * scenario.cycle_weeks
    drawing = Figure(figsize=(9.6, 7.2), dpi=100, layout="constrained")
    FigureCanvasAgg(drawing)
    burden, lanes, harm = drawing.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    _draw_burden(burden, scenario, history, weeks)
    _draw_lanes(lanes, card, scenario, history, weeks)
    _draw_harm(harm, scenario, history, weeks)
    alive = bool(history[-1].state.alive[0])
    total = sum(snap.reward for snap in history)
    drawing.suptitle(
        f"{card.title}: week {weeks[-1]:.0f}, {'alive' if alive else 'died'}, {total:.2f} quality-adjusted life years",
        fontsize=11,
    )
    harm.set_xlabel(f"weeks since the first visit\n{DISCLAIMER}", fontsize=9)
    harm.set_xlim(0, max(weeks[-1], 12 * scenario.cycle_weeks))
    return drawing


def _draw_burden(axes: Any, scenario: Scenario, history: list[Snapshot], weeks: NDArray[Any]) -> None:
    true = [10 * np.exp((s.state.volume[0] + np.log(6 / np.pi) + 2 * np.log(s.journey.patient.lesions[0])) / 3) for s in history]
    axes.plot(weeks, true, color="0.6", lw=1.2, label="true (hidden)")
    scans = [i for i, snap in enumerate(history) if snap.state.since_scan[0] == 0]
    axes.plot(weeks[scans], [history[i].state.diameter[0] for i in scans], "o", color="C0", ms=4, label="scans")
    top = max([*true, *(history[i].state.diameter[0] for i in scans)])
    for before, after, week in zip(history, history[1:], weeks[1:], strict=False):
        for event in _events(scenario, before, after):
            if event in ("progression", "death"):
                colour = "C3" if event == "progression" else "k"
                axes.axvline(week, color=colour, lw=0.9, ls="--")
                axes.text(week, top * 1.05, f" {event}", color=colour, rotation=90, va="top", fontsize=8)
    axes.set_ylim(0, top * 1.08)
    axes.set_ylabel("sum of\ndiameters, mm")
    axes.legend(loc="lower left", ncol=2, fontsize=8, frameon=False)


def _draw_lanes(axes: Any, card: Card, scenario: Scenario, history: list[Snapshot], weeks: NDArray[Any]) -> None:
    given = [int(snap.state.last[0]) for snap in history[1:]]
    order = list(dict.fromkeys(given))
    for start, end, regimen, before in zip(weeks[:-1], weeks[1:], given, history, strict=False):
        lane, colour = (order.index(regimen) - 0.4, 0.8), f"C{order.index(regimen) % 10}"
        first = start + (scenario.cycle_weeks if before.state.held[0] else 0.0)  # only a step's first cycle can be held
        axes.broken_barh([(start, first - start)], lane, facecolor=colour, alpha=0.35)
        axes.broken_barh([(first, end - first)], lane, facecolor=colour, alpha=0.9)
    titles = [textwrap.shorten(regimen_title(card, index), 40, placeholder="…") for index in order]
    axes.set_yticks(range(len(order)), titles, fontsize=8)
    axes.set_ylim(len(order) - 0.4 if order else 1, -0.6)
    axes.set_ylabel("treatment\n(pale: held)")


def _draw_harm(axes: Any, scenario: Scenario, history: list[Snapshot], weeks: NDArray[Any]) -> None:
    axes.step(weeks, [float(snap.state.performance[0]) for snap in history], where="post", color="k", lw=1.4, label="ECOG")
    for number, organ in enumerate(scenario.organs):
        grades = np.array([float(snap.state.toxicity[number, 0]) for snap in history])
        if grades.max() >= 0.5:
            axes.step(weeks, grades, where="post", lw=1, color=f"C{number}", label=organ)
    axes.set_ylim(-0.1, 5)
    axes.set_ylabel("ECOG and\ntoxicity grade")
    axes.legend(loc="upper left", fontsize=7, ncol=5, frameon=False)


def picture(card: Card, scenario: Scenario, history: list[Snapshot]) -> NDArray[np.uint8]:
    """(720, 960, 3) the figure as an image."""
    drawing = figure(card, scenario, history)
    drawing.canvas.draw()
    return np.array(drawing.canvas.buffer_rgba())[..., :3]


def show(frame: NDArray[np.uint8], title: str) -> None:
    """Show an image in a window. Without a screen, nothing is shown."""
    import matplotlib.pyplot as plt

    plt.ion()
    window = plt.figure(title, figsize=(9.6, 7.2))
    window.clear()
    window.figimage(frame)
    window.canvas.draw_idle()
    window.canvas.flush_events()
    if plt.get_backend().lower() != "agg":
        plt.pause(0.05)


def png(card: Card, scenario: Scenario, history: list[Snapshot]) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure(card, scenario, history).savefig(buffer, format="png")
    return buffer.getvalue()
