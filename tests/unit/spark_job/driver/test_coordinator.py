"""When the driver makes a plan, when it makes none, how often it calls the service and the store,
who may subscribe when, and how a pause ends. In simulated time.

The milliseconds are in `benchmarks/latency.py`.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.application.session import KEPT_S
from kinesis_spout.errors import AccessDeniedError, ConfigError
from kinesis_spout.testing import error, expired_iterator, throttle
from spark_job.driver.query_driver import TriggerInterval
from spark_job.executor.task_reader import read_task
from state.errors import PlanClosedError, StaleOwnerError, TaskLogError
from state.plan import PlanPointer, PlanStatus, ShardReadResult, TaskPlan
from state.position import PositionKind
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.identity import Pause
from state.store.runs import DONE
from state.task_log import TaskLog
from tests.simulation.in_process import InlineFeed, InlinePool, wait_in
from tests.simulation.world import SkewedClock
from tests.support.kinesis.fake_consumers import register, subscribe
from tests.support.simulated.simulated_driver import next_plan, one_batch, pointer, read_all, run
from tests.support.simulated.simulated_job import (
    APPLICATION,
    STREAM,
    SimulatedJob,
    in_both_modes,
    shard,
    simulated,
)
from tests.support.state.trees import counting_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing import Fault
    from spark_job.driver.coordinator import Coordinator
    from state.znodes.topics import StoreTopics


@in_both_modes
def test_each_shard_starts_where_the_application_says_and_its_children_at_their_beginning(
    read_mode: dict[str, Any],
) -> None:
    """At its oldest record, at a record, behind one, and at a time. A shard is split before the
    start and another one after it.
    """
    with simulated(shards=4, read_mode=read_mode) as job:
        keys = [job.key_of(index) for index in range(4)]
        oldest, at, behind, _ = (job.put(5, key=key) for key in keys)
        job.clock.advance(3_600)
        since = datetime.fromtimestamp(job.clock.now_ms() / 1000, UTC).isoformat()
        wanted = [*oldest, *at[3:], *behind[4:], *job.put(5, key=keys[3])]
        job.fake.split(STREAM, shard(3))
        wanted += job.put(5, key=keys[3])
        job.clock.advance(60)
        starts = {
            "default": "TRIM_HORIZON",
            shard(1): f"AT:{at[3]}",
            shard(2): f"AFTER:{behind[3]}",
            shard(3): since,
        }
        driver = job.coordinator(starting_position=starts)
        start, found = read_all(job, driver)
        job.fake.split(STREAM, shard(1))
        wanted += job.put(5, key=keys[1])
        job.clock.advance(60)
        assert sorted([*found, *read_all(job, driver, start)[1]]) == sorted(wanted)


@pytest.mark.parametrize(
    ("operation", "fault"), [("GetShardIterator", throttle()), ("GetRecords", expired_iterator())]
)
def test_a_shard_whose_probe_is_refused_is_left_to_a_task(
    one: SimulatedJob, operation: str, fault: Fault
) -> None:
    """Other consumers may use up a shard for minutes. An error in the driver would end the query.
    That of a missing right does.
    """
    coordinator = one.coordinator()
    one.fake.faults.add(fault, operation=operation, times=None)
    plan = next_plan(coordinator)
    assert plan
    one.fake.faults.clear()
    put = one.put(2)
    assert run(one, coordinator, plan) == put
    one.fake.faults.add(error("AccessDeniedException"), operation=operation, times=None)
    one.clock.advance(302)  # a new iterator is needed
    with pytest.raises(AccessDeniedError):
        next_plan(coordinator, plan)


def test_many_shards_are_not_probed_but_planned_at_intervals() -> None:
    """They are too many to probe, so the tasks look for new records. While one shard is behind,
    plans follow at once.
    """
    with simulated(shards=4) as job:
        start, coordinator = (
            "",
            job.coordinator(probe_max_shards=3, max_records_per_shard=10),
        )
        job.put(30)
        for _ in range(4):
            start, _ = one_batch(job, coordinator, start)
        assert job.clock.monotonic_s() < 1
        job.count_calls()
        plans = 0
        while job.clock.monotonic_s() < 60:
            plan = next_plan(coordinator, start)
            plans += plan != start
            if plan != start:
                start, _ = one_batch(job, coordinator, start, plan)
        assert 5 <= plans <= 7
        assert job.calls("GetRecords") == 4 * plans  # the tasks' own


def test_a_batch_of_which_the_sink_reads_nothing_is_redelivered_and_said_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """A function that returns at once would be called again and again without a sign of it. A task
    that has found no record has read.
    """

    def said() -> int:
        return sum("read none of its rows" in message for message in caplog.messages)

    coordinator = one.coordinator()
    plan = ""
    put = one.put(3)
    for _ in range(3):
        plan = next_plan(coordinator, plan)
    assert said() == 1
    assert run(one, coordinator, plan) == put
    one.fake.faults.add(throttle(), operation="GetRecords", times=1)
    plan = next_plan(coordinator, plan)
    assert run(one, coordinator, plan) == []
    one.put(1)
    plan = next_plan(coordinator, plan)
    assert said() == 1
    next_plan(coordinator, plan)
    assert said() == 2


def test_an_available_now_run_whose_sink_reads_nothing_ends_with_an_error(
    one: SimulatedJob,
) -> None:
    """It would make one batch after the other for ever. No record is lost by it."""
    put = one.put(3)
    coordinator = one.coordinator()
    coordinator.prepare_available_now()
    plan = ""
    for _ in range(10):
        plan = next_plan(coordinator, plan)
    with pytest.raises(ConfigError, match=r"no row of the last 10 batches.*read its DataFrame"):
        next_plan(coordinator, plan)
    coordinator.close()
    again = one.coordinator()
    assert run(one, again, next_plan(again, plan)) == put


def test_an_open_plan_whose_end_was_removed_is_closed_and_its_records_come_again(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that still runs might publish another range than the one that was handed over, and
    settling would ack that one.
    """
    for index in (0, 1):
        job.put(3, key=job.key_of(index))
    first = job.coordinator(max_tasks=2)
    plan = next_plan(first)
    delivered = run(job, first, plan)
    first.close()
    job.backend.remove([path for path in job.backend.nodes("") if path.endswith(f"/{plan}/0/end")])
    zombie = job.store()
    with pytest.raises(TaskLogError, match=r"was removed.*start the query again"):
        zombie.plans.append_log(plan, 0, TaskLog(), None)
    restarted = job.coordinator(max_tasks=2)
    assert list(restarted.tasks(plan)) == [1]
    assert f"the logs of tasks 0 of batch {plan} were removed from ZooKeeper" in caplog.text
    with pytest.raises(PlanClosedError):
        zombie.plans.append_log(plan, 0, TaskLog(), None)
    kept = run(job, restarted, plan)
    again = run(job, restarted, next_plan(restarted, plan))
    assert sorted(kept + again) == sorted(delivered)


def test_the_report_has_lag_and_plan_without_any_call(job: SimulatedJob) -> None:
    job.put(20, key=job.key_of(0))
    coordinator = job.coordinator(max_records_per_shard=5)
    nothing = coordinator.report()
    assert (nothing["application"], nothing["stream"]) == (APPLICATION, STREAM)
    assert (nothing["plan"], nothing["lagMs"], nothing["shards"]) == ("", 0, {})
    plan, _ = one_batch(job, coordinator, "")
    job.clock.advance(30)
    next_plan(coordinator, plan)
    job.count_calls()
    report = coordinator.report()
    assert (report["lagMs"], report["readableShards"], report["unresolved"]) == (30_000, 2, 0)
    assert report["plan"] != plan
    assert (report["emitted"], report["acked"], report["retentionMs"]) == (5, 5, 86_400_000)
    behind, idle = report["shards"].values()
    assert behind == {"lagMs": 30_000, "emitted": 5, "retried": 0, "unresolved": 0}
    assert idle == {"lagMs": 0, "emitted": 0, "retried": 0, "unresolved": 0}
    assert job.calls("GetRecords") == 0


def test_a_throttled_shard_is_told_when_its_batch_is_settled(one: SimulatedJob) -> None:
    one.put(10)
    coordinator = one.coordinator()
    plan = next_plan(coordinator)
    one.fake.faults.add(throttle(), operation="GetRecords", times=2)
    assert len(run(one, coordinator, plan)) == 10
    next_plan(coordinator, plan)
    told = one.store().runs.read()[None].throttled
    assert {name: each.count for name, each in told.items()} == {shard(0): 2}


def test_an_idle_minute_asks_each_shard_every_probe_interval_and_the_stream_every_ten_seconds(
    job: SimulatedJob,
) -> None:
    """Spark polls as fast as it can. Each poll waits, makes no plan, and together they call no more
    often.
    """
    coordinator = job.coordinator(probe_interval="2s")
    next_plan(coordinator)
    job.count_calls()
    begun_s = job.clock.monotonic_s()
    while job.clock.monotonic_s() - begun_s < 60:
        assert next_plan(coordinator) == ""
    assert 50 <= job.calls("GetRecords") <= 2 * 31
    assert job.calls("ListShards") <= 7
    assert job.calls("DescribeStreamSummary") <= 7
    assert job.calls("GetShardIterator") == 0
    assert job.store().plans.known() == []


class HangingPool(InlinePool):
    """Runs each call at once, but for one that is held back until another one comes."""

    hangs_next = answers_with_next = False

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.answers_with_next:
            for call in self._held:
                call()
            self._held.clear()
        if not self.hangs_next:
            return super().submit(fn, *args, **kwargs)
        self.hangs_next = False
        future: Future[Any] = Future()
        self._held.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future


def shards_of(coordinator: Coordinator, plan: str) -> list[str]:
    planned = coordinator.tasks(plan).values()
    return [each.shard_id for task in planned for each in task.shards]


def put_into_both(job: SimulatedJob) -> None:
    for index in range(2):
        job.put(10, key=job.key_of(index))


def first_batch(job: SimulatedJob, coordinator: Coordinator) -> str:
    """Run a batch of both shards, so that all that is asked once is known; its plan."""
    put_into_both(job)
    plan = next_plan(coordinator)
    assert len(run(job, coordinator, plan)) == 20
    return plan


def test_a_small_batch_costs_each_shard_a_probe_and_a_page(job: SimulatedJob) -> None:
    """The iterators of the last batch serve for the probes, and those of the probes for the pages.
    Nothing is listed for it.
    """
    coordinator = job.coordinator()
    plan = first_batch(job, coordinator)
    assert next_plan(coordinator, plan) == plan
    job.count_calls()
    put_into_both(job)
    plan = next_plan(coordinator, plan)
    assert job.calls("GetRecords") == 2
    assert len(run(job, coordinator, plan)) == 20
    assert job.calls("GetRecords") == 4
    assert {name for name, _ in job.fake.faults.struck} == {"GetRecords"}


def test_a_probe_that_hangs_delays_its_shard_only(job: SimulatedJob) -> None:
    """Its answer counts when it comes. Until then the shard is not asked again, nor planned.
    Nor is the stream called idle, though there is no idle wait: the answer may be of records.
    """
    pool = HangingPool()
    coordinator = job.coordinator(new_pool=lambda *_: pool, idle_wait="0s")
    plan = first_batch(job, coordinator)
    job.clock.sleep(1)
    put_into_both(job)
    job.count_calls()
    pool.hangs_next = True
    for _ in range(2):
        plan = next_plan(coordinator, plan)
        assert shards_of(coordinator, plan) == [shard(1)]
        assert len(run(job, coordinator, plan)) == 10
        job.clock.sleep(5)
        job.put(10, key=job.key_of(1))
    assert job.calls("GetRecords") == 2 * 2  # a probe and a page each
    pool.answers_with_next = True
    plan = next_plan(coordinator, plan)
    assert shard(0) in shards_of(coordinator, plan)
    assert len(run(job, coordinator, plan)) >= 10


def run_batch(coordinator: Coordinator, store: StoreTopics, start: str, last: int) -> str:
    """Plan a batch, and publish three records of each shard as its tasks do."""
    plan_id = next_plan(coordinator, start)
    for number, task in coordinator.tasks(plan_id).items():
        first, end = SequenceNumber(last - 2), SequenceNumber(last)
        entries = tuple(
            ShardReadResult(shard_id=one.shard_id, first=first, last=end, count=3)
            for one in task.shards
        )
        store.plans.append_log(plan_id, number, TaskLog(entries=entries, sealed=True), None)
    return plan_id


def test_a_batch_writes_once_a_task_and_its_states_in_transactions_of_hundreds() -> None:
    """Creating the plan and its tasks is one transaction; so are a log for each task, closing, each
    five hundred states, and settling. What is read does not grow with the shards.
    """
    with simulated(shards=600) as job:
        store, tree = counting_store(job.backend, application=APPLICATION, stream=STREAM)
        coordinator = job.coordinator(store=store, max_tasks=8)
        start = run_batch(coordinator, store, "", 103)
        start = run_batch(coordinator, store, start, 106)
        reads, writes = tree.cost_of(lambda: run_batch(coordinator, store, start, 109))
        assert writes <= 1 + 8 + 1 + 2 + 1 + 1
        assert reads <= 8 + 7


PAUSE = Pause(by="ann on host-a", since_ms=0, reason="deploy")


def pause(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.pause.begin(PAUSE) == PAUSE


def resume(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.pause.end() == PAUSE


def test_a_paused_job_settles_its_last_batch_and_reads_nothing(one: SimulatedJob) -> None:
    """However often Spark asks, up to the retention. Then it goes on where it was."""
    first = one.put(3)
    coordinator = one.coordinator(idle_wait="5s")
    plan, found = one_batch(one, coordinator, "")
    assert found == first
    pause(one)
    second = one.put(4)
    begun_s = one.clock.monotonic_s()
    assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() - begun_s == pytest.approx(5, abs=0.1), "as for records"
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    assert one.states()[shard(0)].checkpoint == SequenceNumber(first[-1])
    one.count_calls()
    for _ in range(20):
        one.clock.advance(3_600)
        assert next_plan(coordinator, plan) == plan
    assert one.fake.faults.struck == []
    resume(one)
    assert one_batch(one, coordinator, plan)[1] == second


def test_a_job_that_is_paused_before_its_first_start_pins_it(one: SimulatedJob) -> None:
    """What arrives after the start, during the pause, is read; what was there before is not."""
    pause(one)
    one.put(3)
    one.clock.advance(10)
    coordinator = one.coordinator(starting_position="LATEST")
    assert next_plan(coordinator) == ""
    pin = one.store().identity.read_start()
    assert pin is not None
    assert pin.position.kind is PositionKind.AT_TIMESTAMP
    one.clock.advance(10)
    later = one.put(2)
    assert next_plan(coordinator) == ""
    resume(one)
    assert read_all(one, coordinator)[1] == later


def test_an_available_now_run_ends_and_says_so_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, at its start or after the current batch, which is settled."""
    put = one.put(25)
    coordinator = one.coordinator(max_records_per_shard=10, idle_wait="60s")
    coordinator.prepare_available_now()
    plan, found = one_batch(one, coordinator, "")
    pause(one)
    begun_s = one.clock.monotonic_s()
    assert next_plan(coordinator, plan) == plan
    assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() == begun_s
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    (said,) = (said for said in caplog.messages if "is paused" in said)
    assert "by ann on host-a since 1970-01-01T00:00:00.000Z ('deploy')" in said
    assert "`kinesis-spout resume`" in said
    newest = one.store().runs.read()[None].newest
    assert newest is not None
    assert newest.end is not None
    assert newest.end.kind == DONE
    assert newest.end.says == "the application was paused, so the run did not read all records"
    resume(one)
    next_run = one.coordinator()
    coordinator.close()
    next_run.prepare_available_now()
    assert found + read_all(one, next_run, plan)[1] == put


def test_a_paused_job_keeps_its_ownership_over_a_lost_session(one: SimulatedJob) -> None:
    """Though it writes nothing else. A process that took over is noticed."""
    store, tree = counting_store(one.backend, application=APPLICATION, stream=STREAM)
    coordinator = one.coordinator(store=store)
    pause(one)
    next_plan(coordinator)
    one.backend.expire(tree.session_id())
    assert one.store().ownership.holders() == {}
    one.clock.advance(KEPT_S)
    next_plan(coordinator)
    assert one.store().ownership.holders()
    one.backend.expire(tree.session_id())
    with closing(one.store()) as other:
        other.ownership.acquire(this_process(0), timeout_s=0)
        one.clock.advance(KEPT_S)
        with pytest.raises(StaleOwnerError):
            next_plan(coordinator)


EFO = {"read_mode": "efo", "consumer_name": "reader"}


def driver_of(job: SimulatedJob, **changes: Any) -> Coordinator:
    return job.coordinator(**(EFO | changes))


def first_task(driver: Coordinator, plan: str) -> TaskPlan:
    return driver.tasks(plan)[0]


def read(job: SimulatedJob, driver: Coordinator, plan: str, *, ahead_ms: int = 0) -> int:
    """Run a plan as executors do that push in this process; how many rows it has. `ahead_ms`: of
    the executors' clock.
    """
    settings = job.settings(**EFO)
    services = job.services(settings)
    clock = SkewedClock(job.clock)
    clock.ahead_ms = ahead_ms
    services.clock, services.new_feed, services.wait_for = clock, InlineFeed, wait_in(clock)
    return sum(
        batch.num_rows
        for task, one in driver.tasks(plan).items()
        for batch in read_task(plan, task, one, services=services)
    )


def test_the_driver_waits_until_the_consumer_is_active() -> None:
    """An ARN is taken as it is, and never registered."""
    with simulated(shards=1, consumer_ms=3_000) as job:
        job.put(1)
        driver = driver_of(job)
        assert first_task(driver, next_plan(driver)).consumer_arn is not None
        driver.close()
        job.put(1)
        arn = register(job.fake, "other")
        job.clock.advance(3)
        driver = job.coordinator(read_mode="efo", consumer_arn=arn)
        assert first_task(driver, next_plan(driver)).consumer_arn == arn


def test_a_plan_says_when_a_shard_may_be_subscribed_to_again(one: SimulatedJob) -> None:
    one.put(3)
    driver = driver_of(one, max_records_per_shard=1)
    first = next_plan(driver)
    begun_ms = one.clock.now_ms()
    assert read(one, driver, first) == 1
    second = next_plan(driver, first)
    next_ms = first_task(driver, second).shards[0].next_subscribe_ms
    assert next_ms is not None
    assert begun_ms < next_ms <= begun_ms + 5_500
    assert read(one, driver, second) == 1
    one.clock.advance(10)
    third = next_plan(driver, second)
    (only,) = first_task(driver, third).shards
    assert only.next_subscribe_ms is None
    assert only.hash_keys is None, "the only shard has all"
    report = driver.report()
    assert (report["pushedRecords"], report["polledRecords"]) == (1, 1)


def test_a_batch_that_is_replayed_by_another_run_polls(one: SimulatedJob) -> None:
    """Whether its tasks have published or not."""
    one.put(3)
    driver = driver_of(one)
    plan = next_plan(driver)
    driver.close()
    again = driver_of(one)
    assert first_task(again, plan).consumer_arn is None
    assert pointer(one).id == plan


def test_another_reader_of_the_consumer_is_named_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It subscribes before each batch, so the tasks are refused. Their records are polled. A single
    refusal is no evidence: a driver that died may have subscribed just before.
    """
    one.put(6)
    arn = register(one.fake)
    driver = driver_of(one, max_records_per_shard=1)
    plan = ""
    for batch in range(6):
        one.clock.advance(6)
        plan = next_plan(driver, plan)
        sharing = said_of_sharing(caplog)
        assert len(sharing) == (batch > 2)
        subscribe(one.fake, arn)
        assert read(one, driver, plan) == 1
    assert "consumer reader" in sharing[0]
    assert "consumerName" in sharing[0]
    assert driver.report()["fallbacks"] == {"in_use": 5}


def said_of_sharing(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [said for said in caplog.messages if "another application probably uses" in said]


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "SubscribeToShard"])
def test_a_missing_permission_ends_no_query_and_is_told_until_a_subscription_gives_records(
    one: SimulatedJob, operation: str
) -> None:
    """Nor does it wait. The right to describe a consumer is another one than that to subscribe."""
    one.put(1)
    one.fake.faults.add(error("AccessDeniedException"), operation=operation, times=None)
    driver = driver_of(one)
    begun_s = one.clock.monotonic_s()
    plan = next_plan(driver)
    assert one.clock.monotonic_s() - begun_s < 1
    assert read(one, driver, plan) == 1
    one.put(1)
    plan = next_plan(driver, plan)
    assert read(one, driver, plan) == 1
    told = one.store().runs.read()[None].not_subscribed
    assert told is not None
    assert operation in (told.says or "")
    one.fake.faults.clear()
    one.clock.advance(61)
    for _ in range(2):
        one.put(1)
        plan = next_plan(driver, plan)
        assert first_task(driver, plan).consumer_arn is not None
        assert read(one, driver, plan) == 1
    assert one.store().runs.read()[None].not_subscribed is None


QUARTER_MS = 900_000
T = 2_000_000 * QUARTER_MS


@pytest.mark.parametrize(
    ("calls", "known_ms", "is_known"),
    [
        ((T,), None, False),
        # The first batch comes at once, the others when the trigger is due.
        ((T - 400_000, T + 30, T + QUARTER_MS + 50), QUARTER_MS, True),
        # Batches that take as long as they take are no trigger.
        ((T + 3_300, T + 24_400, T + 44_100, T + 65_900), None, False),
        # Without a trigger, an idle query is asked again at once.
        ((T, T + 12, T + 1_020, T + 1_900), None, True),
        # A batch that takes longer than the interval does not unlearn it.
        ((T, T + QUARTER_MS, T + 2 * QUARTER_MS + 77_000), QUARTER_MS, True),
    ],
)
def test_the_interval_shows_in_the_times_of_the_calls(
    calls: tuple[int, ...], known_ms: int | None, *, is_known: bool
) -> None:
    interval = TriggerInterval()
    for call_ms in calls:
        interval.called(call_ms)
    assert (interval.known_ms, interval.is_known) == (known_ms, is_known)
