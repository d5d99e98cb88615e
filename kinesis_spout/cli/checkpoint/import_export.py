"""`kinesis-spout checkpoint import`: makes an application what was exported."""

from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.recorded_move import ServiceTime
from kinesis_spout.checkpoints.transfer import (
    Import,
    check_positions,
    check_states,
    check_stream,
    import_application,
    import_of,
)
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import TAKES_ITS_PLACE, confirmed, own
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, log_as_notes, operators_command, takes_place
from kinesis_spout.clock import SystemClock
from state.codec.exported import ExportedApplication, decode_export


@takes_place()
def import_export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote.")],
    *,
    place: Place,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what the application has.")
    ] = False,
    allow_skip: Annotated[
        bool,
        typer.Option("--allow-skip", help="Also where shards go forward: what is between is lost."),
    ] = False,
    dry_run: places.DryRun = False,
    yes: places.Yes = False,
) -> None:
    """Make the application what was exported.

    The stream must be the one that was exported. Refused while the application runs,
    and without --replace where it has state already. What was read since the export
    is read again. A shard that is further in the export goes forward, which needs
    --allow-skip. Stopped before its end, the application does not start until this is
    given again.

    Exit codes: 0 done, 1 refused, 3 a service cannot be reached, 4 the application runs.
    """
    with operators_command(ctx) as stack:
        stack.enter_context(log_as_notes())
        exported = _read(file)
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
            start = store.identity.read_start(also_unfinished=True)
        _say(found)
        goes_on = start is not None and start.importing
        if goes_on:
            say(TAKES_ITS_PLACE)
        if found.replaces and not replace and not goes_on:
            raise CliError(
                f"application {place.application} has state on stream {place.stream} already; give "
                "--replace to replace it, or another --application"
            )
        if found.ahead and not allow_skip:
            raise CliError(
                f"{', '.join(found.ahead)} would go forward, and records in between would never be "
                "read; give --allow-skip if that is wanted"
            )
        if not confirmed("Import them?", dry_run=dry_run, yes=yes):
            return
        import_application(store, exported, now_ms=service_time.now_ms)
        say("imported")


def _read(file: Path) -> ExportedApplication:
    try:
        data = file.read_bytes()
    except OSError as exc:
        raise CliError(f"{file} cannot be read: {exc.strerror}") from exc
    return decode_export(data, str(file))


def _say(found: Import) -> None:
    for shard_id, (before, after) in found.states.items():
        if before == after and before is not None:
            say(f"{shard_id}\n  stays   {before.read_position}")
            continue
        say(shard_id)
        say(f"  before  {'no state' if before is None else before.read_position}")
        say(f"  after   {'no state' if after is None else after.read_position}")
