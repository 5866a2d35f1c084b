"""Knowledge: guideline rules, the panel of experts, the evidence graph, and plausibility."""

from onco_gym.knowledge.guideline import Guideline

__all__ = ["Guideline"]
