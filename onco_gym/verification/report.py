"""The verification report: figures and, for some episodes, what was done, what would have been best, and why."""

import html
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from onco_gym.foundation.pages import COLOURS, NOTE, colour, figure, section, table, write_page
from onco_gym.interfaces.engine import Engine
from onco_gym.verification.scoring import LEVEL, Verification

VALUES = ("value", "best", "regret", "achieved", "hindsight", "deviation")
SHOWN = 8
"""Episodes drawn by default: those that lost most."""


def rows(found: Verification) -> list[tuple[str, str]]:
    """The figures over all episodes, as text."""
    n = len(found.value)
    regret, weeks = found.mean_regret(), found.mean_weeks()
    lived, again = found.record.lengths.sum(), found.repeated

    def spread(mean: float, low: float, high: float, digits: int) -> str:
        return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]" if n > 1 else f"{mean:.{digits}f}"

    return [
        ("episodes", f"{n:,}"),
        ("value of what was done, expected", f"{found.value.mean():.3f}"),
        ("value of the best decisions, expected", f"{found.best.mean():.3f}"),
        ("value regret", spread(*regret, 3)),
        ("quality-adjusted weeks lost", spread(*weeks, 1)),
        ("value with the patient's own chance", f"{found.achieved.mean():.3f}"),
        ("best possible value with that chance (hindsight)", f"{found.hindsight.mean():.3f}"),
        ("cycles in which another regimen was best", f"{100 * found.deviation.mean():.0f}%"),
        ("decisions that an expert accepts", f"{100 * found.accepted.sum() / max(lived, 1):.0f}%"),
        ("episodes whose decisions do not fit what was seen", f"{int(found.flagged.sum()):,}"),
        *([] if again is None else [("decisions that the agent makes again", f"{100 * again.mean():.0f}%")]),
    ]


def to_json(engine: Engine, found: Verification) -> dict[str, Any]:
    """All results as plain values."""
    names = engine.scenario.regimens
    episodes = []
    for i, length in enumerate(found.record.lengths):
        values = {name: _number(getattr(found, name)[i]) for name in VALUES}
        episodes.append(
            {
                "patient": i,
                **values,
                "regret_interval": [_number(x) for x in found.regret_interval[:, i]],
                "weeks_lost": _number(found.weeks[i], 2),
                "weeks_lost_interval": [_number(x, 2) for x in found.weeks_interval[:, i]],
                "accepted": found.accepted[:length, i].astype(int).tolist(),
                "suspicion_nats": _number(found.suspicion[i], 2),
                "flagged": bool(found.flagged[i]),
                "repeated": None if found.repeated is None else _number(found.repeated[i]),
                "optimal": [names[r] for r in found.optimal[:, i]],
                "reasons": [vars(reason) for reason in found.reasons[i]],
            }
        )
    about = {"stamp": found.record.stamp.to_json(), "agent": found.record.agent, "seed": found.record.seed, "level": LEVEL}
    regret, weeks = found.mean_regret(), found.mean_weeks()
    whole = {"regret": [_number(x) for x in regret], "weeks_lost": [_number(x, 2) for x in weeks]}
    return {**about, "overall": whole, "episodes": episodes}


def _number(value: float, digits: int = 4) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def write_report(path: str | os.PathLike[str], engine: Engine, found: Verification, shown: Sequence[int] | None = None) -> None:
    """Write the report, whole or not at all.

    Args:
        path: the path of the HTML file.
        engine: the environment that the episodes come from.
        found: their verification.
        shown: indices of the episodes to draw; by default the :data:`SHOWN` that lost most.
    """
    chosen = list(np.argsort(-found.regret, kind="stable")[:SHOWN]) if shown is None else list(shown)
    heading = f"{engine.card.title}: decisions of {found.record.agent}, verified"
    said = (
        "We searched for each patient's best sequence of decisions, knowing the biology but not the chance, and compared it with "
        f"what was done under the same draws of chance. Brackets hold {100 * LEVEL:.0f}% intervals."
    )
    parts = [
        f"<h1>{html.escape(heading)}</h1>\n<p>{html.escape(said)}</p>",
        f'<p class="note">{NOTE} All patients are simulated.</p>',
        section("All episodes", table(("", found.record.agent), rows(found))),
    ]
    parts += [_episode(engine, found, int(i)) for i in chosen]
    head = ("patient", "value", "best", "regret", "weeks lost", "accepted", "fits what was seen")
    parts.append(section("Every episode", table(head, [_row(found, i) for i in range(len(found.value))])))
    write_page(path, heading, "\n".join(parts))


def _row(found: Verification, i: int) -> tuple[str, ...]:
    length = int(found.record.lengths[i])
    low, high = found.regret_interval[:, i]
    return (
        str(i),
        f"{found.value[i]:.2f}",
        f"{found.best[i]:.2f}",
        f"{found.regret[i]:.2f} [{low:.2f}, {high:.2f}]",
        f"{found.weeks[i]:.1f}",
        f"{int(found.accepted[:, i].sum())} of {length}",
        "no" if found.flagged[i] else "yes",
    )


def _episode(engine: Engine, found: Verification, i: int) -> str:
    low, high = found.regret_interval[:, i]
    lost = (
        f"Regret {found.regret[i]:.2f} [{low:.2f}, {high:.2f}], {found.weeks[i]:.0f} quality-adjusted weeks lost. "
        f"With this patient's own chance, the value was {found.achieved[i]:.2f}; {found.hindsight[i]:.2f} was possible."
    )
    reasons = "".join(f"<li>{html.escape(reason.text)}</li>" for reason in found.reasons[i] if reason.lost > 0.01)
    suspect = "<p>The decisions do not fit what was seen.</p>" if found.flagged[i] else ""
    caption = f"Patient {i}: done, best, and where value was lost."
    drawn = figure(lambda axes: draw(axes, engine, found, i), caption, 4.6, 10.0)
    return section(f"Patient {i}", f"<p>{html.escape(lost)}</p>{suspect}{drawn}<ol>{reasons}</ol>")


def draw(axes: Any, engine: Engine, found: Verification, i: int) -> None:
    """Draw an episode: what was done above what would have been best, the tumour under both, and value lost over time."""
    titles = [regimen.name.replace("_", " ") for regimen in engine.card.regimens]
    length = int(found.record.lengths[i])
    until = int(np.clip(max(length, (found.instead.alive[:, i] > 0.2).sum()) + 2, 6, engine.horizon))
    done = np.full(until, -1)
    done[:length] = found.record.actions[:length, i]
    best = found.optimal[:until, i]
    used = list(dict.fromkeys([*done[done >= 0].tolist(), *best.tolist()]))
    axes.axis("off")
    top, middle, bottom = (axes.inset_axes(box) for box in ((0, 0.66, 1, 0.34), (0, 0.28, 1, 0.32), (0, 0.0, 1, 0.2)))
    for height, row in ((1, done), (0, best)):
        for start, end, regimen in _runs(row):
            if regimen >= 0:
                top.barh(height, end - start, left=start, height=0.8, **_look(used.index(regimen)))
    for regimen in used:
        top.barh(0, 0, label=titles[regimen], **_look(used.index(regimen)))
    top.set(yticks=(0, 1), yticklabels=("best", "done"), xlim=(0, until))
    top.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, fontsize=8)
    cycles = np.arange(1, until + 1)
    for course, name, style in ((found.done, "done", "-"), (found.instead, "best", "--")):
        middle.plot(cycles, np.exp(course.volume[:until, i]), style, color=colour(0 if name == "done" else 2), label=name)
    middle.set(yscale="log", ylabel="tumour, cm3", xlim=(0, until))
    middle.legend(frameon=False, fontsize=8)
    gap = np.cumsum(found.instead.worth[:until, i] - found.done.worth[:until, i])
    bottom.fill_between(cycles, 0, gap, color=colour(1), alpha=0.5, lw=0)
    bottom.axhline(0, lw=0.6, color="0.5")
    bottom.set(ylabel="value lost", xlabel="cycle", xlim=(0, until))
    for part in (top, middle, bottom):
        for side in ("top", "right"):
            part.spines[side].set_visible(False)
        if length < until:
            part.axvline(length, color="0.5", lw=0.8, ls=":")


def _look(number: int) -> dict[str, Any]:
    """The colour of the ``number``-th regimen, with hatching once the colours are used up."""
    hatch = ("", "////", "....", "xxxx")[number // len(COLOURS) % 4]
    return {"color": colour(number), "hatch": hatch, "edgecolor": "white", "lw": 0.5}


def _runs(row: Any) -> list[tuple[int, int, int]]:
    """(start, end, value) of stretches of equal values."""
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    return [(a, b, int(row[a])) for a, b in itertools.pairwise(cuts) if b > a]
