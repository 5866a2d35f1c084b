"""HTML pages: single files with embedded figures, readable on light and dark screens."""

import html
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

from onco_gym.foundation.files import replacing

NOTE = "Research software, not for treating patients."
COLOURS = ("#2f7fc1", "#d9772b", "#3d9970", "#a768b5", "#c84f4f", "#8a7a2f", "#5f8ca3", "#b0658a")
"""Colours of series, in order; readable on white and on near-black."""
INK = "#010203"
"""Placeholder in figures for the page's text colour."""
STYLE = """
:root { color-scheme: light dark; --ink: #1c232b; --paper: #ffffff; --soft: #66727f; --line: #d5dbe1; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ed; --paper: #14191f; --soft: #9aa7b4; --line: #35404b; --panel: #1c232b; }
}
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: 0.2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.note { background: var(--panel); border-left: 4px solid #d9772b; padding: 0.5rem 0.8rem; }
p.small, figcaption { color: var(--soft); font-size: 0.9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--soft); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 1rem; }
figure { margin: 0.8rem 0; } figure svg { width: 100%; height: auto; }
figure img { width: 100%; height: auto; background: #ffffff; border-radius: 6px; }
"""


def write_page(path: str | os.PathLike[str], title: str, body: str) -> None:
    """Write a page, atomically."""
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def section(title: str, body: str, note: str = "") -> str:
    """A section of a page, with an optional note below."""
    below = f'\n<p class="small">{html.escape(note)}</p>' if note else ""
    return f"<h2>{html.escape(title)}</h2>\n{body}{below}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of plain text; the first cell of each row is its name."""
    top = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)
    lines = [
        f'<tr><th scope="row">{html.escape(name)}</th>{"".join(f"<td>{html.escape(text)}</td>" for text in cells)}</tr>'
        for name, *cells in body
    ]
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead>\n<tbody>{"".join(lines)}</tbody></table></div>'


def figure(draw: Callable[[Any], None], caption: str, height: float = 3.4, width: float = 5.4) -> str:
    """A figure as inline SVG, in the page's text colour; ``height`` and ``width`` are in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": caption,
        "font.family": "sans-serif",
        "font.size": 10,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    }
    with mpl.rc_context(settings):
        drawn = Figure(figsize=(width, height), layout="constrained")
        axes = drawn.add_subplot()
        draw(axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        written = io.StringIO()
        drawn.savefig(written, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = written.getvalue()
    drawing = text[text.index("<svg") :].replace(INK, "currentColor")
    label = f'<svg role="img" aria-label="{html.escape(caption)}"'
    return f"<figure>{drawing.replace('<svg', label, 1)}<figcaption>{html.escape(caption)}</figcaption></figure>"


def colour(number: int) -> str:
    """The colour of the ``number``-th series."""
    return COLOURS[number % len(COLOURS)]
