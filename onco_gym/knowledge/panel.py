"""The panel: what a card's guideline and experts say about every regimen for a patient at a decision.

The share of experts who accept a regimen is its *acceptability*. The regimens that at least one accepts are the acceptability
region.

Rules become clauses (:mod:`onco_gym.knowledge.clauses`), and a patient's clauses are bits. Each atom that fails strikes out the
clauses that need it, for all patients at once. So a guideline of fifty rules costs a few hundred bitwise operations, in NumPy
or inside compiled JAX: the array module is an argument, ``xp``.
"""

import functools
import operator
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card
from onco_gym.cards.checks import HOLIDAY, SUPPORTIVE, guideline_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Rule
from onco_gym.foundation.arrays import either, one_turn, settled
from onco_gym.knowledge.clauses import clauses_of

VERDICTS = ("contraindicated", "not_recommended", "off_guideline", "later", "option", "preferred")
"""Verdicts on a choice, worst first."""
POINTS = {"contraindicated": -1.0, "not_recommended": -0.5, "off_guideline": -0.25, "later": 0.6, "option": 0.8, "preferred": 1.0}
"""Guideline points of a verdict. A recommendation's points are multiplied by those of its level and by its acceptability."""
LEVEL_POINTS = {"A": 1.0, "B": 0.9, "C": 0.8, "D": 0.6, "E": 0.5}

_NONE = np.uint32(0)

Array = Any
"""A NumPy or JAX array, batch last."""
Words = NDArray[np.uint32]
"""(W,) bits, one per clause: the same for all patients."""
Clauses = tuple[Array, ...]
"""W words of (n,) uint32, one bit per clause, for each patient. Words are kept apart, so that one without bits costs nothing."""


class Hearing(NamedTuple):
    """The panel's findings on n patients, in W words of 32 clauses each."""

    rules: Clauses  # clauses that hold
    experts: tuple[Clauses, ...]  # clauses that each expert would act on, about regimens that can be given
    first: Array  # (n,) int32 the guideline's first choice
    pause: Array  # (n,) bool, whether a holiday is an option in itself
    nothing: Array  # (n,) bool, whether only supportive care is left


class Opinion(NamedTuple):
    """The panel's opinion of one regimen for each patient."""

    code: Array  # (n,) int32 index into VERDICTS
    share: Array  # (n,) share of experts who accept it
    points: Array  # (n,) -1 (contraindicated) to 1 (preferred, level A, accepted by all)


class Panel:
    """The guideline and the experts of a card, ready for queries.

    Args:
        card: a validated card.
    """

    def __init__(self, card: Card) -> None:
        names = [regimen.name for regimen in card.regimens]
        self._names, self._supportive, self._holiday = names, names.index(SUPPORTIVE), names.index(HOLIDAY)
        rules = [(rule, clause) for rule in card.guideline for clause in clauses_of(rule.when)]
        self._size = -(-len(rules) // 32)
        self._owner = np.array([names.index(rule.regimen) for rule, _ in rules], np.int32)

        def where(test: Callable[[Rule], bool]) -> Words:
            return self._bits([test(rule) for rule, _ in rules])

        self._of = np.stack([where(lambda rule, name=name: rule.regimen == name) for name in names])  # type: ignore[misc]
        self._recommends = where(lambda rule: rule.status in ("preferred", "option", "later"))
        self._forbids = where(lambda rule: rule.status == "contraindicated")
        active = {regimen.name for regimen in card.regimens if regimen.active}
        self._active = where(lambda rule: rule.regimen in active)
        # An unconditional rule for supportive care is the last resort, not advice to stop treatment early.
        self._resort = where(lambda rule: rule.regimen == SUPPORTIVE and not rule.when and not rule.lines)
        # Rules that allow leaving a line that works: for a pause, for supportive care, or for patients without progression.
        self._leaves = self._bits([rule.regimen not in active or ("progressed", False) in clause for rule, clause in rules])
        self._status = {status: where(lambda rule, s=status: rule.status == s) for status in VERDICTS[3:]}  # type: ignore[misc]
        values = sorted({POINTS[rule.status] * LEVEL_POINTS[rule.level] for rule, _ in rules if POINTS[rule.status] > 0})
        self._worth = [
            (value, where(lambda rule, v=value: POINTS[rule.status] * LEVEL_POINTS[rule.level] == v))  # type: ignore[misc]
            for value in values
        ]
        self._atoms(card, rules)
        self._panel(card, where)

    def _bits(self, flags: list[bool]) -> Words:
        padded = np.zeros(32 * self._size, bool)
        padded[: len(flags)] = flags
        return np.packbits(padded, bitorder="little").view(np.uint32)

    def _atoms(self, card: Card, rules: list[tuple[Rule, frozenset[tuple[str, bool]]]]) -> None:
        """Find, for every atom, the clauses that are struck out where it fails, and where it holds."""
        vocabulary = guideline_vocabulary(card)
        every = sorted({atom for _, clause in rules for atom, _ in clause})

        def struck(atom: str, holds: bool, own: bool | None = None) -> Words:
            return self._bits(
                [(atom, holds) in clause and (own is None or (atom == f"prior_{rule.regimen}") == own) for rule, clause in rules]
            )

        self._plain, self._own, self._on_line = [], [], []
        for atom in every:
            expression = parse(atom, vocabulary)
            if "line" in expression.names:
                self._on_line.append((expression, struck(atom, True), struck(atom, False)))
                continue
            self._plain.append((expression, struck(atom, True, False), struck(atom, False, False)))
            own = struck(atom, True, True), struck(atom, False, True)
            if own[0].any() or own[1].any():  # a rule that asks whether its own regimen was given before
                self._own.append((expression, *own))
        lines = sorted({rule.lines for rule, _ in rules if rule.lines})
        self._lines = [(numbers, self._bits([rule.lines == numbers for rule, _ in rules])) for numbers in lines]

    def _panel(self, card: Card, where: Callable[[Callable[[Rule], bool]], Words]) -> None:
        vocabulary = guideline_vocabulary(card)
        toxicity = {r.name: 1 - float(np.prod([1 - share for share in r.toxicity.values()])) for r in card.regimens}
        self._experts = []
        for expert in card.experts:
            accepted = where(lambda rule, e=expert: rule.status in e.accepts and rule.level <= e.level)  # type: ignore[misc]
            refused = where(lambda rule, e=expert: toxicity[rule.regimen] > e.max_toxicity)  # type: ignore[misc]
            frail = parse(expert.frail, vocabulary) if expert.frail else None
            self._experts.append((accepted & self._recommends, refused, frail, expert.early))

    def hear(self, xp: Any, facts: Mapping[str, Array], treatment: Array, allowed: Array, waiting: Array) -> Hearing:
        """Ask the panel about n patients.

        Until progression, continuing the current line is judged by the rules for that line, on what is known now and as if its
        regimen had not been given before. After progression, continuing is off the guideline. An expert who accepts the current
        line continues it; other regimens come after progression, unless their rule is for patients without progression.
        A holiday is an option while a line works but cannot be given now, or while awaited results could decide the first
        line. Supportive care is an option if nothing else is left; an expert who would give nothing else also accepts it.

        Args:
            xp: ``numpy`` or ``jax.numpy``.
            facts: what is known, under the names of :func:`onco_gym.cards.checks.guideline_vocabulary`.
            treatment: (n,) the regimen of the current line, -1 before the first.
            allowed: (R, n) bool, which regimens can be given.
            waiting: (n,) bool, whether the next dose is withheld, or a test result is awaited before the first line.
        """
        line, progressed = facts["line"], facts["progressed"] > 0.5
        turns = None if xp is np else one_turn(allowed[self._holiday])  # known only at run time, even at the first visit
        clauses = [xp.where(treatment >= 0, word, _NONE) for word in self._about(xp, xp.maximum(treatment, 0))]
        going_on = _each(lambda word: xp.where(progressed, _NONE, word), clauses)
        stale = _each(lambda word, bits: xp.where(progressed, word, _NONE) & bits, clauses, self._recommends)

        failed = self._struck(xp, self._plain, facts, line)
        started, continued = _or(failed, self._struck(xp, self._own, facts, line)), failed
        for _, missing, _ in self._own:  # while a line continues, its regimen does not count as given before
            continued = _or(continued, missing)
        before = ChainMap({"line": line - 1}, facts)  # type: ignore[arg-type] # read only
        started = _or(started, self._struck(xp, self._on_line, facts, line))
        continued = _or(continued, self._struck(xp, self._on_line, before, line))
        anyway = _each(lambda on, one, other, old: ~_choose(on, one, other) & ~old, going_on, continued, started, stale)
        off_line = _each(_choose, going_on, self._missed_lines(xp, line), self._missed_lines(xp, line + 1))
        anyway, off_line, going_on = settled(turns, (anyway, off_line, going_on))
        holds = _each(lambda word, off: word & ~off, anyway, off_line)

        against = self._speak_of(xp, _and(holds, ~self._recommends))
        possible = _and(self._spread(xp, allowed & ~against), self._recommends)
        possible, holds = settled(turns, (possible, holds))
        usable = _and(holds, possible)
        experts = self._votes(xp, facts, usable, _and(anyway, possible), going_on)
        first = xp.where(_some(_and(usable, going_on)), treatment, self._first(xp, usable)).astype(np.int32)
        stays = either((treatment == i) & can for i, can in enumerate(allowed)) & ~progressed
        forbidden = _some(_and(_and(holds, going_on), self._forbids))
        pause = waiting | ((line > 0.5) & ~progressed & (~stays | forbidden))
        nothing = ~_some(_and(usable, self._active))
        return Hearing(holds, *settled(turns, (experts, first, pause, nothing)))

    def _votes(
        self, xp: Any, facts: Mapping[str, Array], now: Clauses, anyway: Clauses, going_on: Clauses
    ) -> tuple[Clauses, ...]:
        """What each expert would act on, among the clauses that hold ``now`` or, at any line, ``anyway``."""
        votes = []
        for accepted, refused, frail, early in self._experts:
            acts = _and(anyway if early else now, accepted & ~self._resort)
            if frail is not None:
                too_much = frail.holds(facts)
                acts = _each(lambda word, bits, at=too_much: word & ~xp.where(at, bits, _NONE), acts, refused)
            keeps = _some(_and(acts, going_on))
            acts = _each(lambda word, on, bits, at=keeps: word & xp.where(at, on | bits, ~_NONE), acts, going_on, self._leaves)
            idle = ~_some(_and(acts, self._active))
            last = _each(lambda word, bits, at=idle: word & xp.where(at, bits, _NONE), anyway, self._resort)
            votes.append(_or(acts, last))
        return tuple(votes)

    def shares(self, xp: Any, hearing: Hearing) -> Array:
        """(R, n) the share of experts who accept each regimen."""
        votes = sum(self._speak_of(xp, acts).astype(np.float32) for acts in hearing.experts) / len(self._experts)
        return xp.where(self._usual(hearing, xp.arange(len(self._names))[:, None]), 1.0, votes)

    def options(self, xp: Any, hearing: Hearing) -> Array:
        """(R, n) bool: the regimens that at least one expert accepts."""
        everybody = self._usual(hearing, xp.arange(len(self._names))[:, None])
        return self._speak_of(xp, functools.reduce(_or, hearing.experts)) | everybody

    def _usual(self, hearing: Hearing, regimens: Array) -> Array:
        """Where ``regimens`` are a pause or supportive care that everybody accepts."""
        return ((regimens == self._holiday) & hearing.pause) | ((regimens == self._supportive) & hearing.nothing)

    def opinion(self, xp: Any, hearing: Hearing, given: Array) -> Opinion:
        """The panel's opinion of the regimens ``given`` (n,)."""
        about = self._about(xp, given)
        rules = _and(hearing.rules, about)

        def said(bits: Words) -> Array:
            return _some(_and(rules, bits))

        usual = self._usual(hearing, given)
        votes = sum(_some(_and(acts, about)).astype(np.float32) for acts in hearing.experts) / len(self._experts)
        unwise, forbidden = said(~self._recommends), said(self._forbids)
        share = xp.where(unwise, 0.0, xp.where(usual, 1.0, votes))

        # A recommendation for other lines, which some experts follow, counts as one for later lines.
        worth, code = xp.full(given.shape, POINTS["later"] * LEVEL_POINTS["C"], np.float32), xp.full(given.shape, 3, np.int32)
        for value, bits in self._worth:
            worth = xp.where(said(bits), value, worth)
        for status, bits in self._status.items():
            code = xp.where(said(bits), VERDICTS.index(status), code)
        worth = xp.where(usual, xp.maximum(worth, POINTS["option"]), worth)
        code = xp.where(usual, xp.maximum(code, VERDICTS.index("option")), code)

        inside = share > 0
        code = xp.where(forbidden, 0, xp.where(unwise, 1, xp.where(inside, code, 2)))
        points = xp.where(inside, share * worth, POINTS["off_guideline"])
        points = xp.where(forbidden, POINTS["contraindicated"], xp.where(unwise, POINTS["not_recommended"], points))
        return Opinion(code.astype(np.int32), share.astype(np.float32), points.astype(np.float32))

    def _about(self, xp: Any, regimens: Array) -> Clauses:
        """All clauses about the ``regimens`` (n,)."""
        return tuple(xp.take(xp.asarray(bits), regimens) for bits in self._of.T)

    def _struck(self, xp: Any, atoms: list[Any], facts: Mapping[str, Array], like: Array) -> Clauses:
        """The clauses that these atoms strike out."""
        out: Clauses = (xp.zeros(like.shape, np.uint32),) * self._size
        for expression, missing, unwanted in atoms:
            at = expression.holds(facts)
            parts = zip(out, missing, unwanted, strict=True)
            out = tuple(word | xp.where(at, no, yes) if yes or no else word for word, yes, no in parts)
        return out

    def _missed_lines(self, xp: Any, coming: Array) -> Clauses:
        """The clauses of rules for lines other than ``coming`` (n,)."""
        out: Clauses = (xp.zeros(coming.shape, np.uint32),) * self._size
        for numbers, clauses in self._lines:
            at = either(coming == number for number in numbers)
            out = _each(lambda word, bits, at=at: word | xp.where(at, _NONE, bits), out, clauses)
        return out

    def _speak_of(self, xp: Any, clauses: Clauses) -> Array:
        """(R, n) bool: whether any of the ``clauses`` is about a regimen."""
        return xp.stack([_some(_and(clauses, of)) for of in self._of])

    def _spread(self, xp: Any, regimens: Array) -> Clauses:
        """All clauses about the regimens (R, n)."""
        each = [_each(lambda bits, at=at: xp.where(at, bits, _NONE), of) for at, of in zip(regimens, self._of, strict=True)]
        return functools.reduce(_or, each)

    def _first(self, xp: Any, usable: Array) -> Array:
        """(n,) the regimen of the first clause; supportive care if there is none."""
        index = xp.full(usable[0].shape, -1, np.int32)
        for word in reversed(range(self._size)):
            lowest = usable[word] & (~usable[word] + np.uint32(1))
            place = xp.bitwise_count(lowest - np.uint32(1)).astype(np.int32) + 32 * word
            index = xp.where(usable[word] != 0, place, index)
        chosen = xp.take(xp.asarray(self._owner), xp.maximum(index, 0))
        return xp.where(index >= 0, chosen, self._supportive)


def _each(work: Callable[..., Array], *parts: Iterable[Array]) -> Clauses:
    """Apply ``work`` word by word."""
    return tuple(work(*words) for words in zip(*parts, strict=True))


def _and(one: Clauses, other: Clauses | Words) -> Clauses:
    return _each(operator.and_, one, other)


def _or(one: Clauses, other: Clauses | Words) -> Clauses:
    return _each(operator.or_, one, other)


def _choose(which: Array, one: Array, other: Array) -> Array:
    """The bits of ``one`` where ``which`` has them set, else those of ``other``."""
    return (one & which) | (other & ~which)


def _some(clauses: Clauses) -> Array:
    """(n,) bool: whether any of the ``clauses`` is set."""
    return either(clauses) != 0
