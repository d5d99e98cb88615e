"""The report of `kinesis-spout redrive`: a table by reason, or one JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from spark_job.dead_letter.redrive import Found
    from spark_job.dead_letter.redrive_letters import ReasonCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The dead letters found in `path`, and how many were put. `put` None means a dry run."""

    path: str
    found: Found
    put: int | None

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints. Times are in ISO 8601, UTC."""
        found = self.found
        return {
            "path": self.path,
            "dryRun": self.put is None,
            "toPut": found.to_put,
            "put": self.put or 0,
            "putBefore": found.put_before,
            "withoutPayload": found.without_payload,
            "incomplete": found.incomplete,
            "unreadable": found.unreadable,
            "reasons": [_reason_as_json(count) for count in found.reasons],
            "moreReasons": found.more_reasons,
        }


def show_found(console: Console, found: Found) -> None:
    """Print the letters to put, by stream and reason, and the numbers of those left out."""
    if found.to_put:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("letters", justify="right")
        for name in ("stream", "reason"):
            table.add_column(name, overflow="fold")
        for name in ("first failure", "last failure"):
            table.add_column(name, no_wrap=True)
        for count in found.reasons:
            times = (_minute(count.first_failure), _minute(count.last_failure))
            table.add_row(f"{count.letters:,}", Text(count.target), Text(count.reason), *times)
        console.print(table)
    for line in notes(found):
        console.print(line, highlight=False, soft_wrap=True)


def notes(found: Found) -> list[str]:
    """A line for each number that the table does not show."""
    letters = "dead letter" if found.to_put == 1 else "dead letters"
    count = f"{found.to_put:,}" if found.to_put else "no"
    lines = [f"{count} {letters} to put"]
    if found.more_reasons:
        lines.insert(0, f"and {found.more_reasons:,} more reasons")
    if found.put_before:
        lines.append(f"{found.put_before:,} were put before")
    if found.without_payload:
        lines.append(
            f"{found.without_payload:,} have no payload (their records were past the stream's "
            "retention) and cannot be put"
        )
    if found.incomplete:
        lines.append(
            f"{found.incomplete:,} are in parts of which some are missing, and cannot be put"
        )
    if found.unreadable:
        lines.append(f"{found.unreadable:,} rows in the files are not dead letters")
    return lines


def _reason_as_json(count: ReasonCount) -> dict[str, object]:
    return {
        "stream": count.target,
        "reason": count.reason,
        "letters": count.letters,
        "firstFailure": _iso(count.first_failure),
        "lastFailure": _iso(count.last_failure),
    }


def _iso(moment: datetime | None) -> str | None:
    return (
        None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}Z"
