"""Register every card's environments with Gymnasium. Reads a line of each card, imports nothing heavy."""

import gymnasium as gym

from onco_gym.cards.files import card_files, card_id

NAMESPACE = "onco_gym"


def register_all() -> None:
    """Register ``onco_gym/<id>-v0`` for every shipped card, and ``onco_gym/Card-v0`` for cards of your own."""
    for name, path in card_files().items():
        _register(f"{card_id(path)}-v0", {"card": name})
    _register("Card-v0", {})


def registered_ids() -> list[str]:
    """The ids of all shipped environments, without ``onco_gym/Card-v0``, which needs a card."""
    return sorted(key for key in gym.registry if key.startswith(f"{NAMESPACE}/") and key != f"{NAMESPACE}/Card-v0")


def _register(name: str, kwargs: dict[str, str]) -> None:
    gym.register(
        f"{NAMESPACE}/{name}",
        entry_point="onco_gym.interfaces.single:OncologyEnv",
        vector_entry_point="onco_gym.interfaces.vector:OncologyVectorEnv",
        kwargs=kwargs,
    )
