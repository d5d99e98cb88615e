"""A Spark job as a user would write it, run as a process of its own so that tests can kill it.

    python tests/support/spark/spark_job_under_test.py '<json>'

It reads a stream until it is caught up (AvailableNow). By default it writes each batch as parquet
into a directory of its own. With `tracked` it tracks each record. A record states its own outcome,
`{"n": 7, "kind": "good"}`: `always` fails in every attempt, `twice` in the first two. Undecodable
records are malformed. With `kills` the driver's process kills itself whenever it gets the record
with that number.
This output is appended, so a record that is processed twice appears twice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from scheme import JsonScheme
from spark_job import DeadLetter, KinesisSource
from state.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from scheme import Record
    from spark_job import TrackedBatch

WANTED = JsonScheme("n BIGINT NOT NULL, kind STRING NOT NULL")


def session(job: dict[str, Any]) -> SparkSession:
    """A Spark with a job's `master` and settings `conf`, and with its `pyFiles` on executors."""
    builder = SparkSession.builder.master(job.get("master", "local[2]"))
    plain = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    for key, value in (plain | job.get("conf", {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for file in job.get("pyFiles", []):
        spark.sparkContext.addPyFile(file)
    return spark


def caught_up(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    """The query that this starts, after its end: when it has read what is there."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def run(job: dict[str, Any]) -> None:
    spark = session(job)
    out = Path(job["out"])
    source = KinesisSource(**job["source"])
    function = tracked(source, job) if job.get("tracked") else whole(out)
    writer = source.read_stream(spark).writeStream.foreachBatch(function)
    query = caught_up(writer, job["checkpoint"])
    progress = [json.loads(p.json) for p in query.recentProgress]
    (out.parent / "progress.json").write_text(json.dumps(progress))
    spark.stop()


def whole(out: Path) -> Callable[[DataFrame, int], None]:
    """The function of a job that acks whole batches."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.drop("data").write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))
        failpoint("sink-written")

    return write


def tracked(source: KinesisSource, job: dict[str, Any]) -> Callable[[DataFrame, int], None]:
    """The function of a job that tracks its records."""

    def process(record: Record) -> dict[str, Any]:
        n, kind = WANTED.decode(record)
        if kind == "always":
            raise ValueError(f"record {n} is poison")
        if kind == "twice" and record.attempt <= 2:
            raise TimeoutError(f"record {n} is not ready")
        return {"n": n, "attempt": record.attempt}

    def process_batch(batch: TrackedBatch) -> None:
        if "kills" in job and job["kills"] in numbers(batch.df):
            os.kill(os.getpid(), signal.SIGKILL)
        batch.map_records(process, "n BIGINT, attempt INT").write.mode("append").parquet(job["out"])
        failpoint("sink-written")

    return source.tracked(
        process_batch,
        retry_limit=job.get("retryLimit", 3),
        retry_first_delay="100ms",
        retry_max_delay="1s",
        dead_letter=DeadLetter("parquet", path=job["dead"]),
    )


def numbers(frame: DataFrame) -> list[int]:
    return [json.loads(bytes(row.data))["n"] for row in frame.select("data").collect()]


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
