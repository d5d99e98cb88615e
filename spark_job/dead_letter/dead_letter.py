"""Where records go that could not be processed: files or a table through any Spark writer, another
stream, or a function.

    DeadLetter("parquet", path="s3a://bucket/dead/orders")       a partition per plan, replaced when the plan is repeated
    DeadLetter.to_stream("orders-dead", region="eu-central-1")   at least once
    DeadLetter.to(function)                                      at least once, on the driver

A plan whose batch failed, or whose driver died, is run again, and its letters are written again
under the same `plan_id`. A sink that can replace what it has of a plan (files, delta) then holds
each letter once; the others may hold it twice, with the same `messageId`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kinesis_spout.errors import KinesisError
from spark_job.dead_letter.function_sink import FunctionSink
from spark_job.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL, Letter
from spark_job.dead_letter.stream_sink import StreamSink
from spark_job.dead_letter.writer_sink import WriterSink
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["LETTER_COLUMNS", "LETTER_DDL", "DeadLetter", "DeadLetterError", "Letter", "LetterSink"]


class DeadLetterError(KinesisError):
    """The dead letters of a plan could not be written. Nothing of its batch may be acked."""


class LetterSink(Protocol):
    """What a DeadLetter writes to. `str()` of it names the place, without secrets."""

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all letters of a plan; blocks; raises whatever goes wrong."""
        ...

    def without_secrets(self, text: str) -> str:
        """The text with the sink's secrets masked."""
        ...


@dataclass(frozen=True, slots=True, init=False, repr=False)
class DeadLetter:
    """A place for dead letters. Frozen; picklable if its function is. Does no I/O until `write`.

    `DeadLetter(format, path=..., **options)` writes with
    `DataFrame.write.format(format).options(**options)`:

    - parquet, orc, avro and json with a `path`: each plan's letters are the directory
      `path/plan=<plan>/`, written in mode overwrite, so a plan that is repeated replaces its
      letters. json holds the payload as base64. csv, text and xml cannot hold bytes and are
      refused.
    - delta: the rows of the plan are replaced (`replaceWhere` on a column `plan`, by which the
      table is partitioned).
    - any other format (jdbc, kafka, iceberg, ...): mode append, at least once. kafka wants a column
      `value`: use a function.

    Raises `kinesis_spout.errors.ConfigError` at once for what cannot work.
    """

    sink: LetterSink

    def __init__(self, format: str, *, path: str | None = None, **options: Any) -> None:  # noqa: A002  # Spark's name for it
        object.__setattr__(self, "sink", WriterSink.of(format, path, options))

    @classmethod
    def to_stream(cls, stream: str, *, payload_only: bool = False, **aws: Any) -> DeadLetter:
        """Put the letters on another Kinesis stream (its name or ARN), from the executors, under
        the records' partition keys.

        At least once: a plan or a Spark task that is repeated puts its letters again. A value is a
        JSON object with the letter's columns: times as ISO 8601 in UTC, `data` in base64 (null
        where the record was gone). What does not fit into one record of 1 MiB comes in several,
        with the members `part` (from 1) and `parts`. With `payload_only` the value is the bare
        payload, and what is known besides is not kept; a letter without a payload is a JSON object
        all the same.

        `aws`: region, endpoint_url, profile, access_key_id, secret_access_key, session_token,
        role_arn, role_external_id, role_session_name, as of `kinesis_spout.config.AwsConfig`. Needs
        kinesis:PutRecords on the stream.
        """
        return cls._of(StreamSink.of(stream, payload_only=payload_only, aws=aws))

    @classmethod
    def to(cls, function: Callable[[list[Letter]], object]) -> DeadLetter:
        """Call `function` on the driver with lists of at most 500 letters; not at all when there
        are none.

        At least once: a plan that is repeated brings its letters again, with the same `message_id`.
        What the function raises fails the batch. One partition of the letters at a time is held in
        memory.
        """
        return cls._of(FunctionSink.of(function))

    @classmethod
    def _of(cls, sink: LetterSink) -> DeadLetter:
        made = object.__new__(cls)
        object.__setattr__(made, "sink", sink)
        return made

    def __repr__(self) -> str:
        return f"DeadLetter({self.sink})"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        """Write all letters of a plan (columns of LETTER_DDL; others are left out). Blocks until
        they are safe.

        Call it with an empty frame too where the plan was written before: what it wrote then is
        replaced. Raises `DeadLetterError`.
        """
        try:
            self.sink.write(letters.select(*LETTER_COLUMNS), plan_id=plan_id)
        except Exception as exc:
            cause = self.sink.without_secrets(failure_sentence(_text_of(exc))).rstrip(".")
            raise DeadLetterError(
                f"the dead letters of plan {plan_id} cannot be written to {self.sink} ({cause}); "
                "nothing of the batch is acked: "
                "see that the sink can be written, and start again"
            ) from exc

    def partition(self, plan_id: str) -> str | None:
        """The directory that holds a plan's letters; None where the sink has none."""
        return self.sink.partition(plan_id) if isinstance(self.sink, WriterSink) else None


def _text_of(exc: Exception) -> str:
    if isinstance(exc, KinesisError):
        return str(exc)
    module = type(exc).__module__
    # Spark's errors carry their own layout; a plain one says little without its class
    return str(exc) if module.startswith(("pyspark.", "py4j.")) else f"{type(exc).__name__}: {exc}"
