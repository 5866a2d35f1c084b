"""References to cite for a card."""

import re

from onco_gym.cards.load import load_card
from onco_gym.cards.schema import Card


def citation(card: str | Card) -> str:
    """BibTeX of a card's sources, without estimates, for the reference list of a paper.

    Args:
        card: a card, its name, or its path.
    """
    loaded = card if isinstance(card, Card) else load_card(card)
    entries = []
    for key, source in loaded.sources.items():
        if source.checked == "estimate":
            continue
        year = re.search(r"(?:19|20)\d\d", source.cite)
        lines = [f"  note = {{{source.cite}}}"]
        if year:
            lines.append(f"  year = {{{year[0]}}}")
        if source.doi:
            lines.append(f"  doi = {{{source.doi}}}")
        entries.append("@misc{" + key + ",\n" + ",\n".join(lines) + "\n}")
    return "\n\n".join(entries)
