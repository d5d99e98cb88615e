"""The counts of `consume`, as a table and as a sentence."""

from __future__ import annotations

import pytest
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


def rows(shown: SpoutMetrics, width: int = 200, stream: str = "orders") -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(stats_table(stream, shown, width))
    return captured.get().splitlines()


BUSY: dict[str, int] = {
    "emitted": 1_234_567,
    "acked": 1_234_321,
    "failed": 12_345,
    "retried": 12_300,
    "timed_out": 304,
    "dead_lettered": 99,
    "lag_ms": 65_000,
}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("stream", ["orders", "a-stream-with-a-long-name" * 5])
def test_in_a_narrow_terminal_no_number_and_no_name_is_cut(width: int, stream: str) -> None:
    """The least of the columns are left out, and named; a shard has one line."""
    lines = rows(metrics(2, **BUSY), width, stream)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    numbers = [line for line in lines if "1,234,567" in line]
    assert len(numbers) == 3
    assert all("1,234,321" in line and "65 s" in line for line in numbers)
    assert numbers[0].startswith("all")
    assert [line.split("1,234,567")[0].strip()[-1] for line in numbers[1:]] == ["0", "1"]


def test_at_80_columns_all_counts_of_a_young_run_are_shown() -> None:
    lines = rows(metrics(2, emitted=1_200, acked=1_100, failed=50, lag_ms=65_000), 80)
    text = " ".join(lines)
    for name in ("emitted", "acked", "failed", "retried", "timed", "lettered", "pending", "p99"):
        assert name in text
    assert "no room" not in text


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
