"""The figures of a running query add up."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from spark_job.commands.run import Progress, progress_line


def own_report(**changes: Any) -> str:
    """The source's own report, as Spark passes it on."""
    none = {
        "format": 1,
        "application": "etl",
        "stream": "orders",
        "retentionMs": None,
        "readableShards": 1,
        "dataLosses": 0,
        "emitted": 0,
        "retried": 0,
        "acked": 0,
        "failed": 0,
        "deadLettered": 3,
        "dropped": 0,
        "oldestUnresolvedMs": 0,
        "outage": False,
        "shards": {},
    }
    return json.dumps(none | changes)


FIGURES = own_report(lagMs=90_000, unresolved=1_200, oldestUnresolvedMs=61_000, outage=True)


def report(batch: int, rows: int, figures: str | None) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [{"latestOffset": figures}],
    }


def test_batches_add_up_with_the_sources_own_report_and_only_new_figures_are_printed() -> None:
    """A repeated report counts once. Beside one that cannot be read, the last one stays."""
    shown = io.StringIO()
    progress = Progress()
    with progress_line(Console(file=shown, width=200)) as show:
        for batch, rows, figures in (
            (0, 10, FIGURES),
            (0, 10, FIGURES),
            (1, 5, "soon"),
            (1, 0, own_report(lagMs=0, unresolved=7)),
            (1, 0, own_report(lagMs=0, unresolved=7, emitted=2)),
        ):
            progress = progress.after(report(batch, rows, figures))
            show(progress)
    assert shown.getvalue().splitlines() == [
        (
            "1 batch  10 rows  20 rows/s  lag 90 s  1,200 unresolved (oldest 61 s)  3 "
            "dead-lettered  most records fail, so no new records are read"
        ),
        (
            "2 batches  15 rows  10 rows/s  lag 90 s  1,200 unresolved (oldest 61 s)  3 "
            "dead-lettered  most records fail, so no new records are read"
        ),
        "2 batches  15 rows  10 rows/s  lag 0 ms  7 unresolved  3 dead-lettered",
    ]
