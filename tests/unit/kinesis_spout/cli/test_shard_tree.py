"""The shards as a tree on the screen."""

from __future__ import annotations

import io

from rich.console import Console

from kinesis_spout.cli.shard_report import ShardLine
from kinesis_spout.cli.shard_tree import shard_tree
from tests.support.shards import LEFT, RIGHT, WHOLE


def drawn(*lines: ShardLine, title: str = "orders") -> list[str]:
    text = io.StringIO()
    Console(file=text, width=200).print(shard_tree(title, lines), highlight=False)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_children_stand_below_their_parent() -> None:
    assert drawn(
        ShardLine(shard_id="a", state="closed", hash_keys=WHOLE),
        ShardLine(shard_id="b", state="open", parents=("a",), hash_keys=LEFT),
        ShardLine(shard_id="c", state="open", parents=("a",), hash_keys=RIGHT),
    ) == ["orders", "└── a  closed  100 %", "    ├── b  open  50 %", "    └── c  open  50 %"]


def test_a_merged_shard_stands_below_its_first_parent_and_names_the_other() -> None:
    assert drawn(
        ShardLine(shard_id="a", state="closed"),
        ShardLine(shard_id="b", state="closed"),
        ShardLine(shard_id="c", state="open", parents=("a", "b")),
    ) == ["orders", "├── a  closed", "│   └── c  open  also of b", "└── b  closed"]


def test_position_checkpoint_queue_and_lag_are_shown_and_long_numbers_by_their_ends() -> None:
    line = ShardLine(
        shard_id="a",
        state="readable",
        read_position=f"AFTER:{10**55 + 42}",
        checkpoint=str(10**55 + 41),
        unresolved=3,
        lag_ms=1_500,
        lag_measured=True,
    )
    assert drawn(line)[1] == (
        "└── a  readable  read AFTER:..000000000042  checkpoint ..000000000041  3 unresolved  lag "
        "1.5 s"
    )


def test_a_lag_that_was_not_measured_is_an_upper_bound() -> None:
    def lag(lag_ms: int | None) -> str:
        return drawn(
            ShardLine(
                shard_id="a",
                state="readable",
                read_position="SHARD_END",
                unresolved=0,
                lag_ms=lag_ms,
            )
        )[1]

    assert [lag(ms).partition("lag ")[2] for ms in (None, 119_000, 600_000, 9_000_000)] == [
        "-",
        "at most 119.0 s",
        "at most 10 min",
        "at most 2.5 h",
    ]


def test_waits_and_holes_are_shown() -> None:
    found = drawn(
        ShardLine(shard_id="c", state="waiting", waits_for=("a", "b")),
        ShardLine(shard_id=None, state="hole", hash_keys=(5, 9)),
    )
    assert found[1] == "├── c  waiting  for a and b"
    assert found[2] == "└── hole: no open shard takes the hash keys 5 to 9, 0 %"


def test_names_are_taken_literally() -> None:
    """Markup in a title would colour, or break, the tree."""
    assert drawn(title="[red]x[/]") == ["[red]x[/]"]
