"""`kinesis-spout shards`: the shards of a stream, and an application's progress on each. Read-
only.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement

from kinesis_spout.cli.exit_codes import one_sentence
from kinesis_spout.cli.inspection.looking import refuse_another_stream
from kinesis_spout.cli.inspection.shard_report import ShardLine, shard_lines, shard_tree
from kinesis_spout.cli.places import Place, note, takes_place
from kinesis_spout.cli.shared_options import errors, root_options
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import StreamSummary
from state.znodes.topics import StoreTopics

FILE_WIDTH = 10_000


@dataclass(frozen=True, slots=True)
class ShardsOfStream:
    """The stream's summary and its shards, a line each.

    `has_state`: whether the application has any state on the stream; None without an application.
    """

    summary: StreamSummary
    lines: list[ShardLine]
    has_state: bool | None


@takes_place(application="optional", stream_is_argument=True)
def shards(
    ctx: typer.Context,
    *,
    place: Place,
    lag: Annotated[
        bool,
        typer.Option(
            "--lag",
            help="Measure the lag of each shard. Takes one of the shard's 5 reads a second.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list on stdout, and nothing else.")
    ] = False,
) -> None:
    """Show a stream's shards as a tree of splits and merges, with an application's progress.

    It only reads, so it may run beside the job. Without --application it shows
    which shards are open and which are closed.
    """
    application = place.application or None
    if lag and application is None:
        raise typer.BadParameter(
            "the lag is that of an application; give --application too", param_hint="--lag"
        )
    with one_sentence(errors(), ctx=ctx, debug=root_options(ctx).debug), ExitStack() as stack:
        client = place.client(stack)
        store = None if application is None else place.store(stack)
        with place.patience(client):
            found = inspect_shards(
                client, store, application=place.application, clock=SystemClock(), lag=lag
            )
        if found.has_state is False:
            note(f"application {place.application} has no state on stream {client.stream.name}")
        print_shards(stdout_console(), found, application, as_json=as_json)


def inspect_shards(
    client: KinesisClient,
    store: StoreTopics | None,
    *,
    application: str,
    clock: Clock,
    lag: bool,
) -> ShardsOfStream:
    """Query the service and ZooKeeper. `clock` is used if the service does not give its time.

    Raises `CliError` when the state belongs to an earlier stream of that name, whose shards have
    the same ids.
    """
    seen = read_snapshot(client, store, application=application, clock=clock)
    refuse_another_stream(seen)
    lines = shard_lines(
        seen.lineage,
        has_application=store is not None,
        is_active=seen.stream.status == "ACTIVE",
        now_ms=seen.now_ms,
        measured_ms=_measured_ms(seen, TipReader(client, clock, patient=True)) if lag else {},
    )
    return ShardsOfStream(seen.stream, lines, None if store is None else bool(seen.states))


def print_shards(
    console: Console, found: ShardsOfStream, application: str | None, *, as_json: bool
) -> None:
    """Print the tree, or the JSON list of `kinesis_spout.cli.inspection.shard_report`."""
    if as_json:
        text = json.dumps([line.as_json() for line in found.lines], indent=2)
        console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)
        return
    of = "" if application is None else f"  application {application}"
    title = f"{found.summary.name}  {found.summary.status}{of}"
    tree = shard_tree(title, found.lines)
    if Measurement.get(console, console.options, tree).maximum > console.width:
        tree = shard_tree(title, found.lines, is_narrow=True)
    console.print(tree, highlight=False, emoji=False)


def stdout_console() -> Console:
    """The console on stdout.

    On a terminal, a shard takes two lines of the tree where one is too long. In a file it is one.
    """
    console = Console()
    return console if console.is_terminal else Console(width=FILE_WIDTH)


def _measured_ms(seen: Snapshot, reader: TipReader) -> Mapping[str, int]:
    """The measured lag in ms of each shard that is read now, from the application's read
    position.
    """
    positions = ((shard, seen.states[shard].read_position) for shard in seen.lineage.readable())
    tips = reader.ask(positions)
    return {
        shard: 0 if tip.next_ms is None else max(0, seen.now_ms - tip.next_ms)
        for shard, tip in tips.items()
    }
