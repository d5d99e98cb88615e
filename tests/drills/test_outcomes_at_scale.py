"""Records with known outcomes through the real job: killed between the parts of a report, and by a
record.

Each record states its own outcome, so the results are compared with the stream record by record.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support.spark.job_process import JobProcess
from tests.support.spark.source import STREAM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

RECORDS, PER_SHARD = 20_000, 5_000
KILLER, MOST_RESTARTS = 137, 30


@dataclass
class Expected:
    """The records that were put, by number, with kind, shard and sequence number. Malformed records
    have no number.
    """

    kinds: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)

    def of(self, kind: str) -> set[int]:
        return {n for n, its in self.kinds.items() if its == kind}


def many_faults(n: int) -> str:
    """40 % fail twice: too many for a report in one piece, and too few for an outage. 1 % fail
    always, 0.1 % are malformed.
    """
    if n % 100 == 7:
        return "always"
    return "malformed" if n % 1_000 == 333 else "twice" if n % 5 < 2 else "good"


def put(stream: StreamUnderTest, count: int, kind_of: Callable[[int], str]) -> Expected:
    """Put `count` records, and remember each one's id."""
    expected = Expected()
    for start in range(0, count, 500):
        kinds = {n: kind_of(n) for n in range(start, start + 500)}
        payloads = [
            b"{not json" if kind == "malformed" else json.dumps({"n": n, "kind": kind}).encode()
            for n, kind in kinds.items()
        ]
        entries = [
            {"Data": payload, "PartitionKey": f"key {n}"}
            for n, payload in zip(kinds, payloads, strict=True)
        ]
        for (n, kind), answer in zip(
            kinds.items(),
            stream.client.put_records(StreamName=STREAM, Records=entries)["Records"],
            strict=True,
        ):
            stream.records.setdefault(answer["ShardId"], []).append(answer["SequenceNumber"])
            record_id = f"{answer['ShardId']}:{answer['SequenceNumber']}"
            if kind == "malformed":
                expected.malformed.add(record_id)
            else:
                expected.kinds[n], expected.ids[n] = kind, record_id
    return expected


def rows_in(folder: Path, columns: list[str]) -> list[dict[str, Any]]:
    return [
        row
        for file in sorted(folder.rglob("*.parquet"))
        for row in pq.ParquetFile(file).read(columns).to_pylist()
    ]


def check(stream: StreamUnderTest, expected: Expected, tmp_path: Path) -> None:
    """Every good record is in the output, every bad one in the dead letters with its attempts and
    reason, and the checkpoints are at the tips.
    """
    written = Counter(row["n"] for row in rows_in(tmp_path / "out", ["n"]))
    assert set(written) == expected.of("good") | expected.of("twice")

    letters = rows_in(tmp_path / "dead", ["messageId", "attempts", "reason"])
    found = {(row["messageId"], row["attempts"], row["reason"]) for row in letters}
    poison = {
        (f"{expected.ids[n]}:4", 4, f"ValueError: record {n} is poison")
        for n in expected.of("always")
    }
    malformed = {letter for letter in found if letter[1] == 1}
    assert found - malformed == poison
    assert {message_id.rpartition(":")[0] for message_id, _, _ in malformed} == expected.malformed
    assert all(reason.startswith("not valid JSON") for _, _, reason in malformed)
    # A dead letter's partition is its plan's, and a repeated plan overwrites it: not even a
    # kill duplicates a letter.
    assert len(letters) == len(found)

    assert stream.checkpoints() == stream.tips()
    assert not any(state.unresolved for state in stream.states().values())


def job_of(stream: StreamUnderTest, tmp_path: Path, **source: Any) -> dict[str, Any]:
    places = {name: str(tmp_path / name) for name in ("out", "dead", "checkpoint")}
    return {"tracked": True, "source": stream.fields(**source), **places}


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_report_in_parts_survives_a_kill_between_them(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The job is killed while a part of a report is written: no part counts, and the whole batch
    comes again.
    """
    expected = put(stream, RECORDS, many_faults)
    limits = {"max_records_per_shard": PER_SHARD, "max_tasks": 2}
    job = job_of(stream, tmp_path, idle_wait="200ms", **limits)
    process = JobProcess(job, tmp_path, stop_at="report-part-written")
    process.start()
    process.wait_for_failpoint()
    process.kill()
    process.stop_at = None
    process.start()
    assert process.wait(600) == 0, process.tail()
    check(stream, expected, tmp_path)


@pytest.mark.spark
def test_a_job_that_is_killed_by_one_record_dead_letters_it_and_processes_the_others_once(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """It is started again each time, as a supervisor would do."""
    expected = put(stream, 500, lambda _: "good")
    process = JobProcess(job_of(stream, tmp_path) | {"kills": KILLER, "retryLimit": 1}, tmp_path)
    for _ in range(MOST_RESTARTS):
        process.start()
        code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL, process.tail()
    assert code == 0, f"the record was not found over {MOST_RESTARTS} restarts"
    rows = rows_in(tmp_path / "out", ["n", "attempt"])
    others = expected.of("good") - {KILLER}
    assert Counter((row["n"], row["attempt"]) for row in rows) == Counter((n, 1) for n in others)
    (letter,) = rows_in(tmp_path / "dead", ["messageId", "reason", "attempts"])
    assert letter["messageId"].rpartition(":")[0] == expected.ids[KILLER]
    assert letter["attempts"] == 2
    assert letter["reason"] == "its process ended without an answer 2 times"
    assert stream.checkpoints() == stream.tips()
