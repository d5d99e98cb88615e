"""One evaluation of a user's function over a batch, kept: its output, and what failed, are of the
same calls.

The kept rows may be lost (an executor dies, somebody clears the cache). Spark then calls the
function again, and it may fail where it did not before. Such a row has the stamp of a run that is
not known, and a message id that has not failed: it raises, so the batch fails and is delivered
again, instead of losing it.

Conditions are SQL texts here: made of columns, each would cost dozens of calls to the JVM, which
added up to a quarter of a second in every batch.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from kinesis_spout.errors import ConfigError
from spark_job.tracking.content_check import ShardContent, merge_content
from spark_job.tracking.record_note import (
    COLLECTED,
    NOTE,
    NOTE_DDL,
    ORIGINAL,
    SUMMARY,
    failed_record,
)
from spark_job.tracking.row_output import OutputColumn, OutputColumns
from spark_job.tracking.spark_sql import guarded, literal, map_in_arrow
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from spark_job.tracking.outcomes import FailedRecord
    from spark_job.tracking.record_mapping import RecordMapper

MAX_KNOWN_IDS = 1_000  # in one expression; with more failures than that, any second evaluation with a failure raises
CHANGED = (
    "a record fails that did not fail when its batch was evaluated first: the kept rows were lost, "
    "and the function gives "
    "something else now; nothing is acked, and the batch is delivered again"
)


class Evaluation:
    """The kept rows of one `map_records`. The constructor only says what is to be run."""

    def __init__(self, rows: DataFrame, mapper: RecordMapper, schema: StructType) -> None:
        self._rows = rows
        self._mapper = mapper
        nullable = [
            StructField(field.name, field.dataType) for field in schema.fields
        ]  # as they are NULL beside a note
        self._schema = StructType([*nullable, *_struct(NOTE_DDL).fields])
        self._kept: DataFrame | None = None
        self._runs: list[str] = []
        self.failures: list[FailedRecord] = []
        self.content: Mapping[str, ShardContent] = {}
        self.in_order = True
        self.done = False

    def run(self) -> None:
        """Call the function for every record, keep its output, and collect what failed (without
        payloads). Blocks.
        """
        self._kept = map_in_arrow(self._rows, self._mapper, self._schema).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        told = self._kept.where(f"{NOTE} IS NOT NULL").selectExpr(
            f"struct({_fields(COLLECTED)}) AS told"
        )
        notes = [
            row.told.asDict() for row in told.collect()
        ]  # toArrow would hide a task's error behind its socket's
        summaries = [row for row in notes if row["outcome"] == SUMMARY]
        self._runs = sorted({row["run"] for row in summaries})
        self.in_order = len({(row["run"], row["shardId"]) for row in summaries}) == len(
            {row["shardId"] for row in summaries}
        )
        self.content = merge_content(map(_content, summaries))
        self.failures = [failed_record(row) for row in notes if row["outcome"] != SUMMARY]
        self.done = True

    def output(self) -> DataFrame:
        """The rows that the function returned. Any number of actions on it is safe."""
        known = [f"{NOTE}.outcome = {SUMMARY}", _is_one_of(f"{NOTE}.run", self._runs)]
        if len(self.failures) <= MAX_KNOWN_IDS:
            known.append(
                _is_one_of(f"{NOTE}.messageId", (record.message_id for record in self.failures))
            )
        fails = f"CASE WHEN {' OR '.join(known)} THEN false ELSE CAST(raise_error('{CHANGED}') AS BOOLEAN) END"
        return guarded(self._kept_rows(), f"{NOTE} IS NULL OR {fails}").drop(NOTE)

    def originals(self) -> DataFrame:
        """The source's columns of the records that failed."""
        failed = self._kept_rows().where(f"{NOTE}.outcome <> {SUMMARY}")
        return failed.selectExpr(f"struct({_fields(ORIGINAL)}) AS original").select("original.*")

    def close(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None

    def _kept_rows(self) -> DataFrame:
        if self._kept is None:
            raise RuntimeError(
                "the rows of batch.map_records are used after their batch has ended; use them "
                "inside its function"
            )
        return self._kept


def output_schema(schema: str | StructType) -> tuple[StructType, OutputColumns]:
    """A user's schema as Spark and as Arrow know it. Raises `ConfigError`."""
    struct = schema if isinstance(schema, StructType) else _struct(schema)
    if NOTE in struct.names:
        raise ConfigError(
            f"the schema given to batch.map_records has a column {NOTE}, which is taken; name it "
            "otherwise"
        )
    columns = tuple(
        OutputColumn(
            name=field.name,
            type=to_arrow_type(field.dataType, timezone="UTC"),
            ddl=field.dataType.simpleString(),
            required=not field.nullable,
        )
        for field in struct.fields
    )
    return struct, OutputColumns(columns)


@cache
def _struct(ddl: str) -> StructType:
    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise ConfigError(
            f"the schema given to batch.map_records is {ddl!r}; give names with types, like id "
            "string, total double"
        )
    return parsed


def _content(row: Mapping[str, Any]) -> ShardContent:
    return ShardContent(
        shard_id=row["shardId"],
        new_count=row["newCount"],
        first=SequenceNumber.parse(row["newFirst"]) if row["newFirst"] else None,
        last=SequenceNumber.parse(row["newLast"]) if row["newLast"] else None,
        retry_rows=row["retryRows"],
    )


def _fields(names: Iterable[str]) -> str:
    return ", ".join(f"{NOTE}.{name} AS {name}" for name in names)


def _is_one_of(column: str, texts: Iterable[str]) -> str:
    """As a text of SQL; the texts have no commas."""
    return f"array_contains(split({literal(','.join(texts))}, ','), {column})"
