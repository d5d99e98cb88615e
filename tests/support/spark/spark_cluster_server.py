"""A Spark with executors in processes of their own that runs one query after the other: one line of
JSON each.

    PYTHONPATH=<wheel> python tests/support/spark/spark_cluster_server.py <wheel>

In: `{"source": {...}, "out": dir, "checkpoint": dir, "stop": file, "batches": n or null}` runs a
query until it is caught up (AvailableNow). It stops earlier after n batches, or when the file
`stop` exists. With `"trigger": "1 second"` it runs until then. Each batch has a directory of its
own, so a repeated batch overwrites its output. Out: `{"ok": true}` or `{"error": text}`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job import KinesisSource
from tests.support.spark.spark_job_under_test import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 1


def run(spark: SparkSession, job: dict[str, Any]) -> None:
    out, most = Path(job["out"]), job.get("batches")
    written: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(out / f"batch={batch_id:05}"))
        written.append(batch_id)

    writer = KinesisSource(**job["source"]).read_stream(spark).writeStream.foreachBatch(write)
    every = {"processingTime": job["trigger"]} if job.get("trigger") else {"availableNow": True}
    query = writer.option("checkpointLocation", job["checkpoint"]).trigger(**every).start()
    try:
        while not query.awaitTermination(POLL_S):
            if Path(job["stop"]).exists() or (most is not None and len(written) >= most):
                break
    finally:
        query.stop()


def tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(wheel: str) -> None:
    conf = {
        "spark.executor.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    spark = session({"master": "local-cluster[2,1,1024]", "conf": conf, "pyFiles": [wheel]})
    tell({"ok": True})
    for line in sys.stdin:
        try:
            run(spark, json.loads(line))
            tell({"ok": True})
        except Exception as exc:  # noqa: BLE001  # whatever a query ends with is the answer
            tell({"error": f"{type(exc).__name__}: {exc}"})
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
