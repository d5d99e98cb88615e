"""A task reads by subscription where one may be opened, and by GetRecords otherwise. The rows and
the log are the same.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.testing import alter, early_end, error, service_unavailable
from spark_job.executor.shard_feed import MAX_SUBSCRIPTIONS
from spark_job.executor.task_reader import Pace
from tests.simulation.in_process import Service
from tests.support.kinesis.fake_consumers import register
from tests.support.simulated.planned_task import BY_TWOS, PlannedTask, numbers_of, task, whole
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.testing import Fault
    from state.plan import ShardReadResult, ShardSlice

MINUTE_S = 60.0
DAY_MS = 86_400_000
BY_ONES = Pace(round_bytes=1, held_records=1, held_bytes=1)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A task that waits for ever without a wait, in simulated time, fails after so much CPU."""

    def stop(*_: object) -> None:
        raise AssertionError("the task does not end")

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10.0)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


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
def test_a_task_goes_on_by_polling_after_the_last_event(
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


def test_records_that_expire_during_a_subscription_are_said_to_have_lapsed(
    pairs: SimulatedJob,
) -> None:
    """Spark takes its time between two rows, and the subscription that goes on then began before
    the records expired. Polling tells the time of each page.
    """
    began_ms = pairs.clock.now_ms()
    first = pairs.put(2)
    pairs.clock.advance(MINUTE_S)
    pairs.put(2)  # they expire while the rows before them are handed over
    pairs.clock.advance(10 * MINUTE_S)
    last = pairs.put(2)
    pairs.clock.advance(DAY_MS / 1000 - 12 * MINUTE_S)
    pushed = Pushed(pairs, whole(verified_until_ms=began_ms), retention_ms=DAY_MS)
    rows = pushed.planned.attempt(service=pushed.service, pace=BY_ONES)
    found = numbers_of([next(rows)])
    pairs.clock.advance(4 * MINUTE_S)
    found += numbers_of(rows)
    assert found == first + last
    assert (pushed.end.pushed, pushed.service.reads) == (4, 0)
    assert pushed.end.lapsed_ms == pairs.clock.now_ms()


def test_the_end_of_a_shard_comes_with_its_children(pairs: SimulatedJob) -> None:
    put = pairs.put(3)
    pairs.fake.split(STREAM, shard(0))
    pushed = Pushed(pairs)
    assert pushed.rows() == put
    assert (pushed.end.at_shard_end, pushed.end.pushed) == (True, 3)
    assert [child.parents for child in pushed.end.children] == [(shard(0),)] * 2


def test_an_end_without_children_is_polled_for_evidence(pairs: SimulatedJob) -> None:
    """The log says that an open shard is at its tip, and has not ended."""
    put = pairs.put(3)
    pairs.fake.faults.add(
        alter(lambda event: msgspec.structs.replace(event, continuation_sequence_number=None)),
        operation="SubscribeToShard",
    )
    pairs.fake.faults.add(early_end(), operation="GetRecords", times=1)
    pushed = Pushed(pairs)
    assert pushed.rows() == put
    assert (pushed.end.at_shard_end, pushed.end.at_tip) == (False, True)
    assert pushed.end.fallback == Fallback.BROKEN
