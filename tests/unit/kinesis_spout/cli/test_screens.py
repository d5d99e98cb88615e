"""The commands' screens: no figure and no name is cut, whatever the terminal's width, nothing is
markup, commands can be pasted, and texts hide nothing.
"""

from __future__ import annotations

import io
import sys
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from kinesis_spout.cli.consume import stats_table
from kinesis_spout.cli.explain import explained_screen
from kinesis_spout.cli.places import Place, show
from kinesis_spout.cli.shards import shard_tree
from kinesis_spout.cli.status import COLOURS, shard_table, status_screen
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.tables import listing
from kinesis_spout.inspection.explanation import grouped
from kinesis_spout.inspection.health import EXIT_CODES, Health
from kinesis_spout.inspection.status import ShardStatus, status_of
from kinesis_spout.inspection.wording import visible
from kinesis_spout.shards.lineage import ShardPhase
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics
from state.position import SHARD_END
from state.report import OutcomePolicy
from state.store.runs import Loss
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
    after,
    behind,
    failed,
    listed,
    look,
    run_log,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.inspection.health import Look
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState


SEQUENCE = 49680528460468587414028314211265325837169881421457653762
MINUTE_MS = 60_000
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
    "expires_in_ms": 119 * MINUTE_MS,
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


def explained(width: int, seen: Look = RETRY) -> Any:
    return explained_screen(seen, grouped(seen), PLACE, width, whole=True)


def shards_of(width: int) -> Any:
    rows = [ShardStatus(**(BAD | one)) for one in ({}, {"phase": ShardPhase.FINISHED})]
    return shard_table(rows, width=width, retention_ms=24 * HOUR_MS)


def counted(width: int) -> Any:
    counts = ShardCounts()
    for name, count in {"emitted": 1_234_567, "acked": 1_234_321, "timed_out": 304}.items():
        setattr(counts, name, count)
    one = ShardMetrics(counts=counts, pending=2, queued=3, lag_ms=65_000)
    shown = {f"shardId-{number:012}": one for number in range(2)}
    return stats_table("orders", SpoutMetrics(total=one, shards=shown), width)


def status(width: int) -> Any:
    return status_screen(status_of(RETRY), width=width, most=20)


def drills(_: int) -> Any:
    return listing(list(DRILLS.values()))


@pytest.mark.parametrize("width", [40, 80, 110, 160])
@pytest.mark.parametrize("screen", [explained, status, shards_of, counted, drills])
def test_a_screen_fits_and_cuts_nothing(screen: Callable[[int], Any], width: int) -> None:
    """A figure without its last digits is another figure."""
    lines = lines_of(screen(width), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)


def test_a_terminal_without_room_for_the_other_columns_has_these_three() -> None:
    assert lines_of(shards_of(1), 200)[0].split() == ["shard", "health", "lag"]


def test_a_loss_that_is_over_is_shown_while_the_stream_keeps_records() -> None:
    """Beside a verdict that is fine: all that is left is read."""
    for age_ms, is_shown in ((HOUR_MS, True), (25 * HOUR_MS, False)):
        loss = Loss(time_ms=NOW_MS - age_ms, says="records may be lost: shard 1")
        seen = look(
            listed(1), state(1, after(5)), tips={1: AT_TIP}, log=run_log(HOUR_MS, losses=(loss,))
        )
        found, said = status_of(seen), "reported at 07:00:00: records may be lost: shard 1"
        screen = "\n".join(lines_of(status_screen(found, width=200, most=20), 200))
        assert (f"lost         {said}" in screen) == is_shown
        assert (f"loss of records {said}" in "\n".join(lines_of(explained(200, seen), 200))) == (
            is_shown
        )
        shown = [{"timeMs": loss.time_ms, "says": loss.says}] if is_shown else []
        assert (found.verdict, found.as_json()["losses"]) == (Health.OK, shown)


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
    assert lines[-1] == "9,980 more are unknown (to see these shards, pass --all)"


def test_each_verdict_has_a_colour_and_an_exit_code() -> None:
    """A job that lags works, and a pause or an end in order is meant."""
    assert set(COLOURS) == set(EXIT_CODES) == set(Health)
    failures = {verdict for verdict, code in EXIT_CODES.items() if code}
    assert failures == {Health.UNKNOWN, Health.STALLED, Health.LOSING}


def test_what_others_have_written_is_text_and_no_markup() -> None:
    """Reasons of records, errors of the service, names of streams."""
    hostile = "[red]x[/] \x1b[2J\nsecond line"
    seen = look(listed(1), state(1, SHARD_END, unresolved=(failed(3, reason=hostile),)))
    said = "\n".join(lines_of(explained(200, seen), 200))
    assert r"'[red]x[/] \x1b[2J second line'" in said
    assert "\x1b" not in said
    assert lines_of(shard_tree("[red]x[/]", []), 80) == ["[red]x[/]"]


def test_no_character_is_unseen_and_what_is_seen_stays() -> None:
    """Controls, formats, surrogates and separators of lines get an escape, all that Unicode has."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(char) == char
    ]
    assert hidden == []
    seen = "Zürich 東京 שלום नमस्ते e\u0301 & <b> \"' 😀 → ✓"
    assert visible(seen) == seen
