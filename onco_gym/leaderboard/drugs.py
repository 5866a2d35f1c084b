"""Drug classes of a card's regimens, as an oncologist would sort them, and short names for charts."""

import re

from onco_gym.cards import Card
from onco_gym.cards.schema import Mechanism, Regimen

TARGETED, IMMUNE, NONE = "Targeted therapy", "Immunotherapy", "No anticancer drug"
CLASSES = {
    TARGETED: "",
    "Antibody-drug conjugate": r"conjugate|adc|payload",
    "Endocrine therapy": r"aromatase|serd|oestrogen|estrogen|androgen",
    "Chemotherapy": r"platin|taxane|pemetrexed|pyrimidine|irinotecan|trifluridine|cytotoxic|mitotic|alkylat|chemotherapy",
    IMMUNE: "",
    NONE: "",
}
"""Drug classes from top to bottom of a chart, and what betrays them in the name or the title of a mechanism.

A mechanism of the card's kind ``immune`` is immunotherapy. What nothing betrays is targeted therapy.
"""


def drug_classes(card: Card, regimen: Regimen) -> tuple[str, ...]:
    """The classes of a regimen's drugs, in the order of :data:`CLASSES`. A combination may have several."""
    mechanisms = {one.name: one for one in card.mechanisms}
    found = {_class_of(mechanisms[name]) for name in regimen.kill} or {NONE}
    return tuple(name for name in CLASSES if name in found)


def short_name(regimen: Regimen) -> str:
    """A name that fits into a chart."""
    text = regimen.name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _class_of(mechanism: Mechanism) -> str:
    if mechanism.kind == "immune":
        return IMMUNE
    words = f"{mechanism.name} {mechanism.title}".lower()
    return next((name for name, pattern in CLASSES.items() if pattern and re.search(pattern, words)), TARGETED)
