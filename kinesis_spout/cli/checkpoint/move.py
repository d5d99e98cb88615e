"""`kinesis-spout checkpoint set`: moves shards to another read position."""

from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.wanted_position import WantedPosition
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import (
    DEFAULT_COUNT,
    Count,
    confirmed,
    moving_command,
    own,
    refuse_skips,
    say_moves,
)
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, takes_place
from kinesis_spout.cli.shared_options import shard_id_of, usage_errors
from kinesis_spout.clock import SystemClock


@takes_place()
def move(
    ctx: typer.Context,
    *,
    place: Place,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="TRIM_HORIZON, LATEST, -2h, 14:00 (of today, UTC), an ISO time like "
            "2026-01-31T12:00:00Z; and with one --shard AT:SEQUENCE, AFTER:SEQUENCE, SHARD_END.",
        ),
    ],
    shard: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD", help="A shard to move (default: all). Repeatable."),
    ] = None,
    allow_skip: Annotated[
        bool,
        typer.Option(
            "--allow-skip",
            help="Move forward too, and go on without records that have expired: they are never "
            "read.",
        ),
    ] = False,
    dry_run: places.DryRun = False,
    yes: places.Yes = False,
    count: Count = DEFAULT_COUNT,
) -> None:
    """Read again from an earlier position, or skip to a later one.

    Shows each shard before and after, and how many records that repeats or skips.
    Refused while the application runs. The job then continues from there, with
    its old Spark checkpoint location.

    Exit codes: 0 done, 1 refused because records would be skipped or have expired, 3 a
    service cannot be reached, 4 the application runs.
    """
    shards = [shard_id_of(one) for one in shard or ()]
    wanted = _parsed(to, shards)
    clock = SystemClock()
    with moving_command(ctx, place) as (client, store):
        with place.patience(client):
            if store.identity.read_start() is None and not store.shard_states.load():
                raise CliError(
                    f"application {place.application} has no state on stream {place.stream} to move"
                )
            own(store, dry_run=dry_run)
            found = find_moves(client, store, wanted, shards, clock=clock, max_counted=count)
        say_moves(found)
        refuse_skips(found, allow_skip=allow_skip)
        if found.changes_nothing:
            say("nothing to move")
        elif confirmed("Move them?", dry_run=dry_run, yes=yes):
            write_moves(store, found, cause="set")
            say("moved")


def _parsed(to: str, shards: list[str]) -> WantedPosition:
    """Raises typer's usage error."""
    with usage_errors("--to"):
        wanted = WantedPosition.parse(to)
    if wanted.is_of_one_shard and len(shards) != 1:
        raise typer.BadParameter(
            f"{to} is a position in one shard; name it with --shard", param_hint="--to"
        )
    return wanted
