"""Rewards: each term a function of one cycle, in quality-adjusted life years once weighted."""

from onco_gym.rewards.blend import TERMS, UNITS, Term, blend, card_weights, reward_terms
from onco_gym.rewards.fairness import Divergence, Ledger, divergence, empty_ledger, even_handedness, record
from onco_gym.rewards.guideline import hear, verdict
from onco_gym.rewards.scene import Scene, Verdict

__all__ = [
    "TERMS",
    "UNITS",
    "Term",
    "blend",
    "card_weights",
    "reward_terms",
    "Divergence",
    "Ledger",
    "divergence",
    "empty_ledger",
    "even_handedness",
    "record",
    "hear",
    "verdict",
    "Scene",
    "Verdict",
]
