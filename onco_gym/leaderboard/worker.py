"""Workers: they take submissions from the store, judge them, and write down what they came to.

Any number of them can work on one store, on one machine or several. A worker that is killed loses nothing: its lease runs out,
and another one begins the submission again. Judging is a pure function of board, secret and policy, so the result is the same.
The clocks of the machines must agree to a few seconds, which is little beside a lease.
"""

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from onco_gym.agents import AgentError
from onco_gym.foundation.progress import Progress, silent
from onco_gym.foundation.workers import connected, spread
from onco_gym.leaderboard.boards import Board
from onco_gym.leaderboard.entries import Entry
from onco_gym.leaderboard.explorations import Exploration
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.judging import Judge
from onco_gym.leaderboard.store import LEASE, Claim, LeaseError, Store, is_over

PAUSE = 1.0
"""Seconds between two looks at an empty queue."""
AT_ONCE = 8
"""Submissions that a worker on a cluster takes together."""
FAILURE = "an error of ours; the operator finds it in the log of the worker"
LOG = logging.getLogger("onco_gym.leaderboard")


class _Task(NamedTuple):
    """A submission to judge. What it comes to does not depend on where that is done."""

    board: Board
    secret: bytes | None
    policies: Mapping[str, bytes] | str
    name: str


class _Done(NamedTuple):
    """What a submission came to, or why it came to nothing."""

    judgements: tuple[Judgement, ...] = ()
    explorations: tuple[Exploration, ...] = ()
    refusal: str = ""
    failure: str = ""


class Worker:
    """Judges the submissions of a store.

    Args:
        store: where they are.
        boards: the boards whose submissions are judged, each with the secret of its season; None judges on public patients. The
            worker looks at them again before every submission.
        lease: seconds for which the worker has a submission without a sign of life.
        workers: ``local``, or ``ray`` to spread submissions over a cluster.
        address: of a running cluster.
    """

    def __init__(
        self,
        store: Store,
        boards: Iterable[tuple[Board, bytes | None]],
        lease: float = LEASE,
        workers: str = "local",
        address: str | None = None,
    ) -> None:
        self._store, self._lease, self._boards = store, lease, boards
        self._workers, self._address = workers, address

    def run(self, stop: Callable[[], bool] = lambda: False, idle: Callable[[], None] = lambda: time.sleep(PAUSE)) -> None:
        """Judge whatever there is, until it is to stop.

        Args:
            stop: asked before every submission.
            idle: called whenever nothing waits.
        """
        with connected(self._workers, self._address):
            while not stop():
                try:
                    claims = self._claims()
                    self.attend(claims)
                except SQLAlchemyError:  # the database may be back in a moment; what was taken is taken again
                    LOG.exception("the store does not answer")
                    claims = []
                if not claims:
                    idle()

    def attend(self, claims: Sequence[Claim], progress: Progress = silent) -> list[Entry]:
        """Judge submissions that were taken; those that ended.

        If it is interrupted, it gives them back. After any other error their leases run out, so that the attempt counts.
        """
        with self._alive(claims):
            try:
                found = zip(claims, self._judged(claims, progress), strict=True)
                return [ended for claim, done in found if (ended := self._end(claim, done)) is not None]
            except LeaseError as error:
                LOG.warning("%s", error)
                return []
            except (KeyboardInterrupt, SystemExit):
                for claim in claims:
                    with contextlib.suppress(LeaseError):  # it has ended, or somebody else has it
                        self._store.release(claim)
                raise

    def _claims(self) -> list[Claim]:
        boards = self._seasons()
        found = list[Claim]()
        while len(found) < (1 if self._workers == "local" else AT_ONCE):
            claim = self._store.claim(boards, self._lease)
            if claim is None:
                break
            season = boards[claim.entry.board, claim.entry.season][0].season
            if is_over(season, claim.entry.submitted):
                self._store.refuse(claim, f"it was sent after season {season.name!r} had ended")
            else:
                found.append(claim)
        return found

    def _seasons(self) -> dict[tuple[str, str], tuple[Board, bytes | None]]:
        """The boards as they are now, by the names of board and season."""
        return {(board.name, board.season.name): (board, secret) for board, secret in self._boards}

    def _judged(self, claims: Sequence[Claim], progress: Progress) -> Sequence[_Done]:
        """What each submission came to."""
        tasks = [self._task(claim.entry) for claim in claims]
        if self._workers == "local":
            return [_attempt(task, self._journalled(claim, progress)) for claim, task in zip(claims, tasks, strict=True)]
        for claim in claims:
            self._store.log(claim, "sent to the cluster")
        return spread(_attempt, tasks, self._workers, self._address, progress)

    def _task(self, entry: Entry) -> _Task:
        policies = entry.agent or self._store.policies(entry.id)
        return _Task(*self._seasons()[entry.board, entry.season], policies, entry.manifest.name)

    def _end(self, claim: Claim, done: _Done) -> Entry | None:
        try:
            if done.refusal:
                return self._store.refuse(claim, done.refusal)
            if done.failure:
                LOG.error("submission %s failed:\n%s", claim.entry.id, done.failure)
                return self._store.fail(claim, FAILURE)
            return self._store.finish(claim, done.judgements, done.explorations)
        except LeaseError as error:
            LOG.warning("%s", error)
            return None
        except SQLAlchemyError:
            raise
        except Exception:  # perhaps it cannot be compared with the last published entry, because somebody has changed the board
            LOG.exception("submission %s was judged, but cannot be kept", claim.entry.id)
            return self._store.fail(claim, FAILURE)

    def _journalled(self, claim: Claim, progress: Progress) -> Progress:
        """Progress whose stages are also written into the journal. It raises LeaseError if the lease is lost."""
        last = ""

        def report(stage: str, done: int, total: int) -> None:
            nonlocal last
            if stage != last:
                self._store.log(claim, stage)
                last = stage
            progress(stage, done, total)

        return report

    @contextlib.contextmanager
    def _alive(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Give signs of life meanwhile."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._lease / 4):
                for claim in claims:
                    try:
                        self._store.renew(claim, self._lease)
                    except LeaseError:  # ended, or lost, which the next step notices
                        continue
                    except Exception:
                        LOG.exception("the lease of submission %s cannot be renewed", claim.entry.id)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _attempt(task: _Task, progress: Progress = silent) -> _Done:
    """Judge a submission. Errors are values, so that one submission cannot end the work on others."""
    try:
        judge = _judge(task.board.model_dump_json(), task.secret)
        judgements = judge.judge(task.policies, progress)
        return _Done(judgements, judge.explore(task.policies, task.name, progress))
    except AgentError as error:
        return _Done(refusal=str(error))
    except LeaseError:
        raise
    except Exception:
        return _Done(failure=traceback.format_exc())


@lru_cache(maxsize=8)
def _judge(board: str, secret: bytes | None) -> Judge:
    """The judge of a board in this process. It keeps what is compiled."""
    return Judge(Board.model_validate_json(board), secret)
