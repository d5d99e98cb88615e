"""The demo's comparison of what was put with what was written and dead-lettered. That it runs is
shown by the drill of its command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.drills.consumer import RETRY_LIMIT
from kinesis_spout.drills.history.events import Fault, History, Put, Sample, Step, Told
from spark_job.demo.flights import cancelled_reason, is_cancelled, read_flights
from spark_job.demo.verdict import Shard, Verdict, judge
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_job.demo.flights import Flight

ALL = read_flights(900)
DEPARTED = ALL[:3]
CANCELLED = next(flight for flight in ALL if is_cancelled(flight))
REASON = f"ValueError: {cancelled_reason(CANCELLED)}"
SHARD = "shardId-000000000000"


def history_of(flights: Sequence[Flight], *letters: tuple[int, str]) -> History:
    """A job that acked every flight that departed, and has told these letters of the cancelled one.
    Sequence numbers are 10, 11, ...
    """
    puts = [Put(str(one["carrier"]), row, SHARD, 10 + row) for row, one in enumerate(flights)]
    told = [
        Told(10 * at, step, SHARD, "job-1", put.sequence, put.key, put.number, 1)
        for at, put in enumerate(puts)
        for step in (Step.GOT, Step.FAIL if is_cancelled(flights[at]) else Step.ACK)
    ]
    told += [
        Told(900, Step.LETTER, SHARD, "job-1", put.sequence, put.key, put.number, attempt, reason)
        for put in puts
        if is_cancelled(flights[put.number])
        for attempt, reason in letters
    ]
    last = SequenceNumber(puts[-1].sequence)
    state = ShardState(shard_id=SHARD, checkpoint=last, read_position=Position.after(last))
    return History(
        puts=puts, told=told, samples=[Sample(950, 951, {SHARD: state})], fates_known=False
    )


def judged(
    folder: Path, put: Sequence[Flight], written: Sequence[Flight], *letters: tuple[int, str]
) -> Verdict:
    file = folder / "batch=0" / "part-0.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{**row, "shardId": "s"} for row in written]), file)
    return judge(history_of(put, *letters), folder, put)


@pytest.mark.parametrize(
    ("written", "missing", "unknown", "duplicates"),
    [
        (DEPARTED[::-1], 0, 0, 0),
        ([DEPARTED[0], DEPARTED[2]], 1, 0, 0),
        ([*DEPARTED, DEPARTED[1], DEPARTED[1]], 0, 0, 2),
        ([*DEPARTED[:2], {**DEPARTED[2], "dep_delay": 700}], 1, 1, 0),
        ([*DEPARTED, {**DEPARTED[0], "row": 3}], 0, 1, 0),
    ],
)
def test_rows_are_missing_unknown_or_there_twice(
    tmp_path: Path, written: list[Flight], missing: int, unknown: int, duplicates: int
) -> None:
    """Duplicates are no loss: the guarantee is at least once."""
    found = judged(tmp_path, DEPARTED, written)
    assert (found.missing, found.unknown, found.duplicates) == (missing, unknown, duplicates)
    assert len(found.problems) == bool(missing) + bool(unknown)
    assert found.written == len(written)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    judged(tmp_path, DEPARTED, DEPARTED)
    (tmp_path / "batch=0" / "part-0.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(CliError, match=r"cannot read .*part-0\.parquet"):
        judge(history_of(DEPARTED), tmp_path, DEPARTED)


def test_a_cancelled_flight_has_its_dead_letter_and_no_row(tmp_path: Path) -> None:
    put, right = [*DEPARTED, CANCELLED], (RETRY_LIMIT + 1, REASON)
    found = judged(tmp_path, put, DEPARTED, right)
    assert found.problems == []
    assert (found.missing, found.cancelled, found.dead_lettered) == (0, 1, 1)
    assert judged(tmp_path, put, DEPARTED).missing == 1
    for written, letter in (
        (put, right),
        (DEPARTED, (1, REASON)),
        (DEPARTED, (RETRY_LIMIT + 1, "ValueError: another")),
    ):
        found = judged(tmp_path, put, written, letter)
        assert found.missing == 0
        assert "1 flights have a wrong dead letter" in found.problems[0]


def test_a_shards_checkpoint_is_counted_in_records(tmp_path: Path) -> None:
    """At the kill it is that of the first sample after it."""
    history = history_of(DEPARTED)
    end = history.samples[0]
    early = ShardState(
        shard_id=SHARD,
        checkpoint=SequenceNumber(10),
        read_position=Position.after(SequenceNumber(10)),
    )
    history.faults = [Fault("kill", 100, 200, run="job-1")]
    history.samples = [Sample(50, 51, {}), Sample(210, 211, {SHARD: early}), end]
    assert judge(history, tmp_path, DEPARTED).shards == {
        SHARD: Shard(put=3, stored_at_kill=1, stored=3)
    }
