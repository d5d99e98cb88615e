"""The table of shards on a terminal: no figure is cut, whatever it is."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from kinesis_spout.cli.inspection.status_screen import shard_table
from kinesis_spout.inspection.health import Health
from kinesis_spout.inspection.status import ShardStatus
from kinesis_spout.shards.lineage import ShardPhase

SEQUENCE = "49680528460468587414028314211265325837169881421457653762"
MINUTE_MS = 60_000
RETENTION_MS = 24 * 60 * MINUTE_MS
BAD: dict[str, Any] = {
    "shard_id": "shardId-000000012345",
    "health": Health.LAGGING,
    "phase": ShardPhase.READABLE,
    "position": f"AFTER:{SEQUENCE}",
    "checkpoint": SEQUENCE,
    "waits_for": (),
    "lag_ms": 119 * MINUTE_MS,
    "lag_measured": False,
    "lost_in_ms": 119 * MINUTE_MS,
    "unresolved": 123_456,
    "oldest_ms": 119 * MINUTE_MS,
    "attempts": 12_345,
    "speed": 1234.5,
}
TIMED = "2026-11-24T17:57:46.123Z"


def shown(*shards: dict[str, Any], width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as said:
        rows = [ShardStatus(**(BAD | one)) for one in shards]
        console.print(shard_table(rows, width=width, retention_ms=RETENTION_MS))
    return said.get().splitlines()


@pytest.mark.parametrize("width", [80, 109, 110, 120, 160])
@pytest.mark.parametrize("position", [f"AFTER:{SEQUENCE}", TIMED, "TRIM_HORIZON"])
def test_no_figure_is_cut(width: int, position: str) -> None:
    """A figure without its last digits is another figure."""
    lines = shown({"position": position}, {"phase": ShardPhase.FINISHED}, width=width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert lines[1].split()[-1] == ">999"


def test_large_figures_are_rounded_to_what_fits() -> None:
    (_, line) = shown({}, width=80)
    assert line.split() == [
        *("12345", "lagging", "readable", "..57653762", "<119", "min", "119", "min", ">999x"),
        *("123k", "119", "min", ">999"),
    ]


@pytest.mark.parametrize(
    ("unresolved", "said"),
    [(0, "-"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_234_567, "1.2M")],
)
def test_counts_are_whole_up_to_ten_thousand(unresolved: int, said: str) -> None:
    (_, line) = shown({"unresolved": unresolved, "oldest_ms": None}, width=80)
    assert line.split()[-3] == said


def test_whole_ids_and_checkpoints_are_shown_where_they_fit() -> None:
    small = {"speed": 1.5, "unresolved": 1, "attempts": 2, "lag_ms": 500, "oldest_ms": 500}
    header, line = shown(small, width=120)
    assert "checkpoint" in header
    assert line.startswith("shardId-000000012345")
    assert line.count("..421457653762") == 2
