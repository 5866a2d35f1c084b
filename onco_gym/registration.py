"""Register every card's environments with Gymnasium. Reads a line of each card, imports nothing heavy."""

import gymnasium as gym

from onco_gym.cards.files import card_files, card_id

NAMESPACE = "onco_gym"


KINDS = {"": "regimen", "-Dose": "dose", "-Workflow": "workflow"}
"""What stands behind a card's name in the ids of its environments, and the kind of environment that it means."""


def register_all() -> None:
    """Register the environments of every shipped card, and ``onco_gym/Card-v0`` and the like for cards of your own.

    A card named NSCLC has ``onco_gym/NSCLC-v0``, ``onco_gym/NSCLC-Dose-v0``, ``onco_gym/NSCLC-Workflow-v0``, and
    ``onco_gym/mo-NSCLC-v0``, whose reward is a vector.
    """
    for name, path in card_files().items():
        _register_card(card_id(path), {"card": name})
    _register_card("Card", {})


def registered_ids() -> list[str]:
    """The ids of all environments of shipped cards; those named Card need a card and are left out."""
    own = {f"{NAMESPACE}/{name}-v0" for name in ("Card", "mo-Card", *(f"Card{end}" for end in KINDS if end))}
    return sorted(key for key in gym.registry if key.startswith(f"{NAMESPACE}/") and key not in own)


def _register_card(name: str, kwargs: dict[str, str]) -> None:
    for end, kind in KINDS.items():
        gym.register(
            f"{NAMESPACE}/{name}{end}-v0",
            entry_point="onco_gym.interfaces.single:OncologyEnv",
            vector_entry_point="onco_gym.interfaces.vector:OncologyVectorEnv",
            kwargs={**kwargs, "kind": kind},
        )
    gym.register(
        f"{NAMESPACE}/mo-{name}-v0",
        entry_point="onco_gym.interfaces.single:MultiObjectiveEnv",
        vector_entry_point="onco_gym.interfaces.vector:MultiObjectiveVectorEnv",
        disable_env_checker=True,  # Gymnasium's own checker expects one number
        kwargs=dict(kwargs),
    )
