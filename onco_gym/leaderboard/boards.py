"""Boards: what a leaderboard measures, on which patients, and under which rules.

A board is a folder of ``leaderboards/`` with a file ``board.toml``, its published entries and its generated page.
"""

import datetime
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

import tomlkit
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from onco_gym.foundation.files import replacing
from onco_gym.foundation.results import first_problem
from onco_gym.foundation.words import did_you_mean
from onco_gym.interfaces.registry import find_environment
from onco_gym.leaderboard.metrics import METRICS

_PACKAGED = Path(__file__).parents[1] / "leaderboards_data"
_CHECKOUT = Path(__file__).parents[2] / "leaderboards"
FILE = "board.toml"
TRACKS = {"single": "regimen", "offline": "regimen", "multi-objective": "regimen", "workflow": "workflow", "dose": "dose"}
"""Tracks, and the kind of environment that their boards have. On the offline track, policies learn from recorded decisions."""
Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class BoardError(ValueError):
    """A board that cannot be used. The message names the file, the key, the value and what was expected."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Season(_Strict):
    """The time in which a board takes submissions. All of them meet the same secret patients.

    Attributes:
        name: of the season.
        opened: the first day.
        closed: the last day; None while it is not known.
        commitment: hash of the secret, see :func:`onco_gym.leaderboard.seasons.commitment`. It is published before the first
            submission.
        secret: 32 bytes in hexadecimal digits, published when the season has ended.
        revealed: the moment of that; None while it is not known. Nobody knew the secret before.
    """

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,31}$")]
    opened: datetime.date
    closed: datetime.date | None = None
    commitment: Hex
    secret: Hex | None = None
    revealed: AwareDatetime | None = None

    @property
    def ended(self) -> bool:
        """Whether the secret is public, so that anyone can run every entry again."""
        return self.secret is not None


class Caps(_Strict):
    """How many submissions an account can make in a day and in thirty days."""

    per_day: Annotated[int, Field(ge=1, le=1000)] = 5
    per_month: Annotated[int, Field(ge=1, le=10_000)] = 30


class Board(_Strict):
    """A leaderboard.

    Attributes:
        name: of its folder.
        title: one line.
        about: a sentence or two.
        track: a key of :data:`TRACKS`. On the multi-objective track, entries that no other one beats in every metric are marked.
        environments: ids. An entry has a policy for each.
        patients: test patients in each environment.
        metrics: columns of the table, from :data:`onco_gym.leaderboard.metrics.METRICS`. The first one ranks.
        caps: limits for each account.
        season: the present season.
        past: the seasons before it, all of which have ended.
    """

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]{0,31}$")]
    title: Annotated[str, Field(min_length=1, max_length=80)]
    about: Annotated[str, Field(max_length=600)]
    track: Literal["single", "offline", "multi-objective", "workflow", "dose"]
    environments: Annotated[list[str], Field(min_length=1, max_length=16)]
    patients: Annotated[int, Field(ge=16, le=100_000)]
    metrics: Annotated[list[str], Field(min_length=1)]
    caps: Caps = Caps()
    season: Season
    past: list[Season] = []

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in METRICS:
                raise ValueError(f"{name!r} is not a metric{did_you_mean(name, METRICS)}: expected some of {', '.join(METRICS)}")
        return names

    @model_validator(mode="after")
    def _each_season_once(self) -> Self:
        names = [one.name for one in (*self.past, self.season)]
        if len(set(names)) < len(names):
            raise ValueError(f"seasons are {', '.join(names)}, expected each once")
        if not all(one.ended for one in self.past):
            raise ValueError("a past season has no secret, expected that of every season that has ended")
        return self

    def ended(self, season: str) -> bool:
        """Whether this season of the board has ended; False if there was none."""
        return any(one.ended for one in (*self.past, self.season) if one.name == season)

    def during(self, season: str) -> "Board":
        """The board in one of its seasons.

        Raises:
            BoardError: if there was no such season.
        """
        found = {one.name: one for one in (*self.past, self.season)}
        if season not in found:
            known = ", ".join(found)
            raise BoardError(f"{self.name} has no season {season!r}{did_you_mean(season, found)}: expected one of {known}")
        return self.model_copy(update={"season": found[season], "past": []})

    @model_validator(mode="after")
    def _one_track(self) -> Self:
        for text in self.environments:
            found = find_environment(text)
            if found.id != text or found.multi_objective or found.kind != TRACKS[self.track]:
                raise ValueError(f"environments name {text!r}, expected ids of {TRACKS[self.track]} environments")
        return self


def boards_folder() -> Path:
    """The folder of the shipped boards."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def board_folders(folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The boards in a folder of boards, by default the shipped ones: name to folder."""
    where = boards_folder() if folder is None else Path(folder)
    return {path.parent.name: path.parent for path in sorted(where.glob(f"*/{FILE}"))}


def read_board(board: str | os.PathLike[str]) -> Board:
    """A board, by the name of a shipped one or by its folder.

    Raises:
        BoardError: if there is no such board, or its file is not as it should be.
    """
    path = board_folder(board) / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return Board.model_validate({"name": path.parent.resolve().name, **content})
    except OSError as error:
        raise BoardError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise BoardError(f"{path}: {first_problem(error)}") from None
    except (ValueError, RecursionError) as error:  # also of TOML
        raise BoardError(f"{path} is not a board: {error}") from None


def board_folder(board: str | os.PathLike[str]) -> Path:
    """The folder of a board, by its name or by the folder itself.

    Raises:
        BoardError: if there is no such board.
    """
    known = board_folders()
    if str(board) in known:
        return known[str(board)]
    if (Path(board) / FILE).is_file():
        return Path(board)
    raise BoardError(
        f"there is no board {str(board)!r}{did_you_mean(str(board), known)}: expected {', '.join(known)}, or a folder"
    )


def write_season(folder: str | os.PathLike[str], season: Season) -> None:
    """Write the season of a board into its file, and leave the rest of the file as it is. A season before it is kept as past."""
    path = Path(folder) / FILE
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    if "season" in document and document["season"]["name"] != season.name:
        document["past"] = [*document.get("past", []), document.pop("season")]
    document["season"] = {name: value for name, value in season.model_dump().items() if value is not None}
    with replacing(path) as temporary:
        temporary.write_text(re.sub(r"\n{3,}", "\n\n", tomlkit.dumps(document)), encoding="utf-8")
