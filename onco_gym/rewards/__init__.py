"""Rewards. Each term is a function of one cycle, and its weight turns it into quality-adjusted life years."""

from onco_gym.rewards.fairness import (
    GroupDivergence,
    Tally,
    count_decisions,
    empty_tally,
    even_handedness,
    group_divergence,
    merged,
)
from onco_gym.rewards.guideline import hear, verdict
from onco_gym.rewards.scene import Scene, Verdict
from onco_gym.rewards.terms import TERMS, UNITS, Term, blend, card_weights, reward_terms

__all__ = [
    "TERMS",
    "UNITS",
    "Term",
    "blend",
    "card_weights",
    "reward_terms",
    "GroupDivergence",
    "Tally",
    "group_divergence",
    "merged",
    "empty_tally",
    "even_handedness",
    "count_decisions",
    "hear",
    "verdict",
    "Scene",
    "Verdict",
]
