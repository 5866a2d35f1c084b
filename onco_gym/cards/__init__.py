"""Cards: everything that is known of a disease, as data. A card file becomes a validated :class:`Card`."""

from typing import TYPE_CHECKING, Any

from onco_gym.cards.files import CardError, card_files, card_id

if TYPE_CHECKING:
    from onco_gym.cards.load import digest, load_card
    from onco_gym.cards.schema import Card

__all__ = ["Card", "CardError", "card_files", "card_id", "digest", "load_card"]


def __getattr__(name: str) -> Any:  # the schema is imported when first used: registering environments does not need it
    if name == "Card":
        from onco_gym.cards.schema import Card

        return Card
    if name in ("digest", "load_card"):
        from onco_gym.cards import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
