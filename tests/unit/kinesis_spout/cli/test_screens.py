"""The commands' screens: no figure and no name is cut, whatever the terminal's width, nothing is
markup, and commands can be pasted.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from kinesis_spout.cli.checkpoint.printing import state_lines
from kinesis_spout.cli.consume_screen import MAX_SHARDS, stats_table
from kinesis_spout.cli.inspection.doctor_screen import doctor_screen
from kinesis_spout.cli.inspection.explain import explained_screen
from kinesis_spout.cli.inspection.looking import show
from kinesis_spout.cli.inspection.shard_report import ShardLine, shard_tree
from kinesis_spout.cli.inspection.status_screen import shard_table, status_screen
from kinesis_spout.cli.places import Place
from kinesis_spout.doctor.examination import KINESIS, AreaFinding
from kinesis_spout.doctor.finding import not_tried
from kinesis_spout.drills.catalog import DRILLS
from kinesis_spout.drills.overview import listing
from kinesis_spout.inspection.explanation import grouped
from kinesis_spout.inspection.health import Health
from kinesis_spout.inspection.status import ShardStatus, status_of
from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of
from kinesis_spout.shards.lineage import ShardPhase
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics
from state.position import SHARD_END
from state.report import OutcomePolicy
from tests.support.inspection.looks import (
    HOUR_MS,
    after,
    behind,
    failed,
    listed,
    look,
    shard,
    state,
)
from tests.support.state.shard_values import LEFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.inspection.health import Look
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

SEQUENCE = 49680528460468587414028314211265325837169881421457653762
MINUTE_MS = 60_000
ACTIONS = {
    action_of(name) for use in set(Use) - {Use.DRILL} for name in PERMISSIONS[use].all_operations
}
PLACE = Place("etl", "orders", "zk1:2181,zk2:2181", "kinesis-spout", None)
RETRY = look(listed(1), state(1, SHARD_END, unresolved=(failed(3),)), policy=OutcomePolicy())
BAD: dict[str, Any] = {
    "shard_id": "shardId-000000012345",
    "health": Health.LAGGING,
    "phase": ShardPhase.READABLE,
    "position": f"AFTER:{SEQUENCE}",
    "checkpoint": str(SEQUENCE),
    "waits_for": (),
    "lag_ms": 119 * MINUTE_MS,
    "lag_measured": False,
    "lost_in_ms": 119 * MINUTE_MS,
    "unresolved": 123_456,
    "oldest_ms": 119 * MINUTE_MS,
    "attempts": 12_345,
    "speed": 1234.5,
}


def lines_of(shown: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(console, shown)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def doctor(_: int) -> Any:
    return doctor_screen(
        [AreaFinding(KINESIS, not_tried(name, "it would write " * 8)) for name in sorted(ACTIONS)]
    )


def explained(width: int, seen: Look = RETRY) -> Any:
    commands = ("peek", "redrive", "checkpoint")
    return explained_screen(seen, grouped(seen), commands, PLACE, width=width, whole=True)


def shards_of(width: int, **changed: Any) -> Any:
    rows = [ShardStatus(**(BAD | one)) for one in (changed, {"phase": ShardPhase.FINISHED})]
    return shard_table(rows, width=width, retention_ms=24 * HOUR_MS)


def counted(width: int, stream: str = "orders", shards: int = 2) -> Any:
    counts = ShardCounts()
    for name, count in {"emitted": 1_234_567, "acked": 1_234_321, "timed_out": 304}.items():
        setattr(counts, name, count)
    one = ShardMetrics(counts=counts, pending=2, queued=3, lag_ms=65_000)
    shown = {f"shardId-{number:012}": one for number in range(shards)}
    return stats_table(stream, SpoutMetrics(total=one, shards=shown), width)


def tree(width: int) -> Any:
    ids = [f"shardId-{index:012}" for index in range(3)]
    progress: dict[str, Any] = {
        "hash_keys": LEFT,
        "read_position": f"AFTER:{SEQUENCE}",
        "checkpoint": str(SEQUENCE),
        "unresolved": 12,
        "lag_ms": 119_000,
    }
    lines = [
        ShardLine(shard_id=ids[0], state="draining", **progress),
        ShardLine(
            shard_id=ids[1],
            state="waiting",
            parents=(ids[0], "x"),
            waits_for=(ids[0],),
            **progress,
        ),
        ShardLine(shard_id=ids[2], state="new", parents=(ids[1],)),
    ]
    return shard_tree("orders", lines, is_narrow=width < 120)


def status(width: int) -> Any:
    return status_screen(status_of(RETRY), width=width, most=20)


def drills(_: int) -> Any:
    return listing(list(DRILLS.values()))


SCREENS: dict[str, Callable[[int], Any]] = {
    "doctor": doctor,
    "explain": explained,
    "status": status,
    "shards of status": shards_of,
    "shards of status, by time": lambda width: shards_of(
        width, position="2026-11-24T17:57:46.123Z"
    ),
    "consume": counted,
    "consume, of a long name": lambda width: counted(width, "a-stream-with-a-long-name" * 5),
    "shards": tree,
    "drill --list": drills,
}


@pytest.mark.parametrize("width", [80, 109, 110, 120, 160])
@pytest.mark.parametrize("screen", SCREENS.values(), ids=SCREENS.keys())
def test_a_screen_fits_and_cuts_nothing(screen: Callable[[int], Any], width: int) -> None:
    """A figure without its last digits is another figure."""
    lines = lines_of(screen(width), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 80])
def test_the_counts_of_every_shard_are_whole_in_a_narrow_terminal(width: int) -> None:
    """The least of the columns are left out. Of very many shards the first are shown."""
    numbers = [line for line in lines_of(counted(width), width) if "1,234,567" in line]
    assert len(numbers) == 3
    assert all("1,234,321" in line and "65 s" in line for line in numbers)
    many = lines_of(counted(200, shards=MAX_SHARDS + 2), 200)
    assert many[-1].strip() == "and 2 more shards"


def test_names_of_actions_and_drills_are_on_one_line() -> None:
    shown = lines_of(doctor(80), 80)
    actions = {line.split()[0] for line in shown if "not tried" in line}
    assert {name.removeprefix("kinesis:") for name in ACTIONS} <= actions
    first = {line.partition(" ")[0] for line in lines_of(drills(80), 80)}
    assert {one.name for one in DRILLS.values() if not one.step} < first


@pytest.mark.parametrize(
    ("unresolved", "said"),
    [(0, "-"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_234_567, "1.2M")],
)
def test_counts_are_whole_up_to_ten_thousand(unresolved: int, said: str) -> None:
    line = lines_of(shards_of(80, unresolved=unresolved, oldest_ms=None), 80)[1]
    assert line.split()[-3] == said


def test_ten_thousand_shards_are_a_summary_and_the_worst() -> None:
    count = 10_000
    parts: list[ShardInfo | ShardState] = [
        *map(listed, range(count)),
        *(state(index, after(5)) for index in range(count)),
    ]
    found = status_of(look(*parts, tips={7: behind(HOUR_MS)}))
    lines = lines_of(status_screen(found, width=80, most=20), 80)
    assert len(lines) < 32
    assert lines[8].split()[:2] == ["7", "stalled"]
    assert lines[-1] == "9,980 more are unknown (--all shows them)"


def test_what_others_have_written_is_text_and_no_markup() -> None:
    """Reasons of records, errors of the service, names of streams."""
    hostile = "[red]x[/] \x1b[2J\nsecond line"
    seen = look(listed(1), state(1, SHARD_END, unresolved=(failed(3, reason=hostile),)))
    said = "\n".join(lines_of(explained(200, seen), 200))
    assert r"'[red]x[/] \x1b[2J second line'" in said
    assert "\x1b" not in said
    assert lines_of(shard_tree("[red]x[/]", []), 80) == ["[red]x[/]"]


def test_a_file_gets_lines_without_spaces_at_their_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Console(file=io.StringIO(), width=200), explained(200))
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []


def test_commands_are_whole_and_can_be_pasted() -> None:
    """A line that goes on ends with a backslash."""
    lines = lines_of(explained(80), 80)
    first = lines.index("  -> see the record:")
    assert lines[first + 1 : first + 3] == [
        "     kinesis-spout peek shardId-000000000001 3 --application etl \\",
        "       --stream orders --zookeeper zk1:2181,zk2:2181",
    ]


def test_a_state_has_its_whole_numbers_to_be_copied() -> None:
    """On one line in a file, and within 80 columns on a terminal."""
    one = state(1, after(SEQUENCE))
    assert state_lines(one) == [
        f"{shard(1)}  active  read AFTER:{SEQUENCE}  checkpoint none  0 unresolved"
    ]
    narrow = state_lines(one, 80)
    assert all(len(line) <= 80 for line in narrow)
    assert any(line.endswith(f"AFTER:{SEQUENCE}") for line in narrow)
