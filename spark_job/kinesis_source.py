"""`KinesisSource`: a job's set-up in one frozen object."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError
from spark_job.data_source import register, spark_master
from spark_job.options import OPTIONS
from spark_job.preflight import preflight
from spark_job.settings import SourceSettings
from spark_job.tracking.foreach_batch import Tracked
from spark_job.tracking.options import TrackOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from spark_job.dead_letter.dead_letter import DeadLetter
    from spark_job.tracking.tracked_batch import TrackedBatch

Text = str | None
Number = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSource:
    """What a Spark job reads from Kinesis, and where it keeps its checkpoints.

    Every field is a reader option under its snake_case name (see the README's table); None means
    the default. Durations are texts like "500ms", "5s", "2m" or numbers of seconds, sizes texts
    like "64MiB" or numbers of bytes. `starting_position` is LATEST, TRIM_HORIZON, an ISO time,
    "-2h", AT:<sequence>, AFTER:<sequence>, or a mapping from shard ids (and "default") to these.

    Raises `kinesis_spout.errors.ConfigError` at once for a bad value; does no I/O until
    `read_stream`.
    """

    stream: Text = None
    application: Text = None
    zookeeper: Text = None
    stream_arn: Text = None
    zookeeper_root: Text = None
    zookeeper_session_timeout: Number = None
    region: Text = None
    endpoint_url: Text = None
    profile: Text = None
    access_key_id: Text = None
    secret_access_key: Text = None
    session_token: Text = None
    role_arn: Text = None
    role_external_id: Text = None
    role_session_name: Text = None
    starting_position: str | Mapping[str, str] | None = None
    max_records_per_trigger: Number = None
    max_records_per_shard: Number = None
    max_bytes_per_task: Number = None
    max_fetch_time: Number = None
    max_search_time: Number = None
    max_tasks: Number = None
    reads_per_second: Number = None
    read_bytes_per_second: Number = None
    fail_on_data_loss: bool | str | None = None
    aggregated_records: Text = None
    max_unresolved_per_shard: Number = None
    whole_batch_ack: bool | str | None = None
    available_now_retry_wait: Number = None
    idle_wait: Number = None
    probe_interval: Number = None
    probe_max_shards: Number = None
    idle_interval: Number = None
    shard_refresh_interval: Number = None
    owner_wait: Number = None
    states_per_write: Number = None

    def __post_init__(self) -> None:
        self.settings()

    def __repr__(self) -> str:
        shown = (
            f"{name}={'***' if OPTIONS[name].secret else text!r}"
            for name, text in self._texts().items()
        )
        return f"KinesisSource({', '.join(shown)})"

    def settings(self) -> SourceSettings:
        """The checked form."""
        return SourceSettings.from_texts(self._texts())

    def options(self) -> dict[str, str]:
        """The same as reader options, for `format("kinesis").options(**source.options())`; with the
        secrets that are set.
        """
        return {OPTIONS[name].name: text for name, text in self._texts().items()}

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """The stream as a frame. Registers the source and checks, before anything is read, that
        ZooKeeper and the stream answer.

        Blocks on both for a moment. Raises `ConfigError`, a `kinesis_spout.errors.KinesisError` or
        a `state.errors.StateError`, each in one sentence. A `UserWarning` says when stored state
        wins over `starting_position`.
        """
        master = spark_master(spark)
        for message in preflight(self.settings(), master=master):
            warnings.warn(message, stacklevel=2)
        register(spark)
        options = self.options()
        if self.max_tasks is None and (slots := _task_slots(spark)):
            options[OPTIONS["max_tasks"].name] = str(slots)
        return spark.readStream.format("kinesis").options(**options).load()

    def tracked(
        self,
        process: Callable[[TrackedBatch], object],
        *,
        dead_letter: DeadLetter | None = None,
        retry_limit: int = 3,
        retry_first_delay: str | float = "1s",
        retry_max_delay: str | float = "5m",
        retry_max_age: str | float | None = None,
        on_failure: str = "continue",
        on_exhausted: str = "dead_letter",
        bisect: bool = False,
    ) -> Tracked:
        """A function for `foreachBatch` that lets `process` fail records one by one: `process` gets
        a `TrackedBatch`.

        A failed record comes again up to `retry_limit` times (0: never), after `retry_first_delay`,
        doubled each time up to `retry_max_delay`, and not when its first failure is longer ago than
        `retry_max_age`. Then it is exhausted, and so is a rejected or malformed one at once:
        `on_exhausted` is "dead_letter" (which needs `dead_letter`), "drop" (counted and logged) or
        "stop" (the query fails). `on_failure` says what waits for a retry: "continue" nothing,
        "block_key" later records of its partition key, "block_shard" later records of its shard.

        What `process` raises fails the batch, and nothing of it is acked. With `bisect` the batch
        is then run in parts, to find the records that make it fail, and only these are failed;
        `batch.id` raises then, as parts share it: use `batch.token`.

        Raises `kinesis_spout.errors.ConfigError` at once for a bad argument; does no I/O.
        """
        options = TrackOptions.check(
            dead_letter=dead_letter,
            retry_limit=retry_limit,
            retry_first_delay=retry_first_delay,
            retry_max_delay=retry_max_delay,
            retry_max_age=retry_max_age,
            on_failure=on_failure,
            on_exhausted=on_exhausted,
            bisect=bisect,
        )
        return Tracked(process, self.settings(), options)

    def _texts(self) -> dict[str, str]:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: _as_text(OPTIONS[name].name, value)
            for name, value in given.items()
            if value is not None
        }


def _task_slots(spark: SparkSession) -> int | None:
    """How many tasks run at a time: one wave of tasks reads all shards. None on Spark Connect,
    where it can't be asked.
    """
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Connect raises several kinds; the default of the option serves then
        return None


def _as_text(option: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 1e5 is how people write a hundred thousand
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"option {option} is of type {type(value).__name__}; give a text or a number")
