"""The Spark job of a drill, as a user would write it. It tells each delivery and each outcome.

    python -m spark_job.commands.drill_job '{"stream": ..., ...}'     (`JobArguments`)

A delivery is told before the function gets the batch. Outcomes are told after it has returned and
before they are reported, so no stored state is ahead of what was told. The job ends in order at
SIGTERM, and when its stdin ends: the drill is gone then. An error of the query ends it with a
traceback, and with its cause in one sentence.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession

from kinesis_spout.drills.consumer import (
    APPLICATION,
    RETRY_FIRST_DELAY,
    RETRY_LIMIT,
    RETRY_MAX_DELAY,
    SCRATCH,
    Ending,
    JobArguments,
    Outage,
    Teller,
    is_poison,
    key_and_number,
    letter_told,
    takes_scratch,
    told,
)
from kinesis_spout.drills.history.events import Fate, Step, Told, fate
from kinesis_spout.drills.setting import Need
from kinesis_spout.programs import load_function
from spark_job.dead_letter.dead_letter import DeadLetter
from spark_job.kinesis_source import KinesisSource
from spark_job.query_failure import failure_sentence
from spark_job.tracking.outcomes import Outcome, Reject, Retry
from state.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.dead_letter.letter import Letter
    from scheme.record import Record
    from spark_job.tracking.tracked_batch import TrackedBatch

TRIGGER = "100 milliseconds"
WRITTEN = "key STRING, number BIGINT, attempt INT"
_POLL_S = 0.2
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",  # of a master that has executors
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "WARN",
}
_COLUMNS = ("messageId", "shardId", "sequenceNumber", "partitionKey", "data", "attempt")


def fail_in(outage: Outage, outages: str) -> None:
    """Raise OSError while there is an outage (`JobArguments.outages`)."""
    if (Path(outages) / outage).exists():
        raise OSError(f"outage of {outage}")


def by_fate(record: Record, outages: str, driver: int | None = None) -> dict[str, object]:
    """The drill's own function for a record: it fails those whose number says so. One kills the
    driver, if this is given its process id.
    """
    if driver is not None and is_poison(record.data):
        os.kill(driver, signal.SIGKILL)
    fail_in(Outage.RECORDS, outages)
    key, number = key_and_number(record.data, record.partition_key)
    of = fate(number)
    if of is Fate.REJECTED:
        raise Reject("rejected")
    if record.attempt <= of.failures:
        raise Retry("not yet")
    return {"key": key, "number": number, "attempt": record.attempt}


def writing_to(given: JobArguments) -> Callable[[TrackedBatch], None]:
    """The drill's own function for a batch."""
    driver = os.getpid() if Need.POISON in given.setting.has else None
    written = partial(by_fate, outages=given.outages, driver=driver)
    out = given.out

    def process(batch: TrackedBatch) -> None:
        batch.map_records(written, WRITTEN).write.mode("append").parquet(out)
        failpoint("sink-written")

    return process


def users_function(process: str, scratch: str) -> Callable[[TrackedBatch], object]:
    """The function that the user named, with the scratch directory where a parameter of it asks for
    that. Raises `ConfigError`.
    """
    function = load_function(process)
    if takes_scratch(function):
        return partial(function, **{SCRATCH: scratch})
    return function


def telling(
    process: Callable[[TrackedBatch], object], teller: Teller, outages: str
) -> Callable[[TrackedBatch], None]:
    """`process`, with every delivery told before it and every outcome after it. It fails while the
    sink is out.
    """

    def telling_process(batch: TrackedBatch) -> None:
        rows = batch.df.select(*_COLUMNS).toArrow().to_pylist()
        teller.tell(*(_told(Step.GOT, row) for row in rows))

        def tell_outcomes(error: BaseException | None) -> None:
            if error is None:
                failures = batch.failures
                teller.tell(*(outcome(row, failures.get(row["messageId"])) for row in rows))

        def outcome(row: dict[str, Any], failure: Any) -> Told:
            if failure is None:
                return _told(Step.ACK, row)
            step = Step.REJECT if failure.outcome is Outcome.REJECT else Step.FAIL
            return _told(step, row, failure.reason or "")

        batch.at_end(tell_outcomes)
        fail_in(Outage.SINK, outages)
        process(batch)

    return telling_process


def letters_to(teller: Teller, outages: str) -> Callable[[list[Letter]], None]:
    """The function for dead letters."""

    def tell(letters: list[Letter]) -> None:
        fail_in(Outage.LETTERS, outages)
        teller.tell(*map(letter_told, letters))

    return tell


def _told(step: Step, row: dict[str, Any], reason: str = "") -> Told:
    """The line of a record, from its columns."""
    record = row["shardId"], row["sequenceNumber"], row["data"], row["partitionKey"]
    return told(step, record, row["attempt"], reason)


def source_of(given: JobArguments) -> KinesisSource:
    """It reads and probes as often as an endpoint without limits allows, if it is one."""
    quick: dict[str, Any] = {"reads_per_second": 20, "probe_interval": "200ms"}
    fan_out: dict[str, Any] = {"read_mode": "efo", "consumer_name": APPLICATION}
    return KinesisSource(
        stream=given.stream,
        application=APPLICATION,
        starting_position="TRIM_HORIZON",
        region=given.aws.region,
        endpoint_url=given.aws.endpoint_url,
        access_key_id=given.aws.access_key_id,
        secret_access_key=given.aws.secret_access_key,
        zookeeper=given.zookeeper,
        zookeeper_session_timeout=f"{given.session_timeout_s:g}s",
        idle_wait="200ms",
        shard_refresh_interval="1s",
        max_records_per_shard=200,
        max_tasks=2,
        **(quick if given.is_local else {}),
        **(fan_out if given.setting.efo else {}),
    )


def run(given: JobArguments, ending: Ending) -> None:
    """Run the query until it fails or is to end. Raises the query's error."""
    teller = Teller(given.path)
    users = given.setting.process
    process = users_function(users, given.scratch) if users else writing_to(given)
    source = source_of(given)
    master = "local-cluster[2,1,1024]" if Need.EXECUTORS in given.setting.has else "local[2]"
    builder = SparkSession.builder.master(master).appName("kinesis-spout drill")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.warehouse.dir", f"{given.out}-warehouse").getOrCreate()
    ending.listen()  # after PySpark's own handlers
    query = (
        source.read_stream(spark)
        .writeStream.foreachBatch(
            source.tracked(
                telling(process, teller, given.outages),
                dead_letter=DeadLetter.to(letters_to(teller, given.outages)),
                retry_limit=RETRY_LIMIT,
                retry_first_delay=RETRY_FIRST_DELAY,
                retry_max_delay=RETRY_MAX_DELAY,
            )
        )
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime=TRIGGER)
        .start()
    )
    while not ending.is_due:
        query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # it takes parts of seconds
    query.stop()
    spark.stop()


def main() -> None:
    given = msgspec.json.decode(sys.argv[1], type=JobArguments)
    try:
        run(given, Ending())
    except Exception as exc:  # noqa: BLE001  # whatever ends the query
        traceback.print_exc()
        sys.exit(failure_sentence(str(exc)))  # the last line, which the drill shows


if __name__ == "__main__":
    main()
