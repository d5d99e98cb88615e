"""The demo's verdict on faults: the dead letters, read back with pyarrow, against the cancelled
flights of the CSV.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_job.demo.files import read_rows
from spark_job.demo.flights import Flight, cancelled_reason, is_cancelled
from spark_job.demo.manifest import RETRY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterComparison:
    """What the comparison found. `cancelled` is what the CSV says; `failed` are the flights that
    were put but did not come out.

    `wrong`: rows that should not be there, or not so: another flight, payload, number of attempts
    or reason, or twice.
    """

    cancelled: int
    dead_lettered: int
    failed: int
    missing: tuple[int, ...] = ()
    wrong: tuple[object, ...] = ()

    @property
    def right(self) -> bool:
        return not (self.missing or self.wrong) and self.failed == self.cancelled

    @property
    def counts(self) -> dict[str, int]:
        return {
            "cancelled": self.cancelled,
            "failed": self.failed,
            "dead_lettered": self.dead_lettered,
        }

    @property
    def problems(self) -> list[str]:
        texts = []
        if self.failed != self.cancelled:
            texts.append(
                f"{self.failed:,} flights did not come out, and {self.cancelled:,} were cancelled"
            )
        if self.missing:
            texts.append(
                f"{len(self.missing):,} cancelled flights are not in the dead letter, the first is "
                f"row {self.missing[0]}"
            )
        if self.wrong:
            texts.append(
                f"{len(self.wrong):,} dead letters are not as they should be, the first is of row "
                f"{self.wrong[0]}"
            )
        return texts


def compare_letters(
    put: Sequence[Flight], letters: Iterable[Mapping[str, object]], *, processed: int
) -> LetterComparison:
    """Compare the dead letters (rows with data, attempts, reason), in any order, with the cancelled
    flights that were put.

    `processed`: how many flights came out.
    """
    cancelled = {flight["row"]: flight for flight in put if is_cancelled(flight)}
    found: set[object] = set()
    wrong: list[object] = []
    for letter in letters:
        flight = _flight(letter["data"])
        row = flight.get("row")
        expected = cancelled.get(row if isinstance(row, int) else None)
        reason = None if expected is None else f"ValueError: {cancelled_reason(expected)}"
        if (
            row in found
            or flight != expected
            or (letter["attempts"], letter["reason"]) != (RETRY_LIMIT + 1, reason)
        ):
            wrong.append(row)
        found.add(row)
    return LetterComparison(
        cancelled=len(cancelled),
        dead_lettered=len(found),
        failed=len(put) - processed,
        missing=tuple(row for row in cancelled if isinstance(row, int) and row not in found),
        wrong=tuple(wrong),
    )


def read_letters(folder: Path) -> Iterator[dict[str, object]]:
    """The dead letters of all plans. Raises `CliError` for a file that cannot be read."""
    return read_rows(
        sorted(folder.glob("plan=*/*.parquet")),
        ("data", "attempts", "reason"),
        "the demo's dead letters",
    )


def _flight(data: object) -> Flight:
    try:
        flight = json.loads(data) if isinstance(data, bytes) else {}
    except ValueError:
        return {}
    return flight if isinstance(flight, dict) else {}
