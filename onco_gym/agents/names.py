"""The agents that have a name. A table of plain text, so that command lines can show it without importing anything heavy."""

from dataclasses import dataclass

REGIMEN = "REGIMEN"
"""Stands for the name of a regimen in the name of an agent."""


@dataclass(frozen=True)
class NamedAgent:
    """An agent that can be asked for by name.

    Attributes:
        name: its name; :data:`REGIMEN` in it stands for the name of a regimen.
        kinds: the kinds of environment that it can act in.
        about: what it does.
    """

    name: str
    kinds: tuple[str, ...]
    about: str


NAMED = (
    NamedAgent("random", ("regimen", "dose", "workflow"), "any possible action, with equal chance"),
    NamedAgent("guideline", ("regimen", "dose", "workflow"), "follows the card's guideline"),
    NamedAgent("clinician", ("regimen",), "the guideline with practice variation and known disparities"),
    NamedAgent("planner", ("regimen",), "tries each regimen on simulated look-alikes; slow"),
    NamedAgent(REGIMEN, ("regimen", "dose"), "this regimen in every cycle, as in 'osimertinib'"),
    NamedAgent(f"adaptive:{REGIMEN}", ("dose",), "adaptive therapy with this regimen"),
    NamedAgent("never", ("workflow",), "the guideline's regimens, without any test"),
    NamedAgent("everything", ("workflow",), "the guideline's regimens, with every test at every visit"),
)
"""Every agent that has a name; :func:`onco_gym.agents.makers.make_named` makes them."""


def describe_agents() -> str:
    """What an AGENT can be, one line each, for help texts."""
    every = {kind for one in NAMED for kind in one.kinds}
    rows = []
    for one in NAMED:
        limits = "" if set(one.kinds) == every else f" ({' and '.join(one.kinds)} environments)"
        rows.append((one.name, f"{one.about}{limits}"))
    rows += [
        ("FILE.onnx", "a policy file"),
        ("FILE.zip", "a model of Stable-Baselines3; it is unpickled, so use one you trust"),
        ("MODULE:OBJECT", "an agent of your own, or a class or function that makes one from the card"),
    ]
    return "\n".join(f"  {name:<18} {about}" for name, about in rows)
