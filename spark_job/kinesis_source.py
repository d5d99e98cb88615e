"""`KinesisSource`: the settings of a job that reads a stream, in one frozen object."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, fields, replace
from typing import TYPE_CHECKING

from kinesis_spout.config import check_function, check_scheme
from kinesis_spout.errors import ConfigError
from scheme.record_scheme import RecordScheme
from spark_job.data_source import PARSED
from spark_job.options import ENDS_REPORTED, HIDDEN_SCHEME, OPTIONS, RETIRED, warn_retired
from spark_job.query_failure import watch_ends
from spark_job.registration import preflight, register, spark_master
from spark_job.settings import QuerySettings
from spark_job.tracking.options import TrackOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from spark_job.dead_letter.dead_letter import DeadLetter
    from spark_job.settings import SourceSettings
    from spark_job.tracking.foreach_batch import Tracked
    from spark_job.tracking.tracked_batch import TrackedBatch

Text = str | None
Number = int | float | str | None


class _Reads:
    """What is read by its options: one stream or several, as one frame."""

    __slots__ = ()

    def options(self) -> dict[str, str]:
        """The reader options, for `format("kinesis").options(**source.options())`, including
        secrets that are set.
        """
        raise NotImplementedError

    def query(self) -> QuerySettings:
        """The checked settings of all streams."""
        return QuerySettings.from_options(self.options())

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """Return the stream as a streaming DataFrame.

        Registers the source, and checks that ZooKeeper and the stream respond before a record is
        read. Blocks until both have responded. Raises `ConfigError`, a
        `kinesis_spout.errors.KinesisError` or a `state.errors.StateError`, with a message of one
        sentence. Warns (`UserWarning`) if stored progress overrides `starting_position`.
        """
        master, query = spark_master(spark), self.query()
        for settings in query.streams:
            for message in preflight(settings, master=master):
                warnings.warn(message, stacklevel=2)
        register(spark)
        options, scheme = self.options(), query.scheme
        if watch_ends(spark, query.with_passwords().streams):
            options[ENDS_REPORTED] = "true"
        if scheme is not None and not hasattr(scheme, "outcomes"):
            # Spark has expressions for it, which need no Python.
            without = {OPTIONS["scheme"].name, HIDDEN_SCHEME}
            options = {name: text for name, text in options.items() if name not in without}
        frame = spark.readStream.format("kinesis").options(**options).load()
        if scheme is None or PARSED in frame.columns:
            return frame
        return frame.withColumn(PARSED, scheme.column(frame["data"]))

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
        """Return a function for `foreachBatch` that calls `process` with a `TrackedBatch`, in which
        single records may fail.

        - A failed record is redelivered up to `retry_limit` times (0: never). The first retry comes
          after `retry_first_delay`; the delay doubles with each retry, up to `retry_max_delay`.
        - A record is exhausted after its last retry, or when its first counted failure is older
          than `retry_max_age`. A rejected or malformed record is exhausted at once.
        - If every record of a batch fails, the cause may be an outage. Such failures count as
          attempts only later, or not at all (docs: Outcomes).
        - `on_exhausted` is "dead_letter" (which needs `dead_letter`), "drop" (counted and logged),
          or "stop" (the query fails).
        - `on_failure` sets which later records wait for a retry: "continue" none, "block_key" those
          of its partition key, "block_shard" those of its shard.

        If `process` raises an error, the batch fails and none of its records are acked. With
        `bisect`, the batch is then run in parts to find the records that make it fail, and only
        these records fail. The parts share a batch id, so `batch.id` raises an error with `bisect`;
        use `batch.token`.

        Does no I/O. Raises `kinesis_spout.errors.ConfigError` for a bad argument.
        """
        from spark_job.tracking.foreach_batch import Tracked  # noqa: PLC0415  # it connects

        check_function("argument process of tracked(...)", process, takes=["a batch"])
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
        return Tracked(process, self.query(), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisSource(_Reads):
    """The stream that a Spark job reads, its checkpoints in ZooKeeper, and how the job reads.

    - Every field is a reader option in snake_case; the options reference lists them. None means the
      default.
    - Durations are strings such as "500ms", "5s" or "2m", or numbers of seconds.
    - Sizes are strings such as "64MiB", or numbers of bytes.
    - `starting_position` is LATEST, TRIM_HORIZON, an ISO time, "-2h", AT:<sequence>,
      AFTER:<sequence>, or a mapping from shard ids and "default" to these.
    - `scheme` adds the column `parsed`: a struct `{value, malformed}` for each record, or an array
      of such structs if a record can give several rows. Pass an object, or a string that
      `consume --scheme` accepts.

    The constructor does no I/O. It raises `kinesis_spout.errors.ConfigError` for a bad value.
    """

    stream: Text = None
    application: Text = None
    zookeeper: Text = None
    stream_arn: Text = None
    zookeeper_root: Text = None
    zookeeper_session_timeout: Number = None
    zookeeper_tls: bool | str | None = None
    zookeeper_ca_file: Text = None
    zookeeper_cert_file: Text = None
    zookeeper_key_file: Text = None
    zookeeper_verify_hostname: bool | str | None = None
    zookeeper_auth: Text = None
    zookeeper_user: Text = None
    zookeeper_password: Text = None
    zookeeper_password_file: Text = None
    zookeeper_acl: Text = None
    region: Text = None
    endpoint_url: Text = None
    profile: Text = None
    access_key_id: Text = None
    secret_access_key: Text = None
    session_token: Text = None
    role_arn: Text = None
    role_external_id: Text = None
    role_session_name: Text = None
    wire_format: Text = None
    starting_position: str | Mapping[str, str] | None = None
    read_mode: Text = None
    consumer_name: Text = None
    consumer_arn: Text = None
    max_records_per_trigger: Number = None
    max_records_per_trigger_total: Number = None
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
    scheme: str | RecordScheme | None = None
    idle_wait: Number = None
    probe_interval: Number = None
    shard_refresh_interval: Number = None
    owner_wait: Number = None
    probe_max_shards: InitVar[object] = None  # retired, as the next two
    idle_interval: InitVar[object] = None
    states_per_write: InitVar[object] = None

    def __post_init__(self, *retired: object) -> None:
        for name, value in zip(RETIRED, retired, strict=True):
            if value is not None:
                warn_retired(name)
        self.query()

    @classmethod
    def several(
        cls, sources: Iterable[KinesisSource], *, max_records_per_trigger_total: Number = None
    ) -> KinesisStreams:
        """Return a source that reads several streams in one query, each with its own source's
        settings.

        `max_records_per_trigger_total`: maximum number of records in a batch over all streams; the
        streams with unread records share it. Does no I/O. Raises `kinesis_spout.errors.ConfigError`
        for fewer than two streams, for a stream that is listed twice, and for two streams with the
        same name and the same application.
        """
        return KinesisStreams(tuple(sources), max_records_per_trigger_total)

    def __repr__(self) -> str:
        shown = {
            name: "***" if OPTIONS[name].secret else repr(text)
            for name, text in self._texts().items()
        }
        if self.scheme is not None:
            shown["scheme"] = repr(self.scheme)
        return f"KinesisSource({', '.join(f'{name}={text}' for name, text in shown.items())})"

    def settings(self) -> SourceSettings:
        """The checked settings of a source that reads one stream."""
        query = self.query()
        if not query.is_of_one:
            raise ConfigError(
                "settings() requires a source of one stream, but this source reads "
                f"{len(query.streams)} streams",
                "call query(), which returns the settings of each stream",
            )
        return query.streams[0]

    def options(self) -> dict[str, str]:
        options = {OPTIONS[name].name: text for name, text in self._texts().items()}
        if isinstance(self.scheme, RecordScheme):
            options[HIDDEN_SCHEME] = options.pop(OPTIONS["scheme"].name)
        return options

    def split(self) -> list[KinesisSource]:
        """One source for each stream."""
        listed = self.stream or self.stream_arn or ""
        if "," not in listed:
            return [self]
        return [
            replace(self, stream=None, stream_arn=ref, region=None)  # which is in the ARN
            if ref.startswith("arn:")
            else replace(self, stream=ref, stream_arn=None)
            for ref in map(str.strip, listed.split(","))
        ]

    def _texts(self) -> dict[str, str]:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: _as_text(OPTIONS[name].name, value)
            for name, value in given.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class KinesisStreams(_Reads):
    """Several streams that one query reads. Created by `KinesisSource.several`."""

    sources: tuple[KinesisSource, ...]
    max_records_per_trigger_total: Number = None

    def __post_init__(self) -> None:
        if sum(len(source.split()) for source in self.sources) < 2:
            raise ConfigError(
                "KinesisSource.several was called with fewer than two streams",
                "to read a single stream, use KinesisSource(...).read_stream(spark)",
            )
        self.query()

    def options(self) -> dict[str, str]:
        """The reader options, including secrets that are set. Options of a single stream have names
        such as `stream.1.region`.
        """
        options = [stream.options() for source in self.sources for stream in source.split()]
        refs = [texts.pop("streamName", "") or texts.pop("streamArn", "") for texts in options]
        shared = dict(set.intersection(*(set(texts.items()) for texts in options)))
        own = {
            f"stream.{number}.{name}": text
            for number, texts in enumerate(options, start=1)
            for name, text in texts.items()
            if name not in shared
        }
        total = OPTIONS["max_records_per_trigger_total"].name
        if self.max_records_per_trigger_total is not None:
            own = {name: text for name, text in own.items() if not name.endswith(f".{total}")}
            shared[total] = _as_text(total, self.max_records_per_trigger_total)
        return {"streamName": ",".join(refs), **shared, **own}


def _as_text(option: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), default=repr)  # which is refused as a position
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 1e5 is how people write a hundred thousand
    if isinstance(value, str | int | float):
        return str(value)
    if option == OPTIONS["scheme"].name and isinstance(value, RecordScheme):
        check_scheme(option, value)
        from spark_job.scheme_column import text_of  # noqa: PLC0415  # only for an object

        return text_of(value)
    raise ConfigError(
        f"option {option} is of type {type(value).__name__}",
        "pass a string or a number as the value of the option",
    )
