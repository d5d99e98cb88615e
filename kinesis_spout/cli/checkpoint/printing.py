"""How these commands print: plain lines, which a terminal cannot take for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from kinesis_spout.shards.data_loss import times_of
from state.position import Position

if TYPE_CHECKING:
    from kinesis_spout.checkpoints.located import Counted
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


def state_lines(state: ShardState, max_columns: int | None = None) -> list[str]:
    """A shard in one line; in three where that is longer than `max_columns`. Numbers are whole, so
    that they can be copied.
    """
    about, unresolved = (
        f"{state.shard_id}  {state.lifecycle}",
        f"{state.unresolved_count} unresolved",
    )
    read, checkpoint = str(state.read_position), state.checkpoint_text or "none"
    line = f"{about}  read {read}  checkpoint {checkpoint}  {unresolved}"
    if max_columns is None or len(line) <= max_columns:
        return [line]
    return [f"{about}  {unresolved}", f"  read        {read}", f"  checkpoint  {checkpoint}"]


def state_clause(state: ShardState) -> str:
    """Where a shard stands."""
    return (
        f"{state.read_position}  checkpoint {state.checkpoint_text or 'none'}  "
        f"{state.unresolved_count} unresolved"
    )


def terminal_columns() -> int | None:
    """How wide stdout is; None where it is no terminal."""
    console = Console()
    return console.width if console.is_terminal else None


def counted(count: int) -> str:
    return _records(str(count))


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
    if move.lost_until_ms is not None:
        until = Position.at_timestamp(move.lost_until_ms)
        lines.append(f"  what arrived there before {until} may have expired")
    if move.expired_ms is not None:
        lines.append(
            f"  what arrived from {times_of(move.expired_ms)} was not read, and is not in the "
            "stream any more"
        )
    return lines if move.note is None else [*lines, f"  note: {move.note}"]


def records_of(count: Counted) -> str:
    """As `12 records`, or `more than 10000 records`."""
    return _records(str(count))


def _effect(move: Move) -> str:
    if move.skips:
        return f"skips {_records(str(move.skipped))}"
    if not move.repeated.records:
        return "skips and repeats nothing"
    dropped = f", {move.dropped} of them unresolved" if move.dropped else ""
    return f"repeats {_records(str(move.repeated))}{dropped}"


def _records(number: str) -> str:
    return f"{number} record" if number == "1" else f"{number} records"
