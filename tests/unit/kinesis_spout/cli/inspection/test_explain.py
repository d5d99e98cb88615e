"""The screen of `kinesis-spout explain`, and how a screen goes into a file."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from kinesis_spout.cli.inspection.explain import explained_screen
from kinesis_spout.cli.inspection.looking import show
from kinesis_spout.cli.places import Place
from kinesis_spout.inspection.explanation import grouped
from state.position import SHARD_END
from state.report import OutcomePolicy
from state.state_store import OperatorMove
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
    after,
    behind,
    failed,
    listed,
    look,
    shard,
    spout_task,
    state,
)

if TYPE_CHECKING:
    import pytest

    from kinesis_spout.inspection.health import Look

PLACE = Place("etl", "orders", "zk1:2181,zk2:2181", "kinesis-spout", None)
RETRY = look(listed(1), state(1, SHARD_END, unresolved=(failed(3),)), policy=OutcomePolicy())


def screen(seen: Look, *, width: int, commands: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    shown = explained_screen(seen, grouped(seen), commands, PLACE, width=width, whole=True)
    console.print(shown, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_chain_is_indented_and_fits_eighty_columns() -> None:
    lines = screen(RETRY, width=80, commands=("redrive",))
    assert max(map(len, lines)) <= 80
    assert "  was read to its end, but holds 1 record that is not acked: record 3 is on" in lines
    arrows = [line for line in lines if line.startswith("  -> ")]
    assert len(arrows) == 3
    assert lines[:4] == [
        "application etl on stream orders at 08:00:00 UTC",
        "ok: all that came was read within 10 s; what is to be done all the same stands",
        "below",
        "run by process 42 on host-a, since 07:00:00 (60 min)",
    ]


def test_the_headline_counts_the_causes() -> None:
    """One of a task that is missing, and one of a record; shards with the same cause are one."""
    shared: dict[str, Any] = {"owners": (spout_task(0, 2),), "total_tasks": 2}
    states = [state(index, after(5)) for index in range(4)]
    tips = {index: behind(60_000) for index in range(4)}
    lines = screen(look(*map(listed, range(4)), *states, tips=tips, **shared), width=200)
    assert lines[1].endswith("something to read or to retry; 2 causes in all")
    idle = look(listed(1), state(1, after(5)), tips={1: AT_TIP})
    assert screen(idle, width=200)[1] == "ok: all that came was read within 10 s"


def test_what_an_operator_has_skipped_is_said() -> None:
    move = OperatorMove(cause="set", time_ms=NOW_MS - HOUR_MS, forward=frozenset({shard(1)}))
    seen = look(listed(1), state(1, after(5)), tips={1: AT_TIP}, move=move)
    told = "shard 1 was set forward at 07:00:00 by `kinesis-spout checkpoint set`: what lay between"
    assert any(line.startswith(f"{told} was skipped") for line in screen(seen, width=200))
    old = replace(move, time_ms=NOW_MS - 25 * HOUR_MS)
    gone = look(listed(1), state(1, after(5)), tips={1: AT_TIP}, move=old)
    assert "set forward" not in "\n".join(screen(gone, width=200))


def test_advice_that_needs_a_command_is_left_out_without_it() -> None:
    assert "kinesis-spout redrive" in "\n".join(screen(RETRY, width=200, commands=("redrive",)))
    assert "kinesis-spout redrive" not in "\n".join(screen(RETRY, width=200))


def test_many_shards_with_one_cause_are_named_in_part() -> None:
    listing, states = map(listed, range(9)), (state(index, after(5)) for index in range(9))
    tips = {index: behind(60_000) for index in range(8)} | {8: AT_TIP}
    lines = screen(look(*listing, *states, tips=tips, owners=()), width=80)
    assert "8 shards (0, 1, 2, 3, 4 and 3 more)  stalled" in lines
    assert any(line.startswith("  shard 0, as the others: has records") for line in lines)
    assert "shard 8  ok" in lines


def test_what_shards_of_one_cause_hold_is_told_of_each_and_in_all() -> None:
    """The chain tells of one of them."""
    states = [
        state(index, SHARD_END, unresolved=tuple(failed(n) for n in range(1, index + 1)))
        for index in (1, 2)
    ]
    lines = screen(look(listed(1), listed(2), *states, policy=OutcomePolicy()), width=200)
    assert "  3 records of these shards are not acked in all: 1 of shard 1, 2 of shard 2" in lines
    assert not any("in all" in line for line in screen(RETRY, width=200))


def test_reasons_are_text_and_not_markup() -> None:
    """They are the words of whatever failed."""
    hostile = failed(3, reason="[red]x[/] \x1b[2J\nsecond line")
    seen = look(listed(1), state(1, SHARD_END, unresolved=(hostile,)))
    text = "\n".join(screen(seen, width=200))
    assert r"'[red]x[/] \x1b[2J second line'" in text
    assert "\x1b" not in text


def test_a_file_gets_lines_without_spaces_at_their_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(
        Console(file=io.StringIO(), width=200),
        explained_screen(RETRY, grouped(RETRY), (), PLACE, width=200, whole=True),
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []


def test_commands_are_whole_and_can_be_pasted() -> None:
    """A line that goes on ends with a backslash."""
    lines = screen(RETRY, width=80, commands=("peek", "checkpoint"))
    first = lines.index("  -> see the record:")
    assert lines[first + 1 : first + 3] == [
        "     kinesis-spout peek shardId-000000000001 3 --application etl \\",
        "       --stream orders --zookeeper zk1:2181,zk2:2181",
    ]
    assert max(map(len, lines)) <= 80


def test_a_shard_for_which_others_wait_says_so() -> None:
    seen = look(
        listed(0, closed=True),
        listed(1, 0),
        state(0, after(2)),
        state(1, after(0), 0),
        tips={0: behind(60_000)},
    )
    assert "shard 0  stalled  shard 1 waits for it" in screen(seen, width=80)


def test_what_is_to_be_done_for_shards_above_is_not_told_again() -> None:
    """One start is enough for all."""
    states = [state(1, after(5)), state(2, after(5), at_tip=True, unresolved=(failed(3),))]
    tips = {1: behind(60_000), 2: behind(90_000)}
    seen = look(listed(1), listed(2), *states, tips=tips, owners=())
    assert len(grouped(seen)) == 2
    lines = screen(look(listed(1), listed(2), state(1, after(5)), tips=tips, owners=()), width=99)
    assert sum(line == "  -> start the job" for line in lines) == 1
    assert sum(line.startswith("  -> as for shard ") for line in lines) == 1
    assert sum("start the job" in line for line in screen(seen, width=99)) == 2, "they differ"
