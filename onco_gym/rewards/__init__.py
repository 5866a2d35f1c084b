"""Rewards: each term a function of one cycle, in quality-adjusted life years once weighted."""

from onco_gym.rewards.blend import TERMS, Term, blend, reward_terms

__all__ = ["TERMS", "Term", "blend", "reward_terms"]
