"""Two actions on one frame of a batch read, as a program for the shared cluster.

The job has the `options` of the read and a `folder`. After the first action it makes the file
`first` there, and waits for the file `second` before the other one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("messageId", "partitionKey", "sha2(data, 256)", "approximateArrivalTimestamp")
LIMIT_S = 120


def run(spark: SparkSession, job: dict[str, Any]) -> list[list[list[str]]]:
    """The rows of each action, sorted."""
    register(spark)
    folder = Path(job["folder"])
    frame = spark.read.format("kinesis").options(**job["options"]).load()
    first = rows_of(frame)
    (folder / "first").touch()
    tick = threading.Event()
    for _ in range(LIMIT_S * 20):
        if (folder / "second").exists():
            break
        tick.wait(0.05)
    return [first, rows_of(frame)]


def rows_of(frame: DataFrame) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in frame.selectExpr(*COLUMNS).collect())
