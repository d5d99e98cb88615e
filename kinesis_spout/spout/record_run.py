"""Records of one shard that are emitted in order, for the first time each, with one byte of state
per record.

Most records are acked soon after they were emitted, and roughly in order. For these a byte is
enough. The in-flight tracker gets one node for a whole stretch of acked records (see
`kinesis_spout.spout.tracked_shard`). `PageRuns` cuts a shard's buffered pages into runs. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from math import floor
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from kinesis_spout.service.get_records_decoder import NO_LISTS
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.reading.expiry import ExpiryDetector
    from kinesis_spout.reading.page import Page

PENDING = 0
ACKED = 1
RUN_RECORDS = 1_000
# In place of a payload that nobody asks for again. Not of the type of a payload: to use it is an
# error, and never an empty record.
RELEASED: Any = None


class RecordRun:
    """Consecutive records of a shard: the first `emitted` of them were emitted, `unacked` of them
    all were not acked.

    The lists are parallel: sequence numbers as text (`texts`; `<sequence>.<sub>` for a user record
    of an aggregate but its first), partition keys, payloads, arrival times in ms since 1970.
    `rest`: the last record is followed by this user record of the same aggregate, in the next run;
    None where its Kinesis record is complete. `deadlines` has one entry in ms per emitted record,
    ascending, or none where records do not time out. The first `granted` records may be emitted
    without any further check. `registered` means that the tracker knows the records, and their
    outcomes go there.

    Emissions keep their run alive, so it lets go of payloads early: of a record once it is acked,
    and of all when it is registered. An emission has its payload itself.

    Not thread-safe.
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
        "rest",
        "size",
        "states",
        "texts",
        "unacked",
    )

    def __init__(
        self, texts: list[str], keys: list[str | None], data: list[bytes], arrivals: list[int]
    ) -> None:
        self.texts = texts
        self.data = data
        self.keys = keys
        self.arrivals = arrivals
        self.deadlines: list[float] = []
        self.size = len(texts)
        self.states = bytearray(self.size)
        self.emitted = 0
        self.granted = 0
        self.unacked = self.size
        self.registered = False
        self.rest: SequenceNumber | None = None
        self._first_open = 0

    @property
    def sequences(self) -> list[SequenceNumber]:
        """The sequence numbers. O(size): computed at each call, as most are never needed."""
        return list(map(_number, self.texts))

    def sequence(self, index: int) -> SequenceNumber:
        return _number(self.texts[index])

    @property
    def has_acked(self) -> bool:
        return self.unacked < self.size

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.data))

    def register(self) -> None:
        """The tracker knows the records, and the payloads of pending ones are held elsewhere."""
        self.registered = True
        self.data = []

    def cut(self) -> RecordRun:
        """Move the records that were not emitted yet into a new run, and return it."""
        emitted = self.emitted
        rest = self.part(emitted, self.size)
        rest.rest, self.rest = self.rest, None
        if emitted and rest.size:
            self.rest = _rest(self.texts[emitted - 1], rest.texts[0])
        for column in (self.texts, self.data, self.keys, self.arrivals, self.states):
            del column[emitted:]
        self.size = emitted
        self.unacked -= rest.size
        return rest

    def part(self, first: int, end: int) -> RecordRun:
        """A new run of some of the records, not emitted."""
        some = slice(first, end)
        return RecordRun(self.texts[some], self.keys[some], self.data[some], self.arrivals[some])

    def single(self, index: int) -> RecordRun:
        """A new run of one record, so that keeping it does not keep the others in memory."""
        return self.part(index, index + 1)

    def extend(self, other: RecordRun) -> None:
        """Append the records of another run that were not emitted."""
        self.texts += other.texts
        self.data += other.data
        self.keys += other.keys
        self.arrivals += other.arrivals
        self.states += bytes(other.size)
        self.size += other.size
        self.unacked += other.size

    def index_of(self, sequence: SequenceNumber) -> int | None:
        """The index of an emitted record; None when it is not in this run."""
        index = bisect_left(self.texts, sequence, key=_number)
        return index if index < self.emitted and self.sequence(index) == sequence else None

    def oldest_pending(self) -> int | None:
        """The index of the first pending record; None without one. Amortised O(1)."""
        states, emitted = self.states, self.emitted
        index = self._first_open
        while index < emitted and states[index] != PENDING:
            index += 1
        self._first_open = index  # an acked record never becomes pending again
        return index if index < emitted else None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of a pending record; None without one."""
        if not self.deadlines:
            return None
        oldest = self.oldest_pending()
        return None if oldest is None else floor(self.deadlines[oldest])

    def stretches(self) -> Iterator[tuple[int, range]]:
        """The emitted records as stretches of one state (PENDING or ACKED) with their indices, in
        order.
        """
        states, emitted = self.states, self.emitted
        end = 0
        while end < emitted:
            first, state = end, states[end]
            found = states.find(PENDING if state == ACKED else ACKED, first, emitted)
            end = emitted if found < 0 else found
            yield state, range(first, end)


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One delivery of one record: `index` is the record's position in `run`, `attempt` counts from
    1.

    A struct and not a named tuple: one is made per delivery, and a struct costs what a plain tuple
    does.
    """

    run: RecordRun
    index: int
    attempt: int

    @property
    def sequence(self) -> SequenceNumber:
        return self.run.sequence(self.index)

    @property
    def number(self) -> str:
        """The sequence number with the sub-sequence number, as a message id has them."""
        return self.run.texts[self.index]

    @property
    def sequence_number(self) -> str:
        """Of the Kinesis record."""
        return self.run.texts[self.index].partition(".")[0]

    @property
    def sub_sequence_number(self) -> int:
        """Of a user record in its aggregate, from 0; 0 for any other record."""
        return int(self.run.texts[self.index].partition(".")[2] or 0)


class PageSource(Protocol):
    """A buffer of pages in the shard's order, which another thread fills. `drop` removes `page` if
    it is still the first.
    """

    def first(self) -> Page | None: ...

    def drop(self, page: Page) -> None: ...


class PageRuns:
    """The runs of a shard. `last_page` is the newest page whose records were all taken, without
    them; it was dropped from `source`. `source` None: there are no pages.

    `lapse` inspects each page. Behind records that may have expired unread none is taken, until the
    loss is acknowledged.
    """

    def __init__(self, source: PageSource | None, lapse: ExpiryDetector) -> None:
        self.last_page: Page | None = None
        self.lapse = lapse
        self._source = source
        self._page: Page | None = None
        self._records = NO_LISTS  # of the current page
        self._taken = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all records up to the shard's end were taken."""
        return self.last_page is not None and self.last_page.ended

    @property
    def tip_ms(self) -> int | None:
        """The service's time when the shard was at its tip or its end, if all records up to there
        were taken; else None.
        """
        page = self.last_page
        if page is None or self._page is not None or not (page.at_tip or page.ended):
            return None
        return page.service_time_ms

    @property
    def has_more(self) -> bool:
        """Whether there are records in the buffer. Those of the last run may be among them."""
        page = None if self._source is None else self._source.first()
        return page is not None and page.count > 0

    def next_run(self) -> RecordRun | None:
        """The next records, at most 1,000, skipping empty pages. None when there are none now."""
        while self.lapse.lapsed_ms is None and self._taken >= len(self._records.numbers):
            if not self._turn_page():
                return None
        if self.lapse.lapsed_ms is not None:
            return None
        run = RecordRun(*self._records.part(self._taken, self._taken + RUN_RECORDS))
        self._taken += run.size
        if self._taken < len(self._records.numbers):
            run.rest = _rest(run.texts[-1], self._records.numbers[self._taken])
        return run

    def _turn_page(self) -> bool:
        """Drop the page that was taken and go on to the next. False when there is none."""
        if self._source is None:
            return False
        if self._page is not None:
            self._source.drop(self._page)
            self.last_page = self._page.without_records()
        self._page = self._source.first()
        self._records = NO_LISTS if self._page is None else self._page.columns.lists()
        self._taken = 0
        if self._page is not None:
            self.lapse.note(self._page)
        return self._page is not None


def _number(text: str) -> SequenceNumber:
    sequence, _, sub = text.partition(".")
    return SequenceNumber(int(sequence), int(sub) if sub else 0)


def _rest(last: str, following: str) -> SequenceNumber | None:
    """The number of the record that follows, if it is of the same Kinesis record as `last`."""
    number = _number(following) if "." in following else None
    return number if number is not None and number.shares_record(_number(last)) else None
