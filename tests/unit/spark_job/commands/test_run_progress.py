"""The figures of a running query add up."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from spark_job.commands.run_progress import Progress, ProgressLine


def report(batch: int, rows: int, **source: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [source] if source else [],
    }


def test_batches_and_rows_add_up_and_a_repeated_report_counts_once() -> None:
    progress = Progress()
    for one in (report(0, 10), report(0, 10), report(1, 5), report(1, 0)):
        progress = progress.after(one)
    assert (progress.batches, progress.rows, progress.rows_per_s) == (2, 15, 10.0)
    assert str(progress) == "2 batches  15 rows  10 rows/s"


def test_lag_and_unresolved_are_the_sources_own_report() -> None:
    progress = Progress().after(report(0, 1, latestOffset='{"lagMs": 90000, "unresolved": 7}'))
    assert (progress.lag_ms, progress.unresolved) == (90_000, 7)
    assert str(progress).endswith("lag 90 s  7 unresolved")


def test_retries_dead_letters_and_outages_are_shown() -> None:
    figures = (
        '{"lagMs": 0, "unresolved": 1200, "oldestUnresolvedMs": 61000, "deadLettered": 3, '
        '"outage": true}'
    )
    assert str(Progress().after(report(0, 1, latestOffset=figures))).endswith(
        "lag 0 ms  1,200 unresolved (oldest 61 s)  3 dead-lettered  most records fail, no new ones "
        "are read"
    )


def test_dead_letters_stay_counted_when_a_report_has_none() -> None:
    progress = (
        Progress().after(report(0, 1, latestOffset='{"deadLettered": 3}')).after(report(1, 1))
    )
    assert progress.dead_lettered == 3


def test_an_unreadable_report_of_the_source_is_left_out() -> None:
    assert str(Progress().after(report(0, 1, latestOffset="soon"))) == "1 batch  1 rows  2 rows/s"
    assert Progress().after(report(0, 1, latestOffset=None)).lag_ms is None


def test_without_a_terminal_only_new_figures_are_printed() -> None:
    shown = io.StringIO()
    with ProgressLine(Console(file=shown)) as line:
        line.show(Progress(batches=1, rows=2))
        line.show(Progress(batches=1, rows=2))
    assert shown.getvalue() == "1 batch  2 rows  0 rows/s\n"
