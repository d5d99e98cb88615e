"""The real job, which does not track its records, killed with SIGKILL at steps of a batch and
started again: nothing is lost, and the checkpoints are right. `kinesis-spout drill` kills one that
tracks them, at every step (`test_product_drills`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support.spark.job_process import JobProcess
from tests.support.spark.source import READ_MODES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

RECORDS = 200
STEPS = ("sink-written", "plan-closed", "shard-states-half-written")
"""Where it differs from a job that tracks its records: its batch has no report."""
"""A step of a task that reads more than it appends at once."""


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


@pytest.fixture
def job(stream: StreamUnderTest, tmp_path: Path) -> dict[str, Any]:
    """A job of several batches."""
    return {
        "source": stream.fields(max_records_per_shard=40),
        "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }


def written(out: Path) -> Counter[str]:
    """How often each record occurs in the output, by shard and sequence number."""
    files = sorted(out.glob("batch=*/*.parquet"))
    rows = [
        row
        for file in files
        for row in pq.ParquetFile(file).read(["shardId", "sequenceNumber"]).to_pylist()
    ]
    return Counter(f"{row['shardId']}:{row['sequenceNumber']}" for row in rows)


@pytest.mark.spark
def test_a_job_killed_at_its_steps_goes_on_without_loss(
    stream: StreamUnderTest, job: dict[str, Any], tmp_path: Path
) -> None:
    """At one step after the other, with more to read each time: every record is in the output, and
    the checkpoints are at the tips.
    """
    process = JobProcess(job, tmp_path)
    for name in STEPS:
        stream.put(RECORDS)
        process.stop_at = name
        process.start()
        process.wait_for_failpoint()
        process.kill()

    process.stop_at = None
    process.start()
    assert process.wait() == 0, process.tail()

    counts = written(tmp_path / "out")
    assert set(counts) == stream.ids()
    assert stream.checkpoints() == stream.tips()
    # A replayed batch has the same rows and overwrites its own directory, so not even a kill makes
    # a duplicate.
    assert max(counts.values()) == 1
