"""The log of a task: what its attempts hand over, in this order. Pure.

Nobody can ask Kinesis where a shard ends, so an attempt finds it by reading. It appends what it has
read to the log, by compare-and-set, before the rows leave the task, and then hands over the rows
that the log names. Every attempt hands over the rows of the log in the order of the log, whoever
appended them. So attempts that complete have handed over the same rows in the same order, and one
that was cut off a prefix of them. A sealed log is complete. An attempt completes when it has handed
over all rows of a sealed log.

An entry is a `ShardReadResult`: records of one shard that follow those of the shard's earlier
entries. A shard's retries are entries of their own, before all new records. What an entry says of
the tip and the next iterator holds after its records, so only a shard's last entry counts in these.
A shard's end stays its end: no records follow it.

The log of an unsealed, closed plan counts as sealed: nothing can be appended under a closed plan.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from state.errors import TaskLogError
from state.plan import ShardReadResult, TaskResult, UserRecords, users_of_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOG_FORMAT = 2
# What the rows of an entry follow from.
_rows_of = attrgetter(
    *("shard_id", "first", "last", "count", "users"),
    *("retries_done", "retry_rows", "retries_gone", "retry_part"),
)


class TaskLog(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a task's node `end`. Format 1 was one `TaskResult`, which is a sealed log."""

    entries: tuple[ShardReadResult, ...] = ()
    sealed: bool = False
    format: int = LOG_FORMAT

    @property
    def rows(self) -> int:
        """How many rows the entries have, retries included."""
        return sum(entry.count + entry.retry_rows for entry in self.entries)

    @property
    def payload_bytes(self) -> int:
        """The payload of these rows."""
        return sum(entry.payload_bytes for entry in self.entries)

    def extended(self, entries: Iterable[ShardReadResult], *, seal: bool) -> TaskLog:
        """The log with these entries at its end. The hints of earlier entries of the same shards
        are dropped: only the last ones are of use to the next read.

        Raises `TaskLogError` for a sealed log, and for an entry that does not continue its shard.
        """
        if self.sealed:
            raise TaskLogError("the task's log is complete, so nothing can be appended to it")
        new = tuple(entries)
        shards = _by_shard(self.entries)
        for entry in new:
            _check_continues(shards.get(entry.shard_id), entry)
            _add(shards, entry)
        all_entries = (*self.entries, *new)
        last = {entry.shard_id: number for number, entry in enumerate(all_entries)}
        return replace(
            self,
            entries=tuple(
                entry if last[entry.shard_id] == number else _without_hints(entry)
                for number, entry in enumerate(all_entries)
            ),
            sealed=seal,
        )

    def without_hints(self) -> TaskLog:
        """The same log, shorter."""
        return replace(self, entries=tuple(map(_without_hints, self.entries)))

    def continues(self, handed_over: Sequence[ShardReadResult]) -> bool:
        """Whether the log begins with these entries, as far as their rows go."""
        begin = self.entries[: len(handed_over)]
        return list(map(_rows_of, begin)) == list(map(_rows_of, handed_over))

    def folded(self) -> TaskResult:
        """What was handed over of each shard, in the order of the shards' first entries. It counts
        user records, as outcomes do; the entries count Kinesis records.
        """
        shards = tuple(shard.in_user_records for shard in _by_shard(self.entries).values())
        return TaskResult(shards=shards, sealed=self.sealed)


def _without_hints(entry: ShardReadResult) -> ShardReadResult:
    return replace(entry, iterator=None, next_read_ms=None, next_subscribe_ms=None)


def _by_shard(entries: Iterable[ShardReadResult]) -> dict[str, ShardReadResult]:
    shards: dict[str, ShardReadResult] = {}
    for entry in entries:
        _add(shards, entry)
    return shards


def _add(shards: dict[str, ShardReadResult], entry: ShardReadResult) -> None:
    before = shards.get(entry.shard_id)
    shards[entry.shard_id] = entry if before is None else _followed_by(before, entry)


def _followed_by(before: ShardReadResult, entry: ShardReadResult) -> ShardReadResult:
    """One result of both: the records of both, and after them what the later one says. An attempt
    may know less of the shard's end than the one before it.
    """
    return replace(
        entry,
        first=entry.first if before.first is None else before.first,
        last=before.last if entry.last is None else entry.last,
        count=before.count + entry.count,
        payload_bytes=before.payload_bytes + entry.payload_bytes,
        at_shard_end=before.at_shard_end or entry.at_shard_end,
        tip_ms=before.tip_ms if before.at_shard_end else entry.tip_ms,
        children=entry.children or before.children,
        last_arrival_ms=entry.last_arrival_ms if entry.count else before.last_arrival_ms,
        gone=before.gone or entry.gone,
        retries_done=before.retries_done + entry.retries_done,
        retry_rows=before.retry_rows + entry.retry_rows,
        retries_gone=before.retries_gone + entry.retries_gone,
        retries_short=before.retries_short + entry.retries_short,
        retry_part=before.retry_part or entry.retry_part,
        position=before.position or entry.position,
        lapsed_ms=before.lapsed_ms or entry.lapsed_ms,
        users=None
        if before.users is None and entry.users is None
        else users_of_all((_users(before), _users(entry))),
        throttled=max(before.throttled, entry.throttled),
        pushed=before.pushed + entry.pushed,
        fallback=entry.fallback or before.fallback,
    )


def _users(entry: ShardReadResult) -> UserRecords:
    return entry.users or UserRecords(count=entry.count, first=entry.first, last=entry.last)


def _check_continues(before: ShardReadResult | None, entry: ShardReadResult) -> None:
    """Raise `TaskLogError` unless the entry follows the shard's earlier ones (`before`)."""
    first, last = entry.first, entry.last
    if (
        entry.count < 0
        or (first is not None) != (entry.count > 0)
        or (last is not None) != (entry.count > 0)
        or (first is not None and last is not None and last < first)
    ):
        raise TaskLogError(
            f"shard {entry.shard_id}: an entry of the task log counts {entry.count} records "
            f"from {first} to {last}"
        )
    if before is None:
        return
    if entry.count and before.at_shard_end:
        raise TaskLogError(
            f"shard {entry.shard_id}: the task log contains records after the end of the shard"
        )
    if _has_retries(entry) and (_has_retries(before) or before.count):
        raise TaskLogError(
            f"shard {entry.shard_id}: the task log contains retries after new "
            "records or other retries"
        )
    if first is not None and before.last is not None and first <= before.last:
        raise TaskLogError(
            f"shard {entry.shard_id}: an entry of the task log starts at {first}, but the "
            f"previous entry ends at {before.last}"
        )


def _has_retries(entry: ShardReadResult) -> bool:
    return entry.retries_done > 0 or entry.retry_part is not None
