"""A Spark query reads a stream, by our source, by awslabs', or by one that reads nothing
(`floor_source`). Everything but the source is the same.

    python -m benchmarks.peers.readers.spark ours|awslabs|floor backlog|idle|tip --endpoint URL
        --directory DIR --warm NAME:RECORDS --measured NAME:RECORDS [--jar JAR]
        [--option NAME=VALUE ...] [--schema DDL] [--pause SECONDS]

backlog: the records of a stream into the noop sink. idle: 20 s at the tip after a backlog. tip: the
time from a record's arrival until a batch with it is visible, for 40 s of a live stream.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from benchmarks.peers.readers import marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.05
SETTLED_S, IDLE_S = 8.0, 20.0
# A query that was stopped lets its planning process end a little later.
PAUSE_S = 2.0
TIP_S, TIP_WAIT_S, LIVE_PER_S = 40.0, 60.0, 20
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "peers", "AWS_SECRET_ACCESS_KEY": "peers"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=["ours", "awslabs", "floor"])
    parser.add_argument("task", choices=["backlog", "idle", "tip"])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--measured", required=True)
    parser.add_argument("--jar", type=Path)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--schema", help="the columns that our source shall make")
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="before a backlog begins")
    options = parser.parse_args()
    os.environ.update(CREDENTIALS, AWS_REGION="us-east-1", PYSPARK_PYTHON=sys.executable)
    job = Job(options)
    try:
        {"backlog": job.backlog, "idle": job.idle, "tip": job.tip}[options.task]()
    finally:
        job.stop()


class Job:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._directory: Path = options.directory
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.streaming.numRecentProgressUpdates", "2000")
        )
        if options.jar:
            builder = builder.config("spark.jars", str(options.jar))
        self._spark = builder.getOrCreate()

    def backlog(self) -> None:
        self._read(self._options.warm).stop()
        time.sleep(self._options.pause)  # noqa: TID251  # the warm query's processes end
        marks.begin()
        query = self._read(self._options.measured)
        marks.end(int(self._options.measured.partition(":")[2]))
        query.stop()

    def idle(self) -> None:
        query = self._read(self._options.warm)
        time.sleep(SETTLED_S)  # noqa: TID251  # after the last batch
        marks.begin()
        time.sleep(IDLE_S)  # noqa: TID251  # what is measured
        marks.end(0, seconds=IDLE_S)
        query.stop()

    def tip(self) -> None:
        seen = Arrivals()
        query = (
            self._frame(self._options.measured.partition(":")[0])
            .select("approximateArrivalTimestamp")
            .writeStream.foreachBatch(seen.take)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .start()
        )
        _wait(query, lambda: bool(seen.latency_s), at_most_s=SETTLED_S)
        time.sleep(SETTLED_S)  # noqa: TID251  # the first batches have the whole past
        marks.begin()
        first_s = time.time()  # noqa: TID251  # the records' arrival is in this clock
        last_s = first_s + TIP_S
        _wait(query, lambda: seen.newest_s > last_s, at_most_s=TIP_S + TIP_WAIT_S)
        # A record that is not visible yet has waited so long at least.
        latencies = [late for at, late in seen.latency_s.items() if first_s <= at <= last_s]
        records = round(TIP_S * LIVE_PER_S)
        unseen = max(0, records - len(latencies))
        latencies += [TIP_WAIT_S] * unseen
        marks.end(
            records,
            p50_ms=round(1000 * median(latencies)),
            p99_ms=round(1000 * quantiles(latencies, n=100)[98]),
            unseen=unseen,
        )
        query.stop()

    def stop(self) -> None:
        self._spark.stop()
        if self._options.source == "ours":
            from state.zookeeper import embedded  # noqa: PLC0415  # only where it is in use

            embedded.stop(self._directory / "zookeeper")

    def _read(self, stream: str) -> StreamingQuery:
        """A query that has read all of `NAME:RECORDS`, and goes on."""
        name, _, records = stream.partition(":")
        query = (
            self._frame(name, int(records))
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / name))
            .start()
        )
        java: Any = query
        rows, known = 0, None

        def is_read() -> bool:
            # Not query.recentProgress: as JSON through py4j it costs a tenth of the run's CPU.
            nonlocal rows, known
            last = java._jsq.lastProgress()  # noqa: SLF001
            if last is not None and (last.batchId(), last.numInputRows()) != known:
                known = (last.batchId(), last.numInputRows())
                rows = sum(each.numInputRows() for each in java._jsq.recentProgress())  # noqa: SLF001
            return rows >= int(records)

        _wait(query, is_read)
        if rows != int(records):
            raise SystemExit(f"the query read {rows} rows of {name}, which has {records} records")
        return query

    def _frame(self, stream: str, records: int = 0) -> DataFrame:
        """`records`: of the stream. Only a source that reads nothing has to be told."""
        extra = dict(option.split("=", 1) for option in self._options.option)
        endpoint = self._options.endpoint
        if self._options.source == "awslabs":
            options = {
                "kinesis.region": "us-east-1",
                "kinesis.kinesisRegion": "us-east-1",
                "kinesis.streamName": stream,
                "kinesis.endpointUrl": endpoint,
                "kinesis.consumerType": "GetRecords",
                "kinesis.startingPosition": "TRIM_HORIZON",
            }
            return self._spark.readStream.format("aws-kinesis").options(**options, **extra).load()
        if self._options.source == "floor":
            from benchmarks.peers.readers.floor_source import FloorSource  # noqa: PLC0415

            self._spark.dataSource.register(FloorSource)
            return self._spark.readStream.format("floor").options(**extra, rows=records).load()
        from spark_job import register  # noqa: PLC0415  # awslabs' process has nothing of ours

        register(self._spark)
        options = {
            "streamName": stream,
            "applicationName": stream,
            "zookeeper": f"embedded:{self._directory / 'zookeeper'}",
            "endpointUrl": endpoint,
            "region": "us-east-1",
            "startingPosition": "TRIM_HORIZON",
        }
        reader = self._spark.readStream.format("kinesis").options(**options, **extra)
        if self._options.schema:
            reader = reader.schema(self._options.schema)
        return reader.load()


class Arrivals:
    """Seconds from each record's arrival until its batch was visible. Live streams have at most one
    record a millisecond, so the time of arrival identifies it.
    """

    def __init__(self) -> None:
        self.latency_s: dict[float, float] = {}
        self.newest_s = 0.0

    def take(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.collect()
        now_s = time.time()  # noqa: TID251
        for row in rows:
            at_s = row[0].timestamp()
            self.latency_s.setdefault(at_s, now_s - at_s)
            self.newest_s = max(self.newest_s, at_s)


def _wait(query: StreamingQuery, is_done: Callable[[], bool], at_most_s: float = 600.0) -> None:
    java: Any = query
    deadline_s = time.monotonic() + at_most_s
    while not is_done() and time.monotonic() < deadline_s:
        if not java._jsq.isActive():  # noqa: SLF001
            raise SystemExit(f"the query failed: {query.exception()}")
        time.sleep(POLL_S)  # noqa: TID251  # Spark tells a Python process nothing


if __name__ == "__main__":
    main()
