"""One query of several streams: what one of them does not have to wait for, what it has to, and the
offsets that name a plan for each. In simulated time.
"""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.checkpoints.transfer import export_application, import_application
from kinesis_spout.errors import ConfigError, DataLossError, KinesisError, ServiceUnavailableError
from kinesis_spout.testing import FakeKinesis, ManualClock, internal_failure, slow, throttle
from spark_job.driver.query_driver import (
    GIVEN_UP_S,
    LEFT_OUT,
    offset_of,
    read_offset,
)
from state.plan import PlanStatus
from state.process import this_process
from state.store.identity import Pause
from tests.simulation.in_process import Service
from tests.simulation.job import StreamJob
from tests.simulation.query import StreamsQuery
from tests.simulation.world import SkewedClock, World, base_settings
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.played_outcomes import PlayedOutcomes, policy

if TYPE_CHECKING:
    from state.memory_store import MemoryStateStore

STREAMS = ("orders", "clicks", "logins")
MOST_BATCHES = 20


def world_of(stream: str, clock: ManualClock, random: Random, shards: int) -> World:
    fake = FakeKinesis(clock=clock)
    fake.create(stream, shards=shards)
    return World(
        random,
        base_settings(stream),
        fake,
        clock,
        SkewedClock(clock),
        Service(fake),
        stream=stream,
    )


def query_of(shards: int = 1) -> StreamsQuery:
    """A query of three streams."""
    random, clock = Random(1), ManualClock()  # noqa: S311  # to repeat, not a secret
    worlds = [world_of(stream, clock, random, shards) for stream in STREAMS]
    query = StreamsQuery(worlds[0].settings, random=random, active=list(STREAMS))
    for world in worlds:
        world.share(worlds[0])
        StreamJob(query, world)
    clock.advance(10)
    return query


@pytest.fixture
def untracked() -> StreamsQuery:
    return query_of()


@pytest.fixture
def query(untracked: StreamsQuery) -> StreamsQuery:
    """The same, tracked. Every record fails once."""
    for job in untracked.jobs.values():
        job.tracked = PlayedOutcomes(
            job.world.store,
            job.world.clock.now_ms,
            lambda row: "at first" if row["attempt"] == 1 else None,
            policy(first_delay_ms=5_000),
        )
    untracked.track()
    return untracked


def waiting(world: World) -> int:
    return sum(len(state.unresolved) for state in world.states().values())


def run_with_all_streams(query: StreamsQuery) -> None:
    """Start it again with all of them. In the end its sink has what was put, each record once."""
    query.stop()
    query.active = list(STREAMS)
    for _ in range(MOST_BATCHES):
        query.run_batch()
    check_sink(query)


def test_due_retries_of_a_paused_stream_wait_for_the_end_of_its_pause(query: StreamsQuery) -> None:
    """Its other streams go on meanwhile. Afterwards the records are tried again."""
    orders, clicks = query.jobs["orders"], query.jobs["clicks"]
    orders.world.put(1)
    for _ in range(MOST_BATCHES):
        if waiting(orders.world):
            break
        query.run_batch()
    with closing(orders.world.look()) as store:
        store.pause.begin(Pause(by="an operator", since_ms=0))
    delivered, before = len(orders.delivered), waiting(orders.world)
    clicks.world.put(1)
    for _ in range(MOST_BATCHES):
        query.run_batch()
        query.jobs["orders"].world.clock.advance(1)
    assert len(orders.delivered) == delivered
    assert waiting(orders.world) == before > 0
    assert 2 in {row["attempt"] for row in clicks.delivered}
    with closing(orders.world.look()) as store:
        store.pause.end()
    for _ in range(MOST_BATCHES):
        query.run_batch()
    assert not waiting(orders.world)


def put(query: StreamsQuery, count: int) -> None:
    for stream in STREAMS:
        query.jobs[stream].world.put(count)


def check_sink(query: StreamsQuery) -> None:
    """It has each record of each stream once."""
    for job in query.jobs.values():
        rows = [row for rows in job.sink.values() for row in rows]
        found = [f"{row['shardId']}:{row['sequenceNumber']}" for row in rows]
        assert sorted(found) == sorted(job.world.ids())


def test_the_streams_share_the_limit_of_a_batch(untracked: StreamsQuery) -> None:
    """None of them has it for itself."""
    untracked.max_records = 4
    put(untracked, 10)
    for _ in range(MOST_BATCHES):
        untracked.run_batch()
    batches = len(untracked.offsets)
    sizes = [
        sum(len(untracked.jobs[stream].sink[batch]) for stream in STREAMS)
        for batch in range(batches)
    ]
    assert max(sizes) == 4
    check_sink(untracked)


def test_a_stream_that_comes_back_goes_on_behind_its_last_batch(untracked: StreamsQuery) -> None:
    """Its last plan is settled then, though the query was without it since."""
    put(untracked, 2)
    untracked.run_batch()
    untracked.stop()
    untracked.active = ["orders", "logins"]
    for _ in range(3):
        put(untracked, 1)
        untracked.run_batch()
    run_with_all_streams(untracked)


def test_a_batch_is_not_repeated_without_a_stream_that_it_has(untracked: StreamsQuery) -> None:
    """The error names the stream. With it, the batch is repeated."""
    put(untracked, 2)
    with pytest.raises(Crash):
        untracked.run_batch("sunk")
    untracked.active = ["orders", "logins"]
    with pytest.raises(
        ConfigError, match=r"records of stream clicks \(application orders-etl, batch 1-"
    ):
        untracked.run_batch()
    run_with_all_streams(untracked)


@pytest.mark.parametrize("renamed", [["clicks"], list(STREAMS)])
def test_a_renamed_application_is_refused_as_for_one_stream(
    untracked: StreamsQuery, renamed: list[str]
) -> None:
    """It has no state, so the records that arrived since the last batch would be skipped."""
    put(untracked, 2)
    for _ in range(MOST_BATCHES):
        untracked.run_batch()
    untracked.stop()
    for stream in renamed:
        untracked.jobs[stream].world.change(application="renamed")
    with pytest.raises(
        DataLossError, match=r"no state of application renamed on stream .*\. If application"
    ):
        untracked.run_batch()


def test_the_plan_that_a_batch_has_nothing_of_is_closed(untracked: StreamsQuery) -> None:
    """A driver dies when all streams are planned, and its successor plans two of them."""
    put(untracked, 2)
    with pytest.raises(Crash):
        untracked.run_batch("planned")
    orders = untracked.jobs["orders"]
    with closing(orders.world.look()) as store:
        store.pause.begin(Pause(by="an operator", since_ms=0))
        assert not is_closed(store)
    untracked.run_batch()
    with closing(orders.world.look()) as store:
        assert is_closed(store)


def is_closed(store: MemoryStateStore) -> bool:
    pointer = store.plans.pointer()
    assert pointer is not None
    return pointer.status is not PlanStatus.OPEN


def test_a_query_of_one_stream_becomes_one_of_several_and_back(untracked: StreamsQuery) -> None:
    """Whatever the order in which it names them, nothing is lost and nothing comes twice. The
    offsets keep the plans of the streams that it left.
    """
    for active, plans in (
        (["clicks"], 1),
        (["orders", "clicks"], 2),
        (["orders"], 2),
        (list(STREAMS), 3),
    ):
        untracked.active = active
        put(untracked, 1)
        for _ in range(MOST_BATCHES):
            untracked.run_batch()
        untracked.stop()
        assert len(read_offset(untracked.offsets[-1])) == plans
    check_sink(untracked)


@pytest.mark.parametrize("answer_s", [0.0, 0.5, 4.9, 7.0])
def test_an_available_now_run_does_not_end_without_a_stream_that_is_left_out(
    untracked: StreamsQuery, answer_s: float
) -> None:
    """However long another stream's answers take meanwhile: its rest ends within a pass that began
    without it.
    """
    put(untracked, 2)
    clicks, logins = untracked.jobs["clicks"].world, untracked.jobs["logins"].world
    clicks.fake.faults.add(internal_failure(), operation="GetRecords", times=12)
    logins.change(shard_refresh_interval_ms=1_000)
    logins.fake.faults.add(slow(answer_s), operation="ListShards", times=None)
    untracked.available_now = True
    untracked.run_until_idle()
    check_sink(untracked)


def fail(query: StreamsQuery, operation: str) -> None:
    for job in query.jobs.values():
        job.world.fake.faults.add(internal_failure(), operation=operation, times=None)


def heal(query: StreamsQuery) -> None:
    for job in query.jobs.values():
        job.world.fake.faults.clear()


def in_trouble(query: StreamsQuery) -> int:
    """How many streams are, as the query reports."""
    assert query.reader is not None
    report = query.reader.reportLatestOffset()
    assert report is not None
    return sum("trouble" in one for one in report["streams"])


def test_a_query_whose_streams_are_all_left_out_waits_for_them(untracked: StreamsQuery) -> None:
    """Spark asks again every 10 ms. Streams whose tasks come back empty are left out for as long as
    these have taken, and twice as long each time.
    """
    worlds = [untracked.jobs[stream].world for stream in STREAMS]
    for there in worlds:
        there.change(shard_refresh_interval_ms=1_000, idle_wait_ms=3_000, max_fetch_time_ms=300)
    clock = worlds[0].clock
    put(untracked, 1)
    for there in worlds:
        there.fake.faults.add(throttle(), operation="GetRecords", times=None)
    begun_s = clock.monotonic_s()
    for _ in range(10):
        assert untracked.run_batch() is True
    assert clock.monotonic_s() - begun_s > 20
    heal(untracked)
    untracked.run_until_idle()
    fail(untracked, "ListShards")
    for _ in range(3):
        begun_s = clock.monotonic_s()
        assert untracked.run_batch() is False
        assert clock.monotonic_s() - begun_s >= 3


def test_a_query_is_not_ended_by_an_error_that_has_healed(untracked: StreamsQuery) -> None:
    """Its streams are left out for longer than the patience with them lasts: they are asked again
    before the error counts.
    """
    clock = untracked.jobs["orders"].world.clock
    untracked.active = ["orders", "clicks"]
    assert not untracked.run_batch()
    for fails_until_the_end in (False, True):
        fail(untracked, "ListShards")
        clock.advance(LEFT_OUT.longest_s)
        assert not untracked.run_batch()
        failing_since_s = clock.monotonic_s()
        for advance_s in (6, 37):
            clock.advance(failing_since_s + advance_s - clock.monotonic_s())
            assert not untracked.run_batch()
        clock.advance(failing_since_s + GIVEN_UP_S + 1 - clock.monotonic_s())
        if fails_until_the_end:
            with pytest.raises(ServiceUnavailableError, match="ListShards"):
                untracked.run_batch()
            return
        heal(untracked)
        assert not untracked.run_batch()
        assert in_trouble(untracked) == 0


def test_a_stream_whose_shards_have_failed_together_is_left_out_once() -> None:
    """The error of the second shard would otherwise be raised at the next look, as a new one."""
    query = query_of(shards=2)
    assert not query.run_batch()
    fail(query, "GetRecords")
    assert not query.run_batch()
    assert in_trouble(query) == 3
    heal(query)
    query.jobs["orders"].world.clock.advance(LEFT_OUT.longest_s)
    assert not query.run_batch()
    assert in_trouble(query) == 0


def test_a_plan_that_an_import_does_not_bring_is_refused_with_the_way_on(
    untracked: StreamsQuery,
) -> None:
    """A query of one stream gets others after its state was imported and moved. The checkpoint
    location does not name its stream. With the stream alone it goes on, and then with all.
    """
    orders = untracked.jobs["orders"].world
    untracked.active = ["orders"]
    put(untracked, 2)
    with pytest.raises(Crash):  # the batch is done, and its plan is not settled
        untracked.run_batch("committed")
    with closing(orders.store()) as store:
        exported = export_application(store, "app", now_ms=0)
        assert exported is not None
        store.identity.reset(this_process(0), timeout_s=1)
        store.ownership.acquire(this_process(0), timeout_s=1)
        import_application(store, exported, now_ms=orders.clock.now_ms)
    untracked.active = list(STREAMS)
    with pytest.raises(
        KinesisError,
        match=r"imported or removed the state of orders(?s:.*) only the stream .*LATEST skips",
    ):
        untracked.run_batch()
    untracked.stop()
    untracked.active = ["orders"]
    assert untracked.run_batch() is True
    untracked.stop()
    untracked.active = list(STREAMS)
    untracked.run_until_idle()
    for job in untracked.jobs.values():
        read = {f"{row['shardId']}:{row['sequenceNumber']}" for row in job.delivered}
        assert read == job.world.ids()


ORDERS = "etl/orders"


@pytest.mark.parametrize(
    ("plans", "alone", "named"),
    [
        ({}, {"format": 1, "plan": ""}, {"format": 2, "plans": {}}),
        ({ORDERS: "1-a"}, {"format": 1, "plan": "1-a"}, {"format": 2, "plans": {ORDERS: "1-a"}}),
    ],
)
def test_an_offset_of_one_stream_does_not_name_it(
    plans: dict[str, str], alone: dict[str, object], named: dict[str, object]
) -> None:
    """Earlier versions read it."""
    assert offset_of(plans, names_streams=False) == alone
    assert offset_of(plans, names_streams=True) == named
    assert read_offset(alone) == dict(zip([""], plans.values(), strict=False))
    assert read_offset(named) == plans


@pytest.mark.parametrize("offset", [{}, {"orders": {"0": 23}}, 5])
def test_an_offset_of_another_source_is_refused(offset: Any) -> None:
    """Of Kafka, for example, or of the rate source."""
    with pytest.raises(ConfigError, match=r"belongs to a query of another source.*give the query"):
        read_offset(offset)


@pytest.mark.parametrize(
    "offset",
    [
        {"format": 3},
        {"format": 1},
        {"format": 2, "plans": ["a"]},
        {"format": 2, "plans": {"a": 1}},
    ],
)
def test_an_offset_of_another_format_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"contains an offset of format.*without state"):
        read_offset(offset)
