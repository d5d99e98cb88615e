"""`DeadLetter`: the place for records that could not be processed.

If a batch fails or the driver dies, the plan runs again, and its letters are written again under
the same `plan_id`. A sink that can replace the letters of a plan (files, delta) then holds each
letter once. Other sinks may hold it twice, with the same `messageId`.
"""

from __future__ import annotations

import logging
import re
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.config import AwsConfig, StreamRef, check_function, did_you_mean
from kinesis_spout.dead_letter.letter import LETTER_COLUMNS, Letter, in_chunks
from kinesis_spout.dead_letter.outgoing import envelopes, payload_records
from kinesis_spout.errors import (
    MAX_MESSAGE_CHARS,
    ConfigError,
    KinesisError,
    StreamNotFoundError,
    described,
    text_of,
)
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter
from kinesis_spout.service.surroundings import for_executors
from spark_job.dead_letter.spark_files import letter_of, with_plain_times
from spark_job.query_failure import failure_sentence, for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.dead_letter.letter import Letter


log = logging.getLogger("kinesis_spout")


class DeadLetterError(KinesisError):
    """A plan's dead letters could not be written. No record of its batch may be acked."""


class LetterSink(Protocol):
    """A DeadLetter's sink, one class per kind. `str()` names the destination, without secrets."""

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all letters of a plan. Blocks. May raise any exception."""
        ...

    def check(self, spark: SparkSession) -> None:
        """Raise any exception if no letter could ever be written. Blocks for a moment."""
        del spark  # most sinks show it only at a letter

    def without_secrets(self, text: str) -> str:
        """An error's text with the sink's secrets masked; unchanged if it cannot contain any."""
        return text


@dataclass(frozen=True, slots=True)
class _FunctionSink(LetterSink):
    """Calls the function on the driver, with a chunk of letters at a time."""

    function: Callable[[list[Letter]], object]

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # a function detects repetitions by message id
        rows = with_plain_times(letters).toLocalIterator()
        for chunk in in_chunks(map(letter_of, rows)):
            self.function(chunk)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class DeadLetter:
    """A destination for dead letters: files or a table through any Spark writer, another Kinesis
    stream (`to_stream`), or a function (`to`). Frozen, and picklable if its function is. Does no
    I/O until `write`.

    `DeadLetter(format, path=..., **options)` writes with
    `DataFrame.write.format(format).options(**options)`:

    - parquet, orc, avro and json, with a `path`: a plan's letters go to the directory
      `path/plan=<plan>/` in mode overwrite, so a repeated plan replaces its letters. json contains
      the payload in base64. csv, text and xml cannot contain bytes, and are refused.
    - delta: the plan's rows are replaced, by `replaceWhere` on a column `plan` that partitions the
      table.
    - any other format (jdbc, kafka, iceberg, ...): mode append, at least once. kafka needs a column
      `value`, so use a function for kafka.

    Raises `kinesis_spout.errors.ConfigError` at once for a setting that cannot work.
    """

    sink: LetterSink

    def __init__(self, format: str, *, path: str | None = None, **options: Any) -> None:  # noqa: A002  # Spark's name for it
        object.__setattr__(self, "sink", WriterSink.of(format, path, options))

    @classmethod
    def to_stream(cls, stream: str, *, payload_only: bool = False, **aws: Any) -> DeadLetter:
        """Put the letters on another Kinesis stream, given by name or ARN.

        The executors put the letters, with the records' partition keys. Delivery is at least once:
        a repeated plan or Spark task puts its letters again.

        A value is a JSON object with the letter's columns. Times are ISO 8601 in UTC, and `data` is
        base64 (null if the record was gone from the stream). A letter that does not fit into a
        record of 1 MiB, which every stream accepts, is split into several records, with the members
        `part` (from 1) and `parts`. With `payload_only`, the value is only the payload; but a
        letter without a payload, or with a payload larger than the stream accepts, is still written
        as one or several JSON objects.

        `aws` accepts the fields of `kinesis_spout.config.AwsConfig`: region, endpoint_url, profile,
        access_key_id, secret_access_key, session_token, role_arn, role_external_id,
        role_session_name. Needs kinesis:PutRecords on the stream, and kinesis:DescribeStreamSummary
        if `payload_only` puts a payload larger than 1 MiB. With the latter permission, a query's
        first batch fails if the stream does not exist. Raises `kinesis_spout.errors.ConfigError` at
        once for a bad argument.
        """
        return cls._of(StreamSink.of(stream, payload_only=payload_only, aws=aws))

    @classmethod
    def to(cls, function: Callable[[list[Letter]], object]) -> DeadLetter:
        """Call `function` on the driver with lists of at most 500 letters and 32 MiB of payload
        (more if a single letter is larger).

        Without letters, the function is not called. Delivery is at least once: a repeated plan
        delivers its letters again, with the same `message_id`. An exception in the function fails
        the batch. The driver keeps one Spark partition of letters in memory at a time.
        """
        check_function("argument function of DeadLetter.to(...)", function, takes=["a list"])
        return cls._of(_FunctionSink(function))

    @classmethod
    def _of(cls, sink: LetterSink) -> DeadLetter:
        made = object.__new__(cls)
        object.__setattr__(made, "sink", sink)
        return made

    def __repr__(self) -> str:
        return f"DeadLetter({self.sink})"

    def check(self, spark: SparkSession) -> None:
        """Raise `DeadLetterError` if letters cannot be written: Spark does not find the format, or
        the stream does not exist. Blocks on one request at most.
        """
        try:
            self.sink.check(spark)
        except Exception as exc:  # noqa: BLE001  # Java's errors have many classes
            error = for_spark(exc, str(self.sink))
            raise DeadLetterError(
                f"cannot write dead letters to {self.sink} ({self._cause(error)}), so no "
                "batch is processed",
                "correct the argument dead_letter of tracked(...), and start the query again",
            ) from error

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all the letters of a plan. Blocks until they are written.

        `letters` has the columns of `LETTER_DDL`; other columns are left out. If the plan was
        written before, call `write` even with an empty frame, so that the earlier letters are
        replaced. Raises `DeadLetterError`.
        """
        try:
            self.sink.write(letters.select(*LETTER_COLUMNS), plan_id=plan_id)
        except BaseException as exc:  # noqa: BLE001  # a user's function may raise anything
            error = for_spark(exc, str(self.sink))
            raise DeadLetterError(
                f"cannot write the dead letters of batch {plan_id} to {self.sink} "
                f"({self._cause(error)}), so no record of the batch is acked",
                "repair the dead-letter sink, and start the query again",
            ) from error

    def _cause(self, error: BaseException) -> str:
        # The text of a Spark error is complete; that of another one says little without its class.
        is_complete = isinstance(error, KinesisError) or type(error).__module__.startswith(
            ("pyspark.", "py4j.")
        )
        text = text_of(error, MAX_MESSAGE_CHARS) if is_complete else described(error)
        return self.sink.without_secrets(failure_sentence(text)).rstrip(".")


FILE_FORMATS = frozenset({"parquet", "orc", "avro", "json"})
PLAN_COLUMN = "plan"
_NO_BYTES = frozenset({"csv", "text", "xml"})
_RESERVED = frozenset({"mode", "partitionby", "replacewhere", "txnappid", "txnversion"})
_FORMAT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_PLAN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)
# Of the URL of a database: jdbc:postgresql://db/ops?user=etl&password=...
_PARAMETER = re.compile(r"[?&;]([^?&;=]+)=([^?&;]+)")
_USER_INFO = re.compile(r"//[^/@\s]*@")
_SHORTEST_SECRET = 4
# Spark's own default cuts times to milliseconds.
_JSON_DEFAULTS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}


@dataclass(frozen=True, slots=True, repr=False)
class WriterSink(LetterSink):
    """A Spark writer: its format, path and options."""

    format: str
    path: str | None
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, format: object, path: object, options: Mapping[str, object]) -> WriterSink:  # noqa: A002  # Spark's name for it
        """Check the arguments. Raises `ConfigError`."""
        if not isinstance(format, str) or not _FORMAT.fullmatch(format):
            raise ConfigError(
                f"DeadLetter: {format!r} is not a Spark writer's format",
                "use a Spark format, such as parquet, json, delta or jdbc",
            )
        if format.lower() in _NO_BYTES:
            raise ConfigError(
                f"DeadLetter: format {format} cannot contain dead letters",
                "use parquet, orc, avro or json, which can store the bytes of a payload",
            )
        if path is not None and (not isinstance(path, str) or not path.strip()):
            raise ConfigError(
                "DeadLetter: path is empty or not a string",
                "set path to a directory, such as s3a://bucket/dead or /data/dead",
            )
        if path is None and format.lower() in FILE_FORMATS:
            raise ConfigError(
                f"DeadLetter: format {format} needs a path",
                "set path to a directory for the dead letters",
            )
        for name, value in options.items():
            if name.lower() in _RESERVED:
                raise ConfigError(
                    f"DeadLetter: option {name} cannot be set, because DeadLetter sets it",
                    "omit it",
                )
            if not isinstance(value, str | int | float):
                raise ConfigError(
                    f"DeadLetter: option {name} is of type {type(value).__name__}",
                    f"pass a string or a number as the value of option {name}",
                )
        texts = (
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in options.items()
        )
        return cls(format, path, tuple(texts))

    def __str__(self) -> str:
        """The place, for messages. Option values may be secrets, and are left out."""
        at = "" if self.path is None else f" at {_USER_INFO.sub('//***@', self.path)}"
        return f"{self.format}{at}"

    def __repr__(self) -> str:
        shown = "".join(f", {name}='***'" for name, _ in self.options)
        return f"WriterSink({str(self)!r}{shown})"

    def check(self, spark: SparkSession) -> None:
        """Spark looks the format up only when it saves a frame."""
        found = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr]  # noqa: SLF001  # nothing public looks up a format alone
        found.lookupDataSource(self.format, spark._jsparkSession.sessionState().conf())  # noqa: SLF001  # as above

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        if not _PLAN_ID.fullmatch(plan_id):  # it becomes part of a path, or of a condition
            raise ValueError(f"{plan_id!r} is not a plan id")
        kind = self.format.lower()
        if kind == "delta":
            letters = letters.withColumn(PLAN_COLUMN, F.lit(plan_id))
        options = (_JSON_DEFAULTS if kind == "json" else {}) | dict(self.options)
        writer, path = letters.write.format(self.format).options(**options), self.path
        if kind in FILE_FORMATS and path is not None:
            writer = writer.mode("overwrite")
            path = f"{path.rstrip('/') or '/'}/{PLAN_COLUMN}={plan_id}"
        elif kind == "delta":
            # Not by delta's transaction id: it would skip a repeated plan, which may have other
            # letters than the first time.
            writer = writer.mode("overwrite").partitionBy(PLAN_COLUMN)
            writer = writer.option("replaceWhere", f"{PLAN_COLUMN} = '{plan_id}'")
        else:
            writer = writer.mode("append")
        writer.save(path)

    def without_secrets(self, text: str) -> str:
        text = _USER_INFO.sub("//***@", text)
        in_urls = (found for _, value in self.options for found in _PARAMETER.findall(value))
        for name, value in (*self.options, *in_urls):
            if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text


# Data and key of a record that every stream takes (API reference of UpdateMaxRecordSize).
ANY_STREAM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamSink(LetterSink):
    """Another Kinesis stream, on which the executors put the letters."""

    stream: StreamRef
    aws: AwsConfig
    payload_only: bool

    @classmethod
    def of(cls, stream: str, *, payload_only: bool, aws: Mapping[str, Any]) -> StreamSink:
        """Check the arguments. Raises `ConfigError`."""
        known = [field.name for field in fields(AwsConfig)]
        for name in sorted(aws.keys() - set(known)):
            hint = did_you_mean(name, known, f"the options are {', '.join(known)}")
            raise ConfigError(f"DeadLetter.to_stream: option {name} is not known", hint)
        if not isinstance(stream, str):
            raise ConfigError(
                "DeadLetter.to_stream: the stream is not a string",
                "pass the name or the ARN of the stream",
            )
        ref = StreamRef.of(stream)
        config = AwsConfig(**aws)
        ref.region_or(config.region)
        return cls(ref, config, payload_only)

    def __str__(self) -> str:
        return f"stream {self.stream}"

    def check(self, spark: SparkSession) -> None:  # noqa: ARG002  # the stream is outside Spark
        with closing(KinesisClient(self.aws, self.stream)) as client:
            try:
                client.describe(retry=False)
            except StreamNotFoundError:
                raise
            except KinesisError as exc:  # putting may be allowed, or possible by then
                log.warning("the dead-letter %s was not checked: %s", self, exc)

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # message ids identify repetitions
        # The executors have neither the driver's files nor its environment.
        sink = replace(self, aws=for_executors(self.aws, self.stream))
        with_plain_times(letters).foreachPartition(sink.put)

    def put(self, rows: Iterable[Any]) -> None:
        """Put rows of letters, on an executor. Blocks until the stream has accepted all of them.
        Raises `KinesisError`.
        """
        with closing(KinesisClient(self.aws, self.stream, answered_before=True)) as client:
            # Asked once, and only for a record that not every stream takes.
            most_bytes = cache(lambda: client.describe().max_record_bytes or ANY_STREAM_BYTES)

            def takes(record: OutgoingRecord) -> bool:
                return record.size_bytes <= ANY_STREAM_BYTES or record.size_bytes <= most_bytes()

            letters = map(letter_of, rows)
            RecordPutter(client).put(
                one for letter in letters for one in self.records_of(letter, takes)
            )

    def records_of(
        self, letter: Letter, takes: Callable[[OutgoingRecord], bool]
    ) -> list[OutgoingRecord]:
        """The records that a letter becomes on the stream. `takes`: whether the stream takes a
        record of this size. The key of an envelope is as in `payload_records`.
        """
        if self.payload_only and letter.data is not None:
            bare = payload_records(letter)
            if all(map(takes, bare)):
                return bare
        key = letter.partition_key or letter.message_id
        return [OutgoingRecord(key, value) for value in envelopes(letter)]
