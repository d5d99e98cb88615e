"""A client of Spark Connect: reads and writes streams, and prints as JSON what it saw.

    SPARK_REMOTE=sc://127.0.0.1:15002 python tests/support/spark/connect_client.py '{"source": ...}'

The job: `source` are the fields of `KinesisSource`, `connection` the options of `spark.read` and of
the sink for `stream`, which is written to `copy`, and `directory` is for files.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from scheme import PayloadScheme, parsed
from spark_job import DeadLetter, KinesisSource, register
from spark_job.metrics import serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


EMITTED = 'kinesis_spout_stream_records_emitted_total{application="connect",stream="orders"}'
LIMIT_S = 120.0
MODULE = "tests.support.spark.connect_client"


def texts(frame: DataFrame) -> list[str]:
    return sorted(row.text for row in frame.selectExpr("CAST(data AS STRING) AS text").collect())


@dataclass(frozen=True)
class Numbered(PayloadScheme):
    """N of a payload `record n`."""

    schema_ddl = "n INT"

    def read(self, payload: bytes) -> tuple[int]:
        return (int(payload.removeprefix(b"record ")),)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.n for row in frame.select("parsed.value.n").collect())


def scraped(url: str, *, until: str) -> list[str]:
    """The series, once this one is among them."""
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        with urlopen(url) as answer:  # noqa: S310  # our own server
            lines = answer.read().decode().splitlines()
        if until in lines or time.monotonic() > deadline_s:
            return [line for line in lines if not line.startswith("#")]
        time.sleep(0.5)  # noqa: TID251  # as Prometheus: nothing announces a new figure


def run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    directory, connection = job["directory"], job["connection"]
    source = KinesisSource(**job["source"])
    register(spark)
    seen: dict[str, Any] = {"session": type(spark).__module__}

    def load(stream: str) -> DataFrame:
        options = connection | {"streamName": stream}
        return spark.read.format("kinesis").options(**options).load()

    orders = load("orders")
    seen["batch"] = texts(orders)
    to_copy = connection | {"streamName": "copy"}
    orders.write.format("kinesis").options(**to_copy).mode("append").save()

    frame = source.read_stream(spark)
    with serve(spark, 0) as metrics:
        sink = frame.writeStream.format("kinesis").options(**to_copy)
        query = sink.option("checkpointLocation", f"{directory}/checkpoint").start()
        seen["metrics"] = scraped(metrics.url, until=f"{EMITTED} 50.0")
        query.stop()
    seen["copy"] = texts(load("copy"))

    seen["parsed"] = numbers(parsed(orders, Numbered()))
    by_option = connection | {"streamName": "orders", "scheme": f"{MODULE}:Numbered"}
    seen["by option"] = numbers(spark.read.format("kinesis").options(**by_option).load())
    decoding = KinesisSource(**job["source"] | {"application": "decoding", "scheme": Numbered()})
    to_files = decoding.read_stream(spark).writeStream.format("parquet").trigger(availableNow=True)
    to_files = to_files.option("checkpointLocation", f"{directory}/decoding")
    to_files.start(f"{directory}/decoded").awaitTermination()
    seen["by the source"] = numbers(spark.read.parquet(f"{directory}/decoded"))

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
