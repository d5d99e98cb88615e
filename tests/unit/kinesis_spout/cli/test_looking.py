"""What status, explain and shards ask of the service, on a FakeKinesis, with state in memory."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.cli.looking import Looking, look_once, refuse_another_stream
from kinesis_spout.cli.shards import inspect_shards
from kinesis_spout.errors import StreamNotFoundError
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.testing import error, throttle
from kinesis_spout.testing.service import requests
from state.errors import StreamMismatchError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.shard_states import StateChange
from tests.support.inspection.looks import RECREATED, look
from tests.support.shell.command_line import call_cli
from tests.support.simulated.simulated_driver import next_plan, one_batch
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.simulated.simulated_job import SimulatedJob


@contextmanager
def looking(job: SimulatedJob, *, max_asked: int = 100) -> Iterator[Looking]:
    with closing(job.client()) as client, closing(job.store()) as store:
        yield Looking(TipReader(client, job.clock), store, APPLICATION, max_asked)


def store_states(job: SimulatedJob, *states: ShardState) -> None:
    with job.owned_store() as store:
        store.shard_states.save([StateChange(before=None, after=state) for state in states])


def test_a_throttled_shard_is_not_asked_again(job: SimulatedJob) -> None:
    """Its consumer comes first."""
    states = (ShardState(shard_id=shard(one), read_position=TRIM_HORIZON) for one in (0, 1))
    store_states(job, *states)
    job.fake.faults.add(throttle(), operation="GetRecords", times=None)
    with looking(job) as looks:
        found = look_once(looks, None)
        assert looks.tips.refused is None
    assert job.calls("GetRecords") == 2
    assert found.unknown["notAsked"] == 2


def test_a_right_that_is_missing_ends_the_asking(job: SimulatedJob) -> None:
    """And is said. Nothing is asked in later looks either."""
    states = (ShardState(shard_id=shard(one), read_position=TRIM_HORIZON) for one in (0, 1))
    store_states(job, *states)
    job.fake.faults.add(error("AccessDeniedException", "no"), operation="GetRecords", times=None)
    with looking(job) as looks:
        look_once(looks, None)
        asked = job.calls("GetRecords")
        assert looks.tips.refused is not None
        look_once(looks, None)
    assert 1 <= asked <= 2
    assert job.calls("GetRecords") == asked


def test_the_state_of_an_earlier_stream_is_refused_with_both_times() -> None:
    """And with what the records that the present stream contains depend on."""
    seen = look(identity=RECREATED).now
    then, now = map(Position.at_timestamp, (RECREATED.created_ms, seen.stream.created_ms))
    both = f"the stream that was created at {then}, but the current stream was created at {now};"
    with pytest.raises(StreamMismatchError, match=both):
        refuse_another_stream(seen)
    with pytest.raises(StreamMismatchError, match="a job that starts at LATEST skips"):
        refuse_another_stream(seen)
    moved = look(identity=replace(RECREATED, arn="arn:elsewhere")).now
    with pytest.raises(
        StreamMismatchError, match="to stream arn:elsewhere, not to stream arn:aws:"
    ):
        refuse_another_stream(moved)


def test_the_lag_is_measured_only_of_shards_that_are_read_now(one: SimulatedJob) -> None:
    """One call for an iterator and one for a record, the last of its shard. None for shards that
    wait or are finished.
    """
    first, _ = one.put(2)
    one.clock.advance(9)
    one.fake.split(STREAM, shard(0))
    position = Position.after(SequenceNumber(first))
    store_states(
        one,
        ShardState(shard_id=shard(0), read_position=position),
        ShardState(shard_id=shard(1), read_position=TRIM_HORIZON, parents=(shard(0),)),
        ShardState(shard_id=shard(2), read_position=SHARD_END),
    )
    one.count_calls()
    with closing(one.client()) as client, closing(one.store()) as store:
        _, shards = inspect_shards(client, store, APPLICATION, one.clock, lag=True)
    assert [(line.lag_ms, line.lag_measured) for line in shards[:3]] == [
        (9_000, True),
        (None, False),
        (None, False),
    ]
    assert (one.calls("GetShardIterator"), one.calls("GetRecords")) == (1, 1)
    assert one.calls("ListShards") == one.calls("DescribeStreamSummary") == 1


def test_an_embedded_zookeeper_that_never_ran_is_not_created(tmp_path: Path) -> None:
    arguments = (
        *("s", "--region", "eu-west-1"),
        *("--application", "a", "--zookeeper", "embedded:zk"),
    )
    ended = call_cli("shards", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: no ZooKeeper server has run in the directory of ")
    assert "; correct the directory in --zookeeper" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_was_deleted_is_told_from_one_that_never_was(one: SimulatedJob) -> None:
    """The application's state says that it was there."""
    one.put(3)
    driver = one.coordinator()
    one_batch(one, driver, "", next_plan(driver))
    with one.fake.lock:
        one.fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    one.clock.advance(60)
    client = one.services(one.settings()).client
    with pytest.raises(
        StreamNotFoundError, match=r"the state of application app .* stream was deleted"
    ):
        read_snapshot(client, one.store(), application="app", clock=one.clock)
    with pytest.raises(StreamNotFoundError, match="check the stream's name"):
        read_snapshot(client, None, application="app", clock=one.clock)
