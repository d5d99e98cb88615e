"""A frame of random records through the sink and back, as a job of its own.

    python tests/support/spark/round_trip.py '<json>'

It writes the rows of the parquet file `rows` to a stream, and reads the stream with a batch read
and with a query; what these read is in the folders `batch` and `query` of `out`. `connection`:
options of all three; `query`: of the query. `master`, `conf` and `pyFiles` as for
`spark_job_under_test`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_job import register
from tests.support.spark.spark_job_under_test import caught_up, session


def run(job: dict[str, Any]) -> None:
    spark = session(job)
    register(spark)
    rows = spark.read.parquet(job["rows"]).repartition(4)
    rows.write.format("kinesis").options(**job["connection"]).mode("append").save()
    frame = spark.read.format("kinesis").options(**job["connection"]).load()
    frame.write.parquet(f"{job['out']}/batch")
    source = spark.readStream.format("kinesis").options(**job["connection"] | job["query"]).load()
    writer = source.writeStream.format("parquet").option("path", f"{job['out']}/query")
    caught_up(writer, f"{job['out']}/checkpoint")
    spark.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
