"""`kinesis-spout checkpoint export` and `checkpoint import`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.transfer import (
    Import,
    check_positions,
    check_states,
    check_stream,
    export_application,
    import_application,
    import_of,
)
from kinesis_spout.cli.checkpoint.operation import AllowSkip, Operation, operates, say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import note
from kinesis_spout.cli.plain_text import plural
from state.codec.exported import decode_export, encode_export
from state.zookeeper.store import ZookeeperStateStore

Replace = Annotated[
    bool, typer.Option("--replace", help=("Replace the state that the application has."))
]


@operates(aws=False)
def export(
    op: Operation,
    *,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file (default: stdout).")
    ] = None,
) -> None:
    """Save the application's state on the stream as one JSON document.

    It may run beside the job. To move an application, stop its job before the export: a
    running job continues, and the export lacks its later progress.
    """
    application = op.place.application
    exported = export_application(op.store, application, now_ms=op.clock.now_ms())
    if exported is None:
        raise CliError(
            f"application {application} has no state {op.on_stream}",
            "correct the names, or export it after its first start",
        )
    data = encode_export(exported)
    if to is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
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
        raise CliError(
            f"--to {path}: the file exists already", ("name a file that does not exist")
        ) from exc
    except OSError as exc:
        raise CliError(
            f"--to {path}: cannot be written: {exc.strerror}", "choose a file that can be written"
        ) from exc


@operates(writes=True)
def import_export(
    op: Operation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `export` wrote.")],
    *,
    replace: Replace = False,
    allow_skip: AllowSkip = False,
) -> None:
    """Restore an application's state from a file that `checkpoint export` wrote.

    The stream must be the exported one. Refused while the application runs. An
    application that has state needs --replace. Records that were read since the export
    are read again. A shard that is further in the export moves forward, which needs
    --allow-skip. If the import is interrupted, the application does not start until the
    command is repeated.

    Exit codes: 0 done, 1 refused, 3 a service cannot be reached, 4 the application runs.
    """
    try:
        data = file.read_bytes()
    except OSError as exc:
        raise CliError(
            f"{file} cannot be read: {exc.strerror}", "name a file that `checkpoint export` wrote"
        ) from exc
    exported = decode_export(data, str(file))
    store = op.place.new_store(op.stack)
    with op.patience():
        check_stream(exported, op.client.describe().identity)
        check_states(store, exported)
        check_positions(op.client, exported)
        op.own(store)
        found = import_of(exported, store.shard_states.load())
    for shard_id, (before, after) in found.states.items():
        say(shard_id)
        if before == after and before is not None:
            say(f"  stays   {before.read_position}")
        else:
            say(f"  before  {'no state' if before is None else before.read_position}")
            say(f"  after   {'no state' if after is None else after.read_position}")
    check_replaced(op, store, found, replace=replace)
    if found.ahead and not allow_skip:
        raise CliError(
            f"{', '.join(found.ahead)} would move forward: the records in between would never be "
            "read",
            "give --allow-skip to skip them",
        )
    if op.confirmed("Import these positions?"):
        import_application(store, exported, now_ms=op.service_time())
        say("imported")


def check_replaced(
    op: Operation, store: ZookeeperStateStore, found: Import, *, replace: bool
) -> None:
    """Raise `CliError` where the application has state that is not to be replaced. What an import
    has left that was stopped is replaced in any case, and said.
    """
    start = store.identity.read_start(also_unfinished=True)
    if start is not None and start.importing:
        say("an earlier import was interrupted; this import replaces it")
    elif found.replaces and not replace:
        raise CliError(
            f"application {op.place.application} has state {op.on_stream} already",
            "give --replace to replace that state, or give another --application",
        )
