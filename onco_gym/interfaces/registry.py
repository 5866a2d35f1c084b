"""The registry: kinds of environment, and the environments that Gymnasium knows. It imports nothing heavy."""

import os
from dataclasses import dataclass

import gymnasium as gym

from onco_gym.cards.folder import card_files, card_id
from onco_gym.foundation.words import did_you_mean

DECIDE = ("events", "cycles")
"""When an agent decides: at decision points (:mod:`onco_gym.interfaces.decisions`), or in every cycle."""
NAMESPACE = "onco_gym"
OWN_CARD = "Card"
"""Stands for the card's name in ids that need a card of your own."""


@dataclass(frozen=True)
class KindEntry:
    """A kind of environment.

    Attributes:
        name: as ``kind=`` takes it.
        suffix: what follows the card's name in an id.
        action: what an action is, for tables; ``{regimens}`` stands for their number.
        decide: when an agent decides, if it is not said. Doses are set in every cycle.
        entry_point: ``module:class`` of the :class:`onco_gym.interfaces.kinds.Kind`.
    """

    name: str
    suffix: str
    action: str
    decide: str
    entry_point: str


KINDS = {
    kind.name: kind
    for kind in (
        KindEntry("regimen", "", "one of {regimens} regimens", "events", "onco_gym.interfaces.kinds:Regimens"),
        KindEntry("dose", "-Dose", "an intensity per regimen", "cycles", "onco_gym.interfaces.dosing:Dosing"),
        KindEntry(
            "workflow", "-Workflow", "tests, evidence, regimen, next visit", "events", "onco_gym.interfaces.workflow:Workflow"
        ),
    )
}
"""Every kind of environment by its name."""


class UnknownEnvironmentError(ValueError):
    """An environment, card or kind that does not exist. The message says which ones do."""


@dataclass(frozen=True)
class Environment:
    """An environment: a card and what an action is.

    Attributes:
        id: as ``gym.make`` takes it.
        card: the name of a shipped card, or the path of a card file.
        kind: a key of :data:`KINDS`.
        multi_objective: whether the reward is the vector of terms.
    """

    id: str
    card: str
    kind: str = "regimen"
    multi_objective: bool = False


def environments() -> list[Environment]:
    """The environments of all shipped cards, sorted by id."""
    made = [one for name, path in card_files().items() for one in _environments(card_id(path), name)]
    return sorted(made, key=lambda one: one.id)


def registered_ids() -> list[str]:
    """The ids of the environments of all shipped cards. Those named ``Card`` need a card of your own and are left out."""
    return [one.id for one in environments()]


def environment_id(card: str, kind: str = "regimen") -> str:
    """The id of the environment of the card with the id ``card``."""
    return f"{NAMESPACE}/{card}{KINDS[kind].suffix}-v0"


def find_environment(text: str | os.PathLike[str], kind: str | None = None) -> Environment:
    """The environment that a text names.

    Args:
        text: an id (``onco_gym/NSCLC-Dose-v0``), its short form (``NSCLC-Dose``), the name of a shipped card (``nsclc``), or
            the path of a card file. Case does not matter.
        kind: for a card, a key of :data:`KINDS`; by default ``"regimen"``. An id includes its kind.

    Raises:
        UnknownEnvironmentError: if there is no such environment, or ``kind`` contradicts the id.
    """
    if kind is not None and kind not in KINDS:
        raise UnknownEnvironmentError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    name = os.fspath(text)
    if name.endswith(".toml"):
        return Environment(environment_id(OWN_CARD, kind or "regimen"), name, kind or "regimen")
    shipped = {path.stem: path for path in card_files().values()}
    if name.lower() in shipped:
        short = card_id(shipped[name.lower()])
        return Environment(environment_id(short, kind or "regimen"), name.lower(), kind or "regimen")
    known = {one.id.removeprefix(f"{NAMESPACE}/").removesuffix("-v0").lower(): one for one in environments()}
    found = known.get(name.removeprefix(f"{NAMESPACE}/").removesuffix("-v0").lower())
    if found is None:
        if name.startswith(f"{NAMESPACE}/") and name in gym.registry:
            raise UnknownEnvironmentError(f"{name} needs a card of your own: expected the path of a card (.toml) instead")
        ids = registered_ids()
        hint = did_you_mean(name, [*ids, *(one.removeprefix(f"{NAMESPACE}/").removesuffix("-v0") for one in ids)])
        raise UnknownEnvironmentError(
            f"there is no environment or card {name!r}{hint}: expected the path of a card (.toml) or one of {', '.join(ids)}"
        )
    if kind is not None and kind != found.kind:
        raise UnknownEnvironmentError(f"{name} is of kind {found.kind!r}, not {kind!r}")
    return found


def register_all() -> None:
    """Register the environments of every shipped card, and ``onco_gym/Card-v0`` and the like for cards of your own.

    A card named NSCLC has ``onco_gym/NSCLC-v0``, ``onco_gym/NSCLC-Dose-v0``, ``onco_gym/NSCLC-Workflow-v0``, and
    ``onco_gym/mo-NSCLC-v0``, whose reward is a vector.
    """
    for one in [*environments(), *_environments(OWN_CARD, "")]:
        shell = "MultiObjective" if one.multi_objective else "Oncology"
        gym.register(
            one.id,
            entry_point=f"onco_gym.interfaces.single:{shell}Env",
            vector_entry_point=f"onco_gym.interfaces.vector:{shell}VectorEnv",
            disable_env_checker=one.multi_objective,  # Gymnasium's own checker expects one number
            kwargs={"kind": one.kind, **({"card": one.card} if one.card else {})},
        )


def _environments(name: str, card: str) -> list[Environment]:
    """The environments of the card with the id ``name``."""
    plain = [Environment(environment_id(name, kind), card, kind) for kind in KINDS]
    return [*plain, Environment(f"{NAMESPACE}/mo-{name}-v0", card, multi_objective=True)]
