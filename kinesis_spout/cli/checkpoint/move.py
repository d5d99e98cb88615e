"""`kinesis-spout checkpoint set` and `checkpoint rewind`: move shards to another read position."""

from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import ApplicationMove, find_moves, write_moves
from kinesis_spout.checkpoints.moves import Move
from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.checkpoints.rewind import find_rewind
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import (
    DEFAULT_COUNT,
    Count,
    confirmed,
    moving_command,
    requested_time,
)
from kinesis_spout.cli.checkpoint.printing import records_of, say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, takes_place
from kinesis_spout.cli.shared_options import shard_id_of, usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.shards.data_loss import times_of
from state.position import Position


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
    requested = _parsed(to, shards)
    clock = SystemClock()
    with moving_command(ctx, place, dry_run=dry_run) as (client, store):
        with place.patience(client):
            found = find_moves(client, store, requested, shards, clock=clock, max_counted=count)
        _say_moves(found)
        _refuse_skips(found, allow_skip=allow_skip)
        if found.changes_nothing:
            say("nothing to move")
        elif confirmed("Move these shards?", dry_run=dry_run, yes=yes):
            write_moves(store, found, cause="set")
            say("moved")


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
    requested = requested_time(to, "--to")
    clock = SystemClock()
    with moving_command(ctx, place, dry_run=dry_run) as (client, store):
        with place.patience(client):
            found = find_rewind(client, store, requested, clock=clock, max_counted=count)
        say(
            f"positions at {Position.at_timestamp(found.requested_ms)}, as stored at "
            f"{Position.at_timestamp(found.past_ms)}"
        )
        _say_moves(found.move)
        for shard, position in found.lost.items():
            say(f"{shard}\n  is not listed any more: nothing after {position} can be read again")
        _refuse_skips(found.move, allow_skip=allow_skip)
        expired = [one.after.shard_id for one in found.move.moves if one.lost_until_ms is not None]
        lost = sorted({*found.lost, *expired})
        if lost and not allow_skip:
            raise CliError(
                f"records of {', '.join(lost)} that are to be read again may have expired",
                "give --allow-skip to go back as far as is possible",
            )
        if confirmed("Move these shards?", dry_run=dry_run, yes=yes):
            write_moves(store, found.move, cause="rewind")
            say("moved")


def _parsed(to: str, shards: list[str]) -> RequestedPosition:
    """Raises typer's usage error."""
    with usage_errors("--to"):
        requested = RequestedPosition.parse(to)
    if requested.belongs_to_one_shard and len(shards) != 1:
        raise typer.BadParameter(
            f"{to} is a position in one shard; name it with --shard", param_hint="--to"
        )
    return requested


def _say_moves(found: ApplicationMove) -> None:
    for one in found.moves:
        for line in move_lines(one):
            say(line)


def _refuse_skips(found: ApplicationMove, *, allow_skip: bool) -> None:
    """Raise `CliError` where records would be skipped, or have expired unread, unless that is
    allowed.
    """
    skipping = [one.after.shard_id for one in found.moves if one.skips]
    losing = [one.after.shard_id for one in found.moves if one.accepts_loss]
    if losing and not allow_skip:
        raise CliError(
            f"records of {', '.join(losing)} have expired and were never read",
            "give --allow-skip to go on without them",
        )
    if skipping and not allow_skip:
        raise CliError(
            f"records of {', '.join(skipping)} would be skipped and never be read",
            "give --allow-skip to skip them",
        )


def move_lines(move: Move) -> list[str]:
    """A shard before and after, and what that does."""
    before, after = move.before, move.after
    if after == before:
        lines = [before.shard_id, f"  stays   {before.read_position}"]
    else:
        arrived_ms = move.arrival_ms
        arrival = "" if arrived_ms is None else f"  (arrived {Position.at_timestamp(arrived_ms)})"
        lines = [
            before.shard_id,
            f"  before  {before.read_position}",
            f"  after   {after.read_position}{arrival}",
            f"  {_effect(move)}",
        ]
    if move.lost_until_ms is not None:
        until = Position.at_timestamp(move.lost_until_ms)
        lines.append(f"  records that arrived before {until} may have expired")
    if move.expired_ms is not None:
        lines.append(
            f"  records that arrived from {times_of(move.expired_ms)} expired before they were read"
        )
    return lines if move.note is None else [*lines, f"  note: {move.note}"]


def _effect(move: Move) -> str:
    if move.skips:
        return f"skips {records_of(move.skipped)}"
    if not move.repeated.records:
        return "skips and repeats nothing"
    dropped = f", {move.dropped} of them unresolved" if move.dropped else ""
    return f"repeats {records_of(move.repeated)}{dropped}"
