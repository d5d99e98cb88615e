"""A real job over two streams, killed with SIGKILL at its steps, also between those of one stream
and of the other: nothing is lost, and both streams' checkpoints are right.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import create_stream
from tests.support.spark.job_process import JobProcess
from tests.support.spark.source import APPLICATION, STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

CLICKS = "clicks"
RECORDS = 60
STEPS = (
    *("plan-created", "plan-logged", "report-opened", "sink-written"),
    *("dead-letters-written", "plan-closed", "plan-settled"),
)


@pytest.fixture
def job(stream: StreamUnderTest, tmp_path: Path) -> dict[str, Any]:
    create_stream(stream.client, CLICKS, shards=4)
    return {
        "source": stream.fields(stream=f"{STREAM},{CLICKS}", max_records_per_shard=40),
        "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "dead": str(tmp_path / "dead"),
    }


def put(stream: StreamUnderTest, name: str, numbers: range, kind: str = "good") -> set[str]:
    entries = [
        {"Data": json.dumps({"n": n, "kind": kind}).encode(), "PartitionKey": str(n)}
        for n in numbers
    ]
    answers = stream.client.put_records(StreamName=name, Records=entries)["Records"]
    return {f"{name}/{one['ShardId']}:{one['SequenceNumber']}" for one in answers}


def unsettled(stream: StreamUnderTest) -> Iterator[str]:
    """Shards whose state is not at the last record, or has unresolved ones."""
    for name in (STREAM, CLICKS):
        store = ZookeeperStateStore(
            stream.zookeeper, root="kinesis-spout", application=APPLICATION, stream=name
        )
        try:
            for shard, stored in store.shard_states.load().items():
                if stored.state.unresolved:
                    yield f"{name}/{shard}"
        finally:
            store.close()


def run_killed_at(process: JobProcess, step: str) -> None:
    process.stop_at = step
    process.start()
    process.wait_for_failpoint()
    process.kill()


@pytest.mark.spark
def test_a_tracked_job_over_two_streams_is_killed_and_loses_nothing(
    stream: StreamUnderTest, job: dict[str, Any], tmp_path: Path
) -> None:
    """Poison is on one stream only; its letters are of that stream, each once."""
    process = JobProcess(job | {"tracked": True, "retryLimit": 1}, tmp_path)
    good: set[int] = set()
    poison: set[int] = set()
    for turn, name in enumerate(STEPS):
        first = turn * 1_000
        put(stream, STREAM, range(first, first + RECORDS))
        put(stream, CLICKS, range(first + 500, first + 500 + RECORDS))
        put(stream, CLICKS, range(first + 900, first + 903), "always")
        good |= {*range(first, first + RECORDS), *range(first + 500, first + 500 + RECORDS)}
        poison |= {*range(first + 900, first + 903)}
        run_killed_at(process, name)
    process.stop_at = None
    process.start()
    assert process.wait() == 0, process.tail()

    written = {
        row["n"]
        for file in (tmp_path / "out").glob("*.parquet")
        for row in pq.ParquetFile(file).read(["n"]).to_pylist()
    }
    letters = [
        row
        for file in (tmp_path / "dead").glob("plan=*/*.parquet")
        for row in pq.ParquetFile(file).read(["streamName", "data"]).to_pylist()
    ]
    assert written == good
    assert {row["streamName"] for row in letters} == {CLICKS}
    assert sorted(json.loads(row["data"])["n"] for row in letters) == sorted(poison)
    assert list(unsettled(stream)) == []
