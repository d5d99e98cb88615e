"""A job that reads, dead-letters and writes, each on a stream of its own, as a process of its own.

    python tests/support/spark/permitted_job.py '<json>'

`source`: the options of the source. All records fail without a retry, so each becomes a letter on
stream `letters`. Then one row is written to the stream of `sink`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from spark_job import DeadLetter, KinesisSource, register
from tests.support.spark.spark_job_under_test import caught_up, session

if TYPE_CHECKING:
    from scheme import Record
    from spark_job import TrackedBatch


def run(job: dict[str, Any]) -> None:
    spark = session(job)
    register(spark)
    letters = DeadLetter.to_stream("letters", payload_only=True, **job["letters"])
    source = KinesisSource(**job["source"])

    def fail(record: Record) -> None:
        raise ValueError(f"{record.partition_key} is refused")

    def handle(batch: TrackedBatch) -> None:
        batch.map_records(fail, "n BIGINT").count()

    tracked = source.tracked(handle, retry_limit=0, dead_letter=letters)
    caught_up(source.read_stream(spark).writeStream.foreachBatch(tracked), job["checkpoint"])
    rows = spark.createDataFrame([(b"data", "key")], "data BINARY, partitionKey STRING")
    rows.write.format("kinesis").options(**job["sink"]).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
