"""`settle`: checks the rows that arrived at the sinks, fails records, and writes the other rows.

The sinks' frames are persisted from the check to the write, so that the rows that were checked are
the rows that are written. A lost cache is computed again, perhaps with another result, so the
shares are added up once more during the write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job.acker.faults import Faults, find_faults
from spark_job.acker.run import AckerError, AckerRun, check_anchored, current_run
from spark_job.acker.shares import ANCHOR, NOTHING, Total, anchors, totals
from spark_job.tracking.spark_sql import without
from spark_job.tracking.tracked_batch import current_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.tracking.tracked_batch import TrackedBatch

Write = Callable[[DataFrame], object]
_LISTENERS_WAIT_MS = 60_000
_PART = "_acker_part"


class _Sink(NamedTuple):
    name: str
    frame: DataFrame
    write: Write


def settle(*sinks: tuple[DataFrame, Write]) -> None:
    """Check all rows, fail the records with lost or doubled rows, then write every sink.

    Call it once per batch, at the end of the function. Each sink is a pair of a frame and a
    function that writes it. The function gets the frame without `_anchor`, and without the rows
    that were derived from failed records. It is called for a frame without rows too. Its first
    action on the frame must read all rows, as `frame.write` does. `isEmpty` and `take` do not read
    all of them, and `foreachPartition` and `rdd` are not observed.

    Blocks until all sinks are written. Raises `AckerError`, which fails the batch, if a frame has
    lost its anchors or rows carry anchors of another batch; nothing is written then. Raises it also
    if a sink's function did not write what was checked.
    """
    run = current_run(operator="settle")
    batch = current_batch()
    named = _named(sinks)
    run.settled = True
    try:
        for sink in named:
            run.keep(sink.frame)
        faults, checked = _check(run, named, batch)
        for i, sink in enumerate(named):
            good = sink._replace(frame=faults.without_failed(sink.frame)) if faults else sink
            _write(good, _total(good.frame) if faults else checked[i])
    finally:
        run.release()


def _named(sinks: Sequence[Any]) -> list[_Sink]:
    named = []
    for number, sink in enumerate(sinks, start=1):
        if not (
            isinstance(sink, tuple)
            and len(sink) == 2
            and isinstance(sink[0], DataFrame)
            and callable(sink[1])
        ):
            raise AckerError(
                f"sink {number} given to acker.settle is not a pair (frame, write); give a frame "
                "and a function that writes it"
            )
        check_anchored(sink[0], f"the frame of sink {number}")
        named.append(_Sink(f"sink {number}", *sink))
    return named


def _check(
    run: AckerRun, sinks: Sequence[_Sink], batch: TrackedBatch
) -> tuple[Faults | None, list[Total]]:
    """The roots that must not be written (None if there are none), and the total of each sink.

    Runs one Spark job as long as all sums match. Only a mismatch is searched root by root.
    """
    failed = list(batch.failures)
    issued = [without(source, failed) for source in run.sources(batch)]
    arrived = [sink.frame for sink in sinks]
    found = _totals([anchors(frame) for frame in [*issued, *arrived]] + run.drops)
    issued_totals, arrived_totals = found[: len(issued)], found[len(issued) :]
    expected, present = (
        reduce(Total.__add__, part, NOTHING) for part in (issued_totals, arrived_totals)
    )
    if present.same_shares(expected):
        return None, arrived_totals[: len(sinks)]
    return find_faults(run, arrived, batch), []


def _totals(parts: Sequence[DataFrame]) -> list[Total]:
    """The total of each frame (columns root, x, s), in one Spark job."""
    rows = [
        part.agg(*totals("x", "s")).withColumn(_PART, F.lit(number))
        for number, part in enumerate(parts)
    ]
    found = {row[_PART]: Total.of(row) for row in reduce(DataFrame.unionByName, rows).collect()}
    return [found[number] for number in range(len(parts))]


def _total(frame: DataFrame) -> Total:
    return Total.of(frame.agg(*totals(f"{ANCHOR}.x", f"{ANCHOR}.s")).collect()[0])


def _write(sink: _Sink, checked: Total) -> None:
    observation = Observation()
    sink.write(sink.frame.observe(observation, *totals(f"{ANCHOR}.x", f"{ANCHOR}.s")).drop(ANCHOR))
    written = _observed(observation, sink.frame)
    if written is None and checked.rows:
        raise AckerError(
            f"{sink.name}: its function ran no action on the frame that it was given, so nothing "
            "is known to be written; write the frame with frame.write, or with another action of a "
            "DataFrame that reads all rows (not foreachPartition or rdd)"
        )
    if written is not None and written != checked:
        raise AckerError(
            f"{sink.name}: {checked.rows} rows were checked, and {written.rows} went through the "
            "first action of its function, which are not the same rows; let the write be that "
            "action (no isEmpty or take before it), or raise Spark's storage memory if it lost "
            "persisted rows"
        )


def _observed(observation: Observation, frame: DataFrame) -> Total | None:
    """The total of the rows that the first action read; None if there was no action."""
    session: Any = frame.sparkSession
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_WAIT_MS)  # noqa: SLF001  # it is what sets the result
    # Observation.get would wait for ever if there was no action, so its future is asked first.
    known: Any = observation._jo  # noqa: SLF001  # Python's Observation does not show its future
    if not known.future().isCompleted():
        return None
    return Total.of(observation.get)
