"""Reading and listing shards through HTTP: within the limits that the service has, over many pages,
tokens that expire, and a reshard between two pages.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import ReadRate, StreamRef
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.shards.lineage import ShardLineage, ShardPhase, open_range_holes
from kinesis_spout.testing import alter
from kinesis_spout.testing.manual_clock import ManualClock
from kinesis_spout.testing.settings import FakeKinesisSettings
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from tests.support.kinesis.services import serve as serve_fake
from tests.support.kinesis.stub_kinesis import config_of
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.clock import Clock

FIRST = "shardId-000000000000"
MIB = 1024 * 1024


@contextmanager
def reading(url: str, stream: str, clock: Clock) -> Iterator[KinesisClient]:
    with closing(
        KinesisClient(config_of(url, region="us-east-1"), StreamRef(stream), clock=clock)
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("records", "least_s", "most_s"),
    [
        pytest.param([("k", MIB)] * 20, 0, 20 / 2 + 20 / 5 + 1, id="pages of 0 to 3 MB"),
        # Each page of ten MiB stops the shard for five seconds.
        pytest.param([("k", 10 * MIB - 1)] * 3, 9.9, 10.5, id="the largest records"),
        # The pace of their data alone would be refused at each page.
        pytest.param([("k" * 256, 10)] * 20_000, 0, 60, id="long keys"),
    ],
)
def test_pacing_keeps_within_the_limits_so_that_nothing_is_throttled(
    records: list[tuple[str, int]], least_s: float, most_s: float
) -> None:
    """As fast as the pace allows: the service never refuses a call."""
    clock = ManualClock()
    with (
        serve_fake(clock=clock, settings=FakeKinesisSettings(limits=True)) as fake,
        reading(fake.endpoint_url, "s", clock) as client,
    ):
        fake.model.create("s", max_record_kib=10_240)
        for key, size in records:
            fake.model.put("s", key, bytes(size))
        pacer = Pacer(ReadRate())
        getter = KinesisShardGetter(client, FIRST, TRIM_HORIZON, pacer=pacer, clock=clock)
        started_s, count, limits = clock.monotonic_s(), 0, iter((1, 3, 2, 1, 1, 1, 3, 3, 3, 2))
        while count < len(records):
            clock.sleep(getter.ready_at_s() - clock.monotonic_s())
            count += getter.fetch_unless_throttled(next(limits, 10_000)).count
        took_s = clock.monotonic_s() - started_s
    assert pacer.refused_in_a_row == 0
    assert least_s < took_s < most_s


MANY = 2_500
TOKEN_LIFE_S = 300


@pytest.fixture
def many() -> Iterator[SimulatedJob]:
    """A stream that is listed in three pages."""
    with simulated(shards=MANY) as made:
        yield made


@pytest.fixture
def client(job: SimulatedJob) -> Iterator[KinesisClient]:
    with closing(job.client()) as made:
        yield made


def after_the_first_page(job: SimulatedJob, act: Callable[[], object]) -> None:
    def acted(page: Any) -> Any:
        act()
        return page

    job.fake.faults.add(alter(acted), operation="ListShards")


def test_a_token_that_expires_between_two_pages_leaves_no_shard_out(many: SimulatedJob) -> None:
    """The listing begins again: two pages of which the second was refused, then three."""
    after_the_first_page(many, lambda: many.clock.advance(TOKEN_LIFE_S + 1))
    many.count_calls()
    with closing(many.client()) as client:
        listed = client.list_shards()
    assert [one.shard_id for one in listed] == [shard(index) for index in range(MANY)]
    assert open_range_holes(listed) == []
    assert many.calls("ListShards") == 2 + 3


def test_a_parent_that_was_open_on_its_page_holds_the_children_of_a_later_page(
    many: SimulatedJob,
) -> None:
    after_the_first_page(many, lambda: many.fake.split(STREAM, shard(0)))
    with closing(many.client()) as client:
        listed = client.list_shards()
    states = {
        one.shard_id: ShardState(shard_id=one.shard_id, read_position=TRIM_HORIZON)
        for one in listed
    }
    lineage = ShardLineage.of(listed, states)
    assert len(listed) == MANY + 2
    assert lineage.phase(shard(0)) is ShardPhase.READABLE
    assert [lineage.waits_for(shard(index)) for index in (MANY, MANY + 1)] == [(shard(0),)] * 2
    assert open_range_holes(listed) == []
