"""The job of `kinesis-spout doctor --master`: asks each executor how it is.

A process of its own (`kinesis_spout.doctor.spark_process`). It reads what is wanted from stdin.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.doctor import executor_probe
from kinesis_spout.doctor.spark_process import Answer, Wanted
from kinesis_spout.errors import KinesisError
from spark_job.commands.spark_session import spark_session
from spark_job.preflight import refuse_embedded_on_cluster
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=Wanted)
    try:
        answer = Answer(seen=_seen(wanted))
    except (CliError, KinesisError) as exc:
        answer = Answer(error=str(exc))
    except (PySparkException, Py4JError) as exc:
        answer = Answer(error=f"a task on an executor fails: {failure_sentence(str(exc))}")
    Path(wanted.answer).write_bytes(msgspec.json.encode(answer))


def _seen(wanted: Wanted) -> list[dict[str, Any]]:
    if wanted.zookeeper is not None:
        refuse_embedded_on_cluster(wanted.zookeeper, wanted.master)
    cloudpickle.register_pickle_by_value(executor_probe)  # type: ignore[no-untyped-call]  # PySpark annotates none of it
    conf = _WAIT | wanted.conf
    with spark_session("kinesis-spout doctor", master=wanted.master, conf=conf) as spark:
        seen = _ask(spark, None, tasks=2 * spark.sparkContext.defaultParallelism)
        # Spark gives each free executor a task before it gives one a second.
        seen |= _ask(spark, wanted.place, tasks=min(len(seen), MOST_EXECUTORS))
    return list(seen.values())


def _ask(
    spark: SparkSession, place: str | None, *, tasks: int
) -> dict[tuple[str, int], dict[str, Any]]:
    """The answers of that many tasks, one of each executor."""
    probe = partial(_each, executor_probe.probe, place)
    answers = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(probe).collect()
    return {(answer["host"], answer["worker"]): answer for answer in answers}


def _each(probe: Any, place: str | None, numbers: Iterator[int]) -> list[dict[str, Any]]:
    list(numbers)
    return [probe(place)]


if __name__ == "__main__":
    main()
