"""The demo's Spark job, as a program: writes the stream of flights as parquet, then computes
figures by carrier.

    python -m spark_job.demo.job DIRECTORY --endpoint-url URL --max-records-per-shard N [--faults]

With `--faults` it maps the records one by one with a function that raises on a cancelled flight. It
looks like a user's own job. The demo starts it, kills it and starts it again. `DemoDirectory` names
the files in DIRECTORY. The job does not know where it was killed: it resumes from ZooKeeper.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation writes it

from spark_job import DeadLetter, KinesisSource
from spark_job.commands.batch_writer import BatchWriter
from spark_job.commands.spark_session import spark_session
from spark_job.demo.flights import INTEGERS, TEXTS, cancelled_reason
from spark_job.demo.kinesis import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from spark_job.demo.manifest import APPLICATION, RETRY_LIMIT, STREAM, DemoDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from scheme import Record
    from spark_job import TrackedBatch

MASTER = "local[2]"
SCHEMA = ", ".join([*(f"{name} int" for name in INTEGERS), *(f"{name} string" for name in TEXTS)])
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def flights(batch: DataFrame) -> DataFrame:
    """The payloads as columns, with the shard and sequence number of each."""
    flight = F.from_json(F.col("data").cast("string"), SCHEMA)
    return batch.select(flight.alias("flight"), "shardId", "sequenceNumber").select(
        "flight.*", "shardId", "sequenceNumber"
    )


def departed(record: Record) -> dict[str, Any]:
    """The flight as a row, with its shard and sequence number.

    Raises on a cancelled flight, as any function may on unexpected input.
    """
    flight = json.loads(record.data)
    if flight["dep_time"] is None:
        raise ValueError(cancelled_reason(flight))
    return {**flight, "shardId": record.shard_id, "sequenceNumber": record.sequence_number}


def one_by_one(source: KinesisSource, directory: DemoDirectory) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that tracks each record: a record whose function raises is
    retried, and then dead-lettered.
    """

    def process(batch: TrackedBatch) -> None:
        rows = batch.map_records(departed, f"{SCHEMA}, shardId string, sequenceNumber string")
        rows.write.mode("overwrite").parquet(f"{directory.output}/batch={batch.id}")

    dead_letter = DeadLetter("parquet", path=str(directory.dead_letters))
    return source.tracked(
        process, retry_limit=RETRY_LIMIT, retry_first_delay="200ms", dead_letter=dead_letter
    )


def write_flights(
    spark: SparkSession,
    directory: DemoDirectory,
    *,
    endpoint_url: str,
    max_records_per_shard: int,
    faults: bool,
) -> None:
    """Read the stream and write it batch by batch. Blocks until all of it is read."""
    source = KinesisSource(
        stream=STREAM,
        application=APPLICATION,
        zookeeper=f"embedded:{directory.zookeeper}",
        region=REGION,
        endpoint_url=endpoint_url,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SECRET_ACCESS_KEY,
        starting_position="TRIM_HORIZON",
        max_records_per_shard=max_records_per_shard,
    )
    whole = BatchWriter(process=flights, format="parquet", path=str(directory.output))
    query = (
        source.read_stream(spark)
        .writeStream.foreachBatch(one_by_one(source, directory) if faults else whole)
        .option("checkpointLocation", str(directory.spark_checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_carriers(spark: SparkSession, directory: DemoDirectory) -> None:
    """Compute departures and mean departure delay by carrier from the written files, with Spark."""
    rows = (
        spark.read.parquet(str(directory.output))
        .groupBy("carrier")
        .agg(F.count("dep_delay").alias("departures"), F.avg("dep_delay").alias("mean_delay"))
        .collect()
    )
    directory.carriers.write_bytes(
        msgspec.json.encode({row.carrier: (row.departures, row.mean_delay) for row in rows})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The demo's Spark job.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--max-records-per-shard", type=int, required=True)
    parser.add_argument("--faults", action="store_true")
    arguments = parser.parse_args()
    directory = DemoDirectory(arguments.directory)
    with spark_session("kinesis-spout demo", master=MASTER, conf=CONF) as spark:
        write_flights(
            spark,
            directory,
            endpoint_url=arguments.endpoint_url,
            max_records_per_shard=arguments.max_records_per_shard,
            faults=arguments.faults,
        )
        write_carriers(spark, directory)


if __name__ == "__main__":
    main()
