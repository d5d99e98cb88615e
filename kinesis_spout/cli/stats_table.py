"""What a spout has counted, as a table for a person and as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from kinesis_spout.spout.metrics import quantile_ms

if TYPE_CHECKING:
    from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics

_COLUMNS = (
    "emitted",
    "acked",
    "failed",
    "retried",
    "timed out",
    "dead-lettered",
    "pending",
    "queued",
    "lag",
    "p50",
    "p99",
)
MOST_SHARDS = 40


def stats_table(stream: str, metrics: SpoutMetrics) -> Table:
    """The total, then the first `MOST_SHARDS` shards. p50 and p99: from a record's arrival to its
    ack, at most.
    """
    shown = list(metrics.shards.items())[:MOST_SHARDS]
    left_out = len(metrics.shards) - len(shown)
    table = Table(
        title=None,
        box=None,
        pad_edge=False,
        caption=f"and {left_out} shards more" if left_out else None,
    )
    table.add_column(stream, overflow="fold")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("all shards", *_cells(metrics.total), style="bold")
    for shard_id, shard in shown:
        table.add_row(shard_id, *_cells(shard))
    return table


def summary(stream: str, metrics: SpoutMetrics) -> str:
    """One line: what was handed over, and what came of it."""
    counts = metrics.total.counts
    rest = {
        "acked": counts.acked,
        "failed": counts.failed,
        "retried": counts.retried,
        "timed out": counts.timed_out,
        "dead-lettered": counts.dead_lettered,
        "pending": metrics.total.pending,
        "queued": metrics.total.queued,
    }
    told = [f"{value:,} {name}" for name, value in rest.items() if value or name == "acked"]
    return f"stream {stream}: {counts.emitted:,} emitted, {', '.join(told)}"


def duration(milliseconds: int | None) -> str:
    """Short: 250 ms, 3.2 s, 5 m, 3 h; - when it is not known."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} m" if seconds < 6_000 else f"{seconds / 3_600:.0f} h"


def _cells(one: ShardMetrics) -> list[str]:
    counts = one.counts
    numbers = (
        *(
            counts.emitted,
            counts.acked,
            counts.failed,
            counts.retried,
            counts.timed_out,
            counts.dead_lettered,
        ),
        *(one.pending, one.queued),
    )
    shares = (quantile_ms(counts.latency, 0.5), quantile_ms(counts.latency, 0.99))
    return [*(f"{number:,}" for number in numbers), duration(one.lag_ms), *map(duration, shares)]
