"""The figures of a running query add up."""

from __future__ import annotations

import io
from typing import Any

import pytest
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


FIGURES = (
    '{"lagMs": 90000, "unresolved": 1200, "oldestUnresolvedMs": 61000, "deadLettered": 3, '
    '"outage": true}'
)
OUTAGE = "most records fail, no new ones are read"


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        ('{"lagMs": 0, "unresolved": 7}', "  lag 0 ms  7 unresolved"),
        (
            FIGURES,
            f"  lag 90 s  1,200 unresolved (oldest 61 s)  3 dead-lettered  {OUTAGE}",
        ),
        ("soon", ""),
        (None, ""),
    ],
)
def test_lag_retries_dead_letters_and_outages_are_the_sources_own_report(
    figures: str | None, shown: str
) -> None:
    """An unreadable one is left out."""
    progress = Progress().after(report(0, 1, latestOffset=figures))
    assert str(progress) == f"1 batch  1 rows  2 rows/s{shown}"


def test_dead_letters_stay_counted_when_a_report_has_none() -> None:
    assert (
        Progress().after(report(0, 1, latestOffset=FIGURES)).after(report(1, 1)).dead_lettered == 3
    )


def test_without_a_terminal_only_new_figures_are_printed() -> None:
    shown = io.StringIO()
    with ProgressLine(Console(file=shown)) as line:
        line.show(Progress(batches=1, rows=2))
        line.show(Progress(batches=1, rows=2))
    assert shown.getvalue() == "1 batch  2 rows  0 rows/s\n"
