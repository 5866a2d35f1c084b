"""Twins of an episode: what would have been seen of the same patient in another group."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.agents import Episodes
from onco_gym.fairness.counterfactual import Effect, FairnessError, checked_effect, engine_of, group_index, groups_of
from onco_gym.fairness.replay import Replay, Twin
from onco_gym.interfaces.engine import Engine
from onco_gym.interfaces.origins import Origin
from onco_gym.interfaces.single import OncologyEnv


@dataclass(frozen=True, eq=False)
class Twins:
    """Observations of twins at every visited state. H visits, n patients; for a single environment there is no axis n.

    Attributes:
        attribute: the protected attribute.
        value: the twins' group.
        effect: what else changed; see :data:`onco_gym.fairness.Effect`.
        observations: (H, n, F) observations of the twin; 0 where it has died or the patient's episode is over.
        masks: (H, n, mask size) action masks of the twin; false in the same places.
        factual: (H, n, F) observations of the patient.
        alive: (H, n) whether there is a twin to compare with. Ask a policy only about these.
    """

    attribute: str
    value: str
    effect: Effect
    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    factual: NDArray[np.float32]
    alive: NDArray[np.bool_]


def find_twins(
    source: OncologyEnv | Engine | Any, attribute: str, value: Any, effect: Effect = "total", episodes: Episodes | None = None
) -> Twins:
    """Find what would have been seen of the same patients, at every visited state, had ``attribute`` been ``value``.

    Biology, random effects, chance and decisions stay the same.

    Args:
        source: an environment with one patient (wrapped or not), during or after its episode. With ``episodes``, the engine
            or an environment of their rollout.
        attribute: a protected attribute, e.g. ``"insurance"``.
        value: a group's name or value, e.g. ``"medicaid"``, ``3`` or ``True``.
        effect: ``"total"``: social and access descendants change too. ``"direct"``: only the attribute as shown changes.
        episodes: the result of a :func:`onco_gym.rollout`.

    Returns:
        For an environment, one row for each observation it gave, the current one last. For episodes, one for each decision.

    Raises:
        FairnessError: if an argument is not as described.
        StampError: for episodes of another engine.
    """
    checked_effect(effect)
    given = None if episodes is None else episodes.given
    if episodes is not None:
        engine, origin, actions = engine_of(source), episodes.origin, list(episodes.actions)
        episodes.stamp.check(engine.stamp)
    else:
        env, at = _played(source)
        engine, origin, actions = env.engine, Origin.one(*at), [np.asarray(action)[None] for action in env.actions]
    group, n = group_index(engine.card, attribute, value), len(origin.row)
    replay = Replay(engine, origin, [Twin(attribute, group, np.arange(n))], effect)
    rows = []
    for step in range(len(actions) + (given is None)):  # an environment has one more visit than actions
        seen, twin = replay.look(), replay.look_at_twins()
        visited = np.ones(n, bool) if given is None else given[step] >= 0
        there = visited & twin.alive
        shown = np.where(there[:, None], twin.observation, 0)
        rows.append((shown, twin.mask & there[:, None], np.where(visited[:, None], seen.observation, 0), there))
        if step < len(actions):
            replay.move(actions[step], None if given is None else given[step])
    parts = [np.array(part) if episodes is not None else np.array(part)[:, 0] for part in zip(*rows, strict=True)]
    return Twins(attribute, groups_of(engine.card, attribute)[group], effect, *parts)


def _played(source: Any) -> tuple[OncologyEnv, tuple[int, str]]:
    """The environment with one patient that ``source`` is or wraps, and where its episode began."""
    env = getattr(source, "unwrapped", None)
    if not isinstance(env, OncologyEnv):
        kind = type(source).__name__
        raise FairnessError(f"expected an environment of onco_gym with one patient, or an engine and episodes, got {kind}")
    if env.origin is None:
        raise FairnessError("the environment has no patient yet: call reset() first")
    return env, env.origin
