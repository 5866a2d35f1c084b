"""Runs a policy file: observations in, scores out. It needs no simulator, so that it can also run in a sandbox."""

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.onnx_check import Declared, Model
from onco_gym.agents.protocol import AgentError

LARGEST = 8 * 2**20
"""Bytes that a policy file may have; larger files are refused. Reading a hostile file takes up to a hundred times its size."""
MEMORY = 4096
"""Numbers that a recurrent policy may keep for a patient."""
Floats = NDArray[np.float32]


class Ends(NamedTuple):
    """What an environment gives to a policy, and what it takes."""

    environment: str  # its id
    features: int  # length of an observation
    output: str  # name of the output
    size: int  # length of the output


class OnnxPolicy:
    """The policy in a file. It runs on one thread, is deterministic, and keeps nothing between calls.

    Args:
        content: the bytes of the file.
        name: its name, for errors.
        ends: what the environment gives and takes.

    Attributes:
        metadata: the properties of the file, without its checksum.
        memory: how many numbers a recurrent policy keeps for a patient; 0 if it is not recurrent.
        work: multiplications for a decision on one patient, as :data:`onco_gym.agents.onnx_check.WORK` counts them.
        operators: how many operators the file has.
        numbers: how many numbers it holds.

    Raises:
        AgentError: if the file is not such a policy.
    """

    def __init__(self, content: bytes, name: str, ends: Ends) -> None:
        if len(content) > LARGEST:
            raise AgentError(f"{name} has too many bytes, expected at most {LARGEST}")
        self._name, self._ends = name, ends
        self._model, self._fits = Model(content, name), dict[int, bool]()
        self.metadata = {key: value for key, value in self._model.metadata.items() if key != "sha256"}
        self.operators, self.numbers = self._model.operators, self._model.numbers
        self.memory = self._checked_ends()
        self.work = self._model.work(self._shapes(1)) or 0
        self._session = _session(self._model.content, name)
        for n in (1, 3):
            self.run(np.zeros((n, ends.features), np.float32), np.zeros((n, self.memory), np.float32))

    def run(self, observation: Floats, state: Floats) -> tuple[Floats, Floats]:
        """The answers for n patients.

        Args:
            observation: (n, F).
            state: (n, memory) what the policy remembers of them; zeros when an episode begins.

        Returns:
            (n, size) the output, and (n, memory) what it will remember.

        Raises:
            AgentError: if the policy fails, or answers with something else.
        """
        n = len(observation)
        if not n:
            return np.zeros((0, self._ends.size), np.float32), np.zeros((0, self.memory), np.float32)
        if n not in self._fits:
            self._fits[n] = self._model.fits(self._shapes(n))
        if not self._fits[n]:
            halves = zip(np.array_split(observation, 2), np.array_split(state, 2), strict=True)
            answers, states = zip(*(self.run(*half) for half in halves), strict=True)
            return np.concatenate(answers), np.concatenate(states)
        given, wanted = {"observation": np.ascontiguousarray(observation, np.float32)}, {self._ends.output: self._ends.size}
        if self.memory:
            given["state_in"], wanted["state_out"] = np.ascontiguousarray(state, np.float32), self.memory
        try:
            found = self._session.run(list(wanted), given)
        except Exception as error:  # onnxruntime's errors have no common base class
            raise AgentError(f"{self._name} fails on a batch of {n}: {one_line(error)}") from None
        for (name, size), array in zip(wanted.items(), found, strict=True):
            if array.shape != (n, size) or array.dtype != np.float32:
                told = f"{name} of {array.dtype} and shape {array.shape}"
                raise AgentError(f"{self._name} returns {told}, expected float32 and shape {(n, size)}")
            if not np.isfinite(array).all():
                raise AgentError(f"{self._name} returns {name} with numbers that are not finite")
        return found[0], found[1] if self.memory else state

    def _shapes(self, n: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"observation": (n, self._ends.features)}
        return shapes | {"state_in": (n, self.memory)} if self.memory else shapes

    def _checked_ends(self) -> int:
        """How much the policy remembers. Nothing has run yet: onnxruntime computes what it can as soon as it loads a file."""
        inputs, outputs, ends = self._model.inputs, self._model.outputs, self._ends
        expected = f"{ends.environment} needs input 'observation' and output {ends.output!r}"
        if set(inputs) - {"state_in"} != {"observation"} or ends.output not in outputs:
            raise AgentError(f"{self._name} takes {list(inputs)} and returns {outputs}: {expected}")
        if ("state_in" in inputs) != ("state_out" in outputs):
            has = f"takes {list(inputs)} and returns {outputs}"
            raise AgentError(f"{self._name} {has}: a recurrent policy needs both 'state_in' and 'state_out'")
        self._check_input("observation", inputs["observation"], ends.features)
        if "state_in" not in inputs:
            return 0
        kind, shape = inputs["state_in"]
        width = shape[1] if shape is not None and len(shape) == 2 else None
        if not isinstance(width, int) or not 1 <= width <= MEMORY:
            expected = f"expected float32 of shape (n, S), S from 1 to {MEMORY}"
            raise AgentError(f"{self._name} takes {kind} of shape {shape} as state_in: {expected}")
        self._check_input("state_in", inputs["state_in"], width)
        return width

    def _check_input(self, name: str, declared: Declared, width: int) -> None:
        kind, shape = declared
        if kind != "float32" or shape is None or len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != width):
            expected = f"{self._ends.environment} gives float32 of shape (n, {width})"
            raise AgentError(f"{self._name} takes {kind} of shape {shape} as {name}: {expected}")
        if isinstance(shape[0], int):
            raise AgentError(f"{self._name} takes batches of {shape[0]} only, expected a batch axis of free size")


def one_line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300]


def _session(content: bytes, name: str) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # since 1.31 it would send reports over the network
    try:
        import onnxruntime
    except ImportError as error:
        raise AgentError(f'policy files need onnxruntime: pip install "onco_gym[onnx]" ({error})') from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # the error says what went wrong
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base class
        raise AgentError(f"{name} is not an ONNX model that can be run: {one_line(error)}") from None
