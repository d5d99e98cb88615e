"""`kinesis-spout checkpoint export` and `checkpoint import`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.recorded_move import ServiceTime
from kinesis_spout.checkpoints.transfer import (
    Import,
    check_positions,
    check_states,
    check_stream,
    export_application,
    import_application,
    import_of,
)
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import confirmed, own
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, log_as_notes, note, operators_command, takes_place
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.clock import SystemClock
from state.codec.exported import decode_export, encode_export
from state.zookeeper.store import ZookeeperStateStore

Replace = Annotated[bool, typer.Option("--replace", help="Replace what the application has.")]


@takes_place(aws=False)
def export(
    ctx: typer.Context,
    *,
    place: Place,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file (default: stdout).")
    ] = None,
) -> None:
    """Save all that the application has on the stream, as one JSON document.

    It may run beside the job. To move an application, stop its job before the export: a
    running job continues.
    """
    with operators_command(ctx) as stack:
        store = place.store(stack)
        exported = export_application(store, place.application, now_ms=SystemClock().now_ms())
        if exported is None:
            raise CliError(
                f"application {place.application} has no state on stream {place.stream}",
                "correct the names, or export it after its first start",
            )
        data = encode_export(exported)
        if to is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        _write_new(to, data)
        note(f"exported {plural(len(exported.states), 'shard')} to {to}")


def _write_new(path: Path, data: bytes) -> None:
    """A backup is whole or not there, and overwrites no other one."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as exc:
        raise CliError(f"--to {path}: the file exists already", "name a new one") from exc
    except OSError as exc:
        raise CliError(
            f"--to {path}: cannot be written: {exc.strerror}", "choose a file that can be"
        ) from exc


@takes_place()
def import_export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `export` wrote.")],
    *,
    place: Place,
    replace: Replace = False,
    allow_skip: Annotated[
        bool,
        typer.Option(
            "--allow-skip", help="Also move shards forward: the records in between are never read."
        ),
    ] = False,
    dry_run: places.DryRun = False,
    yes: places.Yes = False,
) -> None:
    """Make the application what was exported.

    The stream must be the one that was exported. Refused while the application runs,
    and without --replace where it has state already. Records that were read since the
    export are read again. A shard that is further in the export moves forward, which
    needs --allow-skip. If the import is stopped before its end, the application does
    not start until the command is given again.

    Exit codes: 0 done, 1 refused, 3 a service cannot be reached, 4 the application runs.
    """
    with operators_command(ctx) as stack:
        stack.enter_context(log_as_notes())
        try:
            data = file.read_bytes()
        except OSError as exc:
            raise CliError(
                f"{file} cannot be read: {exc.strerror}",
                "name a file that `checkpoint export` wrote",
            ) from exc
        exported = decode_export(data, str(file))
        clock = SystemClock()
        client, store = place.client(stack), place.new_store(stack)
        with place.patience(client):
            summary = client.describe()
            service_time = ServiceTime(client, clock, summary.now_ms(clock.now_ms()))
            check_stream(exported, summary.identity)
            check_states(store, exported)
            check_positions(client, exported)
            own(store, dry_run=dry_run)
            found = import_of(exported, store.shard_states.load())
        for shard_id, (before, after) in found.states.items():
            say(shard_id)
            if before == after and before is not None:
                say(f"  stays   {before.read_position}")
                continue
            say(f"  before  {'no state' if before is None else before.read_position}")
            say(f"  after   {'no state' if after is None else after.read_position}")
        check_replaced(place, store, found, replace=replace)
        if found.ahead and not allow_skip:
            raise CliError(
                f"{', '.join(found.ahead)} would move forward, and the records in between would "
                "never be read",
                "give --allow-skip to skip them",
            )
        if confirmed("Import these positions?", dry_run=dry_run, yes=yes):
            import_application(store, exported, now_ms=service_time.now_ms)
            say("imported")


def check_replaced(
    place: Place, store: ZookeeperStateStore, found: Import, *, replace: bool
) -> None:
    """Raise `CliError` where the application has state that is not to be replaced. What an import
    has left that was stopped is replaced in any case, and said.
    """
    start = store.identity.read_start(also_unfinished=True)
    if start is not None and start.importing:
        say("an import was stopped before its end; this one replaces it")
    elif found.replaces and not replace:
        raise CliError(
            f"application {place.application} has state on stream {place.stream} already",
            "give --replace to replace it, or another --application",
        )
