"""The job on executors that are processes of their own, with the package as a wheel, as users ship
it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.support.shell.wheel import separate_executors
from tests.support.spark.job_process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest


@pytest.mark.spark
def test_the_job_runs_on_separate_executors_from_a_wheel(
    stream: StreamUnderTest, wheel: Path, tmp_path: Path
) -> None:
    """Driver and executors import the package from the shipped wheel; each record is read once, and
    the checkpoints are at the tips.
    """
    stream.put(300)
    job = {
        **separate_executors(wheel),
        "source": stream.fields(max_records_per_shard=40, max_tasks=4),
        "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    process = JobProcess(job, tmp_path, env={"PYTHONPATH": str(wheel)})
    process.start()
    assert process.wait(300) == 0, process.tail()
    rows = [
        row
        for file in (tmp_path / "out").rglob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert Counter(f"{row['shardId']}:{row['sequenceNumber']}" for row in rows) == Counter(
        stream.ids()
    )
    assert stream.checkpoints() == stream.tips()
    places = json.loads((tmp_path / "places.json").read_text())
    assert len(places["executors"]) == 2
    assert all(wheel.name in place for place in [places["driver"], *places["imported"]])
