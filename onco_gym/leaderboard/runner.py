"""The process that runs a stranger's policy: ``python -m onco_gym.leaderboard.runner``.

It gets the policy and observations through its standard input, and returns answers through its standard output. It walls itself
in before it reads the policy. It knows neither simulator nor patients, and keeps nothing between two questions.

A message is its length (4 bytes) and its content. Ours begin with their kind (1 byte).
"""

import json
import os
import struct
from dataclasses import astuple, dataclass

READY, REFUSED, LOADED, ANSWER = b"R", b"X", b"L", b"A"
"""Kinds of our messages: the walls that stand; why the policy is refused or fails; what the policy is like; its answers."""
LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class PolicyFacts:
    """What a policy is like.

    Attributes:
        memory: numbers that it keeps for a patient; 0 if it is not recurrent.
        work: multiplications for a decision, as :data:`onco_gym.agents.onnx_check.WORK` counts them.
        operators: how many it has.
        numbers: how many it holds.
    """

    memory: int
    work: int
    operators: int
    numbers: int


FACTS = struct.Struct("<QQQQ")
MEMORY = 4 * 2**30
"""Bytes of address space."""
SECONDS = 3600
"""Of processor time."""


def main() -> None:
    """Serve one policy until standard input ends."""
    import numpy as np

    from onco_gym.agents.onnx_policy import Ends, OnnxPolicy
    from onco_gym.agents.protocol import AgentError
    from onco_gym.leaderboard.confinement import confine

    _try_out()
    _send(READY, " ".join(confine(MEMORY, SECONDS)).encode())
    ends = Ends(*json.loads(_receive()))
    try:
        policy = OnnxPolicy(_receive(), "the policy", ends)
        _send(LOADED, FACTS.pack(*astuple(PolicyFacts(policy.memory, policy.work, policy.operators, policy.numbers))))
        width = 4 * (ends.features + policy.memory)
        while content := _receive():
            n = len(content) // width
            numbers = np.frombuffer(content, np.float32)
            observation, state = np.split(numbers, [n * ends.features])
            scores, after = policy.run(observation.reshape(n, -1), state.reshape(n, policy.memory))
            _send(ANSWER, scores.tobytes() + after.tobytes())
    except AgentError as error:
        _send(REFUSED, str(error).encode(errors="replace"))
    except MemoryError:
        _send(REFUSED, b"the policy takes more memory than it may")


def _try_out() -> None:
    """Run a small policy, so that everything is imported that will be needed: later, no file can be opened."""
    from onnx import TensorProto, helper

    from onco_gym.agents.onnx_policy import Ends, OnnxPolicy

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("observation", "scores")]
    nodes = [
        helper.make_node("Shape", ["observation"], ["shape"]),
        helper.make_node("Reshape", ["observation", "shape"], ["scores"]),
    ]
    graph = helper.make_graph(nodes, "policy", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    OnnxPolicy(model.SerializeToString(), "the policy", Ends("", 1, "scores", 1))


def _send(kind: bytes, content: bytes) -> None:
    message = memoryview(LENGTH.pack(1 + len(content)) + kind + content)
    while message:
        message = message[os.write(1, message) :]


def _receive() -> bytes:
    """The content of the next message; nothing at the end."""
    length = _read(LENGTH.size)
    return _read(*LENGTH.unpack(length)) if length else b""


def _read(size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (more := os.read(0, size - len(found))):
        found += more
    return bytes(found)


if __name__ == "__main__":
    main()
