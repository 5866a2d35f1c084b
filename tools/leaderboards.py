"""Judge every entry that ships with the boards, and write its files. Part of ``make leaderboards``.

Entries are the policies of ``baselines/policies`` and a few agents of the package. An entry whose files are of the present cards,
rules and version is left alone, so an interrupted run goes on where it stopped.
"""

import datetime
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from onco_gym.cli.screen import progress_bar
from onco_gym.foundation.progress import Progress
from onco_gym.leaderboard import Board, Entry, EntryError, board_folders, read_board, read_entries
from onco_gym.leaderboard.boards import boards_folder
from onco_gym.leaderboard.entries import ENTRIES, JOURNEYS, digest_of, write_entry
from onco_gym.leaderboard.explorations import explorations_file, write_explorations
from onco_gym.leaderboard.judging import Judge
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.seasons import find_secret
from pages import ROOT, parser

ACCOUNT = "onco_gym"
LICENCE = "MIT"
AGENTS = {
    "random": ("Random play", "Chooses among what can be given, all alike."),
    "guideline": ("Guideline", "Follows the first rule of the card's guideline that applies."),
    "clinician": ("Clinician", "Follows the guideline most of the time, as clinicians do: sometimes late, sometimes otherwise."),
}
"""Agents of the package: their names here, and what they do."""
POLICIES = {
    "cloning": ("Behaviour cloning", "Imitates recorded decisions of the clinician agent.", "recorded decisions"),
    "cql": ("CQL", "Conservative Q-learning, trained offline with d3rlpy.", "recorded decisions of the clinician agent"),
    "dqn": ("DQN", "Trained with Stable-Baselines3.", "training patients"),
    "a2c": ("A2C", "Trained with Stable-Baselines3.", "training patients"),
    "ppo": ("PPO", "Trained with Stable-Baselines3, without masks.", "training patients"),
    "maskable_ppo": ("MaskablePPO", "Trained with sb3-contrib.", "training patients"),
    "jax_ppo": ("PPO in JAX", "The trainer of the package, from nothing.", "training patients"),
    "guided_ppo": ("PPO in JAX, guided", "The trainer of the package, begun as a copy of the guideline.", "training patients"),
}
"""Policies of baselines/: their names here, how they were made, and from what."""


class Shipped(NamedTuple):
    """An entry that ships with a board."""

    name: str
    manifest: Manifest
    policies: Mapping[str, bytes]
    agent: str


def shipped(board: Board) -> Iterator[Shipped]:
    """The entries of a board: agents, and those policies that there are for all its environments."""
    for agent, (name, about) in AGENTS.items():
        yield Shipped(agent, Manifest(name=name, authors=[ACCOUNT], about=about, licence=LICENCE), {}, agent)
    for algorithm, (name, about, data) in POLICIES.items():
        folders = {environment: ROOT / "baselines" / "policies" / environment.split("/")[1] for environment in board.environments}
        paths = {environment: folder / f"{algorithm}-0.onnx" for environment, folder in folders.items()}
        if all(path.is_file() for path in paths.values()):
            manifest = Manifest(name=name, authors=[ACCOUNT], about=about, training_data=data, licence=LICENCE)
            yield Shipped(algorithm, manifest, {environment: path.read_bytes() for environment, path in paths.items()}, "")


def make_entry(board: Board, judge: Judge, one: Shipped, progress: Progress) -> Entry:
    """Judge an entry."""
    return Entry(
        id=entry_id(board, one),
        board=board.name,
        season=board.season.name,
        account=ACCOUNT,
        kind="reference",
        manifest=one.manifest,
        submitted=datetime.datetime.combine(board.season.opened, datetime.time(), datetime.UTC),
        policies={environment: digest_of(policy) for environment, policy in one.policies.items()},
        agent=one.agent,
        state="done",
        reason="",
        published=True,
        judgements=judge.judge(one.agent or one.policies, progress),
    )


def entry_id(board: Board, one: Shipped) -> str:
    """The id of an entry, the same whenever it is judged again."""
    return hashlib.sha256(f"{board.name}\0{board.season.name}\0{one.name}".encode()).hexdigest()[:12]


def is_current(board: Board, judge: Judge, one: Shipped, found: Entry | None) -> bool:
    """Whether an entry is of this policy, of the present cards and rules, and of this version."""
    if found is None or found.manifest != one.manifest:
        return False
    same = found.policies == {environment: digest_of(policy) for environment, policy in one.policies.items()}
    patients = {len(judgement.returns) for judgement in found.judgements}
    return same and patients == {board.patients} and [judgement.stamp for judgement in found.judgements] == judge.stamps()


def make_board(name: str, progress: Progress) -> None:
    """Bring a board's entries up to date."""
    board, folder = read_board(name), board_folders()[name]
    judge = Judge(board, find_secret(board, None), revealed=True)
    wanted = list(shipped(board))
    try:
        kept = {entry.id: entry for entry in read_entries(folder, name)}
    except EntryError:  # of a former version
        kept = {}
    for number, one in enumerate(wanted):
        made, entry = f"{name}, {one.name}, {number + 1} of {len(wanted)}", entry_id(board, one)

        def told(stage: str, done: int, total: int, made: str = made) -> None:
            progress(f"{made}, {stage}", done, total)

        fresh = not is_current(board, judge, one, kept.get(entry))
        if fresh:
            write_entry(folder, make_entry(board, judge, one, told), one.policies)
        if fresh or not explorations_file(folder, entry).is_file():
            write_explorations(folder, entry, judge.explore(one.agent or one.policies, one.manifest.name, told))
            print(f"judged {made}", flush=True)
    names = {entry_id(board, one) for one in wanted}
    names |= {digest_of(policy) for one in wanted for policy in one.policies.values()}
    for path in [*(folder / ENTRIES).rglob("*"), *(folder / JOURNEYS).rglob("*")]:
        if path.is_file() and path.stem not in names:
            path.unlink()  # of an entry that no longer ships


def main(arguments: Sequence[str] | None = None) -> None:
    """Make all boards, or those that are named."""
    options = parser(__file__, __doc__)
    options.add_argument("boards", nargs="*", metavar="BOARD", help="by default all")
    names = options.parse_args(arguments).boards or list(board_folders())
    with progress_bar() as progress:
        for name in names:
            make_board(name, progress)
    print(f"{len(names)} boards in {boards_folder().name}/ are up to date")


if __name__ == "__main__":
    main()
