"""The demo's report: tables for people, one JSON object for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from spark_job.demo.flights import TOTAL
from spark_job.demo.manifest import RETRY_LIMIT

if TYPE_CHECKING:
    from rich.console import Console

    from spark_job.demo.manifest import Manifest
    from spark_job.demo.verdict import CarrierRow, LetterComparison, Verdict


def show(console: Console, verdict: Verdict, manifest: Manifest) -> None:
    """Print the tables and, as the last lines, the counts."""
    console.print()
    console.print(_carriers(verdict))
    console.print()
    console.print(_shards(verdict, manifest))
    console.print()
    found = verdict.records
    console.print(
        f"[bold]put {manifest.records:,}   processed {found.processed:,}   "
        f"{_judged('missing', len(found.missing))}   processed twice {found.duplicates:,}[/]",
        highlight=False,
    )
    if verdict.letters is not None:
        console.print(f"[bold]{_faults(verdict.letters)}[/]", highlight=False)
    for problem in verdict.problems:
        console.print(f"[bold red]wrong:[/] {problem}", highlight=False, soft_wrap=True)
    if verdict.ok:
        console.print(
            "[bold green]Nothing is missing[/], and every checkpoint is at its shard's last "
            "record.",
            highlight=False,
        )


def as_json(
    verdict: Verdict, manifest: Manifest, *, seconds: float, directory: str | None
) -> dict[str, Any]:
    """The object that `--json` prints. `directory` is None when the output was removed."""
    found = verdict.records
    return {
        "ok": verdict.ok,
        "put": manifest.records,
        "processed": found.processed,
        "missing": len(found.missing),
        "duplicates": found.duplicates,
        "altered": len(found.altered),
        "unknown": len(found.unknown),
        **({} if verdict.letters is None else verdict.letters.counts),
        "killed": manifest.killed,
        "resumed_from": manifest.resumed_from,
        "shards": {
            shard: {
                "put": entry.put,
                "checkpoint": entry.checkpoint,
                "last_sequence_number": entry.last_sequence_number,
            }
            for shard, entry in verdict.shards.items()
        },
        "carriers": {
            row.carrier: {"departures": row.departures, "mean_delay": row.mean_delay}
            for row in verdict.carriers
        },
        "problems": verdict.problems,
        "available": TOTAL,
        "seconds": round(seconds, 1),
        "directory": directory,
    }


def _carriers(verdict: Verdict) -> Table:
    table = Table(
        title="By carrier, computed by Spark from the written files",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("carrier")
    table.add_column("departures", justify="right")
    table.add_column("mean delay, min", justify="right")
    table.add_column("by plain Python from the CSV")
    for row in verdict.carriers:
        table.add_row(
            row.carrier, f"{row.departures:,}", _minutes(row.mean_delay), _other_side(row)
        )
    return table


def _other_side(row: CarrierRow) -> str:
    return (
        "[green]the same[/]"
        if row.equal
        else f"[red]{row.expected_departures:,} and {_minutes(row.expected_mean_delay)}[/]"
    )


def _shards(verdict: Verdict, manifest: Manifest) -> Table:
    table = Table(
        title="By shard: the checkpoint in ZooKeeper and the last record put",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("shard", no_wrap=True)
    table.add_column("put", justify="right")
    if manifest.killed:
        table.add_column("resumed after", justify="right")
    table.add_column("checkpoint", justify="right")
    table.add_column("last record put", justify="right")
    for shard, entry in verdict.shards.items():
        resumed = (manifest.resumed_from.get(shard) or "its start",) if manifest.killed else ()
        color = "green" if entry.at_last else "red"
        table.add_row(
            shard,
            f"{entry.put:,}",
            *resumed,
            f"[{color}]{entry.checkpoint or 'none'}[/]",
            f"{entry.last_sequence_number}",
        )
    return table


def _faults(letters: LetterComparison) -> str:
    right = "green" if letters.right else "red"
    return (
        f"cancelled in the CSV {letters.cancelled:,}   [{right}]failed {letters.failed:,}   "
        f"dead-lettered {letters.dead_lettered:,}[/], each after {RETRY_LIMIT} retries, with its "
        "reason"
    )


def _minutes(mean: float | None) -> str:
    return "none" if mean is None else f"{mean:.2f}"


def _judged(word: str, count: int) -> str:
    return f"[{'red' if count else 'green'}]{word} {count:,}[/]"
