"""`DeadLetter`: the place for records that could not be processed.

It is files or a table through any Spark writer, another Kinesis stream, or a function:

    DeadLetter("parquet", path="s3a://bucket/dead/orders")       a directory per plan, overwritten
    DeadLetter.to_stream("orders-dead", region="eu-central-1")   at least once
    DeadLetter.to(function)                                      at least once, on the driver

If a batch fails or the driver dies, the plan runs again, and its letters are written again under
the same `plan_id`. A sink that can replace the letters of a plan (files, delta) then holds each
letter once. Other sinks may hold it twice, with the same `messageId`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kinesis_spout.dead_letter.letter import LETTER_COLUMNS, Letter, in_chunks
from kinesis_spout.errors import MAX_MESSAGE_CHARS, ConfigError, KinesisError, described, text_of
from spark_job.dead_letter.spark_files import letter_of, with_plain_times
from spark_job.dead_letter.stream_sink import StreamSink
from spark_job.dead_letter.writer_sink import WriterSink
from spark_job.query_failure import failure_sentence, for_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_SPARK_MODULES = ("pyspark.", "py4j.")


class DeadLetterError(KinesisError):
    """The dead letters of a plan could not be written. Nothing of its batch may be acked."""


class LetterSink(Protocol):
    """The sink of a DeadLetter, one class per kind. `str()` names the place, without secrets."""

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all letters of a plan. Blocks. May raise any exception."""
        ...

    def without_secrets(self, text: str) -> str:
        """The text with the sink's secrets masked."""
        ...


@dataclass(frozen=True, slots=True)
class _FunctionSink:
    """Calls the function on the driver, with a chunk of letters at a time."""

    function: Callable[[list[Letter]], object]

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # a function detects repetitions by message id
        rows = with_plain_times(letters).toLocalIterator()
        for chunk in in_chunks(map(letter_of, rows), lambda letter: letter):
            self.function(chunk)

    def without_secrets(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True, init=False, repr=False)
class DeadLetter:
    """A place for dead letters.

    It is frozen, and picklable if its function is. It does no I/O until `write`.

    `DeadLetter(format, path=..., **options)` writes with
    `DataFrame.write.format(format).options(**options)`:

    - parquet, orc, avro and json, with a `path`: the letters of a plan go to the directory
      `path/plan=<plan>/` in mode overwrite, so a repeated plan replaces its letters. json holds the
      payload in base64. csv, text and xml cannot hold bytes, and are refused.
    - delta: the rows of the plan are replaced, by `replaceWhere` on a column `plan` that partitions
      the table.
    - any other format (jdbc, kafka, iceberg, ...): mode append, at least once. kafka needs a column
      `value`; use a function for it.

    Raises `kinesis_spout.errors.ConfigError` at once for a setting that cannot work.
    """

    sink: LetterSink

    def __init__(self, format: str, *, path: str | None = None, **options: Any) -> None:  # noqa: A002  # Spark's name for it
        object.__setattr__(self, "sink", WriterSink.of(format, path, options))

    @classmethod
    def to_stream(cls, stream: str, *, payload_only: bool = False, **aws: Any) -> DeadLetter:
        """Put the letters on another Kinesis stream, given by its name or ARN.

        The executors put them, under the records' partition keys. At least once: a repeated plan or
        Spark task puts its letters again.

        A value is a JSON object with the letter's columns. Times are ISO 8601 in UTC, and `data` is
        base64 (null if the record was gone from the stream). A letter that does not fit into one
        record of 1 MiB, which every stream takes, is split into several, with the members `part`
        (from 1) and `parts`. With `payload_only` the value is the bare payload without the rest of
        the letter; a letter without a payload, or with a larger one than the stream takes, is a
        JSON object even then, or several.

        `aws` takes the fields of `kinesis_spout.config.AwsConfig`: region, endpoint_url, profile,
        access_key_id, secret_access_key, session_token, role_arn, role_external_id,
        role_session_name. Needs kinesis:PutRecords on the stream, and
        kinesis:DescribeStreamSummary where `payload_only` meets a payload above 1 MiB. Raises
        `kinesis_spout.errors.ConfigError` at once for a bad argument.
        """
        return cls._of(StreamSink.of(stream, payload_only=payload_only, aws=aws))

    @classmethod
    def to(cls, function: Callable[[list[Letter]], object]) -> DeadLetter:
        """Call `function` on the driver with lists of at most 500 letters, and of at most 32 MiB of
        payload unless one letter alone has more.

        It is not called if there are no letters. At least once: a repeated plan brings its letters
        again, with the same `message_id`. An exception of the function fails the batch. The driver
        holds one Spark partition of letters in memory at a time.
        """
        if not callable(function):
            raise ConfigError(
                f"DeadLetter.to takes a function, not a {type(function).__name__}",
                "pass a function that takes a list of dead letters",
            )
        return cls._of(_FunctionSink(function))

    @classmethod
    def _of(cls, sink: LetterSink) -> DeadLetter:
        made = object.__new__(cls)
        object.__setattr__(made, "sink", sink)
        return made

    def __repr__(self) -> str:
        return f"DeadLetter({self.sink})"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all letters of a plan. Blocks until they are written.

        `letters` has the columns of `LETTER_DDL`; other columns are left out. If the plan was
        written before, call this also with an empty frame, so that the earlier letters are
        replaced. Raises `DeadLetterError`.
        """
        try:
            self.sink.write(letters.select(*LETTER_COLUMNS), plan_id=plan_id)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001  # a user's function may raise anything
            error = for_spark(exc, str(self.sink))
            cause = self.sink.without_secrets(failure_sentence(_text_of(error))).rstrip(".")
            raise DeadLetterError(
                f"the dead letters of plan {plan_id} cannot be written to {self.sink} ({cause}), "
                "so no record of its batch is acked",
                "repair the sink and start the query again",
            ) from error


def _text_of(exc: BaseException) -> str:
    # The text of a Spark error is complete; that of another error says little without its class.
    is_complete = isinstance(exc, KinesisError) or type(exc).__module__.startswith(_SPARK_MODULES)
    return text_of(exc, MAX_MESSAGE_CHARS) if is_complete else described(exc)
