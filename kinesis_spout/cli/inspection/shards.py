"""`kinesis-spout shards`: the shards of a stream, and an application's progress on each. Read-
only.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from kinesis_spout.cli.exit_codes import CliError, one_sentence
from kinesis_spout.cli.inspection.shard_report import ShardLine, shard_lines, shard_tree
from kinesis_spout.cli.patience import patience, services
from kinesis_spout.cli.shared_options import connection_of, errors, root_options
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import ShardNotFoundError
from kinesis_spout.service.client import FetchedPage, KinesisClient
from kinesis_spout.service.shard_info import StreamSummary
from kinesis_spout.shards.lineage import ShardLineage
from state.position import Position
from state.shard_state import ShardState
from state.znodes.store import ZnodeStateStore
from state.zookeeper.embedded import LOCK_NAME, embedded_directory
from state.zookeeper.store import DEFAULT_ROOT, ZookeeperStateStore

MAX_CONCURRENT_CALLS = 16
FILE_WIDTH = 10_000
RETRY_FOR_S = 15.0  # short, because a user is waiting at a terminal


@dataclass(frozen=True, slots=True)
class ShardsOfStream:
    """The stream's summary and its shards, a line each.

    `has_state`: whether the application has any state on the stream; None without an application.
    """

    summary: StreamSummary
    lines: list[ShardLine]
    has_state: bool | None


# long: its parameters are the command's options, and typer takes the help from them
def shards(
    ctx: typer.Context,
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="Name or ARN of the stream.", show_default=False)
    ],
    *,
    application: Annotated[
        str | None, typer.Option(help="Name under which the checkpoints are stored.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="Connect string (may end in a chroot), or embedded:DIRECTORY. Requires "
            "--application."
        ),
    ] = None,
    zookeeper_root: Annotated[
        str, typer.Option(help="Path in ZooKeeper that holds all applications.")
    ] = DEFAULT_ROOT,
    region: Annotated[
        str | None, typer.Option(help="AWS region (default: the AWS configuration's).")
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option(help="Another Kinesis endpoint, e.g. a local one.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Any other connection option, e.g. profile=work. Repeatable."
        ),
    ] = None,
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
    if (application is None) != (zookeeper is None):
        raise typer.BadParameter("give both or neither", param_hint="--application, --zookeeper")
    if lag and application is None:
        raise typer.BadParameter(
            "the lag is that of an application; give --application too", param_hint="--lag"
        )
    with one_sentence(errors(), debug=root_options(ctx).debug), ExitStack() as stack:
        ref = StreamRef.of(stream)
        aws = connection_of({"region": region, "endpoint_url": endpoint_url}, option or ())
        client = stack.enter_context(closing(KinesisClient(aws, ref, retry_for_s=RETRY_FOR_S)))
        store = None
        if application is not None and zookeeper is not None:
            check_exists(zookeeper)
            store = ZookeeperStateStore(
                zookeeper, root=zookeeper_root, application=application, stream=ref.name
            )
            stack.enter_context(closing(store))
        with patience(_note, services(aws, ref.name, zookeeper)):
            found = inspect_shards(client, store, now_ms=SystemClock().now_ms(), lag=lag)
        if found.has_state is False:
            _note(f"application {application} has no state on stream {ref.name}")
        print_shards(stdout_console(), found, application, as_json=as_json)


def _note(sentence: str) -> None:
    errors().print(f"note: {sentence}", highlight=False, markup=False, soft_wrap=True)


def inspect_shards(
    client: KinesisClient, store: ZnodeStateStore | None, *, now_ms: int, lag: bool
) -> ShardsOfStream:
    """Query the service and ZooKeeper. `now_ms` is used if the service does not give its time.

    Raises `CliError` when the state belongs to an earlier stream of that name, whose shards have
    the same ids.
    """
    summary = client.describe()
    states = {} if store is None else _states(store, summary)
    lineage = ShardLineage.of(client.list_shards(), states)
    service_ms = now_ms if summary.service_time_ms is None else summary.service_time_ms
    lines = shard_lines(
        lineage,
        has_application=store is not None,
        is_active=summary.status == "ACTIVE",
        now_ms=service_ms,
        measured_ms=_measured_ms(client, lineage, service_ms) if lag else {},
    )
    return ShardsOfStream(summary, lines, None if store is None else bool(states))


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
    console.print(shard_tree(title, found.lines), highlight=False, emoji=False)


def stdout_console() -> Console:
    """The console on stdout.

    On a terminal it folds long lines inside the tree. In a file, a shard is one line.
    """
    console = Console()
    return console if console.is_terminal else Console(width=FILE_WIDTH)


def check_exists(zookeeper: str) -> None:
    """Raise `CliError` for an embedded ZooKeeper that never ran.

    Connecting would start one and create its directory.
    """
    directory = embedded_directory(zookeeper)
    if directory is not None and not (directory / LOCK_NAME).is_file():
        raise CliError(
            f"--zookeeper {zookeeper}: no ZooKeeper has run in that directory, so there is no "
            "state to show"
        )


def _states(store: ZnodeStateStore, summary: StreamSummary) -> dict[str, ShardState]:
    known = store.read_stream()
    if known is not None and (known.arn, known.created_ms) != (summary.arn, summary.created_ms):
        raise CliError(
            f"the application's state belongs to another stream than {summary.arn} of today: to "
            f"{known.arn}, created at {Position.at_timestamp(known.created_ms)}; leave out "
            "--application, or remove that state with kinesis-spout reset"
        )
    return {shard: stored.state for shard, stored in store.load_states().items()}


def _measured_ms(client: KinesisClient, lineage: ShardLineage, now_ms: int) -> Mapping[str, int]:
    """The measured lag in ms of each shard that is read now, from the application's read
    position.
    """
    wanted = lineage.readable()

    def ask(shard: str) -> int | None:
        try:
            iterator = client.shard_iterator(shard, lineage.states[shard].read_position)
        except ShardNotFoundError:
            return None
        return _behind_ms(client.get_records(iterator, 1), now_ms)

    with ThreadPoolExecutor(MAX_CONCURRENT_CALLS) as pool:
        answers = zip(wanted, pool.map(ask, wanted), strict=True)
        return {shard: behind for shard, behind in answers if behind is not None}


def _behind_ms(fetched: FetchedPage, now_ms: int) -> int | None:
    """The lag of the reader before this page, None if unknown.

    MillisBehindLatest is the lag after the page. The record in the page is unread, so its age may
    be larger.
    """
    said, arrival_ms = fetched.page.millis_behind_latest, fetched.page.last_arrival_ms
    unread_ms = None if arrival_ms is None else max(0, now_ms - arrival_ms)
    return max((each for each in (said, unread_ms) if each is not None), default=None)
