"""The end of an acked batch: check what arrived at the sinks, fail what did not arrive as it
should, write the rest.

The sinks' frames are kept from the check to the write, so that what is written is what was checked;
while it is written it is added up again, as a lost cache is computed anew and may then be
different.
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
    """Check all rows, fail the records of which rows are lost or doubled, then write every sink.
    Once a batch, at its end.

    Each sink is a pair: a frame, and a function that is given that frame without `_anchor` and
    without what was made of failed records, and writes all of it. Its first action on the frame
    must read all rows, as `frame.write` does; `isEmpty` or `take` before it would not, and
    `foreachPartition` and `rdd` are not seen. A frame without rows is given to its function too.

    Blocks until all is written. Raises `AckerError`, and the batch fails, if a frame has lost its
    anchors, if rows carry anchors of another batch, or if a sink's function did not write what was
    checked; nothing is written in the first two cases.
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
                f"sink {number} given to acker.settle is no pair (frame, write); give a frame and "
                "a function that writes it"
            )
        check_anchored(sink[0], f"the frame of sink {number}")
        named.append(_Sink(f"sink {number}", *sink))
    return named


def _check(
    run: AckerRun, sinks: Sequence[_Sink], batch: TrackedBatch
) -> tuple[Faults | None, list[Total]]:
    """What must not be written (None: nothing), and what each sink holds. One job while nothing is
    amiss.
    """
    failed = list(batch.failures)
    given = [without(source, failed) for source in run.sources(batch)]
    arrived = [sink.frame for sink in sinks]
    found = _totals([anchors(frame) for frame in [*given, *arrived]] + run.drops)
    given_totals, arrived_totals = found[: len(given)], found[len(given) :]
    expected, present = (
        reduce(Total.__add__, part, NOTHING) for part in (given_totals, arrived_totals)
    )
    if present.same_shares(expected):
        return None, arrived_totals[: len(sinks)]
    return find_faults(run, arrived, batch), []


def _totals(parts: Sequence[DataFrame]) -> list[Total]:
    """The combined shares of each frame of root, x and s, in one job."""
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
            "is known to be written; "
            "write the frame with frame.write, or another action of a DataFrame that reads it all "
            "(not foreachPartition or rdd)"
        )
    if written is not None and written != checked:
        raise AckerError(
            f"{sink.name}: {checked.rows} rows were checked, and {written.rows} went through the "
            "first action of its function, "
            "or others; let the write be that action (no isEmpty or take before it), or raise "
            "Spark's storage memory if it "
            "lost the rows that it was to keep"
        )


def _observed(observation: Observation, frame: DataFrame) -> Total | None:
    """What was added up by the first action; None when there was none, for which `Observation.get`
    would wait for ever.
    """
    session: Any = frame.sparkSession
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_WAIT_MS)  # noqa: SLF001  # it is what sets the result
    known: Any = observation._jo  # noqa: SLF001  # Python's Observation cannot be asked whether it is set
    if not known.future().isCompleted():
        return None
    return Total.of(observation.get)
