"""A job whose executors have other surroundings than its driver, run as a process of its own.

    python tests/support/spark/executors_elsewhere.py '<json>'

`source`: the fields of a `KinesisSource`, `keys`: the credentials as options, `copy`: a stream to
write to, `letters`: a stream of dead letters. The job reads the stream in a query in which one
record fails, reads it as a batch, and writes what it read. `answer.json` in `directory` has the
number of rows of the batch, and the variables of AWS that an executor has.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job import DeadLetter, KinesisSource, register
from tests.support.spark.spark_job_under_test import caught_up, session

if TYPE_CHECKING:
    from scheme import Record
    from spark_job import TrackedBatch

POISON = b"record 3"


def run(job: dict[str, Any]) -> None:
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = session({"master": "local-cluster[1,1,1024]", "conf": addresses})
    directory = Path(job["directory"])
    source = KinesisSource(**job["source"])
    names = ("access_key_id", "secret_access_key")
    letters = DeadLetter.to_stream(job["letters"], **{name: job["source"][name] for name in names})
    tracked = source.tracked(_each, dead_letter=letters, retry_limit=0)
    writer = source.read_stream(spark).writeStream.foreachBatch(tracked)
    caught_up(writer, str(directory / "checkpoint"))

    register(spark)
    read = spark.read.format("kinesis").options(streamName=source.stream, **job["keys"]).load()
    copied = read.selectExpr("data", "partitionKey", f"'{job['copy']}' AS streamName")
    copied.write.format("kinesis").options(**job["keys"]).mode("append").save()
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: _variables()).collect()
    answer = {"rows": read.count(), "variables": found[0]}
    (directory / "answer.json").write_text(json.dumps(answer))
    spark.stop()


def _each(batch: TrackedBatch) -> None:
    batch.map_records(_process, "data BINARY").collect()


def _process(record: Record) -> dict[str, Any]:
    if record.data == POISON:
        raise ValueError("it is poison")
    return {"data": record.data}


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
