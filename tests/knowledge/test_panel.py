"""The panel: compiled bits against slow rules, patients worked out by hand, and conditions as clauses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CARDS
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym.cards import load_card
from onco_gym.cards.checks import guideline_vocabulary
from onco_gym.cards.expressions import parse
from onco_gym.cards.schema import Categorical, Rule
from onco_gym.knowledge import Guideline
from onco_gym.knowledge.clauses import MOST, clauses_of
from onco_gym.knowledge.panel import LEVEL_POINTS, POINTS, VERDICTS, Panel

RECOMMENDED = ("preferred", "option", "later")
LOADED = {name: load_card(name) for name in CARDS}
PANELS = {name: Panel(card) for name, card in LOADED.items()}
N = 48


# ---------------------------------------------------------------- the same rules, slowly


def random_facts(card, seed, density, n=N):
    """Made-up patients: not plausible, but of every kind that rules could meet."""
    rng = np.random.default_rng(seed)
    facts = {}
    for name, levels in guideline_vocabulary(card).items():
        if levels is not None:
            facts[name] = rng.integers(-1, len(levels), n)
        elif name.startswith("toxicity_"):
            facts[name] = np.where(rng.random(n) < density, rng.uniform(0, 4, n), 0.0)
        else:
            facts[name] = rng.random(n) < (0.7 if name.startswith("known_") else density)
    for variable in card.variables:
        if isinstance(variable, Categorical) and variable.name in facts:
            facts.update({flag: facts[variable.name] == variable.levels.index(flag) for flag in variable.flags})
        elif variable.name in facts and hasattr(variable, "high"):
            facts[variable.name] = rng.uniform(getattr(variable, "low", 0), variable.high, n)
    facts["line"], facts["ecog"] = rng.integers(0, 6, n).astype(np.float32), rng.integers(0, 5, n).astype(np.float32)
    facts["progressed"] = rng.random(n) < 0.4
    regimens = len(card.regimens)
    active = np.flatnonzero([regimen.active for regimen in card.regimens])
    treatment = np.where(facts["line"] > 0, rng.choice(active, n), -1).astype(np.int32)
    for index in active:
        facts[f"prior_{card.regimens[index].name}"] |= treatment == index
    allowed = rng.random((regimens, n)) < 0.8
    return facts, treatment, allowed, rng.random(n) < 0.2


def slow(card, facts, treatment, allowed, waiting):
    """What the panel should say of one patient, written as it is documented."""
    names = [regimen.name for regimen in card.regimens]
    active = {regimen.name for regimen in card.regimens if regimen.active}
    vocabulary = guideline_vocabulary(card)
    current = names[treatment] if treatment >= 0 else None
    line, progressed = facts["line"], bool(facts["progressed"])

    anyway, now = [], []
    for rule in card.guideline:
        going_on = rule.regimen == current and not progressed
        known = {**facts, "line": line - 1, f"prior_{current}": False} if going_on else facts
        holds = not rule.when or bool(parse(rule.when, vocabulary).holds(known))
        if rule.regimen == current and progressed and rule.status in RECOMMENDED:
            holds = False
        anyway.append(holds)
        now.append(holds and (not rule.lines or line + (not going_on) in rule.lines))

    def said(statuses):
        return {rule.regimen for rule, holds in zip(card.guideline, now, strict=True) if holds and rule.status in statuses}

    against = said(("contraindicated", "not_recommended"))
    open_to = {name for name, can in zip(names, allowed, strict=True) if can} - against
    recommended = [rule for rule, holds in zip(card.guideline, now, strict=True) if holds and rule.status in RECOMMENDED]
    usable = [rule for rule in recommended if rule.regimen in open_to]
    first = next((rule.regimen for rule in usable), "best_supportive_care")
    if current in {rule.regimen for rule in usable} and not progressed:
        first = current
    nothing = not any(rule.regimen in active for rule in usable)
    blocked = current is not None and (not allowed[treatment] or current in said(("contraindicated",)))
    pause = bool(waiting) or (line > 0 and not progressed and (current is None or blocked))

    toxicity = {r.name: 1 - np.prod([1 - share for share in r.toxicity.values()]) for r in card.regimens}
    votes = dict.fromkeys(names, 0.0)
    for expert in card.experts:
        frail = bool(expert.frail) and bool(parse(expert.frail, vocabulary).holds(facts))
        rules = [
            rule
            for rule, holds in zip(card.guideline, anyway if expert.early else now, strict=True)
            if holds
            and rule.regimen in open_to
            and rule.status in expert.accepts
            and rule.status in RECOMMENDED
            and rule.level <= expert.level
            and not (frail and toxicity[rule.regimen] > expert.max_toxicity)
        ]
        resort = [rule for rule in rules if rule.regimen == "best_supportive_care" and not rule.when and not rule.lines]
        rules = [rule for rule in rules if rule not in resort]
        if current in {rule.regimen for rule in rules} and not progressed:
            rules = [r for r in rules if r.regimen == current or r.regimen not in active or "progressed" in r.when]
        if not any(rule.regimen in active for rule in rules):
            last = [r for r, holds in zip(card.guideline, anyway, strict=True) if holds and not r.when and not r.lines]
            rules += [r for r in last if r.regimen == "best_supportive_care"] if "best_supportive_care" in open_to else []
        for name in {rule.regimen for rule in rules}:
            votes[name] += 1 / len(card.experts)
    if pause:
        votes["drug_holiday"] = 1.0
    if nothing:
        votes["best_supportive_care"] = 1.0

    verdicts, points = [], []
    for name in names:
        rules = [rule for rule, holds in zip(card.guideline, now, strict=True) if holds and rule.regimen == name]
        usual = (name == "drug_holiday" and pause) or (name == "best_supportive_care" and nothing)
        pairs = [(r.status, r.level) for r in rules if r.status in RECOMMENDED] or [("later", "C")]
        worth = max(POINTS[status] * LEVEL_POINTS[level] for status, level in pairs)
        best = max(VERDICTS.index(status) for status, _ in pairs)
        if usual:
            worth, best = max(worth, POINTS["option"]), max(best, VERDICTS.index("option"))
        statuses = {rule.status for rule in rules}
        if "contraindicated" in statuses:
            verdict, value = "contraindicated", POINTS["contraindicated"]
        elif "not_recommended" in statuses:
            verdict, value = "not_recommended", POINTS["not_recommended"]
        elif votes[name] > 0:
            verdict, value = VERDICTS[best], votes[name] * worth
        else:
            verdict, value = "off_guideline", POINTS["off_guideline"]
        verdicts.append(verdict)
        points.append(value)
    shares = [0.0 if name in against else votes[name] for name in names]
    return names.index(first), pause, nothing, shares, verdicts, points


def heard(panel, regimens, xp, facts, treatment, allowed, waiting):
    """Everything the panel says, batch last: hearing, shares, options, and (R, n) codes, shares and points of every regimen."""
    hearing = panel.hear(xp, facts, treatment, allowed, waiting)
    opinions = [panel.opinion(xp, hearing, xp.full(treatment.shape, index, np.int32)) for index in range(regimens)]
    return hearing, panel.shares(xp, hearing), panel.options(xp, hearing), *map(xp.stack, zip(*opinions, strict=True))


@pytest.mark.parametrize("name", CARDS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.05, 0.15, 0.4]))
def test_bits_say_what_the_rules_say(name, seed, density):
    card, panel = LOADED[name], PANELS[name]
    facts, treatment, allowed, waiting = random_facts(card, seed, density, n=12)
    said = heard(panel, len(card.regimens), np, facts, treatment, allowed, waiting)
    hearing, shares, options, codes, said_shares, points = said
    for i in range(len(treatment)):
        one = {key: column[i] for key, column in facts.items()}
        *choice, votes, verdicts, worth = slow(card, one, treatment[i], allowed[:, i], waiting[i])
        assert [hearing.first[i], hearing.pause[i], hearing.nothing[i]] == choice
        np.testing.assert_allclose(shares[:, i], votes, atol=1e-6)
        np.testing.assert_allclose(said_shares[:, i], votes, atol=1e-6)
        assert options[:, i].tolist() == [share > 0 for share in votes]
        assert [VERDICTS[code] for code in codes[:, i]] == verdicts
        np.testing.assert_allclose(points[:, i], worth, atol=1e-6)


@pytest.mark.parametrize("name", CARDS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.05, 0.15, 0.4]))
def test_a_new_line_is_what_the_guideline_chooses(name, seed, density):
    """Before the first line, and after progression, the panel's first choice is :meth:`Guideline.first_choice`."""
    card, panel = LOADED[name], PANELS[name]
    facts, treatment, allowed, waiting = random_facts(card, seed, density)
    facts["progressed"] = treatment >= 0
    allowed[treatment[treatment >= 0], np.flatnonzero(treatment >= 0)] = False
    supportive = [regimen.name for regimen in card.regimens].index("best_supportive_care")
    hearing, _, _, codes, *_ = heard(panel, len(card.regimens), np, facts, treatment, allowed, waiting)
    assert np.array_equal(hearing.first, Guideline(card).first_choice(facts, allowed.T, supportive))
    against = np.zeros_like(allowed)
    for rule, row in zip(card.guideline, Guideline(card).matches(facts), strict=True):
        if rule.status not in RECOMMENDED:
            against[[regimen.name for regimen in card.regimens].index(rule.regimen)] |= row
    assert np.array_equal(codes <= VERDICTS.index("not_recommended"), against)


@pytest.mark.parametrize("name", CARDS)
def test_jax_says_what_numpy_says(name):
    card, panel = LOADED[name], PANELS[name]
    ask = functools.partial(heard, panel, len(card.regimens))
    compiled = jax.jit(functools.partial(ask, jnp))
    for seed, density in enumerate((0.05, 0.15, 0.4)):
        patients = random_facts(card, seed, density)
        for one, two in zip(jax.tree.leaves(ask(np, *patients)), jax.tree.leaves(compiled(*patients)), strict=True):
            np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(two, np.float64), atol=1e-6)


# ---------------------------------------------------------------- patients worked out by hand


def ask(card, regimen, on=None, waiting=False, closed=(), **known):
    """(verdict, share of experts, points) of a regimen for a fit patient of 60 of whom only this is ``known``."""
    hearing, panel = hearing_of(card, on, waiting, closed, known)
    opinion = panel.opinion(np, hearing, np.array([[one.name for one in card.regimens].index(regimen)], np.int32))
    return VERDICTS[opinion.code[0]], float(opinion.share[0]), round(float(opinion.points[0]), 6)


def hearing_of(card, on=None, waiting=False, closed=(), known=None):
    vocabulary = guideline_vocabulary(card)
    names = [one.name for one in card.regimens]
    facts = {name: np.array([-1]) if levels else np.array([0.0], np.float32) for name, levels in vocabulary.items()}
    facts.update({name: np.array([value]) for name, value in {"ecog": 1, "age": 60, "progressed": False}.items()})
    if on is not None:
        facts.update({"line": np.array([1.0]), f"prior_{on}": np.array([True])})
    for name, value in (known or {}).items():
        assert name in vocabulary, name
        levels = vocabulary[name]
        facts[name] = np.array([levels.index(value) if levels else value])
    allowed = np.array([[name not in closed] for name in names])
    treatment = np.array([-1 if on is None else names.index(on)], np.int32)
    panel = Panel(card)
    return panel.hear(np, facts, treatment, allowed, np.array([waiting])), panel


def accepted(card, **patient):
    """The acceptability region: regimen to share of experts."""
    hearing, panel = hearing_of(card, **patient)
    shares = panel.shares(np, hearing)[:, 0]
    return {regimen.name: float(share) for regimen, share in zip(card.regimens, shares, strict=True) if share > 0}


def first(card, **patient):
    return card.regimens[int(hearing_of(card, **patient)[0].first[0])].name


EGFR = {"known_ngs": True, "EGFR_L858R": True, "egfr_sensitising": True, "first_line_target": True}


def test_egfr_before_the_first_line(nsclc):
    assert first(nsclc, known=EGFR) == "osimertinib_platinum_pemetrexed"
    assert first(nsclc, known={**EGFR, "age": 80}) == "osimertinib"
    assert ask(nsclc, "osimertinib", **EGFR) == ("preferred", 1.0, 1.0)
    assert ask(nsclc, "gefitinib_erlotinib", **EGFR) == ("option", 1.0, 0.8)
    assert ask(nsclc, "pembrolizumab", **EGFR) == ("not_recommended", 0.0, -0.5)
    assert ask(nsclc, "selpercatinib", **EGFR) == ("not_recommended", 0.0, -0.5)
    assert ask(nsclc, "nivolumab_ipilimumab", **EGFR) == ("off_guideline", 0.0, -0.25)
    assert ask(nsclc, "nivolumab_ipilimumab", **EGFR, interstitial_lung_disease=True) == ("contraindicated", 0.0, -1.0)


def test_going_on_is_judged_as_when_it_began_until_progression(nsclc):
    for regimen, verdict in (("osimertinib", "preferred"), ("gefitinib_erlotinib", "option")):
        assert ask(nsclc, regimen, on=regimen, **EGFR)[0] == ask(nsclc, regimen, **EGFR)[0] == verdict
        assert first(nsclc, on=regimen, known=EGFR) == regimen
        assert ask(nsclc, regimen, on=regimen, **EGFR, progressed=True) == ("off_guideline", 0.0, -0.25)
    resistant = {**EGFR, "progressed": True, "marker_solvent_front": True}
    assert ask(nsclc, "osimertinib", on="osimertinib", **resistant)[0] == "not_recommended"


def test_a_line_that_works_is_not_left(nsclc):
    assert accepted(nsclc, on="osimertinib", known=EGFR) == {"osimertinib": 1.0}
    after = accepted(nsclc, on="osimertinib", known={**EGFR, "progressed": True})
    assert {"amivantamab_platinum_pemetrexed", "platinum_pemetrexed", "docetaxel"} <= set(after)
    assert "osimertinib" not in after
    assert ask(nsclc, "docetaxel", on="osimertinib", **EGFR) == ("off_guideline", 0.0, -0.25)
    assert ask(nsclc, "docetaxel", on="osimertinib", **EGFR, progressed=True) == ("later", 1.0, 0.6)


def test_a_rule_for_patients_without_progression_lets_them_switch():
    card = LOADED["breast"]
    known = {"hr_positive": True, "hormone_receptor": True, "marker_esr1_mutant": True}
    on = "palbociclib_letrozole"
    assert ask(card, "cdk46_fulvestrant", on=on, **known) == ("option", 1.0, 0.72)
    assert ask(card, "fulvestrant", on=on, **known)[0] == "off_guideline"
    assert ask(card, "fulvestrant", on=on, **known, progressed=True)[0] == "later"


def test_a_late_result_turns_the_panel_against_the_line(nsclc):
    on, unknown = "pembrolizumab_platinum_pemetrexed", {"smoking": "ever"}
    assert ask(nsclc, on, on=on, **unknown)[0] == "preferred"
    assert ask(nsclc, on, on=on, **unknown, **EGFR) == ("off_guideline", 0.0, -0.25)
    known = {**unknown, "known_ngs": True, "ALK": True, "first_line_target": True}
    assert first(nsclc, on=on, known=known) == "alectinib"
    assert ask(nsclc, "alectinib", on=on, **known)[0] == "later"


def test_the_trial_minded_expert_gives_later_options_early(nsclc):
    assert ask(nsclc, "docetaxel", **EGFR) == ("later", 0.25, 0.12)
    others = nsclc.model_copy(update={"experts": tuple(expert for expert in nsclc.experts if not expert.early)})
    assert ask(others, "docetaxel", **EGFR) == ("off_guideline", 0.0, -0.25)


def with_toxicity(card, shares):
    """The card with these shares of grade 3+ events."""
    changes = {name: {"toxicity": {"haematological": share}} for name, share in shares.items()}
    regimens = tuple(regimen.model_copy(update=changes.get(regimen.name)) for regimen in card.regimens)
    return card.model_copy(update={"regimens": regimens})


def test_the_cautious_expert_spares_the_frail(nsclc):
    card = with_toxicity(nsclc, {"platinum_pemetrexed": 0.9, "pembrolizumab": 0.2})
    known = {"known_ngs": True, "known_pdl1": True, "pdl1": "from_1_to_49"}
    assert ask(card, "platinum_pemetrexed", **known) == ("option", 1.0, 0.8)
    for frail in ({"age": 80}, {"ecog": 2}):
        assert ask(card, "platinum_pemetrexed", **known, **frail) == ("option", 0.75, 0.6)
        assert ask(card, "pembrolizumab", **known, **frail) == ("option", 1.0, 0.8)


def test_an_expert_with_nothing_else_to_give_accepts_supportive_care(nsclc):
    """A frail patient whose only options are toxic: three experts treat, the cautious one does not."""
    card = with_toxicity(nsclc, {regimen.name: 0.9 for regimen in nsclc.regimens if regimen.active})
    assert ask(card, "best_supportive_care", **EGFR) == ("off_guideline", 0.0, -0.25)
    assert ask(card, "best_supportive_care", **EGFR, age=80) == ("later", 0.25, 0.15)


def test_supportive_care_is_the_last_resort(card):
    active = [regimen.name for regimen in card.regimens if regimen.active]
    known = {"triple_negative": True} if card.id == "Breast" else {}
    assert ask(card, "best_supportive_care", **known) == ("off_guideline", 0.0, -0.25)
    assert ask(card, "best_supportive_care", closed=active, **known) == ("option", 1.0, 0.8)
    assert first(card, closed=active, known=known) == "best_supportive_care"


def test_waiting_for_a_result_is_accepted(card):
    assert ask(card, "drug_holiday") == ("off_guideline", 0.0, -0.25)
    assert ask(card, "drug_holiday", waiting=True) == ("option", 1.0, 0.8)


def test_a_pause_is_accepted_while_a_line_cannot_be_given(nsclc):
    assert ask(nsclc, "drug_holiday", on="osimertinib", **EGFR)[0] == "off_guideline"
    assert ask(nsclc, "drug_holiday", on="osimertinib", closed=["osimertinib"], **EGFR)[0] == "option"
    harmed = {**EGFR, "toxicity_pulmonary": 3.5}
    assert ask(nsclc, "osimertinib", on="osimertinib", **harmed) == ("contraindicated", 0.0, -1.0)
    assert ask(nsclc, "drug_holiday", on="osimertinib", **harmed)[0] == "option"
    progressed = {**harmed, "progressed": True}
    assert ask(nsclc, "drug_holiday", on="osimertinib", **progressed)[0] == "off_guideline"


def test_a_rule_on_the_number_of_lines_started(nsclc):
    """Immunotherapy may be paused in the first line, level B; not in the second."""
    assert ask(nsclc, "drug_holiday", on="pembrolizumab", known_ngs=True) == ("option", 1.0, 0.72)
    assert ask(nsclc, "drug_holiday", on="pembrolizumab", known_ngs=True, line=2.0)[0] == "off_guideline"


def test_a_condition_may_join_the_line_with_other_facts(nsclc):
    rule = Rule(regimen="docetaxel", when="age > 58 + 2 * line", status="preferred", level="A", source="estimate")
    card = nsclc.model_copy(update={"guideline": (rule,)})
    assert ask(card, "docetaxel", age=60)[0] == "preferred"
    assert ask(card, "docetaxel", on="docetaxel", age=60)[0] == "preferred", "as when the line began"
    assert ask(card, "docetaxel", on="osimertinib", age=60)[0] == "off_guideline"


def test_breast():
    card = LOADED["breast"]
    her2 = {"her2_positive": True}
    assert first(card, known=her2) == "trastuzumab_pertuzumab_docetaxel"
    assert ask(card, "trastuzumab_docetaxel", **her2)[0] == "option"
    assert ask(card, "letrozole", **her2)[0] == "not_recommended"
    luminal = {"hr_positive": True, "hormone_receptor": True}
    assert first(card, known=luminal) == "palbociclib_letrozole"
    assert ask(card, "chemotherapy", **luminal)[0] == "not_recommended"
    assert ask(card, "trastuzumab_deruxtecan", **luminal, toxicity_pulmonary=2.0)[0] == "contraindicated"


def test_colorectal():
    card = LOADED["colorectal"]
    wild = {"known_ngs": True, "known_msi": True, "left_sided": True}
    assert first(card, known=wild) == "panitumumab_folfox"
    assert ask(card, "folfox", **wild)[0] == "option"
    assert ask(card, "panitumumab_folfox", **{**wild, "left_sided": False})[0] == "not_recommended"
    assert ask(card, "panitumumab_folfox", **wild, RAS_mutant=True)[0] == "contraindicated"
    assert first(card, known={**wild, "RAS_mutant": True}) == "bevacizumab_doublet"
    assert first(card, known={"known_msi": True, "msi_high": True}) == "nivolumab_ipilimumab"


def test_melanoma():
    card = LOADED["melanoma"]
    mutant = {"known_ngs": True, "BRAF_V600": True, "ldh": "normal"}
    assert first(card, known=mutant) == "nivolumab_ipilimumab"
    assert first(card, known={**mutant, "autoimmune_disease": True}) == "dabrafenib_trametinib"
    assert ask(card, "dabrafenib_trametinib", **mutant)[0] == "option"
    assert ask(card, "dabrafenib_trametinib", known_ngs=True)[0] == "contraindicated"
    assert ask(card, "dacarbazine", **mutant)[0] == "not_recommended"
    assert ask(card, "nivolumab_ipilimumab", **mutant, toxicity_hepatic=3.5)[0] == "contraindicated"


# ---------------------------------------------------------------- conditions as clauses

ATOMS = ("a", "b", "c", "x > 1", "level == 'one'")
LEVELS = {"a": None, "b": None, "c": None, "x": None, "level": ("one", "two")}
conditions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        inner.map(lambda text: f"not ({text})")
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: " and ".join(f"({part})" for part in parts))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: " or ".join(f"({part})" for part in parts))
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(text=conditions, values=st.lists(st.booleans(), min_size=5, max_size=5))
def test_clauses_are_the_condition(text, values):
    a, b, c, x, level = values
    columns = {"a": a, "b": b, "c": c, "x": 2.0 if x else 0.0, "level": 0 if level else 1}
    truth = dict(zip(ATOMS, values, strict=True))
    by_clauses = any(all(truth[atom] == holds for atom, holds in clause) for clause in clauses_of(text))
    assert by_clauses == bool(parse(text, LEVELS).holds(columns))


def test_clauses_are_few():
    assert clauses_of("") == [frozenset()]
    assert clauses_of("a and not a") == []
    assert clauses_of("a or (a and b)") == [frozenset({("a", True)})]
    assert clauses_of("not (a or x > 1)") == [frozenset({("a", False), ("x > 1", False)})]


def test_a_condition_that_explodes_is_refused_at_once():
    """2^80 clauses if they were written out: a card may come from a stranger."""
    with pytest.raises(ValueError, match=f"more than {MOST} clauses"):
        clauses_of(" and ".join(f"(a{i} or b{i})" for i in range(80)))
