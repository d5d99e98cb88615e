"""`kinesis-spout checkpoint` and `kinesis-spout reset`: show, move, save and restore what an
application has stored.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from kinesis_spout.checkpoints import transfer
from kinesis_spout.checkpoints.application_moves import (
    ApplicationMove,
    find_moves,
    find_rewind,
    read_history,
    write_moves,
)
from kinesis_spout.checkpoints.located import NONE
from kinesis_spout.checkpoints.moves import Move, RequestedPosition
from kinesis_spout.checkpoints.record import Skip, find_skip, unresolved_records, write_skip
from kinesis_spout.checkpoints.recorded_move import check_bound_stream
from kinesis_spout.cli.exit_codes import CliError, stdout_errors
from kinesis_spout.cli.places import (
    ALLOW_SKIP,
    COUNT,
    OWNER_WAIT_S,
    REPLACE,
    SHARDS,
    TIME_HELP,
    Operation,
    command,
    exists_already,
    past_time,
    reason_text,
    records_of,
    say,
    stdout_console,
    write_file,
)
from kinesis_spout.cli.shared_options import (
    argument,
    command_group,
    note,
    option,
    shard_id_of,
    usage_errors,
    with_zone,
    wrong_usage,
)
from kinesis_spout.clock import Clock
from kinesis_spout.dead_letter.letter import Letter, LetterFile, moment
from kinesis_spout.inspection.status import shards_json, stored_shard
from kinesis_spout.inspection.wording import counted, visible
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.shards.data_loss import times_of
from state.codec.exported import ExportedApplication, decode_export, encode_export
from state.errors import StoredDataError
from state.failpoint import failpoint
from state.moves import changes
from state.plan import missing_records
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

MAX_SHOWN = 10  # shards of an entry of the history
MAX_NAMED = 20  # records; with --all there may be 100,000


# showing ------------------------------------------------------------------------------------------
@command(aws=False, shows=True)
def show(op: Operation) -> None:
    """Show each shard's read position and checkpoint.

    The command sends no request to Kinesis, and may run while the job is
    running.
    """
    states = [stored.state for _, stored in sorted(op.store.shard_states.load().items())]
    if not states:
        note(f"application {op.place.application} has no stored state {op.on_stream}")
    width, lines = stdout_console().width, list[str]()
    for state in states:
        # A shard in one line; in three on a terminal that is narrower. Numbers are whole, so that
        # they can be copied.
        about = f"{state.shard_id}  {state.lifecycle}"
        unresolved = f"{state.unresolved_count} unresolved"
        read, checkpoint = str(state.read_position), state.checkpoint_text or "none"
        line = f"{about}  read {read}  checkpoint {checkpoint}  {unresolved}"
        if len(line) > width:
            lines += [f"{about}  {unresolved}", f"  read        {read}"]
            line = f"  checkpoint  {checkpoint}"
        lines.append(line)
    op.show(shards_json([stored_shard(state, op.clock.now_ms()) for state in states]), lines)


@command(aws=False, shows=True)
def history(
    op: Operation,
    *,
    shard: list[str] | None = SHARDS,
    since: RequestedPosition | None = option(
        TIME_HELP,
        metavar="TIME",
        parser=lambda text: past_time(with_zone("--since", text) or text),
    ),
) -> None:
    """Show the history of the application's checkpoints, with the newest entry last.

    Each entry lists the shards that moved, with their positions before and
    after. When an entry was written, all records before its positions were
    acked. `checkpoint rewind` moves the application back to the time of an
    entry. The command sends no request to Kinesis, and may run while the job is
    running.
    """
    since_ms = 0 if since is None else since.at(op.clock.now_ms()).timestamp_ms or 0
    entries = read_history(op.store.history)
    if not entries:
        note(
            f"application {op.place.application} has no stored history {op.on_stream}. The job "
            "writes the history while it is running"
        )
    else:
        named = {name for entry in entries for name in entry.positions}
        for name in sorted({*(shard or ())} - named):
            note(f"the history has no entry for shard {name}")
    found: list[dict[str, Any]] = [
        {
            "time": str(Position.at_timestamp(entry.time_ms)),
            "cause": entry.cause or "settled",
            "shards": {
                name: {"from": before and str(before), "to": after and str(after)}
                for name, (before, after) in changed.items()
                if not shard or name in shard
            },
        }
        for entry, changed in changes(entries)
        if entry.time_ms >= since_ms
    ]
    found = [entry for entry in found if entry["shards"]]
    op.show(found, _history_lines(found, sys.maxsize if shard else MAX_SHOWN))


def _history_lines(entries: list[dict[str, Any]], most: int) -> Iterator[str]:
    for entry in entries:
        moved = entry["shards"]
        yield f"{entry['time']}  {entry['cause']}  {counted(len(moved), 'shard')}"
        for name, change in islice(moved.items(), most):
            yield f"  {name}"
            yield f"    from  {change['from'] or 'not known'}"
            yield f"    to    {change['to'] or 'removed'}"
        if len(moved) > most:
            yield f"  and {len(moved) - most} more shards (to list all shards, pass --json)"


# moving -------------------------------------------------------------------------------------------
@command(writes=True)
def move(
    op: Operation,
    *,
    to: RequestedPosition = option(
        "The new position: TRIM_HORIZON, LATEST, or a time such as -2h, 14:00 (today, in UTC) or "
        "2026-01-31T12:00:00Z. With a single --shard, the position can also be AT:SEQUENCE, "
        "AFTER:SEQUENCE or SHARD_END.",
        metavar="POSITION",
        parser=usage_errors()(RequestedPosition.parse),
    ),
    shard: list[str] | None = SHARDS,
    allow_skip: bool = ALLOW_SKIP,
    count: int = COUNT,
) -> None:
    """Move shards to an earlier position to repeat records, or to a later position to skip records.

    The command shows each shard's position before and after the move, and the
    number of records that will be repeated or skipped. The command is refused
    while the application is running. At its next start, the job continues from
    the new positions. Do not change the job's Spark checkpoint location.

    The exit code is 0 if the shards are moved, 1 if the move is refused, 3 if
    Kinesis or ZooKeeper cannot be reached, and 4 if the application is running.
    """
    shards = shard or []
    if to.belongs_to_one_shard and len(shards) != 1:
        raise wrong_usage("--to", f"{to} is a position in one shard; select the shard with --shard")
    with op.patience():
        op.own()
        found = find_moves(op.client, op.store, to, shards, clock=op.clock, max_counted=count)
    _show(found, allow_skip=allow_skip)
    if found.changes_nothing:
        say("nothing to move: each shard is already at its new position")
    else:
        _write(op, found)


@command(writes=True)
def rewind(
    op: Operation,
    *,
    to: RequestedPosition = option(TIME_HELP, metavar="TIME", parser=past_time),
    allow_skip: bool = ALLOW_SKIP,
    count: int = COUNT,
) -> None:
    """Move an application back to its positions at an earlier time, even across reshards.

    The application reads all records again that were not acked at the earlier
    time. The positions come from the checkpoint history, which `checkpoint
    history` shows. The command shows each shard's position before and after the
    move, and the number of records that will be repeated. The command is refused
    while the application is running. At its next start, the job continues from
    the earlier positions. Do not change the job's Spark checkpoint location.

    The exit code is 0 if the shards are moved, 1 if the move is refused, 3 if
    Kinesis or ZooKeeper cannot be reached, and 4 if the application is running.
    """
    with op.patience():
        op.own()
        found = find_rewind(op.client, op.store, to, clock=op.clock, max_counted=count)
    past, requested = map(Position.at_timestamp, (found.past_ms, found.requested_ms))
    say(
        f"the application moves back to its positions at {past}, the last positions stored before "
        f"{requested}"
    )
    _show(found, allow_skip=allow_skip)
    for shard, position in found.lost.items():
        say(shard)
        say(f"  the stream no longer lists the shard: no record after {position} can be read again")
    if not allow_skip:
        expired = [one.after.shard_id for one in found.moves if one.lost_until_ms is not None]
        lost = sorted({*found.lost, *expired})
        _refuse(
            lost,
            "the application would repeat records of {}, but the records may have expired",
            "pass --allow-skip to go back as far as possible",
        )
    _write(op, found)


def _show(found: ApplicationMove, *, allow_skip: bool) -> None:
    """Raises `CliError` where records would be skipped, or have expired unread, unless that is
    allowed.
    """
    for one in found.moves:
        for line in move_lines(one):
            say(line)
    if not allow_skip:
        losing = [one.after.shard_id for one in found.moves if one.accepts_loss]
        _refuse(
            losing,
            "records of {} have expired and were never read",
            "pass --allow-skip to continue without these records",
        )
        skipping = [one.after.shard_id for one in found.moves if one.skips]
        _refuse(
            skipping,
            "the move would skip unread records of {}",
            "pass --allow-skip to skip these records",
        )


def _refuse(shards: list[str], problem: str, remedy: str) -> None:
    if shards:
        raise CliError(problem.format(", ".join(shards)), remedy)


def _write(op: Operation, found: ApplicationMove) -> None:
    if op.confirmed("Move these shards?"):
        write_moves(op.store, found, op.service_time())
        say("moved")


def move_lines(move: Move) -> Iterator[str]:
    """A shard before and after, and what that does."""
    before, after, arrived_ms = move.before, move.after, move.arrival_ms
    arrival = "" if arrived_ms is None else f"  (arrived {Position.at_timestamp(arrived_ms)})"
    yield from _change_lines(before.shard_id, before, after, arrival)
    if after != before:
        dropped = f", {move.dropped} of them unresolved" if move.dropped else ""
        if move.skips:
            yield f"  skips {records_of(move.skipped)}"
        elif move.repeated != NONE:
            yield f"  repeats {records_of(move.repeated)}{dropped}"
        else:
            yield "  no record is skipped or repeated"
    if move.lost_until_ms is not None:
        until = Position.at_timestamp(move.lost_until_ms)
        yield f"  records that arrived before {until} may have expired"
    if move.expired_ms is not None:
        times = times_of(move.expired_ms)
        yield f"  unread records that arrived from {times} have expired"
    for sentence in move.notes:
        yield f"  note: {sentence}"


def _change_lines(
    shard_id: str, before: ShardState | None, after: ShardState | None, arrival: str = ""
) -> Iterator[str]:
    yield shard_id
    if before == after and before is not None:
        yield f"  stays   {before.read_position}"
    else:
        yield f"  before  {'no state' if before is None else before.read_position}"
        yield f"  after   {'no state' if after is None else after.read_position}{arrival}"


@command(aws=False, writes=True)
def reset(op: Operation) -> None:
    """Remove an application's checkpoints on a stream.

    The next run of the application starts at the starting position in its
    options, as a new application does. The command is refused while the
    application is running. A Spark job needs a new Spark checkpoint location for
    its next run; the command does not remove the old location.
    """
    application, identity = f"application {op.place.application} {op.on_stream}", op.store.identity
    try:
        states = op.store.shard_states.load()
        if not states and identity.read_start(also_unfinished=True) is None:
            say(f"{application} has no state: nothing to reset")
            return
        say(f"{application} has state of {counted(len(states), 'shard')}:")
        for shard, stored in sorted(states.items()):
            say(f"  {shard}  checkpoint {stored.state.checkpoint_text or 'none'}")
    except StoredDataError as exc:  # a reset is the remedy
        say(f"cannot read the state of {application}: {visible(exc.message)}")
    if op.confirmed("Remove this state?"):
        identity.reset(this_process(op.clock.now_ms()), timeout_s=OWNER_WAIT_S)
        say("removed")


# skipping -----------------------------------------------------------------------------------------
@command(writes=True)
def skip(
    op: Operation,
    sequences: list[SequenceNumber] | None = argument(
        "Sequence numbers of unresolved records; SEQUENCE.SUB for a user record of an aggregate. "
        "ZooKeeper may store several failed records as one range. A sequence number inside a range "
        "selects the whole range.",
        "SEQUENCE",
        parser=usage_errors()(SequenceNumber.parse),
    ),
    *,
    shard: str = option(
        "Shard, by id (shardId-000000000012) or by number (12).",
        metavar="SHARD",
        parser=shard_id_of,
    ),
    all_records: bool = option("Skip all the shard's unresolved records.", "--all"),
    to: Path | None = option(
        "Save the records to this new file. `produce --json` puts the file's lines on a stream "
        "again.",
        metavar="FILE",
    ),
) -> None:
    """Skip unresolved records without further retries, and move the checkpoint past them.

    An unresolved record has failed, or is waiting for an earlier record. The
    command shows the shard's positions before and after the skip. The command is
    refused while the application is running. With --to, the command first reads
    the records from the stream and saves them in a file.

    The exit code is 0 if the records are skipped, 1 if the command is refused, 3
    if Kinesis or ZooKeeper cannot be reached, and 4 if the application is
    running.
    """
    if bool(sequences) == all_records:
        raise wrong_usage("SEQUENCE..., --all", "pass either sequence numbers or --all")
    with op.patience():
        op.own()
        found = find_skip(op.store.shard_states.load(), shard, sequences or None)
        if to is not None:
            check_bound_stream(op.store, op.client.describe().identity)
    for line in _skip_lines(found):
        say(line)
    if not found.records:
        say("nothing was written")
    elif op.confirmed("Skip these records?"):
        if to is not None:
            save_records(op.client, found, to, op.place.application, op.clock)
            failpoint("letters-saved")
        write_skip(op.store.shard_states, op.store.plans, found)
        say("skipped")


def _skip_lines(found: Skip) -> Iterator[str]:
    if not found.records:
        yield f"{found.before.shard_id} has no unresolved record"
        return
    yield found.before.shard_id
    for label, state in (("before", found.before), ("after ", found.after)):
        yield (
            f"  {label}  {state.read_position}  checkpoint {state.checkpoint_text or 'none'}  "
            f"{state.unresolved_count} unresolved"
        )
    yield f"  skips {records_of(found.count)}"
    for record in found.records[:MAX_NAMED]:
        reason = reason_text(record.reason)
        yield f"    {_name(record)}, attempts {record.attempts}, reason: {reason}"
    if len(found.records) > MAX_NAMED:
        yield f"    and {len(found.records) - MAX_NAMED} more"


def _name(record: UnresolvedRecord) -> str:
    if record.first == record.last:
        return str(record.first)
    ends = f"from {record.first} to {record.last}"
    return f"{records_of(record.count)} {ends}, stored as one range"


def save_records(
    client: KinesisClient, found: Skip, path: Path, application: str, clock: Clock
) -> None:
    """Write the records to a new file. They are on the disk when it returns."""
    shard_id = found.before.shard_id
    shard = next((one for one in client.list_shards() if one.shard_id == shard_id), None)
    if path.exists():
        raise exists_already(path, "--to ")
    read = None if shard is None else unresolved_records(client, shard, clock)
    saved = 0
    with LetterFile(path) as file:
        for record in found.records:
            numbers = []
            for one in () if read is None else read(record):
                numbers.append(one.number)
                letter = Letter.of_record(
                    record,
                    one.number,
                    stream_name=client.stream.name,
                    shard_id=shard_id,
                    application=application,
                    data=one.data,
                    partition_key=one.key,
                    approximate_arrival=moment(one.arrival_ms, per_second=1_000),
                )
                file(letter)
            has_first = record.first in numbers
            if missing := missing_records(record.count, len(numbers), has_first=has_first):
                which = "" if missing >= record.count else f"{missing} of the "
                say(f"  not saved, because the records have expired: {which}{_name(record)}")
            saved += len(numbers)
    say(f"saved {records_of(saved)} to {path}")


# files --------------------------------------------------------------------------------------------
@command(aws=False)
def export(
    op: Operation,
    *,
    to: Path | None = option("File to write the export to (default: stdout).", metavar="FILE"),
) -> None:
    """Write the application's state for this stream to a file (or stdout) as one JSON document.

    The command may run while the job is running. To move an application to
    another ZooKeeper, stop its job before the export: an export does not contain
    later progress.
    """
    application = op.place.application
    exported = transfer.export_application(op.store, application, now_ms=op.clock.now_ms())
    if exported is None:
        raise CliError(
            f"application {application} has no stored state {op.on_stream}",
            "correct --application or --stream, or start the application before the export",
        )
    data = encode_export(exported)
    if to is None:
        with stdout_errors():
            typer.echo(data, nl=False)
        return
    write_file(to, data, "--to ", is_new=True)
    note(f"exported {counted(len(exported.states), 'shard')} to {to}")


@command(writes=True, is_new=True)
def import_export(
    op: Operation,
    file: Path = argument("The file that `checkpoint export` wrote.", "FILE"),
    *,
    replace: bool = REPLACE,
    allow_skip: bool = ALLOW_SKIP,
) -> None:
    """Restore an application's state from a file that `checkpoint export` wrote.

    An export can be imported only for the stream from which it was exported. The
    command is refused while the application is running. If the application
    already has state, pass --replace. Records that were read since the export
    are read again. Without --allow-skip, the import is refused if a shard's
    exported position is later than its current position. After an interrupted
    import, the application does not start until the import is repeated.

    The exit code is 0 if the state is restored, 1 if the import is refused, 3 if
    Kinesis or ZooKeeper cannot be reached, and 4 if the application is running.
    """
    try:
        data = file.read_bytes()
    except OSError as exc:
        raise CliError(
            f"cannot read {file}: {exc.strerror}", "pass a file that `checkpoint export` wrote"
        ) from exc
    try:
        exported = decode_export(data, str(file))
    except StoredDataError as exc:  # whose remedy is that of a node in ZooKeeper
        raise CliError(
            exc.message,
            "pass a complete file that `checkpoint export` wrote, in this or an older version",
        ) from exc
    with op.patience():
        transfer.check_stream(exported, op.client.describe().identity)
        transfer.check_states(op.store, exported)
        transfer.check_positions(op.client, exported)
        op.own()
        states = op.store.shard_states.load()
    before = {shard: stored.state for shard, stored in states.items()}
    after = {state.shard_id: state for state in exported.states}
    for shard_id in sorted({*before, *after}):
        for line in _change_lines(shard_id, before.get(shard_id), after.get(shard_id)):
            say(line)
    if (ahead := transfer.moving_forward(exported, states)) and not allow_skip:
        raise CliError(
            f"the import would move {', '.join(ahead)} forward past unread records",
            "pass --allow-skip to skip these records",
        )
    write_import(op, exported, may_replace=replace or not states)


def write_import(op: Operation, exported: ExportedApplication, *, may_replace: bool) -> None:
    """Make the application what was exported, once that is confirmed. Raises `CliError` where it
    has state that may not be replaced. What an import has left that was stopped is replaced in any
    case, and said.
    """
    start = op.store.identity.read_start(also_unfinished=True)
    if start is not None and start.importing:
        say("an earlier import was interrupted; this import replaces its state")
    elif not may_replace:
        raise CliError(
            f"application {op.place.application} already has stored state {op.on_stream}",
            "pass --replace to replace that state, or pass another --application",
        )
    if op.confirmed("Import these positions?"):
        transfer.import_application(op.store, exported, now_ms=op.service_time())
        say("imported")


@command_group(
    {
        "show": show,
        "set": move,
        "skip": skip,
        "reset": reset,
        "export": export,
        "import": import_export,
        "history": history,
        "rewind": rewind,
    }
)
def checkpoint() -> None:
    """Show, move, save and restore an application's checkpoints."""
