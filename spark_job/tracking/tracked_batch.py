"""`TrackedBatch`, the user's API: the records of a batch, and calls that fail some of them.

`map_records` calls the function in one persisted `Evaluation`. The output and the failures must
come from the same calls. So both are rows of one persisted frame: a row is either an output, or a
note of a failure (`record_mapping`).

Persisted rows may be lost, when an executor dies or somebody clears the cache. Spark then calls the
function again, and it may fail for a record that did not fail before: the record would be acked
without an output. Each evaluation of a partition therefore stamps its notes with a random run id.
A note that has an unknown run id, and the message id of a record that did not fail before, raises.
The batch fails, and is delivered again.

Conditions are SQL texts in an evaluation. As Column objects each would cost dozens of calls to the
JVM, in sum a quarter of a second per batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.errors import ParseException, PySparkTypeError
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, StructField, StructType

from kinesis_spout.config import check_function
from kinesis_spout.errors import ConfigError
from scheme.payload_scheme import PayloadScheme
from scheme.record import Record
from spark_job.data_source import PARSED
from spark_job.query_failure import failure_sentence
from spark_job.rows import COLUMNS
from spark_job.tracking.content_check import BatchContentError, ShardContent, merge_content
from spark_job.tracking.outcomes import MAX_DELAY_S, FailedRecord, Outcome, one_line
from spark_job.tracking.record_mapping import (
    COLLECTED,
    NOT_IN_ORDER,
    NOTE,
    NOTE_SQL,
    NOTE_TYPE,
    ORIGINAL,
    SUMMARY,
    OutputColumn,
    OutputColumns,
    RecordMapper,
    failed_record,
    kind_of,
    summarized,
)
from spark_job.tracking.spark_sql import guarded, literal, map_in_arrow, values, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column

    from scheme.record_scheme import RecordScheme
    from spark_job.tracking.batch_frame import BatchFrame

_CAUSE = "_ks_cause"
_NULL, _MET, _MALFORMED = range(3)  # of the rows of a record, the greatest counts
# The failed message ids become part of an SQL expression. With more failures than this they are
# left out of it, and any second evaluation with a failure raises.
MAX_KNOWN_IDS = 1_000
CHANGED = (
    "a record failed that did not fail when Spark first computed the batch. Spark lost the "
    "persisted rows, and the function then returned a different result. No record of the batch "
    "is acked, and the batch is redelivered"
)
_IS_GEOSPATIAL = re.compile(r"\bgeo(metry|graphy)\(")
_SCHEMA_REMEDY = "give names with types, for example id string, total double"
_CURRENT: ContextVar[TrackedBatch | None] = ContextVar("spark_job_current_batch", default=None)


class TrackedBatch:
    """One batch, passed to the function that `KinesisSource.tracked` got.

    With `bisect`, it may be part of a batch. It is valid until the function returns. Every record
    that the function did not fail then counts as processed, and is acked. If the function raises an
    error, no record is acked.

    Failures are kept by message id: to fail a record twice is to fail it once. A record that was
    both rejected and failed with a retry is rejected. All methods block on Spark jobs. They may be
    called from several threads.
    """

    def __init__(self, frame: BatchFrame, *, batch_id: int | None) -> None:
        self._frame = frame
        self._batch_id = batch_id
        self._failures: dict[str, FailedRecord] = {}
        self._evaluations: list[Evaluation] = []
        self._begun: list[RecordMapper] = []  # of each evaluation, also of one that has failed
        self._at_end: list[Callable[[BaseException | None], object]] = []
        self._has_ended = False
        self._token: str | None = None

    @property
    def id(self) -> int:
        """Spark's number for the batch.

        Raises RuntimeError with `bisect`, because a batch's parts would share the number: use
        `token`.
        """
        if self._batch_id is None:
            raise RuntimeError(
                "batch.id cannot be used with bisect=True, because a sink that deduplicates by "
                "batch.id would drop all parts of a batch but the first; use batch.token in the "
                "sink"
            )
        return self._batch_id

    @property
    def token(self) -> str:
        """32 hexadecimal digits that identify this set of records.

        The same records have the same token, in any order and in any later delivery. Pass the token
        to a sink that deduplicates. The first use runs a Spark job.
        """
        if self._token is None:
            self._token = self._frame.token()
        return self._token

    @property
    def df(self) -> DataFrame:
        """The records, with the source's columns and the columns added to its frame.

        The first action reads the records from Kinesis, and they are persisted while the batch is
        running. Exhausted records, and records waiting for an earlier one (`on_failure`), are not
        in the frame.
        """
        return self._frame.given()

    @property
    def failures(self) -> Mapping[str, FailedRecord]:
        """The records failed so far, by message id: for your own logs and metrics.

        Each has `message_id`, `attempt` (the number of this delivery, from 1) and `reason`. A
        record that is not in the mapping when the function returns is acked. The mapping grows with
        each failure. Do not change it.
        """
        return self._failures

    def fail(
        self,
        records: str | Record | Row | Iterable[str | Record | Row] | DataFrame,
        reason: str,
        *,
        retry: bool = True,
        after_s: float | None = None,
    ) -> None:
        """Fail records.

        `records` is a message id, a `scheme.Record`, a row with `messageId`, an iterable of these,
        or a frame with `messageId`. The dead letter shows `reason`, cut to 300 characters.

        With `retry`, the records are redelivered until their retries are used up: after `after_s`
        seconds, or after their backoff if `after_s` is None. Without `retry`, they are
        dead-lettered now. With `on_failure` block_key or block_shard, a retry also fails the later
        records of the same key or shard, which are redelivered after it.

        Raises ValueError for a record that is not in this batch, and for any other value; no record
        is failed then. Raises RuntimeError after the end of the batch.
        """
        if after_s is not None and not (retry and 0 <= after_s < float("inf")):
            raise ValueError(
                f"after_s is {after_s}; use 0 or more seconds, and set after_s only with retry=True"
            )
        ids = dict.fromkeys(_ids(records), reason)
        self._fail(ids, Outcome.RETRY if retry else Outcome.REJECT, after_s=after_s)

    def fail_where(
        self, df: DataFrame, predicate: Column | str, reason: str, *, retry: bool = True
    ) -> DataFrame:
        """Fail the records that have a row matching the predicate, and return all other rows.

        `df` is derived from `batch.df` and must still have its `messageId`. A predicate that is
        NULL counts as a match, so that no record slips through. If one of a record's rows matches,
        the record fails with all its rows. `retry` is the same as for `fail`.

        Malformed records are rejected too, with their own reason: those with `malformed` set in a
        struct column `{value, malformed}` that a record scheme made.

        Raises `kinesis_spout.errors.ConfigError` for a frame without `messageId`, or for a failing
        row whose `messageId` is NULL.
        """
        return self._without_failing(
            df, predicate, reason, Outcome.RETRY if retry else Outcome.REJECT
        )

    def map_records(
        self, function: Callable[[Record], object], schema: str | StructType
    ) -> DataFrame:
        """Call `function` for every record, on the executors, and return its output as a frame.

        `function` gets a `scheme.Record`. It returns a dict, Row, tuple, dataclass or other mapping
        for one row; a list or iterator of these for several rows; or None for no row. The frame has
        the columns of `schema`: a StructType, or DDL such as "id string, total double". Naive
        datetimes count as UTC.

        `Reject` and `MalformedRecordError` reject the record. `Retry`, any other exception, and an
        output that does not fit the schema fail the record, which is then retried.

        All calls are made before this method returns: one per record, unless Spark loses persisted
        rows. Any number of actions may run on the frame.

        Raises `kinesis_spout.errors.ConfigError` for a bad schema, or if `function` is not a
        function. Raises Spark's error if a Python worker ends (`os._exit`, out of memory). Do not
        catch this error: it must fail the batch.
        """
        self._check_open()
        name = "the function passed to batch.map_records"
        check_function(name, function, takes=["a record"], may_yield=True)
        struct, columns = output_schema(schema)
        frame = self._frame
        mapper = RecordMapper(function=function, columns=columns, rules=frame.rules)
        rows = frame.rows() if self._begun else frame.cheapest
        self._begun.append(mapper)
        evaluation = evaluate(rows.select(*COLUMNS), mapper, struct)
        self._evaluations.append(evaluation)
        if frame.rules.in_order and not evaluation.in_order:
            raise BatchContentError(NOT_IN_ORDER)
        self._add(evaluation.failures)
        return evaluation.output()

    def parsed(self, scheme: RecordScheme | None = None, *, into: str = PARSED) -> DataFrame:
        """Return `batch.df` with the record scheme's fields in the struct column `into`. Without
        `scheme`, the fields are those that the source's reader has decoded with its own scheme.

        Malformed records are rejected, and are not in the frame. If a record gives several rows,
        the frame has all of them; a record without rows is acked.
        """
        if scheme is None:
            if PARSED not in self.df.columns:
                raise ConfigError(
                    "batch.parsed() was called without a scheme, and the KinesisSource has "
                    "no scheme",
                    "pass a scheme to batch.parsed(...) or to KinesisSource(...)",
                )
            df = self.df.withColumn(into, self.df[PARSED])
        else:
            df = self.df.withColumn(into, scheme.column(self.df["data"]))
        if isinstance(scheme, PayloadScheme):
            # Python has decoded them once for the look at malformed ones. The frame is that result:
            # a scheme with a registry might say otherwise the next time.
            decoded = df = df.persist(StorageLevel.MEMORY_AND_DISK)
            self.at_end(lambda _error: decoded.unpersist())
        gives_many = isinstance(df.schema[into].dataType, ArrayType)
        rows = df.withColumn(into, F.explode(into)) if gives_many else df
        rest = self._without_failing(rows, None, "", Outcome.REJECT)
        return rest.withColumn(into, rest[into]["value"])

    # for foreach_batch and the acker
    @property
    def evaluations(self) -> Sequence[Evaluation]:
        """The evaluations of `map_records`. Raises RuntimeError if one has failed."""
        if len(self._begun) > len(self._evaluations):
            raise RuntimeError(
                "batch.map_records failed, but the function passed to tracked(...) caught the "
                "error, so no record of the batch is acked; do not catch errors of "
                "batch.map_records"
            )
        return self._evaluations

    def at_end(self, callback: Callable[[BaseException | None], object]) -> None:
        """Call `callback` when the user's function has ended, with its error or None.

        An exception of the callback fails the batch.
        """
        self._at_end.append(callback)

    def call_back(self, error: BaseException | None) -> None:
        """Run the callbacks: the function has returned, or raised `error`. Raises their errors."""
        try:
            while self._at_end:
                self._at_end.pop()(error)
        finally:
            self._has_ended = True

    def close(self) -> None:
        """Unpersist the evaluations of `map_records`. Idempotent."""
        for evaluation in self._evaluations:
            evaluation.close()

    def _add(self, records: Iterable[FailedRecord]) -> None:
        """Note failures. Of two notes on one record, the higher `Outcome` stays."""
        for record in records:
            known = self._failures.get(record.message_id)
            if known is None or record.outcome > known.outcome:
                self._failures[record.message_id] = record
        # After they are noted: whatever is noted before the end is reported.
        self._check_open()

    def _check_open(self) -> None:
        if self._has_ended:
            raise RuntimeError(
                "records were failed or mapped after the end of their batch, so the failures have "
                "no effect; fail and map records only inside the function passed to tracked(...), "
                "and let this function wait for its threads"
            )

    def _without_failing(
        self, df: DataFrame, predicate: Column | str | None, reason: str, outcome: Outcome
    ) -> DataFrame:
        """Reject the frame's malformed records, fail those that meet the predicate, and return the
        rows of the others. Runs one Spark job, which collects message ids and reasons only.
        """
        malformed: dict[str, str] = {}
        failed: dict[str, str] = {}
        for message_id, (kind, why) in _failing(df, predicate):
            if message_id is None:
                raise ConfigError(
                    "the messageId of a failed row is NULL, perhaps after an outer join",
                    "keep the messageId of each record in its rows",
                )
            if kind == _MALFORMED:
                malformed[message_id] = why
            else:
                is_null = " (the condition is NULL)" if kind == _NULL else ""
                failed[message_id] = f"{one_line(reason)}{is_null}"
        gone = self._fail(malformed, Outcome.REJECT) | self._fail(failed, outcome)
        return without(df, gone)

    def _fail(
        self, reasons: Mapping[str, str], outcome: Outcome, *, after_s: float | None = None
    ) -> set[str]:
        """Note failures, given as reasons by message id.

        Returns the ids of the failed records, and of those that they block.
        """
        if not reasons:
            return set()
        self._check_open()
        keys = self._frame.order_keys(reasons.keys())
        foreign = next((message_id for message_id in reasons if message_id not in keys), None)
        if foreign is not None:
            raise ValueError(
                f"record {foreign} is not in this batch, so this batch cannot fail the record; "
                "pass messageIds from batch.df"
            )
        delay_s = None if after_s is None else min(after_s, MAX_DELAY_S)
        records = [
            FailedRecord.of(
                message_id,
                outcome,
                reason=one_line(reason),
                after_s=delay_s,
                key=keys[message_id],
            )
            for message_id, reason in reasons.items()
        ]
        failed = [*records, *self._frame.blocked_by(records)]
        self._add(failed)
        return {record.message_id for record in failed}


@contextmanager
def running(batch: TrackedBatch) -> Iterator[None]:
    """Make `batch` the current batch of this thread, while the user's function runs."""
    before = _CURRENT.set(batch)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current_batch() -> TrackedBatch:
    """The current batch of this thread. Raises RuntimeError outside of the user's function."""
    batch = _CURRENT.get()
    if batch is None:
        raise RuntimeError(
            "no batch of a tracked query runs in this thread; call this function inside the "
            "function passed to source.tracked(...)"
        )
    return batch


def _failing(df: DataFrame, predicate: Column | str | None) -> list[Row]:
    """The message ids of the records that are malformed or meet the predicate, each with its cause:
    a kind, and the reason of a malformed one. A predicate that is NULL counts as met. Runs a job.

    A record scheme makes structs of exactly `value` and `malformed`; a row is malformed if
    `malformed` is set in one.
    """
    if "messageId" not in df.columns:
        raise ConfigError(
            "the frame passed to batch.fail_where has no column messageId, which identifies the "
            "records to fail",
            "keep the column messageId until you call batch.fail_where",
        )
    reasons = [
        F.col(f"`{one.name}`")["malformed"]
        for one in df.schema.fields
        if isinstance(one.dataType, StructType) and one.dataType.names == ["value", "malformed"]
    ]
    causes = [
        F.when(reason.isNotNull(), F.struct(F.lit(_MALFORMED), reason.cast("string")))
        for reason in reasons
    ]
    if predicate is not None:
        met = F.expr(predicate) if isinstance(predicate, str) else predicate
        null, true = (F.struct(F.lit(kind), F.lit("")) for kind in (_NULL, _MET))
        causes.append(F.when(met.isNull(), null).when(met, true))
    if not causes:
        return []
    found = df.select("messageId", F.coalesce(*causes).alias(_CAUSE))
    by_record = found.where(F.col(_CAUSE).isNotNull()).groupBy("messageId")
    return by_record.agg(F.max(_CAUSE)).collect()


def _ids(records: str | Record | Row | Iterable[str | Record | Row] | DataFrame) -> list[str]:
    if isinstance(records, DataFrame):
        if "messageId" not in records.columns:
            raise ValueError(
                "the frame passed to batch.fail has no column messageId, which identifies the "
                "records to fail; keep the column messageId"
            )
        return [str(one) for one in values(records.select("messageId").distinct(), "messageId")]
    if isinstance(records, str | Record | Row) or not isinstance(records, Iterable):
        records = [records]
    ids: list[str] = []
    for record in records:
        if isinstance(record, str):
            ids.append(record)
        elif isinstance(record, Record):
            ids.append(record.message_id)
        elif isinstance(record, Row | Mapping) and "messageId" in record:
            ids.append(str(record["messageId"]))
        else:
            raise ValueError(
                f"batch.fail was called with {kind_of(record)}; pass message ids, Records, rows "
                "with a messageId, or a frame with the column messageId"
            )
    return ids


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
                "the rows of batch.map_records were used after the end of their batch; use these "
                "rows only inside the function passed to tracked(...)"
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
    if not isinstance(schema, str | StructType):
        raise ConfigError(
            f"the schema passed to batch.map_records is of type {type(schema).__name__}",
            _SCHEMA_REMEDY,
        )
    struct = schema if isinstance(schema, StructType) else _struct(schema)
    if NOTE in struct.names:
        raise ConfigError(
            f"the schema passed to batch.map_records has a column {NOTE}, whose name is reserved",
            "rename it",
        )
    return struct, OutputColumns(tuple(map(_output_column, struct.fields)))


def _output_column(field: StructField) -> OutputColumn:
    ddl = field.dataType.simpleString()
    refused = ConfigError(
        f"the schema passed to batch.map_records has a column {field.name} of type {ddl}, "
        "which Spark cannot take from Python",
        "use another type, such as string, and cast the column afterwards",
    )
    if _IS_GEOSPATIAL.search(ddl):  # has an Arrow type, but Spark cannot persist such a column
        raise refused
    try:
        arrow_type = to_arrow_type(field.dataType, timezone="UTC")
    except PySparkTypeError as exc:
        raise refused from exc
    return OutputColumn(name=field.name, type=arrow_type, ddl=ddl, required=not field.nullable)


@cache
def _struct(ddl: str) -> StructType:
    try:
        parsed = StructType.fromDDL(ddl)
    except ParseException as exc:
        why = failure_sentence(str(exc)).rstrip(".")
        raise ConfigError(
            f"the schema passed to batch.map_records is {ddl!r}, which is not a valid DDL "
            f"schema ({why})",
            _SCHEMA_REMEDY,
        ) from exc
    if not isinstance(parsed, StructType):
        raise ConfigError(f"the schema passed to batch.map_records is {ddl!r}", _SCHEMA_REMEDY)
    return parsed


def _fields(names: Iterable[str]) -> str:
    return ", ".join(f"{NOTE_SQL}.{name} AS {name}" for name in names)


def _is_one_of(column: str, texts: Iterable[str]) -> str:
    """An SQL condition: the column is one of the texts, which must not contain commas."""
    return f"array_contains(split({literal(','.join(texts))}, ','), {column})"
