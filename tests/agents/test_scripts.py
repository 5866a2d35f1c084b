"""Episodes as files: written, read, refused where they are damaged or of something else, and played again to the last bit."""

import json
from contextlib import suppress

import gymnasium as gym
import jax
import numpy as np
import pytest
from conftest import edited_anywhere, open_keys, refuses
from hypothesis import given, settings
from hypothesis import strategies as st

import onco_gym as og
from onco_gym.agents import EpisodesError, Script, engine_of, load_agent, play, read_stamp, scripts
from onco_gym.interfaces.origins import Origin
from onco_gym.interfaces.registry import KINDS
from onco_gym.interfaces.stamp import StampError

N, SEED = 6, 100


@pytest.fixture(scope="module")
def played():
    """By kind, the engine and the episodes of an agent that draws."""
    engines = {kind: og.make_engine("nsclc", kind=kind) for kind in KINDS}
    return {kind: (engine, og.rollout(engine, load_agent(engine, "random", 1), N, SEED)) for kind, engine in engines.items()}


@pytest.fixture
def plain(played):
    return played["regimen"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "episodes.json"


def assert_same(one, other):
    """Everything of two rollouts, to the last bit."""
    assert vars(one).keys() == vars(other).keys()
    for a, b in zip(jax.tree.leaves(vars(one)), jax.tree.leaves(vars(other)), strict=True):
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        else:
            assert a == b


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_replays_to_the_last_bit(played, path, kind):
    engine, episodes = played[kind]
    og.write_episodes(path, engine, episodes, agent="random", seed=SEED)
    script = og.read_episodes(path, engine)
    assert (script.agent, script.seed, script.stamp, len(script)) == ("random", SEED, engine.stamp, N)
    assert script.actions.dtype == episodes.actions.dtype
    np.testing.assert_array_equal(script.actions, episodes.actions)
    np.testing.assert_array_equal(script.lengths, (episodes.given >= 0).sum(0))
    assert len(set(script.lengths)) > 1, "episodes of different lengths"
    for i in range(N):
        for one, other in zip(script.of(i), episodes.of(i), strict=True):
            np.testing.assert_array_equal(one, other)
    again = og.replay(engine, og.read_episodes(path, engine))
    assert_same(again, episodes)
    assert_same(og.replay(engine, again), episodes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_plain(played, path, kind):
    engine, episodes = played[kind]
    og.write_episodes(path, engine, episodes, agent="random")
    content = json.loads(path.read_text())
    assert list(content) == ["format", "stamp", "agent", "seed", "episodes"]
    assert content["format"] == "onco_gym episodes 3"
    made_with = {"environment", "card_digest", "split", "cohort_digest", "weights", "horizon", "decide", "terms", "version"}
    assert set(content["stamp"]) == made_with
    assert (content["agent"], content["seed"]) == ("random", None)
    first = content["episodes"][0]
    assert list(first) == ["row", "key", "actions"]
    assert (first["row"], first["key"]) == episodes.of(0)[:2]
    if kind == "regimen":
        assert first["actions"] == [engine.scenario.regimens[action] for action in episodes.of(0)[2]]
    else:
        np.testing.assert_array_equal(first["actions"], episodes.of(0)[2])


def test_any_patients_with_any_chance(plain, path):
    engine, _ = plain
    origin = Origin(np.array([3, 3, 16_383, 0, 0, 3], np.int32), open_keys(6))
    episodes = play(engine, load_agent(engine, "random", 2), origin)
    og.write_episodes(path, engine, episodes)
    assert_same(og.replay(engine, og.read_episodes(path, engine)), episodes)


def test_a_script_is_written_as_it_was_read(plain, path, tmp_path):
    engine, episodes = plain
    og.write_episodes(path, engine, episodes, agent="random", seed=np.int64(SEED))
    og.write_episodes(tmp_path / "again.json", engine, og.read_episodes(path, engine))
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_cited_episode_is_that_of_the_single_environment(plain, path):
    engine, episodes = plain
    og.write_episodes(path, engine, episodes, seed=SEED)
    row, key, actions = og.read_episodes(path, engine).of(2)
    env = gym.make("onco_gym/NSCLC-v0", disable_env_checker=True)
    given = []
    env.reset(options={"patient": row, "key": key})
    for action in actions:
        _, _, _, _, info = env.step(action)
        given.append(info["given"])
    assert env.unwrapped.ended
    assert given == [engine.scenario.regimens[regimen] for regimen in episodes.given[:, 2] if regimen >= 0]
    env.reset(seed=SEED + 2)
    assert env.unwrapped.origin == (row, key)


def test_patients_of_ones_own(plain, path, tmp_path):
    engine, _ = plain
    cohort = engine.generator.sample(40, seed=9)
    own = og.make_engine("nsclc", cohort)
    episodes = og.rollout(own, load_agent(own, "guideline"), N, SEED)
    og.write_episodes(path, own, episodes, seed=SEED)
    og.write_cohort(tmp_path / "cohort.parquet", cohort, own.card)
    for same in (own, og.make_engine("nsclc", tmp_path / "cohort.parquet"), engine_of(path, cohort=cohort)):
        assert_same(og.replay(same, og.read_episodes(path, same)), episodes)
    other = og.make_engine("nsclc", engine.generator.sample(40, seed=10))
    for wrong, what in ((engine, "split"), (other, "cohort_digest")):
        said = rf"episodes\.json: the results were made with {what} '\w+', but the engine has"
        refuses(EpisodesError, said, og.read_episodes, path, wrong)
        refuses(StampError, f"made with {what}", og.replay, wrong, episodes)
    refuses(EpisodesError, "split", engine_of, path)


# ---------------------------------------------------------------- something else


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"environment": "melanoma"}, "environment 'onco_gym/NSCLC-v0', but the engine has 'onco_gym/Melanoma-v0'"),
        ({"kind": "dose"}, "environment"),
        ({"weights": {"carbon": 0.5}}, "weights"),
        ({"horizon": 7}, "horizon"),
    ],
)
def test_episodes_of_another_engine_are_refused(plain, path, other, said):
    engine, episodes = plain
    og.write_episodes(path, engine, episodes)
    another = og.make_engine(**{"environment": "nsclc", **other})
    refuses(EpisodesError, said, og.read_episodes, path, another)
    for refused in (lambda: og.replay(another, episodes), lambda: og.write_episodes(path, another, episodes)):
        refuses(StampError, said, refused)
    assert_same(og.replay(engine, og.read_episodes(path, engine)), episodes)  # the file is as it was


def test_the_engine_is_found_by_the_file(path, tmp_path):
    engine = og.make_engine("melanoma", weights={"carbon": 0.25}, horizon=3, kind="workflow")
    og.write_episodes(path, engine, _script(engine))
    assert read_stamp(path) == engine.stamp
    assert engine_of(path) is engine
    card = (og.cards.folder.cards_folder() / "melanoma.toml").read_text()
    (tmp_path / "own.toml").write_text(card.replace('id = "Melanoma"', 'id = "Own"', 1))
    own = og.make_engine(tmp_path / "own.toml", weights={"carbon": 0.25}, horizon=3, kind="dose")
    og.write_episodes(path, own, _script(own))
    refuses(EpisodesError, r"no environment or card 'onco_gym/Own-Dose-v0'.*expected the path of a card", engine_of, path)
    assert engine_of(path, tmp_path / "own.toml").stamp == own.stamp
    assert engine_of(path, own.card).stamp == own.stamp
    refuses(EpisodesError, "made with environment 'onco_gym/Own-Dose-v0'", engine_of, path, "melanoma")


def _script(engine):
    """An episode of one step."""
    size = engine.kind.space.shape[0]
    actions = np.zeros((1, 1, size), np.float32 if engine.kind.name == "dose" else np.int32)
    return Script(engine.stamp, engine.origins(1, 0), actions, "nobody", 0)


@pytest.mark.parametrize(("name", "value"), [("weights", {"luck": 1.0}), ("weights", {"carbon": float("nan")}), ("horizon", -1)])
def test_a_stamp_that_no_engine_has(plain, path, name, value):
    og.write_episodes(path, *plain)
    edit(path, lambda content: content["stamp"].update({name: value}))
    refuses(EpisodesError, rf"episodes\.json: .*{'weight' if name == 'weights' else name}", engine_of, path)
    refuses(EpisodesError, rf"episodes\.json: the results were made with {name}", og.read_episodes, path, plain[0])


# ---------------------------------------------------------------- damage


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def first(name, value):
    """Set something of the first episode."""
    return lambda content: content["episodes"][0].__setitem__(name, value)


def action(value, part=None):
    """Set the first action of the first episode, or a part of it."""
    if part is None:
        return lambda content: content["episodes"][0]["actions"].__setitem__(0, value)
    return lambda content: content["episodes"][0]["actions"][0].__setitem__(part, value)


HUGE = 10**400

DAMAGE = [
    ("regimen", lambda c: c.update(format="onco_gym episodes 1"), "its format is 'onco_gym episodes 1', expected"),
    ("regimen", lambda c: c.pop("stamp"), "the stamp is not an object with environment"),
    ("regimen", lambda c: c["stamp"].update(card_digest="0" * 16), "made with card_digest '0000000000000000'"),
    ("regimen", lambda c: c.update(agent="a" * 10_000), "expected printable text"),
    ("regimen", lambda c: c.update(seed=True), "seed is True, expected a whole number"),
    ("regimen", lambda c: c.update(seed=-1), "seed is -1, expected a whole number"),
    ("regimen", lambda c: c.update(seed=2**64 - 1), "expected a whole number"),
    ("regimen", lambda c: c.update(seed=SEED + 1), f"the patients are not those of seed {SEED + 1}"),
    ("regimen", lambda c: c["episodes"].pop(0), f"the patients are not those of seed {SEED}"),
    ("regimen", lambda c: c.update(episodes=[]), "holds no episode"),
    ("regimen", lambda c: c.update(episodes={}), "holds no episode"),
    ("regimen", lambda c: c["episodes"].append(3), "holds no episode: expected a list of objects"),
    ("regimen", first("row", None), "episode 0: row is None, expected a whole number from 0 to 16383"),
    ("regimen", first("row", 16_384), "episode 0: row is 16384"),
    ("regimen", first("row", HUGE), "episode 0: row is 1000"),
    ("regimen", first("key", 2**32), "episode 0: key is 4294967296, expected 16 or 64 hexadecimal digits"),
    ("regimen", first("key", "0" * 64), "some keys are open and some are sealed"),
    ("regimen", first("actions", "osimertinib"), "episode 0 has actions 'osimertinib', expected a list"),
    ("regimen", first("actions", []), "episode 0 has 0 actions, expected a list of 1 to"),
    ("regimen", first("actions", ["osimertinib"] * 5000), "episode 0 has 5,000 actions"),
    ("regimen", action("osimertinb"), r"action 1: the card has no regimen 'osimertinb' \(did you mean 'osimertinib'\?\)"),
    ("regimen", action(["osimertinib"]), r"the card has no regimen \['osimertinib'\]"),
    ("dose", action(float("nan"), 0), r"episode 0: the action has intensities outside 0\.\.1 or NaN"),
    ("dose", action(HUGE, 0), "episode 0: "),
    ("dose", action(True, 0), "episode 0: its actions are not lists of numbers"),
    ("dose", action(0.5), "episode 0: its actions are not lists of numbers"),
    ("dose", action([0.5]), "episode 0: the action is not an array"),
    ("workflow", action(99, 0), "episode 0: ngs is 99"),
    ("workflow", action(HUGE, 0), "episode 0: the action is object"),
    ("workflow", action([0, 1]), "episode 0: its actions do not make an array of numbers"),
]


@pytest.mark.parametrize(("kind", "change", "said"), DAMAGE)
def test_a_damaged_file_gives_one_clear_error(played, path, kind, change, said):
    engine, episodes = played[kind]
    og.write_episodes(path, engine, episodes, agent="random", seed=SEED)
    edit(path, change)
    with pytest.raises(EpisodesError, match=said) as error:
        og.read_episodes(path, engine)
    assert str(error.value).startswith(f"{path}: ")
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\x80\x04\x95\x10.", b"[" * 100_000, b"9" * 5000])
def test_what_is_not_a_file_of_episodes(plain, path, content):
    path.write_bytes(content)
    for read in (lambda: og.read_episodes(path, plain[0]), lambda: read_stamp(path), lambda: engine_of(path)):
        with pytest.raises(EpisodesError, match=r"episodes\.json: is not a file of episodes"):
            read()


def test_files_that_cannot_be_read(plain, tmp_path):
    for path, said in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(EpisodesError, match=f"cannot be read: {said}"):
            og.read_episodes(path, plain[0])


@pytest.mark.parametrize("kind", KINDS)
def test_no_part_of_a_file_is_a_file(played, path, kind):
    engine, episodes = played[kind]
    og.write_episodes(path, engine, episodes)
    whole = path.read_bytes()
    for length in (*range(0, 400, 7), *np.linspace(400, len(whole) - 3, 40, dtype=int)):
        path.write_bytes(whole[:length])
        with pytest.raises(EpisodesError, match="is not a file of episodes"):
            og.read_episodes(path, engine)


def test_a_file_beyond_all_bounds_is_neither_written_nor_read(plain, path, monkeypatch):
    og.write_episodes(path, *plain)
    monkeypatch.setattr(scripts, "MOST", 10)
    for refused in (lambda: og.write_episodes(path, *plain), lambda: og.read_episodes(path, plain[0])):
        with pytest.raises(EpisodesError, match=r"6 episodes of up to \d+ steps are more than 10 steps"):
            refused()


def test_nothing_is_written_that_could_not_be_read(plain, path):
    engine, episodes = plain
    for name, value, said in (
        ("seed", SEED + 1, "the patients are not those of seed 101"),
        ("seed", -1, "seed is -1"),
        ("agent", "", "agent is ''"),
        ("agent", None, "agent is None"),
        ("agent", "two\nlines", "expected printable text"),
    ):
        with pytest.raises(EpisodesError, match=said):
            og.write_episodes(path, engine, episodes, **{name: value})
    assert not path.exists()


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(list(KINDS)), data=st.data())
def test_no_edit_gets_past_the_reader(played, tmp_path_factory, kind, data):
    """Anything anywhere in the file: what comes back can be played, or there is one clear error."""
    engine, episodes = played[kind]
    path = tmp_path_factory.getbasetemp() / "edited.json"
    og.write_episodes(path, engine, episodes, seed=SEED)
    path.write_text(json.dumps(data.draw(edited_anywhere(path.read_text()))))
    with suppress(EpisodesError):
        script = og.read_episodes(path, engine)
        assert (script.origin.row < len(engine.cohort)).all()
        for step, lived in zip(script.actions, np.arange(len(script.actions))[:, None] < script.lengths, strict=True):
            engine.kind.checked(step[lived], int(lived.sum()))


# ---------------------------------------------------------------- edited by hand


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_ends_with_its_last_action(played, path, kind):
    """A file that was cut or lengthened by hand can be read, but is not what was played."""
    engine, episodes = played[kind]
    og.write_episodes(path, engine, episodes, seed=SEED)
    lengths = (episodes.given >= 0).sum(0)
    died = int(np.flatnonzero(episodes.died & (lengths > 1))[0])
    content, length = json.loads(path.read_text()), lengths[died]
    actions = content["episodes"][died]["actions"]
    for changed, said in (
        (actions[:-1], f"episode {died} has {length - 1} actions, and does not end with the last of them"),
        ([*actions, actions[-1]], f"episode {died} has {length + 1} actions, and ends after {length}"),
    ):
        content["episodes"][died]["actions"] = changed
        path.write_text(json.dumps(content))
        refuses(EpisodesError, said, og.replay, engine, og.read_episodes(path, engine))


def test_all_episodes_cut_short(plain, path):
    engine, episodes = plain
    og.write_episodes(path, engine, episodes)
    edit(path, lambda content: [row.update(actions=row["actions"][:1]) for row in content["episodes"]])
    with pytest.raises(EpisodesError, match="episode 0 has 1 actions, and does not end with the last of them"):
        og.replay(engine, og.read_episodes(path, engine))


def test_other_actions_are_other_episodes(plain, path):
    """What a file says is what is played."""
    engine, episodes = plain
    og.write_episodes(path, engine, episodes)
    script = og.read_episodes(path, engine)
    never = play(engine, load_agent(engine, "best_supportive_care"), script.origin)
    og.write_episodes(path, engine, never)
    assert_same(og.replay(engine, og.read_episodes(path, engine)), never)
    assert not np.array_equal(never.returns, episodes.returns)
