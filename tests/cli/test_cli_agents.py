"""train and export."""

import functools

import pytest

from onco_gym.agents import AgentError, OnnxAgent, cloning, ppo
from onco_gym.interfaces.engine import make_engine


@pytest.fixture
def small(monkeypatch):
    """Training that takes little time."""
    sizes = {"envs": 8, "length": 4, "epochs": 1, "batches": 2, "hidden": (8,)}
    monkeypatch.setattr(ppo, "PpoSettings", functools.partial(ppo.PpoSettings, **sizes))
    few = cloning.CloningSettings(episodes=32, epochs=1, batch=64, hidden=(8,))
    monkeypatch.setattr(cloning, "CloningSettings", lambda: few)


@pytest.mark.parametrize("imitate", [pytest.param((), marks=pytest.mark.slow), ("--imitate", "guideline")])
def test_train(command, small, tmp_path, imitate):
    path = tmp_path / "policy.onnx"
    code, out, err = command("train", "NSCLC", "--steps", 64, *imitate, "--out", path)
    assert (code, err) == (0, "")
    assert out == f"wrote {path} for onco_gym/NSCLC-v0; evaluate it: onco-gym evaluate {path} --env NSCLC\n"
    agent = OnnxAgent(make_engine("nsclc"), path)
    assert agent.metadata["environment"] == "onco_gym/NSCLC-v0"
    assert command("rollout", path, "--env", "NSCLC", "-n", 32).code == 0


def test_training_reports_its_progress(capsys, command, small, monkeypatch, tmp_path):
    monkeypatch.setattr("onco_gym.cli.screen.FIRST_LINE", 0.0)
    arguments = ("train", "NSCLC", "--steps", 64, "--imitate", "guideline", "--out", tmp_path / "policy.onnx")
    err = command(*arguments).err
    assert "onco-gym: watching guideline, " in err
    assert "onco-gym: imitating 1 of 1, " in err
    assert "onco-gym: compiling the training, " in err
    assert "onco-gym: training 32 of 64, return " in err
    assert command(*arguments, "--quiet").err == ""


def saved_model(path):
    sb3 = pytest.importorskip("sb3_contrib")
    import onco_gym

    env = onco_gym.make_sb3("onco_gym/NSCLC-v0", 4, seed=0)
    sb3.MaskablePPO("MlpPolicy", env, n_steps=2, batch_size=8, seed=0, device="cpu").save(path)
    return path


def test_export(command, refused, tmp_path):
    model, target = saved_model(tmp_path / "model.zip"), tmp_path / "policy.onnx"
    code, out, err = command("export", model, "--env", "NSCLC", "--out", target)
    assert code == 0
    assert out.startswith(f"wrote {target} for onco_gym/NSCLC-v0; ")
    assert "load only models you trust" in err
    assert err.count("\n") == 1
    engine = make_engine("nsclc")
    OnnxAgent(engine, target)
    for arguments, named in (
        (("--env", "nowhere", "--out", target), "no environment or card"),
        (("--env", "mo-NSCLC", "--out", target), "vector of rewards"),
        (("--env", "NSCLC", "--out", tmp_path / "policy.txt"), "does not end in .onnx"),
        (("--env", "NSCLC"), "--out"),
    ):
        refused(named, "export", model, *arguments)
    code, _, err = command("export", model, "--env", "NSCLC", "--out", target, "--vecnormalize", "absent.pkl")
    assert code == 2
    assert "there is no file 'absent.pkl'" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("export", "absent.zip", "--env", "NSCLC", "--out", "x.onnx"), "there is no model 'absent.zip'"),
        (("train", "NSCLC"), "--out"),
        (("train", "NSCLC", "--out", "policy.zip"), "does not end in .onnx"),
        (("train", "mo-NSCLC", "--out", "x.onnx"), "vector of rewards"),
        (("train", "NSCLC", "--imitate", "clinican", "--out", "x.onnx"), "(did you mean 'clinician'?)"),
        (("train", "NSCLC", "--steps", "0", "--out", "x.onnx"), "--steps"),
    ],
)
def test_errors_are_one_line(refused, arguments, named):
    refused(named, *arguments)


def test_doses_are_trained_elsewhere(refused):
    refused("learns choices, not amounts", "train", "NSCLC-Dose", "--steps", 64, "--out", "x.onnx")
    assert issubclass(AgentError, ValueError)
