"""One record: as the stream has it, with the user records of an aggregate, and its status in an
application. Unresolved records of a shard are given up, so that its checkpoint passes them.

A record that is given up counts as acked. The rest of the shard stays as it is, and so does its
read position: what an open plan has read is settled at the job's next start. That plan cannot bring
the records back, since settling leaves alone a retry that the state does not have any more.

A range of records that are unresolved together has no known records between its ends, so it is
given up as a whole.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import pyarrow as pa

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.application.session import close_open_plan
from kinesis_spout.checkpoints.located import ShardSearch
from kinesis_spout.checkpoints.moves import MoveRefusedError, unknown_shard
from kinesis_spout.clock import Clock
from kinesis_spout.errors import RequestRefusedError, ShardNotFoundError
from kinesis_spout.reading.user_records import (
    OwnedOfRange,
    lists_of,
    unpacked_retries,
    within,
)
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import HashRange, ShardInfo
from scheme.record import SUB_SEQUENCE_NUMBER
from state.failpoint import failpoint
from state.moves import is_before
from state.plan import PlannedRetry
from state.position import Position, PositionKind
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.plans import PlanStore
from state.store.shard_states import ShardStateStore, StateChange, StoredState
from state.tracker.inflight_record_tracker import InflightRecordTracker


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
    client: KinesisClient, shard: ShardInfo, clock: Clock
) -> Callable[[UnresolvedRecord], Iterator[PeekedRecord]]:
    """Finds the records that an unresolved record stands for, as they were delivered: of a range,
    all that are between its ends and belong to the shard. Those that have expired are left out.

    What it returns blocks, and raises errors of the service.
    """

    def hash_range() -> HashRange | None:
        is_by_key = not client.describe().may_have_ignored_keys
        return shard.hash_key_range if is_by_key else None

    search, unpacker = ShardSearch(client, shard, clock), Unpacker(hash_range)

    def read(record: UnresolvedRecord) -> Iterator[PeekedRecord]:
        first, last = record.first, record.last
        owned = OwnedOfRange(first, last)
        wanted = PlannedRetry(first=first, last=last, attempts=0, whole=record.whole)
        with suppress(RequestRefusedError, ShardNotFoundError):
            for page in search.pages(first.whole, last):
                found = unpacked_retries(page.records, unpacker, [wanted], only_subs=False)
                yield from _records(owned.of(within(found, first, last)))

    return read


def _records(batch: pa.RecordBatch) -> list[PeekedRecord]:
    return [
        PeekedRecord(SequenceNumber.parse(number), key, data, arrived_ms or None)
        for number, key, data, arrived_ms in zip(*lists_of([batch]).lists(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Skip:
    """What is to be written: a stored state, the records and ranges that are given up, and the
    state without them.
    """

    stored: StoredState
    after: ShardState
    records: tuple[UnresolvedRecord, ...]

    @property
    def before(self) -> ShardState:
        return self.stored.state

    @property
    def count(self) -> int:
        """The number of records; a range counts with all of its records."""
        return sum(record.count for record in self.records)


def find_skip(
    states: Mapping[str, StoredState], shard_id: str, numbers: Collection[SequenceNumber] | None
) -> Skip:
    """What giving up these unresolved records does, or all of the shard if `numbers` is None. Pure.

    Raises `MoveRefusedError` for an unknown shard, and for a number that is not unresolved.
    """
    if shard_id not in states:
        raise unknown_shard(shard_id, states)
    stored = states[shard_id]
    unresolved = stored.state.unresolved
    if numbers is None:
        return Skip(stored, without(stored.state, unresolved), unresolved)
    chosen = []
    for number in numbers:
        status, record = status_of(stored.state, number, None)
        if record is None:
            raise MoveRefusedError(
                f"record {number} of shard {shard_id} is {status}, but only unresolved records "
                "can be skipped",
                "show the record with `kinesis-spout peek`",
            )
        chosen.append(record)
    records = tuple(record for record in unresolved if record in chosen)
    return Skip(stored, without(stored.state, records), records)


def without(state: ShardState, records: Collection[UnresolvedRecord]) -> ShardState:
    """The state in which these of its unresolved records are acked. Pure."""
    tracker = InflightRecordTracker(
        state,
        retry_policy=RetryPolicy(),  # neither is asked: nothing fails
        random=Random(0),  # noqa: S311  # as said
        restore_exhausted=False,
    )
    for record in records:
        tracker.ack(record.first, tracker.retry(record.first))
    return tracker.snapshot() if records else state


def write_skip(shard_states: ShardStateStore, plans: PlanStore, skip: Skip) -> None:
    """Close the open plan, and write the state. The caller owns all of the application.

    Raises `ConflictError` where the state has changed since it was read.
    """
    close_open_plan(plans)
    shard_states.save([StateChange(before=skip.stored, after=skip.after)])
    failpoint("states-moved")
