"""The store: every submission, its policies, what became of it, and every step on the way.

A submission waits, is worked on by one worker at a time, and ends as done, refused or failed. Every change of state is one
transaction. A worker that takes a submission has a lease, which it renews while it works. If it dies, the lease runs out and
another worker takes the submission in a new attempt; what the first one might still write is refused.
"""

import datetime
import hashlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, Select, Table, and_, func, insert, or_, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from onco_gym.agents.onnxfile import LARGEST
from onco_gym.foundation.results import from_plain, to_plain
from onco_gym.leaderboard.boards import Board, Season
from onco_gym.leaderboard.database import Database
from onco_gym.leaderboard.entries import Entry, Kind, digest_of
from onco_gym.leaderboard.explorations import Exploration
from onco_gym.leaderboard.judgements import Judgement
from onco_gym.leaderboard.ladder import decide_publication
from onco_gym.leaderboard.manifests import Manifest
from onco_gym.leaderboard.tables import ACCOUNTS, POLICIES, RESULTS, STEPS, SUBMISSIONS

LOCAL = "local"
"""The account of submissions that are made on this machine. It has no caps and cannot log in."""
LEASE = 60.0
"""Seconds for which a worker has a submission without a sign of life."""
ATTEMPTS = 25
"""How often a submission is taken before it is given up. A policy cannot reach its worker, so workers hardly die of one."""
MONTH = 30
"""Days."""
_Query: TypeAlias = "Select[*tuple[Any, ...]]"


class SubmissionError(ValueError):
    """A submission that is not accepted. The message says what was expected."""


class CapError(SubmissionError):
    """A submission beyond what an account may make."""


class LeaseError(RuntimeError):
    """The lease of a worker has run out, and what it worked on is no longer its own."""


@dataclass(frozen=True)
class Claim:
    """A submission that a worker has taken.

    Attributes:
        entry: the submission.
        attempt: how often it was taken, this time included.
        holder: a random word. Whoever takes the submission later has another one.
    """

    entry: Entry
    attempt: int
    holder: str


@dataclass(frozen=True)
class Step:
    """A line of the journal of a submission.

    Attributes:
        at: when, in UTC.
        text: what happened, in words.
    """

    at: datetime.datetime
    text: str


class Store(Database):
    """All submissions. See the module for their life, and :class:`Database` for the arguments."""

    # ---------------------------------------------------------------------------------------------- submitting

    def submit(
        self,
        board: Board,
        account: str,
        manifest: Manifest,
        policies: Mapping[str, bytes],
        kind: Kind = "verified",
        agent: str = "",
        capped: bool = True,
    ) -> Entry:
        """Keep a submission, which then waits for a worker.

        Policies that the account has submitted to the season before are not kept again: the answer is the first submission.
        So a request that is sent twice does no harm. Only after a failure of ours do the same policies count as new.

        Args:
            board: the board.
            account: who submits.
            manifest: what they say about it.
            policies: a policy file for each environment of the board, by its id; empty if ``agent`` is given.
            kind: who runs it.
            agent: the name of an agent for :func:`onco_gym.load_agent`.
            capped: whether the caps of the board hold.

        Raises:
            SubmissionError: if a policy is missing, empty or too large.
            CapError: if the account has made as many submissions as it may.
        """
        _check(board, policies, agent)
        digests = {name: digest_of(policies[name]) for name in board.environments} if policies else {}
        content = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest() if policies else None
        with self.writing() as connection:
            _lock_account(connection, account)
            now = _now()
            season, table = board.season.name, SUBMISSIONS.c
            same = select(SUBMISSIONS).where(table.account == account, table.board == board.name, table.season == season)
            same = same.where(table.kind == kind, table.content == content, table.state != "failed")
            if content is not None and (first := connection.execute(same).first()) is not None:
                return _entry(first)
            if capped:
                _check_caps(connection, board, account, now)
            row = {
                "id": secrets.token_hex(6),
                "board": board.name,
                "season": season,
                "account": account,
                "kind": kind,
                "manifest": to_plain(manifest),
                "submitted": now,
                "policies": digests,
                "agent": agent,
                "state": "waiting",
                "reason": "",
                "published": False,
                "content": content,
                "attempt": 0,
            }
            keep_policies(connection, policies.values())
            connection.execute(insert(SUBMISSIONS).values(row))
            _note(connection, row["id"], "received")
            return _entry(connection.execute(select(SUBMISSIONS).where(table.id == row["id"])).one())

    # ---------------------------------------------------------------------------------------------- working

    def claim(self, seasons: Collection[tuple[str, str]], lease: float = LEASE) -> Claim | None:
        """Take the oldest verified submission that waits, or whose worker has died; None if there is none.

        Args:
            seasons: (board, season) of the submissions that the worker can judge.
            lease: seconds until the first sign of life is due.
        """
        free = [SUBMISSIONS.c.kind == "verified", tuple_(SUBMISSIONS.c.board, SUBMISSIONS.c.season).in_(list(seasons))]
        found = self._claim(select(SUBMISSIONS).where(*free), lease)
        while found is not None and found.attempt > ATTEMPTS:
            self.fail(found, f"its worker died {ATTEMPTS} times")
            found = self._claim(select(SUBMISSIONS).where(*free), lease)
        return found

    def take(self, entry: str, lease: float = LEASE) -> Claim | None:
        """Take this submission, whoever runs it; None if it does not wait."""
        return self._claim(select(SUBMISSIONS).where(SUBMISSIONS.c.id == entry), lease)

    def _claim(self, among: _Query, lease: float) -> Claim | None:
        table = SUBMISSIONS.c
        with self.writing() as connection:
            now = _now()
            free = or_(table.state == "waiting", and_(table.state == "working", table.lease < now))
            oldest = among.where(free).order_by(table.submitted, table.id).limit(1).with_for_update(skip_locked=True)
            row = connection.execute(oldest).first()
            if row is None:
                return None
            claim = Claim(replace(_entry(row), state="working"), row.attempt + 1, secrets.token_hex(8))
            until = now + datetime.timedelta(seconds=lease)
            changes = {"state": "working", "attempt": claim.attempt, "holder": claim.holder, "lease": until}
            connection.execute(update(SUBMISSIONS).where(table.id == row.id).values(changes))
            _note(connection, row.id, "taken by a worker" + (f", attempt {claim.attempt}" if claim.attempt > 1 else ""))
            return claim

    def renew(self, claim: Claim, lease: float = LEASE) -> None:
        """Give a sign of life.

        Raises:
            LeaseError: if another worker has taken the submission.
        """
        with self.writing() as connection:
            _change(connection, claim, lease=_now() + datetime.timedelta(seconds=lease))

    def release(self, claim: Claim) -> None:
        """Give a submission back, to be taken by another worker. The attempt does not count.

        Raises:
            LeaseError: if another worker has taken it.
        """
        with self.writing() as connection:
            _change(connection, claim, state="waiting", lease=None, holder=None, attempt=claim.attempt - 1)
            _note(connection, claim.entry.id, "given back by its worker")

    def log(self, claim: Claim, text: str) -> None:
        """Add a line to the journal of a submission.

        Raises:
            LeaseError: if another worker has taken it.
        """
        with self.writing() as connection:
            _change(connection, claim, state="working")
            _note(connection, claim.entry.id, text)

    def finish(self, claim: Claim, judgements: Sequence[Judgement], explorations: Sequence[Exploration] = ()) -> Entry:
        """Keep what a submission came to, and decide whether its score is published.

        Raises:
            LeaseError: if another worker has taken it.
        """
        entry = claim.entry
        with self.writing() as connection:
            _lock_account(connection, entry.account)  # so that two workers do not decide on the same author at once
            last = _last_published(connection, entry)
            published, reason = decide_publication(judgements, last)
            _change(connection, claim, state="done", published=published, reason=reason, lease=None, ended=_now())
            keep_results(connection, entry.id, judgements, explorations)
            _note(connection, entry.id, "judged")
            _note(connection, entry.id, "published" if published else f"not published: {reason}")
        return replace(entry, state="done", published=published, reason=reason, judgements=tuple(judgements))

    def refuse(self, claim: Claim, reason: str) -> Entry:
        """Refuse a submission, with the reason in words.

        Raises:
            LeaseError: if another worker has taken it.
        """
        return self._end(claim, "refused", reason)

    def fail(self, claim: Claim, reason: str) -> Entry:
        """Give up a submission that we failed to judge, with what can be said of why.

        Raises:
            LeaseError: if another worker has taken it.
        """
        return self._end(claim, "failed", reason)

    def _end(self, claim: Claim, state: Any, reason: str) -> Entry:
        with self.writing() as connection:
            _change(connection, claim, state=state, reason=reason, lease=None, ended=_now())
            _note(connection, claim.entry.id, f"{state}: {reason}")
        return replace(claim.entry, state=state, reason=reason)

    # ---------------------------------------------------------------------------------------------- reading

    def entry(self, entry: str) -> Entry | None:
        """A submission with its judgements; None if there is no such submission."""
        with self.reading() as connection:
            row = connection.execute(select(SUBMISSIONS).where(SUBMISSIONS.c.id == entry)).first()
            if row is None:
                return None
            text = connection.execute(select(RESULTS.c.judgements).where(RESULTS.c.submission == entry)).scalar()
        return _entry(row, _judgements(text))

    def entries(
        self,
        board: str,
        season: str | None = None,
        account: str | None = None,
        published: bool = False,
        start: int = 0,
        most: int | None = None,
    ) -> list[Entry]:
        """The submissions to a board, newest first, without their judgements.

        Args:
            board: its name.
            season: of this season only.
            account: of this account only.
            published: only those whose score is published.
            start: how many to leave out at the beginning.
            most: how many at most.
        """
        asked = _of(select(SUBMISSIONS), board, season, account)
        if published:
            asked = asked.where(SUBMISSIONS.c.published)
        asked = asked.order_by(SUBMISSIONS.c.submitted.desc(), SUBMISSIONS.c.id).offset(start)
        with self.reading() as connection:
            return [_entry(row) for row in connection.execute(asked if most is None else asked.limit(most))]

    def count(self, board: str, season: str | None = None, account: str | None = None) -> int:
        """How many submissions there are to a board, of this season or account."""
        with self.reading() as connection:
            return connection.execute(_of(select(func.count()).select_from(SUBMISSIONS), board, season, account)).scalar_one()

    def version(self, board: str, season: str) -> tuple[Any, ...]:
        """What changes whenever the standings of a season may have changed."""
        asked = select(func.count(), func.count(SUBMISSIONS.c.ended), func.max(SUBMISSIONS.c.ended)).select_from(SUBMISSIONS)
        with self.reading() as connection:
            return tuple(connection.execute(_of(asked, board, season, None)).one())

    def judgements(self, entries: Collection[str]) -> dict[str, tuple[Judgement, ...]]:
        """The judgements of these submissions, by their ids, those that have any."""
        found = {}
        names = sorted(entries)
        for start in range(0, len(names), 200):  # a statement takes so many values only
            asked = select(RESULTS.c.submission, RESULTS.c.judgements).where(RESULTS.c.submission.in_(names[start : start + 200]))
            with self.reading() as connection:
                rows = connection.execute(asked).all()
            found.update({name: _judgements(text) for name, text in rows})
        return found

    def policies(self, entry: str) -> dict[str, bytes]:
        """The policy files of a submission, by environment id."""
        with self.reading() as connection:
            names = connection.execute(select(SUBMISSIONS.c.policies).where(SUBMISSIONS.c.id == entry)).scalar() or {}
            asked = select(POLICIES.c.digest, POLICIES.c.content).where(POLICIES.c.digest.in_(names.values()))
            contents = {digest: bytes(content) for digest, content in connection.execute(asked)}
        return {environment: contents[digest] for environment, digest in names.items()}

    def explorations(self, entry: str) -> tuple[Exploration, ...]:
        """The journeys of a submission."""
        with self.reading() as connection:
            text = connection.execute(select(RESULTS.c.explorations).where(RESULTS.c.submission == entry)).scalar()
        return tuple(from_plain(Exploration, one) for one in json.loads(text or "[]"))

    def journal(self, entry: str) -> tuple[Step, ...]:
        """Every step of a submission, in order."""
        asked = select(STEPS.c.at, STEPS.c.text).where(STEPS.c.submission == entry).order_by(STEPS.c.number)
        with self.reading() as connection:
            return tuple(Step(at, text) for at, text in connection.execute(asked))

    def states(self) -> dict[tuple[str, str], int]:
        """How many submissions there are, by board and state."""
        table = SUBMISSIONS.c
        with self.reading() as connection:
            rows = connection.execute(select(table.board, table.state, func.count()).group_by(table.board, table.state)).all()
        return {(board, state): number for board, state, number in rows}


def check_open(board: Board) -> None:
    """Check that a board takes submissions today.

    Raises:
        SubmissionError: if its season has not begun, or is over.
    """
    season, now = board.season, _now()
    if season.ended or is_over(season, now):
        raise SubmissionError(f"season {season.name!r} of {board.name} is over")
    if now.date() < season.opened:
        raise SubmissionError(f"season {season.name!r} of {board.name} begins on {season.opened}")


def is_over(season: Season, moment: datetime.datetime) -> bool:
    """Whether a season took no more submissions at this moment, in UTC."""
    if season.revealed is not None and season.revealed < moment:
        return True
    return season.closed is not None and season.closed < moment.date()


def keep_policies(connection: Connection, policies: Collection[bytes]) -> None:
    """Keep policy files, each once."""
    for content in policies:
        _insert_once(connection, POLICIES, digest=digest_of(content), content=content)


def keep_results(
    connection: Connection, entry: str, judgements: Sequence[Judgement], explorations: Sequence[Exploration]
) -> None:
    """Keep what a submission came to."""
    texts = [json.dumps([to_plain(one) for one in some], allow_nan=False) for some in (judgements, explorations)]
    connection.execute(insert(RESULTS).values(submission=entry, judgements=texts[0], explorations=texts[1]))


def _check(board: Board, policies: Mapping[str, bytes], agent: str) -> None:
    wanted = set() if agent else set(board.environments)
    if set(policies) != wanted:
        raise SubmissionError(f"there are policies for {sorted(policies)}, expected {sorted(wanted)}")
    for environment, content in policies.items():
        if not 0 < len(content) <= LARGEST:
            raise SubmissionError(f"the policy for {environment} has {len(content)} bytes, expected 1 to {LARGEST}")


def _check_caps(connection: Connection, board: Board, account: str, now: datetime.datetime) -> None:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    asked = _of(select(func.count()).select_from(SUBMISSIONS), board.name, None, account)
    asked = asked.where(SUBMISSIONS.c.state != "failed")  # that was our fault
    for days, cap in ((1, board.caps.per_day), (MONTH, board.caps.per_month)):
        begin = today - datetime.timedelta(days=days - 1)
        made = connection.execute(asked.where(SUBMISSIONS.c.submitted >= begin)).scalar_one()
        if made >= cap:
            span = "today" if days == 1 else f"in {days} days"
            raise CapError(f"{account} has made {made} submissions to {board.name} {span}, which is the most; days are in UTC")


def _lock_account(connection: Connection, account: str) -> None:
    """Let one transaction at a time deal with an account. In SQLite one at a time writes anyway."""
    _insert_once(connection, ACCOUNTS, name=account, created=_now())
    connection.execute(select(ACCOUNTS.c.name).where(ACCOUNTS.c.name == account).with_for_update())


def _insert_once(connection: Connection, table: Table, **values: Any) -> None:
    """Insert a row unless there is one."""
    if connection.dialect.name == "sqlite":
        connection.execute(sqlite.insert(table).values(values).on_conflict_do_nothing())
    else:
        connection.execute(postgresql.insert(table).values(values).on_conflict_do_nothing())


def _last_published(connection: Connection, entry: Entry) -> tuple[Judgement, ...] | None:
    table = SUBMISSIONS.c
    asked = _of(select(RESULTS.c.judgements).join(SUBMISSIONS), entry.board, entry.season, entry.account)
    asked = asked.where(table.kind == entry.kind, table.published, table.state == "done")
    text = connection.execute(asked.order_by(table.ended.desc(), table.id).limit(1)).scalar()
    return None if text is None else _judgements(text)


def _change(connection: Connection, claim: Claim, **changes: Any) -> None:
    """Change a submission that the worker still has."""
    table = SUBMISSIONS.c
    ours = (table.id == claim.entry.id, table.holder == claim.holder, table.state == "working")
    if connection.execute(update(SUBMISSIONS).where(*ours).values(changes)).rowcount != 1:
        raise LeaseError(f"submission {claim.entry.id} was given to another worker")


def _note(connection: Connection, entry: str, text: str) -> None:
    at = _now().replace(microsecond=0)  # a policy must not tell of secret patients by how long it takes
    connection.execute(insert(STEPS).values(submission=entry, at=at, text=text))


def _of(asked: _Query, board: str, season: str | None, account: str | None) -> _Query:
    asked = asked.where(SUBMISSIONS.c.board == board)
    if season is not None:
        asked = asked.where(SUBMISSIONS.c.season == season)
    return asked if account is None else asked.where(SUBMISSIONS.c.account == account)


def _entry(row: Row[Any], judgements: tuple[Judgement, ...] = ()) -> Entry:
    return Entry(
        id=row.id,
        board=row.board,
        season=row.season,
        account=row.account,
        kind=row.kind,
        manifest=Manifest.model_validate(row.manifest),
        submitted=row.submitted,
        policies=row.policies,
        agent=row.agent,
        state=row.state,
        reason=row.reason,
        published=row.published,
        judgements=judgements,
    )


def _judgements(text: str | None) -> tuple[Judgement, ...]:
    return tuple(Judgement.from_json(one) for one in json.loads(text or "[]"))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
