"""train and export."""

import functools

import pytest

from onco_gym.agents import OnnxAgent, cloning, ppo
from onco_gym.interfaces.engine import make_engine


@pytest.fixture
def small(monkeypatch):
    """Training that takes little time."""
    sizes = {"envs": 8, "length": 4, "epochs": 1, "batches": 2, "hidden": (8,)}
    monkeypatch.setattr(ppo, "PpoSettings", functools.partial(ppo.PpoSettings, **sizes))
    few = cloning.CloningSettings(episodes=32, epochs=1, batch=64, hidden=(8,))
    monkeypatch.setattr(cloning, "CloningSettings", lambda: few)


@pytest.mark.parametrize("imitate", [pytest.param((), marks=pytest.mark.slow), ("--imitate", "guideline")])
def test_train(command, printed, small, tmp_path, imitate):
    path = tmp_path / "policy.onnx"
    out = printed("train", "NSCLC", "--steps", 64, *imitate, "--out", path)
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
    OnnxAgent(make_engine("nsclc"), target)
    refused("vector of rewards", "export", model, "--env", "mo-NSCLC", "--out", target)
    code, _, err = command("export", model, "--env", "NSCLC", "--out", target, "--vecnormalize", "absent.pkl")
    assert code == 2
    assert "there is no file 'absent.pkl'" in err
