"""Reads records again whose retry or dead letter is due and whose payload is not in memory: after a
restart, or for lack of room.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.reading.retry_reader import RetryByteBudget, RetryReader
from kinesis_spout.reading.user_records import lists_of
from kinesis_spout.shards.catalog import RELIST_S
from kinesis_spout.spout.outages import SpoutPart
from kinesis_spout.spout.record_run import RecordRun
from state.plan import PlannedRetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.spout.assigner import SpoutAssigner
    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.services import SpoutContext
    from state.shard_state import UnresolvedRecord

_STEP_INTERVAL_S = 0.2
_LONGEST_WAIT_S = 1.0  # of a read for its shard's pace


class SpoutRetryFetcher:
    """One per open spout. One thread calls `step`, which blocks on Kinesis."""

    def __init__(self, context: SpoutContext, assigner: SpoutAssigner) -> None:
        self._assigner = assigner
        self._unknown_until_s: dict[str, float] = {}  # by shard that was not known
        self._outages = context.outages
        self._services = context.services
        self._scheduler = context.scheduler

    def step(self) -> float:
        """Read what the shards want, as far as there is room. The rest is wanted again later, and
        so is all of it during a pause. Returns the seconds until the next step.
        """
        if self._scheduler.is_paused:
            return _STEP_INTERVAL_S
        self._read_all(self._scheduler.wanted_retries(), self._scheduler.room_bytes)
        self._read_all(self._scheduler.wanted_letters(), self._scheduler.letter_room_bytes)
        return _STEP_INTERVAL_S

    def _read_all(
        self,
        wanted: Sequence[tuple[AssignedShard, Sequence[UnresolvedRecord]]],
        room_bytes: Callable[[], int],
    ) -> None:
        for assigned, records in wanted:
            if not records:
                continue
            if assigned.shard.shard_id in self._assigner.catalog.loss.gone:
                self._scheduler.restock(assigned, [(record, None) for record in records])
                continue
            if self._must_wait(assigned.shard.shard_id):
                continue
            if (room := room_bytes()) > 0:
                self._read(assigned, records, room)

    def _must_wait(self, shard_id: str) -> bool:
        """Whether a read of the shard would fail again, or would wait for so long that it delays
        the other shards.
        """
        now_s = self._services.clock.monotonic_s()
        return now_s < max(
            self._unknown_until_s.get(shard_id, now_s),
            self._outages.retry_at_s(SpoutPart.RETRIES, shard_id),
            self._services.retry_pacer(shard_id).ready_at_s(now_s) - _LONGEST_WAIT_S,
        )

    def _read(
        self, assigned: AssignedShard, records: Sequence[UnresolvedRecord], room_bytes: int
    ) -> None:
        """Look for records of a shard. Those that come before an error count. Raises an error that
        waiting cannot mend.
        """
        shard_id = assigned.shard.shard_id
        retries = [
            PlannedRetry(
                first=record.first,
                last=record.last if record.count > 1 else None,
                count=record.count,
                attempts=record.attempts,
                whole=record.whole,
            )
            for record in records
        ]
        # One letter stands for a range that is exhausted, so no range is read in part.
        reader = RetryReader(
            shard_id,
            retries,
            self._services,
            budget=RetryByteBudget(room_bytes),
            whole_ranges=True,
            one_attempt=True,
            unpacker=self._assigner.new_unpacker(shard_id),
        )
        rows = RecordRun([], [], [], [])
        error: KinesisError | None = None
        try:
            for delivery in reader.read():
                rows.extend(RecordRun(*lists_of([delivery.records]).lists()))
        except KinesisError as exc:
            error = exc
        if reader.result.shard_gone:
            self._unknown_until_s[shard_id] = self._services.clock.monotonic_s() + RELIST_S
            self._assigner.list_soon()  # that proves nothing by itself: the next listings do
        self._scheduler.restock(assigned, list(_found(records[: reader.result.done], rows)))
        if error is None or reader.result.done:
            self._outages.succeeded(SpoutPart.RETRIES, shard_id)
        if error is not None:
            self._outages.failed(SpoutPart.RETRIES, error, shard_id)


def _found(
    records: Sequence[UnresolvedRecord], rows: RecordRun
) -> Iterator[tuple[UnresolvedRecord, RecordRun | None]]:
    """Each record that was looked for, with the run of what was found of it, or None."""
    numbers = rows.sequences
    for record in records:  # found in their order
        first = bisect_left(numbers, record.first)
        last = bisect_right(numbers, record.last)
        yield record, rows.part(first, last) if first < last else None
