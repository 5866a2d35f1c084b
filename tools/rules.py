"""Renew docs/rules.md: changes of one rule of a guideline, and what they bring. It takes about ten minutes.

For each card, every rule that recommends a regimen is left out, or recommends another regimen instead. A few validation patients
say which changes are worth a closer look, which is taken at test patients.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.progress import track

from onco_gym.agents import Episodes, GuidelineAgent, rollout
from onco_gym.cards import Card
from onco_gym.cards.schema import Rule
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.knowledge.guideline import RECOMMENDED
from pages import CARDS, DOCS, paired, parser, renew, table

FEW, MANY = 512, 8192
"""Patients of the first look and of the closer one."""
SHOWN = 12
"""Changes that are looked at closely, for each card."""
SEED = 700_000


class Change(NamedTuple):
    """A guideline with one rule changed."""

    rule: Rule
    to: str  # the regimen that the rule recommends now; empty if the rule is left out
    card: Card


def changes(card: Card) -> Iterator[Change]:
    """All changes of one recommending rule."""
    for place, rule in enumerate(card.guideline):
        if rule.status not in RECOMMENDED:
            continue
        before, after = card.guideline[:place], card.guideline[place + 1 :]
        yield Change(rule, "", card.model_copy(update={"guideline": (*before, *after)}))
        for regimen in card.regimens:
            if regimen.name != rule.regimen:
                changed = rule.model_copy(update={"regimen": regimen.name})
                yield Change(rule, regimen.name, card.model_copy(update={"guideline": (*before, changed, *after)}))


def treated(engine: Engine, card: Card, n: int) -> Episodes:
    """How patients fare under the guideline of ``card``, which may differ from that of the engine's card."""
    return rollout(engine, GuidelineAgent(card), n, SEED)


def best_changes(name: str) -> list[tuple[object, ...]]:
    """The rows of a card: the changes that gain most, best first."""
    engine = make_engine(name, terms=("outcome", "guideline", "carbon"))
    few, many = engine.on("validation"), engine.on("test")
    usual = treated(few, engine.card, FEW).returns
    found = [
        (float((treated(few, change.card, FEW).returns - usual).mean()), number, change)
        for number, change in enumerate(track(list(changes(engine.card)), name))
    ]
    found.sort(key=lambda row: (-row[0], row[1]))
    before, rows = treated(many, engine.card, MANY), list[tuple[float, tuple[object, ...]]]()
    for gain, _, change in found[:SHOWN]:
        if gain <= 0:
            break
        after = treated(many, change.card, MANY)
        others = np.mean(after.returns != before.returns)
        figures = [paired(one, other, 3) for one, other in ((after.returns, before.returns), (quality(after), quality(before)))]
        lines = ", ".join(map(str, change.rule.lines)) or "any"
        what = f"{change.rule.regimen} → {change.to or 'no rule'}"
        shown = (what, lines, f"`{change.rule.when or 'everybody'}`", f"{others:.0%}", *figures)
        rows.append((round(float((after.returns - before.returns).mean()), 3), shown))
    return [shown for _, shown in sorted(rows, key=lambda row: -row[0])]


def quality(run: Episodes) -> np.ndarray:
    """(n,) quality-adjusted life years."""
    return run.terms["outcome"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Renew the page."""
    parser(__file__, __doc__).parse_args(arguments)
    head = ["change", "lines", "for whom", "patients affected", "gain in return", "gain in QALYs"]
    parts = []
    for name in CARDS:
        card = make_engine(name).card
        rows = best_changes(name)
        parts += [f"## {card.title}", table(head, rows) if rows else "No change of one rule gains anything."]
    renew(DOCS / "rules.md", __file__, {"changes": "\n\n".join(parts)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
