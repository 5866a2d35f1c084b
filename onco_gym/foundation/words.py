"""Words for error messages."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'guideline'?)"`` if one of the ``known`` words is close to ``word``, else an empty string."""
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def shown(value: object) -> str:
    """``repr(value)``, cut short: for a value that somebody else wrote."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or a nest of lists
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
