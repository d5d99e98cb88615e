"""One shard of the standalone spout: its records from the buffer to their outcomes, and the
payloads that are kept for retries. Pure: times are arguments, in ms since 1970.

New records are emitted in runs, which `PageRuns` cuts from the buffered pages. Most records are
acked soon after their emission and roughly in order. For these records one byte of state each is
enough, and an ack costs almost nothing. A run is registered with the tracker only if necessary:
when all of its records are acked and no earlier record is pending, when one of its records fails or
times out, or when the shard's state is stored. Runs are registered in their order, with each
stretch of acked records as one node. So the tracker has all records in the shard's order.

The `RetryBuffer` has the payloads of the records that the tracker knows one by one: of all pending
records, and of queued and exhausted records as far as there is room. A payload is missing after a
restart, or for lack of room. Its record is then `wanted`: the retry fetcher reads the record again
and calls `restock`. The payloads of dead letters get at most half of the room, so that a sink that
is down does not stop the retries.

An isolated delivery is announced before the program gets it: the shard's state then contains it as
a failed attempt, until it has an outcome. See `kinesis_spout.spout.rotation`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from kinesis_spout.reading.page import ExpiryDetector
from state.plan import missing_records
from state.sequence_number import SequenceNumber
from state.shard_state import as_whole, verified_by_first_read
from state.tracker.inflight_record_tracker import UNANSWERED, InflightRecordTracker
from state.tracker.transitions import Effect, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from kinesis_spout.reading.page import Page
    from state.position import Position
    from state.retry_policy import RetryPolicy
    from state.shard_state import ShardState, UnresolvedRecord

PENDING = 0
ACKED = 1
WAITING = NodeState.QUEUED, NodeState.EXHAUSTED
RUN_RECORDS = 1_000
RETRIES_IN_A_ROW = 4  # then a new record goes out, so that retries do not starve new records
LOOK_AGAIN_MS = 1_000  # a due retry is postponed by this while its record is read again
GONE = "past the stream's retention before it could be retried"
# Replaces a payload that is not needed any more. It is no bytes object, so that using it by mistake
# is an error instead of an empty record.
RELEASED: Any = None


@dataclass(slots=True, eq=False, repr=False)
class RecordRun:
    """Consecutive records of a shard. The first `emitted` records were emitted; `unacked` records
    of the run are not acked.

    - `texts`, `keys`, `data`, `arrivals`: parallel lists of sequence numbers (`<sequence>.<sub>`
      for all user records of an aggregate except the first), partition keys, payloads, and arrival
      times in ms since 1970.
    - `rest`: the user record of the same aggregate that follows the last record, in the next run;
      None if the last record completes its Kinesis record.
    - `deadlines`: one deadline in ms per emitted record, ascending; empty if records do not time
      out.
    - `granted`: so many records may be emitted without further checks.
    - `registered`: the tracker has the records and receives their outcomes.

    Emissions keep their run alive, so the run releases payloads early: a record's payload once the
    record is acked, and all payloads once the run is registered. An emission has its own reference
    to its payload.

    Not thread-safe.
    """

    texts: list[str]
    keys: list[str | None]
    data: list[bytes]
    arrivals: list[int]
    deadlines: list[float] = field(default_factory=list)
    size: int = field(init=False)
    states: bytearray = field(init=False)
    emitted: int = 0
    granted: int = 0
    unacked: int = field(init=False)
    registered: bool = False
    rest: SequenceNumber | None = None
    _first_open: int = 0

    def __post_init__(self) -> None:
        self.size = self.unacked = len(self.texts)
        self.states = bytearray(self.size)

    @property
    def sequences(self) -> list[SequenceNumber]:
        """The sequence numbers, parsed at each call because few are ever needed. O(size)."""
        return list(map(_number, self.texts))

    def sequence(self, index: int) -> SequenceNumber:
        return _number(self.texts[index])

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.data))

    def cut(self) -> RecordRun:
        """Move the records that are not emitted yet into a new run, and return that run."""
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
        """Return a new, unemitted run of some records. It does not keep other records in memory."""
        some = slice(first, end)
        return RecordRun(self.texts[some], self.keys[some], self.data[some], self.arrivals[some])

    def oldest_pending(self) -> int | None:
        """Return the index of the first pending record, or None. Amortised O(1)."""
        states, emitted = self.states, self.emitted
        index = self._first_open
        while index < emitted and states[index] != PENDING:
            index += 1
        self._first_open = index  # an acked record never becomes pending again
        return index if index < emitted else None

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a pending record, or None."""
        oldest = self.oldest_pending() if self.deadlines else None
        return None if oldest is None else floor(self.deadlines[oldest])

    def stretches(self) -> Iterator[tuple[int, range]]:
        """Yield stretches of emitted records in one state (PENDING or ACKED), with their indices,
        in order.
        """
        states, emitted = self.states, self.emitted
        end = 0
        while end < emitted:
            first, state = end, states[end]
            found = states.find(PENDING if state == ACKED else ACKED, first, emitted)
            end = emitted if found < 0 else found
            yield state, range(first, end)


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """One delivery of one record. `index`: the record's index in `run`. `attempt` counts from 1.
    `data`: the payload, which the run may release before the delivery has an outcome.

    It is a struct rather than a named tuple because one is made for each delivery, and a struct is
    as cheap as a plain tuple.
    """

    run: RecordRun
    index: int
    attempt: int
    data: bytes

    @property
    def sequence(self) -> SequenceNumber:
        return self.run.sequence(self.index)

    @property
    def number(self) -> str:
        """The sequence number and sub-sequence number, in the form of a message id."""
        return self.run.texts[self.index]

    @property
    def sequence_number(self) -> str:
        """The sequence number of the Kinesis record."""
        return self.run.texts[self.index].partition(".")[0]

    @property
    def sub_sequence_number(self) -> int:
        """The number of a user record in its aggregate, from 0; 0 for any other record."""
        return int(self.run.texts[self.index].partition(".")[2] or 0)


class PageSource(Protocol):
    """A buffer of pages in the shard's order, filled by another thread. `drop` removes `page` if it
    is still the first page.
    """

    def first(self) -> Page | None: ...

    def drop(self, page: Page) -> object: ...


class PageRuns:
    """Cuts a shard's pages into runs.

    - `source`: the pages; None if there are none.
    - `last_page`: the newest page whose records are all taken, without its records.
    - `lapse`: inspects each page. If records may have expired unread before a page, no record is
      taken until the loss is acknowledged.
    """

    def __init__(self, source: PageSource | None, lapse: ExpiryDetector) -> None:
        self.last_page: Page | None = None
        self.lapse = lapse
        self._source = source
        self._page: Page | None = None
        self._taken = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all records up to the shard's end are taken."""
        return self.last_page is not None and self.last_page.ended

    @property
    def tip_ms(self) -> int | None:
        """The service's time when the shard was at its tip or its end; None unless all records up
        to there are taken.
        """
        page = self.last_page
        if page is None or self._page is not None or not (page.at_tip or page.ended):
            return None
        return page.service_time_ms

    @property
    def has_more(self) -> bool:
        """Whether the buffer has records, perhaps including those of the last run."""
        page = None if self._source is None else self._source.first()
        return page is not None and page.count > 0

    def next_run(self) -> RecordRun | None:
        """Return a run of the next records, at most 1,000; None if there are none now. Empty pages
        are skipped.
        """
        while self.lapse.lapsed_ms is None and (
            self._page is None or self._taken >= self._page.count
        ):
            if self._source is None:
                return None
            if self._page is not None:
                self._source.drop(self._page)
                self.last_page = self._page.without_records()
            self._page, self._taken = self._source.first(), 0
            if self._page is None:
                return None
            self.lapse.note(self._page)
        page, first = self._page, self._taken
        if page is None or self.lapse.lapsed_ms is not None:
            return None
        self._taken = min(page.count, first + RUN_RECORDS)
        run = RecordRun(*page.columns.part(first, self._taken).lists())
        if self._taken < page.count:
            run.rest = _rest(run.texts[-1], page.columns.number_at(self._taken))
        return run


class RetryBuffer:
    """The payloads of records that wait for a retry or for their dead letter.

    `runs`: by the sequence number of a record, or of the first record of a range. An empty run
    means that the records have expired. `held_bytes`: the size of all payloads. `letter_bytes`: the
    size of the payloads of exhausted records.
    """

    def __init__(self, tracker: InflightRecordTracker) -> None:
        self.held_bytes = 0
        self.letter_bytes = 0
        self.runs: dict[SequenceNumber, RecordRun] = {}
        self._tracker = tracker
        self._missing: set[SequenceNumber] = set()  # due retries without a payload in `runs`
        self._letters: set[SequenceNumber] = set()  # what is exhausted and has a payload in `runs`
        self._refusals: dict[SequenceNumber, int] = {}  # by exhausted record: the sink's refusals

    def hold(self, sequence: SequenceNumber, run: RecordRun, *, is_letter: bool = False) -> None:
        """Keep the payload of a record that the tracker has, or the payloads that are left of a
        range.
        """
        self._drop_payload(sequence)
        run.registered = True
        self.runs[sequence] = run
        self.held_bytes += run.payload_bytes
        if is_letter:
            self._letters.add(sequence)
            self.letter_bytes += run.payload_bytes

    def drop(self, sequence: SequenceNumber) -> None:
        """Forget a record, because it is resolved or there is no room. A no-op for an unknown
        record.
        """
        self._drop_payload(sequence)
        self._refusals.pop(sequence, None)

    def fit(self, sequence: SequenceNumber, max_bytes: int) -> None:
        """Keep the payload of a record that is no longer pending only if all payloads fit into
        `max_bytes`, and those of exhausted records into half of that.
        """
        is_letter = self._tracker.failed(sequence, NodeState.QUEUED) is None
        if is_letter:
            self.hold(sequence, self.runs[sequence], is_letter=True)
        if self.held_bytes > max_bytes or (is_letter and self.letter_bytes > max_bytes // 2):
            self.drop(sequence)

    def refuse(self, sequence: SequenceNumber, *, drop: bool) -> None:
        """Note that the sink refused the letter of an exhausted record. With `drop`, its payload is
        dropped to make room. It is read again after the payloads of records that were refused less
        often.
        """
        if sequence in self.runs:
            self._refusals[sequence] = self._refusals.get(sequence, 0) + 1
            if drop:
                self._drop_payload(sequence)

    @property
    def lacks_letter(self) -> bool:
        """Whether an exhausted record or range waits for its payload."""
        return self._tracker.letters > len(self._letters)

    def due_retry(self, now_ms: int) -> SequenceNumber | None:
        """Return the next due retry whose payload is in memory.

        Due retries without a payload are postponed, so that they do not block other retries.
        """
        while True:
            for aged in self._tracker.exhaust_aged(now_ms):
                if aged in self.runs:  # it waits for its letter now
                    self.hold(aged, self.runs[aged], is_letter=True)
            sequence = self._tracker.due_retry(now_ms)
            if sequence is None or sequence in self.runs:
                return sequence
            self._missing.add(sequence)
            self._tracker.postpone(sequence, now_ms + LOOK_AGAIN_MS)

    def letters(self) -> list[UnresolvedRecord]:
        """Return the exhausted records whose payload is in memory or has expired."""
        return [record for record in self._tracker.exhausted if record.first in self.runs]

    def wanted(self, now_ms: int) -> list[UnresolvedRecord]:
        """Return the queued records to read again, in order: due records without a payload."""
        self.due_retry(now_ms)
        missing, self._missing = sorted(self._missing - self.runs.keys()), set()
        queued = (self._tracker.failed(one, NodeState.QUEUED) for one in missing)
        return [record for record in queued if record is not None]

    def wanted_letters(self) -> list[UnresolvedRecord]:
        """Return the exhausted records to read again, in order. Of the records without a payload,
        these are the ones that were refused least often.
        """
        if not self.lacks_letter:
            return []
        lacking = [record for record in self._tracker.exhausted if record.first not in self.runs]
        fewest = min((self._refusals.get(one.first, 0) for one in lacking), default=0)
        return sorted(
            (one for one in lacking if self._refusals.get(one.first, 0) == fewest),
            key=lambda record: record.first,
        )

    def restock(self, record: UnresolvedRecord, found: RecordRun, now_ms: int) -> None:
        """Keep the payload of a wanted record, or the payloads that are left of a range. `found` is
        empty if all of them have expired.

        A no-op if the payload is in memory already, or if the record is not wanted any more.
        """
        if record.first in self.runs:
            return
        queued = self._tracker.failed(record.first, NodeState.QUEUED)
        if queued is not None and found.size:
            self._unfold(queued, found, now_ms)
            return
        if queued is not None:
            # Only a pending record can fail, so begin the retry first. The record is not delivered,
            # so `counts=False` keeps its number of attempts.
            attempt = self._tracker.retry(record.first)
            self._tracker.fail(
                record.first, attempt, now_ms, reason=GONE, retry=False, counts=False
            )
        # Neither queued nor exhausted after a late ack.
        if self._tracker.failed(record.first, *WAITING) is not None:
            self.hold(record.first, found, is_letter=True)

    def _drop_payload(self, sequence: SequenceNumber) -> None:
        run = self.runs.pop(sequence, None)
        if run is None:
            return
        self.held_bytes -= run.payload_bytes
        if sequence in self._letters:
            self._letters.discard(sequence)
            self.letter_bytes -= run.payload_bytes

    def _unfold(self, queued: UnresolvedRecord, found: RecordRun, now_ms: int) -> None:
        """Replace a queued range by its records. Each has the range's attempts and is due at
        once.
        """
        numbers = found.sequences
        if queued.count > 1:
            # The tracker only splits a pending range. Records that were not found count as acked.
            self._tracker.retry(queued.first)
            records = [replace(queued, first=one, last=one, count=1) for one in numbers]
            if numbers[0] != queued.first:
                # One dead letter stands for all expired records of the range.
                missing = missing_records(queued.count, len(numbers), has_first=False)
                what = (
                    f"{missing} of {queued.count} records up to {queued.last} were past the "
                    "stream's retention before they could be retried"
                )
                gone = replace(queued, last=queued.first, count=1, rejected=True, reason=what)
                records.insert(0, gone)
                self.hold(queued.first, found.part(0, 0), is_letter=True)
            self._tracker.ack_except(queued.first, records)
        for at, sequence in enumerate(numbers):
            self.hold(sequence, found.part(at, at + 1))
            self._tracker.postpone(sequence, now_ms)


class RestoredRecords:
    """The records of a shard that earlier processes left without an outcome, as long as they have
    had none in this process. `last`: the greatest of their sequence numbers, or None.
    """

    def __init__(
        self, tracker: InflightRecordTracker, unresolved: Sequence[UnresolvedRecord]
    ) -> None:
        self.last = max((record.last for record in unresolved), default=None)
        self._tracker = tracker
        self._left = list(unresolved)

    @property
    def has_unanswered(self) -> bool:
        """Whether a record is left that a process announced before the process ended."""
        return any(record.reason == UNANSWERED for record in self._unresolved())

    def has_any(self, now_ms: int) -> bool:
        """Whether a record is left that was due by `now_ms`. It may have been in flight when its
        process ended.
        """
        return any(record.due_ms <= now_ms for record in self._unresolved())

    def _unresolved(self) -> list[UnresolvedRecord]:
        states = NodeState.QUEUED, NodeState.PENDING
        failed = self._tracker.failed
        self._left = [one for one in self._left if failed(one.first, *states) is one]
        return self._left


class TrackedShard:
    """The records of one shard. Not thread-safe: the caller holds the spout's lock.

    - `pages`: None if the shard was read to its end before, so that only unresolved records are
      left.
    - `whole`: aggregates are not unpacked. The state marks the unresolved records that were
      delivered here accordingly.
    - `retention_ms`: the stream's retention. Without it, expired records are not detected.
    """

    def __init__(
        self,
        state: ShardState,
        *,
        retry_policy: RetryPolicy,
        random: Random,
        pages: PageSource | None,
        whole: bool = False,
        retention_ms: int | None = None,
    ) -> None:
        self._whole = whole
        self.tracker = InflightRecordTracker(state, retry_policy=retry_policy, random=random)
        self.shard_id = state.shard_id
        self.held = RetryBuffer(self.tracker)
        lapse = ExpiryDetector(state.verified_until_ms, retention_ms, state.read_position)
        self.pages = PageRuns(pages, lapse)
        self._runs: deque[RecordRun] = deque()  # the runs that are not registered yet
        self._unacked = 0  # the records of these runs that are not acked, emitted or not
        self.open_run: RecordRun | None = None  # the last of these runs, while it can emit
        self._retries_in_a_row = 0
        self._verified_ms = state.verified_until_ms
        self._first_read_from: Position | None = state.read_position  # None after the first record
        self._announced: SequenceNumber | None = None  # an announced record in its first delivery
        self.restored = RestoredRecords(self.tracker, state.unresolved)

    # observations ---------------------------------------------------------------------------------
    @property
    def ended(self) -> bool:
        """Whether the shard was read to its end and every record has had an outcome, so that its
        children may be read.
        """
        return self.tracker.read_position.is_end

    @property
    def pending(self) -> int:
        """The number of delivered records without an outcome."""
        not_emitted = 0 if self.open_run is None else self.open_run.size - self.open_run.emitted
        return self.tracker.count(NodeState.PENDING) + self._unacked - not_emitted

    @property
    def waiting(self) -> int:
        """The number of records that are queued for a retry or exhausted."""
        return self.tracker.count(NodeState.QUEUED) + self.tracker.count(NodeState.EXHAUSTED)

    @property
    def unresolved(self) -> int:
        """The number of records that are pending, queued for a retry, or exhausted."""
        return self.pending + self.waiting

    @property
    def has_unresolved(self) -> bool:
        """Whether a fetched record, emitted or not, has no outcome yet."""
        return self.unresolved > 0 or self.open_run is not None or self.pages.has_more

    def next_deadline_ms(self) -> int | None:
        """Return when the next delivery times out; None if none can time out. O(runs)."""
        times = [run.next_deadline_ms() for run in self._runs]
        return min(
            (ms for ms in [*times, self.tracker.next_deadline_ms] if ms is not None), default=None
        )

    def deadline_ms(self, delivery: Delivery, now_ms: int) -> int | None:
        """Return when a delivery times out: None for never, `now_ms` if it is not pending."""
        run, index = delivery.run, delivery.index
        if run.registered:
            is_pending = self.tracker.is_pending(delivery.sequence, delivery.attempt)
            return self.tracker.deadline_ms(delivery.sequence) if is_pending else now_ms
        if run.states[index] == ACKED:
            return now_ms
        return floor(run.deadlines[index]) if run.deadlines else None

    @property
    def oldest_pending(self) -> SequenceNumber | None:
        """The sequence number of the first delivered record without an outcome, or None. O(runs +
        nodes of the tracker).
        """
        in_tracker = self.tracker.oldest_pending
        if in_tracker is not None:
            return in_tracker  # all records of the runs come after those of the tracker
        found = ((run, run.oldest_pending()) for run in self._runs)
        return next((run.sequence(index) for run, index in found if index is not None), None)

    @property
    def newest_emitted(self) -> SequenceNumber | None:
        """The greatest sequence number delivered so far, or an upper bound; None before the first
        delivery.
        """
        emitted = (run.sequence(run.emitted - 1) for run in reversed(self._runs) if run.emitted)
        return next(emitted, self.tracker.last_read)

    # isolated deliveries --------------------------------------------------------------------------
    def announce(self, delivery: Delivery, now_ms: int) -> None:
        """Record this new delivery as a failed attempt in the state until it has an outcome. Its
        deadline is removed, because its time only starts when the program gets the delivery.
        """
        self._register(delivery)
        self.tracker.announce(delivery.sequence, now_ms)
        self.tracker.extend(delivery.sequence, delivery.attempt, None)
        self._announced = delivery.sequence if delivery.attempt == 1 else None

    # emitting -------------------------------------------------------------------------------------
    def emit(self, now_ms: int, deadline_ms: int | None, *, new: bool) -> Delivery | None:
        """Return the next delivery, or None. Due retries come first, but after four retries in a
        row comes a new record, if `new` allows that.
        """
        run = self.open_run if new else None
        is_new_first = run is not None and self._retries_in_a_row >= RETRIES_IN_A_ROW
        if self.waiting and not is_new_first:
            sequence = self.held.due_retry(now_ms)
            if sequence is not None:
                attempt = self.tracker.retry(sequence, deadline_ms=deadline_ms)
                self._retries_in_a_row += 1
                return self._again(sequence, attempt)
        self._retries_in_a_row = 0
        if run is None:
            return None
        index = run.emitted
        delivery = Delivery(run, index, 1, run.data[index])
        run.emitted = index + 1
        if deadline_ms is not None:
            run.deadlines.append(deadline_ms)
        if run.emitted == run.size:
            self.open_run = None
            self.refill()
        return delivery

    def grant(self, max_unresolved: int) -> None:
        """Let new records of the open run be emitted without further checks, until `max_unresolved`
        records are unresolved. The run's last record is not granted, because the next run is opened
        after it.

        No record is granted while a retry waits or right after a retry, because then each new
        record has to be weighed against the retries.
        """
        if self.open_run is not None and not self.waiting and not self._retries_in_a_row:
            self.open_run.granted = min(
                self.open_run.size - 1, self.open_run.emitted + max_unresolved - self.pending
            )

    def withdraw_grant(self) -> None:
        """Let each record be checked again, because it may have to wait: for a retry that is due,
        for the end of a pause, or for its isolated delivery.
        """
        if self.open_run is not None:
            self.open_run.granted = 0

    def refill(self) -> None:
        """Open the next run if none is open. Empty pages are skipped. Call it when a page may have
        arrived.
        """
        if self.open_run is not None:
            return
        self.open_run = run = self.pages.next_run()
        if run is not None:
            begun, self._first_read_from = self._first_read_from, None
            if begun is not None and self._verified_ms is not None:
                first_ms = run.arrivals[0]
                self._verified_ms = verified_by_first_read(self._verified_ms, begun, first_ms)
            self._unacked += run.size
            self._runs.append(run)
        elif self.pages.is_at_end:
            # At the shard's end all runs are registered, because only the tracker can tell
            # `snapshot` whether a record is still in its first delivery.
            while self._runs:
                self._register_first()

    # outcomes -------------------------------------------------------------------------------------
    def mark_acked(self, delivery: Delivery) -> int | None:
        """Ack a delivery. Returns by how many the pending records have decreased: 1, or 0 if a late
        ack took the record out of the retry queue. Returns None if the ack did not count.
        """
        run = delivery.run
        if run.registered:
            return self.mark_node_acked(delivery.sequence, delivery.attempt)
        states, index = run.states, delivery.index
        if states[index]:
            return None  # already acked
        states[index] = ACKED
        run.data[index] = RELEASED
        self._unacked -= 1
        run.unacked = unacked = run.unacked - 1
        if not unacked:
            while self._runs and not self._runs[0].unacked:
                self._register_first()
        return 1

    def mark_node_acked(self, sequence: SequenceNumber, attempt: int) -> int | None:
        """Ack a record that the tracker has, as `mark_acked`. Its payload need not be in memory."""
        before = self.tracker.count(NodeState.PENDING)
        if self.tracker.ack(sequence, attempt) is not Effect.ACKED:
            return None
        self.held.drop(sequence)
        return before - self.tracker.count(NodeState.PENDING)

    def mark_failed(
        self,
        delivery: Delivery,
        now_ms: int,
        *,
        reason: str | None,
        retry: bool = True,
        max_held_bytes: int,
    ) -> Effect:
        """Fail a delivery. Without `retry`, its record is exhausted at once. Its payload is kept if
        all kept payloads fit into `max_held_bytes`.
        """
        if not self._register(delivery):
            return Effect.UNKNOWN
        sequence = delivery.sequence
        effect = self.tracker.fail(sequence, delivery.attempt, now_ms, reason=reason, retry=retry)
        self.withdraw_grant()
        if effect in {Effect.QUEUED, Effect.EXHAUSTED}:
            self.held.fit(sequence, max_held_bytes)
        return effect

    def expire(self, now_ms: int, *, max_held_bytes: int) -> list[Delivery]:
        """Fail all deliveries whose deadline is `now_ms` or earlier, and return them in the order
        of their deadlines. Their payloads are kept up to `max_held_bytes`.
        """
        due = [
            run for run in self._runs if (ms := run.next_deadline_ms()) is not None and ms <= now_ms
        ]
        if due:
            self._register_through(due[-1])
        expired = self.tracker.expire(now_ms)
        self.withdraw_grant()
        late = [self._again(*emission) for emission in expired]
        # Drop payloads from the latest deadline backwards, until the rest fits.
        for sequence, _ in reversed(expired):
            self.held.fit(sequence, max_held_bytes)
        return late

    def extend(self, delivery: Delivery, deadline_ms: int | None) -> bool:
        """Move the deadline of a pending delivery; None removes it. Returns False if the delivery
        is not pending any more.
        """
        return self._register(delivery) and self.tracker.extend(
            delivery.sequence, delivery.attempt, deadline_ms
        )

    def find(self, sequence: SequenceNumber, attempt: int) -> Delivery | None:
        """Return the delivery that a message id names; None if its payload is not in memory, for
        example because the record is acked.
        """
        for run in self._runs if attempt == 1 else ():
            index = bisect_left(run.texts, sequence, key=_number)
            if index < run.emitted and run.sequence(index) == sequence:
                if run.states[index] == ACKED:
                    return None
                return Delivery(run, index, 1, run.data[index])
        held = self.held.runs.get(sequence)
        return None if held is None or held.size != 1 else self._again(sequence, attempt)

    def begins_range(self, sequence: SequenceNumber) -> bool:
        """Whether the record is the first record of a range that has a common outcome."""
        known = self.tracker.failed(sequence, *WAITING)
        return known is not None and known.count > 1

    def mark_dead_lettered(self, sequence: SequenceNumber) -> Effect:
        """Note that the record's letter was written; the record then counts as acked. Returns
        UNKNOWN if a late ack came first.
        """
        effect = self.tracker.dead_lettered(sequence)
        self.held.drop(sequence)
        return effect

    # the state ------------------------------------------------------------------------------------
    def tip_ms(self) -> int | None:
        """Return the service's time when the shard was at its tip or its end; None unless all
        records up to there are emitted.
        """
        return self.pages.tip_ms if self.open_run is None else None

    def lag_ms(self, service_now_ms: int) -> int | None:
        """Return how far the last emitted record is behind the service's time, in ms of arrival
        time; 0 at the tip, None if unknown.
        """
        if self.tip_ms() is not None:
            return 0
        if self._runs and self._runs[-1].emitted:
            return max(0, service_now_ms - self._runs[-1].arrivals[self._runs[-1].emitted - 1])
        return None if self._verified_ms is None else max(0, service_now_ms - self._verified_ms)

    def snapshot(self) -> ShardState:
        """Return the state to store."""
        # Acks in runs are stored only if the tracker has them. Runs after the last ack need not be
        # registered: after a restart, they are read again from the read position.
        acked = [run for run in self._runs if run.unacked < run.size]
        if acked:
            self._register_through(acked[-1])
        at_tip = not self.pending and self.tip_ms() is not None
        if self.pending:
            found = ((run, run.oldest_pending()) for run in self._runs)
            times = [run.arrivals[index] for run, index in found if index is not None]
            times += [run.arrivals[0] for run in self.held.runs.values() if run.size]
            self._verify(min(times, default=None))
        else:
            self._verify(self.tip_ms())
        state = self.tracker.snapshot()
        all_answered = (
            state.read_position == self.tracker.read_position
            and not any(one.attempts == 0 and not one.rejected for one in state.unresolved)
            # The state counts an attempt of the announced record that has no outcome yet.
            and (self._announced is None or not self.tracker.is_pending(self._announced, 1))
        )
        # The end is stored only when no record is in its first delivery: the children are read as
        # soon as the end is stored, and would overtake that record. Queued retries may be
        # overtaken.
        if self.pages.is_at_end and not self._runs and not self.ended and all_answered:
            self.tracker.reach_end()
            state = self.tracker.snapshot()
        if self._whole:
            # Records that were delivered here are whole. Restored records come before them, and
            # stay as they were delivered.
            at, unresolved = 0, state.unresolved
            if self.restored.last is not None:
                at = bisect_right(unresolved, self.restored.last, key=lambda record: record.last)
            state = replace(state, unresolved=(*unresolved[:at], *as_whole(unresolved[at:])))
        return replace(state, verified_until_ms=self._verified_ms, at_tip=at_tip and not self.ended)

    # private --------------------------------------------------------------------------------------
    def _again(self, sequence: SequenceNumber, attempt: int) -> Delivery:
        """Return a delivery of a record whose payload is held."""
        run = self.held.runs[sequence]
        return Delivery(run, 0, attempt, run.data[0])

    def _verify(self, until_ms: int | None) -> None:
        """Advance the time up to which no record can be missed: the state covers all records that
        arrived by then.
        """
        if until_ms is not None:
            self._verified_ms = max(self._verified_ms or 0, until_ms)

    def _register(self, delivery: Delivery) -> bool:
        """Register a delivery with the tracker. Returns False if it was acked before that."""
        run = delivery.run
        if not run.registered:
            if run.states[delivery.index] == ACKED:
                return False
            self._register_through(run)
        return True

    def _register_through(self, last: RecordRun) -> None:
        while not last.registered:
            run = self._runs[0]
            if run is self.open_run:
                # Only emitted records can be registered. The rest becomes a new open run.
                self.open_run = run.cut()
                self._runs.append(self.open_run)
            self._register_first()

    def _register_first(self) -> None:
        """Register the oldest run with the tracker."""
        # The run is removed last. If an interrupt stops this halfway, the tracker raises at the
        # next attempt for the records that it already has, so no record is lost silently.
        run = self._runs[0]
        for state, indices in run.stretches():
            first, last = run.sequence(indices[0]), run.sequence(indices[-1])
            if state == ACKED:
                self._verify(
                    run.arrivals[indices[-1]] if not self.tracker.count(NodeState.PENDING) else None
                )
                self.tracker.emit_span(first, last, len(indices))
                self.tracker.ack(first, 1)
                continue
            for index in indices:
                sequence = run.sequence(index)
                self.tracker.emit(
                    sequence, deadline_ms=floor(run.deadlines[index]) if run.deadlines else None
                )
                self.held.hold(sequence, run.part(index, index + 1))
        if run.rest is not None:
            self.tracker.leave_rest(run.rest)
        self._unacked -= run.unacked
        run.registered = True
        run.data = []  # the retry buffer has the payloads of pending records
        self._runs.popleft()


def _number(text: str) -> SequenceNumber:
    sequence, _, sub = text.partition(".")
    return SequenceNumber(int(sequence), int(sub) if sub else 0)


def _rest(last: str, following: str) -> SequenceNumber | None:
    """Return the number of the record `following` if it belongs to the same Kinesis record as
    `last`.
    """
    number = _number(following) if "." in following else None
    return number if number is not None and number.shares_record(_number(last)) else None
