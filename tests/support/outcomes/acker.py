"""A tracked batch of a few records. It is the real class, without Kinesis and reports."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_job.data_source import SCHEMA_DDL
from spark_job.tracking.batch_frame import BatchFrame
from spark_job.tracking.tracked_batch import TrackedBatch, running
from spark_job.tracking.withholding import BatchRules
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

ARRIVED = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def record_id(number: int, attempt: int = 1) -> str:
    """The message id of record `number` of `source_frame`."""
    return f"shardId-000000000000:{1000 + number}:{attempt}"


def source_frame(
    spark: SparkSession, bodies: Sequence[str], *, keys: Sequence[str] | None = None
) -> DataFrame:
    """Records 0, 1, ... of one shard, with these texts as data."""
    rows = [
        (
            *("stream", "shardId-000000000000", str(1000 + n), 0, keys[n] if keys else f"key {n}"),
            *(bytearray(body.encode()), ARRIVED, 1, record_id(n)),
        )
        for n, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, SCHEMA_DDL)


@dataclass
class Sink:
    """Takes all rows of its frame; `times` counts its calls."""

    rows: list[Row] = field(default_factory=list)
    times: int = 0

    def __call__(self, frame: DataFrame) -> None:
        self.times += 1
        self.rows += frame.collect()

    def values(self, column: str) -> list[Any]:
        return sorted(row[column] for row in self.rows)


class AckedBatch(TrackedBatch):
    """A tracked batch, with the numbers of the records that failed."""

    def __init__(self, frame: BatchFrame) -> None:
        super().__init__(frame, batch_id=0)
        self.frame = frame

    @property
    def failed_numbers(self) -> set[int]:
        return {int(message_id.split(":")[1]) - 1000 for message_id in self.failures}

    def reason(self, number: int) -> str:
        return self.failures[record_id(number)].reason or ""


def run_batch(
    frame: DataFrame,
    process: Callable[[AckedBatch], object],
    *,
    on_failure: OnFailure = OnFailure.CONTINUE,
) -> AckedBatch:
    """Run `process` on the records as `tracked` does, with the hooks at its end. Nothing stays
    persisted afterwards.
    """
    batch = AckedBatch(BatchFrame(frame, BatchRules(on_failure=on_failure)))
    try:
        with running(batch):
            process(batch)
            batch.call_back(None)
    except BaseException as error:
        batch.call_back(error)
        raise
    finally:
        batch.frame.close()
    return batch
