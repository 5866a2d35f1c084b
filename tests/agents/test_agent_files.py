"""Agents from files and modules: what is loaded, what is refused, and that an exported policy is the model's."""

import itertools
import re
import warnings
import zipfile

import numpy as np
import pytest
import torch
from conftest import refuses
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize

import onco_gym
from onco_gym.agents import AgentError, GuidelineAgent, OnnxAgent, RandomAgent, Sb3Agent, export, load_agent, rollout
from onco_gym.agents import sb3 as sb3_module
from onco_gym.agents.onnxfile import Normalisation, Operator, choose, save_mlp_onnx, written
from onco_gym.interfaces.engine import make_engine
from onco_gym.version import __version__

N = 64
SETTINGS = {"terms": ("outcome",), "horizon": 40}
ENDS = {"regimen": "", "dose": "-Dose", "workflow": "-Workflow"}
SMALL = {"n_steps": 2, "batch_size": 64, "seed": 0, "device": "cpu"}
LEARNERS = {"seed": 0, "device": "cpu", "buffer_size": 1000}


@pytest.fixture(autouse=True)
def _quiet():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unpickled.*")
        yield
    torch.set_num_threads(before)


def engine_of(kind="regimen"):
    return make_engine("nsclc", kind=kind, **SETTINGS)


def env_of(kind="regimen"):
    return onco_gym.make_sb3(f"onco_gym/NSCLC{ENDS[kind]}-v0", N, seed=0, **SETTINGS)


def seen(engine, n=200, seed=0):
    """Observations and masks as they might be."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, engine.kind.mask_size)) < 0.6
    mask[:, -1] = True
    ends = np.cumsum(getattr(engine.kind.space, "nvec", [engine.kind.mask_size]))
    mask[:, ends - 1] = True  # something can be chosen in every part
    return rng.random((n, len(engine.kind.fields)), np.float32), mask


def layers_of(engine, width=16, seed=0, out=None):
    rng = np.random.default_rng(seed)
    sizes = [len(engine.kind.fields), width, engine.kind.mask_size if out is None else out]
    return [(rng.normal(size=(a, b)) / np.sqrt(a), rng.normal(size=b)) for a, b in itertools.pairwise(sizes)]


def forward(layers, x, activation=np.tanh):
    for index, (weights, biases) in enumerate(layers):
        x = (activation(x) if index else x) @ weights + biases
    return x


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.onnx"
    save_mlp_onnx(path, engine_of(), layers_of(engine_of()))
    return path


# Policy files


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_perceptron_is_written_and_read(tmp_path, kind, activation):
    engine, path = engine_of(kind), tmp_path / "policy.onnx"
    layers = layers_of(engine)
    mean, std = np.linspace(0, 1, len(engine.kind.fields)), np.linspace(0.1, 2, len(engine.kind.fields))
    save_mlp_onnx(path, engine, layers, activation, Normalisation(mean, std, 3.0))
    agent, (observation, mask) = OnnxAgent(engine, path), seen(engine)
    function = np.tanh if activation == "tanh" else lambda x: np.maximum(x, 0)
    expected = forward(layers, np.clip((observation - mean) / std, -3, 3), function)
    np.testing.assert_allclose(agent.scores(observation), expected, atol=1e-4)
    action = agent.act(observation, mask)
    engine.kind.checked(action, len(observation))
    if kind == "regimen":
        np.testing.assert_array_equal(action, np.where(mask, expected, -np.inf).argmax(1))
    if kind == "dose":
        np.testing.assert_allclose(action, np.clip(expected, 0, 1), atol=1e-4)
    if kind == "workflow":
        ends = np.cumsum(engine.kind.space.nvec)
        for part, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            best = np.where(mask, expected, -np.inf)[:, begin:end].argmax(1)
            np.testing.assert_array_equal(action[:, part], best)
    labels = {"environment": f"onco_gym/NSCLC{ENDS[kind]}-v0", "card_digest": engine.scenario.digest, "onco_gym": __version__}
    assert agent.metadata == labels


@pytest.mark.parametrize("kind", ENDS)
def test_a_batch_is_answered_as_its_patients_one_by_one(tmp_path, kind):
    engine, path = engine_of(kind), tmp_path / "policy.onnx"
    save_mlp_onnx(path, engine, layers_of(engine, 64))
    agent, (observation, mask) = OnnxAgent(engine, path), seen(engine)
    whole = agent.act(observation, mask)
    for size in (1, 7):
        pieces = [agent.act(observation[i : i + size], mask[i : i + size]) for i in range(0, len(mask), size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(OnnxAgent(engine, path.read_bytes()).act(observation, mask), whole)


def test_the_same_policy_is_the_same_file(policy, tmp_path):
    save_mlp_onnx(tmp_path / "again.onnx", engine_of(), layers_of(engine_of()))
    assert policy.read_bytes() == (tmp_path / "again.onnx").read_bytes()


def test_settings_are_written_as_fractions():
    """A network can have ELU(alpha=1), whose setting is a whole number."""
    engine, (weights, biases) = engine_of(), (np.eye(113, 21), np.zeros(21))
    content = written([Operator("Gemm", (weights, biases)), Operator("Elu", (), {"alpha": 2})], engine)
    answer = OnnxAgent(engine, content).scores(np.full((2, 113), -1.0, np.float32))
    np.testing.assert_allclose(answer, 2 * np.expm1(-1.0), rtol=1e-5)


def test_probabilities_are_those_of_a_certain_choice(policy, tmp_path):
    engine = engine_of()
    agent, (observation, mask) = OnnxAgent(engine, policy), seen(engine)
    share = agent.probabilities(observation, mask)
    assert share.shape == mask.shape
    assert (share.sum(1) == 1).all()
    np.testing.assert_array_equal(share.argmax(1), agent.act(observation, mask))
    assert mask[np.arange(len(mask)), share.argmax(1)].all()
    save_mlp_onnx(tmp_path / "dose.onnx", engine_of("dose"), layers_of(engine_of("dose")))
    with pytest.raises(AgentError, match="probabilities are only defined for regimens"):
        OnnxAgent(engine_of("dose"), tmp_path / "dose.onnx").probabilities(*seen(engine_of("dose")))


def test_layers_that_do_not_fit(tmp_path):
    engine, path = engine_of(), tmp_path / "policy.onnx"
    good = layers_of(engine)
    for layers, message in (
        (layers_of(engine, out=3), "returns 3 numbers, expected 21"),
        ([], "returns 113 numbers"),
        (good[1:], "layer 0 has"),
        ([good[0], (good[1][0], good[1][1][:2])], "layer 1 has"),
    ):
        refuses(AgentError, message, save_mlp_onnx, path, engine, layers)
    refuses(AgentError, "activation is 'sine'", save_mlp_onnx, path, engine, good, "sine")
    weights, biases = good[1]
    refuses(AgentError, "not finite", save_mlp_onnx, path, engine, [good[0], (weights * np.nan, biases)])
    assert not any(tmp_path.iterdir()), "nothing is left of what failed"


def test_a_policy_of_another_environment_is_refused(policy, tmp_path):
    with pytest.raises(AgentError, match=r"takes float32 of shape \('n', 113\).*Breast.*\(n, \d+\)"):
        load_agent(make_engine("breast", terms=("outcome",)), str(policy))
    with pytest.raises(AgentError, match="needs input 'observation' and output 'action'"):
        load_agent(engine_of("dose"), str(policy))


def test_a_policy_made_for_another_card_of_the_same_shape_is_told(tmp_path):
    engine, other = engine_of(), engine_of().card.model_copy(update={"id": "Mine"})
    save_mlp_onnx(tmp_path / "mine.onnx", make_engine(other, terms=("outcome",)), layers_of(engine))
    with pytest.warns(UserWarning, match=r"made for onco_gym/Mine-v0 but is used on onco_gym/NSCLC-v0"):
        OnnxAgent(engine, tmp_path / "mine.onnx")


def test_output_of_the_wrong_width(tmp_path):
    engine = engine_of()
    content = written([Operator("Gemm", pair) for pair in layers_of(engine, out=7)[:1]], engine)
    with pytest.raises(AgentError, match=r"returns scores of float32 and shape \(1, 16\), expected float32 and shape \(1, 21\)"):
        OnnxAgent(engine, content)


def test_damaged_policies_are_refused(policy):
    engine, content = engine_of(), policy.read_bytes()
    hostile = [b"", b"not a policy", content[:100], content[: len(content) // 2], content[:-3], b"\x00" * 1000, b"\xff" * 1000]
    hostile += [
        b"PK\x03\x04" + content,
        b"\x28\x00\x00\x00ORTM" + content,
        np.random.default_rng(0).bytes(5000),
        b"\x3a\x05" * 3000,
    ]
    for one in hostile:
        with pytest.raises(AgentError):
            OnnxAgent(engine, one)


def test_too_large(monkeypatch, policy):
    monkeypatch.setattr("onco_gym.agents.onnx_policy.LARGEST", 100)
    for source in (policy, policy.read_bytes()):
        with pytest.raises(AgentError, match="bytes, expected at most 100"):
            OnnxAgent(engine_of(), source)


def test_answers_that_are_not_numbers():
    engine = engine_of()
    weights = np.zeros((113, 21))
    weights[0] = 1e38
    overflowing = written([Operator("Gemm", (weights, np.zeros(21))), Operator("Mul", (1e30,))], engine)
    with pytest.raises(AgentError, match="not finite"):
        OnnxAgent(engine, overflowing).act(*seen(engine))


def test_ties_go_to_the_first_that_can_be_chosen():
    mask = np.array([[False, True, True]])
    assert choose(np.zeros((1, 3), np.float32), mask, (3,)).tolist() == [1]


# Models of Stable-Baselines3

MODELS = [
    ("regimen", PPO, SMALL),
    ("regimen", A2C, {"n_steps": 2, "seed": 0, "device": "cpu"}),
    ("regimen", MaskablePPO, SMALL),
    ("regimen", DQN, LEARNERS),
    ("dose", PPO, SMALL),
    ("dose", SAC, LEARNERS),
    ("dose", SAC, {**LEARNERS, "use_sde": True}),
    ("dose", TD3, LEARNERS),
    ("dose", PPO, {**SMALL, "use_sde": True, "policy_kwargs": {"squash_output": True}}),
    ("workflow", PPO, SMALL),
    ("workflow", MaskablePPO, SMALL),
]


def saved(tmp_path, kind, algorithm, settings, normalised=False):
    """A model in a file, with weights that differ from where training starts."""
    env = env_of(kind)
    if normalised:
        env = VecNormalize(env)
        env.reset()
        for _ in range(5):
            env.step(np.stack([env.action_space.sample() for _ in range(N)]))
        env.save(tmp_path / "vecnormalize.pkl")
    model = algorithm("MlpPolicy", env, **settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip", model


QUICK = (("regimen", False), ("regimen", True), ("dose", False))  # the others take long to compile
CASES = [
    pytest.param(*model, normalised, marks=() if (model[0], normalised) in QUICK else pytest.mark.slow)
    for model in MODELS
    for normalised in (False, True)
]


@pytest.mark.parametrize(("kind", "algorithm", "settings", "normalised"), CASES)
def test_an_exported_policy_is_the_model(tmp_path, kind, algorithm, settings, normalised):
    engine = engine_of(kind)
    path, model = saved(tmp_path, kind, algorithm, settings, normalised)
    export(tmp_path / "policy.onnx", engine, path)
    agent, policy = load_agent(engine, str(path)), load_agent(engine, str(tmp_path / "policy.onnx"))
    assert isinstance(agent, Sb3Agent)
    assert (agent.normalisation is not None) == normalised
    observation, mask = seen(engine, 500)
    np.testing.assert_allclose(agent.scores(observation), policy.scores(observation), atol=1e-4, rtol=1e-4)
    ours, theirs = policy.act(observation, mask), agent.act(observation, mask)
    assert (np.isclose(ours, theirs, atol=1e-4)).reshape(len(mask), -1).all(1).mean() >= 0.99
    eyes = agent.vecnormalize.normalize_obs(observation) if normalised else observation
    expected, _ = model.predict(eyes, deterministic=True, **({"action_masks": mask} if algorithm is MaskablePPO else {}))
    free = mask if algorithm is MaskablePPO else np.ones_like(mask)
    assert (np.isclose(policy.act(observation, free), expected, atol=1e-4)).reshape(len(mask), -1).all(1).mean() >= 0.99
    assert policy.metadata["environment"] == f"onco_gym/NSCLC{ENDS[kind]}-v0"
    assert {one.name for one in tmp_path.iterdir()} <= {"model.zip", "policy.onnx", "vecnormalize.pkl"}


def test_a_model_treats_patients_and_has_certain_choices(tmp_path):
    engine = engine_of()
    path, _ = saved(tmp_path, "regimen", MaskablePPO, SMALL)
    export(tmp_path / "policy.onnx", engine, path)
    runs = [rollout(engine, load_agent(engine, str(tmp_path / name)), N) for name in ("model.zip", "policy.onnx")]
    np.testing.assert_array_equal(runs[0].actions, runs[1].actions)
    np.testing.assert_array_equal(runs[0].returns, runs[1].returns)
    observation, mask = seen(engine)
    agent = load_agent(engine, str(path))
    np.testing.assert_array_equal(agent.probabilities(observation, mask).argmax(1), agent.act(observation, mask))


def test_loading_a_model_warns_in_one_line(tmp_path):
    path, _ = saved(tmp_path, "regimen", PPO, SMALL)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        load_agent(engine_of(), str(path))
    (text,) = [str(one.message) for one in heard if "unpickled" in str(one.message)]
    assert "load only models you trust" in text
    assert "\n" not in text


def test_an_export_that_differs_is_not_written(tmp_path, monkeypatch):
    path, _ = saved(tmp_path, "regimen", PPO, SMALL)
    original = sb3_module._operators

    def wrong(layers):
        operators = original(layers)
        weights, biases = operators[-1].numbers
        return [*operators[:-1], Operator("Gemm", (weights, biases[::-1]))]

    monkeypatch.setattr(sb3_module, "_operators", wrong)
    with pytest.raises(AgentError, match="nothing was written"):
        export(tmp_path / "policy.onnx", engine_of(), path)
    assert [one.name for one in tmp_path.iterdir()] == ["model.zip"]


def test_an_export_is_checked_on_a_thousand_visits_and_more():
    observation, mask = sb3_module._visits(engine_of(), RandomAgent(0))
    assert len(observation) == len(mask) >= 1000
    assert len(np.unique(observation, axis=0)) > 600


class Doubling(BaseFeaturesExtractor):
    """Layers of a user's own."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 2 * observation_space.shape[0])

    def forward(self, observations):
        return torch.cat([observations, observations.square()], 1)


def test_layers_of_a_user_are_written_by_torch(tmp_path):
    settings = {**SMALL, "policy_kwargs": {"features_extractor_class": Doubling}}
    path, _ = saved(tmp_path, "regimen", PPO, settings)
    engine = engine_of()
    load_agent(engine, str(path))
    export(tmp_path / "policy.onnx", engine, path)
    agent = OnnxAgent(engine, tmp_path / "policy.onnx")
    assert agent.metadata["environment"] == "onco_gym/NSCLC-v0"


def test_damaged_models_are_refused(tmp_path):
    engine = engine_of()
    path, _ = saved(tmp_path, "regimen", PPO, SMALL)
    content = path.read_bytes()
    damaged = [b"", b"no zip", content[:1000], content[:-200], content[:200] + b"\0" * 50 + content[250:]]
    for one in damaged:
        path.write_bytes(one)
        refuses(AgentError, r"model\.zip", load_agent, engine, str(path))
    path.write_bytes(content)
    for name, text in (("data", b"{}"), ("data", b"[1]"), ("data", b'{"policy_class": {}}'), ("other", b"")):
        with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
            archive.writestr(name, text)
        refuses(AgentError, r"made\.zip", load_agent, engine, str(tmp_path / "made.zip"))
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "made.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"damaged" if name == "policy.pth" else old.read(name))
    refuses(AgentError, "cannot be loaded as a model of PPO", load_agent, engine, str(tmp_path / "made.zip"))


def test_models_that_do_not_fit(tmp_path):
    path, _ = saved(tmp_path, "regimen", PPO, SMALL)
    refuses(AgentError, r"shape \(113,\).*NSCLC-Dose-v0 gives \(115,\)", load_agent, engine_of("dose"), str(path))
    (tmp_path / "vecnormalize.pkl").write_bytes(b"damaged")
    refuses(AgentError, "no statistics of VecNormalize", load_agent, engine_of(), str(path))
    refuses(AgentError, "there is no file", Sb3Agent.load, engine_of(), path, tmp_path / "absent.pkl")
    VecNormalize(env_of("dose")).save(tmp_path / "vecnormalize.pkl")
    refuses(AgentError, "statistics are of observations of shape", load_agent, engine_of(), str(path))


# Names, modules


def test_names(nsclc):
    assert isinstance(load_agent(engine_of(), "guideline"), GuidelineAgent)
    first, again = (load_agent(engine_of(), "random", seed=4).act(*seen(engine_of())) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    load_agent(engine_of("dose"), "adaptive:osimertinib")
    load_agent(engine_of("workflow"), "never")
    with pytest.raises(AgentError, match=r"no agent 'nobody'.*\.onnx.*module:object"):
        load_agent(engine_of(), "nobody")


@pytest.mark.parametrize(("name", "said"), [("absent.onnx", "no policy file"), ("absent.zip", "no model")])
def test_absent_files(name, said):
    with pytest.raises(AgentError, match=f"there is {said} '{name}'"):
        load_agent(engine_of(), name)


def test_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    (tmp_path / "my_agents_of_the_test.py").write_text(
        "import numpy as np\n"
        "class First:\n"
        "    def __init__(self, card): self.card = card\n"
        "    def act(self, observation, mask): return mask.argmax(1)\n"
        "def factory(card): return First(card)\n"
        "def fails(card): raise RuntimeError('no such luck')\n"
        "instance = First(None)\n"
        "class Inside:\n    agent = instance\n"
        "number = 3\n"
        "def nothing(card): return None\n"
        "def a_class(card): return First\n"
    )
    (tmp_path / "broken_module_of_the_test.py").write_text("1 / 0\n")
    engine, module = engine_of(), "my_agents_of_the_test"
    observation, mask = seen(engine)
    for name in ("First", "factory", "instance", "Inside.agent"):
        agent = load_agent(engine, f"{module}:{name}")
        np.testing.assert_array_equal(agent.act(observation, mask), mask.argmax(1))
        assert agent.card is (engine.card if name in ("First", "factory") else None)
    for text, message in (
        (f"{module}:absent", "has no 'absent'"),
        (f"{module}:number", "is a int without act"),
        (f"{module}:nothing", "is a NoneType without act"),
        (f"{module}:a_class", "without act"),
        (f"{module}:fails", "called with the card and failed: RuntimeError: no such luck"),
        (f"{module}:", "has no ''"),
        ("absent_module_of_the_test:agent", "cannot be imported: ModuleNotFoundError"),
        ("broken_module_of_the_test:agent", "cannot be imported: ZeroDivisionError"),
        (":agent", "cannot be imported"),
        ("..:agent", "cannot be imported"),
    ):
        with pytest.raises(AgentError, match=re.escape(message)):
            load_agent(engine, text)
