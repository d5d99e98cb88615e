"""The catalog over several listings: the removal of finished shards, and holes that last."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from kinesis_spout.testing import alter
from kinesis_spout.testing.manual_clock import START_MS
from state.position import SHARD_END, TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from tests.support.simulated.catalog_world import GONE, World
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(job: SimulatedJob) -> Iterator[World]:
    with closing(World(job)) as made:
        yield made


# finished shards that are not listed any more -----------------------------------------------------
def test_the_state_of_a_finished_shard_goes_when_it_is_not_listed_any_more(
    world: World,
) -> None:
    """Not before its retention is over, whatever a listing shows."""
    done = msgspec.structs.replace(
        GONE, read_position=SHARD_END, lifecycle=Lifecycle.FINISHED, verified_until_ms=START_MS
    )
    world.store(
        done, ShardState(shard_id=shard(0), read_position=TRIM_HORIZON, parents=(GONE.shard_id,))
    )
    world.refresh(after_s=24 * 3_600)
    assert GONE.shard_id in world.job.states()
    world.refresh(after_s=10)
    assert set(world.job.states()) == set(world.catalog.states) == {shard(0), shard(1)}
    assert world.catalog.readable() == [shard(0), shard(1)]


def test_a_drained_shard_stays_for_its_retries(world: World) -> None:
    record = UnresolvedRecord(first=SequenceNumber(8), last=SequenceNumber(8), attempts=1, due_ms=0)
    drained = msgspec.structs.replace(
        GONE,
        read_position=SHARD_END,
        lifecycle=Lifecycle.DRAINED,
        unresolved=(record,),
        verified_until_ms=START_MS,
    )
    world.store(
        drained, ShardState(shard_id=shard(0), read_position=TRIM_HORIZON, parents=(GONE.shard_id,))
    )
    world.refresh(after_s=25 * 3_600)
    assert GONE.shard_id in world.job.states()


# holes --------------------------------------------------------------------------------------------
def without_the_first(world: World, *, times: int | None) -> None:
    world.job.fake.faults.add(
        alter(lambda page: msgspec.structs.replace(page, shards=page.shards[1:])),
        operation="ListShards",
        times=times,
    )


def test_a_hole_that_lasts_is_reported_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """With the hash keys that no open shard covers."""
    without_the_first(world, times=5)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        world.refresh()
        assert caplog.records == []
        for _ in range(3):
            world.refresh(after_s=10)
    (record,) = caplog.records
    assert f"no open shard for the hash keys 0 to {2**127 - 1}" in record.getMessage()


def test_a_hole_that_comes_back_is_reported_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        for _ in range(2):
            without_the_first(world, times=2)
            for _ in range(3):
                world.refresh(after_s=10)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_a_hole_in_one_listing_is_not_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The list may show a new shard late."""
    without_the_first(world, times=1)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        for _ in range(4):
            world.refresh(after_s=10)
    assert caplog.records == []


def test_a_hole_in_a_changing_stream_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with simulated(shards=2, reshard_ms=3_600_000) as job, closing(World(job)) as world:
        job.fake.split(STREAM, shard(0))
        without_the_first(world, times=None)
        with caplog.at_level(logging.WARNING, "kinesis_spout"):
            for _ in range(4):
                world.refresh(after_s=10)
    assert caplog.records == []
