"""Entries of a board, and their files in the board's folder.

A board's folder keeps every published entry as ``entries/ID.json``, and its policies beside it by their digest. Whoever has
the folder and the season's secret can run every entry again. Of other submissions the folder keeps only that they were made.
"""

import datetime
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from onco_gym.agents.names import NAMED, REGIMEN
from onco_gym.foundation.files import replacing
from onco_gym.foundation.results import from_plain, read_plain, to_plain
from onco_gym.leaderboard.boards import Hex
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.manifests import Manifest

ENTRIES, POLICIES, JOURNEYS = "entries", "policies", "journeys"
"""Folders of a board's folder; that of policies is inside that of entries."""
AGENTS = tuple(one.name for one in NAMED if REGIMEN not in one.name)
"""Agents that an entry's file may name. Any other name could make us run whatever the file's author wants."""
State = Literal["waiting", "working", "done", "refused", "failed"]
"""Of a submission: it waits, is worked on, has a judgement, was refused with a reason, or we failed to judge it."""
Kind = Literal["verified", "self-reported", "reference"]
"""Run by us in a sandbox; run by its authors; or an agent of onco_gym itself."""


UNTOLD = Manifest(name="not published", authors=["not published"])
"""What files say of a policy whose score is not published."""


class EntryError(ValueError):
    """An entry that cannot be read or written. The message says what was expected."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A submission to a board, and what became of it.

    Attributes:
        id: 12 hexadecimal digits.
        board, season: names.
        account: who submitted it.
        kind: who ran it.
        manifest: what its authors say.
        submitted: when, in UTC.
        policies: environment id to the SHA-256 of its policy file; empty for an agent that is not a policy file.
        agent: the name of the agent if it has no policy files, as :func:`onco_gym.load_agent` takes it.
        state: where it stands.
        reason: why it was refused, or why its score is not published; in words.
        published: whether its score is published: it is better than the account's last published one by more than noise.
        judgements: one for each environment of the board, once it is done.
    """

    id: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    board: str
    season: str
    account: str
    kind: Kind
    manifest: Manifest
    submitted: datetime.datetime
    policies: dict[str, Hex]
    agent: str
    state: State
    reason: str
    published: bool
    judgements: tuple[Judgement, ...]

    @property
    def ended(self) -> bool:
        """Whether it is decided what became of it."""
        return self.state not in ("waiting", "working")

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``json.dumps`` can write."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_json(cls, content: Any) -> "Entry":
        """Read what :meth:`to_json` wrote.

        Raises:
            EntryError: if something is missing or of the wrong type.
        """
        try:
            return from_plain(cls, content)
        except ValueError as error:
            raise EntryError(f"this is not an entry: {error}") from None


def without_patients(entry: Entry) -> Entry:
    """An entry without the figures of single patients."""
    return replace(entry, judgements=tuple(one.without_patients() for one in entry.judgements))


def while_secret(entry: Entry) -> Entry:
    """What may be seen of a published entry while its season is open; see :meth:`Judgement.while_secret`."""
    return replace(entry, judgements=tuple(one.while_secret() for one in entry.judgements))


def only_counted(entry: Entry) -> Entry:
    """Of a submission whose score is not published: that it was made, by whom, when, and its state."""
    return replace(entry, manifest=UNTOLD, policies={}, agent="", reason="", judgements=())


def digest_of(policy: bytes) -> str:
    """SHA-256 of a policy file, in hexadecimal digits."""
    return hashlib.sha256(policy).hexdigest()


def write_entry(folder: str | os.PathLike[str], entry: Entry, policies: Mapping[str, bytes]) -> None:
    """Write an entry and its policy files (by environment id) into a board's folder, each atomically."""
    for environment, policy in policies.items():
        if digest_of(policy) != entry.policies.get(environment):
            raise EntryError(f"the policy for {environment} is not the one that entry {entry.id} names")
        path = policy_file(folder, entry.policies[environment])
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(policy)
    path = Path(folder) / ENTRIES / f"{entry.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(entry.to_json(), allow_nan=False) + "\n", encoding="utf-8")


def read_entries(folder: str | os.PathLike[str], board: str) -> list[Entry]:
    """The submissions in a board's folder, in their order. Those whose score is not published are only counted.

    Args:
        folder: of the board.
        board: its name.

    Raises:
        EntryError: if a file is damaged, or is no entry of this board.
    """
    found = [read_entry(path, board) for path in sorted((Path(folder) / ENTRIES).glob("*.json"))]
    return sorted(found, key=lambda entry: (entry.submitted, entry.id))


def read_entry(path: Path, board: str) -> Entry:
    """An entry from its file. Nothing in it is trusted: neither its id, nor that its agent is harmless.

    Args:
        path: of the file.
        board: the name of the board.

    Raises:
        EntryError: if the file is damaged, or is no entry of this board.
    """
    try:
        entry = Entry.from_json(read_plain(path))
    except ValueError as error:
        raise EntryError(f"{path}: {error}") from None
    if (entry.id, entry.board) != (path.stem, board):
        raise EntryError(f"{path} is entry {entry.id} of {entry.board}, expected {path.stem} of {board}")
    if not entry.ended or (entry.published and entry.state != "done"):
        raise EntryError(f"{path} is {entry.state}, expected a submission that has ended, and one that is done if published")
    if not entry.published:
        return only_counted(entry)
    if entry.agent and (entry.kind != "reference" or entry.agent not in AGENTS):
        expected = f"expected no agent, or for a reference one of {', '.join(AGENTS)}"
        raise EntryError(f"{path} is {entry.kind} and names the agent {entry.agent!r}: {expected}")
    return entry


def read_policies(folder: str | os.PathLike[str], entry: Entry) -> dict[str, bytes]:
    """The policy files of an entry, by environment id.

    Raises:
        EntryError: if one is missing, or is not the one that was submitted.
    """
    found = {}
    for environment, digest in entry.policies.items():
        path = policy_file(folder, digest)
        content = path.read_bytes() if path.is_file() else b""
        if digest_of(content) != digest:
            raise EntryError(f"{path} is missing, or is not the policy that was submitted")
        found[environment] = content
    return found


def policy_file(folder: str | os.PathLike[str], digest: str) -> Path:
    """Where a board's folder keeps the policy with this digest."""
    return Path(folder) / ENTRIES / POLICIES / f"{digest}.onnx"
