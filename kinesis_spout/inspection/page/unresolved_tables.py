"""Unresolved records as tables: by their reason, and one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.html.table import Column, table
from kinesis_spout.html.text import count, plural
from kinesis_spout.inspection.page.cells import name, shard_link, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.html.element import Element, Node
    from kinesis_spout.inspection.page.view import View
    from state.shard_state import UnresolvedRecord

MAX_REASONS = 50
_NEVER_MS = 1 << 62


class Held(NamedTuple):
    shard_id: str
    record: UnresolvedRecord


@dataclass(slots=True)
class _Reason:
    records: int = 0
    attempts: int = 0
    first_ms: int | None = None
    due_ms: int | None = None
    shards: dict[str, None] = field(default_factory=dict)


def held(view: View, shard_id: str | None = None) -> list[Held]:
    """All of them, or a shard's; those that failed first at the top."""
    states = view.look.now.states
    found = [
        Held(one, record)
        for one in (states if shard_id is None else [shard_id])
        if one in states
        for record in states[one].unresolved
    ]
    return sorted(found, key=lambda one: (one.record.first_failure_ms or _NEVER_MS, one.shard_id))


def state_of(record: UnresolvedRecord) -> str:
    """Why it is unresolved, where it has no reason of its own."""
    if record.reason:
        return record.reason
    if record.rejected:
        return "(rejected: waits for its dead letter)"
    if record.blocked:
        return "(did not fail: waits for an earlier record)"
    if record.first_failure_ms is None:
        return "(delivered, without an answer yet)"
    return "(no reason given)"


def by_reason(view: View, records: Sequence[Held]) -> Element:
    reasons: dict[str, _Reason] = {}
    for shard_id, record in records:
        one = reasons.setdefault(state_of(record), _Reason())
        one.records += record.count
        one.attempts = max(one.attempts, record.attempts)
        one.shards[shard_id] = None
        one.first_ms = _least(one.first_ms, record.first_failure_ms)
        one.due_ms = _least(one.due_ms, record.due_ms or None)
    worst = sorted(reasons.items(), key=lambda one: (-one[1].records, one[0]))
    columns = [
        Column("Reason"),
        Column("Records", number=True),
        Column("Attempts, most", number=True),
        Column("First failure", number=True),
        Column("Next try", number=True),
        Column("Shards", short=True),
    ]
    rows: list[tuple[Node, ...]] = [
        (
            value(reason, 300),
            count(one.records),
            count(one.attempts),
            view.ago(one.first_ms),
            view.ago(one.due_ms),
            shards_cell(view, list(one.shards)),
        )
        for reason, one in worst[:MAX_REASONS]
    ]
    more = "" if len(worst) <= MAX_REASONS else f", the first {MAX_REASONS} by number of records"
    return table(f"{plural(len(worst), 'reason')}{more}", columns, rows)


def one_by_one(view: View, records: Sequence[Held], *, most: int, with_shard: bool) -> Element:
    columns = [
        *([Column("Shard", short=True)] if with_shard else []),
        Column("Record", short=True),
        Column("Reason"),
        Column("Attempts", number=True),
        Column("First failure", number=True),
        Column("Next try", number=True),
    ]
    rows = [
        (*([shard_link(view, one.shard_id)] if with_shard else []), *_cells(view, one.record))
        for one in islice(records, most)
    ]
    entries = plural(len(records), "record or range", "records and ranges")
    first = f", the {count(most)} that failed first" if len(records) > most else ""
    return table(f"{entries}{first}", columns, rows)


def _cells(view: View, record: UnresolvedRecord) -> Iterator[Node]:
    number = str(record.first)
    if record.count > 1:
        number = f"{number} and {count(record.count - 1)} more up to {record.last}"
    yield value(number, 160) if record.count > 1 else name(number)
    yield value(state_of(record), 300)
    yield count(record.attempts)
    yield view.ago(record.first_failure_ms)
    yield view.ago(record.due_ms or None)


def shards_cell(view: View, shards: Sequence[str]) -> Node:
    """The only one, or how many there are."""
    return shard_link(view, shards[0]) if len(shards) == 1 else plural(len(shards), "shard")


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
