"""Several streams in one query: when the driver waits, and what it plans. In simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ServiceUnavailableError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import internal_failure, throttle
from spark_job.driver.coordinator import Coordinator
from spark_job.driver.offsets import start_offset
from spark_job.driver.query_driver import GIVEN_UP_S, LEFT_OUT, RETRY_FOR_S, QueryDriver
from spark_job.executor.task_reader import read_task
from spark_job.query_failure import StreamError
from spark_job.settings import QuerySettings
from state.errors import PlanClosedError
from state.memory_store import MemoryStateStore
from state.znodes.paths import ZookeeperPaths
from state.zookeeper.store import DEFAULT_ROOT
from tests.simulation.in_process import InlinePool
from tests.support.simulated.simulated_job import (
    STREAM,
    SimulatedJob,
    simulated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings

CLICKS = "clicks"


class Query:
    """A query of two streams of one shard each. `restart`: its driver is another process then."""

    def __init__(self, job: SimulatedJob, **options: Any) -> None:
        self.job = job
        self.settings = QuerySettings.of(
            [job.settings(**{"stream": name} | options) for name in (STREAM, CLICKS)]
        )
        self.before: dict[str, Any] = {}
        self.plans: dict[str, Any] = start_offset(is_of_one=False)
        self.restart()

    def restart(self) -> None:
        self.driver = QueryDriver(
            self.settings,
            [Coordinator(one, self._services(one)) for one in self.settings.streams],
            new_pool=InlinePool,
        )

    def _services(self, settings: SourceSettings) -> ProcessServices:
        services = self.job.services(settings, self.store(settings.stream.name))
        services.client = KinesisClient(
            settings.aws, settings.stream, clock=self.job.clock, retry_for_s=RETRY_FOR_S
        )
        self.job.opened.append(services.client)
        services.new_pool = InlinePool
        return services

    def store(self, stream: str) -> MemoryStateStore:
        application = self.settings.streams[0].application
        return MemoryStateStore(self.job.backend, application=application, stream=stream)

    def look(self) -> bool:
        """Whether there is another batch."""
        self.before = self.plans
        self.plans = self.driver.next_offset(self.before, max_records=None)
        return self.plans != self.before

    def run(self) -> list[tuple[str, int]]:
        """The rows of the batch: stream and number."""
        rows: list[tuple[str, int]] = []
        for stream, plan_id, task, plan in self.driver.tasks(self.before, self.plans):
            settings = self.settings.streams[stream]
            for batch in read_task(
                plan_id, task, plan, services=self._services(settings), settings=settings
            ):
                rows += [
                    (row["streamName"], int(row["sequenceNumber"])) for row in batch.to_pylist()
                ]
        return rows


@pytest.fixture
def two() -> Iterator[SimulatedJob]:
    with simulated(shards=1) as job:
        job.clock.advance(1)
        job.fake.create(CLICKS, shards=1)
        job.clock.advance(1)
        yield job


def test_a_query_whose_streams_are_all_left_out_waits_for_them(two: SimulatedJob) -> None:
    """Spark asks again every 10 ms."""
    for name in (STREAM, CLICKS):
        two.fake.put(name, "k", b"x")
    query = Query(two, max_fetch_time="300ms", idle_wait="1s")
    two.fake.faults.add(throttle(), operation="GetRecords", times=None)
    assert query.look()
    assert query.run() == []
    begun_s = two.clock.monotonic_s()
    assert query.look()
    assert two.clock.monotonic_s() - begun_s == pytest.approx(0.3, abs=0.1)


def test_a_query_is_not_ended_by_an_error_that_has_healed(two: SimulatedJob) -> None:
    """Its streams are left out for longer than the patience with them lasts: they are asked again
    before the error counts.
    """
    query = Query(two, idle_wait="1s")
    assert not query.look()
    for fails_until_the_end in (False, True):
        two.fake.faults.add(internal_failure(), operation="ListShards", times=None)
        two.clock.advance(LEFT_OUT.longest_s)
        assert not query.look()
        failing_since_s = two.clock.monotonic_s()
        for advance_s in (6, 37):
            two.clock.advance(failing_since_s + advance_s - two.clock.monotonic_s())
            assert not query.look()
        two.clock.advance(failing_since_s + GIVEN_UP_S + 1 - two.clock.monotonic_s())
        if fails_until_the_end:
            with pytest.raises(ServiceUnavailableError, match="ListShards"):
                query.look()
            return
        two.fake.faults.clear()
        assert not query.look()
        assert not any("trouble" in one for one in query.driver.report()["streams"])


def test_a_stream_whose_shards_have_failed_together_is_left_out_once() -> None:
    """The error of the second shard would otherwise be raised at the next look, as a new one."""
    with simulated(shards=2) as job:
        job.fake.create(CLICKS, shards=2)
        job.clock.advance(1)
        query = Query(job, idle_wait="1s")
        assert not query.look()
        job.fake.faults.add(internal_failure(), operation="GetRecords", times=None)
        assert not query.look()
        assert all("trouble" in one for one in query.driver.report()["streams"])
        job.fake.faults.clear()
        job.clock.advance(LEFT_OUT.longest_s)
        assert not query.look()
        assert not any("trouble" in one for one in query.driver.report()["streams"])


def test_a_stream_without_records_is_verified_while_another_one_has_some(
    two: SimulatedJob,
) -> None:
    """Else a restart reports that what it had may have expired."""
    two.fake.put(CLICKS, "k", b"x")
    query = Query(two)
    for hours in range(26):
        two.fake.put(STREAM, "k", b"x%d" % hours)
        assert query.look()
        query.run()
        two.clock.advance(3_600)
    query.driver.close()
    query.restart()
    two.fake.put(CLICKS, "k", b"y")
    assert query.look()
    assert CLICKS in {stream for stream, _ in query.run()}


def test_the_error_of_a_task_names_its_stream(two: SimulatedJob) -> None:
    """Both streams have a plan of the same number, and the application's name has the stream's."""
    two.fake.put(CLICKS, "k", b"x")
    query = Query(two, application=f"{CLICKS}-etl")
    assert query.look()
    tasks = query.driver.tasks(start_offset(is_of_one=False), query.plans)
    (clicks,) = (one for one in tasks if query.settings.streams[one.stream].label == CLICKS)
    settings = query.settings.streams[clicks.stream]
    paths = ZookeeperPaths(root=DEFAULT_ROOT, application=settings.application, stream=CLICKS)
    two.backend.remove([paths.batch(clicks.plan_id)])
    with pytest.raises(StreamError, match=f"^stream {CLICKS}: plan") as raised:
        read_task(
            clicks.plan_id,
            clicks.task,
            clicks.plan,
            services=query._services(settings),
            settings=settings,
        )
    assert isinstance(raised.value.__cause__, PlanClosedError)
