"""Drawings as text. Everything that is written into one is escaped."""

from collections.abc import Iterable

from markupsafe import Markup, escape


def tag(name: str, *inside: str, **attributes: object) -> Markup:
    """An element. ``class_`` and ``stroke_width`` stand for ``class`` and ``stroke-width``; None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{''.join(map(escape, inside))}</{name}>") if inside else Markup(f"<{name}{written}/>")


def drawing(width: float, height: float, title: str, about: str, *inside: str, role: str = "img", **data: object) -> Markup:
    """A drawing that says what it shows to those who do not see it. With links in it, its role is ``group``."""
    head = [tag("title", title), tag("desc", about)]
    return tag("svg", *head, *inside, viewBox=f"0 0 {width:g} {height:g}", role=role, **{"class_": "chart", **data})


def text(x: float, y: float, words: str, class_: str = "", anchor: str | None = None) -> Markup:
    """A line of text; ``anchor`` is ``middle`` or ``end``."""
    return tag("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("path", d=f"M{_short(x1)} {_short(y1)}L{_short(x2)} {_short(y2)}", class_=class_)


def boxes(places: Iterable[tuple[float, float, float, float]], class_: str) -> Markup:
    """Boxes (x, y, width, height) in one path, which is shorter than one element each; nothing if there are none."""
    path = "".join(f"M{_short(x)} {_short(y)}h{_short(w)}v{_short(h)}h{_short(-w)}z" for x, y, w, h in places)
    return tag("path", d=path, class_=class_) if path else Markup("")


def cross(x: float, y: float, size: float = 4) -> str:
    """The path of the mark of a death."""
    return f"M{_short(x - size)} {_short(y - size)}l{2 * size:g} {2 * size:g}m0 {-2 * size:g}l{-2 * size:g} {2 * size:g}"


def arrow(x: float, y: float, size: float = 5) -> str:
    """The path of the mark of what goes on."""
    return f"M{_short(x)} {_short(y - size)}l{1.4 * size:g} {size:g}l{-1.4 * size:g} {size:g}z"


def triangle(x: float, y: float, size: float = 3) -> str:
    """The path of the mark of a progression."""
    return f"M{_short(x)} {_short(y + size)}l{size:g} {-2 * size:g}h{-2 * size:g}z"


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
