"""`kinesis-spout checkpoint rewind`: takes an application back to where it was at a time."""

from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import write_moves
from kinesis_spout.checkpoints.rewind import Rewind, find_rewind
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
from kinesis_spout.cli.checkpoint.wanted_time import wanted_time
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, takes_place
from kinesis_spout.clock import SystemClock
from state.position import Position


@takes_place()
def rewind(
    ctx: typer.Context,
    *,
    place: Place,
    to: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="-2h, 14:00 (of today, UTC), or an ISO time like 2026-01-31T12:00:00Z.",
        ),
    ],
    allow_skip: Annotated[
        bool,
        typer.Option(
            "--allow-skip", help="Also where records would be skipped, or have expired since."
        ),
    ] = False,
    dry_run: places.DryRun = False,
    yes: places.Yes = False,
    count: Count = DEFAULT_COUNT,
) -> None:
    """Go back to where the application was at a time, over reshards too.

    All that was not acked at that time is read again, by the history (see `checkpoint
    history`). Shows each shard before and after, and how many records that repeats.
    Refused while the application runs. The job then continues from there, with its old
    Spark checkpoint location.

    Exit codes: 0 done, 1 refused because records would be skipped, have expired, or
    nobody knows where the application was, 3 a service cannot be reached, 4 the
    application runs.
    """
    wanted = wanted_time(to, "--to")
    clock = SystemClock()
    with moving_command(ctx, place) as (client, store):
        with place.patience(client):
            if store.identity.read_start() is None and not store.shard_states.load():
                raise CliError(
                    f"application {place.application} has no state on stream {place.stream}"
                )
            own(store, dry_run=dry_run)
            found = find_rewind(client, store, wanted, clock=clock, max_counted=count)
        _say(found)
        refuse_skips(found.move, allow_skip=allow_skip)
        _refuse_losses(found, allow_skip=allow_skip)
        if confirmed("Go back there?", dry_run=dry_run, yes=yes):
            write_moves(store, found.move, cause="rewind")
            say("moved")


def _say(found: Rewind) -> None:
    say(
        f"where it was at {Position.at_timestamp(found.wanted_ms)}, as stored at "
        f"{Position.at_timestamp(found.past_ms)}"
    )
    say_moves(found.move)
    for shard, position in found.lost.items():
        say(f"{shard}\n  is not listed any more: nothing after {position} can be read again")


def _refuse_losses(found: Rewind, *, allow_skip: bool) -> None:
    expired = [one.after.shard_id for one in found.move.moves if one.lost_until_ms is not None]
    lost = sorted({*found.lost, *expired})
    if lost and not allow_skip:
        raise CliError(
            f"records of {', '.join(lost)} that are to be read again may have expired; give "
            "--allow-skip to go back as far as is possible"
        )
