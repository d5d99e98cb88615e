"""`kinesis-spout checkpoint show` and `checkpoint history`. Read ZooKeeper only."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from kinesis_spout.checkpoints.rewind import read_history
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import requested_time
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.places import Place, note, operators_command, takes_place
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.cli.shared_options import shard_id_of, with_zone
from kinesis_spout.clock import SystemClock
from state.moves.history import changes
from state.position import Position
from state.shard_state import ShardState
from state.store.history import HistoryEntry

MAX_SHOWN = 10
Change = tuple[Position | None, Position | None]


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
            say(json.dumps([_state_json(state) for state in states], indent=2))
            return
        console = Console()
        for state in states:
            for line in _state_lines(state, console.width if console.is_terminal else None):
                say(line)


def _state_lines(state: ShardState, max_columns: int | None) -> list[str]:
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


def _state_json(state: ShardState) -> dict[str, Any]:
    verified_ms = state.verified_until_ms
    return {
        "shardId": state.shard_id,
        "lifecycle": state.lifecycle.value,
        "readPosition": str(state.read_position),
        "checkpoint": state.checkpoint_text,
        "unresolved": state.unresolved_count,
        "verifiedUntil": None if verified_ms is None else str(Position.at_timestamp(verified_ms)),
    }


@takes_place(aws=False)
def history(
    ctx: typer.Context,
    *,
    place: Place,
    shard: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD", help="A shard to show (default: all). Repeatable."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="-2h, 14:00 (of today, UTC), or an ISO time like 2026-01-31T12:00:00Z.",
        ),
    ] = None,
    as_json: places.AsJson = False,
) -> None:
    """Show how the application progressed over time, the newest entry last.

    Each entry gives the shards that moved, with their positions before and after. All
    records before a position were acked at that time. `checkpoint rewind` goes back to one
    of these times. It reads ZooKeeper only, and may run beside the job.
    """
    since_ms = None
    if since is not None:
        since = with_zone("--since", since, note) or since
        since_ms = requested_time(since, "--since").at(SystemClock().now_ms()).timestamp_ms
    wanted = {shard_id_of(one) for one in shard or ()}
    with operators_command(ctx) as stack:
        store = place.store(stack)
        entries = read_history(store.history)
        if not entries:
            note(
                f"application {place.application} has no history on stream {place.stream}: it is "
                "written while the job runs"
            )
        shown = [
            (entry, {one: change for one, change in changed.items() if not wanted or one in wanted})
            for entry, changed in changes(entries)
            if since_ms is None or entry.time_ms >= since_ms
        ]
        shown = [(entry, changed) for entry, changed in shown if changed]
        if as_json:
            say(json.dumps([_entry_json(entry, changed) for entry, changed in shown], indent=2))
            return
        for entry, changed in shown:
            for line in _entry_lines(entry, changed, most=len(changed) if wanted else MAX_SHOWN):
                say(line)


def _entry_lines(entry: HistoryEntry, changed: Mapping[str, Change], *, most: int) -> list[str]:
    number = plural(len(changed), "shard")
    lines = [f"{Position.at_timestamp(entry.time_ms)}  {entry.cause or 'settled'}  {number}"]
    for shard, (before, after) in list(changed.items())[:most]:
        lines += [
            f"  {shard}",
            f"    from  {'not known' if before is None else before}",
            f"    to    {'removed' if after is None else after}",
        ]
    left = len(changed) - most
    return [*lines, f"  and {left} more, with --json"] if left > 0 else lines


def _entry_json(entry: HistoryEntry, changed: Mapping[str, Change]) -> dict[str, Any]:
    return {
        "time": str(Position.at_timestamp(entry.time_ms)),
        "cause": entry.cause or "settled",
        "shards": {
            shard: {
                "from": None if before is None else str(before),
                "to": None if after is None else str(after),
            }
            for shard, (before, after) in changed.items()
        },
    }
