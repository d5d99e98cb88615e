"""What each version of kinesis-spout has stored, byte for byte: `stored/<version>.json` maps each
kind of node to texts that the version wrote.

    python -m tests.support.state.stored_samples > tests/support/state/stored/<version>.json

writes the file of the current version, from values in which every field has something to say. The
files of earlier versions stay as they are.

`0.0.json` was written by hand, no version wrote it: the Storm ancestor's checkpoints, and forms
from before the first version.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from scripts.reference.znodes import structs
from spark_job.driver.query_driver import OF_ONE
from state.codec.exported import ExportedApplication, decode_export, encode_export
from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.codec.values import decode, encode
from state.plan import (
    ChildShard,
    PlannedRetry,
    PlanPointer,
    PlanStatus,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
    UserRecords,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.report import (
    OnFailure,
    OpenReport,
    OutcomePolicy,
    PlanReport,
    ReportStatus,
    ShardOutcome,
)
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.store.history import HistoryEntry
from state.store.identity import Pause, StartPin, StreamIdentity
from state.store.ownership import OwnerInfo
from state.store.runs import (
    FAILED,
    FULL,
    SPOUT,
    FailingReads,
    Hold,
    NoAnswers,
    NotSubscribed,
    RefusedLetters,
    Run,
    RunEnd,
    RunLog,
    Throttle,
)
from state.task_log import TaskLog
from state.znodes.history import HistoryHead, decode_entry, encode_entry, mark_of
from state.znodes.plans import PlanHeader, decode_log
from state.znodes.reports import (
    ReportHeader,
    ReportPart,
    decode_header,
    decode_policy,
    encode_open_report,
    encode_policy,
    encode_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[3]
STORED = Path(__file__).with_name("stored")
SHARD = "shardId-000000000000"
PATH = "/root/app/orders/node"
EXPORT, OFFSET = "an export", "an offset of Spark"
HISTORY_ENTRY = "history/<number>-<timeMs>-<kind>-<part>-of-<parts>"
T = 1_767_225_600_000  # 2026-01-01


def version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


def number(n: int, sub: int = 0) -> SequenceNumber:
    return SequenceNumber(
        49_670_424_472_731_169_861_061_894_383_147_721_128_543_699_241_099_329_536 + n, sub
    )


UNRESOLVED = (
    UnresolvedRecord(
        first=number(1, 2),
        last=number(1, 2),
        attempts=2,
        due_ms=T + 9,
        first_failure_ms=T,
        last_failure_ms=T + 5,
        reason="no rates",
        key="0123456789abcdef",
        blocked=True,
    ),
    UnresolvedRecord(first=number(2), last=number(4), count=3, attempts=1, due_ms=T, whole=True),
    UnresolvedRecord(
        first=number(5), last=number(5), attempts=3, due_ms=T, reason="no rates", rejected=True
    ),
)
STATE = ShardState(
    shard_id=SHARD,
    checkpoint=number(0, 3),
    read_position=Position.after(number(9)),
    unresolved=UNRESOLVED,
    parents=("shardId-000000000007",),
    settled_plan="4-0a1b",
    verified_until_ms=T,
    at_tip=True,
)
FINISHED = ShardState(
    shard_id=SHARD, checkpoint=number(9), read_position=SHARD_END, lifecycle=Lifecycle.FINISHED
)
DRAINED = ShardState(
    shard_id=SHARD,
    read_position=SHARD_END,
    unresolved=UNRESOLVED[:1],
    lifecycle=Lifecycle.DRAINED,
)
IDENTITY = StreamIdentity(
    arn="arn:aws:kinesis:eu-west-1:1:stream/orders", name="orders", created_ms=T
)
START = StartPin(
    time_ms=T,
    requested="LATEST",
    position=Position.at_timestamp(T),
    shards=(SHARD, "shardId-000000000001"),
    shard_positions={"shardId-000000000001": TRIM_HORIZON},
)
IMPORTING = replace(START, importing=True)
OWNER = OwnerInfo(host="host-a", pid=42, since_ms=T, host_identity="k:1", process_start="77")
POLICY = OutcomePolicy(
    retry=RetryPolicy(
        retry_limit=4,
        first_delay_ms=1_000,
        growth=2.0,
        max_delay_ms=60_000,
        jitter=0.1,
        max_age_ms=86_400_000,
    ),
    on_failure=OnFailure.BLOCK_KEY,
)
TASK = TaskPlan(
    shards=(
        ShardSlice(
            shard_id=SHARD,
            position=Position.at(number(10)),
            max_records=1_000,
            iterator="AAAA",
            next_read_ms=T,
            next_subscribe_ms=T,
            ending_sequence=number(99),
            retries=(
                PlannedRetry(
                    first=number(2),
                    last=number(4),
                    count=3,
                    attempts=1,
                    exhausted=True,
                    max_records=2,
                    whole=True,
                ),
            ),
            verified_until_ms=T,
            gone=True,
            hash_keys=("0", "170141183460469231731687303715884105727"),
        ),
    ),
    max_bytes=1_000_000,
    fetch_time_ms=1_000,
    fetch_cap_ms=60_000,
    retention_ms=86_400_000,
    consumer_arn="arn:aws:kinesis:us-east-1:000000000000:stream/orders/consumer/reader:1",
    aggregated_records="unpack",
)
RESULT = ShardReadResult(
    shard_id=SHARD,
    first=number(10),
    last=number(20),
    count=7,
    at_tip=True,
    tip_ms=T,
    at_shard_end=True,
    gone=True,
    children=(ChildShard(shard_id="shardId-000000000008", parents=(SHARD,)),),
    last_arrival_ms=T,
    millis_behind_latest=5,
    iterator="AAAA",
    next_read_ms=T,
    next_subscribe_ms=T,
    throttled=3,
    pushed=4,
    fallback="silent",
    retries_done=1,
    retry_rows=2,
    retries_gone=(number(5),),
    retries_short=(ShortRange(first=number(2), missing=1),),
    retry_part=RangePart(last=number(3), rest=number(4), count=1),
    position=Position.at(number(10)),
    lapsed_ms=T,
    users=UserRecords(count=9, first=number(10), last=number(20, 4)),
    payload_bytes=700,
)
REPORT = PlanReport(
    shards=(ShardOutcome(shard_id=SHARD, unresolved=UNRESOLVED),),
    tasks=(0, 1),
    delivery_limit=100,
    outage=True,
    failed=3,
    retried=2,
    exhausted=1,
    dead_lettered=1,
    dropped=1,
    done_ms=T,
)
PAUSE = Pause(by="ann on host-a", since_ms=T, reason="database upgrade")
RUNS = RunLog(
    runs=(
        Run(
            owner=OWNER,
            kind=SPOUT,
            session_timeout_ms=10_000,
            shards=(SHARD,),
            read_mode="efo",
            max_pending=100,
            max_records=5_000,
            max_unresolved_per_shard=1_000,
            max_attempts=4,
            max_age_ms=60_000,
            tells_errors=True,
            message_timeout_ms=30_000,
            reads_per_second=2.0,
            bytes_per_second=500_000.0,
            end=RunEnd(
                time_ms=T,
                kind=FAILED,
                says="records have expired unread",
                remedy="set failOnDataLoss to false",
            ),
        ),
    ),
    hold=Hold(kind=FULL, since_ms=T),
    trigger_ms=900_000,
    throttled={SHARD: Throttle(count=3, last_ms=T)},
    refused_letters=RefusedLetters(count=3, last_ms=T, says="OSError: no room"),
    not_subscribed=NotSubscribed(
        since_ms=T, says="orders has no consumer reader", remedy="name another"
    ),
    failing_reads=FailingReads(
        since_ms=T, says="GetRecords failed: no route", remedy="check the network"
    ),
    no_answers=NoAnswers(since_ms=T, count=3),
)
HISTORY = HistoryEntry(
    time_ms=T, positions={SHARD: Position.after(number(9))}, full=True, cause="rewind"
)
EXPORTED = ExportedApplication(
    application="app",
    exported_ms=T,
    stream=IDENTITY,
    start=START,
    policy=POLICY,
    shard_list=(SHARD,),
    states=(STATE,),
)


class Node(NamedTuple):
    """How a kind of node is read, which raises `StoredDataError`; and what this version writes."""

    decode: Callable[[bytes], Any]
    texts: Sequence[bytes]


def _of(kind: type[Any], *values: Any) -> Node:
    return Node(lambda data: decode(data, kind, PATH), [encode(one, PATH) for one in values])


def nodes() -> dict[str, Node]:
    """By kind of node; and of an export."""
    named = structs()
    tasks, leader, listed = named["Tasks"], named["Leader"], named["StoredShardList"]
    done, _ = encode_report(
        OpenReport(plan_id="4-0a1b", token="t", version=2, openings=1), REPORT, PATH
    )
    outcomes = decode_header(done, PATH).outcomes
    assert outcomes is not None
    several = ReportHeader(
        token="t",
        status=ReportStatus.DONE,
        report=PlanReport(done_ms=T),
        opened_version=1,
        parts=2,
        digest="0" * 64,
    )
    plan = PlanHeader(created_ms=T, tasks=1, until_ms=T, outages=2, delivery_limit=100)
    reports = [encode_open_report("t", 1, PATH), done, encode(several, PATH)]
    return {
        "stream": _of(StreamIdentity, IDENTITY),
        "start": _of(StartPin, START, IMPORTING),
        "owner": Node(
            lambda data: decode(data, tasks if b"totalTasks" in data else OwnerInfo, PATH),
            [encode(OWNER, PATH), encode(tasks(total_tasks=3), PATH)],
        ),
        "owner/<i>-of-<n>": _of(OwnerInfo, OWNER),
        "reset": _of(OwnerInfo, OWNER),
        "epoch/lister": _of(leader, leader(task="1-of-3", epoch=4)),
        "shardList": _of(listed, listed(shard_list=[SHARD])),
        "<shardId>/state": Node(
            lambda data: decode_shard_state(data, SHARD, PATH),
            [encode_shard_state(one, PATH)[0] for one in (STATE, FINISHED, DRAINED)],
        ),
        "plan": _of(PlanPointer, *(PlanPointer("4-0a1b", status) for status in PlanStatus)),
        "tracked": Node(lambda data: decode_policy(data, PATH), [encode_policy(POLICY, PATH)]),
        "paused": _of(Pause, PAUSE),
        "history": _of(HistoryHead, HistoryHead(next=7)),
        # What is in it: zlib's bytes may be others, and mean the same.
        HISTORY_ENTRY: Node(
            lambda data: decode_entry(mark_of(7, HISTORY), [zlib.compress(data)], PATH),
            [zlib.decompress(part) for part in encode_entry(HISTORY)],
        ),
        "runs/all": _of(RunLog, RUNS),
        "runs/<i>-of-<n>": _of(RunLog, RUNS),
        "batches/<planId>": _of(PlanHeader, plan),
        "batches/<planId>/<task>": _of(TaskPlan, TASK),
        "batches/<planId>/<task>/end": Node(
            lambda data: decode_log(data, PATH),
            [encode(TaskLog(entries=(RESULT,), sealed=sealed), PATH) for sealed in (False, True)],
        ),
        "batches/<planId>/report": Node(lambda data: decode_header(data, PATH), reports),
        "batches/<planId>/report/<token>-<version>-<part>": _of(ReportPart, outcomes),
        EXPORT: Node(lambda data: decode_export(data, PATH), [encode_export(EXPORTED)]),
    }


def written() -> dict[str, list[str]]:
    """What this version writes, by kind of node."""
    found = {node: [one.decode() for one in kind.texts] for node, kind in nodes().items()}
    return found | {OFFSET: [json.dumps({"format": OF_ONE, "plan": "4-0a1b"})]}


def decoders() -> dict[str, Callable[[bytes], Any]]:
    return {node: kind.decode for node, kind in nodes().items()}


def read(version_name: str) -> dict[str, list[str]]:
    """The file of a version."""
    text = (STORED / f"{version_name}.json").read_text("utf-8")
    return msgspec.json.decode(text, type=dict[str, list[str]])


def versions() -> list[str]:
    return sorted(path.stem for path in STORED.glob("*.json"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(written(), indent=1) + "\n")
