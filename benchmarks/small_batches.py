"""What a small batch costs: CPU and time of batches of 20 records, and of an AvailableNow query.

    python -m benchmarks.small_batches [--batches N] [--json]

A query with the noop sink waits at the tip on `local[2]`. A server of another process (FakeKinesis)
gets 20 records as soon as the batch before them has ended. Then an AvailableNow query on the same
session reads 20 records of another stream. CPU is that of all the job's processes, as
`benchmarks.peers.measure` counts it: the JVM, Python workers, the planning process, ZooKeeper, and
this project's part in the driver. The server's is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from benchmarks.peers.measure import RUN_VARIABLE, cpu_s_of, kill, processes_of
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from spark_job import register
from state.zookeeper import embedded

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS, WARM_UP, POLL_S, TIMEOUT_S = 20, 10, 0.02, 60.0
JOB = "benchmarks.small_batches"  # also where this file runs as a script
STREAMS = ("warm", "tip", "once")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--job", nargs=2, metavar=("ENDPOINT", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        job(options.job[0], Path(options.job[1]))
        return
    figures = measure(options.batches)
    if options.json:
        print(json.dumps(figures))
        return
    for title, kind in (("a batch of 20 records", "batch"), ("AvailableNow, warm session", "once")):
        parts = ", ".join(f"{name} {cpu:.3f}" for name, cpu in figures[kind]["cpu_s_of"].items())
        print(f"{title}: {figures[kind]['s']:.2f} s, {figures[kind]['cpu_s']:.3f} CPU-s ({parts})")


def measure(batches: int) -> dict[str, Any]:
    """By kind of work, what one of them took: seconds, CPU-s, and CPU-s by kind of process."""
    run = uuid.uuid4().hex
    fake = FakeKinesis()
    for stream in STREAMS:
        fake.create(stream, shards=2)
    with (
        tempfile.TemporaryDirectory() as directory,
        FakeKinesisServer(fake) as server,
        subprocess.Popen(
            [sys.executable, "-m", JOB, "--job", server.endpoint_url, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, RUN_VARIABLE: run},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _read_once(fake, "warm", process.stdin, process.stdout)
            for _ in range(WARM_UP):
                _read_once(fake, "tip", process.stdin, process.stdout)
            found = {}
            for kind, stream, times in (("batch", "tip", batches), ("once", "once", 1)):
                started_s, before = time.perf_counter(), cpu_s_of(processes_of(run))
                for _ in range(times):
                    _read_once(fake, stream, process.stdin, process.stdout)
                seconds = time.perf_counter() - started_s
                spent = {
                    name: (cpu - before[name]) / times
                    for name, cpu in cpu_s_of(processes_of(run)).items()
                }
                found[kind] = {
                    "s": seconds / times,
                    "cpu_s": sum(spent.values()),
                    "cpu_s_of": spent,
                }
            process.stdin.close()
            process.wait(TIMEOUT_S)
        finally:
            kill(processes_of(run))
    return found


def _read_once(fake: FakeKinesis, stream: str, job_input: IO[str], job_output: IO[str]) -> None:
    """Put 20 records, and block until the job has read them."""
    for n in range(RECORDS):
        fake.put(stream, f"key {n}", b"x" * 100)
    job_input.write(f"{stream}\n")
    job_input.flush()
    if job_output.readline().strip() != stream:
        raise SystemExit("the job ended; its messages are above")


# the job's process


def job(endpoint: str, directory: Path) -> None:
    """Reads a stream's name from its input, and answers with it once its new records are read."""
    os.environ.update(CREDENTIALS, PYSPARK_PYTHON=sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.numRecentProgressUpdates", "4")
        .getOrCreate()
    )
    register(spark)
    zookeeper = directory / "zookeeper"

    def start(stream: str, **trigger: bool) -> StreamingQuery:
        frame = (
            spark.readStream.format("kinesis")
            .options(streamName=stream, applicationName=stream, startingPosition="TRIM_HORIZON")
            .options(endpointUrl=endpoint, region="us-east-1", zookeeper=f"embedded:{zookeeper}")
            .load()
        )
        writer = frame.writeStream.format("noop")
        if trigger:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(directory / stream)).start()

    tip, seen = None, dict[int, int]()
    try:
        for line in sys.stdin:
            stream = line.strip()
            if stream == "tip":
                tip = tip or start(stream)
                _wait_for(tip, seen)
            else:
                once = start(stream, availableNow=True)
                once.awaitTermination()
            print(stream, flush=True)
    finally:
        if tip is not None:
            tip.stop()
        spark.stop()
        embedded.stop(zookeeper)


def _wait_for(query: StreamingQuery, seen: dict[int, int]) -> None:
    """Block until the query has read 20 rows more. `seen`: each batch's rows, which grows."""
    java: Any = query
    deadline_s = time.monotonic() + TIMEOUT_S
    wanted = sum(seen.values()) + RECORDS
    while sum(seen.values()) < wanted:
        if not query.isActive or time.monotonic() > deadline_s:
            raise SystemExit(f"the query read {sum(seen.values())} rows: {query.exception()}")
        time.sleep(POLL_S)  # noqa: TID251  # Spark tells a Python process nothing
        last = java._jsq.lastProgress()  # noqa: SLF001
        if last is not None and last.batchId() not in seen:
            # The records of one put may be two batches. As JSON this would cost more than a batch.
            for each in java._jsq.recentProgress():  # noqa: SLF001
                seen[each.batchId()] = each.numInputRows()


if __name__ == "__main__":
    main()
