"""Journeys: an episode as a clinical event graph, its files, and its picture.

>>> import gymnasium as gym
>>> from onco_gym.journeys import draw, from_episode, to_json
>>> env = gym.make("onco_gym/NSCLC-v0")
>>> ...  # reset, and step to the end
>>> graph = from_episode(env)
>>> draw("journey.png", graph)
"""

from onco_gym.journeys.events import JourneyError
from onco_gym.journeys.exchange import from_graphml, from_json, to_graphml, to_json
from onco_gym.journeys.graph import from_actions, from_episode, from_visits
from onco_gym.journeys.picture import draw
from onco_gym.journeys.validation import validate
from onco_gym.journeys.visits import Visit

__all__ = [
    "JourneyError",
    "Visit",
    "draw",
    "from_actions",
    "from_episode",
    "from_graphml",
    "from_json",
    "from_visits",
    "to_graphml",
    "to_json",
    "validate",
]
