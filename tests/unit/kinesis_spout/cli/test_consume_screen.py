"""The counts of `consume`, as a table and as a sentence."""

from __future__ import annotations

from rich.console import Console

from kinesis_spout.cli.consume_screen import MAX_SHARDS, stats_table, summary
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics


def metrics(shards: int = 1, *, lag_ms: int | None = None, **counts: int) -> SpoutMetrics:
    counted = ShardCounts()
    for name, count in counts.items():
        setattr(counted, name, count)
    one = ShardMetrics(counts=counted, pending=2, queued=3, lag_ms=lag_ms)
    return SpoutMetrics(
        total=one, shards={f"shardId-{number:012}": one for number in range(shards)}
    )


def rows(shown: SpoutMetrics) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(stats_table("orders", shown))
    return captured.get().splitlines()


def test_a_row_for_all_and_one_for_each_shard() -> None:
    """Every count is in its column."""
    header, total, shard = rows(
        metrics(
            emitted=1_200, acked=6, failed=5, retried=4, timed_out=1, dead_lettered=9, lag_ms=65_000
        )
    )
    assert header.split() == [
        *("orders", "emitted", "acked", "failed", "retried", "timed", "out"),
        *("dead-lettered", "pending", "queued", "lag", "p50", "p99"),
    ]
    assert total.split() == [
        "all",
        "shards",
        "1,200",
        "6",
        "5",
        "4",
        "1",
        "9",
        "2",
        "3",
        "65",
        "s",
        "-",
        "-",
    ]
    assert shard.split()[:2] == ["shardId-000000000000", "1,200"]


def test_of_very_many_shards_the_first_are_shown() -> None:
    shown = rows(metrics(MAX_SHARDS + 2))
    assert len(shown) == MAX_SHARDS + 3
    assert shown[-1].strip() == "and 2 more shards"


def test_the_sentence_leaves_out_counts_of_zero() -> None:
    assert summary("orders", metrics(emitted=1_200, retried=4)) == (
        "stream orders: 1,200 emitted, 0 acked, 4 retried, 2 pending, 3 queued"
    )
