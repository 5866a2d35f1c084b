"""The sandbox: a stranger's policy runs in a process of its own, behind walls, and is given observations only.

:class:`Confined` is the agent on our side. It trusts nothing that comes back: numbers are checked and actions are chosen here.
:mod:`onco_gym.leaderboard.processes` talks to the process, and :mod:`onco_gym.leaderboard.runner` is what runs there.
"""

import json
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents.observations import Masks, Observations
from onco_gym.agents.onnx_policy import LARGEST, MEMORY
from onco_gym.agents.onnxfile import Memory, certain, choose, ends_of
from onco_gym.agents.protocol import AgentError
from onco_gym.interfaces.engine import Engine
from onco_gym.leaderboard import runner
from onco_gym.leaderboard.confinement import ENOUGH
from onco_gym.leaderboard.processes import PolicyProcess, SandboxError

BATCH = 4096
"""Patients who are asked about at once."""
FEW = 32
"""Patients of a batch who are asked about again."""
TIES = 0.001
"""Share of decisions that may be others among other patients: numbers are rounded otherwise, which decides ties."""
FAILED = (
    "the policy fails on the season's patients, takes too long, or decides on a patient by the others; more is not told, as it "
    "could tell of secret patients"
)
"""All that is said of a policy that has seen secret patients: whatever else its process says may have been made from them."""


class Confined:
    """A policy file as an agent, run in the sandbox. Use it in a ``with`` statement.

    Args:
        engine: the environment.
        policy: the bytes of the file.
        seconds: for all that it is asked; by default :data:`onco_gym.leaderboard.processes.ALL_SECONDS`.
        secret: whether patients are secret. Whatever goes wrong once they are shown to the policy is then :data:`FAILED`, and
            walls must be :data:`~onco_gym.leaderboard.confinement.ENOUGH`.

    Attributes:
        walls: what keeps the policy in, of :data:`onco_gym.leaderboard.confinement.WALLS`.
        facts: what the policy is like.
        work: multiplications for a decision.
        remembers: whether the policy is recurrent; see :class:`onco_gym.agents.OnnxAgent`.

    Raises:
        AgentError: if the policy is refused.
        SandboxError: if the sandbox cannot be started, its machine is too busy, or its walls are not enough for secret patients.
    """

    def __init__(self, engine: Engine, policy: bytes, seconds: float | None = None, secret: bool = False) -> None:
        if len(policy) > LARGEST:
            raise AgentError(f"the policy has too many bytes, expected at most {LARGEST}")
        self._parts, self._size, self._secret = tuple(engine.kind.parts.values()), engine.kind.mask_size, secret
        self._process = PolicyProcess(seconds)
        try:
            self.walls = self._process.walls
            if secret and not any(some <= set(self.walls) for some in ENOUGH):
                expected = "expected seccomp, or namespaces and landlock; Linux 5.13 and newer have all of them"
                stand = " and ".join(self.walls) or "nothing"
                raise SandboxError(f"the sandbox is too weak here for secret patients, with {stand} around it: {expected}")
            facts = self._process.call([json.dumps(ends_of(engine)).encode(), policy], runner.LOADED, runner.FACTS.size)
            self.facts = runner.PolicyFacts(*runner.FACTS.unpack(facts))
            if self.facts.memory > MEMORY:
                raise AgentError(f"the policy's process says that it remembers {self.facts.memory} numbers")
        except BaseException:
            self.close()
            raise
        self.remembers, self.work = self.facts.memory > 0, self.facts.work
        self._memory, self._alone = Memory(engine, self.facts.memory), Memory(engine, self.facts.memory)
        self._batch, self._few = 0, np.zeros(0, np.intp)
        self._asked = self._differed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        """Processor time that the policy's process has used."""
        return self._process.seconds

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def act(self, observation: Observations, mask: Masks) -> NDArray[Any]:
        """(n,) regimens, (n, parts) for the workflow, (n, D) intensities for dosing."""
        return choose(self._answers(observation, mask), mask, self._parts)

    def scores(self, observation: Observations) -> NDArray[np.float32]:
        """(n, mask size): the output of the file. To a recurrent policy this is a visit, as :meth:`act` is."""
        return self._answers(observation, np.ones((len(observation), self._size), bool))

    def probabilities(self, observation: Observations, mask: Masks) -> NDArray[np.float64]:
        """(n, R) 1 for the regimen that is chosen; not for dosing or the workflow."""
        return certain(self.act(observation, mask), self._parts)

    def restart(self) -> None:
        """Forget all patients."""
        self._memory.keep(None)
        self._alone.keep(None)
        self._batch = 0

    def _answers(self, observation: Observations, mask: Masks) -> NDArray[np.float32]:
        try:
            scores, after = self._ask(observation, self._memory.of(observation))
            self._memory.keep(after)
            if len(observation) > 1:
                self._check_neighbours(observation, mask, scores)
        except AgentError:
            if self._secret:
                raise AgentError(FAILED) from None
            raise
        return scores

    def _check_neighbours(self, observation: Observations, mask: Masks, scores: NDArray[np.float32]) -> None:
        """Ask about a few patients again, without the others. Nobody can know which; the same few for a recurrent policy."""
        n = len(observation)
        if not self.remembers or n != self._batch:
            self._batch, self._few = n, np.random.default_rng().permutation(n)[: min(FEW, n // 2)]
            self._alone.keep(None)
        few = self._few
        again, after = self._ask(observation[few], self._alone.of(observation[few]))
        self._alone.keep(after)
        same = agreement(choose(scores[few], mask[few], self._parts), choose(again, mask[few], self._parts))
        self._asked += len(few)
        self._differed += int((~same).sum())
        if self._differed > 3 + self._asked * TIES:
            raise dependent(self._differed, self._asked)

    def _ask(self, observation: Observations, state: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        starts = range(0, max(len(observation), 1), BATCH)
        found = [self._ask_batch(observation[start : start + BATCH], state[start : start + BATCH]) for start in starts]
        scores, after = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(after)

    def _ask_batch(
        self, observation: Observations, state: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        n = len(observation)
        if not n:
            return np.zeros((0, self._size), np.float32), state
        question = np.asarray(observation, np.float32).tobytes() + state.tobytes()
        size = 4 * n * (self._size + self.facts.memory)
        answer = np.frombuffer(self._process.call([question], runner.ANSWER, size), np.float32)
        if not np.isfinite(answer).all():
            self.close()
            raise AgentError("the policy's process answers with numbers that are not finite")
        scores, after = np.split(answer, [n * self._size])
        return scores.reshape(n, self._size), after.reshape(n, self.facts.memory)


def agreement(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,) whether actions (n, ...) are the same; doses to a thousandth of the standard dose."""
    same = np.abs(ours - theirs) <= 1e-3 if ours.dtype.kind == "f" else ours == theirs
    found: NDArray[np.bool_] = same.reshape(len(ours), -1).all(1)
    return found


def dependent(differed: int, asked: int) -> AgentError:
    """The error of a policy whose decisions on a patient depend on the others."""
    told = f"{differed} of {asked} were others among other patients"
    return AgentError(f"the policy's decisions on a patient depend on the rest of the batch: {told}")
