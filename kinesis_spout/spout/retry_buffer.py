"""Payloads of records that a shard's tracker knows one by one: of all that are pending, of queued
ones while there is room.

One that is not here, for lack of room or after a restart, is `wanted`: somebody reads it again, and
brings it by `restock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from kinesis_spout.spout.record_run import RecordRun
    from state.shard_state import UnresolvedRecord
    from state.tracker.inflight_record_tracker import InflightRecordTracker

LOOK_AGAIN_MS = 1_000  # how soon a retry is due again whose record must be read again first
GONE = "past the stream's retention before it could be retried"


class Letter(NamedTuple):
    """An exhausted record (or range) to be dead-lettered. `run`: its records as far as they are
    left; None if none is.
    """

    record: UnresolvedRecord
    run: RecordRun | None


class HeldRecords:
    """By the sequence number of a record, or of the first one of a range. `held_bytes` counts
    payload.
    """

    def __init__(self, tracker: InflightRecordTracker) -> None:
        self.held_bytes = 0
        self._tracker = tracker
        self._missing: set[SequenceNumber] = set()
        self._runs: dict[SequenceNumber, RecordRun] = {}
        self._gone: set[SequenceNumber] = set()

    def __contains__(self, sequence: SequenceNumber) -> bool:
        """Whether the payload is here, or known to be nowhere any more."""
        return sequence in self._runs or sequence in self._gone

    def hold(self, sequence: SequenceNumber, run: RecordRun) -> None:
        """Keep the payload of a record, or of what is left of a range; the tracker knows it."""
        self.drop(sequence)
        run.registered = True
        self._runs[sequence] = run
        self.held_bytes += run.payload_bytes

    def get(self, sequence: SequenceNumber) -> RecordRun | None:
        return self._runs.get(sequence)

    def drop(self, sequence: SequenceNumber) -> None:
        """The record is resolved, or there is no room for it; a no-op for one that is not here."""
        run = self._runs.pop(sequence, None)
        if run is not None:
            self.held_bytes -= run.payload_bytes
        self._gone.discard(sequence)

    def oldest_arrival_ms(self) -> int | None:
        """When the oldest of them arrived; None without any. O(held)."""
        return min((run.arrivals[0] for run in self._runs.values()), default=None)

    def due_retry(self, now_ms: int) -> SequenceNumber | None:
        """The record whose retry is due first, of those that are here; the others are put aside, so
        that they hold up none.
        """
        while (sequence := self._tracker.due_retry(now_ms)) is not None and sequence not in self:
            self._missing.add(sequence)
            self._tracker.postpone(sequence, now_ms + LOOK_AGAIN_MS)
        return sequence

    def letters(self) -> list[Letter]:
        """The exhausted records whose payload is here, or known to be gone."""
        return [
            Letter(record, self.get(record.first))
            for record in self._tracker.exhausted
            if record.first in self
        ]

    def wanted(self, now_ms: int) -> list[UnresolvedRecord]:
        """What must be read again: retries that are due, and exhausted records, without a payload
        here. In order.
        """
        self.due_retry(now_ms)
        queued = (
            self._tracker.queued(sequence) for sequence in self._missing if sequence not in self
        )
        self._missing = set()
        lacking = [record for record in self._tracker.exhausted if record.first not in self]
        return sorted(
            [*(record for record in queued if record is not None), *lacking],
            key=lambda record: record.first,
        )

    def restock(self, record: UnresolvedRecord, found: RecordRun | None, now_ms: int) -> None:
        """The payload of a wanted record, or of the records that are left of a range; None: nothing
        is left of it.

        A no-op for what has come meanwhile, or is not wanted any more.
        """
        if record.first in self:
            return
        queued = self._tracker.queued(record.first)
        if queued is not None and found is not None:
            self._unfold(queued, found, now_ms)
            return
        if queued is not None:
            emission = self._tracker.retry(record.first)
            self._tracker.fail(
                record.first, emission.attempt, now_ms, reason=GONE, retry=False, counts=False
            )
        if all(record.first != one.first for one in self._tracker.exhausted):
            return  # a late ack came first
        if found is None:
            self._gone.add(record.first)
        else:
            self.hold(record.first, found)

    def _unfold(self, queued: UnresolvedRecord, found: RecordRun, now_ms: int) -> None:
        """A range of records becomes the records that it is, each with its attempts;
        they are due.
        """
        numbers = list(map(SequenceNumber, found.sequences))
        if queued.count > 1:
            emission = self._tracker.retry(queued.first)
            records = [replace(queued, first=one, last=one, count=1) for one in numbers]
            self._tracker.ack_except(queued.first, emission.attempt, records)
        for at, sequence in enumerate(numbers):
            self.hold(sequence, found.single(at))
            self._tracker.postpone(sequence, now_ms)
