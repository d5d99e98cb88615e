"""`kinesis-spout shards` on a FakeKinesis, with an application's state in memory."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kinesis_spout.cli.inspection.shards import inspect_shards
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState
from state.store.shard_states import StateChange
from tests.support.shell.command_line import call_cli
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.cli.inspection.shards import ShardsOfStream


def inspected(job: SimulatedJob, *, application: bool = True, lag: bool = False) -> ShardsOfStream:
    with closing(job.client()) as client, closing(job.store()) as store:
        return inspect_shards(
            client,
            store if application else None,
            application=APPLICATION,
            clock=job.clock,
            lag=lag,
        )


def store_states(job: SimulatedJob, *states: ShardState) -> None:
    with closing(job.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        store.shard_states.save([StateChange(before=None, after=state) for state in states])


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
        ShardState(shard_id=shard(2), read_position=SHARD_END, lifecycle=Lifecycle.FINISHED),
    )
    one.count_calls()
    lines = inspected(one, lag=True).lines
    assert [(line.lag_ms, line.lag_measured) for line in lines] == [
        (9_000, True),
        (None, False),
        (None, False),
    ]
    assert (one.calls("GetShardIterator"), one.calls("GetRecords")) == (1, 1)
    assert one.calls("ListShards") == one.calls("DescribeStreamSummary") == 1


# the command --------------------------------------------------------------------------------------
def test_an_embedded_zookeeper_that_never_ran_is_not_created(tmp_path: Path) -> None:
    arguments = (
        *("s", "--region", "eu-west-1"),
        *("--application", "a", "--zookeeper", "embedded:zk"),
    )
    ended = call_cli("shards", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: --zookeeper embedded:zk: no ZooKeeper has run in that directory, so there is no "
        "state\n"
    )
    assert list(tmp_path.iterdir()) == []
