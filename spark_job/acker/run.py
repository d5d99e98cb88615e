"""The acker's record of one running batch: its anchors, its merges, and the rows it dropped."""

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
    """The acker was used in a way that it cannot check, or a sink did not write what the acker had
    checked.

    The batch fails, and none of its records are acked.
    """


class Merge(NamedTuple):
    """A merge: the rows of `frame`, grouped by `keys` into rows that are roots of their own."""

    frame: DataFrame
    keys: Sequence[Column | str]
    site: int


class AckerRun:
    """The acker's record of one batch. Used only from the thread that runs the batch's function.

    - `anchored`: the sites of the calls of `anchor`.
    - `drops`: anchors of rows that were dropped on purpose (columns root, x, s).
    """

    def __init__(self) -> None:
        # Tokens must be the same within a run only. With new ones in each run, a sum that is right
        # by chance is right in that run only.
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
        """The frame, persisted if a second evaluation could give other rows, as of `rand()`."""
        if not is_deterministic(frame):
            self.keep(frame)
        return frame

    def sources(self, batch: TrackedBatch) -> list[DataFrame]:
        """The roots that must arrive, in a frame for each call of `anchor`: each record's
        `messageId`, and an anchor with the whole tokens.
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
        """The frame, computed once and without its lineage, for several uses."""
        self._cut.append(frame.localCheckpoint(eager=False))
        return self._cut[-1]

    def release(self) -> None:
        """Unpersist all frames. Idempotent: `settle` calls it, and the batch at its end."""
        while self._kept:
            self._kept.pop().unpersist()
        while self._cut:
            # A checkpoint has no unpersist of its own: Spark waits for Java's garbage collector.
            plan: Any = self._cut.pop()._jdf.queryExecution().analyzed()  # noqa: SLF001
            plan.rdd().unpersist(False)  # noqa: FBT003  # Java has no names for arguments

    def at_end(self, error: BaseException | None) -> None:
        """Raise `AckerError` if the batch's function has returned without a call of `settle`."""
        self.release()
        if error is None and not self.settled:
            raise AckerError(
                "the function called acker.anchor, but not acker.settle(...), so the acker "
                "checked no row of the batch",
                "at the end of the function, call acker.settle((frame, write), ...) with all sinks",
            )


# Here and not in the batch, which knows nothing of the acker. Weak, so that they go with the batch.
_RUNS: WeakKeyDictionary[TrackedBatch, AckerRun] = WeakKeyDictionary()


def current_run(operator: str, frame: DataFrame | None = None) -> AckerRun:
    """The run of the batch of this thread, for an operator, and for the frame that it was given.
    The first `anchor` of a batch starts it. Raises `AckerError` if nothing was anchored in the
    batch, the batch is settled, or the frame has no anchors.
    """
    batch = current_batch()
    run = _RUNS.get(batch)
    if run is None:
        if operator != "anchor":
            raise AckerError(
                f"acker.{operator}(...) was called before acker.anchor(batch)",
                f"call frame = acker.anchor(batch) first, and pass that frame to acker.{operator}",
            )
        run = _RUNS[batch] = AckerRun()
        batch.at_end(run.at_end)
    if run.settled:
        raise AckerError(
            f"acker.{operator}(...) was called after acker.settle(...), but acker.settle must be "
            "called last",
            "pass all sinks to a single call of acker.settle at the end of the function",
        )
    if frame is not None:
        check_anchored(frame, f"the frame passed to acker.{operator}")
    return run


def check_anchored(frame: DataFrame, place: str) -> None:
    """Raise `AckerError` unless the frame has exactly one column of anchors."""
    count = frame.columns.count(ANCHOR)
    if count == 0:
        raise AckerError(
            f"{place} has no column {ANCHOR}, with which the acker tracks rows",
            f"keep the column {ANCHOR} in select(...), group with acker.merge(...), or use "
            "acker.unanchored(...) for rows that need no tracking",
        )
    if count > 1:
        raise AckerError(
            f"{place} has {count} columns {ANCHOR}, because two anchored frames were joined",
            f"pass acker.unanchored(frame).drop('{ANCHOR}') to the join for the frame that needs "
            "no tracking, or use acker.merge(...)",
        )


def is_deterministic(frame: DataFrame) -> bool:
    """Whether the frame's expressions give the same result each time, as far as Spark knows. Those
    of persisted frames do.
    """
    plan: Any = frame._jdf.queryExecution().withCachedData()  # noqa: SLF001  # known in the JVM only
    return bool(plan.deterministic())
