"""Journeys as clinical event graphs: from episodes and visits, to files and back, and as pictures."""

import copy
import itertools
import json
import re
from collections import defaultdict
from contextlib import suppress

import gymnasium as gym
import networkx as nx
import numpy as np
import pytest
from conftest import CARDS, edited_anywhere, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from onco_gym import CausalGenerator, load_card
from onco_gym.agents import GuidelineAgent, load_agent, read_episodes, rollout, write_episodes
from onco_gym.agents.observations import ObservationReader
from onco_gym.cards.checks import guideline_vocabulary
from onco_gym.interfaces.engine import make_engine
from onco_gym.interfaces.single import OncologyEnv, snapshots
from onco_gym.journeys.events import KINDS, JourneyError, check
from onco_gym.journeys.exchange import from_graphml, from_json, to_graphml, to_json
from onco_gym.journeys.graph import from_actions, from_episode, from_visits
from onco_gym.journeys.picture import LANES, draw, timeline
from onco_gym.journeys.validation import validate
from onco_gym.journeys.visits import Visit
from onco_gym.knowledge import Guideline
from onco_gym.knowledge.plausibility import history_problems


@pytest.fixture(scope="module")
def envs():
    return {name: OncologyEnv(name) for name in CARDS}


def play(env, choose, seed):
    """An episode; ``choose`` gets observation and mask. Returns the observations before each choice."""
    observation, info = env.reset(seed=seed)
    seen, over = [], False
    while not over:
        seen.append(observation)
        observation, _, died, ended, info = env.step(choose(observation, info["action_mask"]))
        over = died or ended
    return seen


def stubborn(env, seed, without=()):
    """Legal at random, mostly staying with what is given so that courses run to their last cycle."""
    rng, last = np.random.default_rng(seed), [0]
    open_to = np.array([name not in without for name in env.action_names])

    def choose(_, mask):
        if not (mask & open_to)[last[0]] or rng.random() < 0.12:
            last[0] = int(rng.choice(np.flatnonzero(mask & open_to)))
        return last[0]

    return choose


def causes(graph):
    return {(first, second) for first, second, relation in graph.edges(data="relation") if relation == "causes"}


def kinds(graph, kind):
    return [event for _, event in graph.nodes(data=True) if event["kind"] == kind]


def same(one, two):
    first, second = ((list(g.nodes(data=True)), list(g.edges(data=True)), g.graph) for g in (one, two))
    return first == second


@pytest.fixture(scope="module")
def lung_row():
    card = load_card("nsclc")
    return CausalGenerator(card).sample(1, seed=1, do={"driver": "EGFR_L858R", "squamous": False}).row(card, 0)


@pytest.fixture(scope="module")
def told(lung_row):
    """A short story with something of every kind."""
    tests, resistant = ("ngs", "pdl1"), {"progressed": True, "markers": ("solvent_front",)}
    return from_visits(
        load_card("nsclc"),
        lung_row,
        [
            Visit(0, tests=("pdl1",), diameter=100.0, change=0.0, ecog=1),
            Visit(1, "drug_holiday", tests=tests, ecog=1),
            Visit(2, "osimertinib", tests=tests, diameter=60.0, change=-0.4, ecog=1),
            Visit(3, "osimertinib", tests=tests, ecog=2, severe="pulmonary", grades={"pulmonary": 3.5}),
            Visit(4, "osimertinib", 0.0, tests=tests, ecog=1, diameter=90.0, change=-0.1, **resistant),
            Visit(5, "platinum_pemetrexed", tests=tests, ecog=1, severe="hepatic", grades={"hepatic": 3.5}, stopped=True),
            Visit(6, "best_supportive_care", tests=tests, ecog=1),
            Visit(7, "best_supportive_care", alive=False),
        ],
    )


# ---------------------------------------------------------------- what an episode becomes


@pytest.fixture(scope="module")
def followed(envs):
    """By card, (observations, snapshots, graph) of two patients treated by the guideline."""
    episodes = {}
    for name, env in envs.items():
        agent = GuidelineAgent(env.engine.card)
        for seed in (1, 2):
            seen = play(env, lambda observation, mask, agent=agent: int(agent.act(observation[None], mask[None])[0]), seed)
            history, _ = snapshots(env.engine, *env.origin, env.actions)
            episodes.setdefault(name, []).append((seen, history, from_episode(env)))
    return episodes


def test_an_episode_becomes_a_graph_of_what_happened(followed, card):
    names = [regimen.name for regimen in card.regimens]
    for _, history, graph in followed[card.id.lower()]:
        check(graph)
        assert validate(card, graph) == []
        given = [names[int(after.state.last[0])] for after in history[1:]]
        bars = sorted(kinds(graph, "treatment"), key=lambda event: event["cycle"])
        assert [event["name"] for event in bars for _ in range(event["until"] - event["cycle"])] == given
        assert len(kinds(graph, "scan")) == sum(s.state.since_scan[0] == 0 and s.state.alive[0] == 1 for s in history)
        assert len(kinds(graph, "toxicity")) == sum(int(s.state.held[0]) for s in history)
        final = max(graph.nodes.values(), key=lambda event: (event["cycle"], event["name"] in ("death", "end")))
        assert final["name"] == ("end" if history[-1].state.alive[0] else "death")
        assert final["week"] == (len(history) - 1) * card.cycle_weeks


def test_the_guideline_that_was_followed_is_the_source(followed, card):
    """The guideline agent gives nothing without a rule, so behind every treatment of its journeys stands one."""
    sources = defaultdict(set)
    for rule in card.guideline:
        sources[rule.regimen].update(rule.source)
    active = {regimen.name for regimen in card.regimens if regimen.active}
    given = [event for _, _, graph in followed[card.id.lower()] for event in kinds(graph, "treatment") if event["name"] in active]
    assert given
    for event in given:
        assert event["source"] in sources[event["name"]], event


def test_an_episode_under_way_has_a_graph_too(envs):
    env = envs["nsclc"]
    env.reset(seed=5)
    first = from_episode(env)
    assert {event["cycle"] for event in first.nodes.values()} == {0}
    assert not kinds(first, "treatment")
    env.step(1)
    graph = from_episode(env)
    assert set(first) <= set(graph)
    assert [event["name"] for event in kinds(graph, "treatment")] == ["drug_holiday"]
    wrapped = gym.wrappers.TimeLimit(env, 100)
    assert same(from_episode(wrapped), graph)


@pytest.mark.parametrize("kind", ["regimen", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("dose", "workflow"))])
def test_an_episode_of_a_rollout_has_the_graph_of_the_single_environment(kind, tmp_path):
    engine = make_engine("nsclc", kind=kind)
    episodes = rollout(engine, load_agent(engine, "guideline"), 6, seed=40)
    write_episodes(tmp_path / "episodes.json", engine, episodes, seed=40)
    script = read_episodes(tmp_path / "episodes.json", engine)
    env = OncologyEnv("nsclc", kind=kind)
    for i in (0, 3):
        row, key, actions = episodes.of(i)
        env.reset(seed=40 + i)
        assert env.origin == (row, key)
        for number, action in enumerate(actions):
            _, _, died, ended, _ = env.step(action)
            assert (died or ended) == (number == len(actions) - 1)
        graph = from_episode(env)
        assert same(from_actions(engine, row, key, actions), graph)
        assert same(from_actions(engine, *script.of(i)), graph)
        assert validate(engine.card, graph) == []
        assert {"death", "end"} & {event["name"] for event in kinds(graph, "outcome")}


def test_a_render_mode_changes_nothing():
    graphs = []
    for mode in (None, "ansi"):
        env = OncologyEnv("nsclc", render_mode=mode)
        play(env, stubborn(env, 3), 3)
        graphs.append(from_episode(env))
    assert same(*graphs)


def test_a_second_episode_has_a_graph_of_its_own(envs):
    env = envs["nsclc"]
    play(env, stubborn(env, 3), 3)
    first = from_episode(env)
    play(env, stubborn(env, 4), 4)
    second = from_episode(env)
    assert not same(first, second)
    play(env, stubborn(env, 3), 3)
    assert same(from_episode(env), first)


def test_without_a_patient_there_is_no_graph():
    refuses(JourneyError, r"no patient yet: call reset\(\) first", from_episode, OncologyEnv("nsclc"))
    refuses(JourneyError, "expected an environment of onco_gym", from_episode, "NSCLC")


# ---------------------------------------------------------------- causes


def test_causes_are_those_of_the_clinic(told):
    assert causes(told) == {
        ("test:pdl1@0", f"biomarker:pdl1={told.graph['patient']['pdl1']}@0"),
        *(("test:ngs@1", key) for key in told if key.endswith("@1") and key.startswith("biomarker")),
        ("biomarker:EGFR_L858R@1", "treatment:osimertinib@1"),
        ("treatment:osimertinib@1", "outcome:response@2"),
        ("scan:scan@2", "outcome:response@2"),
        ("treatment:osimertinib@1", "toxicity:pulmonary@3"),
        ("toxicity:pulmonary@3", "symptom:ecog@3"),
        ("treatment:osimertinib@1", "biomarker:solvent_front@4"),
        ("biomarker:solvent_front@4", "outcome:progression@4"),
        ("scan:scan@4", "outcome:progression@4"),
        ("biomarker:EGFR_L858R@1", "treatment:platinum_pemetrexed@4"),
        ("outcome:progression@4", "treatment:platinum_pemetrexed@4"),
        ("treatment:platinum_pemetrexed@4", "toxicity:hepatic@5"),
        ("toxicity:hepatic@5", "outcome:stopped@5"),
        ("outcome:stopped@5", "treatment:best_supportive_care@5"),
        ("outcome:progression@4", "outcome:death@7"),
    }


def test_events_know_when_how_sure_and_on_whose_word(told, nsclc):
    assert {event["kind"] for event in told.nodes.values()} == set(KINDS)
    scan, finding = told.nodes["scan:scan@2"], told.nodes["biomarker:EGFR_L858R@1"]
    assert (scan["week"], scan["value"], scan["source"]) == (6.0, 60.0, "simulation")
    assert scan["confidence"] == 1 - nsclc.observation.scan_error < 1
    assert (finding["label"], finding["confidence"]) == ("EGFR L858R", 1.0)
    assert finding["source"] in next(variable for variable in nsclc.variables if variable.name == "driver").source
    course = told.nodes["treatment:osimertinib@1"]
    assert (course["cycle"], course["until"], course["value"], course["source"]) == (1, 4, 2.0, "flaura")
    assert told.nodes["treatment:drug_holiday@0"]["source"] == "simulation"


def test_time_leads_from_the_first_event_to_the_last(told):
    assert nx.is_directed_acyclic_graph(told)
    order = list(told)
    assert [told.nodes[key]["cycle"] for key in order] == sorted(told.nodes[key]["cycle"] for key in order)
    assert all(told.has_edge(first, second) for first, second in itertools.pairwise(order))
    assert order[-1] == "outcome:death@7"


def test_the_rule_depends_on_what_was_found_and_had(lung_row, nsclc):
    """Markers, progression, and taking a line up again all change which rule stands behind a treatment."""
    ngs = {"tests": ("ngs",), "ecog": 1}
    had = [Visit(0, **ngs), Visit(1, "gefitinib_erlotinib", progressed=True, markers=("gatekeeper",), **ngs)]
    graph = from_visits(nsclc, lung_row, [*had, Visit(2, "osimertinib", **ngs)])
    assert graph.nodes["treatment:osimertinib@1"]["source"] == "aura3"
    assert ("biomarker:gatekeeper@1", "treatment:osimertinib@1") in causes(graph)
    # without the marker no rule of the card recommends it after gefitinib
    unfound = [had[0], Visit(1, "gefitinib_erlotinib", progressed=True, **ngs), Visit(2, "osimertinib", **ngs)]
    assert from_visits(nsclc, lung_row, unfound).nodes["treatment:osimertinib@1"]["source"] == "simulation"

    late = [Visit(0, ecog=1), Visit(1, "docetaxel", **ngs), Visit(2, "osimertinib", **ngs)]
    graph = from_visits(nsclc, lung_row, late)
    assert graph.nodes["treatment:osimertinib@1"]["source"] == "flaura", "a late result changes the line"
    assert ("biomarker:EGFR_L858R@1", "treatment:osimertinib@1") in causes(graph)

    again = [Visit(0, **ngs), Visit(1, "osimertinib", **ngs), Visit(2, "drug_holiday", **ngs), Visit(3, "osimertinib", **ngs)]
    assert from_visits(nsclc, lung_row, again).nodes["treatment:osimertinib@2"]["source"] == "flaura"

    other = {**lung_row, "driver": "none", "egfr_sensitising": False, "first_line_target": False, "route_gatekeeper": False}
    for progressed, source in ((False, "esmo_other"), (True, "simulation")):
        rest = [Visit(0, **ngs), Visit(1, "pembrolizumab", progressed=progressed, **ngs), Visit(2, "drug_holiday", **ngs)]
        assert from_visits(nsclc, other, rest).nodes["treatment:drug_holiday@1"]["source"] == source


@pytest.mark.parametrize("name", CARDS)
def test_rules_are_judged_by_what_was_seen(envs, name):
    """Under any legal play, a treatment's source is that of the first rule which the observation at its start matches."""
    env = envs[name]
    card = env.engine.card
    rules, knowledge, names = Guideline(card), ObservationReader(card), list(env.action_names)
    seen = play(env, stubborn(env, 7), 7)
    line = None
    for event in sorted(kinds(from_episode(env), "treatment"), key=lambda event: event["cycle"]):
        known = knowledge(seen[event["cycle"]][None])
        columns = {fact: known[fact] for fact in guideline_vocabulary(card)}
        active = card.regimens[names.index(event["name"])].active
        mine = rules.recommends & (rules.regimen == names.index(event["name"]))
        present = {**columns, "line": columns["line"] - 1}
        if active and event["name"] == line:
            columns = present
        matching = np.flatnonzero(rules.matches(columns)[:, 0] & mine)
        if not len(matching) and active and line and not known["progressed"][0]:
            matching = np.flatnonzero(rules.matches({**present, f"prior_{line}": np.zeros(1)})[:, 0] & mine)
        line = event["name"] if active else line
        allowed = card.guideline[matching[0]].source if len(matching) else ("simulation",)
        assert event["source"] in allowed, event


def test_progression_is_found_again_and_again(lung_row, nsclc):
    counts = (0, 1, 1, 2)
    visits = [Visit(0), *(Visit(i, "osimertinib", progressed=i > 0, progressions=n) for i, n in enumerate(counts) if i)]
    found = [event["cycle"] for event in kinds(from_visits(nsclc, lung_row, visits), "outcome")]
    assert found == [1, 3]


def test_progression_causes_one_change(lung_row, nsclc):
    visits = [Visit(0), Visit(1, "osimertinib", progressed=True)]
    visits += [Visit(cycle, ("drug_holiday", "best_supportive_care")[cycle % 2], progressed=True) for cycle in range(2, 8)]
    visits += [Visit(8, "docetaxel")]
    found = [second for first, second in causes(from_visits(nsclc, lung_row, visits)) if first == "outcome:progression@1"]
    assert sorted(found) == ["treatment:docetaxel@7", "treatment:drug_holiday@1"]


@pytest.mark.parametrize(
    ("visits", "message"),
    [
        ([], "there are no visits"),
        ([{"cycle": 0}], "visit 0 is dict, expected a Visit"),
        ([Visit(1, "docetaxel")], "visit 0: cycle is 1"),
        ([Visit(0), Visit(2, "docetaxel")], "visit 1: cycle is 2"),
        ([Visit(0), Visit(1)], "visit 1: given is None"),
        ([Visit(0, "docetaxel")], "visit 0: given is 'docetaxel'"),
        ([Visit(0), Visit(1, "aspirin")], "names regimen 'aspirin', expected one of"),
        ([Visit(0, tests=("xray",))], "names test 'xray', expected one of ngs, pdl1"),
        ([Visit(0, markers=("sensitive",))], "names clone 'sensitive'"),
        ([Visit(0), Visit(1, "docetaxel", severe="nose")], "names organ class 'nose'"),
        ([Visit(0), Visit(1, "docetaxel", dose=1.5)], "dose is 1.5, expected a share"),
        ([Visit(0), Visit(1, "docetaxel", alive=False), Visit(2, "docetaxel")], "visit 2 follows death"),
        ([Visit(0, diameter=float("nan"))], "value is nan"),
    ],
)
def test_visits_that_do_not_fit_are_refused(nsclc, lung_row, visits, message):
    with pytest.raises(JourneyError, match=message):
        from_visits(nsclc, lung_row, visits)


def test_a_patient_who_cannot_be_is_refused(nsclc, lung_row):
    with pytest.raises(JourneyError, match="driver is 'EGFR', expected one of"):
        from_visits(nsclc, {**lung_row, "driver": "EGFR"}, [Visit(0)])


# ---------------------------------------------------------------- plausibility


@pytest.mark.parametrize("name", CARDS)
def test_legal_play_is_plausible(envs, name):
    """Whatever the mask allows is plausible, but for drugs without a target, which the simulator gives if told to."""
    env = envs[name]
    card = env.engine.card
    for seed in range(4):
        env.reset(seed=seed)
        row = env.patient
        pointless = [r.name for r in card.regimens if history_problems(card, row, [(0, r.name)])]
        play(env, stubborn(env, seed, without=pointless), seed)
        assert validate(card, from_episode(env)) == []
        play(env, stubborn(env, seed), seed)
        assert all("has nothing to act on" in problem for problem in validate(card, from_episode(env)))


def changed(graph, key, **values):
    other = copy.deepcopy(graph)
    other.nodes[key].update(values)
    return other


def test_implausible_journeys_are_found(told, nsclc):
    assert validate(nsclc, told) == []
    header = copy.deepcopy(told)
    header.graph["patient"]["age"] = 300.0
    assert "age is 300, expected a number in 25..95 years" in validate(nsclc, header)
    header.graph["patient"] = {**told.graph["patient"], "driver": "ALK", "egfr_sensitising": False}
    problems = validate(nsclc, header)
    assert "EGFR_L858R is found at cycle 1, but the patient does not have it" in problems
    assert any(problem.startswith("cycle 1: osimertinib has nothing to act on") for problem in problems)
    course = "treatment:best_supportive_care@5"
    for other, message in [
        (changed(told, course, name="aspirin"), "'aspirin' is not a regimen of NSCLC"),
        (changed(told, course, name="osimertinib"), "osimertinib is resumed after the change to"),
        (changed(told, course, until=9, doses="1 1 1 1"), "given after death at cycle 7"),
        (changed(told, "test:ngs@1", name="xray"), "test 'xray' at cycle 1: expected one of ngs, pdl1"),
        (changed(told, "test:ngs@1", name="pdl1"), "EGFR_L858R is found at cycle 1, expected a result of ngs by then"),
        (changed(told, "symptom:ecog@0", source="hearsay"), "has source 'hearsay'"),
        (changed(told, "symptom:ecog@0", kind="rumour"), "kind is 'rumour', expected one of"),
        (changed(told, "outcome:response@2", name="death", label="Death"), "dies 2 times"),
    ]:
        assert any(message in problem for problem in validate(nsclc, other)), (message, validate(nsclc, other))
    assert validate(load_card("breast"), told) == ["the journey is from card 'NSCLC', expected 'Breast'"]


# ---------------------------------------------------------------- files


@st.composite
def stories(draw, card):
    """Visits of a random course, as a stranger might write them."""
    regimens, organs = [r.name for r in card.regimens], [o.name for o in card.organs]
    seen = {"dose": st.floats(0, 1), "diameter": st.none() | st.floats(0, 1000), "change": st.none() | st.floats(-1, 5)}
    seen |= dict.fromkeys(("progressed", "stopped", "alive"), st.booleans())
    seen |= {"severe": st.just("") | st.sampled_from(organs), "markers": st.sampled_from([(), (card.clones[-1].name,)])}
    seen["ecog"] = st.none() | st.integers(0, 4)
    visits = [Visit(0, tests=tuple(draw(st.sets(st.sampled_from([t.name for t in card.tests])))))]
    given = regimens[0]
    for cycle in range(1, draw(st.integers(1, 7))):
        given = draw(st.one_of(st.just(given), st.sampled_from(regimens)))
        visits.append(Visit(cycle, given, tests=visits[-1].tests, **draw(st.fixed_dictionaries(seen))))
        if not visits[-1].alive:
            break
    return visits


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(CARDS), seed=st.integers(0, 1000), data=st.data())
def test_files_keep_everything(name, seed, data):
    card = load_card(name)
    row = CausalGenerator(card).sample(1, seed=seed).row(card, 0)
    graph = from_visits(card, row, data.draw(stories(card)))
    assert same(from_json(to_json(graph)), graph)
    assert same(from_json(json.dumps(to_json(graph))), graph)
    assert same(from_json(json.dumps(to_json(graph)).encode()), graph)
    read = from_graphml(to_graphml(graph))
    assert same(read, graph)
    assert same(from_graphml(to_graphml(graph).encode()), graph)
    assert validate(card, read) == validate(card, graph)


def test_graphml_that_another_tool_has_saved(told):
    text = to_graphml(told)
    without = re.sub(r'<data key="d\d+" />', "", text)
    assert without != text
    assert same(from_graphml(f"<!-- saved by another tool -->{without}"), told)


def linked(first, second):
    """Adds a link between two events."""
    return lambda d: d["links"].append({"from": d["events"][first]["id"], "to": d["events"][second]["id"], "relation": "before"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "version is '2', expected 1"),
        (lambda d: d.update(version=True), "version is 'True', expected 1"),
        (lambda d: d.update(format="pickle"), "format is 'pickle', expected 'onco_gym journey'"),
        (lambda d: d.update(extra=1), "the journey has .*extra.*; expected"),
        (lambda d: d.pop("links"), "expected card, cycle_weeks, events"),
        (lambda d: d.update(events={}), "events is dict, expected a list"),
        (lambda d: d["events"].append(7), r"events\[\d+\] is int, expected a dictionary"),
        (lambda d: d["events"][0].pop("kind"), r"events\[0\] has"),
        (lambda d: d["events"][0].update(kind="rumour"), "kind is 'rumour', expected one of test, biomarker"),
        (lambda d: d["events"][0].update(kind=["test"]), "kind is .*, expected printable text"),
        (lambda d: d["events"][0].update(cycle=True), "cycle is True, expected a whole number"),
        (lambda d: d["events"][0].update(cycle=-1), "cycle is -1, expected a whole number"),
        (lambda d: d["events"][0].update(cycle=3, until=3), "week is 0, expected 9 for its cycle"),
        (lambda d: d["events"][0].update(confidence=1.2), "confidence is 1.2, expected a number in 0..1"),
        (lambda d: d["events"][0].update(confidence=float("nan")), "confidence is nan"),
        (lambda d: d["events"][0].update(week=10**400), "week is 1000"),
        (lambda d: d["events"][0].update(label="a\x00b"), "expected printable text"),
        (lambda d: d["events"][0].update(label="x" * 1000), "expected printable text"),
        (lambda d: d["events"][0].update(until=4), "until is 4, expected 0, or more for a treatment"),
        (lambda d: next(e for e in d["events"] if e["doses"]).update(doses="1 x"), "expected numbers separated by spaces"),
        (lambda d: next(e for e in d["events"] if e["doses"]).update(doses="3"), "expected a share for each of its cycles"),
        (lambda d: d["events"].append(d["events"][0]), "occurs twice"),
        (lambda d: d["links"][0].update({"from": "nobody"}), "a link's 'from' is 'nobody'"),
        (lambda d: d["links"].append(d["links"][0]), "occurs twice"),
        (lambda d: d["links"][0].update(relation="loves"), "expected relation as one of before, causes"),
        (lambda d: d["links"][0].update(relation=["before"]), "expected relation as one of before, causes"),
        (linked(-1, 0), "leads back in time, from cycle 7 to cycle 0"),
        (linked(1, 0), "the links form a cycle"),
        (lambda d: d["patient"].update(age=[1]), "patient 'age' is"),
        (lambda d: d.update(patient=None), "'patient' is None"),
        (lambda d: d.update(cycle_weeks=0), "'cycle_weeks' is 0"),
        (lambda d: d.update(events=[{}] * 10_001), "there are 10001 events, expected at most 10000"),
    ],
)
def test_what_is_not_a_journey_is_refused(told, change, message):
    data = json.loads(json.dumps(to_json(told)))
    change(data)
    with pytest.raises(JourneyError, match=message):
        from_json(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[1, 2]", "expected a dictionary, got list"),
        ('{"version": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe{", "not UTF-8"),
        (" " * 8_000_001, "expected at most 8000000"),
        (None, "expected a dictionary, got NoneType"),
        ("9" * 5000, "not JSON"),
    ],
)
def test_text_that_is_not_a_journey_is_refused(text, message):
    with pytest.raises(JourneyError, match=message):
        from_json(text)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


def test_graphml_with_entities_is_refused_before_it_is_parsed(told, monkeypatch):
    text = to_graphml(told)
    head, rest = text.split("\n", 1)
    monkeypatch.setattr(nx, "parse_graphml", lambda *_: pytest.fail("it was parsed"))
    for bad in (BOMB + text, f"{head}\n{BOMB}\n{rest}", text.replace("<node", "<![CDATA[x]]><node", 1)):
        refuses(JourneyError, "declares a document type", from_graphml, bad)
    refuses(JourneyError, "not UTF-8", from_graphml, (BOMB + text).encode("utf-16"))


def test_graphml_that_is_not_a_journey_is_refused(told):
    text = to_graphml(told)
    for bad, message in [
        ("", "not GraphML"),
        ("<graphml>", "not GraphML"),
        (text[: len(text) // 2], "not GraphML"),
        (text.replace('edgedefault="directed"', 'edgedefault="undirected"'), "undirected"),
        (text.replace(">test<", ">rumour<", 1), "kind is 'rumour'"),
        (text.replace(">1.0<", ">7.5<"), "expected"),
        ("\n".join(nx.generate_graphml(nx.path_graph(3, create_using=nx.DiGraph))), "format is 'None'"),
        (" " * 8_000_001, "expected at most 8000000"),
    ]:
        with pytest.raises(JourneyError, match=message):
            from_graphml(bad)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_no_edit_of_a_file_gets_past_the_check(told, data):
    """Anything anywhere in the dictionary: what comes back is a journey, or one clear error."""
    with suppress(JourneyError):
        check(from_json(data.draw(edited_anywhere(json.dumps(to_json(told))))))


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, 20_000), length=st.integers(0, 60), text=st.text(max_size=10))
def test_no_edit_of_a_text_gets_past_the_check(told, start, length, text):
    for written, read in ((to_graphml(told), from_graphml), (json.dumps(to_json(told)), from_json)):
        place = start % len(written)
        with suppress(JourneyError):
            check(read(written[:place] + text + written[place + length :]))


def test_only_journeys_are_written(told, tmp_path):
    broken = copy.deepcopy(told)
    broken.nodes["scan:scan@2"]["confidence"] = 3.0
    for write in (to_json, to_graphml, lambda graph: draw(tmp_path / "no.png", graph)):
        refuses(JourneyError, r"confidence is 3\.0", write, broken)
    refuses(JourneyError, r"expected a networkx\.DiGraph", to_json, nx.MultiDiGraph())
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- pictures


def test_the_picture_shows_every_event(told, tmp_path):
    figure = timeline(told)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    for lane in LANES.values():
        assert lane in texts
    for label in ("EGFR L858R", "Osimertinib 80 mg daily", "Best supportive care", "Death", "Progression", "pulmonary"):
        assert label in texts
    assert "60 mm" in texts
    assert "not for treating patients" in axes.get_xlabel()
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(causes(told))
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"journey.{ending}"
        draw(path, told)
        assert path.read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journey.pdf", "journey.png", "journey.svg"]


def test_labels_of_a_lane_do_not_run_into_each_other(envs):
    env = envs["nsclc"]
    play(env, stubborn(env, 2), 9)
    figure = timeline(from_episode(env))
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text() and text.get_fontsize() == 7.5]
    hits = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
    assert len(boxes) > 5
    assert not hits


def test_the_shortest_journey_can_be_drawn(nsclc, lung_row, tmp_path):
    draw(tmp_path / "one.png", from_visits(nsclc, lung_row, [Visit(0)]))
    draw(tmp_path / "none.png", from_visits(nsclc, {}, [Visit(0)]))
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())
