"""Cost of tracking each record: `map_records` against Spark's mapInArrow, with the same function.

    python benchmarks/outcomes.py [--records N] [--rounds N] [--json]

Both jobs read the same stream from the same local server with the same source, make the same
`Record` of each row, call the same function, and write its rows as parquet. The plain job acks
whole batches. The tracked one keeps each record's outcome and writes a report per batch; with
`--failing`, 1 % of its records fail for good. The rounds alternate. The result is the ratio of the
sums of all batches' durations. The server (FakeKinesis) is a process of its own on the same
machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from spark_job import DeadLetter, KinesisSource, Reject
from spark_job.process_services import ProcessServices
from spark_job.tracking.record_mapping import records_of
from state.zookeeper import embedded as embedded_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame

    from scheme import Record
    from spark_job import TrackedBatch

STREAM, SHARDS = "benchmark", 4
CREDENTIALS: dict[str, Any] = {"access_key_id": "benchmark", "secret_access_key": "benchmark"}
SCHEMA = "id BIGINT, total DOUBLE"
ARROW_SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.float64())])


def enrich(record: Record) -> dict[str, Any]:
    """A typical user function: parse a record, check it, make a row of it."""
    order = json.loads(record.data)
    if order["total"] < 0:
        raise Reject("negative total")
    return {"id": order["id"], "total": order["total"] * 1.19}


def serve(records: int, failing: bool, pipe: Connection) -> None:  # noqa: FBT001  # the target of a process
    """The server's process: put the records, send the address, end when the pipe closes."""
    fake = FakeKinesis()
    fake.create(STREAM, shards=SHARDS)
    for n in range(records):
        total = -1.0 if failing and n % 100 == 0 else n / 7
        order = {
            "id": n,
            "total": total,
            "customer": f"customer {n % 1000}",
            "note": "as ordered by telephone",
        }
        fake.put(STREAM, f"key {n}", json.dumps(order).encode())
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        try:
            pipe.recv()
        except EOFError:
            return


def plain_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The job without map_records: the same record objects and function, rows as Arrow."""
    for batch in batches:
        rows = []
        for record in records_of(batch):
            try:
                rows.append(enrich(record))
            except Reject:
                continue
        yield pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


def plain(out: str) -> Callable[[DataFrame, int], None]:
    def process(batch: DataFrame, batch_id: int) -> None:
        batch.mapInArrow(plain_rows, SCHEMA).write.mode("overwrite").parquet(
            f"{out}/batch={batch_id}"
        )

    return process


def tracked(source: KinesisSource, out: str) -> Callable[[DataFrame, int], None]:
    def process(batch: TrackedBatch) -> None:
        batch.map_records(enrich, SCHEMA).write.mode("overwrite").parquet(f"{out}/batch={batch.id}")

    return source.tracked(process, dead_letter=DeadLetter("parquet", path=f"{out}-dead"))


def run(
    spark: SparkSession, endpoint_url: str, zookeeper: str, directory: Path, *, is_tracked: bool
) -> tuple[int, float]:
    """Number of rows, and seconds of all batches together, of one AvailableNow query."""
    source = KinesisSource(
        stream=STREAM,
        application=directory.name,
        zookeeper=zookeeper,
        endpoint_url=endpoint_url,
        region="us-east-1",
        **CREDENTIALS,
        starting_position="TRIM_HORIZON",
        reads_per_second=1000,
        read_bytes_per_second="1GiB",
        max_records_per_shard=50_000,
    )
    out = str(directory / "out")
    writer = source.read_stream(spark).writeStream.foreachBatch(
        tracked(source, out) if is_tracked else plain(out)
    )
    query = (
        writer.option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [json.loads(progress.json) for progress in query.recentProgress]
    return sum(b["numInputRows"] for b in batches), sum(b["batchDuration"] for b in batches) / 1000


def measure(records: int, rounds: int, directory: Path, *, failing: bool) -> dict[str, Any]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(records, failing, theirs), daemon=True
    )
    server.start()
    theirs.close()
    seconds = {True: 0.0, False: 0.0}
    try:
        endpoint_url = ours.recv()
        zookeeper = embedded_zookeeper.ensure_running(directory / "zookeeper")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
        )
        spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        for number in range(rounds + 1):
            for is_tracked in (False, True) if number % 2 else (True, False):
                name = f"round-{number}-{'tracked' if is_tracked else 'plain'}"
                rows, spent_s = run(
                    spark, endpoint_url, zookeeper, directory / name, is_tracked=is_tracked
                )
                if rows < records:
                    raise SystemExit(f"{name} read {rows} of {records} records")
                seconds[is_tracked] += spent_s if number else 0  # the first round is a warm-up
        spark.stop()
    finally:
        ProcessServices.forget_all()
        ours.close()
        server.join(10)
        embedded_zookeeper.stop(directory / "zookeeper")
    return {
        "benchmark": "outcomes",
        "records": records,
        "rounds": rounds,
        "failing": failing,
        "plain_records_per_s": round(records * rounds / seconds[False]),
        "tracked_records_per_s": round(records * rounds / seconds[True]),
        "cost_percent": round(100 * (seconds[True] / seconds[False] - 1), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--failing", action="store_true", help="1 %% of the records are rejected and dead-lettered"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        found = measure(options.records, options.rounds, Path(directory), failing=options.failing)
    if options.json:
        print(json.dumps(found))
        return
    print(
        f"{found['records']:,} records, {found['rounds']} rounds of each"
        + (", 1 % rejected" if found["failing"] else "")
    )
    print(f"mapInArrow, whole batches acked   {found['plain_records_per_s']:>10,} records/s")
    print(f"map_records, each record tracked  {found['tracked_records_per_s']:>10,} records/s")
    print(f"cost of tracking                  {found['cost_percent']:>10} % (aim: at most 15)")


if __name__ == "__main__":
    main()
