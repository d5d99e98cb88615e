"""Effect of a split under load: how long no record of the split shard arrives.

    python -m benchmarks.reshard [--per-second N] [--trigger S] [--json]

A producer puts records on LocalStack's Kinesis (its pip runtime: `make setup-test`) at a steady
rate, while Spark reads with a trigger of one second. Then the shard of these records is split. Each
record carries the time of its put. The results are the longest time between two batches with such
records, before and across the split, and the age of the oldest record on arrival. Everything runs
on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pyspark.sql import SparkSession

from localstack import runtime
from spark_job import KinesisSource
from spark_job.process_services import ProcessServices
from state.zookeeper import embedded as embedded_zookeeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

STREAM = "benchmark"
ACCESS: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "benchmark",
    "aws_secret_access_key": "benchmark",
}
WARM_UP_S, STEADY_S, AFTER_S, CATCH_UP_S = 15.0, 10.0, 15.0, 30.0


@dataclass
class Seen:
    """Deliveries: when a batch arrived, its number of records, and the put time of its oldest
    one.
    """

    batches: list[tuple[float, int, float]] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        del batch_id
        puts = [float(bytes(row.data)) for row in batch.select("data").collect()]
        if puts:
            self.batches.append((time.monotonic(), len(puts), min(puts)))

    def between(self, since_s: float, until_s: float) -> dict[str, float]:
        """Seconds: the longest time between two batches with records, and the greatest age of a
        record on arrival.
        """
        times = [came_s for came_s, _, _ in self.batches]
        gaps = [
            later - one for one, later in pairwise(times) if later >= since_s and one <= until_s
        ]
        ages = [came_s - put_s for came_s, _, put_s in self.batches if since_s <= came_s <= until_s]
        return {"gap": round(max(gaps), 2), "oldest": round(max(ages), 2)}

    @property
    def count(self) -> int:
        return sum(count for _, count, _ in self.batches)


def produce(client: Any, per_second: int, ending: threading.Event, put: list[int]) -> None:
    """Ten requests a second, until stopped."""
    while not ending.wait(0.1):
        entries = [
            {"Data": repr(time.monotonic()).encode(), "PartitionKey": f"key {n}"}
            for n in range(per_second // 10)
        ]
        client.put_records(StreamName=STREAM, Records=entries)
        put[0] += len(entries)


def split(client: Any) -> None:
    (shard,) = client.list_shards(StreamName=STREAM)["Shards"]
    client.split_shard(
        StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(2**127)
    )


def start_query(
    endpoint_url: str, zookeeper: str, directory: Path, trigger_s: float, seen: Seen
) -> StreamingQuery:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
    )
    source = KinesisSource(
        stream=STREAM,
        application="reshard",
        zookeeper=zookeeper,
        endpoint_url=endpoint_url,
        region="us-east-1",
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # a local server asks for some
        starting_position="TRIM_HORIZON",
    )
    stream = source.read_stream(builder.getOrCreate()).writeStream.foreachBatch(seen)
    stream = stream.option("checkpointLocation", str(directory / "checkpoint"))
    return stream.trigger(processingTime=f"{trigger_s} seconds").start()


def load(
    client: Any, query: StreamingQuery, per_second: int, seen: Seen
) -> tuple[int, float, float]:
    """Put records before and after a split, and wait until all have arrived.

    Returns their number, the time of the split, and the time of the last put.
    """
    ending, put = threading.Event(), [0]
    producer = threading.Thread(target=produce, args=(client, per_second, ending, put))
    producer.start()
    try:
        ending.wait(WARM_UP_S + STEADY_S)
        split_s = time.monotonic()
        split(client)
        ending.wait(AFTER_S)
    finally:
        ending.set()
        producer.join()
    end_s = time.monotonic()
    while seen.count < put[0] and time.monotonic() - end_s < CATCH_UP_S:
        query.awaitTermination(1)
    if seen.count != put[0]:
        raise SystemExit(f"{seen.count} records came of {put[0]}")
    return put[0], split_s, end_s


def measure(per_second: int, trigger_s: float, directory: Path) -> dict[str, Any]:
    seen = Seen()
    zookeeper = embedded_zookeeper.ensure_running(directory / "zookeeper")
    try:
        with runtime.running(directory / "localstack.log") as service:
            client = boto3.client("kinesis", endpoint_url=service.endpoint_url, **ACCESS)
            client.create_stream(StreamName=STREAM, ShardCount=1)
            client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
            query = start_query(service.endpoint_url, zookeeper, directory, trigger_s, seen)
            records, split_s, end_s = load(client, query, per_second, seen)
            query.stop()
            SparkSession.builder.getOrCreate().stop()
    finally:
        ProcessServices.forget_all()
        embedded_zookeeper.stop(directory / "zookeeper")
    before, over = seen.between(split_s - STEADY_S, split_s), seen.between(split_s, end_s)
    return {
        "benchmark": "reshard",
        "records": records,
        "trigger_s": trigger_s,
        "before_s": before,
        "over_split_s": over,
        "gap_in_triggers": round(over["gap"] / trigger_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-second", type=int, default=200)
    parser.add_argument("--trigger", type=float, default=1.0, help="seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        found = measure(options.per_second, options.trigger, Path(directory))
    if options.json:
        print(json.dumps(found))
        return
    before, over = found["before_s"], found["over_split_s"]
    print(f"{found['records']:,} records through a split, a trigger of {found['trigger_s']} s")
    print(
        f"longest time without a record   {before['gap']:>6} s before, {over['gap']:>6} s over it"
    )
    print(
        f"age of the oldest on arrival    {before['oldest']:>6} s before, {over['oldest']:>6} s "
        "over it"
    )
    print(f"the gap in triggers             {found['gap_in_triggers']:>6} (aim: at most 3)")


if __name__ == "__main__":
    main()
