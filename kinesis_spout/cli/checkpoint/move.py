"""`kinesis-spout checkpoint set` and `checkpoint rewind` move shards to another read position,
`kinesis-spout reset` removes their states.
"""

from collections.abc import Iterator
from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import ApplicationMove, find_moves, write_moves
from kinesis_spout.checkpoints.moves import Move
from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.checkpoints.rewind import find_rewind
from kinesis_spout.cli.checkpoint.operation import (
    DEFAULT_COUNT,
    TIME_HELP,
    AllowSkip,
    Count,
    Operation,
    Shards,
    operates,
    past_time,
    records_of,
    say,
)
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import OWNER_WAIT_S
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.cli.shared_options import usage_errors
from kinesis_spout.shards.data_loss import times_of
from state.position import Position
from state.process import this_process


@operates(writes=True)
def move(
    op: Operation,
    *,
    to: Annotated[
        RequestedPosition,
        typer.Option(
            metavar="POSITION",
            parser=usage_errors()(RequestedPosition.parse),
            help=(
                "TRIM_HORIZON, LATEST, -2h, 14:00 (of today, UTC), or an ISO time like "
                "2026-01-31T12:00:00Z. With one --shard also AT:SEQUENCE, AFTER:SEQUENCE or "
                "SHARD_END."
            ),
        ),
    ],
    shard: Shards = None,
    allow_skip: AllowSkip = False,
    count: Count = DEFAULT_COUNT,
) -> None:
    """Read again from an earlier position, or skip to a later one.

    Shows each shard before and after, and how many records are repeated or skipped.
    Refused while the application runs. Afterwards the job continues from the new
    positions, with its old Spark checkpoint location.

    Exit codes: 0 done, 1 refused because records would be skipped or have expired, 3 a
    service cannot be reached, 4 the application runs.
    """
    shards = shard or []
    if to.belongs_to_one_shard and len(shards) != 1:
        raise typer.BadParameter(
            f"{to} is a position in one shard; name it with --shard", param_hint="--to"
        )
    with op.patience():
        op.own_started()
        found = find_moves(op.client, op.store, to, shards, clock=op.clock, max_counted=count)
    _show(found, allow_skip=allow_skip)
    if found.changes_nothing:
        say("nothing to move")
    else:
        _write(op, found)


@operates(writes=True)
def rewind(
    op: Operation,
    *,
    to: Annotated[
        RequestedPosition, typer.Option(metavar="TIME", parser=past_time, help=TIME_HELP)
    ],
    allow_skip: AllowSkip = False,
    count: Count = DEFAULT_COUNT,
) -> None:
    """Go back to the positions of an earlier time, over reshards too.

    All records that were not acked at that time are read again. The positions come from
    the history (see `checkpoint history`). Shows each shard before and after, and how many
    records are repeated. Refused while the application runs. Afterwards the job continues
    from these positions, with its old Spark checkpoint location.

    Exit codes: 0 done, 1 refused because records would be skipped, have expired, or
    the history does not go back to that time, 3 a service cannot be reached, 4 the
    application runs.
    """
    with op.patience():
        op.own_started()
        found = find_rewind(op.client, op.store, to, clock=op.clock, max_counted=count)
    say(
        f"positions at {Position.at_timestamp(found.requested_ms)}, as stored at "
        f"{Position.at_timestamp(found.past_ms)}"
    )
    _show(found, allow_skip=allow_skip)
    for shard, position in found.lost.items():
        say(
            f"{shard}\n  the stream does not list it any more: nothing after {position} can be "
            "read again"
        )
    expired = [one.after.shard_id for one in found.moves if one.lost_until_ms is not None]
    lost = sorted({*found.lost, *expired})
    if lost and not allow_skip:
        raise CliError(
            f"records of {', '.join(lost)} would be read again, but may have expired",
            "give --allow-skip to go back as far as is possible",
        )
    _write(op, found)


def _show(found: ApplicationMove, *, allow_skip: bool) -> None:
    """Raises `CliError` where records would be skipped, or have expired unread, unless that is
    allowed.
    """
    for one in found.moves:
        for line in move_lines(one):
            say(line)
    losing = [one.after.shard_id for one in found.moves if one.accepts_loss]
    if losing and not allow_skip:
        raise CliError(
            f"records of {', '.join(losing)} have expired and were never read",
            "give --allow-skip to continue without them",
        )
    skipping = [one.after.shard_id for one in found.moves if one.skips]
    if skipping and not allow_skip:
        raise CliError(
            f"records of {', '.join(skipping)} would be skipped and never be read",
            "give --allow-skip to skip them",
        )


def _write(op: Operation, found: ApplicationMove) -> None:
    if op.confirmed("Move these shards?"):
        write_moves(op.store, found, op.service_time())
        say("moved")


def move_lines(move: Move) -> Iterator[str]:
    """A shard before and after, and what that does."""
    before, after = move.before, move.after
    yield before.shard_id
    if after == before:
        yield f"  stays   {before.read_position}"
    else:
        arrived_ms = move.arrival_ms
        arrival = "" if arrived_ms is None else f"  (arrived {Position.at_timestamp(arrived_ms)})"
        yield f"  before  {before.read_position}"
        yield f"  after   {after.read_position}{arrival}"
        if move.skips:
            yield f"  skips {records_of(move.skipped)}"
        elif not move.repeated.records:
            yield "  skips and repeats nothing"
        else:
            dropped = f", {move.dropped} of them unresolved" if move.dropped else ""
            yield f"  repeats {records_of(move.repeated)}{dropped}"
    if move.lost_until_ms is not None:
        until = Position.at_timestamp(move.lost_until_ms)
        yield f"  records that arrived before {until} may have expired"
    if move.expired_ms is not None:
        yield (
            f"  records that arrived from {times_of(move.expired_ms)} expired before they were read"
        )
    for note in move.notes:
        yield f"  note: {note}"


@operates(writes=True, aws=False)
def reset(op: Operation) -> None:
    """Remove an application's checkpoints on a stream.

    The application then starts again, at its starting position. Refused while the
    application runs. Spark's checkpoint location is not changed: start with a new one.
    """
    application, identity = f"application {op.place.application} {op.on_stream}", op.store.identity
    states = op.store.shard_states.load()
    if not states and identity.read_start(also_unfinished=True) is None:
        say(f"{application} has no state: nothing to reset")
        return
    say(f"{application} has state of {plural(len(states), 'shard')}:")
    for shard, stored in sorted(states.items()):
        say(f"  {shard}  checkpoint {stored.state.checkpoint_text or 'none'}")
    if op.confirmed("Remove this state?"):
        identity.reset(this_process(op.clock.now_ms()), timeout_s=OWNER_WAIT_S)
        say("removed")
