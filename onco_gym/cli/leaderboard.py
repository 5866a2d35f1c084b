"""Commands about boards, all of them under ``leaderboard``: tables, seasons, and running every entry of a season again."""

import argparse
import datetime
import os
from typing import TYPE_CHECKING

from onco_gym.cli.parser import Commands, UsageError, needs_leaderboard, workers_of
from onco_gym.cli.screen import console, make_table, progress_bar, wrote

if TYPE_CHECKING:
    from onco_gym.leaderboard import Board

COLUMNS = 7
"""Figures that a terminal has room for."""
BOARD = "the name of a shipped board, or its folder"


def register(commands: Commands) -> None:
    """Add the commands."""
    about = "Show boards, begin and end their seasons, and run a season's entries again."
    group = commands.add_group("leaderboard", about, "leaderboard show nsclc-2026")

    group.add(list_command, "List the shipped boards.", "leaderboard list")

    parser = group.add(show_command, "Show the table of a board.", "leaderboard show nsclc-2026")
    parser.add_argument("board", metavar="BOARD", help=BOARD)

    about = "Run every entry of a season that has ended again, and compare every figure with the published one."
    parser = group.add(replay_command, about, "leaderboard replay nsclc-2026 --workers ray")
    parser.add_argument("board", metavar="BOARD", help=BOARD)
    _add_season(parser)
    parser.add_workers()
    parser.add_quiet()

    about = "Begin a season: draw a secret, keep it, and write its hash into board.toml."
    parser = group.add(open_command, about, "leaderboard open leaderboards/nsclc-2026 --season 2027 --secrets secrets")
    parser.add_argument("board", metavar="BOARD", help=BOARD)
    parser.add_argument("--season", required=True, metavar="NAME", help="the name of the season")
    _add_secrets(parser)

    about = "End a season: write its secret into board.toml, so that anyone can run its entries again."
    parser = group.add(close_command, about, "leaderboard close leaderboards/nsclc-2026 --secrets secrets")
    parser.add_argument("board", metavar="BOARD", help=BOARD)
    _add_secrets(parser)

    about = "Write the submissions of a season that has ended into the board's folder, so that anyone can run its entries again."
    parser = group.add(collect_command, about, "leaderboard collect leaderboards/nsclc-2026 --store store.sqlite")
    parser.add_argument("board", metavar="BOARD", help=BOARD)
    _add_season(parser)
    parser.add_store()
    parser.add_quiet()


def _add_season(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--season", metavar="NAME", help="an earlier season; by default the present one")


def _add_secrets(parser: argparse.ArgumentParser) -> None:
    text = "the folder in which secrets are kept; it must not be published"
    parser.add_argument("--secrets", required=True, metavar="FOLDER", help=text)


def list_command(arguments: argparse.Namespace) -> None:
    """List the shipped boards."""
    from onco_gym.leaderboard import board_folders, read_board

    rows = []
    for name in board_folders():
        board = read_board(name)
        state = "ended" if board.season.ended else "open"
        rows.append((name, board.title, ", ".join(board.environments), f"{board.season.name} ({state})", f"{board.patients:,}"))
    console().print(make_table("", ("board", "title", "environments", "season", "patients"), rows))


def show_command(arguments: argparse.Namespace) -> None:
    """Show the table of a board."""
    from onco_gym.foundation.intervals import UNKNOWN
    from onco_gym.leaderboard import read_board, read_entries
    from onco_gym.leaderboard.boards import board_folder
    from onco_gym.leaderboard.metrics import METRICS
    from onco_gym.leaderboard.standings import make_standings

    board = read_board(arguments.board)
    found = make_standings(board, read_entries(board_folder(arguments.board), board.name))
    first, *others = board.metrics[:COLUMNS]
    columns = ("rank", "entry", "account", METRICS[first].title, "95%", *(METRICS[name].title for name in others))
    rows = [
        (
            row.place,
            row.entry.manifest.name,
            row.entry.account,
            METRICS[first].text(row.figures.get(first, UNKNOWN).value),
            METRICS[first].bounds(row.figures.get(first, UNKNOWN)),
            *(METRICS[name].text(row.figures.get(name, UNKNOWN).value) for name in others),
        )
        for row in found.rows
    ]
    title = f"{board.title}, season {board.season.name}: {found.submissions:,} submissions of {found.accounts:,} accounts"
    console().print(make_table(title, columns, rows, numbers=columns[3:]))
    units = "; ".join(f"{METRICS[name].title}: {METRICS[name].unit}" for name in others if METRICS[name].unit)
    print(f"{units}. The pages show every figure with its interval: onco-gym site build")


def replay_command(arguments: argparse.Namespace) -> None:
    """Run every entry of a season again, and compare."""
    where = workers_of(arguments)
    with progress_bar(quiet=arguments.quiet) as progress:
        from onco_gym.leaderboard.replaying import replay_season

        found = replay_season(arguments.board, **where, progress=progress, season=arguments.season)
    rows = [
        (one.entry.id, one.entry.manifest.name, "the same" if not one.differences else "; ".join(one.differences[:3]))
        for one in found
    ]
    console().print(make_table("", ("entry", "name", "every figure"), rows))
    differing = sum(bool(one.differences) for one in found)
    if differing:
        raise UsageError(f"{differing} of {len(found)} entries differ from what was published")
    print(f"all {len(found)} entries have the published figures, to the digit")


def open_command(arguments: argparse.Namespace) -> None:
    """Begin a season."""
    from onco_gym.leaderboard.boards import Season, board_folder, write_season
    from onco_gym.leaderboard.seasons import commitment, keep_secret, new_secret

    board, secret = _board(arguments.board), new_secret()
    if not board.season.ended:
        raise UsageError(f"{board.name}: season {board.season.name!r} has not ended: close it first")
    if arguments.season in {one.name for one in (*board.past, board.season)}:
        raise UsageError(f"{board.name} has had a season {arguments.season!r}: expected another name")
    made = {"opened": datetime.datetime.now(datetime.UTC).date(), "commitment": commitment(board.name, arguments.season, secret)}
    season = Season.model_validate({"name": arguments.season, **made})
    kept = keep_secret(arguments.secrets, board.name, season.name, secret)
    write_season(board_folder(arguments.board), season)
    wrote(kept)
    print(f"season {season.name} of {board.name} is open; publish board.toml before the first submission, and keep the secret")


def close_command(arguments: argparse.Namespace) -> None:
    """End a season."""
    from onco_gym.leaderboard.boards import Season, board_folder, write_season
    from onco_gym.leaderboard.seasons import find_secret

    board = _board(arguments.board)
    if board.season.ended:
        raise UsageError(f"{board.name}: season {board.season.name!r} has ended already")
    secret = find_secret(board, arguments.secrets)
    if secret is None:
        raise UsageError(f"{os.fspath(arguments.secrets)} holds no secret of season {board.season.name!r} of {board.name}")
    now = datetime.datetime.now(datetime.UTC)
    ended = {"closed": now.date(), "secret": secret.hex(), "revealed": now}
    write_season(board_folder(arguments.board), Season(**{**dict(board.season), **ended}))
    print(f"season {board.season.name} of {board.name} has ended; anyone can run: onco-gym leaderboard replay {arguments.board}")


@needs_leaderboard
def collect_command(arguments: argparse.Namespace) -> None:
    """Write the submissions of a season that has ended into the board's folder."""
    with progress_bar("opening the store", quiet=arguments.quiet) as progress:
        from onco_gym.leaderboard.boards import board_folder
        from onco_gym.leaderboard.database import default_url
        from onco_gym.leaderboard.exchange import export_folder
        from onco_gym.leaderboard.store import Store

        board, folder = _board(arguments.board), board_folder(arguments.board)
        board = board.during(arguments.season) if arguments.season else board
        written = export_folder(Store(arguments.store or default_url()), folder, board, progress)
    print(f"wrote {written:,} entries of season {board.season.name} to {folder}")


def _board(name: str) -> "Board":
    from onco_gym.leaderboard import read_board

    return read_board(name)
