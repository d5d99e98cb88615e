"""The job of `kinesis-spout doctor --master`: asks each executor how it is.

A process of its own (`kinesis_spout.doctor.examination`). It reads a `Cluster` from stdin, and
writes an `Answer` to the file that is its argument.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.doctor.examination import Answer, Cluster, SeenExecutor
from kinesis_spout.errors import KinesisError
from spark_job.commands.spark_session import spark_session
from spark_job.query_failure import failure_sentence
from spark_job.registration import refuse_embedded_on_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_EXECUTORS = 16
# Begin with all executors, not with the first that registers.
_WAIT = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
    "spark.task.maxFailures": "1",
    "spark.ui.enabled": "false",
}


def main() -> None:
    try:
        cluster = msgspec.json.decode(sys.stdin.buffer.read(), type=Cluster)
        answer: Answer = _seen(cluster)
    except (CliError, KinesisError) as exc:
        answer = str(exc)
    except (PySparkException, Py4JError) as exc:
        answer = f"a task on an executor failed: {failure_sentence(str(exc))}"
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(answer))


def probe(target: bytes | None) -> dict[str, Any]:
    """The `SeenExecutor` of this process. `target`: the `Target` to examine, as JSON.

    Spark sends a function of `__main__` by value. Our package may be missing where it arrives, so
    it imports what it uses of ours.
    """
    seen: dict[str, Any] = {
        "host": socket.gethostname(),
        "worker": os.getppid(),  # it starts the Python workers of one executor
        "python": platform.python_version(),
    }
    try:
        import kinesis_spout  # noqa: PLC0415

        seen["version"] = kinesis_spout.__version__
        import msgspec  # noqa: PLC0415

        from kinesis_spout.doctor.examination import examine  # noqa: PLC0415
        from kinesis_spout.doctor.findings import Target  # noqa: PLC0415
    except Exception as exc:  # noqa: BLE001  # a broken installation may raise anything
        return seen | {"error": f"{type(exc).__name__}: {exc}"}
    if target is None:
        return seen
    found = examine(msgspec.json.decode(target, type=Target), in_executor=True)
    return seen | {"findings": msgspec.to_builtins([one.finding for one in found])}


def _seen(cluster: Cluster) -> tuple[SeenExecutor, ...]:
    if cluster.target.zookeeper is not None:
        refuse_embedded_on_cluster(cluster.target.zookeeper, cluster.master)
    conf = _WAIT | cluster.conf
    with spark_session("kinesis-spout doctor", master=cluster.master, conf=conf) as spark:
        seen = _ask(spark, None, tasks=2 * spark.sparkContext.defaultParallelism)
        # Spark gives each free executor a task before it gives one a second.
        target = msgspec.json.encode(cluster.target)
        seen |= _ask(spark, target, tasks=min(len(seen), MOST_EXECUTORS))
    return msgspec.convert(tuple(seen.values()), tuple[SeenExecutor, ...])


def _ask(spark: SparkSession, target: bytes | None, *, tasks: int) -> dict[Any, dict[str, Any]]:
    """The answers of that many tasks, one of each executor."""
    answers = spark.sparkContext.parallelize(range(tasks), tasks).map(lambda _: probe(target))
    return {(answer["host"], answer["worker"]): answer for answer in answers.collect()}


if __name__ == "__main__":
    main()
