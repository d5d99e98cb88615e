"""A job that writes to a stream, run as a process of its own so that tests can kill it.

    python tests/support/spark/sink_job_under_test.py '<json>'

It writes the rows of parquet files, in a batch or (with `checkpoint`) in a query that takes a file
after the other. `sink`: the options of the sink. `master`, `conf` and `pyFiles` as for
`spark_job_under_test`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from spark_job import register
from tests.support.spark.spark_job_under_test import caught_up, session

SCHEMA = "data BINARY, partitionKey STRING"


def run(job: dict[str, Any]) -> None:
    spark = session(job)
    register(spark)
    if "checkpoint" not in job:
        rows = spark.read.schema(SCHEMA).parquet(job["rows"]).repartition(4)
        rows.write.format("kinesis").options(**job["sink"]).mode("append").save()
    else:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
        writer = files.parquet(job["rows"]).repartition(4).writeStream.format("kinesis")
        caught_up(writer.options(**job["sink"]), job["checkpoint"])
    spark.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
