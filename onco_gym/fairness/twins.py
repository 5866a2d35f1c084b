"""The twin's side of an episode: what would have been seen of the same patient in another group."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Episodes
from onco_gym.fairness.counterfactual import Effect, FairnessError, checked_effect, engine_of, group_index, groups_of
from onco_gym.fairness.replay import Replay, Twin, origins
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.single import OncologyEnv


@dataclass(frozen=True, eq=False)
class Twins:
    """Observations of twins, one for every visited state. H visits; n patients, an axis that one environment does not have.

    Attributes:
        attribute: the protected attribute.
        value: the group that the twins are in.
        effect: what else changed; see :data:`onco_gym.fairness.Effect`.
        observations: (H, n, F) of the twin; 0 where it has died, or the patient's episode was over.
        masks: (H, n, mask size) actions that the twin could have; false in the same places.
        factual: (H, n, F) observations of the patient.
        alive: (H, n) whether the twin is there to be compared; ask a policy about these only.
    """

    attribute: str
    value: str
    effect: Effect
    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    factual: NDArray[np.float32]
    alive: NDArray[np.bool_]


def twins(
    env_or_episode: OncologyEnv | Episodes | Any,
    attribute: str,
    value: Any,
    effect: Effect = "total",
    engine: Engine | Any = None,
    seed: int = 0,
) -> Twins:
    """What would have been seen of the same patients, at every visited state, had ``attribute`` been ``value``.

    Biology, random effects, chance and decisions are kept.

    Args:
        env_or_episode: an environment with one patient (wrapped or not), under way or finished; or the episodes of a
            :func:`onco_gym.agents.rollout`.
        attribute: a protected attribute, e.g. ``"insurance"``.
        value: a group's name or value, e.g. ``"medicaid"``, ``3`` or ``True``.
        effect: ``"total"``, social and access descendants follow; or ``"direct"``, only the attribute as shown changes.
        engine: of the rollout (an engine or an environment); not needed for an environment.
        seed: of the rollout.

    Returns:
        For an environment, one row for each observation it gave, the present one last; for episodes, one for each decision.

    Raises:
        FairnessError: for anything that is not as above.
    """
    checked_effect(effect)
    if isinstance(env_or_episode, Episodes):
        if engine is None:
            raise FairnessError("episodes can be replayed only with the engine and the seed of their rollout: pass both")
        compiled, given = engine_of(engine), env_or_episode.given
        rows, keys = origins(compiled, given.shape[1], seed)
        return _walk(compiled, rows, keys, attribute, value, effect, list(env_or_episode.actions), given)
    env = getattr(env_or_episode, "unwrapped", None)
    if not isinstance(env, OncologyEnv):
        kind = type(env_or_episode).__name__
        raise FairnessError(f"expected an environment of onco_gym with one patient, or episodes of a rollout, got {kind}")
    if env.origin is None:
        raise FairnessError("the environment has no patient yet: call reset() first")
    row, key = env.origin
    actions = [np.asarray(action)[None] for action in env.actions]
    made = _walk(env.engine, np.array([row], np.intp), np.array([key], np.uint32), attribute, value, effect, actions, None)
    return dataclasses.replace(
        made, **{name: getattr(made, name)[:, 0] for name in ("observations", "masks", "factual", "alive")}
    )


def _walk(
    engine: Engine,
    rows: NDArray[np.intp],
    keys: NDArray[np.uint32],
    attribute: str,
    value: Any,
    effect: Effect,
    actions: Sequence[NDArray[Any]],
    given: NDArray[np.int32] | None,
) -> Twins:
    """The twins at every visit: one more than there are actions, or, if it is known what was ``given``, as many."""
    group = group_index(engine.card, attribute, value)
    replay = Replay(engine, rows, keys, [Twin(attribute, group, np.arange(len(rows)))], effect)
    observations, masks, factual, alive = [], [], [], []
    for step in range(len(actions) + (given is None)):
        seen, twin = replay.look(), replay.look_at_twins()
        visited = np.ones(len(rows), bool) if given is None else given[step] >= 0
        there = visited & twin.alive
        observations.append(np.where(there[:, None], twin.observation, 0))
        masks.append(twin.mask & there[:, None])
        factual.append(np.where(visited[:, None], seen.observation, 0))
        alive.append(there)
        if step < len(actions):
            replay.move(actions[step], None if given is None else given[step])
    name = groups_of(engine.card, attribute)[group]
    return Twins(attribute, name, effect, *(np.array(part) for part in (observations, masks, factual, alive)))
