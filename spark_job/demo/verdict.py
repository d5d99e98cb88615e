"""The demo's verdict: compares what Spark wrote, read back with pyarrow, with the CSV row by row.

It uses no counter of the job, and no Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import FIELDS, Flight, cancelled_reason, is_cancelled
from spark_job.demo.manifest import RETRY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from spark_job.demo.kinesis import ShardPuts


# records ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of the flights that were put with the rows that were written.

    - `put`, `written`: the number of flights, and of all rows.
    - `processed`: the number of distinct flights that were written.
    - `duplicates`: the number of rows beyond the first of each flight.
    - `missing`: row numbers of flights that were put but not written.
    - `twice`: row numbers of flights that were written more than once.
    - `altered`: row numbers of flights that were written with other content.
    - `unknown`: row numbers that were written but never put.
    """

    put: int
    processed: int
    written: int
    duplicates: int
    missing: tuple[int, ...] = ()
    twice: tuple[int, ...] = ()
    altered: tuple[int, ...] = ()
    unknown: tuple[object, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, altered or unknown. Duplicates are allowed: the guarantee is
        at least once.
        """
        return not (self.missing or self.altered or self.unknown)


def compare(put: Sequence[Flight], written: Iterable[Mapping[str, object]]) -> Comparison:
    """Compare the flights that should be written with the rows that were, in any order."""
    expected = {flight["row"]: flight for flight in put}
    times: Counter[int] = Counter()
    altered: set[int] = set()
    unknown: list[object] = []
    total = 0
    for row in written:
        total += 1
        number = row.get("row")
        if not isinstance(number, int) or number not in expected:
            unknown.append(number)
            continue
        times[number] += 1
        if row != expected[number]:
            altered.add(number)
    return Comparison(
        put=len(put),
        processed=len(times),
        written=total,
        duplicates=sum(times.values()) - len(times),
        missing=tuple(
            number for number in expected if isinstance(number, int) and number not in times
        ),
        twice=tuple(sorted(number for number, count in times.items() if count > 1)),
        altered=tuple(sorted(altered)),
        unknown=tuple(unknown),
    )


def written_files(output: Path) -> list[Path]:
    """The parquet files of all batches.

    Leaves out the files of a killed write, which are in a folder `_temporary`.
    """
    return sorted(output.glob("batch=*/*.parquet"))


def read_written(output: Path) -> Iterator[dict[str, object]]:
    """The flights of all written files. Raises `CliError` for a file that cannot be read."""
    return _read_rows(written_files(output), FIELDS, "the demo's parquet")


def count_written(output: Path, counted: dict[Path, int]) -> int:
    """The number of rows in all finished batches, from the files' footers.

    `counted` is a cache of batches that were counted before.
    """
    for marker in output.glob("batch=*/_SUCCESS"):
        if marker.parent not in counted:
            counted[marker.parent] = sum(
                pq.read_metadata(path).num_rows for path in marker.parent.glob("*.parquet")
            )
    return sum(counted.values())


# dead letters -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class LetterComparison:
    """The comparison of the dead letters with the cancelled flights.

    - `cancelled`: the number of cancelled flights in the CSV.
    - `failed`: the number of flights that were put but not written.
    - `dead_lettered`: the number of distinct flights among the dead letters.
    - `missing`: row numbers of cancelled flights without a dead letter.
    - `wrong`: row numbers of dead letters with a wrong flight, payload, number of attempts or
      reason, and of second dead letters of a flight.
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
                f"{self.failed:,} flights were not written, but {self.cancelled:,} were cancelled"
            )
        if self.missing:
            texts.append(
                f"{len(self.missing):,} cancelled flights have no dead letter, the first is row "
                f"{self.missing[0]}"
            )
        if self.wrong:
            texts.append(
                f"{len(self.wrong):,} dead letters are wrong, the first is of row {self.wrong[0]}"
            )
        return texts


def compare_letters(
    put: Sequence[Flight], letters: Iterable[Mapping[str, object]], *, processed: int
) -> LetterComparison:
    """Compare the dead letters, in any order, with the cancelled flights that were put.

    - `letters`: rows with data, attempts and reason.
    - `processed`: the number of flights that were written.
    """
    cancelled = {flight["row"]: flight for flight in put if is_cancelled(flight)}
    found: set[object] = set()
    wrong: list[object] = []
    for letter in letters:
        flight = _flight_in(letter["data"])
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
    return _read_rows(
        sorted(folder.glob("plan=*/*.parquet")),
        ("data", "attempts", "reason"),
        "the demo's dead letters",
    )


# shards -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerdict:
    """A shard's checkpoint in ZooKeeper, and the last sequence number that a put returned."""

    put: int
    last_sequence_number: str
    checkpoint: str | None

    @property
    def at_last(self) -> bool:
        return self.checkpoint == self.last_sequence_number


def shard_verdicts(
    puts: Mapping[str, ShardPuts], checkpoints: Mapping[str, str | None]
) -> dict[str, ShardVerdict]:
    return {
        shard: ShardVerdict(
            put=entry.count,
            last_sequence_number=entry.last_sequence_number,
            checkpoint=checkpoints.get(shard),
        )
        for shard, entry in puts.items()
    }


# carriers -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierRow:
    """One carrier's figures: by Spark from the written files, and by plain Python from the CSV."""

    carrier: str
    departures: int
    mean_delay: float | None
    expected_departures: int
    expected_mean_delay: float | None

    @property
    def equal(self) -> bool:
        if self.mean_delay is None or self.expected_mean_delay is None:
            return (
                self.departures == self.expected_departures
                and self.mean_delay is self.expected_mean_delay
            )
        return (
            self.departures == self.expected_departures
            and abs(self.mean_delay - self.expected_mean_delay) < 1e-9
        )  # sums of ints: only the division rounds


def carrier_rows(
    by_spark: Mapping[str, tuple[int, float | None]],
    expected: Mapping[str, tuple[int, float | None]],
) -> list[CarrierRow]:
    """The figures of every carrier on either side, most departures first."""
    rows = [
        CarrierRow(
            carrier=carrier,
            departures=by_spark.get(carrier, (0, None))[0],
            mean_delay=by_spark.get(carrier, (0, None))[1],
            expected_departures=expected.get(carrier, (0, None))[0],
            expected_mean_delay=expected.get(carrier, (0, None))[1],
        )
        for carrier in by_spark.keys() | expected.keys()
    ]
    return sorted(rows, key=lambda row: (-row.expected_departures, row.carrier))


# verdict ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All comparisons of the demo. `ok` decides its exit code."""

    records: Comparison
    shards: Mapping[str, ShardVerdict]
    carriers: Sequence[CarrierRow] = field(default=())
    letters: LetterComparison | None = None

    @property
    def ok(self) -> bool:
        at_last = all(shard.at_last for shard in self.shards.values())
        letters_right = self.letters is None or self.letters.right
        return (
            self.records.complete
            and at_last
            and letters_right
            and all(row.equal for row in self.carriers)
        )

    @property
    def problems(self) -> list[str]:
        """One sentence for each problem; empty when there is none."""
        found = self.records
        texts = [
            (
                len(found.missing),
                (
                    "records are missing, the first is row "
                    f"{found.missing[0] if found.missing else None}"
                ),
            ),
            (
                len(found.altered),
                (
                    "records were written with other content, the first is row "
                    f"{found.altered[0] if found.altered else None}"
                ),
            ),
            (
                len(found.unknown),
                (
                    "rows were written that were never put, the first is "
                    f"{found.unknown[0] if found.unknown else None}"
                ),
            ),
            (
                sum(not row.equal for row in self.carriers),
                "carriers have other figures by Spark than by plain Python from the CSV",
            ),
        ]
        problems = [f"{count:,} {text}" for count, text in texts if count]
        behind = [shard for shard, verdict in self.shards.items() if not verdict.at_last]
        problems += [] if self.letters is None else self.letters.problems
        return [
            *problems,
            *(f"the checkpoint of {shard} is not at its last record" for shard in behind),
        ]


# private ------------------------------------------------------------------------------------------
def _read_rows(
    files: Iterable[Path], columns: Sequence[str], what: str
) -> Iterator[dict[str, object]]:
    """The rows of parquet files. Raises `CliError` with the path of a file that cannot be read.

    `what` says in the error what the files should be.
    """
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.read(columns=list(columns)).to_pylist()
        except (OSError, ValueError, KeyError) as exc:
            raise CliError(
                f"{path} cannot be read as {what}: {' '.join(str(exc).split())}"
            ) from exc


def _flight_in(data: object) -> Flight:
    try:
        flight = json.loads(data) if isinstance(data, bytes) else {}
    except ValueError:
        return {}
    return flight if isinstance(flight, dict) else {}
