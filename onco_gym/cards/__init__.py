"""Cards: everything that is known of a disease, as data. A card file becomes a validated :class:`Card`."""

from onco_gym.cards.load import CardError, card_files, card_id, digest, load_card
from onco_gym.cards.schema import Card

__all__ = ["Card", "CardError", "card_files", "card_id", "digest", "load_card"]
