"""Listing the shards of a stream: many pages, tokens that expire, shards listed twice, a reshard
between two pages.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.shards.lineage import ShardLineage, ShardPhase, open_range_holes
from kinesis_spout.testing import alter
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.service.client import KinesisClient

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
