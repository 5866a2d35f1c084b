"""Spread work: run tasks in this process, or over the cores and machines of a Ray cluster.

A task is a pure function of one picklable argument, so its result does not depend on where it runs. XLA splits loops by the
number of cores it sees, which changes the last digits. So workers are told this process's number of cores, and then to use
one of them: they compile the same code as this process.
"""

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from onco_gym.foundation.progress import Progress, silent
from onco_gym.version import __version__

T = TypeVar("T")
R = TypeVar("R")

WORKERS = ("local", "ray")
"""Where work can run."""
RETRIES = 3
"""How often a task is retried if its worker dies."""
PATIENCE = 10.0, 40.0
"""Seconds in which an address must accept a connection, and must answer as a Ray cluster."""


class WorkError(ValueError):
    """Work that could not be spread, or was lost; the message says why."""


def spread(
    function: Callable[[T], R],
    tasks: Sequence[T],
    workers: str = "local",
    address: str | None = None,
    progress: Progress = silent,
    stage: str = "tasks",
) -> list[R]:
    """``[function(task) for task in tasks]``, here or on a cluster.

    Args:
        function: a pure, picklable function, from a module that workers can import, or a :func:`functools.partial` of one.
        tasks: the arguments, one per call.
        workers: ``local`` runs the tasks here, one after the other (JAX uses all cores by itself); ``ray`` gives each task a
            core of a Ray cluster.
        address: address of a running cluster, as for ``ray.init``; by default a cluster is started on this machine.
        progress: called whenever a task is done.
        stage: name of the work in progress reports.

    Returns:
        Results in the order of the tasks.

    Raises:
        WorkError: if ``workers`` is unknown, Ray is not installed, no cluster answers at ``address``, or the workers of a
            task keep dying. Exceptions of ``function`` itself are raised as they are, without another try.
    """
    with connected(workers, address):
        if workers == "ray" and tasks:
            return _spread_ray(function, tasks, progress, stage)
        results = []
        for task in tasks:
            results.append(function(task))
            progress(stage, len(results), len(tasks))
        return results


@contextlib.contextmanager
def connected(workers: str = "local", address: str | None = None) -> Iterator[None]:
    """Keep the cluster, and what its workers have compiled, for every :func:`spread` inside the block.

    The arguments are those of :func:`spread`. A cluster that was started or joined here is shut down or left at the end. If the
    caller was already connected to a cluster, the connection stays.
    """
    if workers not in WORKERS:
        raise WorkError(f"workers is {workers!r}, expected one of {', '.join(WORKERS)}")
    if workers == "local":
        if address is not None:
            raise WorkError(f"address is {address!r}, which needs workers='ray', but workers is {workers!r}")
        yield
        return
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    _join(ray, address or os.environ.get("RAY_ADDRESS") or "local")
    try:
        yield
    finally:
        ray.shutdown()


def _ray() -> Any:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_task_oom_retries": str(RETRIES)}
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise WorkError("workers='ray' needs Ray: pip install \"onco_gym[ray]\"") from None
    return ray


def _join(ray: Any, address: str) -> None:
    """Start a cluster, or join the one at ``address``, in bounded time."""
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        options.update(num_cpus=_cores(), include_dashboard=False)
    else:
        _knock(address)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)  # by JAX; Ray's forks exec at once
            ray.init(address, **options)
    except (OSError, ValueError, RuntimeError, AssertionError, ImportError) as error:
        ray.shutdown()
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        what = "Ray cannot be started here" if address == "local" else f"no Ray cluster can be joined at {address!r}"
        raise WorkError(f"{what}: {said}") from None


def _knock(address: str) -> None:
    """Check that a cluster answers. Without one, Ray waits for minutes, ignores signals, and then aborts the process."""
    if address != "auto":
        try:
            parts = urlsplit(address if "://" in address else f"//{address}")
            host, port = parts.hostname, parts.port or (10001 if parts.scheme == "ray" else None)
        except ValueError:
            host = port = None
        if not host or not port:
            raise WorkError(f"address is {address!r}, expected HOST:PORT, ray://HOST:PORT, auto or local")
        try:
            socket.create_connection((host, port), PATIENCE[0]).close()
        except OSError as error:
            raise WorkError(f"no Ray cluster answers at {address!r}: {error.strerror or error}") from None
    if address.startswith("ray://"):  # Ray's client has a time limit of its own
        return
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE[1])
    except subprocess.SubprocessError:
        raise WorkError(f"no Ray cluster answers at {address!r}") from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _surroundings() -> dict[str, str]:
    """Environment variables with which workers find the same modules and compile the same code as this process."""
    own = [str(Path(__file__).resolve().parents[2]), os.getcwd()]
    installed = (sys.prefix, sys.base_prefix)
    paths = dict.fromkeys([*own, *(path for path in sys.path if path and not path.startswith(installed))])
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "JAX_PLATFORMS": "cpu",
        "NPROC": os.environ.get("NPROC", str(_cores())),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip(),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }


def _spread_ray(function: Callable[[T], R], tasks: Sequence[T], progress: Progress, stage: str) -> list[R]:
    import ray
    from ray.exceptions import RayError

    options = {"num_cpus": 1, "max_retries": RETRIES, "runtime_env": {"env_vars": _surroundings()}}
    remote, shared = ray.remote(_attempt).options(**options), ray.put(function)
    waiting = {remote.remote(shared, task, __version__): index for index, task in enumerate(tasks)}
    results: list[Any] = [None] * len(tasks)
    try:
        while waiting:
            for reference in ray.wait(list(waiting))[0]:
                index = waiting.pop(reference)
                try:
                    results[index], error = ray.get(reference)
                except RayError as lost:
                    said = " ".join(str(lost).split())[:300]
                    raise WorkError(f"task {index + 1} of {len(tasks)} was lost after {RETRIES + 1} tries: {said}") from None
                if error is not None:
                    raise error
                progress(stage, len(tasks) - len(waiting), len(tasks))
    finally:
        for reference in waiting:  # after an error, do not wait for the others
            ray.cancel(reference, force=True)
    return results


def _attempt(function: Callable[[Any], Any], task: Any, version: str) -> tuple[Any, Exception | None]:
    """Run a task in a worker; return (result, exception)."""
    if version != __version__:
        return None, WorkError(f"a worker has onco_gym {__version__}, expected {version}: install the same version everywhere")
    try:
        return function(task), None
    except Exception as error:
        error.add_note(f"In a worker:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return None, WorkError(f"{type(error).__name__}: {error}")
        return None, error
