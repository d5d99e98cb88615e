"""A job of a user who keeps everything that Spark and Python write, run as a process of its own.

    python tests/support/spark/secured_job.py '{"secrets": file, "run": directory}'

`secrets`: the fields of a `KinesisSource` by name, or of several. It reads `good` with tracking,
then `several` with a role for each stream, the second by enhanced fan-out. Then it fails with
`broken`, whose records cannot be read, with `stranger`, which ZooKeeper refuses, and with `shown`,
in a batch whose error shows all objects that a user has. What it wrote is in `run`, and what it
served as metrics.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from pyspark.errors import PySparkException

from spark_job import DeadLetter, KinesisSource
from spark_job.metrics import serve
from state.errors import StateError
from tests.support.outcomes.tracked import FAST
from tests.support.spark.spark_job_under_test import session
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from scheme import Record
    from spark_job import TrackedBatch
    from spark_job.kinesis_source import KinesisStreams

READ = ("good", "several")
POISON = b"record 3"


def run(job: dict[str, Any]) -> None:
    directory = Path(job["run"])
    given = json.loads(Path(job["secrets"]).read_text())
    sources = {name: source_of(fields) for name, fields in given.items()}
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
    spark = session({"conf": conf})

    with serve(spark, 0) as server:
        for name in READ:
            read(spark, name, sources[name], directory / name, server.url)

    def show(batch: TrackedBatch) -> None:
        source = sources["shown"]
        assert isinstance(source, KinesisSource)
        raise ValueError(f"{source!r} {source.settings()!r} {batch!r} {batch.df!r} {vars(batch)}")

    def count(batch: TrackedBatch) -> None:
        batch.map_records(process, "n STRING, pid INT").count()

    for name, does in (("broken", count), ("stranger", count), ("shown", show)):
        error = error_of(spark, sources[name], directory / name, does)
        directory.joinpath(f"{name}.error").write_text(error)
    spark.stop()


def source_of(fields: dict[str, Any] | list[dict[str, Any]]) -> KinesisSource | KinesisStreams:
    if isinstance(fields, dict):
        return KinesisSource(**fields)
    return KinesisSource.several([KinesisSource(**one) for one in fields])


def read(
    spark: SparkSession,
    name: str,
    source: KinesisSource | KinesisStreams,
    directory: Path,
    metrics_url: str,
) -> None:
    """To the end. Rows, letters, progress and the page of metrics are left in the directory."""

    def page() -> str:
        with urlopen(metrics_url, timeout=60) as answer:  # noqa: S310  # of this process
            return str(answer.read().decode())

    def write(batch: TrackedBatch) -> None:
        batch.df.explain("formatted")
        rows = batch.map_records(process, "n STRING, pid INT")
        rows.write.mode("append").parquet(str(directory / "rows"))
        if batch.id:  # the retry of the poison; the report of the batch before it comes eventually
            wait_until(lambda: 'stream="orders"' in page())
            directory.joinpath("metrics.txt").write_text(page())

    query = start(spark, source, directory, write)
    query.explain(extended=True)
    query.awaitTermination()
    reports = [json.loads(one.json) for one in query.recentProgress]
    directory.joinpath("progress.json").write_text(json.dumps(reports))


def process(record: Record) -> dict[str, Any]:
    logging.getLogger("job").info("%r", record)
    if record.data == POISON:
        raise ValueError("it is poison")
    return {"n": record.data.decode(), "pid": os.getpid()}


def start(
    spark: SparkSession,
    source: KinesisSource | KinesisStreams,
    directory: Path,
    does: Callable[[TrackedBatch], None],
) -> StreamingQuery:
    frame = source.read_stream(spark)
    frame.explain("formatted")
    letters = DeadLetter("parquet", path=str(directory / "letters"))
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
