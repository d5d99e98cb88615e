"""The shard catalog: when it lists the shards, the states of new ones, and when one is given up."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.shards.catalog import ShardCatalog
from kinesis_spout.shards.data_loss import expired_unread
from kinesis_spout.testing import alter, error, late_listing
from kinesis_spout.testing.manual_clock import START_MS
from spark_job.driver.backlog import ShardTips
from state.errors import ConflictError
from state.plan import ShardReadResult
from state.position import SHARD_END, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.state.shard_values import waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


GONE = ShardState(
    shard_id="shardId-000000000099",
    read_position=Position.after(SequenceNumber(7)),
    checkpoint=SequenceNumber(7),
)
PIN = StartPin(
    time_ms=START_MS,
    requested="LATEST",
    position=Position.at_timestamp(1_000),
    shards=(shard(0), shard(1)),
)


class World:
    """A catalog on a simulated job, and the watch that it checks."""

    def __init__(self, job: SimulatedJob, *, only: Collection[str] = (), **options: Any) -> None:
        self.job = job
        settings = job.settings(**({"shard_refresh_interval": "10s"} | options))
        self.services = job.services(settings)
        self.watch = ShardTips()
        self.services.store.ownership.acquire(this_process(0), timeout_s=1)
        self.catalog = ShardCatalog(
            self.services.client,
            job.clock,
            self.watch,
            refresh_interval_s=settings.shard_refresh_interval_ms / 1000,
            fail_on_data_loss=settings.fail_on_data_loss,
            identity=self.services.store.identity,
            shard_states=self.services.store.shard_states,
            shard_list=self.services.store.shard_list,
            only=only,
        )
        self.catalog.states = dict(self.services.store.shard_states.load())

    def refresh(self, after_s: float = 0) -> None:
        self.job.clock.advance(after_s)
        self.catalog.refresh(PIN)
        self.catalog.drop_missing_shards()

    def store(self, *states: ShardState) -> None:
        self.catalog.save([StateChange(before=None, after=state) for state in states])

    def close(self) -> None:
        self.services.store.close()


@pytest.fixture
def world(job: SimulatedJob) -> Iterator[World]:
    with closing(World(job)) as made:
        yield made


DRAINED = msgspec.structs.replace(GONE, read_position=SHARD_END, unresolved=(waiting(6),))


def without_the_first(world: World, *, times: int | None) -> None:
    world.job.fake.faults.add(
        alter(lambda page: msgspec.structs.replace(page, shards=page.shards[1:])),
        operation="ListShards",
        times=times,
    )


# shards that are gone -----------------------------------------------------------------------------


def test_an_unread_shard_missing_from_two_listings_that_are_apart_stops_the_query(
    world: World,
) -> None:
    """Two listings right after one another count as one: two shards that end within a second cause
    two, and a shard that is listed late is missing in both.
    """
    world.store(GONE)
    world.refresh()
    world.catalog.stream.expire()
    world.refresh(after_s=1)
    with pytest.raises(
        DataLossError, match=r"shardId-000000000099 \(read position AFTER:7\).*failOnDataLoss"
    ):
        world.refresh(after_s=10)
    assert not world.job.states()[GONE.shard_id].end_was_read


def test_a_listing_whose_new_shards_were_not_stored_is_taken_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.refresh()
    world.job.fake.split("orders", shard(0))
    monkeypatch.setattr(ShardCatalog, "save", refuse)
    with pytest.raises(ConflictError):
        world.refresh(after_s=10)
    monkeypatch.undo()
    world.refresh()
    assert shard(2) in world.job.states()


def refuse(*_: object) -> None:
    raise ConflictError("another process has written")


# retention and lag --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verified_ms", "lost"), [(99, (99, 100)), (100, None), (None, None)], ids=str
)
def test_records_have_expired_when_nothing_is_known_of_their_shard_for_longer_than_the_retention(
    verified_ms: int | None, lost: tuple[int, int] | None
) -> None:
    """None of a shard whose end was read."""
    state = msgspec.structs.replace(GONE, verified_until_ms=verified_ms)
    assert expired_unread(state, 100) == lost
    assert expired_unread(msgspec.structs.replace(state, read_position=SHARD_END), 100) is None


def test_the_lag_is_that_of_the_furthest_shard_that_is_not_at_its_tip(world: World) -> None:
    """One that is finished has none."""
    world.store(ShardState(shard_id=shard(9), read_position=SHARD_END))
    world.refresh()
    world.job.clock.advance(30)
    assert max(world.catalog.lags_ms().values()) == 30_000
    world.watch.on_read(ShardReadResult(shard_id=shard(0), at_tip=True), 0, checked_s=0)
    assert max(world.catalog.lags_ms().values()) == 30_000
    world.watch.on_read(ShardReadResult(shard_id=shard(1), at_tip=True), 0, checked_s=0)
    assert max(world.catalog.lags_ms().values()) == 0


# retries of shards that are gone ------------------------------------------------------------------


def test_a_shard_with_retries_is_proven_gone_by_two_listings_and_a_question(world: World) -> None:
    """At least a refresh interval apart. It was read to its end, so it is no data loss."""
    world.store(DRAINED)
    world.refresh()
    assert world.catalog.loss.gone == set()
    world.catalog.stream.expire()
    world.refresh(after_s=1)
    assert world.catalog.loss.gone == set()
    world.job.count_calls()
    for _ in range(2):
        world.refresh(after_s=10)
    assert world.catalog.loss.gone == {DRAINED.shard_id}
    assert world.job.calls("GetShardIterator") == 2


def test_a_shard_that_answers_or_is_listed_again_is_not_gone(world: World) -> None:
    stored = msgspec.structs.replace(DRAINED, shard_id=shard(0))
    world.store(stored)
    world.job.fake.faults.add(late_listing(shard(0)), operation="ListShards", times=3)
    for _ in range(3):
        world.refresh(after_s=10)
    assert world.catalog.loss.gone == set()
    world.job.fake.faults.add(late_listing(shard(0)), operation="ListShards", times=1)
    unknown = error("ResourceNotFoundException", f"Shard {shard(0)} does not exist")
    world.job.fake.faults.add(unknown, operation="GetShardIterator", times=2)
    world.refresh(after_s=10)
    assert world.catalog.loss.gone == {shard(0)}
    world.refresh(after_s=10)
    assert world.catalog.loss.gone == set()


# holes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "reported"), [((1,), 0), ((5,), 1), ((2, 2), 2)])
def test_a_hole_is_reported_once_if_it_lasts_and_again_if_it_comes_back(
    world: World, caplog: pytest.LogCaptureFixture, missing: tuple[int, ...], reported: int
) -> None:
    """With the hash keys that no open shard covers. In one listing a new shard may be late."""
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        for times in missing:
            without_the_first(world, times=times)
            before = len(caplog.records)
            world.refresh(after_s=10)
            assert len(caplog.records) == before
            for _ in range(3):
                world.refresh(after_s=10)
    assert len(caplog.records) == reported
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert f"no open shard for the hash keys 0 to {2**127 - 1}" in record.getMessage()
