import functools
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import refuses

from onco_gym.foundation import workers
from onco_gym.foundation.workers import WorkError, connected, spread


def double(number):
    return 2 * number


def returns_on(engine, seed):
    """A real task. Imports stand inside, so that workers of the other tests start quickly."""
    from onco_gym.agents import RandomAgent, rollout

    run = rollout(engine, RandomAgent(seed), 64, seed, keep_observations=True)
    return run.returns, run.observations, run.stamp


def dies_once(folder, number):
    """Kills its worker at the first try."""
    mark = folder / str(number)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def dies(number):
    if number == 1:
        os._exit(1)
    return number


def fails(number):
    if number == 2:
        from onco_gym.agents import AgentError

        raise AgentError("the agent answered wrongly: seven")
    return number


class AwkwardError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def awkward(number):
    raise AwkwardError(number, number)


def surroundings(_):
    import jax

    return os.environ["JAX_PLATFORMS"], jax.default_backend(), os.environ["OMP_NUM_THREADS"]


@pytest.fixture(scope="module")
def cluster():
    with connected("ray"):
        yield


def test_results_are_in_order_and_progress_is_told():
    seen = []
    assert spread(double, [3, 1, 2], progress=lambda *at: seen.append(at), stage="numbers") == [6, 2, 4]
    assert seen == [("numbers", 1, 3), ("numbers", 2, 3), ("numbers", 3, 3)]
    assert spread(double, []) == []


def test_ray_gives_results_in_order_and_tells_progress(cluster):
    seen = []
    assert spread(double, list(range(7)), "ray", progress=lambda *at: seen.append(at)) == [2 * i for i in range(7)]
    assert seen == [("tasks", i + 1, 7) for i in range(7)]
    assert spread(double, [], "ray") == []


def own_engine():
    """An engine with patients of its own, which no other shares."""
    from onco_gym.cards import load_card
    from onco_gym.interfaces.engine import make_engine
    from onco_gym.patients import default_generator

    patients = default_generator(load_card("melanoma")).sample(50, seed=3)
    return make_engine("Melanoma", cohort=patients, weights={"carbon": 0.5}, horizon=12, terms=("outcome", "carbon"))


def test_a_worker_gets_the_engine_that_it_is_sent_and_a_rollout_is_the_same_to_the_digit(cluster):
    engine = own_engine()
    task = functools.partial(returns_on, engine)
    (here,), (there,) = spread(task, [5]), spread(task, [5], "ray")
    assert np.array_equal(here[0], there[0])
    assert np.array_equal(here[1], there[1])
    assert here[2] == there[2] == engine.stamp


def test_workers_stay_on_one_core(cluster):
    assert spread(surroundings, [0], "ray") == [("cpu", "cpu", "1")]


def test_a_task_whose_worker_was_killed_is_tried_again(cluster, tmp_path):
    assert spread(functools.partial(dies_once, tmp_path), [1, 2], "ray") == [2, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_always_kills_its_worker_is_named(cluster, monkeypatch):
    monkeypatch.setattr(workers, "RETRIES", 1)
    with pytest.raises(WorkError, match=r"task 2 of 3 was lost after 2 tries") as caught:
        spread(dies, [0, 1, 2], "ray")
    assert "\n" not in str(caught.value)


def test_an_error_of_the_function_comes_through(cluster):
    for where in ("local", "ray"):
        with pytest.raises(ValueError, match="the agent answered wrongly: seven") as caught:
            spread(fails, [1, 2, 3], where)
        assert (type(caught.value).__name__, str(caught.value)) == ("AgentError", "the agent answered wrongly: seven")
    with pytest.raises(WorkError, match=r"^AwkwardError: 1 and 1$"):  # one that cannot be pickled, in words
        spread(awkward, [1], "ray")


def test_what_cannot_be_used_is_refused_in_one_line(monkeypatch):
    refuses(WorkError, "expected one of local, ray", spread, double, [1], "dask")
    with pytest.raises(WorkError, match="address is 'here:1', which needs workers='ray', but workers is 'local'"):
        spread(double, [1], "local", "here:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    refuses(WorkError, r"pip install .onco_gym\[ray\]", spread, double, [1], "ray")


CALL = "from onco_gym.foundation.workers import spread; spread(len, ['a'], 'ray', {!r})"


@pytest.mark.parametrize(("address", "said"), [("127.0.0.1:1", "no Ray cluster answers"), ("nonsense", "expected HOST:PORT")])
def test_an_address_where_nobody_answers_is_refused_at_once(address, said):
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", CALL.format(address)], capture_output=True, text=True)
    assert said in done.stderr.splitlines()[-1]
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_an_address_where_somebody_else_answers_is_refused_in_the_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run([sys.executable, "-c", CALL.format(address)], capture_output=True, text=True, timeout=150)
    assert done.returncode != 0
    assert "WorkError: no Ray cluster" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_cluster_that_runs_already_is_joined_and_left_running():
    script = """
import subprocess, sys, ray
from onco_gym.foundation.workers import spread
address = ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR").address_info["gcs_address"]
other = "import ray; from onco_gym.foundation.workers import spread; "
other += f"print(spread(len, ['ab'], 'ray', {address!r}), ray.is_initialized())"
print(subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stdout, end="")
print(spread(len, ["abc"], "ray"), ray.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[2] False\n[3] True\n", done.stderr


@pytest.mark.slow
def test_a_cluster_that_was_started_here_ends_here():
    script = "import ray; from onco_gym.foundation.workers import spread; print(spread(len, ['ab'], 'ray'), ray.is_initialized())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[2] False\n", done.stderr
    assert not done.stderr


@pytest.mark.slow
def test_a_fit_and_its_check_are_the_same_to_the_digit_here_and_there(cluster, few_trials, tmp_path):
    from onco_gym.cards import load_card
    from onco_gym.trials.calibration import calibrate
    from onco_gym.trials.published import as_rows, reproduce

    figures = {}
    for where in ("local", "ray"):
        output = tmp_path / f"{where}.toml"
        fit = calibrate(few_trials, output, tmp_path / "state.json", n=80, rounds=2, workers=where)
        rows = reproduce(load_card(few_trials), n=60, workers=where)
        figures[where] = fit.position.x.tolist(), fit.position.loss, output.read_text(), as_rows(rows)
    assert figures["local"] == figures["ray"]
