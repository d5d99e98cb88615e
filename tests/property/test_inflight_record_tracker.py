"""Random histories of one shard against the naive oracle: emissions, spans, outcomes in any order,
time-outs, restarts.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.position import Position, PositionKind
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord
from state.tracker.transitions import Effect, NodeState
from tests.support.state.tracker import (
    check_structure,
    fresh_state,
    make_tracker,
    restart,
    take_retry,
)
from tests.support.state.tracker_oracle import FIRST_DELAY_MS, LIMIT, MAX_AGE_MS, Oracle

POLICY = RetryPolicy(
    retry_limit=LIMIT,
    first_delay_ms=FIRST_DELAY_MS,
    max_delay_ms=10_000,
    jitter=0,
    max_age_ms=MAX_AGE_MS,
)
STEPS = st.integers(1, 3)
# What a tracker keeps for others, from its first state on.
FIRST_STATE = replace(
    fresh_state(), parents=("shardId-9",), settled_plan="4-a", verified_until_ms=5, at_tip=True
)


class TrackerMachine(RuleBasedStateMachine):
    """The tracker agrees with a walk over all records.

    `group`: that many numbers make one Kinesis record. With more than one, they are the user
    records of an aggregate, of which some are not there.
    """

    group = 1

    def __init__(self) -> None:
        super().__init__()
        self.tracker = make_tracker(policy=POLICY, state=FIRST_STATE)
        self.oracle = Oracle(self.group)
        self.now_ms = 0
        self.made: list[tuple[int, int]] = []
        self.checkpoint: SequenceNumber | None = None
        self.ended = False
        self.closed = False

    def seq(self, number: int) -> SequenceNumber:
        return SequenceNumber(*divmod(number, self.group))

    def number(self, sequence: SequenceNumber) -> int:
        return sequence.sequence * self.group + sequence.sub

    def leave_rest(self) -> None:
        """Tell the tracker of the rest of the aggregate that was emitted in part."""
        if (rest := self.oracle.rest) is not None:
            self.tracker.leave_rest(self.seq(rest))

    # emissions ------------------------------------------------------------------------------------
    def may_read(self) -> bool:
        return not self.ended and (not self.closed or self.oracle.read < len(self.oracle.shard))

    @initialize(count=st.integers(0, 4))
    def begin(self, count: int) -> None:
        self.emit(count, 1, None, more=False)

    @precondition(may_read)
    @rule(
        count=st.integers(1, 4),
        step=STEPS,
        patience_ms=st.none() | st.integers(0, 500),
        more=st.booleans(),
    )
    def emit(self, count: int, step: int, patience_ms: int | None, *, more: bool) -> None:
        deadline_ms = None if patience_ms is None else self.now_ms + patience_ms
        unread = len(self.oracle.shard) - self.oracle.read
        numbers = self.oracle.take_unread(min(count, unread) if self.closed else count, step)
        for number in numbers:
            self.oracle.emit([number], deadline_ms)
            self.tracker.emit(self.seq(number), deadline_ms=deadline_ms)
            self.made.append((number, 1))
        if numbers:
            self.oracle.lengthen(more=more and not self.closed)
            self.leave_rest()

    @precondition(lambda self: self.may_read() and not self.closed)
    @rule(step=STEPS, count=st.integers(2, 6), more=st.booleans())
    def emit_span(self, step: int, count: int, *, more: bool) -> None:
        numbers = self.oracle.take_unread(count, step)
        self.oracle.emit(numbers)
        self.tracker.emit_span(self.seq(numbers[0]), self.seq(numbers[-1]), count)
        self.made.append((numbers[0], 1))
        self.oracle.lengthen(more=more)
        self.leave_rest()

    @precondition(lambda self: self.oracle.read > 0)
    @rule(data=st.data())
    def emit_again(self, data: Any) -> None:
        number = data.draw(st.sampled_from(self.oracle.shard[: self.oracle.read]))
        with pytest.raises(IllegalTrackerEventError):
            self.tracker.emit(self.seq(number))

    @rule(patience_ms=st.none() | st.integers(0, 500))
    def take_retry(self, patience_ms: int | None) -> None:
        deadline_ms = None if patience_ms is None else self.now_ms + patience_ms
        taken = take_retry(self.tracker, self.now_ms, deadline_ms=deadline_ms)
        emission = None if taken is None else (self.number(taken[0]), taken[1])
        assert emission == self.oracle.take_retry(self.now_ms, deadline_ms)
        if emission is not None:
            self.made.append(emission)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def retry_one(self, data: Any) -> None:
        first, _ = data.draw(st.sampled_from(self.made))
        entry = self.oracle.find(first)
        if entry is None or entry.status != "queued":
            with pytest.raises(IllegalTrackerEventError):
                self.tracker.retry(self.seq(first))
            return
        emission = first, self.tracker.retry(self.seq(first))
        assert emission == self.oracle.retry(entry)
        self.made.append(emission)

    @precondition(lambda self: self.oracle.in_status("queued"))
    @rule(data=st.data(), later_ms=st.integers(0, 500))
    def postpone(self, data: Any, later_ms: int) -> None:
        """In memory only: the stored time stays."""
        entry = data.draw(st.sampled_from(self.oracle.in_status("queued")))
        entry.postponed_ms = self.now_ms + later_ms
        self.tracker.postpone(self.seq(entry.first), self.now_ms + later_ms)

    @precondition(lambda self: self.oracle.read == len(self.oracle.shard))
    @rule()
    def reach_end(self) -> None:
        self.ended = self.closed = True
        self.tracker.reach_end()
        with pytest.raises(IllegalTrackerEventError, match="after the end of the shard"):
            self.tracker.emit(self.seq(10**6))

    # outcomes -------------------------------------------------------------------------------------
    @precondition(lambda self: self.oracle.in_status("pending"))
    @rule(data=st.data())
    def ack_some_that_are_pending(self, data: Any) -> None:
        pending = [(entry.first, entry.deliveries) for entry in self.oracle.in_status("pending")]
        for first, attempt in data.draw(
            st.lists(st.sampled_from(pending), unique=True, max_size=4)
        ):
            self.oracle.ack(first, attempt)
            self.tracker.ack(self.seq(first), attempt)
            self.list_and_map_agree()
            self.checkpoint_is_that_of_the_oracle_and_moves_on_only()

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def ack_any(self, data: Any) -> None:
        first, attempt = data.draw(st.sampled_from(self.made))
        assert self.tracker.ack(self.seq(first), attempt) is self.oracle.ack(first, attempt)

    @precondition(lambda self: self.made)
    @rule(
        data=st.data(),
        retry=st.sampled_from([True, True, True, False]),
        counts=st.sampled_from([True, True, False]),
        reason=st.sampled_from([None, "why"]),
    )
    def fail(self, data: Any, *, retry: bool, counts: bool, reason: str | None) -> None:
        # An attempt before the last is rare among all that were made, and it must change nothing.
        retried = [one for one in self.made if one[1] > 1]
        late = [(first, attempt - 1) for first, attempt in retried]
        first, attempt = data.draw(st.sampled_from(late or self.made) | st.sampled_from(self.made))
        how: dict[str, Any] = {"retry": retry, "counts": counts, "reason": reason}
        expected = self.oracle.fail(first, attempt, self.now_ms, **how)
        assert self.tracker.fail(self.seq(first), attempt, self.now_ms, **how) is expected

    @precondition(lambda self: self.made)
    @rule(data=st.data(), patience_ms=st.none() | st.integers(0, 500))
    def extend(self, data: Any, patience_ms: int | None) -> None:
        first, attempt = data.draw(st.sampled_from(self.made))
        deadline_ms = None if patience_ms is None else self.now_ms + patience_ms
        assert self.tracker.extend(self.seq(first), attempt, deadline_ms) is self.oracle.extend(
            first, attempt, deadline_ms
        )

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def announce(self, data: Any) -> None:
        first, attempt = data.draw(st.sampled_from(self.made))
        entry = self.oracle.find(first)
        is_pending = entry is not None and entry.status == "pending"
        assert self.tracker.is_pending(self.seq(first), attempt) is (
            entry is not None and is_pending and attempt == entry.deliveries
        )
        if entry is None or not is_pending:
            with pytest.raises(IllegalTrackerEventError):
                self.tracker.announce(self.seq(first), self.now_ms)
            return
        self.tracker.announce(self.seq(first), self.now_ms)
        entry.announced_ms = self.now_ms

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def withdraw(self, data: Any) -> None:
        first, _ = data.draw(st.sampled_from(self.made))
        self.tracker.withdraw(self.seq(first))
        if (entry := self.oracle.find(first)) is not None:
            entry.announced_ms = None

    @rule(number=st.integers(0, 50), attempt=st.integers(-1, 6))
    def outcome_of_anything(self, number: int, attempt: int) -> None:
        one = self.seq(number)
        assert self.tracker.fail(one, attempt, self.now_ms) is self.oracle.fail(
            number, attempt, self.now_ms
        )
        assert self.tracker.ack(one, attempt) is self.oracle.ack(number, attempt)
        entry = self.oracle.find(number)
        if entry is None or not entry.unresolved:
            assert self.tracker.dead_lettered(one) is Effect.UNKNOWN
        elif entry.status != "exhausted":
            with pytest.raises(IllegalTrackerEventError):
                self.tracker.dead_lettered(one)
        if entry is None or entry.status != "queued":
            for refused in (lambda: self.tracker.retry(one), lambda: self.tracker.postpone(one, 0)):
                with pytest.raises(IllegalTrackerEventError):
                    refused()

    @precondition(lambda self: self.oracle.in_status("pending"))
    @rule(data=st.data(), attempts=st.integers(0, 4), due_ms=st.integers(0, 5_000))
    def ack_except(self, data: Any, attempts: int, due_ms: int) -> None:
        span = data.draw(st.sampled_from(self.oracle.in_status("pending")))
        fails = [number for number in span.numbers if data.draw(st.booleans())]
        runs = (
            joined(span.numbers, fails)
            if data.draw(st.booleans())
            else [[number] for number in fails]
        )
        left = [
            UnresolvedRecord(
                first=self.seq(run[0]),
                last=self.seq(run[-1]),
                count=len(run),
                attempts=attempts,
                due_ms=due_ms,
            )
            for run in runs
        ]
        self.tracker.ack_except(self.seq(span.first), left)
        self.oracle.queue_again(span, runs, attempts, due_ms)
        self.made += [(run[0], attempts) for run in runs]

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def late_outcome_of_a_part(self, data: Any) -> None:
        """To ack the rest of it now would ack records whose delivery has failed as a whole."""
        first, attempt = data.draw(st.sampled_from(self.made))
        entry = self.oracle.find(first)
        if entry is not None and entry.status == "pending":
            return
        number = self.seq(first)
        left = [UnresolvedRecord(first=number, last=number, attempts=attempt, due_ms=0)]
        with pytest.raises(IllegalTrackerEventError):
            self.tracker.ack_except(number, left)

    @rule()
    def expire(self) -> None:
        expired = [
            (self.number(sequence), attempt)
            for sequence, attempt in self.tracker.expire(self.now_ms)
        ]
        assert expired == self.oracle.expire(self.now_ms)

    @precondition(lambda self: self.oracle.exhausted)
    @rule()
    def dead_letter(self) -> None:
        first = self.tracker.exhausted[0].first
        entry = self.oracle.find(self.number(first))
        assert entry is not None
        self.oracle.resolve(entry)
        self.tracker.dead_lettered(first)

    # time and restarts ----------------------------------------------------------------------------
    @rule(passed_ms=st.integers(1, 700))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    # Not too often: most situations take several steps between two restarts.
    @rule(chance=st.integers(0, 3))
    def restart(self, chance: int) -> None:
        if chance == 0:
            self.die_and_start_again()

    def die_and_start_again(self) -> None:
        state = self.tracker.snapshot()
        self.tracker = restart(self.tracker, POLICY)
        assert self.tracker.snapshot() == state
        self.oracle.restart(state)
        self.ended = state.read_position.is_end

    # invariants -----------------------------------------------------------------------------------
    @invariant()
    def list_and_map_agree(self) -> None:
        check_structure(self.tracker)

    @invariant()
    def checkpoint_is_that_of_the_oracle_and_moves_on_only(self) -> None:
        checkpoint = self.tracker.checkpoint
        assert (None if checkpoint is None else checkpoint.sequence) == self.oracle.checkpoint
        if self.checkpoint is not None:
            assert checkpoint is not None
            assert self.checkpoint <= checkpoint
        self.checkpoint = checkpoint
        passed = [
            entry
            for entry in self.oracle.entries
            if entry.unresolved
            and checkpoint is not None
            and self.seq(entry.first).sequence <= checkpoint.sequence
        ]
        assert not passed

    @invariant()
    def what_is_stored_is_what_a_restart_needs(self) -> None:
        """Wherever the process ends: each unresolved record is in the stored ranges or is read
        again, never both.
        """
        state = self.tracker.snapshot()
        tail = self.oracle.unread_tail()
        stored = [
            (
                self.number(u.first),
                self.number(u.last),
                u.count,
                u.attempts,
                u.due_ms,
                u.first_failure_ms,
                u.last_failure_ms,
                u.reason,
                u.rejected,
            )
            for u in state.unresolved
        ]
        assert stored == [
            entry.stored()
            for entry in self.oracle.entries
            if entry.unresolved and entry not in tail
        ]
        in_ranges = {
            number
            for u in state.unresolved
            for number in self.oracle.shard
            if u.first <= self.seq(number) <= u.last
        }
        in_rest = {
            number
            for number in self.oracle.shard
            if is_behind(self.seq(number), state.read_position)
        }
        assert not in_ranges & in_rest
        assert in_ranges | in_rest == self.oracle.to_deliver_again()
        assert state.checkpoint is None or not state.checkpoint.sub
        assert state.finished == (state.end_was_read and not state.unresolved)

    @invariant()
    def memory_follows_what_is_unresolved(self) -> None:
        unresolved = [entry for entry in self.oracle.entries if entry.unresolved]
        assert len(list(self.tracker._nodes)) <= 2 * len(unresolved)
        for status in ("pending", "queued", "exhausted"):
            assert self.tracker.count(NodeState(status)) == sum(
                len(entry.numbers) for entry in self.oracle.in_status(status)
            )

    @invariant()
    def what_waits_is_what_the_oracle_waits_for(self) -> None:
        queued, pending = self.oracle.in_status("queued"), self.oracle.in_status("pending")
        assert self.tracker.next_retry_ms == min((one.next_ms for one in queued), default=None)
        oldest = self.seq(pending[0].first) if pending else None
        assert self.tracker.oldest_pending == oldest
        for entry in self.oracle.entries:
            awaited = self.tracker.failed(
                self.seq(entry.first), NodeState.QUEUED, NodeState.PENDING
            )
            is_stored = entry.has_failed or entry.found_alone
            assert (awaited is not None) is (is_stored and entry in (*queued, *pending))
            if awaited is not None:
                assert awaited.attempts == entry.attempts
            is_queued = self.tracker.failed(self.seq(entry.first), NodeState.QUEUED) is not None
            assert is_queued is (entry in queued)
        deadlines = [entry.deadline_ms for entry in pending if entry.deadline_ms is not None]
        assert self.tracker.next_deadline_ms == min(deadlines, default=None)
        assert [
            self.number(record.first) for record in self.tracker.exhausted
        ] == self.oracle.exhausted


def joined(numbers: list[int], fails: list[int]) -> list[list[int]]:
    """Runs of failing records whose numbers follow each other."""
    runs: list[list[int]] = []
    for index, number in enumerate(numbers):
        if number in fails:
            if index and runs and runs[-1][-1] == numbers[index - 1]:
                runs[-1].append(number)
            else:
                runs.append([number])
    return runs


def is_behind(number: SequenceNumber, position: Position) -> bool:
    """Whether a read from `position` brings the record `number`."""
    if position.kind is PositionKind.TRIM_HORIZON:
        return True
    if position.sequence is None:
        return False
    if position.kind is PositionKind.AT:
        return position.sequence <= number
    return position.sequence.sequence < number.sequence


class AggregateMachine(TrackerMachine):
    """As `TrackerMachine`, for a shard of aggregates: outcomes are of user records, the checkpoint
    is of Kinesis records.
    """

    group = 3


TestTracker = TrackerMachine.TestCase
TestAggregates = AggregateMachine.TestCase
