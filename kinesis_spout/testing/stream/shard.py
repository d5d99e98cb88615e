"""One shard: its records in order of sequence number, its life time and its lineage."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.testing.stream.sequence_number import COUNTER_END, SequenceParts
from kinesis_spout.testing.stream.shard_limits import ReadLimits, WriteLimits

if TYPE_CHECKING:
    from kinesis_spout.testing.stream.hash_keys import HashKeyRange


class StoredRecord(NamedTuple):
    sequence: int
    arrival_ms: int
    partition_key: str | None
    data: bytes

    @property
    def size_bytes(self) -> int:
        return size_of(self.data, self.partition_key)


def size_of(data: bytes, partition_key: str | None) -> int:
    """The size of a record that counts towards every limit: data plus partition key."""
    return len(data) + len((partition_key or "").encode())


class Shard:
    """A shard of a stream.

    `created_s` is the first field of its sequence numbers, so a child's must be above its parents'.
    Other times are in ms since 1970.
    """

    def __init__(
        self,
        *,
        index: int,
        hash_keys: HashKeyRange,
        parents: tuple[str, ...],
        created_s: int,
        opened_ms: int,
    ) -> None:
        self.shard_id = f"shardId-{index:012d}"
        self.index = index
        self.hash_keys = hash_keys
        self.parents = parents
        self.children: list[str] = []
        self.created_s = created_s
        self.opened_ms = opened_ms
        self.closed_ms: int | None = None
        self.reads = ReadLimits()
        self.writes = WriteLimits()
        self.empty_runs: dict[int, int] = {}
        self._records: list[StoredRecord] = []
        self._last_sequence = self.starting_sequence

    @property
    def starting_sequence(self) -> int:
        return SequenceParts(self.created_s, self.index, 0, self.created_s).number()

    @property
    def ending_sequence(self) -> int | None:
        """The EndingSequenceNumber of a closed shard, None while it is open.

        It is above the number of every record and belongs to none, as the service's.
        """
        if self.closed_ms is None:
            return None
        return SequenceParts(
            self.created_s, self.index, COUNTER_END, self.closed_ms // 1000
        ).number()

    @property
    def is_open(self) -> bool:
        return self.closed_ms is None

    @property
    def tip(self) -> int:
        """The position after the newest record, below every sequence number still to come."""
        return self._last_sequence + 1

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """All records within the retention period, oldest first."""
        return tuple(self._records)

    def append(
        self, *, counter: int, arrival_ms: int, put_ms: int, partition_key: str | None, data: bytes
    ) -> StoredRecord:
        """Append a record. Its sequence number is made of `counter` and `put_ms`."""
        sequence = SequenceParts(self.created_s, self.index, counter, put_ms // 1000).number()
        record = StoredRecord(sequence, arrival_ms, partition_key, data)
        self._records.append(record)
        self._last_sequence = sequence
        return record

    def trim(self, horizon_ms: int) -> None:
        """Drop the oldest records, up to the first that arrived at `horizon_ms` or later."""
        gone = 0
        while gone < len(self._records) and self._records[gone].arrival_ms < horizon_ms:
            gone += 1
        del self._records[:gone]

    def position_of_time(self, timestamp_ms: int) -> int:
        """The sequence number of the first record that arrived then or later, else the tip."""
        later = (record for record in self._records if record.arrival_ms >= timestamp_ms)
        return next((record.sequence for record in later), self.tip)

    def empty_run(self, position: int, *, had: int) -> int | None:
        """The position of the next run of empty pages that a reader at `position` has not had yet,
        or None. `had`: how many pages of a run it has had there.

        A run at the tip starts when a record follows it or the shard is closed.
        """
        for boundary, pages in sorted(self.empty_runs.items()):
            done = boundary < position or (boundary == position and had >= pages)
            if not done and (self.first_from(boundary) is not None or not self.is_open):
                return boundary
        return None

    def first_from(self, position: int) -> StoredRecord | None:
        """The first record whose sequence number is `position` or above."""
        at = self._index_of(position)
        return self._records[at] if at < len(self._records) else None

    def last_before(self, position: int) -> int:
        """The greatest number below `position` that a read can continue after.

        It is a record's number, or the shard's starting sequence number.
        """
        if position > self._last_sequence:
            return self._last_sequence
        at = self._index_of(position)
        return self._records[at - 1].sequence if at else self.starting_sequence

    def page(
        self, position: int, *, before: int | None, max_records: int, max_bytes: int
    ) -> list[StoredRecord]:
        """Records from `position` on (and below `before`), within the limits.

        The first record is always included, however large it is.
        """
        start = self._index_of(position)
        end = len(self._records) if before is None else self._index_of(before)
        page = self._records[start : min(end, start + max_records)]
        size_bytes = 0
        for at, record in enumerate(page):
            size_bytes += record.size_bytes
            if size_bytes > max_bytes and at:
                return page[:at]
        return page

    def _index_of(self, position: int) -> int:
        return bisect_left(self._records, position, key=lambda record: record.sequence)
