"""A task appends to its log, round by round, before the rows leave it. An attempt that finds a log
follows it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.programs.threads import thread_pool
from kinesis_spout.testing import end_without_children, expired_iterator, throttle
from spark_job.executor.task_reader import Pace
from state.codec.values import encode_unchecked
from state.errors import PlanClosedError, TaskLogError
from state.plan import TaskResult
from state.task_log import TaskLog
from tests.simulation.in_process import Service
from tests.support.simulated.planned_task import (
    BY_TWOS,
    PlannedTask,
    after,
    entry_of,
    numbers_of,
    task,
    whole,
)
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from kinesis_spout.testing import Fault

LIMIT_S = 20.0
ALTERNATING = task(whole(0), whole(1))


def put_in_both(job: SimulatedJob, count: int) -> list[list[int]]:
    return [job.put(count, key=job.key_of(index)) for index in (0, 1)]


# rounds -------------------------------------------------------------------------------------------
def test_rows_leave_the_task_only_after_their_append(one: SimulatedJob) -> None:
    """A round at a time, and no more than one beyond what the consumer has."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))
    appended: list[tuple[int, int, bool]] = []
    rows: list[int] = []
    for batch in planned.attempt(pace=BY_TWOS):
        rows += numbers_of([batch])
        appended.append((len(rows), planned.log.rows, planned.log.sealed))
    assert rows == put
    assert appended == [(2, 2, False), (4, 4, False), (6, 6, False), (7, 7, True)]


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
def test_an_attempt_that_loses_an_append_follows_and_its_own_pages_serve(
    one: SimulatedJob,
) -> None:
    """Another one has published all while it was fetching. It fetches nothing again."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))
    other: list[int] = []
    counts: list[int] = []

    def overtake() -> None:
        one.count_calls()
        other.extend(numbers_of(planned.attempt(pace=BY_TWOS)))
        counts.append(one.calls("GetRecords"))

    rows = numbers_of(planned.attempt(store=planned.overtaken_store(overtake)))
    assert rows == other == put
    assert one.calls("GetRecords") == counts[0] == 4


def test_the_limits_of_a_task_are_those_of_all_its_attempts(one: SimulatedJob) -> None:
    put = one.put(10, data=b"x" * 100)
    for plan in (task(whole(max_records=5)), task(whole(), max_bytes=500)):
        planned = PlannedTask(one, plan)
        next(planned.attempt(pace=BY_TWOS))
        assert numbers_of(planned.attempt()) == put[:5]


@pytest.mark.parametrize(
    ("fault", "times"), [(throttle(), 6), (expired_iterator(), None)], ids=["for a time", "for all"]
)
def test_a_shard_that_the_service_refuses_is_read_later_or_left_to_the_next_plan(
    fault: Fault, times: int | None, one: SimulatedJob
) -> None:
    """An error here would end the query. The position of the shard stays as it was."""
    put = one.put(3)
    one.fake.faults.add(fault, operation="GetRecords", times=times)
    planned = PlannedTask(one, task(whole(position=after(put[0]))))
    assert numbers_of(planned.attempt()) == (put[1:] if times else [])
    assert planned.log.sealed
    assert planned.log.entries[0].position == after(put[0])


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
    with pytest.raises(PlanClosedError, match="published nothing"):
        unread.attempt()
    assert one.calls("GetRecords") == 0


def test_an_attempt_whose_plan_is_closed_meanwhile_raises(one: SimulatedJob) -> None:
    """Its next rows would be delivered twice: they are not in the plan's outcome."""
    put = one.put(7)
    planned = PlannedTask(one, task(whole()))
    rows = planned.attempt(pace=BY_TWOS)
    assert numbers_of([next(rows)]) == put[:2]
    planned.close_plan()
    with pytest.raises(PlanClosedError):
        next(rows)
    assert planned.log.rows == 2


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


def test_a_result_that_an_earlier_version_has_stored_is_replayed(job: SimulatedJob) -> None:
    """Format 1 had all shards at once, and the attempt's token."""
    put = put_in_both(job, 3)
    entries = entry_of(put[1][:2], index=1), entry_of(put[0][1:])
    stored = msgspec.json.decode(encode_unchecked(TaskResult(shards=entries)))
    assert stored.get("format", 1) == 1
    planned = PlannedTask(job, ALTERNATING)
    planned.backend.put(planned.path, msgspec.json.encode(stored | {"token": "t"}))
    assert numbers_of(planned.attempt()) == put[1][:2] + put[0][1:]


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
