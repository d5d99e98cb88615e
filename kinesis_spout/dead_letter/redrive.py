"""`Redrive`: puts dead letters back on the stream that they came from, each record once.

A ledger beside the letters (`_redriven`) records the letters that were put, after every 500 of
them. So a second run puts nothing twice, and after a kill at most the last 500 are put again. Do
not start two runs on one path at a time: each would put all letters.

Of several letters of one record one is chosen, and records in the ledger are left out. An aggregate
that was delivered whole and its user record 0 have the same numbers, and are two records. A record
that is no aggregate is one, however it was delivered. Letters from a stream may be in parts, which
are joined here. The selected letters wait in a temporary file.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, islice
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.dead_letter.files import LetterFiles, LetterFormat, RedriveError, format_of
from kinesis_spout.dead_letter.letter import Letter, in_chunks
from kinesis_spout.dead_letter.outgoing import payload_records
from kinesis_spout.errors import KinesisError, RequestRefusedError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import RecordPutter, put_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kinesis_spout.dead_letter.letter import Piece

REASONS_SHOWN = 20
_NEVER = datetime.min.replace(tzinfo=UTC)


# Target stream, stream, shard, sequence number, sub-sequence number, and whether it is an aggregate
# that was delivered whole.
Identity = tuple[str, str, str, str, int, bool]


class PutBefore:
    """The records that were put.

    An entry that does not say whether its record is whole counts for the letter of these numbers.
    Where the files have both kinds it counts for none of them: a record is put twice rather than
    never.
    """

    def __init__(self, entries: Iterable[tuple[Any, ...]]) -> None:
        known = set(entries)
        self._decided = {entry for entry in known if entry[-1] is not None}
        self._undecided = {entry[:-1] for entry in known if entry[-1] is None}
        self._kinds: dict[tuple[Any, ...], set[bool]] = {one[1:]: set() for one in self._undecided}

    def see(self, record: Identity) -> None:
        """A letter in the files, selected or not: what an entry means must not depend on that."""
        if (kinds := self._kinds.get(record[1:-1])) is not None:
            kinds.add(record[-1])

    def has(self, record: Identity) -> bool:
        return record in self._decided or (
            record[:-1] in self._undecided and len(self._kinds[record[1:-1]]) <= 1
        )


def identity_of(target: str, letter: Letter) -> Identity:
    numbers = letter.shard_id, letter.sequence_number, letter.sub_sequence_number or 0
    return (target, letter.stream_name, *numbers, letter.is_whole)


def entry_of(target: str, letter: Letter, put_at: datetime) -> tuple[Any, ...]:
    """In the columns of `LEDGER_DDL`."""
    *numbers, is_whole = identity_of(target, letter)
    return (*numbers, letter.message_id, put_at, is_whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters to put, and where.

    - `reasons`: texts, one of which the letter's reason must contain, ignoring case. None given
      means any reason.
    - `since`, `until`: the last failure must be at or after `since`, and before `until`.
    - `target`: the stream to put the letters on. None: the stream that each letter came from.
    """

    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    target: StreamRef | None = None

    def takes(self, letter: Letter) -> bool:
        reason = (letter.reason or "").lower()
        if self.reasons and not any(text.lower() in reason for text in self.reasons):
            return False
        failed = letter.last_failure or letter.first_failure
        if failed is None:
            return self.since is None and self.until is None
        return (self.since or failed) <= failed and (self.until is None or failed < self.until)


class ReasonCount(msgspec.Struct, frozen=True, rename="camel"):
    """The number of letters with one reason for one target stream, and their range in time."""

    stream: str
    reason: str
    letters: int
    first_failure: datetime | None
    last_failure: datetime | None


class Found(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The counts of a selection, as `redrive --json` prints them. Each record is counted once.

    - `to_put`: records to put. `reasons` counts the most frequent reasons among them, and
      `more_reasons` is the number of the others.
    - `put_before`: records in the ledger.
    - `without_payload`: records that were gone from the stream, so nothing is left to put.
    - `incomplete`: records whose letter is in parts, of which some are not in the files.
    - `unreadable`: rows in the files that are not dead letters.
    """

    to_put: int = 0
    put_before: int = 0
    without_payload: int = 0
    incomplete: int = 0
    unreadable: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    more_reasons: int = 0


class _Chosen(NamedTuple):
    """The letter of a record that counts, and where it is in the spool."""

    has_payload: bool
    is_incomplete: bool
    reason: str
    first_failure: datetime | None
    last_failure: datetime | None
    attempts: int
    at: int

    @property
    def rank(self) -> tuple[bool, datetime, int]:
        """One with a payload if there is any, and the last of these."""
        return self.has_payload, self.last_failure or _NEVER, self.attempts

    def state(self, *, is_known: bool) -> str:
        """The field of `Found` that counts it."""
        if self.is_incomplete and not is_known:
            return "incomplete"
        if not self.has_payload and not self.is_incomplete:
            return "without_payload"
        return "put_before" if is_known else "to_put"


@dataclass(slots=True)
class Redrive:
    """Dead letters, to be put back on their stream. A context manager. Call `read` first.

    `letters`: one for each record that is to be put. `counts`: of all selected ones, by the field
    of `Found`. `count`: how many were put. Methods block on files and on Kinesis. They raise
    `KinesisError`, of which `RedriveError` is about the files.
    """

    files: LetterFiles
    selection: Selection = field(default_factory=Selection)
    aws: AwsConfig = field(default_factory=AwsConfig)
    clock: Clock = field(default_factory=SystemClock)
    count: int = 0
    letters: dict[Identity, _Chosen] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _spool: IO[bytes] = field(init=False)

    def __enter__(self) -> Self:
        self._spool = tempfile.TemporaryFile()  # closed at the exit
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def find(self) -> Found:
        """Count the letters that are to be put, and those that are not. Changes nothing."""
        by_reason: dict[tuple[str, str], list[_Chosen]] = defaultdict(list)
        for (target, *_), letter in self.letters.items():
            by_reason[target, letter.reason].append(letter)
        most = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))[:REASONS_SHOWN]
        return Found(
            **self.counts,
            reasons=tuple(
                ReasonCount(
                    *names,
                    len(letters),
                    min((one.first_failure for one in letters if one.first_failure), default=None),
                    max((one.last_failure for one in letters if one.last_failure), default=None),
                )
                for names, letters in most
            ),
            more_reasons=len(by_reason) - len(most),
        )

    def put(
        self,
        *,
        limit: int | None = None,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int], object] = lambda _put: None,
    ) -> int:
        """Put the letters back, at most `limit` of them. Returns how many were put.

        At least once, in the chunks of `in_chunks`. `stopping` is called before each chunk, and
        True ends the run. `progress` is called after each, with the number put so far. A letter
        that its stream refuses keeps no other letter, and a stream that refuses all of them no
        other stream: the first of these errors is raised at last.
        """
        self.count = 0
        self.files.append([])  # fails now if it cannot be written, before anything is put
        refused: KinesisError | None = None
        for target, own in groupby(islice(self._ordered(), limit), itemgetter(0)):
            letters = (letter for _, letter in own)
            try:
                stream = self.selection.target or StreamRef.parse(target)
                with closing(RecordPutter(KinesisClient(self.aws, stream))) as putter:
                    for chunk in in_chunks(letters):
                        if stopping():
                            break
                        found = self._put_chunk(target, chunk, putter, progress)
                        refused = refused or found
            except KinesisError as exc:
                if exc.retryable or isinstance(exc, RedriveError):
                    raise  # the other streams have the same trouble
                refused = refused or exc
        if refused is not None:
            raise refused
        return self.count

    def _put_chunk(
        self,
        target: str,
        chunk: list[Letter],
        putter: RecordPutter,
        progress: Callable[[int], object],
    ) -> KinesisError | None:
        """Returns the error of the first letter that the stream refuses."""
        made = [(letter, payload_records(letter)) for letter in chunk]
        # By identity: two letters may become equal records, and each of them must be put.
        unput = {id(record): letter for letter, records in made for record in records}
        refused: KinesisError | None = None
        try:
            for record, exc in put_apart(
                putter.put,
                [record for _, records in made for record in records],
                lambda record, _shard_id: unput.pop(id(record)),
            ):
                problem = f"dead letter {unput[id(record)].message_id} was not put: {exc.message}"
                refused = refused or RequestRefusedError(problem, exc.remedy)
        finally:
            # Also when the service refuses one for good: a later run puts the others again
            # otherwise, and so does every run after it.
            now = datetime.fromtimestamp(self.clock.now_ms() / 1_000, UTC)
            put = [
                entry_of(target, letter, now)
                for letter, records in made
                if unput.keys().isdisjoint(map(id, records))
            ]
            if put:
                self.files.append(put)
                self.count += len(put)
                progress(self.count)
        return refused

    def _ordered(self) -> Iterator[tuple[str, Letter]]:
        """The letters to put and their targets, by target, stream, shard and sequence number."""
        to_put = [
            (*identity[:3], len(identity[3]), *identity[3:], letter.at)
            for identity, letter in self.letters.items()
        ]
        for target, *_, at in sorted(to_put):
            yield target, self._get(at)

    def read(self, kind: LetterFormat | None = None, *, heads: bool = False) -> None:
        """Read the files, and choose one letter for each selected record. Without `kind`, the
        files' names decide. `heads`: for `find`, and not for `put`. Raises `RedriveError` if the
        files contain no dead letters.
        """
        kind = kind or format_of(self.files)
        if kind is None:
            return
        ledger, best = PutBefore(self.files.ledger()), dict[Identity, _Chosen]()
        has_letters = False
        for letter, is_incomplete in self._whole(self.files.pieces(kind, heads=heads)):
            has_letters = True
            target = self.selection.target
            name = letter.stream_name if target is None else target.name
            identity = identity_of(name, letter)
            ledger.see(identity)
            if self.selection.takes(letter):
                chosen = _Chosen(
                    letter.data is not None,
                    is_incomplete,
                    sys.intern(letter.reason or ""),
                    letter.first_failure,
                    letter.last_failure,
                    letter.attempts,
                    -1 if heads else self._add(letter),
                )
                before = best.setdefault(identity, chosen)
                best[identity] = max(chosen, before, key=lambda one: one.rank)
        for identity, chosen in best.items():
            state = chosen.state(is_known=ledger.has(identity))
            self.counts[state] += 1
            if state == "to_put":
                self.letters[identity] = chosen
        if self.counts["unreadable"] and not has_letters:
            raise RedriveError(
                f"the {kind} files in {self.files} contain no dead letters",
                "pass the path that a DeadLetter writes to, and its files' format with --format",
            )

    def _whole(self, pieces: Iterable[Piece | None]) -> Iterator[tuple[Letter, bool]]:
        """The letters, those in parts at last, and whether some of the parts are missing."""
        # A whole aggregate has the message id of its first user record, and no sub-sequence number.
        parts: dict[tuple[str, str, int | None, int], dict[int, int]] = defaultdict(dict)
        for piece in pieces:
            if piece is None:
                self.counts["unreadable"] += 1
                continue
            letter, part, count = piece
            if count <= 1:
                yield letter, False
                continue
            key = letter.stream_name, letter.message_id, letter.sub_sequence_number, count
            if part not in parts[key]:
                parts[key][part] = self._add(letter)
        for (*_, count), found in parts.items():
            letters = [self._get(at) for _, at in sorted(found.items())]
            data = b"".join(one.data or b"" for one in letters) if len(found) == count else None
            yield replace(letters[0], data=data), data is None

    def _add(self, letter: Letter) -> int:
        """Returns where in the spool the letter is."""
        at = self._spool.seek(0, os.SEEK_END)
        pickle.dump(letter, self._spool)
        return at

    def _get(self, at: int) -> Letter:
        self._spool.seek(at)
        letter: Letter = pickle.load(self._spool)  # noqa: S301  # our own bytes
        return letter
