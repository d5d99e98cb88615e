"""Random interleavings of a task's attempts over its log: appends that conflict, lost answers,
crashes, cut-offs, and a plan that is closed at any moment.

The attempts follow the rules of `state.task_log`, over the store's real compare-and-set. Records
are numbers. What was handed over is compared with the log, never with what should be in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from state.errors import ConflictError, PlanClosedError
from state.memory_store import MemoryStateStore
from state.plan import Plan, PlannedRetry, ShardReadResult, ShardSlice, TaskPlan, retries_read
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.state.state_stores import OWNER

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAN, TASK = "1-a", 0
SHARDS = ("a", "b")
RETRIES = (1, 2, 3)  # of the first shard; 2 is gone
GONE = 2
MAX_ATTEMPTS = 3
MAX_ROWS = 20  # of the task
INDEX = st.integers(0, MAX_ATTEMPTS - 1)
RARELY = st.integers(0, 7).map(lambda drawn: drawn == 7)


class Row(NamedTuple):
    shard_id: str
    number: int
    is_retry: bool


class Stream:
    """The records that there are, by shard, and the shards that are closed."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {shard: [] for shard in SHARDS}
        self.closed: set[str] = set()
        self._last = 10

    def put(self, shard: str, count: int) -> None:
        for _ in range(count):
            self._last += 2
            self.numbers[shard].append(self._last)

    def rows(self, entries: Sequence[ShardReadResult]) -> list[Row]:
        """What is handed over of these entries: exactly their ranges."""
        return [row for entry in entries for row in self.rows_of(entry)]

    def rows_of(self, entry: ShardReadResult) -> list[Row]:
        retried = [
            Row(entry.shard_id, number, is_retry=True)
            for number in RETRIES[: entry.retries_done]
            if SequenceNumber(number) not in entry.retries_gone
        ]
        new = [
            Row(entry.shard_id, number, is_retry=False)
            for number in self.numbers[entry.shard_id]
            if entry.first is not None
            and entry.last is not None
            and entry.first.sequence <= number <= entry.last.sequence
        ]
        assert (len(retried), len(new)) == (entry.retry_rows, entry.count)
        return retried + new


class Attempt:
    """One attempt of the task. `page`: the most records of a shard that it appends at once. It
    raises `PlanClosedError` where the task fails.
    """

    def __init__(self, store: MemoryStateStore, stream: Stream, *, page: int) -> None:
        self._store, self._stream, self._page = store, stream, page
        self.handed_over: list[Row] = []
        self._cursor = self._rows_of_entry = 0
        stored = store.plans.read_log(PLAN, TASK)
        if stored.log is None and not stored.plan_is_open:
            raise PlanClosedError("nothing was published")
        self._log, self._version = stored.log or TaskLog(), stored.version
        self._is_complete = self._log.sealed or not stored.plan_is_open
        self.fetch()

    def fetch(self) -> None:
        """See what there is now. What it appends may be older than that."""
        self._seen = {shard: len(numbers) for shard, numbers in self._stream.numbers.items()}
        self._closed = set(self._stream.closed)

    @property
    def is_done(self) -> bool:
        return self._is_complete and self._cursor == len(self._log.entries)

    def step(self, *, rows: int, seals: bool, says_tails: bool) -> None:
        """Hand over up to so many rows of the next entry, or else append."""
        if self._cursor < len(self._log.entries):
            of_entry = self._stream.rows_of(self._log.entries[self._cursor])
            taken = of_entry[self._rows_of_entry : self._rows_of_entry + rows]
            self.handed_over += taken
            self._rows_of_entry += len(taken)
            if self._rows_of_entry == len(of_entry):
                self._cursor, self._rows_of_entry = self._cursor + 1, 0
        elif not self._is_complete:
            self._append(seals=seals, says_tails=says_tails)

    def _append(self, *, seals: bool, says_tails: bool) -> None:
        entries = (
            self._new_records(says_tails=says_tails) if self._log.entries else [self._retries()]
        )
        rows = self._log.rows + sum(entry.count + entry.retry_rows for entry in entries)
        seals = seals or rows >= MAX_ROWS
        if not entries and not seals:
            return
        new = self._log.extended(entries, seal=seals)
        try:
            self._version = self._store.plans.append_log(PLAN, TASK, new, self._version)
        except ConflictError:
            self._follow()
        else:
            assert new.sealed == seals
            self._log, self._is_complete = new, new.sealed

    def _follow(self) -> None:
        stored = self._store.plans.read_log(PLAN, TASK)
        log = stored.log or TaskLog()
        if not stored.plan_is_open and not log.sealed:
            raise PlanClosedError("overtaken")
        assert log.continues(self._log.entries[: self._cursor])
        self._log, self._version, self._is_complete = log, stored.version, log.sealed

    def _retries(self) -> ShardReadResult:
        """As many as a page has."""
        done = RETRIES[: self._page]
        return ShardReadResult(
            shard_id=SHARDS[0],
            retries_done=len(done),
            retry_rows=len(done) - done.count(GONE),
            retries_gone=(SequenceNumber(GONE),) if GONE in done else (),
        )

    def _new_records(self, *, says_tails: bool) -> list[ShardReadResult]:
        """The next records of each shard as far as this attempt has seen them."""
        room = MAX_ROWS - self._log.rows
        entries = []
        for before in (self._read_of(shard) for shard in SHARDS):
            seen = self._stream.numbers[before.shard_id][: self._seen[before.shard_id]]
            last = 0 if before.last is None else before.last.sequence
            unread = [number for number in seen if number > last]
            part = unread[: min(self._page, room)]
            room -= len(part)
            at_tip = len(part) == len(unread)
            if not part and not says_tails:
                continue
            entries.append(
                ShardReadResult(
                    shard_id=before.shard_id,
                    first=SequenceNumber(part[0]) if part else None,
                    last=SequenceNumber(part[-1]) if part else None,
                    count=len(part),
                    payload_bytes=len(part),
                    at_tip=at_tip,
                    at_shard_end=at_tip and before.shard_id in self._closed,
                    iterator=f"after {part[-1]}" if part else None,
                )
            )
        return entries

    def _read_of(self, shard: str) -> ShardReadResult:
        found = {one.shard_id: one for one in self._log.folded().shards}
        return found.get(shard, ShardReadResult(shard_id=shard))


class TaskLogMachine(RuleBasedStateMachine):
    """Attempts that complete have handed over the same rows in the same order, and others a prefix
    of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()
        self.store = MemoryStateStore()
        self.store.ownership.acquire(OWNER, timeout_s=0)
        slices = tuple(
            ShardSlice(
                shard_id=shard,
                position=TRIM_HORIZON,
                max_records=100,
                retries=tuple(
                    PlannedRetry(first=SequenceNumber(number), attempts=1)
                    for number in (RETRIES if shard == SHARDS[0] else ())
                ),
            )
            for shard in SHARDS
        )
        self.slices = {one.shard_id: one for one in slices}
        task = TaskPlan(shards=slices, max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
        self.store.plans.create(Plan(plan_id=PLAN, created_ms=1, tasks=(task,)))
        self.attempts: list[Attempt] = []
        self.cut_off: list[list[Row]] = []
        self.completed: list[list[Row]] = []
        self.logged: list[Row] = []
        self.settled: TaskLog | None = None
        self.is_closed = False

    @initialize(
        records=st.integers(0, 6),
        pages=st.lists(st.integers(1, 5), max_size=2),
        closed=st.sets(st.sampled_from(SHARDS)),
    )
    def begin(self, records: int, pages: list[int], closed: set[str]) -> None:
        """The second attempt sees shards closed that the first one has seen open."""
        for shard in SHARDS:
            self.stream.put(shard, records)
        for page in pages:
            self.start(page)
            self.stream.closed |= closed

    # the stream
    @rule(shard=st.sampled_from(SHARDS), count=st.integers(0, 4), closes=st.booleans())
    def put(self, shard: str, count: int, *, closes: bool) -> None:
        if shard not in self.stream.closed:
            self.stream.put(shard, count)
        if closes:
            self.stream.closed.add(shard)

    # the attempts
    @precondition(lambda self: len(self.attempts) < MAX_ATTEMPTS)
    @rule(page=st.integers(1, 5))
    def start(self, page: int) -> None:
        try:
            self.attempts.append(Attempt(self._own_store(), self.stream, page=page))
        except PlanClosedError:
            assert self.is_closed
            assert self._log() is None

    @precondition(lambda self: self.attempts)
    @rule(
        turns=st.lists(INDEX, min_size=8, max_size=30),
        rows=st.integers(1, 5),
        seals=RARELY,
        says_tails=st.booleans(),
        fetches=st.sets(INDEX),
        answers_lost=st.integers(0, 4).map(lambda drawn: max(0, drawn - 2)),
    )
    def run(
        self,
        turns: list[int],
        rows: int,
        answers_lost: int,
        fetches: set[int],
        *,
        seals: bool,
        says_tails: bool,
    ) -> None:
        self.store.backend.lose_next_answers(answers_lost)
        for turn in turns:
            if not self.attempts:
                break
            attempt = self.attempts[turn % len(self.attempts)]
            if turn in fetches:
                attempt.fetch()
            try:
                attempt.step(rows=rows, seals=seals, says_tails=says_tails)
            except PlanClosedError:
                assert self.is_closed
                self._end(attempt)
            else:
                if attempt.is_done:
                    self._complete(attempt)
            self.every_row_is_in_the_log_before_it_is_handed_over()
        self.store.backend.lose_next_answers(0)

    @precondition(lambda self: self.attempts)
    @rule(which=INDEX, does=RARELY)
    def crash(self, which: int, *, does: bool) -> None:
        """Or the consumer wants no more rows."""
        if does:
            self._end(self.attempts[which % len(self.attempts)])

    # the driver
    @precondition(lambda self: not self.is_closed)
    @rule(does=RARELY)
    def close_plan(self, *, does: bool) -> None:
        if does:
            self.store.plans.close(PLAN)
            self.is_closed = True
            self.settled = self._log()
            self._check_folded()

    @invariant()
    def every_row_is_in_the_log_before_it_is_handed_over(self) -> None:
        """And the log only grows: after the closing of its plan it stays as it was settled."""
        log = self._log()
        rows = [] if log is None else self.stream.rows(log.entries)
        assert rows[: len(self.logged)] == self.logged
        self.logged = rows
        assert len(set(rows)) == len(rows)
        for handed_over in (*self.cut_off, *(one.handed_over for one in self.attempts)):
            assert handed_over == rows[: len(handed_over)]
        for completed in self.completed:
            assert completed == rows
        if self.is_closed:
            assert log == self.settled

    def teardown(self) -> None:
        """The plan is closed, and a last attempt replays what was settled."""
        self.close_plan(does=True)
        if self.settled is not None:
            last = Attempt(self._own_store(), self.stream, page=1)
            while not last.is_done:
                last.step(rows=3, seals=False, says_tails=False)
            self._complete(last)
        self.every_row_is_in_the_log_before_it_is_handed_over()

    # private
    def _own_store(self) -> MemoryStateStore:
        return MemoryStateStore(self.store.backend)

    def _log(self) -> TaskLog | None:
        return self._own_store().plans.read_log(PLAN, TASK).log

    def _end(self, attempt: Attempt) -> None:
        self.cut_off.append(attempt.handed_over)
        self.attempts = [one for one in self.attempts if one is not attempt]

    def _complete(self, attempt: Attempt) -> None:
        log = self._log()
        assert log is not None
        assert log.sealed or self.is_closed
        self.completed.append(attempt.handed_over)
        self.attempts = [one for one in self.attempts if one is not attempt]

    def _check_folded(self) -> None:
        """What is settled is what the log says, shard by shard."""
        ends = self.store.plans.read_ends(PLAN)
        log = self.settled
        if log is None:
            assert ends == {}
            return
        rows = self.stream.rows(log.entries)
        assert ends[TASK].sealed == log.sealed
        assert [one.shard_id for one in ends[TASK].shards] == list(
            dict.fromkeys(entry.shard_id for entry in log.entries)
        )
        for end in ends[TASK].shards:
            entries = [entry for entry in log.entries if entry.shard_id == end.shard_id]
            assert self.stream.rows_of(end) == [row for row in rows if row.shard_id == end.shard_id]
            assert end.payload_bytes == end.count
            reads = retries_read(self.slices[end.shard_id].retries, end)
            assert [read.retry.first.sequence for read in reads if not read.is_gone] == [
                row.number for row in rows if row.shard_id == end.shard_id and row.is_retry
            ]
            assert end.at_shard_end == any(entry.at_shard_end for entry in entries)
            if end.at_shard_end:
                numbers = self.stream.numbers[end.shard_id]
                assert end.shard_id in self.stream.closed
                assert numbers[-1:] == ([] if end.last is None else [end.last.sequence])
            assert end.at_tip == entries[-1].at_tip
            assert [entry.iterator for entry in entries[:-1]] == [None] * (len(entries) - 1)
            assert end.iterator in {None, f"after {end.last}"}


TestTaskLogs = TaskLogMachine.TestCase
