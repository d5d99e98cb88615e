"""Payloads of records that a shard's tracker knows one by one: of all that are pending, of queued ones while there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.record_run import RecordRun
    from state.sequence_number import SequenceNumber


class HeldRecords:
    """By the sequence number of a record, or of the first one of a range. `held_bytes` counts payload."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._runs: dict[SequenceNumber, RecordRun] = {}
        self._gone: set[SequenceNumber] = set()

    def __contains__(self, sequence: SequenceNumber) -> bool:
        """Whether the payload is here, or known to be nowhere any more."""
        return sequence in self._runs or sequence in self._gone

    def hold(self, sequence: SequenceNumber, run: RecordRun) -> None:
        """Keep the payload of a record, or of what is left of a range; the tracker knows it."""
        run.registered = True
        self._runs[sequence] = run
        self.held_bytes += run.payload_bytes

    def get(self, sequence: SequenceNumber) -> RecordRun | None:
        return self._runs.get(sequence)

    def set_gone(self, sequence: SequenceNumber) -> None:
        """The stream does not have the record any more."""
        self._gone.add(sequence)

    def drop(self, sequence: SequenceNumber) -> None:
        """The record is resolved, or there is no room for it; a no-op for one that is not here."""
        run = self._runs.pop(sequence, None)
        if run is not None:
            self.held_bytes -= run.payload_bytes
        self._gone.discard(sequence)

    def oldest_arrival_ms(self) -> int | None:
        """When the oldest of them arrived; None without any. O(held)."""
        return min((run.arrivals[0] for run in self._runs.values()), default=None)
