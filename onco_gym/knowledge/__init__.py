"""Knowledge: what guidelines say."""

from onco_gym.knowledge.guideline import Guideline

__all__ = ["Guideline"]
