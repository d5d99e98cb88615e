"""The demo's verdict: the rows that Spark wrote, read back with pyarrow, against the flights, field
by field; and the promises of any drill, against its history. It uses no counter of the job.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.drills.consumer import RETRY_LIMIT
from kinesis_spout.drills.history.checks import broken_promises
from kinesis_spout.drills.history.events import Step
from spark_job.demo.flights import TYPES, cancelled_reason, is_cancelled, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kinesis_spout.drills.history.events import History, Sample
    from spark_job.demo.flights import Flight


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were put to a shard; and those that its checkpoint covered when the job was
    killed, and at the end.
    """

    put: int
    stored_at_kill: int | None
    stored: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of flights, as `demo --json` prints them. `problems`: sentences, none if all is well.

    - `written`: rows. `duplicates`: rows beyond the first of their flight, which are allowed.
    - `missing`: neither written nor dead-lettered. `unknown`: rows that equal no flight.
    - `cancelled`: flights that the job's function fails; None if it takes every flight.
    """

    killed: bool
    put: int
    written: int
    duplicates: int
    missing: int
    unknown: int
    cancelled: int | None
    dead_lettered: int
    shards: dict[str, Shard]
    problems: list[str]


def judge(history: History, output: Path, flights: Sequence[Flight]) -> Verdict:
    """Compare the flights, which were put in this order, with the files in `output`.

    Raises `CliError` for a file that cannot be read.
    """
    rows = Counter(_read(output))
    payloads = dict(zip(map(to_json, flights), range(len(flights)), strict=True))
    written = Counter({payloads[row]: count for row, count in rows.items() if row in payloads})
    letters = _letters(history)
    lost = [row for row in range(len(flights)) if row not in written and row not in letters]
    unknown = [row for row in rows if row not in payloads]
    wrong = [row for row, said in letters.items() if row in written or said != _due(flights[row])]
    problems = [
        *_problem("flights were lost", lost),
        *_problem("written rows match no flight", unknown),
        *_problem("flights have a wrong dead letter", wrong),
        *broken_promises(history),
    ]
    fails = any(told.step is Step.FAIL for told in history.told)
    return Verdict(
        killed=bool(history.faults),
        put=len(flights),
        written=rows.total(),
        duplicates=written.total() - len(written),
        missing=len(lost),
        unknown=len(unknown),
        cancelled=sum(map(is_cancelled, flights)) if fails else None,
        dead_lettered=len(letters),
        shards=_shards(history),
        problems=problems,
    )


def _problem(what: str, rows: Sequence[object]) -> list[str]:
    return [f"{len(rows):,} {what}; the first is row {rows[0]!r}"] if rows else []


def _read(output: Path) -> Iterator[bytes]:
    """Each written row. A killed write leaves its files in a folder `_temporary`."""
    for path in sorted(output.glob("batch=*/*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                rows = file.read(columns=list(TYPES)).select(list(TYPES)).to_pylist()
        except (OSError, ValueError, KeyError) as exc:
            reason = " ".join(str(exc).split())
            raise CliError(f"cannot read {path} as the demo's output: {reason}") from exc
        yield from map(to_json, rows)


def _letters(history: History) -> Mapping[int, set[tuple[int, str]]]:
    """Of each row with a dead letter, attempts and reason: a kill may have one written again."""
    rows = {put.record: put.number for put in history.puts}
    found = defaultdict(set)
    for told in history.told:
        if told.step is Step.LETTER and told.record in rows:
            found[rows[told.record]].add((told.attempt, told.reason))
    return found


def _due(flight: Flight) -> set[tuple[int, str]]:
    """The letters that a flight must have."""
    if not is_cancelled(flight):
        return set()
    return {(RETRY_LIMIT + 1, f"ValueError: {cancelled_reason(flight)}")}


def _shards(history: History) -> dict[str, Shard]:
    sequences: dict[str, list[int]] = defaultdict(list)
    for put in history.puts:
        sequences[put.shard_id].append(put.sequence)
    killed_ns = [fault.ended_ns for fault in history.faults]
    after = [one for one in history.samples if killed_ns and one.began_ns >= killed_ns[0]]

    def stored(samples: Sequence[Sample], shard: str) -> int:
        state = samples[0].states.get(shard) if samples else None
        checkpoint = state.checkpoint if state else None
        return bisect_right(sequences[shard], checkpoint.sequence) if checkpoint else 0

    return {
        shard: Shard(
            put=len(numbers),
            stored_at_kill=stored(after, shard) if killed_ns else None,
            stored=stored(history.samples[-1:], shard),
        )
        for shard, numbers in sorted(sequences.items())
    }
