"""`kinesis-spout checkpoint set`: moves shards to another read position."""

from contextlib import ExitStack
from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import ApplicationMove, find_moves, write_moves
from kinesis_spout.checkpoints.wanted_position import WantedPosition
from kinesis_spout.cli.checkpoint.printing import move_lines, say
from kinesis_spout.cli.exit_codes import CliError, one_sentence, operators_exit_code_of
from kinesis_spout.cli.patience import patience
from kinesis_spout.cli.places import (
    OWNER_WAIT_S,
    Application,
    Connection,
    DryRun,
    EndpointUrl,
    Region,
    Stream,
    Yes,
    Zookeeper,
    ZookeeperRoot,
    check_has_run,
    log_as_notes,
    note,
    of_services,
    open_client,
    open_store,
)
from kinesis_spout.cli.shared_options import errors, root_options, shard_id_of
from kinesis_spout.clock import SystemClock
from state.errors import InvalidPositionError
from state.ownership import this_process
from state.zookeeper.store import DEFAULT_ROOT

DEFAULT_COUNT = 10_000


# long: its parameters are the command's options, and typer takes the help from them
def move(
    ctx: typer.Context,
    *,
    application: Application,
    stream: Stream,
    zookeeper: Zookeeper,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="TRIM_HORIZON, LATEST, -2h, 14:00 (of today, local time), an ISO time like "
            "2026-01-31T12:00:00Z; and with one --shard AT:SEQUENCE, AFTER:SEQUENCE, SHARD_END.",
        ),
    ],
    shard: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD", help="A shard to move (default: all). Repeatable."),
    ] = None,
    allow_skip: Annotated[
        bool,
        typer.Option("--allow-skip", help="Move forward too: what is skipped is never read."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    count: Annotated[
        int,
        typer.Option(
            min=0, max=1_000_000, help="Count at most so many records of each shard, by reading."
        ),
    ] = DEFAULT_COUNT,
    zookeeper_root: ZookeeperRoot = DEFAULT_ROOT,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    option: Connection = None,
) -> None:
    """Read again from an earlier position, or skip to a later one.

    Shows each shard before and after, and how many records that repeats or skips.
    Refused while the application runs. The job then continues from there, with
    its old Spark checkpoint location.

    Exit codes: 0 done, 1 refused because records would be skipped, 3 a service cannot be
    reached, 4 the application runs.
    """
    shards = [shard_id_of(one) for one in shard or ()]
    wanted = _parsed(to, shards)
    with (
        one_sentence(errors(), debug=root_options(ctx).debug, code_of=operators_exit_code_of),
        log_as_notes(),
        ExitStack() as stack,
    ):
        check_has_run(zookeeper)
        clock = SystemClock()
        client = open_client(stack, stream, region=region, endpoint_url=endpoint_url, option=option)
        store = open_store(
            stack,
            zookeeper,
            root=zookeeper_root,
            application=application,
            stream=stream,
            option=option,
        )
        with patience(note, of_services(client, zookeeper)):
            if store.read_start() is None and not store.load_states():
                raise CliError(f"application {application} has no state on stream {stream} to move")
            if not dry_run:
                store.acquire(this_process(clock.now_ms()), timeout_s=OWNER_WAIT_S)
            found = find_moves(client, store, wanted, shards, clock=clock, max_counted=count)
        for one in found.moves:
            for line in move_lines(one):
                say(line)
        refuse_skips(found, allow_skip=allow_skip)
        if confirmed("Move them?", dry_run=dry_run, yes=yes):
            write_moves(store, found, clock=clock, cause="set")
            say("moved")


def _parsed(to: str, shards: list[str]) -> WantedPosition:
    """Raises typer's usage error."""
    try:
        wanted = WantedPosition.parse(to)
    except InvalidPositionError as exc:
        raise typer.BadParameter(str(exc), param_hint="--to") from exc
    if wanted.is_of_one_shard and len(shards) != 1:
        raise typer.BadParameter(
            f"{to} is a position in one shard; name it with --shard", param_hint="--to"
        )
    return wanted


def refuse_skips(found: ApplicationMove, *, allow_skip: bool) -> None:
    """Raise `CliError` where records would be skipped, unless that is wanted."""
    skipping = [one.after.shard_id for one in found.moves if one.skips]
    if skipping and not allow_skip:
        raise CliError(
            f"records of {', '.join(skipping)} would be skipped, and never be read; give "
            "--allow-skip if that is wanted"
        )


def confirmed(question: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether to write: not in a dry run. Raises typer's exit where the user says no."""
    if dry_run:
        say("nothing was written")
        return False
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)
    return True
