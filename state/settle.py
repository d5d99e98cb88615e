"""Settling: applies a finished plan's read results and outcomes to the shards' states. Pure.

A plan's task read two kinds of records of a shard: the new range from `ShardReadResult.first` to
`last`, and the plan's retries that `retries_read` derives from the result. A retry counts as read
whether its records were found or are gone. Settling emits each read in an `InflightRecordTracker`
restored from the stored state, acks it except for the records that the batch's outcome leaves
unresolved, and takes the tracker's snapshot as the new state. Of a range that was read in part, the
rest stays queued as it was stored.

Every outcome was decided before, so settling needs no time and no randomness. It is idempotent: a
state names its last settled plan, and that plan changes nothing.

Settling verifies. A range that was read from a position counts only while the state stands at that
position: otherwise another process has read on meanwhile, or the state was restored from a backup,
and acking the range would skip records or ack them unseen. What does not fit changes nothing; the
state brings its records again.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, PlanMismatchError
from state.plan import RetryRead, plan_number, retries_read
from state.position import TRIM_HORIZON
from state.retry_policy import RetryPolicy
from state.shard_state import ShardState, verified_by_first_read
from state.store.shard_states import StateChange
from state.tracker.inflight_record_tracker import InflightRecordTracker
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from state.plan import ShardReadResult, ShardSlice
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord

_NEVER_ASKED = RetryPolicy()
_NEVER_DRAWN_FROM = Random(0)  # noqa: S311  # as its name says


class _Read(NamedTuple):
    """What was read as one, ends inclusive: the new range (no `retry`), or (part of) a retry."""

    first: SequenceNumber
    last: SequenceNumber
    retry: RetryRead | None


def settle_shard(
    state: ShardState,
    result: ShardReadResult,
    plan_id: str,
    planned: ShardSlice,
    unresolved: Sequence[UnresolvedRecord] = (),
) -> ShardState:
    """Return the state after all records of the read `result` are acked, except for `unresolved`,
    which are queued exactly as given. `unresolved` is empty if the batch is not tracked, or if all
    records of the shard succeeded.

    Raises `PlanMismatchError` for a read result that contradicts itself or does not fit the state,
    and for `unresolved` records that were not read, or not as one read. Raises ValueError for a
    result or a slice of another shard.
    """
    if state.settled_plan == plan_id:
        return state
    _check(state, planned, result)
    _check_position(state, planned, result, plan_id)
    # The outcomes were decided before, so neither the policy nor the randomness is ever asked. The
    # tracker queues exhausted records like others: the outcome says what is dead-lettered.
    tracker = InflightRecordTracker(
        state, retry_policy=_NEVER_ASKED, random=_NEVER_DRAWN_FROM, restore_exhausted=False
    )
    retries = retries_read(planned.retries, result)
    reads = [_Read(read.retry.first, read.last, read) for read in retries]
    if result.first is not None and result.last is not None:
        reads.append(_Read(result.first, result.last, None))
    reads = sorted(reads, key=lambda read: read.first)
    for read, left in zip(reads, _by_read(state.shard_id, plan_id, reads, unresolved), strict=True):
        try:
            _apply(tracker, read, result, left)
        except IllegalTrackerEventError as exc:
            raise _mismatch(state.shard_id, plan_id, str(exc)) from exc
    if result.at_shard_end:
        tracker.reach_end()
    verified_ms = state.verified_until_ms
    if verified_ms is not None and result.last_arrival_ms is not None:
        verified_ms = verified_by_first_read(
            verified_ms, state.read_position, result.last_arrival_ms
        )
    known_times = (verified_ms, result.last_arrival_ms, result.tip_ms)
    verified_until_ms = max(
        (time_ms for time_ms in known_times if time_ms is not None), default=None
    )
    # A slice without new records (`max_records` 0) reads retries only, which says nothing about the
    # tip: the last answer stays.
    at_tip = state.at_tip if planned.max_records == 0 else result.at_tip
    return replace(
        tracker.snapshot(), settled_plan=plan_id, verified_until_ms=verified_until_ms, at_tip=at_tip
    )


def children_first(
    changes: Iterable[StateChange],
    ends: Iterable[ShardReadResult],
    known: Collection[str],
    *,
    tracked_since_ms: int | None = None,
) -> list[StateChange]:
    """The `changes`, preceded by the first states of all children that `ends` name, except for
    those in `known`. A child starts at its oldest record.

    Write them in this order. A child's state is then stored no later than its parent's end, so a
    process that stops between two writes leaves a parent that is read again, not a child that
    nobody knows.

    `tracked_since_ms`: the latest service time by which every shard was known to be tracked. No
    record of a child can have been missed before it.
    """
    children: dict[str, ShardState] = {}
    for end in ends:
        # The time at which the parent's end was read proves nothing by itself: the parent may have
        # been closed, and its children written to, long before. So the earlier time counts.
        times_ms = (tracked_since_ms, end.tip_ms)
        verified_ms = min((ms for ms in times_ms if ms is not None), default=None)
        for child in end.children:
            if child.shard_id not in known and child.shard_id not in children:
                children[child.shard_id] = ShardState(
                    shard_id=child.shard_id,
                    read_position=TRIM_HORIZON,
                    parents=child.parents,
                    verified_until_ms=verified_ms,
                )
    return [*(StateChange(before=None, after=child) for child in children.values()), *changes]


def _apply(
    tracker: InflightRecordTracker,
    read: _Read,
    result: ShardReadResult,
    left: Sequence[UnresolvedRecord],
) -> None:
    if read.retry is None:
        # Of a range none of whose user records the shard owns, nothing was handed over.
        count = result.count or (1 if read.first == read.last else 2)
        tracker.emit_span(read.first, read.last, count)
    else:
        planned, stored = read.retry.retry, tracker.failed(read.first, NodeState.QUEUED)
        if stored is None:
            return  # another process has resolved it since: a late ack, or a late failure
        if stored.last != planned.end or stored.attempts != planned.attempts:
            raise IllegalTrackerEventError(
                f"shard {tracker.shard_id}: the batch retried the records {read.first} to "
                f"{planned.end} in attempt {planned.attempts + 1}, but the stored range is "
                f"{stored.first} to {stored.last} with {stored.attempts} attempts"
            )
        tracker.retry(read.first)
        rest = read.retry.rest_of(stored)
        left = left if rest is None else [*left, rest]
        # It was read as it had failed, whatever the option is now.
        left = [replace(record, whole=stored.whole) for record in left]
    tracker.ack_except(read.first, left)


def _by_read(
    shard_id: str, plan_id: str, reads: Sequence[_Read], unresolved: Sequence[UnresolvedRecord]
) -> list[list[UnresolvedRecord]]:
    """The unresolved records of each read, one list per read. Raises `PlanMismatchError` if a
    record lies in none of the reads, or the records are not ascending.
    """
    found: list[list[UnresolvedRecord]] = [[] for _ in reads]
    if any(not a.last < b.first for a, b in pairwise(unresolved)):
        raise _mismatch(
            shard_id, plan_id, "the failed records of the batch are not in ascending order"
        )
    # Both lists ascend, so one pass over both is enough.
    number = 0
    for record in unresolved:
        while number < len(reads) and reads[number].last < record.first:
            number += 1
        if (
            number == len(reads)
            or record.first < reads[number].first
            or reads[number].last < record.last
        ):
            raise _mismatch(
                shard_id,
                plan_id,
                f"the batch did not read the failed records {record.first} to {record.last} as "
                "one range",
            )
        found[number].append(record)
    return found


def _check(state: ShardState, planned: ShardSlice, result: ShardReadResult) -> None:
    for what, given in (("read result", result), ("slice", planned)):
        if given.shard_id != state.shard_id:
            raise ValueError(
                f"the {what} of shard {given.shard_id} cannot be stored in the state of shard "
                f"{state.shard_id}; pass the state of the same shard"
            )
    if (
        result.count < 0
        or (result.first is None) != (result.last is None)
        or (result.first is None and result.count > 0)
    ):
        raise PlanMismatchError(
            f"the read result of shard {result.shard_id} contradicts itself, because it counts "
            f"{result.count} records from {result.first} to {result.last}"
        )
    part, planned_retries = result.retry_part, len(planned.retries)
    if not 0 <= result.retries_done <= planned_retries - (part is not None):
        raise PlanMismatchError(
            f"the read result of shard {result.shard_id} counts {result.retries_done} read "
            f"retries, but the batch planned {planned_retries} retries"
        )
    if part is not None:
        retry = planned.retries[result.retries_done]
        if not retry.first <= part.last < part.rest <= retry.end or part.count < 1:
            raise PlanMismatchError(
                f"the read result of shard {result.shard_id} has an invalid part of the retried "
                f"range {retry.first} to {retry.end}: {part.count} records up to {part.last}, "
                f"and the rest from {part.rest}"
            )


def _check_position(
    state: ShardState, planned: ShardSlice, result: ShardReadResult, plan_id: str
) -> None:
    """Refuse a plan that a later one was settled after, and a range from another position."""
    plan_number(plan_id)
    if state.settled_plan is not None and plan_number(state.settled_plan) > plan_number(plan_id):
        raise _mismatch(
            state.shard_id,
            plan_id,
            f"the outcomes of the later batch {state.settled_plan} are already stored",
        )
    reads_new = planned.max_records > 0 or result.first is not None
    position = result.position or planned.position
    if reads_new and position != state.read_position:
        raise _mismatch(
            state.shard_id,
            plan_id,
            f"the batch was read from {position}, but the stored read position is "
            f"{state.read_position}",
        )


def _mismatch(shard_id: str, plan_id: str, what: str) -> PlanMismatchError:
    return PlanMismatchError(f"batch {plan_id} does not fit the state of shard {shard_id}: {what}")
