"""`kinesis-spout demo`: a drill on real flights. A Spark job is killed, resumes, and its output is
compared with its input.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.shared_options import option, own_options, wrong_usage
from kinesis_spout.drills.history.events import History, decode_history, encode_history
from spark_job.demo.drill import OUTPUT, run_demo
from spark_job.demo.flights import TOTAL, read_flights
from spark_job.demo.verdict import Verdict, judge

HISTORY = "history.json"


@own_options
def demo(
    *,
    records: int = option("Number of flights to put.", default=10_000, min=1, max=TOTAL),
    directory: Path | None = option("Keep all files in this new directory.", file_okay=False),
    keep: bool = option("Keep the demo's temporary directory even if no record is lost."),
    kill: bool = option(
        "Kill the Spark job (kill -9) while it is writing, and start it again.",
        "--kill/--no-kill",
        default=True,
    ),
    faults: bool = option(
        "Make the job fail every record of a cancelled flight, so that these records are "
        "dead-lettered."
    ),
    check: bool = option(
        "Check an earlier demo's output in --directory, without running a new demo."
    ),
    as_json: bool = option("Print only one JSON object on stdout.", "--json"),
) -> None:
    """Kill a Spark job that reads real flights from a local Kinesis: no record is lost.

    The demo needs no AWS account and no Docker. The exit code is 1 if a record is
    missing.
    """
    if check and directory is None:
        raise wrong_usage("--check", "pass the directory of an earlier demo with --directory")
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    with StopSignals(once=True):
        began_s = time.monotonic()
        with _directory(directory, is_new=not check, keep=keep) as place:
            if not check:
                _run(place, console, records, kill=kill, faults=faults)
            history = _read_history(place)
            verdict = judge(history, place / OUTPUT, read_flights(len(history.puts)))
            _show(console, verdict)
            seconds = round(time.monotonic() - began_s, 1)
            kept = str(place) if directory or keep or verdict.problems else None
            console.print(f"[dim]{seconds:.0f} s{f', kept in {kept}' if kept else ''}[/]")
            if as_json:
                more = {"seconds": seconds, "directory": kept}
                figures = {"ok": not verdict.problems, **msgspec.structs.asdict(verdict), **more}
                typer.echo(msgspec.json.encode(figures))
            if verdict.problems:
                raise typer.Exit(1)


def _run(place: Path, console: Console, records: int, *, kill: bool, faults: bool) -> None:
    """Run the drill, and keep its history. Raises `CliError` if the job does not process all."""
    console.print("\n[bold cyan]From Kinesis to Spark, with checkpoints in ZooKeeper[/]\n")
    console.print(
        f"{records:,} of the {TOTAL:,} flights that left New York in 2013 go to a local Kinesis. "
        f"A Spark job writes them as Parquet files{', and is killed while it is writing' * kill}.\n"
        f"{'Its function raises an error for every cancelled flight. ' * faults}"
        "Spark needs 10 to 30 seconds to start."
    )
    drilled = run_demo(place, read_flights(records), console, kill=kill, faults=faults)
    (place / HISTORY).write_bytes(encode_history(drilled.history))
    for note in drilled.notes:
        console.print(f"note: {escape(note)}")
    if problem := drilled.undone or "; ".join(drilled.troubles):
        raise CliError(problem, log_file=Path(drilled.log) if drilled.log else None)


def _show(console: Console, found: Verdict) -> None:
    """Print how far each shard was stored, and the verdict as the last lines."""
    shards = Table("shard", "records put", "stored at the kill", "stored at the end")
    for column in shards.columns[1:]:
        column.justify = "right"
    for name, shard in found.shards.items():
        at_kill = "-" if shard.stored_at_kill is None else f"{shard.stored_at_kill:,}"
        shards.add_row(name, f"{shard.put:,}", at_kill, f"{shard.stored:,}")
    console.print("", shards, "", sep="\n")
    color = "red" if found.missing else "green"
    console.print(
        f"[bold]Records put: {found.put:,}   Rows written: {found.written:,}   Duplicates: "
        f"{found.duplicates:,}   [{color}]Lost: {found.missing:,}[/][/]"
    )
    if found.cancelled is not None:
        cancelled = f"[bold]Cancelled flights: {found.cancelled:,}   Dead-lettered: "
        console.print(f"{cancelled}{found.dead_lettered:,}[/]")
    for problem in found.problems:
        console.print(f"[bold red]Wrong:[/] {escape(problem)}")
    if not found.problems:
        console.print(
            "[bold green]Nothing was lost.[/] Every row equals its flight, and the checkpoint of "
            "every shard is at the shard's last record."
        )


def _read_history(place: Path) -> History:
    """Raises `CliError` where no demo has ended."""
    try:
        return decode_history((place / HISTORY).read_bytes())
    except (OSError, ValueError) as exc:
        remedy = f"run a demo with --directory {place}"
        raise CliError(f"{place} contains no finished demo ({HISTORY}: {exc})", remedy) from exc


@contextmanager
def _directory(given: Path | None, *, is_new: bool, keep: bool) -> Iterator[Path]:
    """The given directory, which is kept, or a temporary one, which is kept if an exception ends
    the context: the error names a log in there. If `is_new`, the directory must be empty.
    """
    place = (given or Path(tempfile.mkdtemp(prefix="kinesis-spout-demo-"))).resolve()
    if is_new:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            remedy = "use a new directory, or pass --check to check the demo in this directory"
            raise CliError(f"the directory {place} is not empty", remedy)
    try:
        yield place
    except Exception:
        keep = True
        raise
    finally:
        if given is None and not keep:
            shutil.rmtree(place, ignore_errors=True)
