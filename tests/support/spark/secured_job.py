"""A job of a user who keeps everything that Spark and Python write, run as a process of its own.

    python tests/support/spark/secured_job.py '{"secrets": file, "run": directory}'

`secrets`: the fields of a `KinesisSource` by name. It reads `good` with tracking. Then it fails
with `broken`, whose records cannot be read, with `stranger`, which ZooKeeper refuses, and with
`shown`, in a batch whose error shows all objects that a user has. What it wrote is in `run`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from spark_job import DeadLetter, KinesisSource
from state.errors import StateError
from tests.support.outcomes.tracked import FAST
from tests.support.spark.spark_job_under_test import session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from scheme import Record
    from spark_job import TrackedBatch

POISON = b"record 3"


def run(job: dict[str, Any]) -> None:
    directory = Path(job["run"])
    given = json.loads(Path(job["secrets"]).read_text())
    sources = {name: KinesisSource(**fields) for name, fields in given.items()}
    for name in ("events", "local"):
        directory.joinpath(name).mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": directory.joinpath("events").as_uri(),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "INFO",
    }
    spark = session("local[2]", conf)

    def write(batch: TrackedBatch) -> None:
        batch.df.explain("formatted")
        rows = batch.map_records(process, "n STRING, pid INT")
        rows.write.mode("append").parquet(str(directory / "rows"))

    letters = DeadLetter("parquet", path=str(directory / "letters"))
    query = start(spark, sources["good"], directory / "good", write, letters)
    query.explain(extended=True)
    query.awaitTermination()
    reports = [json.loads(one.json) for one in query.recentProgress]
    directory.joinpath("progress.json").write_text(json.dumps(reports))

    def show(batch: TrackedBatch) -> None:
        source = sources["shown"]
        raise ValueError(f"{source!r} {source.settings()!r} {batch!r} {batch.df!r} {vars(batch)}")

    for name, does in (("broken", write), ("stranger", write), ("shown", show)):
        error = error_of(spark, sources[name], directory / name, does, letters)
        directory.joinpath(f"{name}.error").write_text(error)
    spark.stop()


def process(record: Record) -> dict[str, Any]:
    logging.getLogger("job").info("%r", record)
    if record.data == POISON:
        raise ValueError("it is poison")
    return {"n": record.data.decode(), "pid": os.getpid()}


def start(
    spark: SparkSession,
    source: KinesisSource,
    directory: Path,
    does: Callable[[TrackedBatch], None],
    letters: DeadLetter,
) -> StreamingQuery:
    frame = source.read_stream(spark)
    frame.explain("formatted")
    tracked = source.tracked(does, dead_letter=letters, retry_limit=1, **FAST)
    writer = frame.writeStream.foreachBatch(tracked).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def error_of(spark: SparkSession, *arguments: Any) -> str:
    """All that a user sees of the error of a query that fails."""
    try:
        query = start(spark, *arguments)
        query.awaitTermination()
    except (PySparkException, StateError) as exc:
        return f"{exc!r}\n{exc}\n{traceback.format_exc()}"
    raise AssertionError("the query ended without an error")


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
