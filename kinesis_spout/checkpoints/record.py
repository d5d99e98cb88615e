"""One record: as the stream has it, with the user records of an aggregate, and its status in an
application.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.checkpoints.located import ShardSearch
from kinesis_spout.errors import RequestRefusedError, ShardNotFoundError
from kinesis_spout.reading.user_records import OwnedOfRange, unpacked_retries, within
from kinesis_spout.service.shard_info import HashRange
from scheme.record import SUB_SEQUENCE_NUMBER
from state.moves import is_before
from state.plan import PlannedRetry
from state.position import Position, PositionKind
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState, UnresolvedRecord


class RecordStatus(StrEnum):
    """`ACKED`: the application is done with it, or it was skipped. `SKIPPED`: it arrived before the
    time from which the shard is read. `UNKNOWN`: it lies in a range of unresolved records, which
    may contain acked ones. `UNREAD`: also a record of an open plan.
    """

    ACKED = "acked"
    UNRESOLVED = "unresolved"
    UNKNOWN = "unresolved or acked"
    UNREAD = "not read yet"
    SKIPPED = "before the start"


def status_of(
    state: ShardState, number: SequenceNumber, arrival_ms: int | None
) -> tuple[RecordStatus, UnresolvedRecord | None]:
    """The record's status in the shard's state; also its entry, or that of the range that it lies
    in, where it is unresolved. Pure.

    `arrival_ms`: None if it is not known, as of a record that has expired.
    """
    for record in state.unresolved:
        is_inside = record.first <= number <= record.last
        is_whole = record.whole and not record.last.sub and record.last.shares_record(number)
        if is_inside or is_whole:
            alone = record.count == 1 and record.first == record.last
            return RecordStatus.UNRESOLVED if alone else RecordStatus.UNKNOWN, record
    start = state.read_position
    if start.kind is PositionKind.AT_TIMESTAMP and start.timestamp_ms is not None:
        is_early = arrival_ms is not None and arrival_ms < start.timestamp_ms
        return RecordStatus.SKIPPED if is_early else RecordStatus.UNREAD, None
    return RecordStatus.ACKED if is_before(number, start) else RecordStatus.UNREAD, None


@dataclass(frozen=True, slots=True)
class PeekedRecord:
    """A record or a user record. `key`: None on a stream that ignores keys."""

    number: SequenceNumber
    key: str | None
    data: bytes
    arrival_ms: int | None


@dataclass(frozen=True, slots=True)
class Peeked:
    """What is at a sequence number.

    - `record`: the Kinesis record; None if the stream does not have it (any more).
    - `users`: the user records, if it is an aggregate.
    - `next_number`: the first record after it, where it is missing; None if there is none.
    """

    record: PeekedRecord | None
    users: tuple[PeekedRecord, ...] = ()
    next_number: SequenceNumber | None = None


def peek_record(
    client: KinesisClient, shard: ShardInfo, number: SequenceNumber, clock: Clock
) -> Peeked:
    """The record with this number, whatever its sub-sequence number. All user records of an
    aggregate are there, also those that the shard does not own.

    Raises errors of the service. A number that the service refuses is not in the shard.
    """
    try:
        page = ShardSearch(client, shard, clock).first_page(Position.at(number.whole))
    except (RequestRefusedError, ShardNotFoundError):
        return Peeked(None)
    if page.first is None or not page.first.shares_record(number):
        return Peeked(None, next_number=page.first)
    records = page.records.slice(0, 1)
    batches = list(Unpacker(lambda: None).unpack(records))
    whole = _records(records)[0]
    users = [user for batch in batches for user in _records(batch)]
    is_aggregate = any(SUB_SEQUENCE_NUMBER in batch.schema.names for batch in batches)
    plain = len(users) == 1 and users[0].data == whole.data
    return Peeked(whole, tuple(users) if is_aggregate and not plain else ())


def unresolved_records(
    client: KinesisClient, shard: ShardInfo, record: UnresolvedRecord, clock: Clock
) -> Iterator[PeekedRecord]:
    """The records that an unresolved record stands for, as they were delivered: of a range, all
    that are between its ends and belong to the shard. Those that have expired are left out.

    Raises errors of the service.
    """
    if record.first == record.last:
        peeked = peek_record(client, shard, record.first, clock)
        users = () if record.whole and not record.first.sub else peeked.users
        if users:
            yield from (user for user in users if user.number == record.first)
        elif peeked.record is not None:
            yield peeked.record
        return

    def hash_range() -> HashRange | None:
        is_by_key = not client.describe().may_have_ignored_keys
        return HashRange(*shard.hash_key_range) if is_by_key else None

    unpacker = Unpacker(hash_range)
    owned = OwnedOfRange(record.first, record.last)
    wanted = PlannedRetry(first=record.first, last=record.last, attempts=0, whole=record.whole)
    try:
        for page in ShardSearch(client, shard, clock).pages(
            Position.at(record.first.whole), record.last
        ):
            found = unpacked_retries(page.records, unpacker, [wanted], only_subs=False)
            yield from _records(owned.of(within(found, record.first, record.last)))
    except (RequestRefusedError, ShardNotFoundError):
        return


def _records(batch: pa.RecordBatch) -> list[PeekedRecord]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return [
        PeekedRecord(
            SequenceNumber(int(row["sequenceNumber"]), row.get(SUB_SEQUENCE_NUMBER) or 0),
            row["partitionKey"],
            row["data"],
            None
            if row["approximateArrivalTimestamp"] is None
            else round(row["approximateArrivalTimestamp"].timestamp() * 1000),
        )
        for row in rows
    ]
