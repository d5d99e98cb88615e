"""The demo's verdict: what Spark wrote, read back with pyarrow and compared with the CSV row by
row.

Counters have no say in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from spark_job.demo.files import read_rows
from spark_job.demo.flights import FIELDS, Flight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from spark_job.demo.kinesis import ShardPuts
    from spark_job.demo.letters import LetterComparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the comparison found, as row numbers. `processed` counts distinct flights that came out,
    `written` all rows.

    - `missing`: put, but not written. `duplicates`: how often flights were written beyond once, in
      total.
    - `altered`: written with other content than was put. `unknown`: written, but never put.
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
        """Nothing missing, nothing altered, nothing out of nowhere. Duplicates are allowed: the
        promise is at least once.
        """
        return not (self.missing or self.altered or self.unknown)


def compare(put: Sequence[Flight], written: Iterable[Mapping[str, object]]) -> Comparison:
    """Compare the flights that were put and should come out with the rows that were written, in any
    order.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerdict:
    """A shard's checkpoint in ZooKeeper against the last sequence number that a put to it was
    answered with.
    """

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


def written_files(output: Path) -> list[Path]:
    """The parquet files of all batches. What a killed write left unfinished is in a folder
    `_temporary` and does not count.
    """
    return sorted(output.glob("batch=*/*.parquet"))


def read_written(output: Path) -> Iterator[dict[str, object]]:
    """The flights of all written files. Raises `CliError` for a file that cannot be read."""
    return read_rows(written_files(output), FIELDS, "the demo's parquet")


def count_written(output: Path, counted: dict[Path, int]) -> int:
    """Rows of all batches whose write is finished, from the files' footers. `counted` remembers the
    batches already looked at.
    """
    for marker in output.glob("batch=*/_SUCCESS"):
        if marker.parent not in counted:
            counted[marker.parent] = sum(
                pq.read_metadata(path).num_rows for path in marker.parent.glob("*.parquet")
            )
    return sum(counted.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierRow:
    """One carrier's figures, by Spark from the written parquet and by plain Python from the CSV."""

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
    """All carriers of either side, most departures first."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that the demo found out. `ok` decides its exit code."""

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
        """What is wrong, a sentence each; empty when all is well."""
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
