"""Records of one shard that are emitted one after the other, for the first time each: which are
pending, and which are acked.

Most records are acked soon after they were emitted, and about in order. As long as nothing else
happens, a byte of bookkeeping per record is enough; the tracker gets one node for a whole stretch
of acked records (`TrackedShard`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator

PENDING = 0
ACKED = 1


class RecordRun:
    """The first `emitted` of the records were handed over; `unacked` are all that were not acked,
    emitted or not.

    Not safe from several threads at a time.

    The lists are parallel: sequence numbers as texts, partition keys, payloads, arrival times (ms
    since 1970), and, where emissions time out, the deadline of each one that was emitted (ms),
    which never goes back. The first `granted` may be handed over without a look at anything else.
    `registered`: the tracker knows the records, so their outcomes go there.
    """

    __slots__ = (
        "_first_open",
        "arrivals",
        "data",
        "deadlines",
        "emitted",
        "granted",
        "keys",
        "registered",
        "size",
        "states",
        "texts",
        "unacked",
    )

    def __init__(
        self, texts: list[str], keys: list[str], data: list[bytes], arrivals: list[int]
    ) -> None:
        self.texts = texts
        self.data = data
        self.keys = keys
        self.arrivals = arrivals
        self.deadlines: list[int] = []
        self.size = len(texts)
        self.states = bytearray(self.size)
        self.emitted = 0
        self.granted = 0
        self.unacked = self.size
        self.registered = False
        self._first_open = 0

    @property
    def sequences(self) -> list[int]:
        """O(size): most numbers are never asked for."""
        return list(map(int, self.texts))

    def sequence(self, at: int) -> SequenceNumber:
        return SequenceNumber(int(self.texts[at]))

    @property
    def has_acked(self) -> bool:
        return self.unacked < self.size

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.data))

    def cut(self) -> RecordRun:
        """Take what was not emitted yet out, as a run of its own."""
        at = self.emitted
        rest = self.part(at, self.size)
        for column in (self.texts, self.data, self.keys, self.arrivals, self.states):
            del column[at:]
        self.size = at
        self.unacked -= rest.size
        return rest

    def part(self, first: int, end: int) -> RecordRun:
        """Some of the records alone, as if they had not been emitted."""
        some = slice(first, end)
        return RecordRun(self.texts[some], self.keys[some], self.data[some], self.arrivals[some])

    def single(self, index: int) -> RecordRun:
        """One record alone, for when it is kept longer than the others."""
        return self.part(index, index + 1)

    def extend(self, other: RecordRun) -> None:
        """Add the records of another run, not emitted yet."""
        self.texts += other.texts
        self.data += other.data
        self.keys += other.keys
        self.arrivals += other.arrivals
        self.states += bytes(other.size)
        self.size += other.size
        self.unacked += other.size

    def index_of(self, sequence: int) -> int | None:
        """Where a record that was emitted stands."""
        index = bisect_left(self.texts, sequence, key=int)
        return index if index < self.emitted and int(self.texts[index]) == sequence else None

    def oldest_pending(self) -> int | None:
        """The first record that is pending; None when none is. Amortised O(1)."""
        states, emitted = self.states, self.emitted
        at = self._first_open
        while at < emitted and states[at] != PENDING:
            at += 1
        self._first_open = at
        return at if at < emitted else None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of what is pending; None without one."""
        if not self.deadlines:
            return None
        oldest = self.oldest_pending()
        return None if oldest is None else self.deadlines[oldest]

    def stretches(self) -> Iterator[tuple[int, range]]:
        """What was emitted as (PENDING or ACKED, indices), in order: records of one state that
        follow each other.
        """
        states, emitted = self.states, self.emitted
        end = 0
        while end < emitted:
            first, state = end, states[end]
            found = states.find(PENDING if state == ACKED else ACKED, first, emitted)
            end = emitted if found < 0 else found
            yield state, range(first, end)


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One delivery of one record. `index` is the record's in its `run`; `attempt` counts from 1.

    A struct: one is made for every delivery, at the price of a tuple of the same fields.
    """

    run: RecordRun
    index: int
    attempt: int

    @property
    def sequence(self) -> SequenceNumber:
        return self.run.sequence(self.index)

    @property
    def sequence_number(self) -> str:
        return self.run.texts[self.index]

    @property
    def partition_key(self) -> str:
        return self.run.keys[self.index]

    @property
    def arrival_ms(self) -> int:
        return self.run.arrivals[self.index]
