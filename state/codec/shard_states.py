"""Encodes a shard's state, and decodes it; also one that the Kinesis Storm spout wrote.

The shard id is not stored in the value: it is in the path. The checkpoint is stored as the Kinesis
Storm spout does: a sequence number, or SHARD_END for a finished shard. The last sequence number of
a finished shard is stored as `lastCheckpoint`.

A state of the Kinesis Storm spout is `{"checkpoint": "<seq>"}` alone, without a format. It means
that every record up to `<seq>` is acked, and that reading continues after it.

Rows. Unresolved records, also those of reports, are stored as rows, which are short, so that
thousands fit into one value.

    [first, attempts, dueMs, firstFailureMs, lastFailureMs, reason, key, blocked, rejected,
     whole]
    [[first, last, count], attempts, ...]     a range

Trailing defaults may be left out, and `whole` always is where it is false. A reason is a text; or,
if several records share it, its index in the list `reasons` that is stored beside the rows. The
older form, an object with the fields of `UnresolvedRecord`, is read as well.

`userRecords` is stored beside the rows where the version that wrote them says `whole`. An earlier
version delivered aggregates as they were, and stored nothing of it. So without `userRecords` a
record without a sub-sequence number is a whole one: read as the first user record of an aggregate,
it would be acked for all of them.

Ranges. A state that does not fit into a znode has its unresolved records merged into ranges. Detail
is only ever dropped towards redelivery. A range covers every record that it stands for, and also
the acked records between them, which are delivered again. It has the lowest attempt count and the
earliest due time of its records, and the sum of their counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import asdict, astuple

from state.codec.values import MAX_VALUE_BYTES, damaged, decode, encode_unchecked
from state.errors import InvalidSequenceNumberError, StateTooLargeError
from state.position import SHARD_END, TRIM_HORIZON, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import STATE_FORMAT, Lifecycle, ShardState, UnresolvedRecord, as_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SHARD_END = PositionKind.SHARD_END.value
# The checkpoint that the Kinesis Storm spout stores for a shard without acked records.
_STORM_SPOUT_NONE = ("", PositionKind.TRIM_HORIZON.value)
T = TypeVar("T")


class _StoredShardState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A `ShardState`, its checkpoint as a string, its records as rows, and what is beside them."""

    checkpoint: str | None = None
    last_checkpoint: SequenceNumber | None = None
    read_position: Position | None = None
    unresolved: tuple[StoredRecord, ...] = ()
    reasons: tuple[str, ...] = ()
    user_records: bool = False
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = 0


def encode_shard_state(
    state: ShardState, path: str, *, max_bytes: int = MAX_VALUE_BYTES
) -> tuple[bytes, ShardState]:
    """The bytes of a state, and the state that they stand for.

    The latter differs from `state` if that does not fit into `max_bytes`: its unresolved records
    are then merged into ranges. Raises `StateTooLargeError` if one range does not fit either.
    """
    data = _shard_state_bytes(state)
    if len(data) <= max_bytes:
        return data, state
    smaller = collapse_to_fit(state, max_bytes)
    if smaller is None:
        raise StateTooLargeError(
            f"the value of znode {path} would take {len(data)} bytes, even if all its records "
            f"were stored as one range. The limit is {max_bytes} bytes"
        )
    return _shard_state_bytes(smaller), smaller


def decode_shard_state(data: bytes, shard_id: str, path: str) -> ShardState:
    """The state of a shard, also one that the Kinesis Storm spout wrote. Raises `StoredDataError`
    for damaged bytes, a newer format, and fields that contradict each other.
    """
    stored = decode(data, _StoredShardState, path, newest_format=STATE_FORMAT)
    if stored.format == 0:
        return _from_storm_spout(stored, shard_id, path)
    if stored.read_position is None:
        raise damaged(f"the shard state in {path} has format {stored.format} but no read position")
    finished = stored.checkpoint == _SHARD_END
    if finished != (stored.lifecycle is Lifecycle.FINISHED):
        raise damaged(
            f"the shard state in {path} contradicts itself: its lifecycle is {stored.lifecycle}, "
            f"but its checkpoint is {stored.checkpoint}"
        )
    fields = asdict(stored)
    last, reasons = fields.pop("last_checkpoint"), fields.pop("reasons")
    user_records = fields.pop("user_records")
    del fields["lifecycle"]
    if finished:
        fields["checkpoint"] = last
    elif stored.checkpoint is not None:
        fields["checkpoint"] = _sequence(stored.checkpoint, path)
    fields["unresolved"] = from_rows(stored.unresolved, reasons, path, user_records=user_records)
    return ShardState(shard_id=shard_id, **fields)


def _shard_state_bytes(state: ShardState) -> bytes:
    reasons = shared_reasons(state.unresolved)
    fields = asdict(state)
    del fields["shard_id"]
    fields["checkpoint"] = state.checkpoint_text
    fields["unresolved"] = to_rows(state.unresolved, reasons)
    stored = _StoredShardState(
        last_checkpoint=state.checkpoint if state.finished else None,
        reasons=reasons,
        user_records=bool(state.unresolved),
        lifecycle=state.lifecycle,
        **fields,
    )
    return encode_unchecked(stored)


def _from_storm_spout(stored: _StoredShardState, shard_id: str, path: str) -> ShardState:
    if stored.checkpoint is None:
        raise damaged(
            f"the value in {path} has neither a format nor a checkpoint, so it is not "
            "the state of a shard"
        )
    if stored.checkpoint == _SHARD_END:
        return ShardState(shard_id=shard_id, read_position=SHARD_END)
    if stored.checkpoint in _STORM_SPOUT_NONE:
        return ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)
    checkpoint = _sequence(stored.checkpoint, path)
    return ShardState(
        shard_id=shard_id, checkpoint=checkpoint, read_position=Position.after(checkpoint)
    )


def _sequence(text: str, path: str) -> SequenceNumber:
    try:
        return SequenceNumber.parse(text)
    except InvalidSequenceNumberError as exc:
        raise damaged(f"the shard state in {path} has an invalid checkpoint ({exc})") from exc


class Row(NamedTuple):
    """One record or range. Its sequence numbers are texts here, because the JSON decoder could not
    distinguish a `SequenceNumber` from a list of them.
    """

    numbers: str | tuple[str, str, int]
    attempts: int
    due_ms: int
    first_failure_ms: int | None = None
    last_failure_ms: int | None = None
    reason: str | int | None = None
    key: str | None = None
    blocked: bool = False
    rejected: bool = False
    whole: bool = False


StoredRecord = Row | UnresolvedRecord
"""A stored record: a row, or an object of the older form."""


def shared_reasons(records: Iterable[UnresolvedRecord]) -> tuple[str, ...]:
    """Reasons that more than one record has, the most frequent first; stored beside the rows."""
    counts = Counter(record.reason for record in records if record.reason is not None)
    return tuple(_storable(reason) for reason, count in counts.most_common() if count > 1)


def to_rows(records: Iterable[UnresolvedRecord], reasons: Sequence[str]) -> tuple[Row, ...]:
    """The rows of these records, given the shared reasons that are stored beside them."""
    index = {reason: number for number, reason in enumerate(reasons)}
    rows = []
    for record in records:
        first, last, count, *fields = astuple(record)  # the others in the order of a row's
        is_single = count == 1 and first == last
        row = Row(str(first) if is_single else (str(first), str(last), count), *fields)
        if record.reason is not None:
            reason = _storable(record.reason)
            row = row._replace(reason=index.get(reason, reason))
        # Versions without `whole` can read a row that does not have it.
        rows.append(row if row.whole else cast("Row", row[:-1]))
    return tuple(rows)


def from_rows(
    rows: Iterable[StoredRecord], reasons: Sequence[str], path: str, *, user_records: bool
) -> tuple[UnresolvedRecord, ...]:
    """The records of these rows, by what is beside them. `StoredDataError` for a damaged one."""
    try:
        records = tuple(
            row if isinstance(row, UnresolvedRecord) else _record(row, reasons) for row in rows
        )
    except (InvalidSequenceNumberError, IndexError) as exc:
        raise damaged(f"cannot read the list of unresolved records in {path} ({exc})") from exc
    return records if user_records else tuple(map(_of_earlier_version, records))


def _of_earlier_version(record: UnresolvedRecord) -> UnresolvedRecord:
    return record if record.first.sub or record.last.sub else as_whole([record])[0]


def _record(row: Row, reasons: Sequence[str]) -> UnresolvedRecord:
    first, last, count = (
        row.numbers if isinstance(row.numbers, tuple) else (row.numbers, row.numbers, 1)
    )
    fields = row._asdict()
    del fields["numbers"]
    if isinstance(row.reason, int):
        # Python would take a negative index for one from the end.
        if row.reason < 0:
            raise IndexError(f"{row.reason} is not the index of a reason")
        fields["reason"] = reasons[row.reason]
    first_number = SequenceNumber.parse(first)
    last_number = first_number if last is first else SequenceNumber.parse(last)
    return UnresolvedRecord(first=first_number, last=last_number, count=count, **fields)


def _storable(reason: str) -> str:
    """The reason with lone surrogates, as in file names, as escapes: UTF-8 cannot hold them."""
    return reason.encode("utf-8", "backslashreplace").decode()


def collapse_to_fit(state: ShardState, max_bytes: int) -> ShardState | None:
    """The largest form of `state` that fits into `max_bytes`: without reasons, and with its
    unresolved records in as many ranges as possible. None if no form fits.
    """
    records = [
        msgspec.structs.replace(record, reason=None)
        for record in sorted(state.unresolved, key=lambda each: each.first)
    ]

    def merged(ranges: int) -> ShardState:
        return msgspec.structs.replace(state, unresolved=tuple(in_ranges(records, ranges)))

    most = bisect_left(
        range(len(records)),
        x=True,
        key=lambda ranges: len(_shard_state_bytes(merged(ranges + 1))) > max_bytes,
    )
    return merged(most) if most else None


def in_ranges(records: Sequence[UnresolvedRecord], ranges: int) -> Iterator[UnresolvedRecord]:
    """The records (ascending) in so many ranges, each of about the same number of records.

    Records that were delivered whole are not merged with user records: a range is read in one of
    the two ways, and in the other its count would be wrong. So there is one range more where the
    two meet, as they do at each change of the option.
    """
    groups = groupby(
        enumerate(records), key=lambda each: (each[0] * ranges // len(records), each[1].whole)
    )
    for _, group in groups:
        yield merge_range([record for _, record in group])


def merge_range(records: Sequence[UnresolvedRecord]) -> UnresolvedRecord:
    """One range for these records, which were delivered alike: all `whole`, or none. It has a
    reason and a key only if all of them have the same.
    """
    return UnresolvedRecord(
        first=min(record.first for record in records),
        last=max(record.last for record in records),
        count=sum(record.count for record in records),
        attempts=min(record.attempts for record in records),
        due_ms=min(record.due_ms for record in records),
        first_failure_ms=min(
            (record.first_failure_ms for record in records if record.first_failure_ms is not None),
            default=None,
        ),
        last_failure_ms=max(
            (record.last_failure_ms for record in records if record.last_failure_ms is not None),
            default=None,
        ),
        reason=_common(record.reason for record in records),
        key=_common(record.key for record in records),
        blocked=all(record.blocked for record in records),
        rejected=all(record.rejected for record in records),
        whole=records[0].whole,
    )


def _common(values: Iterable[T]) -> T | None:
    """The value if all are equal, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
