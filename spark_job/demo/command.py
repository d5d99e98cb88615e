"""`kinesis-spout demo`: runs the main job on real input, kills and resumes it, and compares its
output with the input.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kinesis_spout.cli.exit_codes import CliError, StopSignals, one_sentence
from kinesis_spout.cli.shared_options import errors, root_options
from spark_job.demo import report as demo_report
from spark_job.demo.flights import SHARD_COUNT, TOTAL
from spark_job.demo.manifest import DemoDirectory
from spark_job.demo.run import Demo
from spark_job.demo.screen import DemoScreen

DEFAULT_RECORDS = 50_000


def demo(
    ctx: typer.Context,
    *,
    records: Annotated[
        int, typer.Option(min=1, max=TOTAL, help="Number of flights to put.")
    ] = DEFAULT_RECORDS,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="Directory for all files, which is kept (default: a temporary directory).",
            file_okay=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill/--no-kill", help="Kill the job (kill -9) in the middle, and start it again."
        ),
    ] = True,
    faults: Annotated[
        bool,
        typer.Option(
            "--faults",
            help="Let the job's function raise on cancelled flights, which are dead-lettered.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run no job; only compare the output of an earlier demo in --directory again.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object on stdout, and nothing else there."),
    ] = False,
) -> None:
    """Kill a Spark job that reads real flights from a local Kinesis: no record is lost.

    Needs no AWS account and no Docker. The exit code is 1 when a record is missing.
    """
    if check and directory is None:
        raise typer.BadParameter(
            "give --directory with the directory of an earlier demo", param_hint="--check"
        )
    console = Console(stderr=as_json)
    with StopSignals(once=True), one_sentence(errors(), ctx=ctx, debug=root_options(ctx).debug):
        began = time.monotonic()
        with _directory(directory, create=not check, keep=keep) as place:
            work = Demo(place, DemoScreen(console))
            if not check:
                _introduce(console, records, kill=kill, faults=faults)
            manifest, verdict = (
                work.check() if check else work.run(records, kill=kill, faults=faults)
            )
        kept = str(place.path) if place.path.exists() else None
        seconds = time.monotonic() - began
        if as_json:
            typer.echo(
                json.dumps(demo_report.as_json(verdict, manifest, seconds=seconds, directory=kept))
            )
        demo_report.show(console, verdict, manifest)
        console.print(
            f"[dim]{seconds:.0f} s" + (f", kept in {kept}" if kept else "") + "[/]",
            highlight=False,
            soft_wrap=True,
        )
    if not verdict.ok:
        raise typer.Exit(1)


def _introduce(console: Console, records: int, *, kill: bool, faults: bool) -> None:
    screen = DemoScreen(console)
    screen.title("From Kinesis to Spark, with checkpoints in ZooKeeper")
    killed = ", is killed in the middle, and resumes from its checkpoints" if kill else ""
    flights = f"{records:,} of the {TOTAL:,} flights that left New York in 2013"
    screen.text(
        f"{flights} go to {SHARD_COUNT} shards, by carrier. A Spark job writes them as "
        f"parquet{killed}."
    )
    if faults:
        screen.text(
            "Its function raises on every cancelled flight. These flights are retried, and then "
            "dead-lettered."
        )
    screen.text("")


@contextmanager
def _directory(given: Path | None, *, create: bool, keep: bool) -> Iterator[DemoDirectory]:
    """The demo's directory during a with block: the given one, which is kept, or a temporary one,
    which is removed at the end unless `keep`.
    """
    if given is not None:
        place = DemoDirectory(given)
        if create:
            place.create()
        yield place
        return
    place = DemoDirectory(Path(tempfile.mkdtemp(prefix="kinesis-spout-demo-")))
    try:
        yield place
    except CliError as exc:
        if exc.log_file is not None and not keep:
            raise CliError(f"{exc} (run the demo with --keep to keep its log)") from exc
        raise
    finally:
        if not keep:
            shutil.rmtree(place.path, ignore_errors=True)
