"""The stamp of a result: what it was made with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class StampError(ValueError):
    """A stamp that cannot be read, or results that were made with something else."""


@dataclass(frozen=True)
class Stamp:
    """What the results of an engine depend on, besides the agent and the seed. Every file of results carries one.

    Attributes:
        environment: id of the environment.
        card_digest: of the card's content.
        split: the patients' split, or "own".
        cohort_digest: SHA-256 of the patients.
        weights: reward weights by term.
        horizon: cycles until truncation.
        decide: when the agent decided: "events" or "cycles".
        terms: the reward terms that are computed.
        version: of onco_gym.
    """

    environment: str
    card_digest: str
    split: str
    cohort_digest: str
    weights: Mapping[str, float]
    horizon: int
    decide: str
    terms: tuple[str, ...]
    version: str

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``json.dumps`` can write."""
        return {**asdict(self), "terms": list(self.terms)}

    @classmethod
    def from_json(cls, content: Any) -> "Stamp":
        """Read what :meth:`to_json` wrote.

        Raises:
            StampError: if something is missing or of the wrong type.
        """
        texts, others = (
            ("environment", "card_digest", "split", "cohort_digest", "decide", "version"),
            {"weights": dict, "horizon": int, "terms": list},
        )
        wanted = {**dict.fromkeys(texts, str), **others}
        if not isinstance(content, dict) or any(not isinstance(content.get(name), kind) for name, kind in wanted.items()):
            raise StampError(f"the stamp is not an object with {', '.join(wanted)}")
        return cls(**{**{name: content[name] for name in wanted}, "terms": tuple(content["terms"])})

    def check(self, other: "Stamp") -> None:
        """Compare with the stamp of the engine that is to replay or judge these results. The version may differ.

        Raises:
            StampError: if they differ. The message names the first difference.
        """
        for name in ("environment", "card_digest", "split", "cohort_digest", "weights", "horizon", "decide", "terms"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise StampError(f"the results were made with {name} {ours!r}, but the engine has {theirs!r}")
