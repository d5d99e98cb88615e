"""The real job, killed with SIGKILL and started again: nothing is lost, and the checkpoints are
right. `kinesis-spout drill` kills one that tracks its records, at every step
(`test_product_drills`). Here are a job that does not track them, a report in parts, and a record
that kills its job.

Most records state their own outcome, so the results are compared with the stream record by record.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark.job_process import JobProcess, rows_below
from tests.support.spark.source import READ_MODES, STREAM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

pytestmark = pytest.mark.spark
KILLER, MOST_RESTARTS = 137, 30


def job_of(of: StreamUnderTest, tmp_path: Path, **source: Any) -> dict[str, Any]:
    places = {name: str(tmp_path / name) for name in ("out", "dead", "checkpoint")}
    return {"source": of.fields(**source), **places}


@dataclass
class Expected:
    """The records that were put, by number, with kind, and shard and sequence number. Malformed
    records have no number.
    """

    kinds: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)

    def of(self, *kinds: str) -> set[int]:
        return {n for n, its in self.kinds.items() if its in kinds}

    def put(self, stream: StreamUnderTest, kinds: Mapping[int, str]) -> None:
        """Put at most 500 records of these kinds."""
        entries = [
            {
                "Data": b"{not json"
                if kind == "malformed"
                else json.dumps({"n": n, "kind": kind}).encode(),
                "PartitionKey": f"key {n}",
            }
            for n, kind in kinds.items()
        ]
        answers = stream.client.put_records(StreamName=STREAM, Records=entries)["Records"]
        for (n, kind), answer in zip(kinds.items(), answers, strict=True):
            shard, number = answer["ShardId"], answer["SequenceNumber"]
            stream.records.setdefault(shard, []).append(number)
            if kind == "malformed":
                self.malformed.add(f"{shard}:{number}")
            else:
                self.kinds[n], self.ids[n] = kind, f"{shard}:{number}"


@pytest.mark.parametrize("mode", READ_MODES)
def test_a_job_killed_at_its_steps_goes_on_without_loss(
    stream: StreamUnderTest, tmp_path: Path, mode: str
) -> None:
    """At one step after the other, with more to read each time: every record is in the output, and
    the checkpoints are at the tips. The steps are those at which it differs from a job that tracks
    its records, as its batch has no report; and one of a task that reads more than it appends.
    """
    stream.read_mode = READ_MODES[mode]
    process = JobProcess(job_of(stream, tmp_path, max_records_per_shard=40), tmp_path)
    for step in ("sink-written", "plan-closed", "shard-states-half-written"):
        stream.put(200)
        process.kill_at(step)
    process.finish()
    rows = rows_below(tmp_path / "out", "shardId", "sequenceNumber")
    counts = Counter(f"{row['shardId']}:{row['sequenceNumber']}" for row in rows)
    assert set(counts) == stream.ids()
    assert stream.checkpoints() == stream.tips()
    # A replayed batch has the same rows and overwrites its own directory, so not even a kill makes
    # a duplicate.
    assert max(counts.values()) == 1


def kind_of(n: int) -> str:
    """40 % fail twice: too many for a report in one piece, and too few for an outage. 1 % fail
    always, 0.1 % are malformed.
    """
    if n % 100 == 7:
        return "always"
    return "malformed" if n % 1_000 == 333 else "twice" if n % 5 < 2 else "good"


@pytest.mark.timeout(900)
def test_a_report_in_parts_survives_a_kill_between_them(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The job is killed while a part of a report is written: no part counts, and the whole batch
    comes again. Every good record is in the output, every bad one in the dead letters with its
    attempts and reason.
    """
    expected = Expected()
    for start in range(0, 20_000, 500):
        expected.put(stream, {n: kind_of(n) for n in range(start, start + 500)})
    limits = {"max_records_per_shard": 5_000, "max_tasks": 2, "idle_wait": "200ms"}
    process = JobProcess(job_of(stream, tmp_path, **limits) | {"tracked": True}, tmp_path)
    process.kill_at("report-part-written")
    process.finish(600)
    written = {row["n"] for row in rows_below(tmp_path / "out", "n")}
    assert written == expected.of("good", "twice")
    letters = rows_below(tmp_path / "dead", "messageId", "attempts", "reason")
    found = {(row["messageId"], row["attempts"], row["reason"]) for row in letters}
    malformed = {letter for letter in found if letter[1] == 1}
    assert found - malformed == {
        (f"{expected.ids[n]}:4", 4, f"ValueError: record {n} is poison")
        for n in expected.of("always")
    }
    assert {message_id.rpartition(":")[0] for message_id, _, _ in malformed} == expected.malformed
    assert all(reason.startswith("not valid JSON") for _, _, reason in malformed)
    # A dead letter's partition is its plan's, and a repeated plan overwrites it: not even a
    # kill duplicates a letter.
    assert len(letters) == len(found)
    assert stream.checkpoints() == stream.tips()
    assert not any(state.unresolved for state in stream.states().values())


def test_a_job_that_is_killed_by_one_record_dead_letters_it_and_processes_the_others_once(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """It is started again each time, as a supervisor would do."""
    expected = Expected()
    expected.put(stream, dict.fromkeys(range(500), "good"))
    job = job_of(stream, tmp_path) | {"tracked": True, "kills": KILLER, "retryLimit": 1}
    process = JobProcess(job, tmp_path)
    for _ in range(MOST_RESTARTS):
        process.start()
        code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL, process.tail()
    assert code == 0, f"the record was not found over {MOST_RESTARTS} restarts"
    rows = rows_below(tmp_path / "out", "n", "attempt")
    others = expected.of("good") - {KILLER}
    assert Counter((row["n"], row["attempt"]) for row in rows) == Counter((n, 1) for n in others)
    (letter,) = rows_below(tmp_path / "dead", "messageId", "reason", "attempts")
    assert letter["messageId"].rpartition(":")[0] == expected.ids[KILLER]
    assert letter["attempts"] == 2
    assert letter["reason"] == "its process ended without an answer, 2 times"
    assert stream.checkpoints() == stream.tips()
