"""A client of Spark Connect: reads and writes streams, and prints as JSON what it saw.

    SPARK_REMOTE=sc://127.0.0.1:15002 python tests/support/spark/connect_client.py '{"source": ...}'

The job: `source` are the fields of `KinesisSource`, `connection` the options of `spark.read` and of
the sink for `stream`, which is written to `copy`, and `directory` is for files.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_job import DeadLetter, KinesisSource, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def texts(frame: DataFrame) -> list[str]:
    return sorted(row.text for row in frame.selectExpr("CAST(data AS STRING) AS text").collect())


def run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    directory, connection = job["directory"], job["connection"]
    source = KinesisSource(**job["source"])
    register(spark)
    seen: dict[str, Any] = {"session": type(spark).__module__}

    def load(stream: str) -> DataFrame:
        options = connection | {"streamName": stream}
        return spark.read.format("kinesis").options(**options).load()

    seen["batch"] = texts(load("orders"))
    to_copy = connection | {"streamName": "copy"}
    load("orders").write.format("kinesis").options(**to_copy).mode("append").save()
    seen["batch sink"] = texts(load("copy"))

    frame = source.read_stream(spark)
    writer = frame.writeStream.trigger(availableNow=True)
    files = writer.format("parquet").option("path", f"{directory}/out")
    query = files.option("checkpointLocation", f"{directory}/files").start()
    query.awaitTermination(120)
    seen["source"] = texts(spark.read.parquet(f"{directory}/out"))

    other = KinesisSource(**job["source"] | {"application": "other"}).read_stream(spark)
    sink = other.writeStream.trigger(availableNow=True).format("kinesis").options(**to_copy)
    query = sink.option("checkpointLocation", f"{directory}/sink").start()
    query.awaitTermination(120)
    seen["stream sink"] = texts(load("copy"))

    tracked = source.tracked(lambda batch: batch.df.count(), dead_letter=DeadLetter.to(print))
    try:
        frame.writeStream.foreachBatch(tracked)
    except Exception as exc:  # noqa: BLE001  # what it is, is the question
        seen["tracked"] = f"{type(exc).__name__}: {exc}"
    try:
        load("absent").count()
    except PySparkException as exc:
        seen["absent"] = str(exc)
    return seen


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    print(json.dumps(run(session, json.loads(sys.argv[1]))))  # noqa: T201  # its answer
    session.stop()
