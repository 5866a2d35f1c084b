"""Journeys: an episode as a clinical event graph, its files, and its picture.

>>> import gymnasium as gym
>>> from onco_gym.journeys import draw, from_episode, to_json
>>> env = gym.make("onco_gym/NSCLC-v0", render_mode="ansi")  # with a render mode, the environment keeps its history
>>> ...  # reset, and step to the end
>>> graph = from_episode(env)
>>> draw(graph, "journey.png")
"""

from onco_gym.journeys.exchange import from_graphml, from_json, to_graphml, to_json
from onco_gym.journeys.graph import JourneyError, Record, from_episode, from_records, validate
from onco_gym.journeys.picture import draw

__all__ = [
    "JourneyError",
    "Record",
    "draw",
    "from_episode",
    "from_graphml",
    "from_json",
    "from_records",
    "to_graphml",
    "to_json",
    "validate",
]
