"""Settling: applying what a finished plan's task did read of a shard, and what became of it, to the
shard's state.

What was read is the new range of the shard's end and the first `retries_done` of the plan's
retries, found or gone. All of it is acked except for what the outcome of a tracked batch names; a
batch that is not tracked is acked whole.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.plan import plan_number
from state.position import TRIM_HORIZON
from state.retry_policy import RetryPolicy
from state.shard_state import ShardState
from state.state_store import StateChange
from state.tracker.inflight_record_tracker import InflightRecordTracker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from state.plan import PlannedRetry, ShardReadResult, ShardSlice
    from state.report import ShardOutcome
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord


class _Read(NamedTuple):
    """What was read as one: the new range (`retry` is None), or a record or range of the plan's
    retries.
    """

    first: SequenceNumber
    last: SequenceNumber
    retry: PlannedRetry | None


def settle_shard(
    state: ShardState, end: ShardReadResult, plan_id: str, planned: ShardSlice | None = None
) -> ShardState:
    """The state after all that `end` says was read is acked: of a plan whose batch is not tracked.

    Idempotent: a state that has this plan or a later one comes back as it is. `planned` is needed
    where retries were read. Raises ValueError for an end that contradicts itself or is of another
    shard, and `IllegalTrackerEventError` for one that does not lie behind what the state says was
    read: settling never moves anything back.
    """
    return _settled(state, planned, end, (), plan_id)


def settle_tracked(
    state: ShardState,
    planned: ShardSlice,
    end: ShardReadResult,
    outcome: ShardOutcome | None,
    plan_id: str,
) -> ShardState:
    """The state after all that `end` says was read is acked, except for `outcome.unresolved`:
    queued exactly as given.

    None: nothing stays unresolved. Idempotent and raises as `settle_shard` does, and
    `StoredDataError` for an outcome that names what was not read (in that form).
    """
    if outcome is not None and outcome.shard_id != state.shard_id:
        raise ValueError(
            f"the outcome of shard {outcome.shard_id} cannot be settled into the state of shard "
            f"{state.shard_id}"
        )
    return _settled(state, planned, end, () if outcome is None else outcome.unresolved, plan_id)


def child_states(
    end: ShardReadResult, known: Collection[str], *, tracked_since_ms: int | None = None
) -> list[ShardState]:
    """First states of the shards that continue this one, except for those that are known: they
    start at their oldest record.

    `tracked_since_ms`: the service's time up to which every shard is known to have had a state;
    nothing of a child can have been missed before that. When the parent's end was read says little:
    it may have been closed, and its child written to, long before.
    """
    children = {child.shard_id: child for child in end.children if child.shard_id not in known}
    verified_ms = min((ms for ms in (tracked_since_ms, end.tip_ms) if ms is not None), default=None)
    return [
        ShardState(
            shard_id=child.shard_id,
            read_position=TRIM_HORIZON,
            parents=child.parents,
            verified_until_ms=verified_ms,
        )
        for child in children.values()
    ]


def children_first(
    changes: Iterable[StateChange],
    ends: Iterable[ShardReadResult],
    known: AbstractSet[str],
    *,
    tracked_since_ms: int | None = None,
) -> list[StateChange]:
    """The `changes`, preceded by the first states of all new children that `ends` name.

    Write them in this order. A child's state is then stored no later than its parent's end, so a
    process that stops between two writes leaves a parent that is read again, not a child that
    nobody knows. `known` and `tracked_since_ms` are as in `child_states`.
    """
    children: dict[str, ShardState] = {}
    for end in ends:
        for child in child_states(end, known | children.keys(), tracked_since_ms=tracked_since_ms):
            children[child.shard_id] = child
    return [*(StateChange(before=None, after=child) for child in children.values()), *changes]


def _settled(
    state: ShardState,
    planned: ShardSlice | None,
    end: ShardReadResult,
    unresolved: Sequence[UnresolvedRecord],
    plan_id: str,
) -> ShardState:
    if _has_settled(state, plan_id):
        return state
    _check(state, planned, end)
    # Nothing is decided here: neither the policy nor chance has a say.
    never_drawn_from = Random(0)  # noqa: S311  # as its name says
    tracker = InflightRecordTracker(
        state, retry_policy=RetryPolicy(), random=never_drawn_from, restore_exhausted=False
    )
    reads = _reads(planned, end)
    for read, left in zip(reads, _by_read(state.shard_id, plan_id, reads, unresolved), strict=True):
        try:
            _apply(tracker, read, end, left)
        except IllegalTrackerEventError as exc:
            if not left:
                raise
            raise _contradiction(state.shard_id, plan_id, str(exc)) from exc
    if end.at_shard_end:
        tracker.reach_end()
    known_times = (state.verified_until_ms, end.last_arrival_ms, end.tip_ms)
    verified_until_ms = max(
        (time_ms for time_ms in known_times if time_ms is not None), default=None
    )
    # Who was to read retries only has not been near the tip.
    at_tip = state.at_tip if planned is not None and planned.max_records == 0 else end.at_tip
    return replace(
        tracker.snapshot(), settled_plan=plan_id, verified_until_ms=verified_until_ms, at_tip=at_tip
    )


def _apply(
    tracker: InflightRecordTracker,
    read: _Read,
    end: ShardReadResult,
    left: Sequence[UnresolvedRecord],
) -> None:
    if read.retry is None:
        emission = tracker.emit_span(read.first, read.last, end.count)
    elif tracker.queued(read.first) is None and not left:
        return  # resolved by hand since it was planned
    else:
        emission = tracker.retry(read.first)
        if emission.last != read.last:
            raise IllegalTrackerEventError(
                f"shard {tracker.shard_id}: the retry {read.first} to {read.last} is stored as "
                f"{read.first} to {emission.last}"
            )
    tracker.ack_except(emission.sequence, emission.attempt, left)


def _reads(planned: ShardSlice | None, end: ShardReadResult) -> list[_Read]:
    """What was read, ascending: retries lie before the new range."""
    retries = () if planned is None else planned.retries[: end.retries_done]
    reads = [
        _Read(retry.first, retry.first if retry.last is None else retry.last, retry)
        for retry in retries
    ]
    if end.first is not None and end.last is not None:
        reads.append(_Read(end.first, end.last, None))
    return sorted(reads, key=lambda read: read.first)


def _by_read(
    shard_id: str, plan_id: str, reads: Sequence[_Read], unresolved: Sequence[UnresolvedRecord]
) -> list[list[UnresolvedRecord]]:
    """The unresolved records of each read. Raises `StoredDataError` where one is of none, or they
    are not in order.
    """
    found: list[list[UnresolvedRecord]] = [[] for _ in reads]
    if any(not a.last < b.first for a, b in pairwise(unresolved)):
        raise _contradiction(shard_id, plan_id, "its records are not in order")
    number = 0
    for record in unresolved:
        while number < len(reads) and reads[number].last < record.first:
            number += 1
        if (
            number == len(reads)
            or record.first < reads[number].first
            or reads[number].last < record.last
        ):
            raise _contradiction(
                shard_id,
                plan_id,
                f"{record.first} to {record.last} was not read by it, or not as one",
            )
        found[number].append(record)
    return found


def _has_settled(state: ShardState, plan_id: str) -> bool:
    number = plan_number(plan_id)
    return state.settled_plan is not None and (
        state.settled_plan == plan_id or plan_number(state.settled_plan) > number
    )


def _check(state: ShardState, planned: ShardSlice | None, end: ShardReadResult) -> None:
    for what, shard_id in (
        ("end", end.shard_id),
        ("slice", end.shard_id if planned is None else planned.shard_id),
    ):
        if shard_id != state.shard_id:
            raise ValueError(
                f"the {what} of shard {shard_id} cannot be settled into the state of shard "
                f"{state.shard_id}"
            )
    if (
        end.count < 0
        or (end.first is not None) != (end.count > 0)
        or (end.last is not None) != (end.count > 0)
    ):
        raise ValueError(
            f"the end of shard {end.shard_id} contradicts itself: {end.count} records from "
            f"{end.first} to {end.last}"
        )
    most = 0 if planned is None else len(planned.retries)
    if not 0 <= end.retries_done <= most:
        raise ValueError(
            f"the end of shard {end.shard_id} says that {end.retries_done} of {most} planned "
            "retries were read"
        )


def _contradiction(shard_id: str, plan_id: str, what: str) -> StoredDataError:
    return StoredDataError(
        f"the report of plan {plan_id} does not fit what was read of shard {shard_id}: {what}; "
        "nothing was settled, remove the"
        " report to have the plan's records delivered again"
    )
