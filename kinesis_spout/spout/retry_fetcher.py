"""Reads records again whose retry or dead letter is due and whose payload is not in memory: after a
restart, or for lack of room.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.reading.retry_byte_budget import RetryByteBudget
from kinesis_spout.reading.retry_reader import RetryReader
from kinesis_spout.service.record_columns import RecordColumns
from kinesis_spout.spout.record_run import RecordRun
from state.plan import PlannedRetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.spout.scheduler import AssignedShard
    from kinesis_spout.spout.services import SpoutContext
    from state.shard_state import UnresolvedRecord

_STEP_INTERVAL_S = 0.2


class SpoutRetryFetcher:
    """One per open spout. One thread calls `step`, which blocks on Kinesis. `now_ms` gives the
    spout's time.
    """

    def __init__(self, context: SpoutContext, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._services = context.services
        self._scheduler = context.scheduler
        self._hooks = context.hooks
        self._changed = context.changed
        self._max_bytes = context.config.prefetch_bytes

    def step(self) -> float:
        """Read what the shards want, as far as there is room. The rest is wanted again later.
        Returns the seconds until the next step.
        """
        now_ms = self._now_ms()
        with self._changed:
            wanted = [
                (assigned, records)
                for assigned in self._scheduler.assigned.values()
                if (records := assigned.shard.held.wanted(now_ms))
            ]
        for assigned, records in wanted:
            if (room_bytes := self._room_bytes()) <= 0:
                break
            try:
                found = list(self._read(assigned.shard.shard_id, records, room_bytes))
            except KinesisError as exc:
                if not exc.retryable:
                    raise
                self._hooks.error(exc)
            else:
                self._restock(assigned, found)
        return _STEP_INTERVAL_S

    def _room_bytes(self) -> int:
        """How many bytes of payload may still be kept for retries.

        Payloads that are kept are not read again, so room always comes back when they are resolved.
        """
        with self._changed:
            return self._max_bytes - sum(
                assigned.shard.held.held_bytes for assigned in self._scheduler.assigned.values()
            )

    def _restock(
        self, assigned: AssignedShard, found: Sequence[tuple[UnresolvedRecord, RecordRun | None]]
    ) -> None:
        now_ms = self._now_ms()
        with self._changed:
            for record, run in found:
                assigned.shard.restock(record, run, now_ms)
            self._scheduler.reschedule(assigned)
            self._changed.notify_all()

    def _read(
        self, shard_id: str, records: Sequence[UnresolvedRecord], room_bytes: int
    ) -> Iterator[tuple[UnresolvedRecord, RecordRun | None]]:
        """Each record that was looked for, with the run of what was found of it, or None."""
        retries = [
            PlannedRetry(
                first=record.first,
                last=record.last if record.count > 1 else None,
                count=record.count,
                attempts=record.attempts,
            )
            for record in records
        ]
        reader = RetryReader(shard_id, retries, self._services)
        rows = RecordRun([], [], [], [])
        for delivery in reader.read(RetryByteBudget(room_bytes)):
            rows.extend(RecordRun(*RecordColumns.of(delivery.records).lists()))
        numbers = rows.sequences
        for record in records[: reader.done]:  # found in their order
            first = bisect_left(numbers, record.first.sequence)
            last = bisect_right(numbers, record.last.sequence)
            yield record, rows.part(first, last) if first < last else None
