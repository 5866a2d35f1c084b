"""Peers that are not always installed: ICU-Sepsis here, gymnax in its own virtual environment."""

import contextlib
import io
import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contenders import GYMNAX, ICU, SCAN_STEPS, Contender, N, single


def icu_sepsis() -> Contender:
    try:
        with quiet():
            import icu_sepsis  # type: ignore[import-untyped]  # noqa: F401 - registers
    except ImportError:
        return Contender(ICU, 1, missing="icu-sepsis is not installed")
    with quiet():
        return single(ICU, "Sepsis/ICU-Sepsis-v2")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the notices of the old gym package, which icu-sepsis imports."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def gymnax_cartpole(
    python: str | None, environment: dict[str, str], closing: contextlib.ExitStack, about: dict[str, Any]
) -> Contender:
    """The peer in its own process, which ends with ``closing``. What it reports about itself goes to ``about``."""
    if python is None:
        return Contender(GYMNAX, N, missing="not run: no --gymnax-python")
    script = str(Path(__file__).with_name("peer_gymnax.py"))
    try:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([python, script, str(N), str(SCAN_STEPS)], **pipes, text=True, env=environment)
    except OSError as error:
        return Contender(GYMNAX, N, missing=f"cannot run {python}: {error.strerror}")
    closing.enter_context(process)  # closes its stdin, which ends the process
    assert process.stdin is not None
    assert process.stdout is not None
    ask, answers = process.stdin, process.stdout
    about |= json.loads(answers.readline() or '{"error": "peer_gymnax.py failed: run it by hand"}')
    if "error" in about:
        return Contender(GYMNAX, N, missing=about["error"])

    def measure(seconds: float) -> float:
        print(seconds, file=ask, flush=True)
        return float(json.loads(answers.readline())["rate"])

    return Contender(GYMNAX, N, measure)
