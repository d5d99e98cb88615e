"""A task appends to its log, round by round, before the rows leave it. An attempt that finds a log
follows it: it gets exactly the records of the log, or reports their loss. Retries come before new
records; a shard may be pushed.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import (
    alter,
    end_without_children,
    error,
    service_unavailable,
    throttle,
)
from kinesis_spout.threads import thread_pool
from spark_job.executor.shard_feed import MAX_SUBSCRIPTIONS, subscriptions_of
from spark_job.executor.task_reader import Pace
from state.codec.values import encode_unchecked
from state.errors import PlanClosedError, TaskLogError
from state.plan import Fallback, ShardReadResult, ShardSlice, TaskPlan
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.simulation.in_process import Service
from tests.support.kinesis.fake_consumers import register
from tests.support.simulated.planned_task import (
    BY_TWOS,
    PlannedTask,
    Row,
    after,
    entry_of,
    numbers_of,
    rows_of,
    task,
    whole,
)
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.testing import Fault

LIMIT_S = 20.0
ALTERNATING = task(whole(0), whole(1))


def put_in_both(job: SimulatedJob, count: int) -> list[list[int]]:
    return [job.put(count, key=job.key_of(index)) for index in (0, 1)]


# rounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "counts", "read"),
    [
        # In 3 s, 6 s and 12 s, and what is left up to the tip.
        (Pace(linger_s=3.0, max_small_rounds=4), [2, 3, 6, 9], 20),
        (Pace(linger_s=3.0, max_small_rounds=2), [2, 3, 6], 11),
    ],
    ids=["the time doubles", "the next plan reads the rest"],
)
def test_a_slow_shard_does_not_cost_many_writes(
    one: SimulatedJob, pace: Pace, counts: list[int], read: int
) -> None:
    """The time that a round waits doubles with each small one, and a log has only so many. At one
    read a second, and with an empty page after each, a record comes every two seconds.
    """
    put: list[int] = []
    for _ in range(20):
        put += one.put(1)
        one.fake.insert_empty_pages(STREAM, shard(0), 1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=100_000, fetch_cap_ms=100_000))
    assert numbers_of(planned.attempt(pace=pace, reads_per_second=1)) == put[:read]
    assert [entry.count for entry in planned.log.entries if entry.count] == counts
    assert planned.log.sealed


def test_a_log_is_sealed_when_it_has_so_many_bytes(one: SimulatedJob) -> None:
    put = one.put(20)
    planned = PlannedTask(one, task(whole()))
    pace = Pace(round_bytes=1, held_records=2, max_log_bytes=1_000)
    rows = numbers_of(planned.attempt(pace=pace))
    assert rows == put[: len(rows)]
    assert 2 < len(rows) < len(put)
    assert planned.log.sealed
    size = len(encode_unchecked(planned.log))
    first = encode_unchecked(TaskLog(entries=planned.log.entries[:1]))
    assert 1_000 < size < 1_000 + 2 * len(first)


# several attempts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("empty_pages", [0, 2])
def test_an_end_that_names_no_children_is_proven_by_one_attempt_however_slow_the_service_is(
    empty_pages: int, one: SimulatedJob
) -> None:
    """Each attempt begins without the answers of those before it. One that stopped between them
    would never prove the end, and nobody would read the children.
    """
    put = one.put(1)
    one.fake.insert_empty_pages(STREAM, shard(0), empty_pages)
    one.fake.split(STREAM, shard(0))
    one.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
    service = Service(one.fake)
    service.answer_s = 10.0
    searched_ms = 20_000 * (1 + empty_pages)  # as long as the first of these answers takes
    plan = task(whole(position=after(put[0])), fetch_time_ms=1_000, fetch_cap_ms=searched_ms)
    planned = PlannedTask(one, plan)
    assert numbers_of(planned.attempt(service=service)) == []
    assert planned.ends[shard(0)].at_shard_end
    assert service.reads == 3 * (1 + empty_pages)


def test_a_shard_that_is_throttled_before_its_end_is_proven_is_left_to_the_next_plan(
    one: SimulatedJob,
) -> None:
    """Other consumers may use up its limits for long, and waiting for them would end the query."""
    one.fake.split(STREAM, shard(0))
    one.fake.faults.add(end_without_children(), operation="GetRecords", times=1)
    one.fake.faults.add(throttle(), operation="GetRecords", times=None)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=1_000, fetch_cap_ms=1_000))
    assert numbers_of(planned.attempt()) == []
    assert planned.log.sealed
    assert not planned.ends[shard(0)].at_shard_end


def test_a_shard_whose_end_is_in_the_log_is_read_no_further(one: SimulatedJob) -> None:
    """A false end ends it too: records after it would contradict the log, in each attempt."""
    put = one.put(4)
    planned = PlannedTask(one, task(whole()))
    planned.append(entry_of(put[:2], at_shard_end=True))
    for pace in (Pace(), BY_TWOS):
        assert numbers_of(planned.attempt(pace=pace)) == put[:2]
    assert planned.log.sealed
    assert planned.ends[shard(0)].at_shard_end


@pytest.mark.parametrize("pace", [Pace(), BY_TWOS], ids=["in one page", "in several"])
def test_records_that_another_attempt_did_not_see_any_more_are_not_handed_over(
    one: SimulatedJob, pace: Pace
) -> None:
    """They expired between the fetches of the two. The log begins behind them."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))
    store = planned.overtaken_store(lambda: planned.append(entry_of(put[3:5]), sealed=True))
    assert numbers_of(planned.attempt(store=store, pace=pace)) == put[3:5]


# a closed plan ------------------------------------------------------------------------------------
def test_an_attempt_that_starts_late_takes_the_log_of_a_closed_plan_as_sealed(
    one: SimulatedJob,
) -> None:
    """Without a log it raises, before it fetches."""
    put = one.put(7)
    planned, unread = (PlannedTask(one, task(whole())) for _ in range(2))
    next(planned.attempt(pace=BY_TWOS))
    planned.close_plan()
    log = planned.log
    assert not log.sealed
    assert numbers_of(planned.attempt()) == put[:2]
    assert planned.log == log
    unread.close_plan()
    one.count_calls()
    with pytest.raises(PlanClosedError, match="before its task 0 published records"):
        unread.attempt()
    assert one.calls("GetRecords") == 0


def test_an_overtaken_attempt_that_learns_of_the_close_by_reading_the_log_raises(
    one: SimulatedJob,
) -> None:
    """The plan is closed between the append that it lost and its look at the log."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))

    class ClosingStore:
        """Closes the plan before the second look at the log."""

        def __init__(self) -> None:
            store = planned.overtaken_store(lambda: planned.append(entry_of(put[:2])))
            self.plans, self._plans = self, store.plans
            self.looks = 0

        def read_log(self, plan_id: str, number: int) -> Any:
            self.looks += 1
            if self.looks == 2:
                planned.close_plan()
            return self._plans.read_log(plan_id, number)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._plans, name)

    store: Any = ClosingStore()
    with pytest.raises(PlanClosedError, match="was closed while"):
        numbers_of(planned.attempt(store=store))


# a log that is not what it was --------------------------------------------------------------------
@pytest.mark.parametrize("what", ["removed", "changed"])
def test_a_log_that_is_removed_or_changed_under_a_reader_stops_it(
    one: SimulatedJob, what: str
) -> None:
    """It has handed over rows that the log does not name any more."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))
    rows = planned.attempt(pace=BY_TWOS)
    next(rows)
    if what == "removed":
        planned.backend.remove([planned.path])
    else:
        other = TaskLog(entries=(entry_of(put[:3]),))
        planned.backend.put(planned.path, encode_unchecked(other))
    with pytest.raises(TaskLogError, match="changed or removed"):
        numbers_of(rows)


# fetches in the background ------------------------------------------------------------------------


def test_a_tip_that_is_reached_while_rows_are_handed_over_ends_the_reading_of_its_shard(
    job: SimulatedJob,
) -> None:
    """Else it would be polled as long as the consumer takes, and a page of it could come twice."""
    first = job.put(3, key=job.key_of(0))
    job.put(20, key=job.key_of(1))
    planned = PlannedTask(job, ALTERNATING)
    rows: list[int] = []
    for batch in planned.attempt(pace=BY_TWOS):
        job.clock.advance(1)
        job.put(1, key=job.key_of(0))
        rows += numbers_of([batch])
    assert planned.ends[shard(0)].at_tip
    assert planned.ends[shard(0)].count < len(first) + 3


class HangingService(Service):
    """Answers one read. The others hang until `released`."""

    def __init__(self, job: SimulatedJob) -> None:
        super().__init__(job.fake)
        self.hangs, self.released = threading.Event(), threading.Event()
        self.answered = 0
        self._lock = threading.Lock()
        self._reads = 0

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        with self._lock:
            self._reads += 1
            is_first = self._reads == 1
        if not is_first:
            self.hangs.set()
            self.released.wait(LIMIT_S)
        answer = super().get_records(**arguments)
        self.answered += 1
        return answer


def test_an_attempt_that_fails_does_not_wait_for_a_fetch_that_hangs(job: SimulatedJob) -> None:
    """It has handed over one page, and its other fetch hangs."""
    service = HangingService(job)
    put_in_both(job, 3)
    planned = PlannedTask(job, ALTERNATING)
    rows: Any = planned.attempt(service=service, new_pool=thread_pool, pace=Pace(round_bytes=1))
    try:
        assert next(rows).num_rows == 3
        assert service.hangs.wait(LIMIT_S)
        with pytest.raises(RuntimeError, match="from its consumer"):
            rows.throw(RuntimeError("from its consumer"))
        assert service.answered == 1
    finally:
        service.released.set()


HOUR_S = 3_600.0
HOUR_MS = 3_600_000


def read(
    job: SimulatedJob, plan: TaskPlan, **options: Any
) -> tuple[list[Row], dict[str, ShardReadResult]]:
    """The rows of a task, and what was read of each shard. A second attempt has the same rows."""
    planned = PlannedTask(job, plan)
    rows = rows_of(planned.attempt(**options))
    assert planned.log.sealed
    assert rows_of(planned.attempt(**options)) == rows
    return rows, planned.ends


def read_numbers(
    job: SimulatedJob, plan: TaskPlan, **options: Any
) -> tuple[list[int], dict[str, ShardReadResult]]:
    """The same with the numbers of the rows, which are those of new records."""
    rows, ends = read(job, plan, **options)
    assert len(rows) == sum(end.count for end in ends.values())
    return [number for _, number, _ in rows], ends


# how far a shard is read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "pace", "sizes", "found"),
    [
        (task(whole(max_records=7)), BY_TWOS, [8] * 10, 7),
        (task(whole(), max_bytes=1_600), BY_TWOS, [300] * 10, 5),
        (task(whole(), max_bytes=10), Pace(), [300] * 2, 1),
        (task(whole(), max_bytes=1), Pace(), [0] * 5, 5),
    ],
    ids=["records", "bytes", "one at least", "without payload"],
)
def test_no_more_is_read_than_the_plan_allows(
    one: SimulatedJob, plan: TaskPlan, pace: Pace, sizes: list[int], found: int
) -> None:
    """One record is always kept, however large it is."""
    put = [number for size in sizes for number in one.put(1, data=b"x" * size)]
    numbers, ends = read_numbers(one, plan, pace=pace)
    assert numbers == put[:found]
    assert ends[shard(0)].at_tip is (found == len(put))


def test_a_page_that_exceeds_the_bytes_is_cut_and_says_nothing_of_what_follows(
    one: SimulatedJob,
) -> None:
    """The page was at the shard's end, its head is not: the log has no tip, end, children or
    iterator.
    """
    put = one.put(10, data=b"x" * 300)
    one.fake.split(STREAM, shard(0))
    numbers, ends = read_numbers(one, task(whole(), max_bytes=1_000))
    end = ends[shard(0)]
    assert numbers == put[:3]
    assert (end.last, end.count) == (SequenceNumber(put[2]), 3)
    assert (end.at_tip, end.at_shard_end, end.iterator, end.tip_ms) == (False, False, None, None)
    assert end.children == ()


def test_a_shard_with_records_is_not_read_past_the_time_box(one: SimulatedJob) -> None:
    """One read a second, so that simulated time passes: records, then empty pages without end."""
    put = one.put(2)
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=4_000, fetch_cap_ms=60_000))
    assert numbers_of(planned.attempt(reads_per_second=1, pace=BY_TWOS)) == put
    assert planned.log.sealed
    assert not planned.ends[shard(0)].at_tip
    assert one.clock.monotonic_s() < 10


# lapses -------------------------------------------------------------------------------------------
def lapsing(job: SimulatedJob) -> TaskPlan:
    """A plan whose shard was verified now, on a stream that keeps records for a day."""
    return task(whole(verified_until_ms=job.clock.now_ms()), retention_ms=24 * HOUR_MS)


def test_a_page_that_comes_a_retention_after_the_last_one_is_said_to_have_lapsed(
    one: SimulatedJob,
) -> None:
    plan = lapsing(one)
    one.clock.advance(24 * HOUR_S)
    numbers, ends = read_numbers(one, plan)
    assert (numbers, ends[shard(0)].lapsed_ms) == ([], None)
    one.clock.advance(1)
    one.put(1)
    _, ends = read_numbers(one, plan)
    assert ends[shard(0)].lapsed_ms == one.clock.now_ms()


def test_records_of_the_log_that_are_read_again_much_later_have_not_lapsed(
    one: SimulatedJob,
) -> None:
    """They were read in time by the attempt that appended them, and what follows them is not
    missed.
    """
    plan = lapsing(one)
    one.clock.advance(22 * HOUR_S)
    put = one.put(6)
    planned = PlannedTask(one, plan)
    cut_off = planned.attempt(pace=BY_TWOS)
    next(cut_off)
    one.clock.advance(3 * HOUR_S)
    assert numbers_of(planned.attempt()) == put
    assert [entry.lapsed_ms for entry in planned.log.entries] == [None, None]


# the records of the log ---------------------------------------------------------------------------
def followed(job: SimulatedJob, *entries: ShardReadResult, **options: Any) -> list[int]:
    """The numbers of the rows of a log of these entries. The plan allows one record of a byte and
    no time.
    """
    shards = dict.fromkeys(entry.shard_id for entry in entries)
    slices = [whole(int(one.rpartition("-")[2]), max_records=1) for one in shards]
    plan = task(*slices, max_bytes=1, fetch_time_ms=0, fetch_cap_ms=0)
    planned = PlannedTask(job, plan)
    planned.append(*entries, sealed=True)
    return numbers_of(planned.attempt(**options))


@pytest.mark.parametrize(
    ("older", "newer", "is_closed", "count", "left"),
    [(3, 3, False, 6, 3), (1, 3, False, 3, 3), (3, 0, False, 3, 0), (3, 0, True, 3, 0)],
    ids=["half", "the first, and the count matches", "all", "with their shard"],
)
def test_records_of_the_log_that_are_gone_stop_the_query_or_are_logged(
    one: SimulatedJob,
    caplog: pytest.LogCaptureFixture,
    *,
    older: int,
    newer: int,
    is_closed: bool,
    count: int,
    left: int,
) -> None:
    """The rest ends with the log's last record, and no newer one takes the place of those that
    expired: it belongs to a later batch.
    """
    published = one.put(older)
    if is_closed:
        one.fake.split(STREAM, shard(0))
    one.clock.advance(20 * HOUR_S)
    published += one.put(newer)
    one.clock.advance(5 * HOUR_S)
    if not is_closed:
        one.put(3)
    entry = entry_of(published, count=count)
    said = rf"{shard(0)}.*of the {count} records.*, only {left} are left"
    with pytest.raises(DataLossError, match=f"{said}.*failOnDataLoss to false"):
        followed(one, entry)
    assert followed(one, entry, fail_on_data_loss=False) == published[len(published) - left :]
    assert re.search(said, caplog.text)


def test_a_log_that_counts_records_and_names_none_is_damaged(one: SimulatedJob) -> None:
    planned = PlannedTask(one, task(whole()))
    damaged = TaskLog(entries=(ShardReadResult(shard_id=shard(0), count=3),), sealed=True)
    planned.backend.put(planned.path, encode_unchecked(damaged))
    with pytest.raises(TaskLogError, match=rf"damaged.*{shard(0)}"):
        numbers_of(planned.attempt())


# subscriptions ------------------------------------------------------------------------------------
MINUTE_S = 60.0


@pytest.fixture
def pairs() -> Iterator[SimulatedJob]:
    """A job on a stream of one shard, whose events have two records."""
    with simulated(shards=1, event_records=2) as made:
        yield made


class Pushed:
    """A task whose shards may be subscribed to, and the service that its attempts speak with."""

    def __init__(self, job: SimulatedJob, *slices: ShardSlice, **limits: Any) -> None:
        self.job = job
        self.service = Service(job.fake)
        self.consumer_arn = limits.pop("consumer_arn", None) or register(job.fake)
        plan = task(*(slices or (whole(),)), consumer_arn=self.consumer_arn, **limits)
        self.planned = PlannedTask(job, plan)

    def rows(self, **options: Any) -> list[int]:
        return numbers_of(self.planned.attempt(service=self.service, **options))

    @property
    def end(self) -> ShardReadResult:
        return self.planned.ends[shard(0)]

    @property
    def is_closed(self) -> bool:
        return all(one.is_closed for one in self.service.connections)


def test_records_are_pushed_up_to_the_tip_and_the_socket_is_closed(pairs: SimulatedJob) -> None:
    put = pairs.put(7)
    pushed = Pushed(pairs)
    assert pushed.rows() == put
    assert (pushed.service.reads, pushed.service.subscriptions) == (0, 1)
    assert (pushed.end.pushed, pushed.end.at_tip, pushed.end.fallback) == (7, True, None)
    assert pushed.end.tip_ms is not None
    assert pushed.end.next_subscribe_ms is not None
    assert pushed.is_closed


def test_an_attempt_that_is_cut_off_closes_its_socket(pairs: SimulatedJob) -> None:
    """What it has published is read by the next one, by GetRecords."""
    put = pairs.put(7)
    pushed = Pushed(pairs)
    batches = pushed.planned.attempt(service=pushed.service, pace=BY_TWOS)
    assert numbers_of([next(batches)]) == put[:2]
    assert not pushed.is_closed
    batches.close()  # type: ignore[attr-defined]  # a generator
    assert pushed.is_closed
    assert pushed.rows() == put
    assert pushed.service.subscriptions == 1


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize("events", [0, 1, 2])
def test_a_task_continues_by_polling_after_the_last_event(
    pairs: SimulatedJob, events: int, *, silently: bool
) -> None:
    """Nothing is missing or doubled where the connection breaks, or is half open."""
    put = pairs.put(9)
    pushed = Pushed(pairs)
    pushed.service.breaks = [(events, silently)]
    assert pushed.rows() == put
    assert pushed.end.pushed == 2 * events
    assert pushed.end.fallback is not None
    assert pushed.is_closed


BACKWARDS = alter(lambda event: msgspec.structs.replace(event, records=event.records[::-1]))


@pytest.mark.parametrize(
    ("fault", "fallback", "for_good"),
    [
        (service_unavailable(), Fallback.REFUSED, False),
        (error("ResourceInUseException"), Fallback.IN_USE, False),
        (error("AccessDeniedException"), Fallback.REFUSED, True),
        (error("ResourceNotFoundException"), Fallback.MISSING, True),
        (BACKWARDS, Fallback.BROKEN, False),
    ],
    ids=["no answer", "in use", "not allowed", "no consumer", "out of order"],
)
def test_a_task_that_gets_no_subscription_polls(
    pairs: SimulatedJob, fault: Fault, fallback: Fallback, *, for_good: bool
) -> None:
    """At once, and it subscribes no more. What waiting does not mend is not tried again soon."""
    put = pairs.put(7)
    pairs.fake.faults.add(fault, operation="SubscribeToShard", times=None)
    began_ms = pairs.clock.now_ms()
    pushed = Pushed(pairs)
    assert pushed.rows() == put
    assert (pushed.end.pushed, pushed.end.fallback) == (0, fallback)
    assert pushed.end.next_subscribe_ms is not None
    assert (pushed.end.next_subscribe_ms - began_ms > MINUTE_S * 900) is for_good


def test_a_task_subscribes_to_some_of_many_shards_and_polls_the_others() -> None:
    """Each subscription has a thread."""
    count = MAX_SUBSCRIPTIONS + 2
    with simulated(shards=count, event_records=2) as many:
        put = [one for index in range(count) for one in many.put(6, key=many.key_of(index))]
        pushed = Pushed(many, *(whole(index) for index in range(count)))
        assert sorted(pushed.rows(pace=BY_TWOS)) == sorted(put)
        assert pushed.service.subscriptions >= MAX_SUBSCRIPTIONS
        assert pushed.service.reads > 0


def test_a_task_whose_consumer_is_shared_names_the_option_of_the_source(
    pairs: SimulatedJob,
) -> None:
    """A spout's has another spelling."""
    counts = subscriptions_of("an ARN", pairs.services()).counts
    for now_s in range(3):
        counts.failed(shard(0), None, in_a_row=1, was_taken=True, now_s=now_s)
    assert str(counts.refusal(now_s=3)).endswith("its own consumer with consumerName")
