"""An application as the page's JSON. Pure.

It is that of `status --json` and `explain --json`, and what the picture and the tables show beside
them. The service does not say when a shard was created or closed, nor when a record of
a checkpoint was put. Its sequence numbers suggest it: authors of emulators derived a layout of 56
digits from numbers that they observed (kinesalite's `db/index.js`, `parseSequence`). The picture
goes by it, and nothing is decided by it. Without it a shard is drawn from halfway between the
beginning of its parents and now, and its checkpoint is left out unless it is at the read position.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesis_spout.inspection.health import OVER, Health
from kinesis_spout.inspection.status import facts_of, verdict_sentence
from kinesis_spout.service.shard_info import HASH_KEYS
from kinesis_spout.shards.lineage import ShardPhase
from state.plan import PlanStatus
from state.report import ReportStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.inspection.health import Look, ShardLook
    from kinesis_spout.inspection.snapshot import Snapshot
    from kinesis_spout.inspection.status import ApplicationStatus
    from kinesis_spout.service.shard_info import ShardInfo
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord

MAX_RECORDS, MAX_REASONS = 500, 50
_LAYOUT, _SECOND, _SLACK_MS = 2, 0xF_FFFF_FFFF, 60_000
_CREATED, _PUT = 148, 36  # the bits of a sequence number at which these seconds begin
_NEVER_MS = 1 << 62


def observation_json(status: ApplicationStatus, explained: Sequence[Any]) -> dict[str, Any]:
    """`explained`: groups of shards, as `explain --json` prints them."""
    look = status.look
    return {
        "kind": "application",
        "status": status.as_json(),
        "sentence": verdict_sentence(status),
        "explain": explained,
        "needy": len(needy(status)),
        "facts": list(facts_of(status).items()),
        "lanes": list(_lanes(look)),
        "records": records_json(look, look.now.states),
    }


def needy(status: ApplicationStatus) -> list[str]:
    """The shards that need an explanation: those that are not well, or not known and not asked."""
    if not status.look.now.is_known:
        return [one.shard_id for one in status.shards]
    well = {Health.OK, Health.UNKNOWN}
    return [one.shard_id for one in status.shards if one.health not in well or one.unresolved]


def sample_json(look: Look, before: Snapshot | None) -> dict[str, Any]:
    """One point of the charts. What is not known is null.

    - `lagMs`: the largest lag. `pace`: seconds of the stream's time that were read in a second, the
      mean of the shards that are read.
    - `rowsPerS`: rows that a Spark job's tasks have published since the observation before.
    - `acked`, `failed`, `deadLettered`: a second, of a batch that no earlier observation has seen
      answered, over the time from the batch before it.
    - `stage`: of a Spark job's batch: planning, reading, function or writing.
    """
    now, plan = look.now, look.now.stored.plan
    lags = [lag for one in now.shard_ids if (lag := look.of(one).lag_ms) is not None]
    sample: dict[str, Any] = {
        "atMs": now.now_ms,
        "lagMs": max(lags, default=None),
        "pace": _pace(look),
    }
    if plan is None or now.is_spout or not now.stored.owners:
        return sample
    sample["stage"] = _stage(now)
    was = None if before is None else before.stored.plan
    rows, passed_ms = _rows(now), 0 if before is None else now.now_ms - before.now_ms
    if before is not None and passed_ms > 0:
        earlier = _rows(before) if was is not None and was.plan_id == plan.plan_id else 0
        sample["rowsPerS"] = max(0, rows - earlier) * 1000 / passed_ms
    outcomes, took_ms = plan.outcomes, plan.created_ms - (plan.previous_ms or plan.created_ms)
    is_new = was is None or was.plan_id != plan.plan_id or was.outcomes is None
    if outcomes is not None and is_new and took_ms > 0:
        counts = {
            "acked": max(0, rows - outcomes.failed),
            "failed": outcomes.failed,
            "deadLettered": outcomes.dead_lettered,
        }
        sample |= {name: many * 1000 / took_ms for name, many in counts.items()}
    return sample


def _stage(now: Snapshot) -> str:
    plan = now.stored.plan
    if plan is None or plan.status is PlanStatus.SETTLED:
        return "planning"
    if not all(task.log is not None and task.log.sealed for task in plan.tasks):
        return "reading"
    return "writing" if plan.report is ReportStatus.DONE else "function"


def _rows(seen: Snapshot) -> int:
    tasks = () if seen.stored.plan is None else seen.stored.plan.tasks
    return sum(task.log.rows for task in tasks if task.log is not None)


def _pace(look: Look) -> float | None:
    moved_ms: list[int] = []
    for shard in map(look.of, look.now.states):
        was_ms, now_ms = look.before.verified_ms(shard.shard_id), shard.verified_ms
        if was_ms is not None and now_ms is not None and shard.is_read:
            moved_ms.append(max(0, now_ms - was_ms))
    return sum(moved_ms) / len(moved_ms) / look.window_ms if moved_ms and look.window_ms else None


# unresolved records -------------------------------------------------------------------------------
def shard_json(look: Look, shard_id: str, explained: Any) -> dict[str, Any]:
    """What the page of a shard shows beside the application's JSON. `explained`: its group."""
    result = look.of(shard_id).result
    return {
        "shardId": shard_id,
        "explain": [explained],
        "records": records_json(look, [one for one in (shard_id,) if one in look.now.states]),
        "unsettled": 0 if result is None else result.count,
    }


def records_json(look: Look, shards: Any) -> dict[str, Any]:
    """The unresolved records of the shards by reason, and those that failed first one by one."""
    found = [(one, record) for one in shards for record in look.now.states[one].unresolved]
    found.sort(key=lambda one: (one[1].first_failure_ms or _NEVER_MS, one[0]))
    reasons: dict[str, dict[str, Any]] = {}
    for shard_id, record in found:
        new: dict[str, Any] = {"records": 0, "attempts": 0, "shards": {}}
        one = reasons.setdefault(_reason(record), new)
        one["records"] += record.count
        one["attempts"] = max(one["attempts"], record.attempts)
        one["shards"][shard_id] = None
        for name, time_ms in (("firstMs", record.first_failure_ms), ("dueMs", record.due_ms)):
            if time_ms:
                one[name] = min(one.get(name, time_ms), time_ms)
    worst = sorted(reasons.items(), key=lambda one: (-one[1]["records"], one[0]))[:MAX_REASONS]
    return {
        "entries": len(found),
        "reasonsInAll": len(reasons),
        "reasons": [{"reason": name, **one, "shards": [*one["shards"]]} for name, one in worst],
        "list": [
            {
                "shard": shard_id,
                "first": str(record.first),
                "last": str(record.last),
                "count": record.count,
                "reason": _reason(record),
                "attempts": record.attempts,
                "firstMs": record.first_failure_ms,
                "dueMs": record.due_ms or None,
            }
            for shard_id, record in found[:MAX_RECORDS]
        ],
    }


def _reason(record: UnresolvedRecord) -> str:
    """Why it is unresolved, where it has no reason of its own."""
    if record.reason:
        return record.reason
    if record.rejected:
        return "(the record was rejected: its dead letter is not written yet)"
    if record.blocked:
        return "(the record has not failed: it waits for an earlier record)"
    if record.first_failure_ms is None:
        return "(the record is in flight: the program has neither acked nor failed it)"
    return "(no reason given)"


# the picture --------------------------------------------------------------------------------------
def _lanes(look: Look) -> Iterator[dict[str, Any]]:
    """The shards that are not expired, parents before their children. Those that are not listed are
    drawn while they matter.
    """
    lineage, now_ms = look.now.lineage, look.now.now_ms
    began: dict[str, int] = {}
    first_child: dict[str, int] = {}
    guessed: set[str] = set()
    for shard_id in look.now.shard_ids:
        if shard_id not in lineage.listed and look.of(shard_id).phase in OVER:
            continue
        parents = [began[one] for one in lineage.parents(shard_id) if one in began]
        time_ms = _began_ms(look, lineage.listed.get(shard_id), parents)
        if time_ms is None:
            guessed.add(shard_id)
            time_ms = (max([*parents, look.horizon_ms]) + now_ms) // 2
        began[shard_id] = time_ms
        for one in lineage.parents(shard_id):
            first_child[one] = min(first_child.get(one, time_ms), time_ms)
    for shard_id, began_ms in began.items():
        shard, listed = look.of(shard_id), lineage.listed.get(shard_id)
        ended_ms = _ended_ms(look, listed, first_child.get(shard_id))
        ended_ms = None if ended_ms is None else max(began_ms, ended_ms)
        failures: Counter[int] = Counter()
        for record in shard.unresolved:
            if record.first_failure_ms is not None:
                failures[record.first_failure_ms] += record.count
        read_ms = _read_ms(shard, began_ms, ended_ms)
        keys = None if listed is None else listed.hash_key_range
        yield {
            "shardId": shard_id,
            "parents": list(lineage.parents(shard_id)),
            "hashKeys": None if keys is None else [str(one) for one in keys],
            "first": 0.0 if keys is None else keys[0] / HASH_KEYS,
            "last": 0.0 if keys is None else keys[1] / HASH_KEYS,
            "beganMs": began_ms,
            "endedMs": ended_ms,
            "readMs": read_ms if look.now.is_readable else None,
            "ackedMs": _acked_ms(shard, read_ms),
            "events": {"failed": list(failures.items())},
            "guessed": shard_id in guessed,
            "mattersMs": _matters_ms(shard, began_ms),
        }


def _began_ms(look: Look, listed: ShardInfo | None, parents_ms: Sequence[int]) -> int | None:
    number = None if listed is None else listed.starting_sequence
    created_ms = _time_ms(look, number, _CREATED)
    if created_ms is not None:
        return max([created_ms, *parents_ms])
    return None if parents_ms else look.now.stream.created_ms


def _ended_ms(look: Look, listed: ShardInfo | None, first_child_ms: int | None) -> int | None:
    if listed is not None and not listed.is_closed:
        return None
    ended_ms = None if listed is None else _time_ms(look, listed.ending_sequence, _PUT)
    return ended_ms or first_child_ms or look.now.now_ms


def _read_ms(shard: ShardLook, began_ms: int, ended_ms: int | None) -> int:
    if shard.position is None or shard.phase is ShardPhase.WAITING:
        return began_ms
    last_ms, frontier_ms = shard.now.now_ms if ended_ms is None else ended_ms, shard.frontier_ms
    if shard.position.is_end or (frontier_ms is None and shard.tip is not None):
        return last_ms
    return min(max(frontier_ms or began_ms, began_ms), last_ms)


def _acked_ms(shard: ShardLook, read_ms: int) -> int | None:
    state = shard.state
    if state is None:
        return None
    # What was read is acked or unresolved, but for what the plan under way has read.
    if not state.unresolved and shard.position == state.read_position:
        return read_ms
    checkpoint_ms = _time_ms(shard.look, state.checkpoint, _PUT)
    return None if checkpoint_ms is None else min(checkpoint_ms, read_ms)


def _matters_ms(shard: ShardLook, began_ms: int) -> int | None:
    """The oldest time at which something of the shard matters: a reshard, an unread record or a
    failure.
    """
    times: list[int | None] = []
    if shard.now.lineage.parents(shard.shard_id) and began_ms > shard.look.horizon_ms:
        times.append(began_ms)
    if shard.phase not in OVER:
        times += [shard.frontier_ms, *(one.first_failure_ms for one in shard.unresolved)]
    return min((one for one in times if one is not None), default=None)


def _time_ms(look: Look, number: SequenceNumber | None, bit: int) -> int | None:
    """The second at that bit of the number; None where it cannot be right."""
    if number is None or number.sequence >> 184 != _LAYOUT or number.sequence & 0xF != _LAYOUT:
        return None
    created_ms, now_ms = look.now.stream.created_ms, look.now.now_ms
    time_ms = (number.sequence >> bit & _SECOND) * 1000
    if not created_ms - _SLACK_MS <= time_ms <= now_ms + _SLACK_MS:
        return None
    return min(max(time_ms, created_ms), now_ms)
