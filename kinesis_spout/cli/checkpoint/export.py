"""`kinesis-spout checkpoint export`. Reads ZooKeeper only."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.transfer import export_application
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, note, operators_command, takes_place
from kinesis_spout.clock import SystemClock
from kinesis_spout.html.text import plural
from state.codec.exported import encode_export


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

    It may run beside the job. Take the export of a stopped job to move it: a running
    one goes on.
    """
    with operators_command(ctx) as stack:
        store = place.store(stack)
        exported = export_application(store, place.application, now_ms=SystemClock().now_ms())
        if exported is None:
            raise CliError(
                f"application {place.application} has no state on stream {place.stream} to export"
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
        raise CliError(f"--to {path}: the file is there already; name a new one") from exc
    except OSError as exc:
        raise CliError(f"--to {path}: cannot be written: {exc.strerror}") from exc
