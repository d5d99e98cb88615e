"""The Spark source end to end against a plain boto3 loop: same records, same local server, one run.

    python benchmarks/spark_source.py [--records N] [--bytes B] [--json]

Both read all shards from the start. The boto3 loop only counts the records. Spark passes the rows
to its noop sink; every plan, published end and checkpoint goes through a real ZooKeeper. Spark's
start does not count, its batches do. The server (FakeKinesis) is a process of its own on the same
machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pyspark.sql import SparkSession

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from spark_job import KinesisSource
from state.zookeeper import embedded as embedded_zookeeper

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STREAM, SHARDS, PAGE = "benchmark", 4, 10_000
ACCESS: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "benchmark",
    "aws_secret_access_key": "benchmark",
}


def serve(records: int, size: int, pipe: Connection) -> None:
    """The server's process: put the records, send the address, end when the pipe closes."""
    fake = FakeKinesis()
    fake.create(STREAM, shards=SHARDS)
    data = bytes(range(256)) * (size // 256 + 1)
    for n in range(records):
        fake.put(STREAM, f"key {n}", data[:size])
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        try:
            pipe.recv()
        except EOFError:
            return


def boto3_loop(endpoint_url: str) -> tuple[int, float]:
    """Number of records, and seconds to read every shard to its tip, one after the other."""
    client = boto3.client("kinesis", endpoint_url=endpoint_url, **ACCESS)
    count, started = 0, time.perf_counter()
    for shard in client.list_shards(StreamName=STREAM)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        answer = client.get_records(ShardIterator=iterator["ShardIterator"], Limit=PAGE)
        while answer["Records"]:
            count += len(answer["Records"])
            answer = client.get_records(ShardIterator=answer["NextShardIterator"], Limit=PAGE)
    return count, time.perf_counter() - started


def spark_source(
    spark: SparkSession, endpoint_url: str, zookeeper: str, checkpoint: Path
) -> tuple[int, float, int]:
    """Number of records, seconds of all batches together, and number of batches.

    The query is one AvailableNow query to the noop sink.
    """
    source = KinesisSource(
        stream=STREAM,
        application=checkpoint.name,
        zookeeper=zookeeper,
        endpoint_url=endpoint_url,
        region=ACCESS["region_name"],
        access_key_id=ACCESS["aws_access_key_id"],
        secret_access_key=ACCESS["aws_secret_access_key"],
        starting_position="TRIM_HORIZON",
        reads_per_second=1000,
        read_bytes_per_second="1GiB",
        max_records_per_shard=100_000_000,
        max_bytes_per_task="256MiB",
    )
    writer = (
        source.read_stream(spark)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [json.loads(progress.json) for progress in query.recentProgress]
    return (
        sum(b["numInputRows"] for b in batches),
        sum(b["batchDuration"] for b in batches) / 1000,
        len(batches),
    )


def measure(records: int, size: int, directory: Path) -> dict[str, Any]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(records, size, theirs), daemon=True
    )
    server.start()
    theirs.close()
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
        spark_source(spark, endpoint_url, zookeeper, directory / "warm-up")
        plain, plain_s = boto3_loop(endpoint_url)
        rows, rows_s, batches = spark_source(spark, endpoint_url, zookeeper, directory / "measured")
        spark.stop()
    finally:
        ours.close()
        server.join(10)
        embedded_zookeeper.stop(directory / "zookeeper")
    if not plain == rows == records:
        raise SystemExit(
            f"the two did not read the same: boto3 {plain}, Spark {rows}, put {records}"
        )
    spark_rate, boto3_rate = rows / rows_s, plain / plain_s
    return {
        "benchmark": "spark_source",
        "records": records,
        "record_bytes": size,
        "shards": SHARDS,
        "spark_records_per_s": round(spark_rate),
        "spark_batches": batches,
        "boto3_records_per_s": round(boto3_rate),
        "times_faster": round(spark_rate / boto3_rate, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        found = measure(options.records, options.bytes, Path(directory))
    if options.json:
        print(json.dumps(found))
        return
    print(
        f"{found['records']:,} records of {found['record_bytes']} bytes over {found['shards']} "
        "shards"
    )
    print(
        f"Spark source, noop sink   {found['spark_records_per_s']:>10,} records/s in "
        f"{found['spark_batches']} batches"
    )
    print(f"plain boto3 loop          {found['boto3_records_per_s']:>10,} records/s")
    print(f"ratio                     {found['times_faster']:>10} x")


if __name__ == "__main__":
    main()
