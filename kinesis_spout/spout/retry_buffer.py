"""Payloads of the records that a shard's tracker knows one by one: of all pending ones, and of
queued and exhausted ones while there is room.

A payload can be missing after a restart, or for lack of room. Its record is then `wanted`: the
retry fetcher reads it again and calls `restock`. Letters have half of the room at most, so that a
sink that is down stops no retry. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from state.plan import missing_records
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from kinesis_spout.spout.record_run import RecordRun
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord
    from state.tracker.inflight_record_tracker import InflightRecordTracker

LOOK_AGAIN_MS = 1_000  # a due retry is postponed by this while its record is read again
GONE = "past the stream's retention before it could be retried"


class DueLetter(NamedTuple):
    """An exhausted record, or a range of them, to be dead-lettered. `run` holds what is left of the
    records; None when the stream has none of them any more.
    """

    record: UnresolvedRecord
    run: RecordRun | None


class RetryBuffer:
    """Payloads by the sequence number of a record, or of the first record of a range. `held_bytes`
    counts payload, and `letter_bytes` the part of it that is of exhausted records.
    """

    def __init__(self, tracker: InflightRecordTracker) -> None:
        self.held_bytes = 0
        self.letter_bytes = 0
        self._tracker = tracker
        self._missing: set[SequenceNumber] = set()
        self._runs: dict[SequenceNumber, RecordRun] = {}
        self._gone: set[SequenceNumber] = set()
        self._letters: set[SequenceNumber] = set()  # exhausted records whose payload is here
        self._refusals: dict[SequenceNumber, int] = {}  # by exhausted record: of the sink

    def __contains__(self, sequence: SequenceNumber) -> bool:
        """Whether the payload is here, or is known to be gone from the stream."""
        return sequence in self._runs or sequence in self._gone

    def hold(self, sequence: SequenceNumber, run: RecordRun) -> None:
        """Keep the payload of a record, or of what is left of a range. The tracker knows the
        record.
        """
        self._drop_payload(sequence)
        self._gone.discard(sequence)
        run.registered = True
        self._runs[sequence] = run
        self.held_bytes += run.payload_bytes

    def get(self, sequence: SequenceNumber) -> RecordRun | None:
        return self._runs.get(sequence)

    def drop(self, sequence: SequenceNumber) -> None:
        """Forget a record: it is resolved, or there is no room. A no-op for one that is not
        here.
        """
        self._drop_payload(sequence)
        self._gone.discard(sequence)
        self._refusals.pop(sequence, None)

    def fit(self, sequence: SequenceNumber, max_bytes: int) -> None:
        """A record is not pending any more: keep its payload only if all payloads here fit into
        `max_bytes`, and those of letters into half of it.
        """
        run = self._runs.get(sequence)
        is_letter = run is not None and self._tracker.queued(sequence) is None
        if run is not None and is_letter and sequence not in self._letters:
            self._letters.add(sequence)
            self.letter_bytes += run.payload_bytes
        if self.held_bytes > max_bytes or (is_letter and self.letter_bytes > max_bytes // 2):
            self.drop(sequence)

    def refuse(self, sequence: SequenceNumber, *, drop: bool) -> None:
        """The sink refused the letter of an exhausted record. With `drop`, its payload makes room
        for others, and is read again after those that were refused less often.
        """
        if sequence in self:
            self._refusals[sequence] = self._refusals.get(sequence, 0) + 1
            if drop:
                self._drop_payload(sequence)

    @property
    def lacks_letter(self) -> bool:
        """Whether an exhausted record waits for its payload."""
        here = len(self._letters) + len(self._gone)
        return self._tracker.count(NodeState.EXHAUSTED) > here

    def oldest_arrival_ms(self) -> int | None:
        """Arrival time of the oldest record here; None without any. O(records held)."""
        return min((run.arrivals[0] for run in self._runs.values()), default=None)

    def due_retry(self, now_ms: int) -> SequenceNumber | None:
        """The next due retry whose payload is here.

        Due retries without a payload are postponed, so that they do not block the others.
        """
        while (sequence := self._tracker.due_retry(now_ms)) is not None and sequence not in self:
            self._missing.add(sequence)
            self._tracker.postpone(sequence, now_ms + LOOK_AGAIN_MS)
        return sequence

    def letters(self) -> list[DueLetter]:
        """The exhausted records whose payload is here, or is known to be gone."""
        return [
            DueLetter(record, self.get(record.first))
            for record in self._tracker.exhausted
            if record.first in self
        ]

    def wanted(self, now_ms: int) -> list[UnresolvedRecord]:
        """The queued records to read again, in order: due ones without a payload here."""
        self.due_retry(now_ms)
        queued = (
            self._tracker.queued(sequence) for sequence in self._missing if sequence not in self
        )
        self._missing = set()
        return sorted(
            (record for record in queued if record is not None), key=lambda record: record.first
        )

    def wanted_letters(self) -> list[UnresolvedRecord]:
        """The exhausted records to read again, in order: of those without a payload here the ones
        that were refused least often.
        """
        if not self.lacks_letter:
            return []
        lacking = [record for record in self._tracker.exhausted if record.first not in self]
        fewest = min((self._refusals.get(one.first, 0) for one in lacking), default=0)
        return sorted(
            (one for one in lacking if self._refusals.get(one.first, 0) == fewest),
            key=lambda record: record.first,
        )

    def restock(self, record: UnresolvedRecord, found: RecordRun | None, now_ms: int) -> None:
        """Take the payload of a wanted record, or of the records left of a range. `found` None: the
        stream has none of them any more.

        A no-op for a record whose payload has come meanwhile, or that is not wanted any more.
        """
        if record.first in self:
            return
        queued = self._tracker.queued(record.first)
        if queued is not None and found is not None:
            self._unfold(queued, found, now_ms)
            return
        if queued is not None:
            # Only a pending record can fail, so the retry is begun first. It was never delivered:
            # `counts` False keeps its number of attempts.
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
            self._letters.add(record.first)
            self.letter_bytes += found.payload_bytes

    def _drop_payload(self, sequence: SequenceNumber) -> None:
        run = self._runs.pop(sequence, None)
        if run is None:
            return
        self.held_bytes -= run.payload_bytes
        if sequence in self._letters:
            self._letters.discard(sequence)
            self.letter_bytes -= run.payload_bytes

    def _unfold(self, queued: UnresolvedRecord, found: RecordRun, now_ms: int) -> None:
        """Replace a queued range by its records, each with the range's attempts. They are due at
        once.
        """
        numbers = found.sequences
        if queued.count > 1:
            # The tracker splits a pending range only; records that were not found count as acked.
            emission = self._tracker.retry(queued.first)
            records = [replace(queued, first=one, last=one, count=1) for one in numbers]
            if numbers[0] != queued.first:
                records.insert(0, _letter_of_gone(queued, len(numbers)))
                self._gone.add(queued.first)
            self._tracker.ack_except(queued.first, emission.attempt, records)
        for at, sequence in enumerate(numbers):
            self.hold(sequence, found.single(at))
            self._tracker.postpone(sequence, now_ms)


def _letter_of_gone(queued: UnresolvedRecord, found: int) -> UnresolvedRecord:
    """The first record of a range, to be dead-lettered for all those of the range that are gone."""
    missing = missing_records(queued.count, found, has_first=False)
    what = f"{missing} of {queued.count} records up to {queued.last} were {GONE}"
    return replace(queued, last=queued.first, count=1, rejected=True, reason=what)
