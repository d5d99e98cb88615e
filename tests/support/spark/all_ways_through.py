"""A stream through everything that Spark does with it, as a program for the shared cluster: a
tracked query whose dead letters go to a stream, a batch read, the sink, and a redrive.

The job has `source` and `tracking`: arguments of `KinesisSource` and of its `tracked`; `bad` and
`late`: SHA-256 of payloads that fail always, and in their first attempt; `aws`: arguments of
`AwsConfig`; `connection`: options that go with any stream's name; `sink`: others of the sink;
`dead`, `copy` and `back`: streams for letters, for the sink and for the redrive; `folder`: new.
"""

from __future__ import annotations

import itertools
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.checkpoints.redrive import Redrive, Selection
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.dead_letter.files import LetterFormat
from spark_job import DeadLetter, KinesisSource, Retry, register
from spark_job.dead_letter.spark_files import SparkLetterFiles
from tests.support.spark.spark_job_under_test import caught_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from scheme import Record
    from spark_job import TrackedBatch


def run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """Payloads are returned as their SHA-256, made on the executors."""
    register(spark)
    tracked = run_query(spark, job)
    frame = load(spark, job, job["source"]["stream"])
    rows = frame.select(F.sha2("data", 256), "partitionKey", F.length("data")).collect()
    to_copy = job["connection"] | {"streamName": job["copy"]} | job["sink"]
    frame.write.format("kinesis").options(**to_copy).mode("append").save()
    letters = load(spark, job, job["dead"]).selectExpr("CAST(data AS STRING) AS value")
    letters.write.text(f"{job['folder']}/letters")
    files = SparkLetterFiles(spark, f"{job['folder']}/letters")
    selection = Selection(target=StreamRef(job["back"]))
    with Redrive(files, selection, AwsConfig(**job["aws"])) as redrive:
        redrive.read(LetterFormat.JSON)
        put = redrive.put()
    return {"tracked": tracked, "batch": [tuple(row) for row in rows], "redriven": put}


def run_query(spark: SparkSession, job: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Payload, key, attempt, shard and number of the batch of each record that was processed."""
    bad, late = frozenset(job["bad"]), frozenset(job["late"])
    processed: list[tuple[Any, ...]] = []
    batches = itertools.count()

    def look(record: Record) -> dict[str, Any]:
        digest = sha256(record.data).hexdigest()
        if digest in bad or (digest in late and record.attempt == 1):
            raise Retry("not now")
        return {
            "digest": digest,
            "key": record.partition_key,
            "attempt": record.attempt,
            "shard": record.shard_id,
        }

    def process(batch: TrackedBatch) -> None:
        number = next(batches)
        rows = batch.map_records(look, "digest STRING, key STRING, attempt INT, shard STRING")
        processed.extend((*row, number) for row in rows.collect())

    source = KinesisSource(**job["source"])
    letters = DeadLetter.to_stream(job["dead"], **job["aws"])
    tracked = source.tracked(process, dead_letter=letters, **job["tracking"])
    writer = source.read_stream(spark).writeStream.foreachBatch(tracked)
    caught_up(writer, f"{job['folder']}/checkpoint")
    return processed


def load(spark: SparkSession, job: dict[str, Any], stream: str) -> DataFrame:
    pace = {"readsPerSecond": "1000", "readBytesPerSecond": "1GiB"}
    options = job["connection"] | pace | {"streamName": stream}
    return spark.read.format("kinesis").options(**options).load()
