"""Reading records again that are to be retried or dead-lettered and are not in memory: after a restart, or for lack of room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.record_run import RecordRun
from kinesis_spout.retry_reader import RetryReader
from kinesis_spout.retry_room import RetryRoom
from state.plan import PlannedRetry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.spout_context import SpoutContext
    from kinesis_spout.spout_core import ShardSeat
    from state.shard_state import UnresolvedRecord

_LOOK_S = 0.2


class SpoutRereading:
    """One per open spout; its step is called by one thread, and blocks on Kinesis."""

    def __init__(self, context: SpoutContext) -> None:
        self._services = context.services
        self._core = context.core
        self._hooks = context.hooks
        self._changed = context.changed
        self._max_bytes = context.config.prefetch_bytes

    def step(self) -> float:
        """Read what every shard wants; what there is no room for is wanted again after a while."""
        now_ms = self._services.clock.now_ms()
        with self._changed:
            wanted = [(seat, records) for seat in self._core.seats.values() if (records := seat.shard.held.wanted(now_ms))]
        for seat, records in wanted:
            try:
                found = list(self._read(seat.shard.shard_id, records))
            except KinesisError as exc:
                if not exc.retryable:
                    raise
                self._hooks.error(exc)
            else:
                self._restock(seat, found)
        return _LOOK_S

    def _restock(self, seat: ShardSeat, found: Sequence[tuple[UnresolvedRecord, RecordRun | None]]) -> None:
        now_ms = self._services.clock.now_ms()
        with self._changed:
            for record, run in found:
                seat.shard.restock(record, run, now_ms)
            self._core.look(seat)
            self._changed.notify_all()

    def _read(self, shard_id: str, records: Sequence[UnresolvedRecord]) -> Iterator[tuple[UnresolvedRecord, RecordRun | None]]:
        """Each record that was looked for, with what was found of it."""
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
        rows = [RecordRun.of(delivery.records) for delivery in reader.read(RetryRoom(self._max_bytes))]
        for record in records[: reader.done]:
            found = RecordRun([], [], [], [])
            for run in rows:
                for at, sequence in enumerate(run.sequences):
                    if record.first.sequence <= sequence <= record.last.sequence:
                        found.append(run, at)
            yield record, found if found.sequences else None
