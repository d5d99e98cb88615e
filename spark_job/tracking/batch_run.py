"""Runs the user's function on a batch and, with bisect, on the parts of a failing batch."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kinesis_spout.errors import MAX_MESSAGE_CHARS, described, text_of
from spark_job.query_failure import FunctionError, failure_sentence, for_spark
from spark_job.tracking.outcomes import FailedRecord, Outcome, one_line
from spark_job.tracking.poison_search import Part, bisect
from spark_job.tracking.tracked_batch import TrackedBatch, running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_job.tracking.batch_frame import BatchFrame
    from spark_job.tracking.content_check import ShardContent
    from spark_job.tracking.tracked_batch import Evaluation

log = logging.getLogger("kinesis_spout")


@dataclass(slots=True)
class BatchRun:
    """The result of running the user's function on a batch.

    `failures`: by message id. `in_parts`: an evaluation may cover only a part of the records.
    """

    frame: BatchFrame
    in_parts: bool = False
    failures: dict[str, FailedRecord] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def has_read(self) -> bool:
        """Whether the function may have read a row of the batch."""
        return bool(self.evaluations) or self.frame.is_persisted

    @property
    def _has_evaluated_all(self) -> bool:
        return bool(self.evaluations) and not self.in_parts

    def content(self) -> dict[str, ShardContent]:
        """Return the content of the batch by shard. May run a job."""
        if self._has_evaluated_all:
            return dict(self.evaluations[0].content)
        return self.frame.content()

    def all_failures(self) -> list[FailedRecord]:
        """Return the failed records and the withheld records. May run a job."""
        if not self._has_evaluated_all and self.frame.is_persisted:
            for record in self.frame.withheld():
                self.failures.setdefault(record.message_id, record)
        return list(self.failures.values())

    def with_ordinals(self, failed: Sequence[FailedRecord]) -> Sequence[FailedRecord]:
        """Return the same records with their ordinals. Runs a job if the ordinals are unknown."""
        if all(record.ordinal is not None for record in failed) and all(
            one.in_order for one in self.evaluations
        ):
            return failed
        places = self.frame.ordinals()
        return [replace(record, ordinal=places.get(record.message_id)) for record in failed]

    def close(self) -> None:
        for evaluation in self.evaluations:
            evaluation.close()


def run_batch(
    process: Callable[[TrackedBatch], object], frame: BatchFrame, batch_id: int, *, bisect: bool
) -> BatchRun:
    """Run the function on the batch, and return the records that it failed.

    Raises the function's error. With `bisect`, the batch is run in parts first, and the error is
    raised only if most of the batch fails.
    """
    if not bisect:
        run = BatchRun(frame)
        _call(process, TrackedBatch(frame, batch_id=batch_id), run)
        return run
    frame.rows()  # persisted, so that all parts come from one read
    run = BatchRun(frame, in_parts=True)
    try:
        _call(process, TrackedBatch(frame, batch_id=None), run)
    except Exception as exc:  # noqa: BLE001  # whatever a user's function raises may be a record's fault
        _run_in_parts(process, frame, run, exc)
    return run


def _call(process: Callable[[TrackedBatch], object], batch: TrackedBatch, run: BatchRun) -> None:
    """Run the function on a batch or a part. If it raises, discard its failures."""
    try:
        with running(batch):
            process(batch)
            batch.call_back(None)
        run.evaluations += batch.evaluations
        run.failures |= batch.failures
    except BaseException as exc:
        error = for_spark(exc, "the function passed to tracked(...)")
        batch.call_back(error)
        batch.close()
        if error is exc:
            raise
        raise error from None


def _run_in_parts(
    process: Callable[[TrackedBatch], object], frame: BatchFrame, run: BatchRun, error: Exception
) -> None:
    """Run a batch that failed with `error` in parts, and note the records that fail.

    Raises `error` if most of the batch fails.
    """
    indexes = frame.indexes()
    errors: dict[Part, Exception] = {}

    def rows_of(part: Part) -> BatchFrame:
        return frame.part(indexes[part[0]], indexes[part[1] - 1])

    def succeeds(part: Part) -> bool:
        try:
            _call(process, TrackedBatch(rows_of(part), batch_id=None), run)
        except Exception as exc:  # noqa: BLE001  # whatever a user's function raises may be a record's fault
            errors[part] = exc
            return False
        return True

    found = bisect(len(indexes), succeeds)
    if found.failed or not indexes:
        raise error
    failed = [((one, one + 1), Outcome.RETRY) for one in found.poison]
    failed += [((one, one + 1), Outcome.ALONE) for one in found.alone]
    failed += [(part, Outcome.UNCOUNTED) for part in found.unresolved]
    for part, outcome in failed:
        reason = _reason(errors.get(part, error))
        for message_id in rows_of(part).message_ids():
            run.failures[message_id] = FailedRecord.of(message_id, outcome, reason=reason)
    log.warning(
        "a batch of %d records failed (%s), so its parts were run separately. %d records failed "
        "alone. %d other records are queued for redelivery",
        len(indexes),
        _reason(error),
        len(found.poison) + len(found.alone),
        sum(last - first for first, last in found.unresolved),
    )


def _reason(error: Exception) -> str:
    """One line: the cause inside a Spark error, or the class and message of another error."""
    if isinstance(error, FunctionError):
        return one_line(error)
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return one_line(failure_sentence(text_of(error, MAX_MESSAGE_CHARS)))
    return one_line(described(error))
