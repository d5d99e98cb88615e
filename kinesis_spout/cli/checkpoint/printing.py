"""How these commands print: plain lines, which a terminal cannot take for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from state.position import Position

if TYPE_CHECKING:
    from kinesis_spout.checkpoints.moves import Move
    from state.shard_state import ShardState


def say(line: str) -> None:
    """Print a line on stdout as it is."""
    Console().print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def printable(text: str) -> str:
    """The text with control characters, which a producer may have put in, as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def state_line(state: ShardState) -> str:
    """A shard in one line."""
    return (
        f"{state.shard_id}  {state.lifecycle}  read {state.read_position}  "
        f"checkpoint {state.checkpoint_text or 'none'}  {state.unresolved_count} unresolved"
    )


def move_lines(move: Move) -> list[str]:
    """A shard before and after, and what that does."""
    before, after = move.before, move.after
    if after == before:
        lines = [before.shard_id, f"  stays   {before.read_position}"]
    else:
        arrival = (
            ""
            if move.arrival_ms is None
            else f"  (arrived {Position.at_timestamp(move.arrival_ms)})"
        )
        lines = [
            before.shard_id,
            f"  before  {before.read_position}",
            f"  after   {after.read_position}{arrival}",
            f"  {_effect(move)}",
        ]
    return lines if move.note is None else [*lines, f"  note: {move.note}"]


def _effect(move: Move) -> str:
    if move.skips:
        return f"skips {_records(str(move.skipped))}"
    if not move.repeated.records:
        return "skips and repeats nothing"
    dropped = f", {move.dropped} of them unresolved" if move.dropped else ""
    return f"repeats {_records(str(move.repeated))}{dropped}"


def _records(number: str) -> str:
    return f"{number} record" if number == "1" else f"{number} records"
