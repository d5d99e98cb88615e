"""`kinesis-spout checkpoint show`. Read-only."""

import json
from typing import Any

import typer
from rich.console import Console

from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.places import Place, note, operators_command, takes_place
from state.position import Position
from state.shard_state import ShardState


@takes_place(aws=False)
def show(
    ctx: typer.Context,
    *,
    place: Place,
    as_json: places.AsJson = False,
) -> None:
    """Show where each shard is read from, and its checkpoint.

    It reads ZooKeeper only, and may run beside the job.
    """
    with operators_command(ctx) as stack:
        store = place.store(stack)
        states = [stored.state for _, stored in sorted(store.shard_states.load().items())]
        if not states:
            note(f"application {place.application} has no state on stream {place.stream}")
        if as_json:
            say(json.dumps([_as_json(state) for state in states], indent=2))
            return
        console = Console()
        for state in states:
            for line in _lines(state, console.width if console.is_terminal else None):
                say(line)


def _lines(state: ShardState, max_columns: int | None) -> list[str]:
    """A shard in one line; in three where that is longer than `max_columns`. Numbers are whole, so
    that they can be copied.
    """
    about = f"{state.shard_id}  {state.lifecycle}"
    unresolved = f"{state.unresolved_count} unresolved"
    read, checkpoint = str(state.read_position), state.checkpoint_text or "none"
    line = f"{about}  read {read}  checkpoint {checkpoint}  {unresolved}"
    if max_columns is None or len(line) <= max_columns:
        return [line]
    return [f"{about}  {unresolved}", f"  read        {read}", f"  checkpoint  {checkpoint}"]


def _as_json(state: ShardState) -> dict[str, Any]:
    verified_ms = state.verified_until_ms
    return {
        "shardId": state.shard_id,
        "lifecycle": state.lifecycle.value,
        "readPosition": str(state.read_position),
        "checkpoint": state.checkpoint_text,
        "unresolved": state.unresolved_count,
        "verifiedUntil": None if verified_ms is None else str(Position.at_timestamp(verified_ms)),
    }
