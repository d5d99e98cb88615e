"""100,000 records with known outcomes through the real job: killed at every step of its reports, or
through an outage.

Each record states its own outcome, so the results are compared with the stream record by record.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from state.zookeeper.store import ZookeeperStateStore
from tests.support.shell.wheel import separate_executors
from tests.support.spark.job_process import JobProcess
from tests.support.spark.source import APPLICATION, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from state.shard_state import ShardState
    from tests.support.spark.source import StreamUnderTest

RECORDS = 100_000
STEPS = (
    "report-opened",
    "sink-written",
    "dead-letters-written",
    "report-done",
    "plan-closed",
    "shard-states-half-written",
    "plan-settled",
)
WRITTEN_TWICE_AFTER = frozenset({"sink-written", "dead-letters-written", "report-done"})
PER_SHARD = 2_500


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


def rare_faults(n: int) -> str:
    """1 % fail always, 1 % fail twice, 0.1 % are malformed; spread over the whole stream."""
    return {7: "always", 57: "twice"}.get(n % 100, "malformed" if n % 1_000 == 333 else "good")


def many_faults(n: int) -> str:
    """40 % fail twice: too many for a report in one piece, and too few for an outage."""
    return "twice" if n % 5 < 2 else "good"


def put(
    stream: StreamUnderTest, count: int, kind_of: Callable[[int], str] = rare_faults
) -> Expected:
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


def check(
    stream: StreamUnderTest, expected: Expected, tmp_path: Path, *, max_duplicates: int
) -> None:
    """Every good record is in the output, every bad one in the dead letters with its attempts and
    reason, and the checkpoints are at the tips.
    """
    written = Counter(row["n"] for row in rows_in(tmp_path / "out", ["n"]))
    assert set(written) == expected.of("good") | expected.of("twice")
    assert sum(written.values()) - len(written) <= max_duplicates

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


def job_of(stream: StreamUnderTest, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "tracked": True,
        "source": stream.fields(
            max_records_per_shard=PER_SHARD, states_per_write=1, idle_wait="200ms", max_tasks=2
        ),
        "out": str(tmp_path / "out"),
        "dead": str(tmp_path / "dead"),
        "checkpoint": str(tmp_path / "checkpoint"),
        **changes,
    }


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_outcomes_survive_a_kill_at_every_step(
    stream: StreamUnderTest, tmp_path: Path, wheel: Path
) -> None:
    """At each step of the report and dead-letter path, one after the other, the job is killed with
    SIGKILL, and its executors with it. It processes every good record, dead-letters every bad one
    under its id with its attempts and reason, and repeats only batches that were killed after their
    sink.
    """
    expected = put(stream, RECORDS)
    process = JobProcess(
        job_of(stream, tmp_path, **separate_executors(wheel)),
        tmp_path,
        env={"PYTHONPATH": str(wheel)},
    )
    for name in STEPS:
        process.stop_at = name
        process.start()
        process.wait_for_failpoint()
        process.kill()
    process.stop_at = None
    process.start()
    assert process.wait(600) == 0, process.tail()
    repeated = len(WRITTEN_TWICE_AFTER.intersection(STEPS))
    check(stream, expected, tmp_path, max_duplicates=repeated * 4 * PER_SHARD)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_report_in_parts_survives_a_kill_between_them(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The job is killed while a part of a report is written: no part counts, and the whole batch
    comes again.
    """
    expected = put(stream, 20_000, many_faults)
    job = job_of(stream, tmp_path)
    job["source"]["max_records_per_shard"] = 5_000
    process = JobProcess(job, tmp_path, stop_at="report-part-written")
    process.start()
    process.wait_for_failpoint()
    process.kill()
    process.stop_at = None
    process.start()
    assert process.wait(600) == 0, process.tail()
    check(stream, expected, tmp_path, max_duplicates=20_000)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_an_outage_dead_letters_nothing_and_ends_by_itself(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """While everything fails, attempts do not count, reading pauses and plans stay bounded.
    Afterwards everything is processed as if there had been no outage.
    """
    expected = put(stream, RECORDS)
    ends = tmp_path / "outage-ends"
    job = job_of(stream, tmp_path, outageEnds=str(ends))
    job["source"]["available_now_retry_wait"] = "300s"
    process = JobProcess(job, tmp_path)
    process.start()
    try:
        first = after_outages(process, stream, 2)
        later = after_outages(process, stream, 4)
        assert {shard: state.read_position for shard, state in later.items()} == {
            shard: state.read_position for shard, state in first.items()
        }
        for state in later.values():
            assert sum(record.count for record in state.unresolved) <= PER_SHARD
            assert {record.attempts for record in state.unresolved} == {0}
        letters = {
            row["messageId"].rpartition(":")[0] for row in rows_in(tmp_path / "dead", ["messageId"])
        }
        assert letters <= expected.malformed
        ends.touch()
        assert process.wait(600) == 0, process.tail()
    finally:
        process.kill()
    check(stream, expected, tmp_path, max_duplicates=0)


def after_outages(
    process: JobProcess, stream: StreamUnderTest, count: int
) -> dict[str, ShardState]:
    """Wait until this many plans in a row were outages; returns the shard states."""
    store = ZookeeperStateStore(
        stream.zookeeper, root="kinesis-spout", application=APPLICATION, stream=STREAM
    )

    def so_many() -> bool:
        pointer = store.plans.pointer()
        plan = store.plans.read(pointer.id) if pointer else None
        return plan is not None and plan.outages >= count

    try:
        process.wait_until(so_many, f"had {count} outages in a row")
        return {shard: stored.state for shard, stored in store.shard_states.load().items()}
    finally:
        store.close()
