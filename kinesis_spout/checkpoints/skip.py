"""Gives up unresolved records of a shard, so that its checkpoint passes them.

A record that is given up counts as acked. The rest of the shard stays as it is, and so does its
read position: what an open plan has read is settled at the job's next start. That plan cannot bring
the records back, since settling leaves alone a retry that the state does not have any more.

A range of records that are unresolved together has no known records between its ends, so it is
given up as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.application.session import close_open_plan
from kinesis_spout.checkpoints.moves import MoveRefusedError, unknown_shard
from kinesis_spout.checkpoints.record import status_of
from state.failpoint import failpoint
from state.retry_policy import RetryPolicy
from state.store.shard_states import StateChange, StoredState
from state.tracker.inflight_record_tracker import InflightRecordTracker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord
    from state.store.plans import PlanStore
    from state.store.shard_states import ShardStateStore


@dataclass(frozen=True, slots=True)
class Skip:
    """What is to be written: a stored state, the records and ranges that are given up, and the
    state without them.
    """

    stored: StoredState
    after: ShardState
    records: tuple[UnresolvedRecord, ...]

    @property
    def before(self) -> ShardState:
        return self.stored.state

    @property
    def count(self) -> int:
        """The number of records; a range counts with all of its records."""
        return sum(record.count for record in self.records)


def find_skip(
    states: Mapping[str, StoredState], shard_id: str, numbers: Collection[SequenceNumber] | None
) -> Skip:
    """What giving up these unresolved records does, or all of the shard if `numbers` is None. Pure.

    Raises `MoveRefusedError` for an unknown shard, and for a number that is not unresolved.
    """
    if shard_id not in states:
        raise unknown_shard(shard_id, states)
    stored = states[shard_id]
    unresolved = stored.state.unresolved
    if numbers is None:
        return Skip(stored, without(stored.state, unresolved), unresolved)
    chosen = [_named(stored.state, number) for number in numbers]
    records = tuple(record for record in unresolved if record in chosen)
    return Skip(stored, without(stored.state, records), records)


def without(state: ShardState, records: Collection[UnresolvedRecord]) -> ShardState:
    """The state in which these of its unresolved records are acked. Pure."""
    tracker = InflightRecordTracker(
        state,
        retry_policy=RetryPolicy(),  # neither is asked: nothing fails
        random=Random(0),  # noqa: S311  # as said
        restore_exhausted=False,
    )
    for record in records:
        emission = tracker.retry(record.first)
        tracker.ack(emission.sequence, emission.attempt)
    return tracker.snapshot() if records else state


def write_skip(shard_states: ShardStateStore, plans: PlanStore, skip: Skip) -> None:
    """Close the open plan, and write the state. The caller owns all of the application.

    Raises `ConflictError` where the state has changed since it was read.
    """
    close_open_plan(plans)
    shard_states.save([StateChange(before=skip.stored, after=skip.after)])
    failpoint("states-moved")


def _named(state: ShardState, number: SequenceNumber) -> UnresolvedRecord:
    status, record = status_of(state, number, None)
    if record is None:
        raise MoveRefusedError(
            f"record {number} of shard {state.shard_id} is not unresolved but {status}, so it "
            "cannot be skipped",
            "look at the record with `kinesis-spout peek`",
        )
    return record
