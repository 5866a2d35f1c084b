"""Commands about the pages of boards: site."""

import argparse

from onco_gym.cli.parser import Commands, UsageError
from onco_gym.cli.screen import progress_bar


def register(commands: Commands) -> None:
    """Add the commands."""
    group = commands.add_group("site", "Make the pages of boards.", "site build -o site")
    about = "Write the pages of boards as a folder of files, for any web server or a browser without one."
    parser = group.add(build_command, about, "site build -o site --boards leaderboards")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="where to write; the folder is made")
    parser.add_argument("--boards", metavar="FOLDER", help="a folder of boards, or of one board; by default the shipped ones")
    text = "take the entries from this store, a database, and not from the folders of the boards"
    parser.add_argument("--store", metavar="URL", help=text)
    parser.add_quiet()


def build_command(arguments: argparse.Namespace) -> None:
    """Write the pages."""
    try:
        from onco_gym.leaderboard.pages.export import build_site
    except ModuleNotFoundError as error:
        raise UsageError(f'pages need {error.name}: pip install "onco_gym[leaderboard]"') from None
    from onco_gym.leaderboard.pages.sources import BoardSource, FolderSource

    with progress_bar("reading entries", arguments.quiet) as progress:
        source: BoardSource = FolderSource(arguments.boards)
        if arguments.store:
            from onco_gym.leaderboard.publishing import Published
            from onco_gym.leaderboard.store import Store

            source = Published(Store(arguments.store), source.boards())
        pages = build_site(arguments.out, source, progress)
    print(f"wrote {pages} pages to {arguments.out}")
