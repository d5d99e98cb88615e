"""`df.write.format("kinesis")` against boto3 loops in Spark jobs: CPU of the whole job, in one run.

    python benchmarks/spark_sink.py [--json] [--rounds N] [--records N] [--bytes B ...]

The frame is made by Spark from a range, so that reading costs next to nothing. `rows`: the usual
recipe, boto3 in `foreachPartition`. `arrow`: the same loop in `mapInArrow`, which is the least that
a loop of boto3 can cost in Spark. CPU is that of the driver, its JVM and the Python workers
together, and that of the workers alone. The server is a process of its own. Rounds alternate; the
medians count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.sink import BATCH, SIZES, STREAM, boto3_loop, served
from spark_job import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, Row

CORES = 2


def by_rows(frame: DataFrame, url: str) -> None:
    def put(rows: Iterator[Row]) -> None:
        boto3_loop(url, _batches(rows))

    frame.foreachPartition(put)


def _batches(rows: Iterator[Row]) -> Iterable[pa.RecordBatch]:
    while some := list(islice(rows, BATCH)):
        yield pa.record_batch(
            {"data": [row.data for row in some], "partitionKey": [row.partitionKey for row in some]}
        )


def by_arrow(frame: DataFrame, url: str) -> None:
    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"count": [boto3_loop(url, batches)]})

    frame.mapInArrow(put, "count long").write.format("noop").mode("overwrite").save()


def by_sink(frame: DataFrame, url: str, **options: str) -> None:
    frame.write.format("kinesis").mode("append").options(
        streamName=STREAM,
        endpointUrl=url,
        region="us-east-1",
        awsAccessKeyId="benchmark",
        awsSecretAccessKey="benchmark",
        **options,
    ).save()


WRITERS: dict[str, Callable[[DataFrame, str], None]] = {
    "boto3, rows": by_rows,
    "boto3, arrow": by_arrow,
    "sink": by_sink,
    "sink, aggregate=true": partial(by_sink, aggregate="true"),
}


class Server(NamedTuple):
    url: str
    pid: int


def cpu_s(server_pid: int) -> tuple[float, float]:
    """CPU seconds of the whole job, and of its Python workers."""
    whole = workers = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        if process.pid == server_pid:
            continue
        try:
            used = sum(process.cpu_times()[:4])  # with those of its children that have ended
            is_worker = process.pid != own.pid and "python" in process.name()
        except psutil.NoSuchProcess:
            continue
        whole += used
        workers += used if is_worker else 0.0
    return whole, workers


def measure(
    spark: SparkSession, server: Server, size: int, rounds: int, records: int
) -> dict[str, Any]:
    frame = spark.range(0, records, 1, CORES).selectExpr(
        f"CAST(repeat('x', {size}) AS BINARY) AS data", "concat('key ', id) AS partitionKey"
    )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WRITERS}
    for round_ in range(rounds + 1):
        for name, write in WRITERS.items():
            began, before = perf_counter(), cpu_s(server.pid)
            write(frame, server.url)
            after, seconds = cpu_s(server.pid), perf_counter() - began
            if round_:  # the first warms up
                found[name].append(
                    {
                        "job_cpu_us": 1e6 * (after[0] - before[0]) / records,
                        "worker_cpu_us": 1e6 * (after[1] - before[1]) / records,
                        "per_second": records / seconds,
                    }
                )
    return {
        "bytes": size,
        **{
            name: {key: median(run[key] for run in runs) for key in runs[0]}
            for name, runs in found.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The sink in Spark against boto3 loops.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES, dest="sizes")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with served() as (url, pid):
        builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.log.level", "ERROR").getOrCreate()
        register(spark)
        results = [
            measure(spark, Server(url, pid), size, arguments.rounds, arguments.records)
            for size in arguments.sizes
        ]
        spark.stop()
    if arguments.json:
        print(json.dumps(results))
        return
    for result in results:
        size = result.pop("bytes")
        for name, figures in result.items():
            print(
                f"{size:>5} B  {name:<22} {figures['job_cpu_us']:6.1f} us CPU a record, "
                f"{figures['worker_cpu_us']:6.1f} of them in Python workers, "
                f"{figures['per_second']:9,.0f} a second"
            )


if __name__ == "__main__":
    main()
