"""Unresolved records as they are stored: a row each, so that thousands of them fit into one value.

    [first, attempts, dueMs, firstFailureMs, lastFailureMs, reason, key, blocked, rejected]
    [[first, last, count], attempts, ...]     a range

A reason is a text, or, where several records have the same, its index in the list of `reasons`
beside the rows. Read is also the older form, an object with the fields of `UnresolvedRecord`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from state.errors import InvalidSequenceNumberError, StoredDataError
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Row(NamedTuple):
    """One record or range. Its numbers are texts here: the decoder cannot tell a sequence number
    from a list of them.
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


StoredRecord = Row | UnresolvedRecord
"""What is read: a row, or the older form."""


def shared_reasons(records: Iterable[UnresolvedRecord]) -> tuple[str, ...]:
    """The reasons that several of the records have, the most frequent first: the list beside their
    rows.
    """
    counts = Counter(record.reason for record in records if record.reason is not None)
    return tuple(_storable(reason) for reason, count in counts.most_common() if count > 1)


def to_rows(records: Iterable[UnresolvedRecord], reasons: Sequence[str]) -> tuple[Row, ...]:
    """The rows of these records, beside these shared reasons."""
    index = {reason: number for number, reason in enumerate(reasons)}
    return tuple(_row(record, index) for record in records)


def from_rows(
    rows: Iterable[StoredRecord], reasons: Sequence[str], path: str
) -> tuple[UnresolvedRecord, ...]:
    """The records of these rows; raises `StoredDataError`."""
    try:
        return tuple(
            row if isinstance(row, UnresolvedRecord) else _record(row, reasons) for row in rows
        )
    except (InvalidSequenceNumberError, IndexError) as exc:
        raise StoredDataError(
            f"{path} holds unresolved records that cannot be read: {exc}; restore it, or reset the "
            "application"
        ) from exc


def _row(record: UnresolvedRecord, index: Mapping[str, int]) -> Row:
    reason = None if record.reason is None else _storable(record.reason)
    one = record.count == 1 and record.first == record.last
    return Row(
        numbers=str(record.first) if one else (str(record.first), str(record.last), record.count),
        attempts=record.attempts,
        due_ms=record.due_ms,
        first_failure_ms=record.first_failure_ms,
        last_failure_ms=record.last_failure_ms,
        reason=reason if reason is None else index.get(reason, reason),
        key=record.key,
        blocked=record.blocked,
        rejected=record.rejected,
    )


def _record(row: Row, reasons: Sequence[str]) -> UnresolvedRecord:
    first, last, count = (
        row.numbers if isinstance(row.numbers, tuple) else (row.numbers, row.numbers, 1)
    )
    if isinstance(row.reason, int) and row.reason < 0:
        raise IndexError(f"{row.reason} is no index of a reason")
    return UnresolvedRecord(
        first=SequenceNumber.parse(first),
        last=SequenceNumber.parse(last),
        count=count,
        attempts=row.attempts,
        due_ms=row.due_ms,
        first_failure_ms=row.first_failure_ms,
        last_failure_ms=row.last_failure_ms,
        reason=reasons[row.reason] if isinstance(row.reason, int) else row.reason,
        key=row.key,
        blocked=row.blocked,
        rejected=row.rejected,
    )


def _storable(reason: str) -> str:
    """Python's texts may hold half a character, as names of files do: UTF-8 has none, so it is
    written as an escape.
    """
    return reason.encode("utf-8", "backslashreplace").decode()
