"""What a card knows: its evidence graph, the questions to it, and what it rules out."""

import networkx as nx
import numpy as np
import pytest
from conftest import CARDS, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym import CausalGenerator, load_card
from onco_gym.cards.schema import Bernoulli, Categorical, Derived, Discrete
from onco_gym.knowledge import Guideline
from onco_gym.knowledge.conditions import Conditions, with_flags
from onco_gym.knowledge.evidence import EvidenceGraph, guideline_columns
from onco_gym.knowledge.facts import KnowledgeError
from onco_gym.knowledge.plausibility import history_problems, implausible, patient_problems, targeted
from onco_gym.knowledge.relations import KINDS, mentions

GRAPHS = {name: EvidenceGraph(load_card(name)) for name in CARDS}
RELATIONS = {
    ("disease", "regimen"): {"treated_by"},
    ("regimen", "mechanism"): {"has_mechanism"},
    ("mechanism", "alteration"): {"acts_on", "modified_by"},
    ("alteration", "alteration"): {"implies"},
    ("alteration", "clone"): {"harbours"},
    ("clone", "mechanism"): {"resists"},
    ("rule", "regimen"): {"recommends", "discourages"},
    ("rule", "alteration"): {"requires"},
    ("rule", "clone"): {"requires"},
}


@pytest.fixture(params=CARDS)
def evidence(request):
    return GRAPHS[request.param]


@pytest.fixture
def lung():
    return GRAPHS["nsclc"]


def row_of(card, seed=0, **do):
    return CausalGenerator(card).sample(1, seed=seed, do=do or None).row(card, 0)


# ---------------------------------------------------------------- the graph


def test_nodes_and_edges_are_of_known_kinds(evidence):
    graph = evidence.graph
    assert set(nx.get_node_attributes(graph, "kind").values()) == set(KINDS)
    assert len(nx.get_node_attributes(graph, "kind")) == len(graph), "a node without a kind was made by a dangling edge"
    for first, second, relation in graph.edges(data="relation"):
        kinds = graph.nodes[first]["kind"], graph.nodes[second]["kind"]
        assert relation in ({"cites"} if kinds[1] == "source" else RELATIONS[kinds]), (first, second, relation)


def test_the_graph_carries_the_figures_of_the_card(evidence):
    card, graph = evidence.card, evidence.graph
    for regimen in card.regimens:
        edges = graph.out_edges(f"regimen:{regimen.name}", data=True)
        kill = {graph.nodes[mechanism]["name"]: edge["kill"] for _, mechanism, edge in edges if "kill" in edge}
        assert kill == regimen.kill
        assert graph.has_edge(f"disease:{card.id}", f"regimen:{regimen.name}")
    for clone in card.clones:
        for mechanism, share in clone.resistance.items():
            assert graph.edges[f"clone:{clone.name}", f"mechanism:{mechanism}"]["share"] == share
    for number, rule in enumerate(card.guideline):
        edge = graph.edges[f"rule:{number}", f"regimen:{rule.regimen}"]
        assert (edge["status"], edge["level"], edge["escat"], edge["when"]) == (rule.status, rule.level, rule.escat, rule.when)
        assert (edge["relation"] == "recommends") == (rule.status in ("preferred", "option", "later"))
    for kind, rows in (("mechanism", card.mechanisms), ("regimen", card.regimens), ("clone", card.clones)):
        for row in rows:
            cited = [graph.nodes[s]["name"] for _, s, r in graph.out_edges(f"{kind}:{row.name}", data="relation") if r == "cites"]
            assert cited == list(dict.fromkeys(row.source))


def test_what_can_be_tested_is_an_alteration(evidence):
    for variable in evidence.card.variables:
        if variable.test and isinstance(variable, Bernoulli | Derived):
            assert variable.name in evidence.alterations
        if variable.test and isinstance(variable, Categorical):
            assert set(variable.flags) <= set(evidence.alterations)
    assert not set(evidence.alterations) & {v.name for v in evidence.card.variables if v.tier != "biology"}


def test_same_card_same_graph_in_the_same_order(evidence):
    again = EvidenceGraph(evidence.card).graph
    assert list(again.nodes(data=True)) == list(evidence.graph.nodes(data=True))
    assert list(again.edges(data=True)) == list(evidence.graph.edges(data=True))


def test_the_graph_can_be_written(evidence, tmp_path):
    nx.write_graphml(evidence.graph, tmp_path / "evidence.graphml")
    read = nx.read_graphml(tmp_path / "evidence.graphml")
    assert set(read) == set(evidence.graph)
    assert set(read.edges) == set(evidence.graph.edges)


def test_conditions_are_read_with_their_sign(nsclc):
    assert mentions(nsclc, "ALK and not squamous and age > 70") == {"ALK": "present", "squamous": "absent"}
    assert mentions(nsclc, "not (ALK or pdl1 != 'from_50')") == {"ALK": "absent", "pdl1=from_50": "present"}
    assert mentions(nsclc, "(ALK and not RET) or (RET and not ALK)") == {"ALK": "either", "RET": "either"}
    assert mentions(nsclc, "driver in ['RET', 'none']") == {"RET": "present", "driver=none": "present"}
    assert mentions(nsclc, "marker_gatekeeper and smoking == 'ever'") == {"marker_gatekeeper": "present"}


def test_derived_alterations_follow_from_others(lung):
    assert lung.implied_by("egfr_sensitising") == ("EGFR_ex19del", "EGFR_L858R")
    assert "BRAF_V600E" in GRAPHS["melanoma"].implied_by("BRAF_V600")
    assert lung.implied_by("ALK") == ()


# ---------------------------------------------------------------- options and reasons


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(CARDS), seed=st.integers(0, 2**20), line=st.integers(1, 4), progressed=st.booleans(), data=st.data())
def test_reasons_are_what_the_guideline_says(name, seed, line, progressed, data):
    evidence = GRAPHS[name]
    card = evidence.card
    active = [regimen.name for regimen in card.regimens if regimen.active]
    prior = data.draw(st.lists(st.sampled_from(active), max_size=line - 1, unique=True))
    facts = {**row_of(card, seed), "progressed": progressed, **{f"prior_{regimen}": 4 for regimen in prior}}
    guideline, columns = Guideline(card), guideline_columns(card, facts, line)
    names = [regimen.name for regimen in card.regimens]
    matches = guideline.matches(columns)[:, 0]
    reasons = {name: evidence.why(name, facts, line) for name in names}
    for index, found in enumerate(reasons.values()):
        assert [reason.number for reason in found] == np.flatnonzero(matches & (guideline.regimen == index)).tolist()
        assert [reason.recommends for reason in found] == [guideline.recommends[reason.number] for reason in found]
    options = [name for name, found in reasons.items() if found and all(reason.recommends for reason in found)]
    choice = int(guideline.first_choice(columns, np.ones((1, len(names)), bool), -1)[0])
    assert (choice == -1 and not options) or names[choice] in options


def test_a_flag_is_enough_to_find_the_drug(lung):
    first, *_ = lung.why("osimertinib", {"EGFR_L858R": True, "ecog": 2, "age": 80}, line=1)
    assert (first.rule.status, first.rule.level, first.rule.escat) == ("preferred", "A", "I-A")
    assert first.alterations == ("egfr_sensitising",)


def test_reasons_name_rules_findings_and_citations(lung):
    facts = {"ALK": True, "brain_metastases": True, "marker_solvent_front": True}
    (against,) = [reason for reason in lung.why("alectinib", facts, 2) if not reason.recommends]
    assert against.rule.status == "not_recommended"
    assert against.alterations == ("ALK",)
    assert against.markers == ("solvent_front",)
    assert list(against.sources) == ["gainor2016"]
    text = str(against)
    assert "alectinib is not recommended (level B)" in text
    assert "solvent_front found" in text
    assert "Gainor Cancer Discov 2016" in text


def test_only_what_decided_is_named(lung):
    facts = {"MET_ex14": True, "ecog": 1}
    (reason,) = [r for r in lung.why("pembrolizumab_platinum_pemetrexed", facts, 2) if "BRAF_V600E or MET_ex14" in r.rule.when]
    assert reason.alterations == ("MET_ex14",)
    assert reason.absent == ("squamous",)


def test_what_is_not_known_recommends_nothing_that_needs_it(lung):
    untested = {"ecog": 1, "age": 60, "smoking": "ever"}
    regimens = [regimen.name for regimen in lung.card.regimens]
    recommended = {name for name in regimens if any(reason.recommends for reason in lung.why(name, untested, 1))}
    assert recommended
    assert not recommended & {"osimertinib", "alectinib"}
    known = lung.why("osimertinib", {"driver": "none"}, 1)
    assert known
    assert not any(reason.recommends for reason in known)
    assert lung.why("osimertinib", {}, 1) == [], "without a test there is nothing against it either"


@pytest.mark.parametrize(
    ("facts", "line", "message"),
    [
        ({"EGRF_L858R": True}, 1, "NSCLC has no fact 'EGRF_L858R'; expected some of age"),
        ({"driver": "EGFR"}, 1, "driver is 'EGFR', expected one of"),
        ({"ALK": "yes"}, 1, "ALK is 'yes', expected True or False"),
        ({"ALK": True, "driver": "RET"}, 1, "ALK is True, expected False since driver is 'RET'"),
        ({"driver": "ALK", "egfr_sensitising": True}, 1, "egfr_sensitising is True, expected False"),
        ({"age": -4}, 1, "age is -4, expected a number in 25..95"),
        ({"ecog": 7}, 1, "ecog is 7, expected a number in 0..4"),
        ({"toxicity_immune": float("nan")}, 1, "toxicity_immune is nan, expected a number in 0..5"),
        ({"line": 2}, 1, "expected it as a separate argument"),
        ({}, 0, "line is 0, expected a whole number from 1"),
        ({}, True, "line is True, expected a whole number from 1"),
    ],
)
def test_facts_that_cannot_be_are_refused(lung, facts, line, message):
    with pytest.raises(KnowledgeError, match=message):
        lung.why("osimertinib", facts, line)


def test_an_unknown_regimen_says_what_was_expected(lung):
    refuses(KnowledgeError, "NSCLC has no regimen 'aspirin'; expected one of best_supportive_care", lung.why, "aspirin", {}, 1)


# ---------------------------------------------------------------- patients that can be


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(CARDS), seed=st.integers(0, 2**32))
def test_patients_of_the_generator_are_plausible(name, seed):
    card = load_card(name)
    cohort = CausalGenerator(card).sample(400, seed=seed)
    assert not implausible(card, cohort.columns).any()
    assert patient_problems(card, cohort.row(card, seed % 400)) == []


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(CARDS), seed=st.integers(0, 2**20), data=st.data())
def test_one_by_one_and_all_at_once_agree(name, seed, data):
    card = load_card(name)
    cohort = CausalGenerator(card).sample(12, seed=seed)
    rng = np.random.default_rng(seed)
    for column in data.draw(st.lists(st.sampled_from(list(cohort.columns)), min_size=1, max_size=6, unique=True)):
        cohort.columns[column] = rng.permutation(cohort.columns[column])
    one_by_one = [bool(patient_problems(card, cohort.row(card, index))) for index in range(len(cohort))]
    assert one_by_one == implausible(card, cohort.columns).tolist()


def test_a_value_of_probability_0_is_impossible_and_only_that(card):
    """Every cause with a probability of exactly 0 or 1 on the card is found, whatever the disease."""
    cohort, found = CausalGenerator(card).sample(300, seed=3), 0
    on = Conditions(card, with_flags(card, cohort.columns), 300)
    for variable in card.variables:
        if isinstance(variable, Derived):
            changed = {**cohort.columns, variable.name: ~cohort.columns[variable.name]}
            assert implausible(card, changed).all(), variable.name
            found += 1
        elif isinstance(variable, Bernoulli):
            chance = on.value(variable.probability)
            columns = {variable.name: cohort.columns[variable.name], **{p: cohort.columns[p] for p in variable.parents}}
            assert np.array_equal(implausible(card, {**columns, variable.name: np.ones(300, bool)}), chance == 0)
            assert np.array_equal(implausible(card, {**columns, variable.name: np.zeros(300, bool)}), chance == 1)
            found += int((chance == 0).any())
        elif isinstance(variable, Discrete):
            assert not implausible(card, {variable.name: cohort.columns[variable.name]}).any()
    assert found or not any(isinstance(variable, Derived) for variable in card.variables)


def test_problems_name_the_variable_the_value_and_what_was_expected():
    card = load_card("breast")
    row = row_of(card, 2, subtype="triple_negative")
    assert patient_problems(card, row) == []
    cases = {
        "age is -3, expected a number in 20..98 years": {"age": -3},
        "age is nan, expected a finite number": {"age": float("nan")},
        "sex is 'other', expected one of ['female', 'male']": {"sex": "other"},
        "rural is 1, expected True or False": {"rural": 1},
        "deprivation is 2.5, expected one of [1.0, 2.0, 3.0, 4.0, 5.0]": {"deprivation": 2.5},
        "hormone_receptor is True, expected False given subtype 'triple_negative'": {"hormone_receptor": True},
        "her2_positive is True, expected False since subtype is 'triple_negative'": {"her2_positive": True},
        "treatment_delay_days is -1, expected a number in 0..120 days": {"treatment_delay_days": -1},
    }
    for message, change in cases.items():
        assert patient_problems(card, {**row, **change}) == [message]
    (unknown,) = patient_problems(card, {**row, "shoe_size": 43})
    assert unknown.startswith("'shoe_size' is not a variable of Breast; expected some of age")


def test_a_zero_weight_is_impossible(nsclc):
    pdl1 = next(variable for variable in nsclc.variables if variable.name == "pdl1")
    weights = tuple(one.model_copy(update={"weights": (0.0, *one.weights[1:])}) for one in pdl1.weights)
    other = pdl1.model_copy(update={"weights": weights})
    changed = nsclc.model_copy(update={"variables": tuple(other if one is pdl1 else one for one in nsclc.variables)})
    assert patient_problems(nsclc, {"driver": "ALK", "pdl1": "below_1"}) == []
    (problem,) = patient_problems(changed, {"driver": "ALK", "pdl1": "below_1"})
    assert problem == "pdl1 is 'below_1', expected one of ['from_1_to_49', 'from_50'] given driver 'ALK'"
    assert patient_problems(changed, {"pdl1": "below_1"}) == [], "with unknown parents nothing is ruled out"


def test_what_is_unknown_is_no_problem(card):
    assert patient_problems(card, {}) == []
    assert patient_problems(card, {variable.name: None for variable in card.variables}) == []


def test_columns_must_be_the_cards(nsclc):
    refuses(KnowledgeError, "no variable 'shoes' in NSCLC; expected some of age", implausible, nsclc, {"shoes": np.zeros(3)})
    with pytest.raises(KnowledgeError, match="expected columns of one length"):
        implausible(nsclc, {"age": np.full(3, 60.0), "rural": np.zeros(2, bool)})
    refuses(KnowledgeError, "expected numbers or level codes", implausible, nsclc, {"sex": np.array(["female"])})
    found = implausible(nsclc, {"age": np.array([60.0, np.nan, -1.0, 200.0]), "sex": np.array([0, 1, 2, 0])})
    assert found.tolist() == [False, True, True, True]


# ---------------------------------------------------------------- histories that can be


def test_a_plain_history_is_no_problem(card):
    regimen = next(regimen for regimen in card.regimens if regimen.active and not regimen.max_cycles)
    history = [*[regimen.name] * 6, "drug_holiday", regimen.name, "best_supportive_care"]
    assert history_problems(card, {}, list(enumerate(history)), death_cycle=9) == []
    assert history_problems(card, {}, []) == []


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([(0, "aspirin")], "cycle 0: 'aspirin' is not a regimen of NSCLC; expected one of best_supportive_care"),
        ([(-1, "docetaxel")], "cycle -1: docetaxel is given before the first visit, expected a cycle from 0"),
        ([(3, "docetaxel"), (2, "docetaxel")], "cycle 2: docetaxel comes after cycle 3 in the history, expected a cycle from 4"),
        ([(0, "docetaxel"), (1, "drug_holiday"), (2, "sotorasib"), (3, "docetaxel")], "cycle 3: docetaxel is resumed after the"),
        ([(cycle, "carboplatin_paclitaxel") for cycle in range(9)], "cycle 6: carboplatin_paclitaxel continues after 6 cycles,"),
        ([(20, "docetaxel")], "cycle 20: docetaxel is given after death at cycle 20, expected no treatment from then on"),
        ([(1.5, "docetaxel")], "entry 0 of the history is (1.5, 'docetaxel'), expected a whole number as the cycle"),
        ([(0, 7)], "entry 0 of the history is (0, 7), expected a name as the regimen"),
        ([(0, "docetaxel", 2.0)], "entry 0 of the history is (0, 'docetaxel', 2.0), expected a number in 0..1 as the dose"),
        (["docetaxel"], "entry 0 of the history is 'docetaxel', expected (cycle, regimen) or (cycle, regimen, dose)"),
    ],
)
def test_what_is_wrong_with_a_history_is_said_once(nsclc, history, message):
    (problem,) = history_problems(nsclc, {}, history, death_cycle=20)
    assert problem.startswith(message)


def test_held_cycles_do_not_count(nsclc):
    doses = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    history = [(cycle, "carboplatin_paclitaxel", dose) for cycle, dose in enumerate(doses)]
    assert history_problems(nsclc, {}, history) == []
    assert len(history_problems(nsclc, {}, [*history, (8, "carboplatin_paclitaxel", 1.0)])) == 1
    begun = [(0, "docetaxel", 0.3), (1, "sotorasib", 1.0), (2, "docetaxel", 1.0)]
    assert history_problems(nsclc, {}, begun) == [], "less than half a cycle does not close a line"


def test_a_drug_without_its_target(nsclc):
    history = [(0, "osimertinib"), (1, "osimertinib"), (2, "osimertinib_platinum_pemetrexed")]
    assert history_problems(nsclc, {"driver": "EGFR_L858R"}, history) == []
    assert history_problems(nsclc, {}, history) == [], "what is unknown rules nothing out"
    (problem,) = history_problems(nsclc, {"driver": "KRAS_G12C"}, history)
    expected = "expected EGFR_ex19del or EGFR_L858R or EGFR_ex20ins; the patient has driver 'KRAS_G12C'"
    assert problem == f"cycle 0: osimertinib has nothing to act on, {expected}"
    (later,) = history_problems(nsclc, {"driver": "KRAS_G12C"}, history, results={"ngs": 1})
    assert later.startswith("cycle 1: osimertinib"), "it is a problem from when the result is known"
    assert history_problems(nsclc, {"driver": "KRAS_G12C"}, history, results={}) == []


def test_targets_follow_from_the_card(card):
    """Whoever has no target by the card's own cases, and nobody else, is reported; no regimen is named in the code."""
    mechanisms = {mechanism.name: mechanism for mechanism in card.mechanisms}
    cohort, reported = CausalGenerator(card).sample(30, seed=11), 0
    on = Conditions(card, with_flags(card, cohort.columns), 30)
    for index in range(len(cohort)):
        row = cohort.row(card, index)
        for regimen in card.regimens:
            expected = bool(regimen.kill) and all(
                targeted(mechanisms[name]) and on.value(mechanisms[name].sensitivity)[index] <= 0.1 for name in regimen.kill
            )
            assert bool(history_problems(card, row, [(0, regimen.name)])) == expected, (row, regimen.name)
            reported += expected
    assert reported
