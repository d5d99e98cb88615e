"""What the acker remembers of one running batch: where anchors came from, and where they went on
purpose.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import KinesisError
from spark_job.acker.shares import ANCHOR, source_anchor
from spark_job.tracking.tracked_batch import current_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_job.tracking.tracked_batch import TrackedBatch


class AckerError(KinesisError):
    """The acker was used in a way in which it can answer for nothing, or the sinks did not get what
    was checked.

    The batch fails: nothing of it is acked.
    """


class Merge(NamedTuple):
    """Rows of `frame` that were merged by `keys` into rows with roots of their own."""

    frame: DataFrame
    keys: Sequence[Column | str]
    site: int


class AckerRun:
    """Of one batch, in the one thread that runs its function."""

    def __init__(self) -> None:
        # Tokens need to be the same within a run only. New ones in each run make an unlucky sum a
        # matter of one run, too.
        self.seed = uuid.uuid4().hex
        self.anchored: list[int] = []
        self.drops: list[DataFrame] = []
        self.merges: list[Merge] = []
        self.settled = False
        self._site = 0
        self._kept: list[DataFrame] = []
        self._cut: list[DataFrame] = []

    def next_site(self) -> int:
        self._site += 1
        return self._site

    def repeatable(self, frame: DataFrame) -> DataFrame:
        """The frame; kept, if it could have other rows when Spark evaluates it a second time (it
        has `rand()`, say).
        """
        if not is_deterministic(frame):
            self.keep(frame)
        return frame

    def sources(self, batch: TrackedBatch) -> list[DataFrame]:
        """The roots that must arrive: each record's `messageId` and whole tokens, once for each
        call of `anchor`.
        """
        return [
            batch.df.select(
                "messageId", source_anchor(F.col("messageId"), self.seed, site).alias(ANCHOR)
            )
            for site in self.anchored
        ]

    def keep(self, frame: DataFrame) -> None:
        """Persist the frame until `release`, unless its user has persisted it already."""
        level = frame.storageLevel
        if not (level.useMemory or level.useDisk):
            self._kept.append(frame.persist())

    def cut(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once, without its history: for one that is used several times, and so
        are those made of it.
        """
        self._cut.append(frame.localCheckpoint(eager=False))
        return self._cut[-1]

    def release(self) -> None:
        """Let go of what is kept. Idempotent."""
        while self._kept:
            self._kept.pop().unpersist()
        while self._cut:
            plan: Any = self._cut.pop()._jdf.queryExecution().analyzed()  # noqa: SLF001  # else Spark waits for Java's garbage collector
            plan.rdd().unpersist(False)  # noqa: FBT003  # Java has no names for arguments

    def at_end(self, error: BaseException | None) -> None:
        """Raise `AckerError` if the batch's function has come to its end with anchors that nobody
        asked after.
        """
        self.release()
        if error is None and not self.settled:
            raise AckerError(
                "the batch's rows were anchored, but settle(...) was not called, so nobody knows "
                "what became of them; "
                "call acker.settle((frame, write), ...) with all sinks at the end of the function"
            )


_RUNS: WeakKeyDictionary[TrackedBatch, AckerRun] = WeakKeyDictionary()


def current_run(*, operator: str) -> AckerRun:
    """What the acker knows of the batch that runs in this thread, of which something must have been
    anchored.
    """
    run = _RUNS.get(current_batch())
    if run is None:
        raise AckerError(
            f"acker.{operator}(...) was called before acker.anchor(batch); anchor the batch's "
            "frame first"
        )
    return _unsettled(run, operator)


def started_run() -> AckerRun:
    """The same, begun here if this is the first anchor of the batch."""
    batch = current_batch()
    if batch not in _RUNS:
        _RUNS[batch] = run = AckerRun()
        batch.at_end(run.at_end)
    return _unsettled(_RUNS[batch], "anchor")


def check_anchored(frame: DataFrame, place: str) -> None:
    """Raise `AckerError` unless the frame has its one column of anchors."""
    count = frame.columns.count(ANCHOR)
    if count == 0:
        raise AckerError(
            f"{place} has lost the column {ANCHOR}, by which its rows are followed; keep it in "
            "select(...), "
            "group with acker.merge(...), or say acker.unanchored(...) where rows need not be "
            "followed"
        )
    if count > 1:
        raise AckerError(
            f"{place} has {count} columns {ANCHOR}: two anchored frames were joined; "
            f"join with acker.unanchored(frame).drop('{ANCHOR}') on the side that need not be "
            "followed, or use acker.merge(...)"
        )


def is_deterministic(frame: DataFrame) -> bool:
    """Whether the frame's expressions give the same each time, as far as Spark knows. What is kept
    already does.
    """
    plan: Any = frame._jdf.queryExecution().withCachedData()  # noqa: SLF001  # Spark tells it in the JVM only
    return bool(plan.deterministic())


def _unsettled(run: AckerRun, operator: str) -> AckerRun:
    if run.settled:
        raise AckerError(
            f"acker.{operator}(...) was called after settle(...), which has checked all sinks "
            "together; "
            "give all sinks to one call of settle at the end"
        )
    return run
