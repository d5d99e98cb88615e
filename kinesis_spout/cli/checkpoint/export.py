"""`kinesis-spout checkpoint export`. Reads ZooKeeper only."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.transfer import export_application
from kinesis_spout.cli.exit_codes import CliError, one_sentence, operators_exit_code_of
from kinesis_spout.cli.places import (
    Application,
    Connection,
    Stream,
    Zookeeper,
    ZookeeperRoot,
    check_has_run,
    note,
    open_store,
)
from kinesis_spout.cli.shared_options import errors, root_options
from kinesis_spout.clock import SystemClock
from kinesis_spout.html.text import plural
from state.codec.exported import encode_export
from state.zookeeper.store import DEFAULT_ROOT


def export(
    ctx: typer.Context,
    *,
    application: Application,
    stream: Stream,
    zookeeper: Zookeeper,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file (default: stdout).")
    ] = None,
    zookeeper_root: ZookeeperRoot = DEFAULT_ROOT,
    option: Connection = None,
) -> None:
    """Save all that the application has on the stream, as one JSON document.

    It may run beside the job. Take the export of a stopped job to move it: a running
    one goes on.
    """
    with (
        one_sentence(errors(), debug=root_options(ctx).debug, code_of=operators_exit_code_of),
        ExitStack() as stack,
    ):
        check_has_run(zookeeper)
        store = open_store(
            stack,
            zookeeper,
            root=zookeeper_root,
            application=application,
            stream=stream,
            option=option,
        )
        exported = export_application(store, application, now_ms=SystemClock().now_ms())
        if exported is None:
            raise CliError(f"application {application} has no state on stream {stream} to export")
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
