"""The position that a requested start is pinned to, that the service takes it, and that it is
pinned once.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from kinesis_spout.errors import ConfigError, ThrottledError
from kinesis_spout.shards.start_position import (
    RequestedStart,
    new_shards,
    pin_start,
    start_position,
)
from kinesis_spout.testing import throttle
from state.memory_store import MemoryBackend
from state.position import TRIM_HORIZON, Position, StartingPosition
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard
from tests.support.state import shard_values


def pin(
    job: SimulatedJob,
    text: str,
    shards: dict[str, str] | None = None,
    *,
    only: tuple[str, ...] = (),
) -> StartPin:
    """What the first start of an application with this start stores."""
    with closing(job.client()) as client, closing(job.store()) as store:
        named = tuple((one, StartingPosition.parse(each)) for one, each in (shards or {}).items())
        start = RequestedStart(default=StartingPosition.parse(text), shards=named)
        return pin_start(store.identity, client, start, job.clock.now_ms(), only=only)


def stored(job: SimulatedJob) -> StartPin | None:
    with closing(job.store()) as store:
        return store.identity.read_start()


def number(job: SimulatedJob, index: int) -> int:
    """The sequence number of a new record in that shard."""
    return job.put(1, key=job.key_of(index))[0]


def test_a_start_in_the_future_or_of_a_misspelt_shard_is_refused_and_nothing_is_pinned(
    job: SimulatedJob,
) -> None:
    """The service would refuse it at every read, and a pin is never replaced. The service's clock
    is known to the second only, so its time is no future.
    """
    future = str(Position.at_timestamp(job.clock.now_ms() + 3_000))
    misspelt = "shardId-O00000000001"
    for default, named, says in (
        (future, {}, "startingPosition.*in the future.*use LATEST"),
        ("LATEST", {shard(0): future}, "startingPosition.*in the future.*use LATEST"),
        (
            "LATEST",
            {misspelt: "TRIM_HORIZON"},
            f"names shard '{misspelt}'.*did you mean {shard(1)}",
        ),
    ):
        with pytest.raises(ConfigError, match=says):
            pin(job, default, named)
        assert stored(job) is None
    soon = Position.at_timestamp(job.clock.now_ms() + 1_000)
    assert pin(job, str(soon)).position == soon


@pytest.mark.parametrize("kind", ["AT", "AFTER"])
@pytest.mark.parametrize("of", ["no stream", "another shard", "another stream"])
def test_a_number_that_a_shard_refuses_is_not_pinned_and_another_start_is_free(
    job: SimulatedJob, kind: str, of: str
) -> None:
    """A pin is never replaced: stored, it would block the application."""
    known = number(job, 0)
    given = {"no stream": 123, "another shard": known, "another stream": known * 7}[of]
    refused = shard(1) if of == "another shard" else shard(0)
    with pytest.raises(
        ConfigError,
        match=rf"option startingPosition: '{kind}:{given}' is not a position in shard {refused}: ",
    ):
        pin(job, f"{kind}:{given}")
    assert stored(job) is None
    assert pin(job, "TRIM_HORIZON").position == TRIM_HORIZON


def test_a_number_of_a_shard_that_was_split_is_a_start_for_it_and_what_comes_from_it(
    one: SimulatedJob,
) -> None:
    """The children go on behind it, so they are read from their beginnings."""
    first = one.put(1)[0]
    one.fake.split(STREAM, shard(0))
    found = pin(one, f"AT:{first}")
    assert [start_position(shard(index), found) for index in range(3)] == [
        Position.at(SequenceNumber(first)),
        TRIM_HORIZON,
        TRIM_HORIZON,
    ]


def test_a_service_that_does_not_answer_has_refused_nothing_and_nothing_is_pinned(
    job: SimulatedJob,
) -> None:
    """Its error is raised; a throttle that is soon over is waited out."""
    known = {shard(0): f"AT:{number(job, 0)}"}
    job.fake.faults.add(throttle(), operation="GetShardIterator", times=None)
    with pytest.raises(ThrottledError):
        pin(job, "LATEST", known)
    assert stored(job) is None
    job.fake.faults.clear()
    job.fake.faults.add(throttle(), operation="GetShardIterator", times=2)
    assert pin(job, "LATEST", known) == stored(job)


def test_only_a_position_that_is_named_is_asked_for_and_a_time_only_once(
    job: SimulatedJob,
) -> None:
    """A stream may have thousands of shards."""
    job.count_calls()
    pin(job, "LATEST")
    assert job.calls("GetShardIterator") == 0
    job.backend = MemoryBackend()
    pin(job, "-2h")
    assert job.calls("GetShardIterator") == 1


# shards without a state ---------------------------------------------------------------------------
NOW_PIN = StartPin(
    time_ms=1_002_000, requested="LATEST", position=Position.at_timestamp(1_000_000), shards=("a",)
)


@pytest.mark.parametrize(
    ("parent", "verified_ms"),
    [
        (shard_values.state("a"), 5),
        # found late, after a long downtime: its records of that time may have expired
        (shard_values.state("a", ended=True, verified_until_ms=3), 3),
    ],
    ids=["read", "finished long ago"],
)
def test_only_listed_shards_without_a_state_get_one_with_their_parents_kept(
    parent: ShardState, verified_ms: int
) -> None:
    """It is verified up to the end of a parent that was finished before."""
    listing = [shard_values.shard("a"), shard_values.shard("c", "a")]
    (child,) = new_shards(listing, {"a": parent}, NOW_PIN, tracked_since_ms=5)
    assert child == ShardState(
        shard_id="c",
        read_position=TRIM_HORIZON,
        parents=("a",),
        verified_until_ms=verified_ms,
    )
