"""`kinesis-spout checkpoint show` and `checkpoint history`. Read ZooKeeper only."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.checkpoints.rewind import read_history
from kinesis_spout.cli.checkpoint.operation import TIME_HELP, Operation, Shards, operates, past_time
from kinesis_spout.cli.places import note
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.cli.shared_options import with_zone
from kinesis_spout.inspection.status import shards_json, stored_shard
from state.moves import changes
from state.position import Position
from state.shard_state import ShardState
from state.store.history import HistoryEntry

MAX_SHOWN = 10
Change = tuple[Position | None, Position | None]


@operates(shows=True, aws=False)
def show(op: Operation) -> None:
    """Show where each shard is read from, and its checkpoint.

    It reads only ZooKeeper, and may run beside the job.
    """
    states = [stored.state for _, stored in sorted(op.store.shard_states.load().items())]
    if not states:
        note(f"application {op.place.application} has no state {op.on_stream}")
    console = Console()
    max_columns = console.width if console.is_terminal else None
    op.show(
        shards_json([stored_shard(state, op.clock.now_ms()) for state in states]),
        (line for state in states for line in _state_lines(state, max_columns)),
    )


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


def _since(text: str) -> RequestedPosition:
    return past_time(with_zone("--since", text, note) or text)


@operates(shows=True, aws=False)
def history(
    op: Operation,
    *,
    shard: Shards = None,
    since: Annotated[
        RequestedPosition | None, typer.Option(metavar="TIME", parser=_since, help=TIME_HELP)
    ] = None,
) -> None:
    """Show how the application progressed over time, the newest entry last.

    Each entry lists the shards that moved, with their positions before and after. All
    records before a position were acked at that time. `checkpoint rewind` goes back to one
    of these times. The command reads only ZooKeeper, and may run beside the job.
    """
    since_ms = 0 if since is None else since.at(op.clock.now_ms()).timestamp_ms or 0
    entries = read_history(op.store.history)
    if not entries:
        note(
            f"application {op.place.application} has no history {op.on_stream}. Its job writes the "
            "history while it runs"
        )
    found = [
        (entry, {one: change for one, change in changed.items() if one in (shard or changed)})
        for entry, changed in changes(entries)
        if entry.time_ms >= since_ms
    ]
    shown = [(entry, changed) for entry, changed in found if changed]
    op.show(
        [_entry_json(entry, changed) for entry, changed in shown],
        (line for entry in shown for line in _entry_lines(*entry, is_whole=bool(shard))),
    )


def _entry_lines(
    entry: HistoryEntry, changed: Mapping[str, Change], *, is_whole: bool
) -> Iterator[str]:
    number = plural(len(changed), "shard")
    yield f"{Position.at_timestamp(entry.time_ms)}  {entry.cause or 'settled'}  {number}"
    shown = list(changed.items())[: None if is_whole else MAX_SHOWN]
    for shard, (before, after) in shown:
        yield f"  {shard}"
        yield f"    from  {'not known' if before is None else before}"
        yield f"    to    {'removed' if after is None else after}"
    if left := len(changed) - len(shown):
        yield f"  and {left} more, with --json"


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
