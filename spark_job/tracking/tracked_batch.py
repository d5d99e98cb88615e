"""What a tracked batch's function works with: the records, and how it says which of them failed."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row

from scheme.record import Record
from spark_job.tracking.batch_frame import SOURCE_COLUMNS
from spark_job.tracking.content_check import BatchContentError
from spark_job.tracking.evaluation import Evaluation, output_schema
from spark_job.tracking.failing_rows import failing_rows
from spark_job.tracking.outcomes import MAX_REASON_CHARS, FailedRecord, Outcome
from spark_job.tracking.record_mapping import NOT_IN_ORDER, RecordMapper
from spark_job.tracking.spark_sql import without
from spark_job.tracking.withholding import failure_rules
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from scheme.record_scheme import RecordScheme
    from spark_job.tracking.batch_frame import BatchFrame

_CURRENT: ContextVar[TrackedBatch | None] = ContextVar("spark_job_current_batch", default=None)


class TrackedBatch:
    """One batch (under bisect: a part of one) in the function that was given to
    `KinesisSource.tracked`.

    Valid until that function returns. Every record that is not failed here counts as done when it
    returns. All methods block on Spark jobs; they may be called from several threads. Failures are
    kept by message id, so a record that is failed twice is failed once; said to be rejected and to
    be retried, it is rejected.
    """

    def __init__(self, frame: BatchFrame, *, batch_id: int | None) -> None:
        self._frame = frame
        self._batch_id = batch_id
        self._failed: dict[str, FailedRecord] = {}
        self._evaluations: list[Evaluation] = []
        self._at_end: list[Callable[[BaseException | None], None]] = []
        self._token: str | None = None

    @property
    def id(self) -> int:
        """Spark's number of the batch. Raises RuntimeError under bisect, where several parts would
        share it: use `token`.
        """
        if self._batch_id is None:
            raise RuntimeError(
                "batch.id means nothing under bisect=True, where a batch is processed in parts and "
                "a sink that "
                "deduplicates by it would drop all but the first; give the sink batch.token"
            )
        return self._batch_id

    @property
    def token(self) -> str:
        """32 hexadecimal digits that name these records: the same for the same records, also in a
        later delivery.
        """
        if self._token is None:
            given = self._frame.fingerprint()
            text = f"{given.records}:{given.first_xor:x}:{given.second_xor:x}"
            self._token = hashlib.sha256(text.encode()).hexdigest()[:32]
        return self._token

    @property
    def df(self) -> DataFrame:
        """The records, in the source's columns. Read from Kinesis once, and kept while the batch
        runs.
        """
        return self._frame.shown()

    def fail(
        self,
        records: str | Record | Row | Iterable[str | Record | Row] | DataFrame,
        reason: str,
        *,
        retry: bool = True,
        after_s: float | None = None,
    ) -> None:
        """Fail records, named by message id, by themselves, by rows or by a frame with `messageId`.

        With `retry` they come again (after `after_s` seconds, or as the backoff says) until their
        retries are used up; without, they go to the dead letter now. Raises ValueError for a record
        that is not of this batch: nothing is failed then.
        """
        if after_s is not None and not (retry and 0 <= after_s < float("inf")):
            raise ValueError(
                f"after_s is {after_s}; give a number of seconds of 0 or more, and only with "
                "retry=True"
            )
        ids = dict.fromkeys(_ids(records), reason)
        self._fail(ids, Outcome.RETRY if retry else Outcome.REJECT, after_s=after_s)

    def fail_where(
        self, df: DataFrame, predicate: Column | str, reason: str, *, retry: bool = True
    ) -> DataFrame:
        """Fail the records of which a row meets the predicate; returns the rows of the others.

        `df` is made of `batch.df` and has its `messageId`. A predicate that is NULL counts as met:
        nothing slips through. A record fails as a whole, also if one of several rows does. A struct
        column `{value, malformed}`, as a scheme makes it, is looked at as well: where `malformed`
        is set the record is rejected with that reason.
        """
        found = failing_rows(df, predicate, reason)
        outcome = Outcome.RETRY if retry else Outcome.REJECT
        gone = self._fail(found.malformed, Outcome.REJECT) | self._fail(found.failed, outcome)
        return without(df, gone)

    def map_records(
        self, function: Callable[[Record], object], schema: str | StructType
    ) -> DataFrame:
        """Call `function` for every record, on the executors; the frame of what it returned, in the
        columns of `schema`.

        It gets a `scheme.Record` and returns a dict, Row, tuple, dataclass or other mapping for one
        row, a list or iterator of these for several, None for none. `Reject` and
        `MalformedRecordError` reject the record, `Retry` and every other exception fail it, and so
        does an output that is not of the schema. Naive datetimes count as UTC. It is called before
        this method returns, once per record unless kept rows are lost; any number of actions on the
        frame is safe.

        Raises what ends a Python worker (`os._exit`, too little memory), which is a failure of the
        batch.
        """
        struct, columns = output_schema(schema)
        frame = self._frame
        mapper = RecordMapper(
            function=function, columns=columns, rules=frame.rules, on_failure=frame.on_failure
        )
        rows = frame.rows() if self._evaluations else frame.cheapest
        evaluation = Evaluation(rows.select(*SOURCE_COLUMNS), mapper, struct)
        self._evaluations.append(evaluation)
        evaluation.run()
        if frame.on_failure is not OnFailure.CONTINUE and not evaluation.in_order:
            raise BatchContentError(NOT_IN_ORDER)
        self.add(evaluation.failures)
        return evaluation.output()

    def parsed(self, scheme: RecordScheme, *, into: str = "parsed") -> DataFrame:
        """`batch.df` with the scheme's fields in the struct column `into`. Malformed records are
        rejected, and left out.
        """
        df = self.df.withColumn(into, scheme.column(self.df["data"]))
        found = failing_rows(df, None, "")
        rest = without(df, self._fail(found.malformed, Outcome.REJECT))
        return rest.withColumn(into, rest[into]["value"])

    # for tracked
    # ----------------------------------------------------------------------------------------------
    @property
    def failures(self) -> Mapping[str, FailedRecord]:
        """What failed, by message id, as far as is known by now."""
        return self._failed

    @property
    def evaluations(self) -> Sequence[Evaluation]:
        """What `map_records` has kept."""
        return self._evaluations

    def at_end(self, callback: Callable[[BaseException | None], None]) -> None:
        """Have `callback` called when the function has ended: with its error, or with None (what it
        raises fails the batch).
        """
        self._at_end.append(callback)

    def end(self, error: BaseException | None) -> None:
        """The function has returned, or raised `error`. Raises what a callback raises."""
        while self._at_end:
            self._at_end.pop()(error)

    def close(self) -> None:
        """Let go of what `map_records` keeps. Idempotent."""
        for evaluation in self._evaluations:
            evaluation.close()

    def add(self, records: Iterable[FailedRecord]) -> None:
        """Note failures; of two of one record the graver one stays."""
        for record in records:
            known = self._failed.get(record.message_id)
            if known is None or record.outcome > known.outcome:
                self._failed[record.message_id] = record

    def _fail(
        self, reasons: Mapping[str, str], outcome: Outcome, *, after_s: float | None = None
    ) -> set[str]:
        """Note failures by message id; the ids of them, and of those that have to wait for them."""
        if not reasons:
            return set()
        keys = self._frame.partition_keys(reasons.keys())
        stranger = next((message_id for message_id in reasons if message_id not in keys), None)
        if stranger is not None:
            raise ValueError(
                f"record {stranger} is not of this batch, so it cannot be failed in it; give "
                "messageIds of batch.df"
            )
        records = [
            _failed(message_id, reason, outcome, keys[message_id], after_s)
            for message_id, reason in reasons.items()
        ]
        waiting = self._frame.waiting_for(records, failure_rules(records, self._frame.on_failure))
        self.add([*records, *waiting])
        return {record.message_id for record in [*records, *waiting]}


@contextmanager
def running(batch: TrackedBatch) -> Iterator[None]:
    """Makes `batch` the current one of this thread, for as long as its function runs."""
    before = _CURRENT.set(batch)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current_batch() -> TrackedBatch:
    """The batch whose function runs in this thread. Raises RuntimeError outside of one."""
    batch = _CURRENT.get()
    if batch is None:
        raise RuntimeError(
            "no tracked batch runs in this thread; call this inside the function given to "
            "source.tracked(...)"
        )
    return batch


def _ids(records: str | Record | Row | Iterable[str | Record | Row] | DataFrame) -> list[str]:
    if isinstance(records, DataFrame):
        if "messageId" not in records.columns:
            raise ValueError(
                "the frame given to batch.fail has no column messageId, by which a record is failed"
            )
        return [
            str(one)
            for one in records.select("messageId")
            .distinct()
            .toArrow()
            .column("messageId")
            .to_pylist()
        ]
    if isinstance(records, str | Record | Row):
        records = [records]
    return [_id(record) for record in records]


def _id(record: str | Record | Row) -> str:
    if isinstance(record, str):
        return record
    if isinstance(record, Record):
        return record.message_id
    if "messageId" in record:
        return str(record["messageId"])
    raise ValueError(
        f"batch.fail got a {type(record).__name__}; give message ids, Records, or rows or a frame "
        "with messageId"
    )


def _failed(
    message_id: str, reason: str, outcome: Outcome, key: str, after_s: float | None
) -> FailedRecord:
    shown = " ".join(reason.split())[:MAX_REASON_CHARS]
    return FailedRecord.of(message_id, outcome, reason=shown, after_s=after_s, key=key)
