"""Looks at applications, made by hand: a stream of listed shards, what is stored, and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs
from msgspec.structs import replace

from kinesis_spout.inspection.health import Look, TipAnswer
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.service.shard_info import HASH_KEYS, HashRange, ShardInfo, StreamSummary
from state.plan import PlanStatus, ShardReadResult, ShardSlice, TaskPlan
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.identity import Pause, StartPin, StreamIdentity
from state.store.ownership import OwnerInfo, OwnerView, TaskShare
from state.store.runs import Run, RunEnd, RunLog
from state.store.view import PlanView, StoredApplication, TaskView

if TYPE_CHECKING:
    from state.task_log import TaskLog

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
WINDOW_MS = 10_000
BEGAN_MS = NOW_MS - WINDOW_MS
STREAM = StreamSummary(
    arn="arn:aws:kinesis:eu-west-1:1:stream/orders",
    name="orders",
    created_ms=1_000,
    status="ACTIVE",
    retention_ms=24 * HOUR_MS,
    service_time_ms=NOW_MS,
)
IDENTITY = StreamIdentity(arn=STREAM.arn, name="orders", created_ms=STREAM.created_ms)
RECREATED = structs.replace(IDENTITY, created_ms=1)
PIN = StartPin(time_ms=0, requested="TRIM_HORIZON", position=TRIM_HORIZON, shards=())
OWNER = OwnerView(None, OwnerInfo(host="host-a", pid=42, since_ms=NOW_MS - HOUR_MS))
_OF_THE_LOG = frozenset(RunLog.__struct_fields__) - {"runs", "format"}
AT_TIP = TipAnswer(NOW_MS, None)
PAUSE = Pause(by="ann on host-a", since_ms=NOW_MS - HOUR_MS, reason="deploy")


def shard(index: int) -> str:
    return f"shardId-{index:012d}"


def spout_task(index: int, total: int) -> OwnerView:
    return OwnerView(TaskShare(index, total), OWNER.info)


def after(number: int) -> Position:
    return Position.after(SequenceNumber(number))


def listed(index: int, *parents: int, closed: bool = False) -> ShardInfo:
    return ShardInfo(
        shard_id=shard(index),
        parents=tuple(map(shard, parents)),
        hash_key_range=HashRange(0, HASH_KEYS - 1),
        starting_sequence=SequenceNumber(0),
        ending_sequence=SequenceNumber(10**9) if closed else None,
    )


def state(
    index: int, position: Position = TRIM_HORIZON, *parents: int, **fields: Any
) -> ShardState:
    return ShardState(
        shard_id=shard(index),
        read_position=position,
        parents=tuple(map(shard, parents)),
        **({"verified_until_ms": NOW_MS - 60_000} | fields),
    )


def failed(number: int, **fields: Any) -> UnresolvedRecord:
    """A record on its second attempt, due in a minute."""
    given: dict[str, Any] = {
        "attempts": 1,
        "due_ms": NOW_MS + 60_000,
        "first_failure_ms": NOW_MS - 120_000,
        "last_failure_ms": NOW_MS - 120_000,
        "reason": "no rates",
    }
    sequence = SequenceNumber(number)
    return UnresolvedRecord(first=sequence, last=sequence, **(given | fields))


def read_of(index: int, last: int, **fields: Any) -> ShardReadResult:
    """Records 1 to `last`; none for 0."""
    numbers: dict[str, Any] = (
        {"first": SequenceNumber(1), "last": SequenceNumber(last)} if last else {}
    )
    return ShardReadResult(shard_id=shard(index), count=last, **(numbers | fields))


def task(*slices: ShardSlice, number: int = 0, log: TaskLog | None = None) -> TaskView:
    plan = TaskPlan(shards=slices, max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    return TaskView(number, plan, log)


def slice_of(one: ShardState, **fields: Any) -> ShardSlice:
    return ShardSlice(
        shard_id=one.shard_id, position=one.read_position, **({"max_records": 10} | fields)
    )


def plan(*tasks: TaskView, **fields: Any) -> PlanView:
    """An open plan of 5 s ago; the one before took 8 s."""
    given: dict[str, Any] = {
        "plan_id": "7-ab",
        "status": PlanStatus.OPEN,
        "created_ms": NOW_MS - 5_000,
        "previous_ms": NOW_MS - 13_000,
    }
    return PlanView(tasks=tasks, **(given | fields))


def run_log(*ages_ms: int, ends: tuple[RunEnd | None, ...] = (), **fields: Any) -> RunLog:
    """Runs that began so long ago, oldest first. One that began an hour ago is that of `OWNER`.

    `ends`: of the runs; none by default. `fields`: of the log and of its newest run.
    """
    of_log = {name: fields.pop(name) for name in _OF_THE_LOG if name in fields}
    given: dict[str, Any] = {"kind": "spark", "session_timeout_ms": 10_000}
    runs = [
        Run(
            owner=replace(OWNER.info, since_ms=NOW_MS - age_ms),
            end=end,
            **(given | (fields if number == len(ages_ms) else {})),
        )
        for number, (age_ms, end) in enumerate(
            zip(ages_ms, ends or (None,) * len(ages_ms), strict=True), start=1
        )
    ]
    return RunLog(runs=tuple(runs), **of_log)


def snapshot(*parts: ShardInfo | ShardState, now_ms: int = NOW_MS, **stored: Any) -> Snapshot:
    """A snapshot of listed shards and states. The application has an owner and a pin."""
    given: dict[str, Any] = {"identity": IDENTITY, "pin": PIN, "owners": (OWNER,)}
    if stored.pop("paused", False):
        given["pause"] = PAUSE
    if "log" in stored:
        given["runs"] = {stored.get("share"): stored.pop("log")}
    stored.pop("share", None)
    process = stored.pop("process", None)
    newest = next((log.newest for log in given.get("runs", {}).values()), None)
    states = {one.shard_id: one for one in parts if isinstance(one, ShardState)}
    return Snapshot(
        process_states={newest.owner: process}
        if newest is not None and process is not None
        else {},
        application="etl",
        stored=StoredApplication(**(given | {"states": states} | stored)),
        stream=STREAM,
        listing=[one for one in parts if isinstance(one, ShardInfo)],
        now_ms=now_ms,
    )


def look(
    *parts: ShardInfo | ShardState,
    before: tuple[ShardState, ...] = (),
    tips: dict[int, TipAnswer] | None = None,
    **stored: Any,
) -> Look:
    """A look over a window of 10 s. `before`: the states that differed at its beginning."""
    was = {one.shard_id: one for one in before}
    begun = [was.get(one.shard_id, one) if isinstance(one, ShardState) else one for one in parts]
    return Look(
        before=snapshot(*begun, now_ms=BEGAN_MS, **stored),
        now=snapshot(*parts, **stored),
        tips={shard(index): tip for index, tip in (tips or {}).items()},
    )


def behind(ms: int) -> TipAnswer:
    """The oldest unread record arrived so long ago."""
    return TipAnswer(NOW_MS, NOW_MS - ms)
