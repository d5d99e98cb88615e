"""`kinesis-spout shards`: the shards of a stream as a tree, and an application's progress on each.
Read-only. `--json` prints the shards of `status --json`, oldest first, then the holes.
"""

from collections.abc import Iterator, Sequence

from rich.text import Text
from rich.tree import Tree

from kinesis_spout.cli.looking import Looking, refuse_another_stream
from kinesis_spout.cli.places import Operation, command, fitting, stdout_console
from kinesis_spout.cli.shared_options import note, option, wrong_usage
from kinesis_spout.cli.status import lag_cell
from kinesis_spout.clock import Clock
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.status import (
    ShardStatus,
    StreamState,
    holes_of,
    shard_status,
    shards_json,
    shards_of_stream,
)
from kinesis_spout.inspection.wording import brief, short_shard, shortened
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.shards.lineage import ShardPhase
from state.znodes.topics import StoreTopics

_COLOURS: dict[str, str] = {
    **dict.fromkeys((StreamState.OPEN, ShardPhase.READABLE), "green"),
    **dict.fromkeys((ShardPhase.DRAINING, ShardPhase.DRAINED), "yellow"),
    **dict.fromkeys((ShardPhase.WAITING, ShardPhase.NEW), "cyan"),
    **dict.fromkeys((ShardPhase.VANISHED, StreamState.HOLE), "bold red"),
}


@command("optional", stream_is_argument=True, shows=True)
def shards(
    op: Operation,
    *,
    lag: bool = option(
        "Measure the lag of each shard. Each measurement uses one of the shard's 5 reads per "
        "second."
    ),
) -> None:
    """Show a stream's shards as a tree of splits and merges, with the progress of an application.

    The command only reads, so it may run while the job is running. Without
    --application, the command shows only which shards are open or closed.
    """
    application = op.place.application
    if lag and not application:
        needs = "--lag needs --application: the lag is measured for one application"
        raise wrong_usage("--lag", needs)
    client, store = op.client, op.store if application else None
    with op.patience():
        seen, found = inspect_shards(client, store, application, op.clock, lag=lag)
    if store is not None and not seen.states:
        note(f"application {application} has no stored state on stream {client.stream.name}")
    of = f"  application {seen.application}" if seen.application else ""
    title = f"{seen.stream.name}  {seen.stream.status}{of}"
    trees = (shard_tree(title, found, is_narrow=is_narrow) for is_narrow in (False, True))
    op.show(shards_json(found), [fitting(stdout_console().width, trees)])


def inspect_shards(
    client: KinesisClient, store: StoreTopics | None, application: str, clock: Clock, *, lag: bool
) -> tuple[Snapshot, list[ShardStatus]]:
    """The shards, oldest first, then the holes. Blocks. `clock` is used if the service does not
    give its time.

    Raises `StreamMismatchError` when the state belongs to an earlier stream of that name, whose
    shards have the same ids.
    """
    seen = read_snapshot(client, store, application=application, clock=clock)
    refuse_another_stream(seen)
    if store is None:
        return seen, [*shards_of_stream(seen), *holes_of(seen)]
    most = len(seen.shard_ids) if lag else 0
    tips = TipReader(client, clock, patient=True)
    look = Looking(tips, store, application, most).look(seen)
    return seen, [*(shard_status(look.of(one)) for one in seen.shard_ids), *holes_of(seen)]


def shard_tree(title: str, found: Sequence[ShardStatus], *, is_narrow: bool = False) -> Tree:
    """A tree: a child below its parent, or below the first of its two parents, which stand before
    it. `is_narrow`: the progress stands on a line of its own, in fewer digits.
    """
    tree = Tree(Text(title, "bold"))
    branches: dict[str, Tree] = {}
    for one in found:
        above = next((parent for parent in one.parents if parent in branches), None)
        label = Text("  ").join(_about(one, above, is_narrow=is_narrow))
        if one.position is not None:
            label.append("\n" if is_narrow else "  ")
            label.append(_progress(one, is_narrow=is_narrow))
        branches[one.shard_id] = (tree if above is None else branches[above]).add(label)
    return tree


def _about(one: ShardStatus, above: str | None, *, is_narrow: bool) -> Iterator[Text]:
    colour, percent = _COLOURS.get(one.phase, "dim"), f"{one.hash_percent or 0:.4g} %"
    if one.phase is StreamState.HOLE:
        first, last = one.hash_keys or ("0", "0")
        said = f"hole: no open shard covers the hash keys {first} to {last} ({percent})"
        yield Text(said, colour)
        return
    yield Text(one.shard_id)
    yield Text(one.phase.value, colour)
    if one.hash_percent is not None:
        yield Text(percent)
    others = [parent for parent in one.parents if parent != above]
    for said, names in (("also of", others), ("for", one.waits_for)):
        if names:
            named = " and ".join(map(short_shard, names) if is_narrow else names)
            yield Text(f"{said} {named}", colour if said == "for" else "")
    if is_narrow and one.unresolved:
        yield Text(f"{one.unresolved} unresolved")


def _progress(one: ShardStatus, *, is_narrow: bool) -> str:
    write, at_most = (brief, "<") if is_narrow else (shortened, "at most ")
    bound = at_most if one.lag_ms and not one.lag_measured else ""
    parts = [f"read {write(one.position or '-')}", f"checkpoint {write(one.checkpoint or 'none')}"]
    parts += [] if is_narrow else [f"{one.unresolved} unresolved"]
    return "  ".join([*parts, f"lag {bound}{lag_cell(one.lag_ms)}"])
