"""Starts the process that runs a stranger's policy, and talks to it. Nothing that it says is trusted.

Sizes are checked before anything is read, and a process that is late is killed.
"""

import importlib.metadata
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

from onco_gym.agents.protocol import AgentError
from onco_gym.leaderboard import runner
from onco_gym.leaderboard.confinement import WALLS

COMMAND = (sys.executable, "-I", "-m", "onco_gym.leaderboard.runner")
"""Starts the process."""
ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""All that it knows of ours. A process with threads could not leave our user namespace."""
CALL_SECONDS = 60.0
"""Time for starting, for loading a policy, and for answering a batch."""
ALL_SECONDS = 1200.0
"""Time for all calls together."""
SHARE = 0.5
"""Share of its time for which a late process must have computed. With less, the machine has kept it waiting."""
NEEDED = {"onnxruntime": (1, 30, 1), "onnx": (1, 21)}
"""Older versions have holes that a file can use."""
_TEXT = 1000


class SandboxError(RuntimeError):
    """The sandbox cannot be used here. It is no fault of the policy."""


class PolicyProcess:
    """The process that runs a policy. It does not survive an error.

    Args:
        seconds: for all calls together; by default :data:`ALL_SECONDS`.

    Attributes:
        walls: what keeps the policy in, of :data:`onco_gym.leaderboard.confinement.WALLS`.

    Raises:
        SandboxError: if it cannot be started.
    """

    def __init__(self, seconds: float | None = None) -> None:
        if os.name != "posix":
            raise SandboxError("policies are judged in a sandbox, which needs Linux or macOS")
        _check_versions()
        self._process = subprocess.Popen(
            COMMAND,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        self._begun = time.monotonic()
        for stream in self._streams():
            os.set_blocking(stream.fileno(), False)
        self._limit = ALL_SECONDS if seconds is None else seconds
        self._left, self._open = self._limit, True
        try:
            told = self.call([], runner.READY, _TEXT).decode(errors="replace").split()
        except (AgentError, SandboxError) as error:
            raise SandboxError(f"the sandbox does not start: {error}") from None
        self.walls = tuple(name for name in WALLS if name in told)

    def call(self, messages: Sequence[bytes], kind: bytes, size: int) -> bytes:
        """Send messages, and receive one.

        Args:
            messages: what to send.
            kind: what to receive, of :mod:`onco_gym.leaderboard.runner`.
            size: bytes of its content; at most so many for :data:`onco_gym.leaderboard.runner.READY`.

        Raises:
            AgentError: if the process refuses, ends, is late, or answers with something else.
            SandboxError: if it is late because the machine was busy, or was killed from outside.
        """
        if not self._open:
            raise AgentError("the policy's process has ended")
        begun, used = time.monotonic(), self.seconds
        deadline = begun + min(CALL_SECONDS, self._left)
        try:
            self._send(b"".join(runner.LENGTH.pack(len(one)) + one for one in messages), deadline)
            (length,) = runner.LENGTH.unpack(self._receive(runner.LENGTH.size, deadline))
            if not 1 <= length <= 1 + max(size, _TEXT):
                raise AgentError(f"the policy's process answers with {length} bytes, expected {1 + size}")
            answer = self._receive(length, deadline)
            if answer[:1] == runner.REFUSED:
                raise AgentError(_clean(answer[1:]))
            if answer[:1] != kind or (length != 1 + size and kind != runner.READY):
                raise AgentError("the policy's process answers with nonsense")
        except TimeoutError:
            late = self._late(used)
            self.close()
            raise late from None
        except BaseException:
            self.close()
            raise
        self._left -= time.monotonic() - begun
        return answer[1:]

    @property
    def seconds(self) -> float:
        """Processor time that the process has used; where it cannot be asked for (macOS), the time that has passed."""
        try:
            return time.clock_gettime(~self._process.pid << 3 | 2)  # as Linux numbers the clocks of processes
        except (AttributeError, OSError):
            return time.monotonic() - self._begun

    def close(self) -> None:
        """End the process."""
        self._open = False
        self._process.kill()
        self._process.wait()
        for stream in self._streams():
            stream.close()

    def _streams(self) -> list[IO[bytes]]:
        return [one for one in (self._process.stdin, self._process.stdout, self._process.stderr) if one]

    def _send(self, content: bytes, deadline: float) -> None:
        rest, stream = memoryview(content), self._streams()[0].fileno()
        while rest:
            _wait(stream, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(stream, rest) :]
            except BrokenPipeError:
                return  # how it ended is told when its answer is read

    def _receive(self, size: int, deadline: float) -> bytes:
        found, stream = bytearray(), self._streams()[1].fileno()
        while len(found) < size:
            _wait(stream, select.POLLIN, deadline)
            more = os.read(stream, size - len(found))
            if not more:
                raise self._end()
            found += more
        return bytes(found)

    def _late(self, used: float) -> Exception:
        """Whose fault it is that a call is late, before which the process had ``used`` so many seconds."""
        limit, computed = (CALL_SECONDS, self.seconds - used) if self._left >= CALL_SECONDS else (self._limit, self.seconds)
        expected = f"expected at most {CALL_SECONDS:g} s for a call and {self._limit:g} s in all"
        said = f"the policy's process takes too long: {expected}"
        if computed >= SHARE * limit:
            return AgentError(said)
        return SandboxError(f"{said}, but this machine is busy: of {limit:g} s it computed for {computed:.1f} s")

    def _end(self) -> Exception:
        """How the process ended, after it closed its output."""
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return AgentError("the policy's process closed its output")
        try:
            said = _clean(os.read(self._streams()[2].fileno(), 2**16).strip().rpartition(b"\n")[2])
        except BlockingIOError:  # something else holds it open
            said = ""
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with code {code}"
        # No limit of ours kills: beyond its memory a process gets errors, and our clock is faster than its processor time.
        kind = SandboxError if code == -signal.SIGKILL else AgentError
        return kind(f"the policy's process ended {how}{said and f': {said}'}")


def _wait(stream: int, event: int, deadline: float) -> None:
    """Wait until a stream can be read or written."""
    poll = select.poll()
    poll.register(stream, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(1000 * left):
        raise TimeoutError


def _clean(text: bytes) -> str:
    """A text of the process as one line."""
    words = " ".join(text.decode(errors="replace").split())
    return "".join(letter if letter.isprintable() else "?" for letter in words)[-_TEXT:]


def _check_versions() -> None:
    for package, oldest in NEEDED.items():
        wanted = ".".join(map(str, oldest))
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise SandboxError(f'the sandbox needs {package} {wanted} or newer: pip install "onco_gym[leaderboard]"') from None
        if tuple(int(part) for part in re.findall(r"\d+", version)[: len(oldest)]) < oldest:
            raise SandboxError(
                f"the sandbox needs {package} {wanted} or newer, and this is {version}: older ones have known holes"
            )
