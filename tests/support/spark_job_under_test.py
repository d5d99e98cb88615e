"""A Spark job as a user would write it, run as a process of its own so that tests can kill it.

    python tests/support/spark_job_under_test.py '<json>'

Reads a stream until it is caught up (AvailableNow) and writes each batch as parquet into a directory of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_job import KinesisSource
from state.failpoint import failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def session(master: str, conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(job: dict[str, Any]) -> None:
    spark = session(job.get("master", "local[2]"), job.get("conf", {}))
    for file in job.get("pyFiles", []):
        spark.sparkContext.addPyFile(file)
    out = Path(job["out"])

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.drop("data").write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))
        failpoint("sink-written")

    query = (
        KinesisSource(**job["source"])
        .read_stream(spark)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", job["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [json.loads(p.json) for p in query.recentProgress]
    (out.parent / "progress.json").write_text(json.dumps(progress))
    if job.get("pyFiles"):
        (out.parent / "places.json").write_text(json.dumps(places(spark)))
    spark.stop()


def places(spark: SparkSession) -> dict[str, Any]:
    """Which executors there are, and where the package was imported from, there and here."""

    def look(_: int) -> tuple[str, str]:
        import spark_job  # noqa: PLC0415  # on the executor

        return os.environ.get("SPARK_EXECUTOR_ID", "") or str(os.getppid()), str(spark_job.__file__)

    found = spark.sparkContext.parallelize(range(8), 8).map(look).collect()
    return {
        "driver": str(sys.modules["spark_job"].__file__),
        "imported": sorted({place for _, place in found}),
        "executors": sorted({executor for executor, _ in found}),
    }


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
