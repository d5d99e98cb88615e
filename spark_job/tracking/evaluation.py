"""One persisted evaluation of the user's function over a batch, for `map_records`.

The output and the failures must come from the same calls of the function. So both are rows of one
persisted frame: a row is either an output, or a note of a failure (`record_mapping`).

Persisted rows may be lost, when an executor dies or somebody clears the cache. Spark then calls the
function again, and it may fail for a record that did not fail before: the record would be acked
without an output. Each evaluation of a partition therefore stamps its notes with a random run id.
A note that has an unknown run id, and the message id of a record that did not fail before, raises.
The batch fails, and is delivered again.

Conditions are SQL texts here. As Column objects each would cost dozens of calls to the JVM, in sum
a quarter of a second per batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StructField, StructType

from kinesis_spout.errors import ConfigError
from spark_job.tracking.content_check import ShardContent, merge_content
from spark_job.tracking.record_mapping import (
    COLLECTED,
    NOTE,
    NOTE_SQL,
    NOTE_TYPE,
    ORIGINAL,
    SUMMARY,
    OutputColumn,
    OutputColumns,
    failed_record,
    summarized,
)
from spark_job.tracking.spark_sql import guarded, literal, map_in_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from spark_job.tracking.outcomes import FailedRecord
    from spark_job.tracking.record_mapping import RecordMapper

# The failed message ids become part of an SQL expression. With more failures than this they are
# left out of it, and any second evaluation with a failure raises.
MAX_KNOWN_IDS = 1_000
CHANGED = (
    "a record failed that had not failed when its batch was first evaluated. Spark lost the "
    "persisted rows, and the function returned another result. Nothing is acked, and the batch is "
    "redelivered"
)


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """The evaluation of one `map_records`.

    - `persisted`: the output, and a note in column `NOTE` of each failure and each stretch of a
      shard's rows; None once it is closed. `runs`: the ids of the partitions' evaluations.
    - `content`: of the rows that were read, by shard. `in_order`: a shard's rows were together.
    """

    persisted: DataFrame | None
    runs: list[str]
    failures: list[FailedRecord]
    content: Mapping[str, ShardContent]
    in_order: bool

    def output(self) -> DataFrame:
        """The rows that the function returned. It is safe to run any number of actions on them."""
        known = [f"{NOTE_SQL}.outcome = {SUMMARY}", _is_one_of(f"{NOTE_SQL}.run", self.runs)]
        if len(self.failures) <= MAX_KNOWN_IDS:
            known.append(
                _is_one_of(f"{NOTE_SQL}.messageId", (record.message_id for record in self.failures))
            )
        fails = (
            f"CASE WHEN {' OR '.join(known)} THEN false "
            f"ELSE CAST(raise_error('{CHANGED}') AS BOOLEAN) END"
        )
        return guarded(self._persisted_rows(), f"{NOTE} IS NULL OR {fails}").drop(NOTE)

    def originals(self) -> DataFrame:
        """The failed records, in the source's columns."""
        failed = self._persisted_rows().where(f"{NOTE_SQL}.outcome <> {SUMMARY}")
        return failed.selectExpr(f"struct({_fields(ORIGINAL.names)}) AS original").select(
            "original.*"
        )

    def close(self) -> None:
        if self.persisted is not None:
            self.persisted.unpersist()
            self.persisted = None

    def _persisted_rows(self) -> DataFrame:
        if self.persisted is None:
            raise RuntimeError(
                "the rows of batch.map_records were used after the end of their batch; use them "
                "inside the function given to tracked(...)"
            )
        return self.persisted


def evaluate(rows: DataFrame, mapper: RecordMapper, schema: StructType) -> Evaluation:
    """Call the function for every record, persist its output, and collect the failures.

    Blocks on a Spark job. Payloads of failed records stay on the executors.
    """
    # All columns are nullable: they are NULL in the row of a note.
    nullable = [StructField(field.name, field.dataType) for field in schema.fields]
    with_notes = StructType([*nullable, StructField(NOTE, from_arrow_type(NOTE_TYPE))])
    persisted = map_in_arrow(rows, mapper, with_notes).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = (
            persisted.where(f"{NOTE} IS NOT NULL")
            .selectExpr(f"struct({_fields(COLLECTED)}) AS note")
            # Not toArrow: it hides a task's error behind an error of its socket.
            .collect()
        )
    except BaseException:
        persisted.unpersist()
        raise
    notes = [row.note.asDict() for row in found]
    summaries = [row for row in notes if row["outcome"] == SUMMARY]
    stretches = {(row["run"], row["shardId"]) for row in summaries}
    return Evaluation(
        persisted=persisted,
        runs=sorted({run for run, _ in stretches}),
        failures=[failed_record(row) for row in notes if row["outcome"] != SUMMARY],
        content=merge_content(map(summarized, summaries)),
        # A shard in two partitions has two runs: its rows are not together.
        in_order=len(stretches) == len({shard for _, shard in stretches}),
    )


def output_schema(schema: str | StructType) -> tuple[StructType, OutputColumns]:
    """The user's schema as Spark's and as Arrow's types. Raises `ConfigError`."""
    struct = schema if isinstance(schema, StructType) else _struct(schema)
    if NOTE in struct.names:
        raise ConfigError(
            f"the schema given to batch.map_records has a column {NOTE}, which is reserved",
            "give it another name",
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
            f"the schema given to batch.map_records is {ddl!r}",
            "give names with types, for example id string, total double",
        )
    return parsed


def _fields(names: Iterable[str]) -> str:
    return ", ".join(f"{NOTE_SQL}.{name} AS {name}" for name in names)


def _is_one_of(column: str, texts: Iterable[str]) -> str:
    """An SQL condition: the column is one of the texts, which must not contain commas."""
    return f"array_contains(split({literal(','.join(texts))}, ','), {column})"
