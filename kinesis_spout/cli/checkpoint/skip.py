"""`kinesis-spout checkpoint skip`: gives up unresolved records of a shard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import check_bound_stream
from kinesis_spout.checkpoints.record import unresolved_records
from kinesis_spout.checkpoints.skip import Skip, find_skip, write_skip
from kinesis_spout.cli.checkpoint.operation import (
    Operation,
    Shard,
    operates,
    reason_text,
    records_of,
    say,
)
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.shared_options import usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.dead_letter.letter import Letter, LetterFile, moment, sync_folder
from kinesis_spout.service.client import KinesisClient
from state.failpoint import failpoint
from state.plan import missing_records
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord

MAX_SHOWN = 20  # records; with --all there may be 100,000


@operates(writes=True)
def skip(
    op: Operation,
    sequences: Annotated[
        list[SequenceNumber] | None,
        typer.Argument(
            metavar="SEQUENCE",
            parser=usage_errors()(SequenceNumber.parse),
            help=(
                "Sequence numbers of unresolved records; SEQUENCE.SUB for a user record of an "
                "aggregate. A sequence number inside a range of records that are unresolved "
                "together selects the whole range."
            ),
            show_default=False,
        ),
    ] = None,
    *,
    shard: Shard,
    all_records: Annotated[
        bool, typer.Option("--all", help="All unresolved records of the shard.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Save the records to this new file, as lines that `produce --json` can put on a "
                "stream again."
            ),
        ),
    ] = None,
) -> None:
    """Give up unresolved records: they are not retried, and the checkpoint passes them.

    Shows the shard before and after. Refused while the application runs. With --to, the
    records are first read from the stream and saved in a file.

    Exit codes: 0 done, 1 refused, 3 a service cannot be reached, 4 the application runs.
    """
    if bool(sequences) == all_records:
        raise typer.BadParameter(
            "give either sequence numbers or --all", param_hint="SEQUENCE..., --all"
        )
    with op.patience():
        op.own_started()
        found = find_skip(op.store.shard_states.load(), shard, sequences or None)
        if to is not None:
            check_bound_stream(op.store, op.client.describe())
    for line in _lines(found):
        say(line)
    if not found.records:
        say("nothing was written")
    elif op.confirmed("Skip these records?"):
        if to is not None:
            save_records(op.client, found, to, op.place.application)
            failpoint("letters-saved")
        write_skip(op.store.shard_states, op.store.plans, found)
        say("skipped")


def _lines(found: Skip) -> Iterator[str]:
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
    for record in found.records[:MAX_SHOWN]:
        reason = reason_text(record.reason)
        yield f"    {_name(record)}, attempts {record.attempts}, reason: {reason}"
    if len(found.records) > MAX_SHOWN:
        yield f"    and {len(found.records) - MAX_SHOWN} more"


def _name(record: UnresolvedRecord) -> str:
    if record.first == record.last:
        return str(record.first)
    return (
        f"{records_of(record.count)} from {record.first} to {record.last}, which are unresolved "
        "together"
    )


def save_records(client: KinesisClient, found: Skip, path: Path, application: str) -> None:
    """Write the records to a new file. They are on the disk when it returns."""
    listed = {shard.shard_id: shard for shard in client.list_shards()}
    shard, clock = listed.get(found.before.shard_id), SystemClock()
    if path.exists():
        raise CliError(f"--to {path}: the file exists already", "name a file that does not exist")
    saved = 0
    with LetterFile(path) as file:
        for record in found.records:
            letters, has_first = 0, False
            if shard is not None:
                for one in unresolved_records(client, shard, record, clock):
                    file(
                        Letter.of_record(
                            record,
                            one.number,
                            stream_name=client.stream.name,
                            shard_id=found.before.shard_id,
                            application=application,
                            data=one.data,
                            partition_key=one.key,
                            approximate_arrival=moment(one.arrival_ms, per_second=1_000),
                        )
                    )
                    letters += 1
                    has_first = has_first or one.number == record.first
            if missing := missing_records(record.count, letters, has_first=has_first):
                which = "" if missing >= record.count else f"{missing} of the "
                say(f"  not saved, because expired: {which}{_name(record)}")
            saved += letters
    sync_folder(path.absolute().parent)
    say(f"saved {records_of(saved)} to {path}")
