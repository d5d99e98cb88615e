"""Encodes unresolved records as rows, which are short, so that thousands fit into one value.

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
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

from state.errors import InvalidSequenceNumberError, StoredDataError
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord, as_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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

    @property
    def stored(self) -> Row:
        """What is written: versions without `whole` can read a row that does not have it."""
        return self if self.whole else cast("Row", self[:-1])


StoredRecord = Row | UnresolvedRecord
"""A stored record: a row, or an object of the older form."""


def shared_reasons(records: Iterable[UnresolvedRecord]) -> tuple[str, ...]:
    """The reasons that more than one record has, the most frequent first. They are stored beside
    the rows.
    """
    counts = Counter(record.reason for record in records if record.reason is not None)
    return tuple(_storable(reason) for reason, count in counts.most_common() if count > 1)


def to_rows(records: Iterable[UnresolvedRecord], reasons: Sequence[str]) -> tuple[Row, ...]:
    """The rows of these records, given the shared reasons that are stored beside them."""
    index = {reason: number for number, reason in enumerate(reasons)}
    return tuple(_row(record, index) for record in records)


def from_rows(
    rows: Iterable[StoredRecord], reasons: Sequence[str], path: str, *, user_records: bool
) -> tuple[UnresolvedRecord, ...]:
    """The records of these rows; raises `StoredDataError` for a damaged row. `user_records`: what
    is stored beside the rows.
    """
    try:
        records = tuple(
            row if isinstance(row, UnresolvedRecord) else _record(row, reasons) for row in rows
        )
    except (InvalidSequenceNumberError, IndexError) as exc:
        raise StoredDataError(
            f"{path} contains unresolved records that cannot be read ({exc})",
            "restore it, or reset the application",
        ) from exc
    return records if user_records else tuple(map(_of_earlier_version, records))


def _of_earlier_version(record: UnresolvedRecord) -> UnresolvedRecord:
    return record if record.first.sub or record.last.sub else as_whole([record])[0]


def _row(record: UnresolvedRecord, index: Mapping[str, int]) -> Row:
    reason = None if record.reason is None else _storable(record.reason)
    first = str(record.first)
    is_single = record.count == 1 and record.first == record.last
    return Row(
        numbers=first if is_single else (first, str(record.last), record.count),
        attempts=record.attempts,
        due_ms=record.due_ms,
        first_failure_ms=record.first_failure_ms,
        last_failure_ms=record.last_failure_ms,
        reason=reason if reason is None else index.get(reason, reason),
        key=record.key,
        blocked=record.blocked,
        rejected=record.rejected,
        whole=record.whole,
    ).stored


def _record(row: Row, reasons: Sequence[str]) -> UnresolvedRecord:
    first, last, count = (
        row.numbers if isinstance(row.numbers, tuple) else (row.numbers, row.numbers, 1)
    )
    # Python would take a negative index for one from the end.
    if isinstance(row.reason, int) and row.reason < 0:
        raise IndexError(f"{row.reason} is not the index of a reason")
    first_number = SequenceNumber.parse(first)
    return UnresolvedRecord(
        first=first_number,
        last=first_number if last is first else SequenceNumber.parse(last),
        count=count,
        attempts=row.attempts,
        due_ms=row.due_ms,
        first_failure_ms=row.first_failure_ms,
        last_failure_ms=row.last_failure_ms,
        reason=reasons[row.reason] if isinstance(row.reason, int) else row.reason,
        key=row.key,
        blocked=row.blocked,
        rejected=row.rejected,
        whole=row.whole,
    )


def _storable(reason: str) -> str:
    """The reason with lone surrogates as escapes. Python's texts may hold them, from file names for
    example; UTF-8 cannot.
    """
    return reason.encode("utf-8", "backslashreplace").decode()
