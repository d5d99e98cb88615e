"""Finds positions in the stream, and counts the records between them. Blocks on the service."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeVar

from kinesis_spout.clock import Clock
from kinesis_spout.config import ReadRate
from kinesis_spout.errors import ShardNotFoundError, UnreadableRecordError
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL, ShardInfo
from kinesis_spout.threads import DaemonPool
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber

MAX_CONCURRENT_SHARDS = 16
MAX_COUNTED_BYTES = 10 * 1024 * 1024  # a shard gives 2 MB a second
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Located:
    """A position, and the first record that is read from there on.

    - `first`: its number, with the sub-sequence number where the position lies within it; None
      where there is no record.
    - `arrival_ms`: its arrival (ms since 1970); None without a record.
    - `at_shard_end`: there is no record, and none can come.
    """

    position: Position
    first: SequenceNumber | None
    arrival_ms: int | None = None
    at_shard_end: bool = False

    def is_before(self, other: Self) -> bool:
        """Whether something is read from here on that is not read from `other` on."""
        if self.first is None:
            return False
        return other.first is None or self.first < other.first


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of Kinesis records; `is_more`: there are more of them, which were not counted."""

    records: int
    is_more: bool = False

    def __str__(self) -> str:
        return f"{'more than ' if self.is_more else ''}{self.records}"


NONE = Counted(0)
END = Located(SHARD_END, None, at_shard_end=True)


def for_each_shard(call: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
    """The answers for these items, of one shard each, in their order; several calls at a time."""
    with DaemonPool(MAX_CONCURRENT_SHARDS, "shards") as pool:
        return list(pool.map(call, items))


@dataclass
class ShardSearch:
    """Looks into one shard. Keeps to the service's pace over all of its calls. For one thread.

    `now_ms`: the service's time. `horizon_ms`: that less the retention. `max_counted`: how many
    records `count` counts. Who only reads records needs none of the three.
    """

    client: KinesisClient
    shard: ShardInfo
    clock: Clock
    now_ms: int = 0
    horizon_ms: int = 0
    max_counted: int = 0
    _pacer: Pacer = field(default_factory=lambda: Pacer(ReadRate()), init=False)

    def locate(self, position: Position) -> Located:
        """The first record from a position on. Raises `ShardNotFoundError`, and
        `RequestRefusedError` for a sequence number that the service does not take.
        """
        if position.is_end:
            return END
        try:
            page = self.first_page(position)
        except UnreadableRecordError as exc:  # it is there, and can be passed over
            return Located(position, _start(position, SequenceNumber.parse(exc.number)))
        if page.first is None:
            return Located(position, None, at_shard_end=page.ended)
        return Located(position, _start(position, page.first), page.last_arrival_ms)

    def first_page(self, position: Position) -> Page:
        """The first record from a position on, as a page; an empty page where there is none. Raises
        as `locate`.
        """
        getter = self._getter(position)
        while True:
            page = self._page(getter, 1)
            if page.first is not None or page.ended or page.at_tip:
                return page

    def pages(self, first: SequenceNumber, last: SequenceNumber) -> Iterator[Page]:
        """The pages from a record on, up to the one that reaches `last`. Raises as `locate`."""
        getter, is_over = self._getter(Position.at(first)), False
        limit = 1 if last.shares_record(first) else MAX_RECORDS_PER_CALL
        while not is_over:
            page = self._page(getter, limit)
            yield page
            is_over = page.ended or page.at_tip or (page.last is not None and last <= page.last)

    def count(self, start: Located, end: Located) -> Counted:
        """The Kinesis records from `start` on that are not read from `end` on, up to `max_counted`
        and `MAX_COUNTED_BYTES`. A part of an aggregate counts as a record.
        """
        if not start.is_before(end):
            return NONE
        getter, until = self._getter(start.position), end.first
        records = read_bytes = 0
        is_over = False
        while not is_over and records <= self.max_counted and read_bytes < MAX_COUNTED_BYTES:
            try:
                page = self._page(getter, min(MAX_RECORDS_PER_CALL, self.max_counted + 1 - records))
            except UnreadableRecordError:
                break
            read_bytes += page.payload_bytes
            is_over = page.ended or page.at_tip
            if until is not None and page.last is not None and until <= page.last:
                # Of the last page, some records are not before the end, wholly or in part.
                numbers = map(SequenceNumber.parse, page.columns.lists().numbers)
                records += sum(number < until for number in numbers)
                is_over = True
            else:
                records += page.count
        return Counted(min(records, self.max_counted), not is_over or records > self.max_counted)

    def _getter(self, position: Position) -> KinesisShardGetter:
        return KinesisShardGetter(
            self.client,
            self.shard.shard_id,
            position,
            pacer=self._pacer,
            clock=self.clock,
            ending_sequence=self.shard.last_sequence,
        )

    def _page(self, getter: KinesisShardGetter, limit: int) -> Page:
        page = getter.fetch(limit)
        if page.gone:
            raise ShardNotFoundError(
                f"Kinesis no longer knows shard {self.shard.shard_id} of {self.client.where}",
                "run the command again",
            )
        return page


def _start(position: Position, first: SequenceNumber) -> SequenceNumber:
    """The first record's number, or the user record within it that the position means."""
    wanted = position.sequence
    if wanted is None or not wanted.sub or not wanted.shares_record(first):
        return first
    return wanted
