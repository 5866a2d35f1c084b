"""The small language of treatment sequences: ``"gefitinib_erlotinib > osimertinib(31%) > platinum_pemetrexed(4)"``.

Regimens are given in order, separated by ``>``, each until progression. A regimen can have options in brackets, separated by
commas:

- ``4``: at most 4 cycles; then the next regimen follows, progression or not;
- ``toxicity``: the next regimen also follows if this one is stopped for toxicity (otherwise treatment pauses until
  progression);
- ``31%``: only that share of patients receives this regimen; the others skip it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from onco_gym.foundation.words import did_you_mean

_STAGE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*(?:\(([^()]*)\))?")
MOST_STAGES = 12
"""Most regimens in one sequence."""


class ProtocolError(ValueError):
    """A sequence of regimens that cannot be read."""


@dataclass(frozen=True)
class Stage:
    """One regimen of a sequence.

    Attributes:
        regimen: its name.
        cycles: number of cycles after which the next one follows; None means only at progression.
        toxicity: whether the next one follows if this one is stopped for toxicity.
        share: share of patients who receive it.
    """

    regimen: str
    cycles: int | None = None
    toxicity: bool = False
    share: float = 1.0


def parse_protocol(text: str, regimens: Collection[str]) -> tuple[Stage, ...]:
    """Read a sequence of ``regimens``.

    Raises:
        ProtocolError: if it cannot be read; the message names the part and what was expected.
    """
    if not isinstance(text, str) or not text.strip():
        raise ProtocolError(f"expected regimens separated by '>', got {text!r:.80}")
    if len(text) > 2000:
        raise ProtocolError(f"the sequence has {len(text)} characters, expected at most 2000")
    parts = [part.strip() for part in text.split(">")]
    if len(parts) > MOST_STAGES:
        raise ProtocolError(f"the sequence has {len(parts)} regimens, expected at most {MOST_STAGES}")
    return tuple(_stage(part, text, regimens) for part in parts)


def _stage(part: str, text: str, regimens: Collection[str]) -> Stage:
    match = _STAGE.fullmatch(part)
    if match is None:
        raise ProtocolError(f"cannot read {part!r:.80} in {text!r:.80}: expected a regimen, as in 'docetaxel' or 'docetaxel(4)'")
    if match[1] not in regimens:
        raise ProtocolError(
            f"there is no regimen {match[1]!r:.80}{did_you_mean(match[1], regimens)}: expected one of {', '.join(regimens)}"
        )
    cycles, toxicity, share = None, False, 1.0
    for rule in [rule.strip() for rule in match[2].split(",")] if match[2] is not None else []:
        if re.fullmatch(r"\d{1,4}", rule) and int(rule) > 0:
            cycles = int(rule)
        elif rule == "toxicity":
            toxicity = True
        elif re.fullmatch(r"\d{1,3}(\.\d{1,6})?%", rule) and float(rule[:-1]) <= 100:
            share = float(rule[:-1]) / 100
        else:
            raise ProtocolError(
                f"cannot read {rule!r:.80} in {part!r:.80}: expected cycles (4), toxicity, or a share of patients (31%)"
            )
    return Stage(match[1], cycles, toxicity, share)
