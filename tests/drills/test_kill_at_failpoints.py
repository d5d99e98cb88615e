"""The real job, killed with -9 at every step of a batch's life, started again: nothing is lost, checkpoints are right."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from state.failpoint import NAMES
from state.zookeeper_store import ZookeeperStateStore
from tests.support.job_process import JobProcess
from tests.support.kinesis import FakeService, kinesis_client

if TYPE_CHECKING:
    from pathlib import Path

    from state.shard_state import ShardState

RECORDS = 400
SHARDS = 4
STREAM = "drill"
APPLICATION = "drill-app"


@pytest.fixture
def stream(fake_kinesis: FakeService) -> dict[str, str]:
    """A stream with records; the last sequence number of each shard."""
    last: dict[str, str] = {}
    with kinesis_client(fake_kinesis.endpoint_url) as client:
        client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        records = [{"Data": f"record {n}".encode(), "PartitionKey": f"key {n}"} for n in range(RECORDS)]
        for answer in client.put_records(StreamName=STREAM, Records=records)["Records"]:
            last[answer["ShardId"]] = answer["SequenceNumber"]
    return last


@pytest.fixture
def job(fake_kinesis: FakeService, zookeeper_chroot: str, tmp_path: Path) -> dict[str, Any]:
    return {
        "source": {
            "stream": STREAM,
            "application": APPLICATION,
            "zookeeper": zookeeper_chroot,
            "endpoint_url": fake_kinesis.endpoint_url,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
            "starting_position": "TRIM_HORIZON",
            "max_records_per_shard": 40,
            "states_per_write": 1,
        },
        "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }


def written(out: Path) -> Counter[str]:
    """How often each record stands in the output, by shard and sequence number."""
    files = sorted(out.glob("batch=*/*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read(["shardId", "sequenceNumber"]).to_pylist()]
    return Counter(f"{row['shardId']}:{row['sequenceNumber']}" for row in rows)


def shard_states(zookeeper_chroot: str) -> dict[str, ShardState]:
    store = ZookeeperStateStore(zookeeper_chroot, root="kinesis-spout", application=APPLICATION, stream=STREAM)
    try:
        return {shard: stored.state for shard, stored in store.load_states().items()}
    finally:
        store.close()


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_job_killed_at_a_failpoint_goes_on_without_loss(
    name: str, stream: dict[str, str], job: dict[str, Any], zookeeper_chroot: str, tmp_path: Path
) -> None:
    """Killed at the failpoint, restarted, every record is in the output and every checkpoint at its shard's last record."""
    process = JobProcess(job, tmp_path, stop_at=name)
    process.start()
    process.wait_for_failpoint()
    process.kill()

    process.stop_at = None
    process.start()
    assert process.wait() == 0, process.tail()

    counts = written(tmp_path / "out")
    assert len(counts) == RECORDS
    states = shard_states(zookeeper_chroot)
    assert {shard: state.checkpoint_text for shard, state in states.items() if state.checkpoint} == stream
    # replays give the same rows into the same directory, so not even a kill makes a duplicate here
    assert max(counts.values()) == 1
