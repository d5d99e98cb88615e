"""The records of one shard that are in flight, and the checkpoint that follows from them.

`state.tracker.transitions` has the theory of operation, and the table of the events that are
allowed in each state. This module applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.collections import DueQueue, ShrinkingDict
from state.errors import IllegalTrackerEventError
from state.position import SHARD_END, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import TIMED_OUT
from state.tracker.nodes import (
    Node,
    NodeList,
    restored_nodes,
    snapshot_of,
    split_span,
    stored_record,
)
from state.tracker.transitions import TRANSITIONS, Effect, Event, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from state.retry_policy import RetryPolicy
    from state.shard_state import ShardState, UnresolvedRecord

UNANSWERED = "its process ended without an answer"
"""The stored reason of an announced emission (`InflightRecordTracker.announce`). A restored tracker
knows such a record by it.
"""


def parse_message_id(message_id: object) -> tuple[str, SequenceNumber, int]:
    """Shard id, sequence number and attempt of `shardId:sequence[.sub]:attempt`. Raises ValueError
    for anything else.

    In a query of several streams the shard id is `stream/shardId`; the stream may be an ARN.
    """
    parts = message_id.rsplit(":", 2) if isinstance(message_id, str) else []
    if len(parts) != 3 or not parts[2].isascii() or not parts[2].isdecimal():
        raise ValueError(
            f"{message_id!r} is not a message id; pass a record's message id unchanged"
        )
    return parts[0], SequenceNumber.parse(parts[1]), int(parts[2])


class InflightRecordTracker:
    """Tracks the records of one shard from their first emission until they are resolved.

    Restored from a `ShardState`, and saved to one by `snapshot`.

    - Cost: emit, ack and fail are O(1) amortised, however much is in flight. An event that enters a
      record into the queue of retries or of deadlines costs O(log n) at worst.
    - Memory: O(unresolved records + gaps). A gap is a run of acked records between two unresolved
      ones; it costs one node, however long it is.
    - Purity: no I/O and no clock. Times (milliseconds since 1970) and randomness are arguments.
    - Threads: not safe from several threads at a time. The caller holds a lock.
    - Errors: an event that the table does not allow raises `IllegalTrackerEventError` and changes
      nothing. An outcome of an unknown emission changes nothing and returns `Effect.UNKNOWN`.

    An emission is registered before its record is handed out, so no ack can come too early. It is
    named by a record, or the first record of a span, and its attempt, counted from 1.
    """

    def __init__(
        self,
        state: ShardState,
        *,
        retry_policy: RetryPolicy,
        random: Random,
        restore_exhausted: bool = True,
    ) -> None:
        """Restore from `state`: each unresolved record is queued, with the attempts that it had.

        A record that `retry_policy` does not allow to be tried again is restored as exhausted.
        With `restore_exhausted=False` it is queued as well; settling needs that, because it applies
        decisions and makes none. Raises `StoredDataError` when `state` contradicts itself.
        """
        self._state = state
        self._policy = retry_policy
        self._random = random
        self._nodes = NodeList()
        self._counts = dict.fromkeys(NodeState, 0)
        self._retries: DueQueue[SequenceNumber] = DueQueue()
        self._deadlines: DueQueue[SequenceNumber] = DueQueue()
        self._exhausted: ShrinkingDict[SequenceNumber, Node] = ShrinkingDict()
        # Every record up to `_acked_to` is acked. `_acked_below`: the greatest known number of an
        # earlier Kinesis record than that one's.
        self._acked_to = state.checkpoint
        self._acked_below: SequenceNumber | None = None
        self._emitted = False
        self._end_reached = state.read_position.is_end
        self._bound = state.checkpoint
        self._bound_is_next = False
        # `_bound` is the lower bound of the next emission: the number of the last record read.
        for node in restored_nodes(state, retry_policy if restore_exhausted else None):
            self._enter(node)
            self._bound = node.last
            if node.state is NodeState.QUEUED:
                self._retries.put(node.first, stored_record(node).due_ms)
            elif node.state is NodeState.EXHAUSTED:
                self._exhausted[node.first] = node
        if state.read_position.sequence is not None:
            self._bound = state.read_position.sequence
            # AT names a record that was not read yet, so that number itself may still be emitted.
            self._bound_is_next = state.read_position.kind is PositionKind.AT

    # observations ---------------------------------------------------------------------------------
    @property
    def shard_id(self) -> str:
        return self._state.shard_id

    @property
    def checkpoint(self) -> SequenceNumber | None:
        """The greatest known sequence number up to which every record is acked, inclusive. None
        until the first record is.

        It counts Kinesis records, so it stays below an aggregate until all of it is acked.
        """
        acked_to = self._acked_to
        if acked_to is None:
            return None
        head = self._nodes.sentinel.after
        waits = head is not self._nodes.sentinel and head.first.shares_record(acked_to)
        rest = self._bound if self._bound_is_next else None
        if waits or (rest is not None and rest.sub and rest.shares_record(acked_to)):
            acked_to = self._acked_below
        return None if acked_to is None else acked_to.whole

    @property
    def read_position(self) -> Position:
        """Where to read on: after the last emitted record, at its aggregate's rest, or the end."""
        if self._end_reached:
            return SHARD_END
        if self._emitted and self._bound is not None:
            if self._bound_is_next:
                return Position.at(self._bound)
            return Position.after(self._bound.whole)
        return self._state.read_position

    @property
    def next_retry_ms(self) -> int | None:
        """When the earliest queued retry is due, or None when none is queued."""
        return self._retries.next_ms()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the earliest pending emission times out, or None when none has a deadline."""
        return self._deadlines.next_ms()

    def deadline_ms(self, sequence: SequenceNumber) -> int | None:
        """When a pending emission times out, or None when it has no deadline."""
        return self._deadlines.due_ms(sequence)

    @property
    def exhausted(self) -> tuple[UnresolvedRecord, ...]:
        """The records that the caller must dead-letter, in the order in which they were exhausted.
        The caller then calls `dead_lettered` for each.
        """
        return tuple(stored_record(node) for node in self._exhausted.values())

    @property
    def letters(self) -> int:
        """The number of letters that `exhausted` needs: a range has one. O(1)."""
        return len(self._exhausted)

    def failed(self, sequence: SequenceNumber, *states: NodeState) -> UnresolvedRecord | None:
        """The failures so far of the record, or of the range with this first number, if it is in
        one of these states; None also if it has not failed. The same object until the next outcome.
        """
        node = self._nodes.get(sequence)
        return node.record if node is not None and node.state in states else None

    def is_pending(self, sequence: SequenceNumber, attempt: int) -> bool:
        """Whether this emission has no outcome yet."""
        node = self._nodes.get(sequence)
        return node is not None and node.state is NodeState.PENDING and attempt == node.deliveries

    @property
    def oldest_pending(self) -> SequenceNumber | None:
        """The first number of the first pending record or span, or None. O(nodes)."""
        if not self.count(NodeState.PENDING):
            return None
        return next(node.first for node in self._nodes if node.state is NodeState.PENDING)

    @property
    def last_read(self) -> SequenceNumber | None:
        """A number that no emission so far lies above; None before the first."""
        return self._bound

    def count(self, state: NodeState) -> int:
        """Number of records in an unresolved state; a span counts with all of its records. For
        ACKED: the number of records acked since the tracker was created.
        """
        return self._counts[state]

    def snapshot(self) -> ShardState:
        """The state to store. A tracker restored from it delivers exactly the unresolved records
        again, each with its attempts. O(nodes).
        """
        return snapshot_of(self._state, self._nodes, self.checkpoint, self.read_position)

    # emissions ------------------------------------------------------------------------------------
    def emit(self, sequence: SequenceNumber, *, deadline_ms: int | None = None) -> None:
        """Register a record's first emission. Records come in ascending order of their sequence
        numbers. With `deadline_ms`, `expire` fails the emission at that time.
        """
        self._append(sequence, sequence, 1)
        if deadline_ms is not None:
            self._deadlines.put(sequence, deadline_ms)

    def emit_span(self, first: SequenceNumber, last: SequenceNumber, count: int) -> None:
        """Register the first emission of `count` records, ends inclusive, which share a node."""
        if last < first or count < 1 or (count == 1) != (first == last):
            raise IllegalTrackerEventError(
                f"shard {self.shard_id}: the sequence numbers {first} to {last} cannot be a "
                f"span of {count} records",
                "pass the first sequence number, the last sequence number and the record "
                "count of one read",
            )
        self._append(first, last, count)

    def leave_rest(self, rest: SequenceNumber) -> None:
        """Note that the last emitted user record is not the last one of its aggregate: `rest` is
        the next, and the next emission. Without this call the aggregate counts as emitted.
        """
        bound = self._bound
        if not (self._emitted and bound is not None and bound < rest and rest.shares_record(bound)):
            raise self._illegal("rest", rest, f"not in the same Kinesis record after {bound}")
        self._bound, self._bound_is_next = rest, True

    def due_retry(self, now_ms: int) -> SequenceNumber | None:
        """The first number of the queued record or range that is due, or None.

        The earliest due comes first; equal times come in the order of their numbers. A record that
        has passed the policy's maximum age is never returned: see `exhaust_aged`.
        """
        self.exhaust_aged(now_ms)
        return self._retries.first_due(now_ms)

    def exhaust_aged(self, now_ms: int) -> list[SequenceNumber]:
        """Exhaust the queued records and ranges that have passed the policy's maximum age, before
        the next one that is due and has not. Returns their first numbers.

        A record ages while it waits, so the policy is asked again at the time of the retry.
        """
        aged: list[SequenceNumber] = []
        while (sequence := self._retries.first_due(now_ms)) is not None:
            node = self._known(Event.RETRY, sequence)
            record = stored_record(node)
            first_ms = record.first_counted_failure_ms
            if not self._policy.exhausted(record.attempts, first_ms, now_ms):
                break
            self._move(node, Event.EXHAUST)
            self._retries.discard(sequence)
            self._exhausted[sequence] = node
            aged.append(sequence)
        return aged

    def postpone(self, sequence: SequenceNumber, due_ms: int) -> None:
        """Change when a queued record is due, in memory only: its stored due time stays."""
        node = self._known(Event.RETRY, sequence)
        if node.state is not NodeState.QUEUED:
            raise self._illegal("postpone", sequence, node.state.value)
        self._retries.put(sequence, due_ms)

    def retry(self, sequence: SequenceNumber, *, deadline_ms: int | None = None) -> int:
        """Emit this queued record, or the range with this first number, again, due or not. Returns
        the attempt.
        """
        node = self._known(Event.RETRY, sequence)
        self._move(node, Event.RETRY)
        self._retries.discard(sequence)
        if deadline_ms is not None:
            self._deadlines.put(sequence, deadline_ms)
        return node.deliveries

    def announce(self, sequence: SequenceNumber, now_ms: int) -> None:
        """Let the state have this pending emission as failed, due at once, until it has an outcome.

        If the process ends before that, a tracker restored from the state has the attempt counted.
        Here nothing is counted: the outcome of the emission is the only one.
        """
        node = self._known(Event.FAIL, sequence)
        if node.state is not NodeState.PENDING:
            raise self._illegal("announcement", sequence, node.state.value)
        node.announced = self._failed(node, now_ms, UNANSWERED, counts=True, due_ms=now_ms)

    def withdraw(self, sequence: SequenceNumber) -> None:
        """Take an announcement back, as at an orderly end; a no-op without one."""
        node = self._nodes.get(sequence)
        if node is not None:
            node.announced = None

    def reach_end(self) -> None:
        """Note that the shard ends after the last emitted record: no emission may follow."""
        self._end_reached = True

    # outcomes -------------------------------------------------------------------------------------
    def ack(self, sequence: SequenceNumber, attempt: int) -> Effect:
        """Ack a record, or the span with this first number. An ack of an earlier attempt counts as
        well: the record was processed.
        """
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        self._resolve(node, Event.ACK)
        return Effect.ACKED

    def ack_except(self, first: SequenceNumber, unresolved: Sequence[UnresolvedRecord]) -> None:
        """Ack a pending record, span or range except for `unresolved` (ascending), which are queued
        exactly as given.

        Each of `unresolved` is a record of it, or a range of consecutive records of it; of a
        restored range, they may be all the records that were found in it. A rejected one is
        exhausted instead of queued. The retry policy is not applied: the caller has applied it.
        """
        node = self._known(Event.ACK, first)
        if not unresolved:
            self._resolve(node, Event.ACK)
            return
        self._split(node, unresolved)
        for record in unresolved:
            self._put_back(self._known(Event.FAIL, record.first), record, again=not record.rejected)

    def fail(
        self,
        sequence: SequenceNumber,
        attempt: int,
        now_ms: int,
        *,
        reason: str | None = None,
        retry: bool = True,
        counts: bool = True,
    ) -> Effect:
        """Fail a record, or the whole span with this first number. It is queued for a retry, or
        exhausted if the policy allows none.

        IGNORED unless the record is pending in `attempt`: only the latest can fail, and only once.

        - `retry`: False rejects the record. It is exhausted at once, whatever the policy says.
        - `counts`: False for a failure that the record did not cause, as in an outage. The record
          is queued with the attempts and the first failure that it had, so its next delivery has
          the same attempt number as this one.
        """
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        if not self.is_pending(sequence, attempt):
            return Effect.IGNORED
        record = self._failed(node, now_ms, reason, counts=counts)
        again = retry and not (
            counts and self._policy.exhausted(record.attempts, record.first_failure_ms, now_ms)
        )
        node.uncounted = not counts
        self._put_back(node, record if retry else replace(record, rejected=True), again=again)
        return Effect.QUEUED if again else Effect.EXHAUSTED

    def extend(self, sequence: SequenceNumber, attempt: int, deadline_ms: int | None) -> bool:
        """Move a pending emission's deadline (None: no deadline). False when it is not pending."""
        if not self.is_pending(sequence, attempt):
            return False
        if deadline_ms is None:
            self._deadlines.discard(sequence)
        else:
            self._deadlines.put(sequence, deadline_ms)
        return True

    def expire(self, now_ms: int) -> list[tuple[SequenceNumber, int]]:
        """Fail all pending emissions that are due by `now_ms`. Returns their numbers and attempts,
        the earliest deadline first.
        """
        expired = []
        while (sequence := self._deadlines.pop_due(now_ms)) is not None:
            attempt = self._known(Event.FAIL, sequence).deliveries
            self.fail(sequence, attempt, now_ms, reason=TIMED_OUT)
            expired.append((sequence, attempt))
        return expired

    def dead_lettered(self, sequence: SequenceNumber) -> Effect:
        """Note that an exhausted record was written to the dead letters: it counts as acked.
        UNKNOWN when a late ack came first.
        """
        node = self._nodes.get(sequence)
        if node is None or node.state is NodeState.ACKED:
            return Effect.UNKNOWN
        self._resolve(node, Event.DEAD_LETTER)
        return Effect.ACKED

    # private --------------------------------------------------------------------------------------
    def _enter(self, node: Node) -> None:
        self._nodes.append(node)
        if node.state is not NodeState.ACKED:
            self._counts[node.state] += node.count

    def _move(self, node: Node, event: Event) -> None:
        state = TRANSITIONS.get((event, node.state))
        if state is None:
            raise self._illegal(event.value, node.first, node.state.value)
        self._counts[node.state] -= node.count
        self._counts[state] += node.count
        node.state = state

    def _resolve(self, node: Node, event: Event) -> None:
        self._move(node, event)
        self._forget_waits(node)
        node.record = node.announced = None
        self._collapse(node)

    def _forget_waits(self, node: Node) -> None:
        self._retries.discard(node.first)
        self._deadlines.discard(node.first)
        self._exhausted.drop(node.first)

    def _collapse(self, node: Node) -> None:
        """Of the run of acked nodes that a node has just become part of, keep the last; if that is
        the first node, move the checkpoint over it.
        """
        before, last = node.before, node.after
        node.follow(before)
        last.follow(node)
        if before.state is NodeState.ACKED:
            self._nodes.remove(before)
        if last.state is NodeState.ACKED:
            self._nodes.remove(node)
        else:
            last = node
        if last.before is self._nodes.sentinel:  # every record up to the end of that node is acked
            self._nodes.remove(last)
            reached = self._acked_to
            if reached is None or not reached.shares_record(last.last):
                self._acked_below = reached if last.below is None else last.below
            self._acked_to = last.last

    def _split(self, span: Node, failed: Sequence[UnresolvedRecord]) -> None:
        """Replace a pending span by pending nodes for what failed of it; the rest is acked."""
        # Raises before anything is changed.
        pieces = split_span(self.shard_id, span, failed)
        left = sum(record.count for record in failed)
        place = span.before
        self._forget_waits(span)
        self._nodes.remove(span)
        self._counts[NodeState.PENDING] += left - span.count
        # A restored range may hold more records than its count says, so the rest may be negative.
        self._counts[NodeState.ACKED] += max(span.count - left, 0)
        for piece in pieces:
            self._nodes.insert(piece, place)
            place = piece
        # Only the span's own ends can be acked pieces; everything between them is pending.
        for piece in (pieces[0], pieces[-1]):
            if piece.state is NodeState.ACKED:
                self._collapse(piece)

    def _known(self, event: Event, sequence: SequenceNumber) -> Node:
        node = self._nodes.get(sequence)
        if node is None:
            raise self._illegal(event.value, sequence, "unknown or acked already")
        return node

    def _illegal(
        self, event: str, sequence: SequenceNumber, state: str
    ) -> IllegalTrackerEventError:
        return IllegalTrackerEventError(
            f"shard {self.shard_id}: {event} of record {sequence} is not allowed, because the "
            f"record is {state}; nothing was changed"
        )

    def _append(self, first: SequenceNumber, last: SequenceNumber, count: int) -> None:
        bound = self._bound
        if self._is_passed(first) or self._end_reached:
            node = self._nodes.get(first)
            where = (
                "after the end of the shard"
                if self._end_reached
                else f"not after {bound}, which was emitted already"
            )
            raise self._illegal("emission", first, where if node is None else node.state.value)
        self._enter(Node(first, last, count, NodeState.PENDING))
        self._bound = last
        self._bound_is_next = False
        self._emitted = True

    def _is_passed(self, number: SequenceNumber) -> bool:
        bound = self._bound
        if bound is None or (self._bound_is_next and number == bound):
            return False
        # A stored position AFTER an aggregate covers all user records of it.
        is_stored = not self._emitted and not self._bound_is_next
        return not bound < number or (is_stored and number.shares_record(bound))

    def _failed(
        self,
        node: Node,
        now_ms: int,
        reason: str | None,
        *,
        counts: bool,
        due_ms: int | None = None,
    ) -> UnresolvedRecord:
        record = stored_record(node)
        attempts = record.attempts + counts
        is_first = counts and record.first_counted_failure_ms is None
        if due_ms is None:
            due_ms = self._policy.due_ms(attempts, now_ms, self._random)
        return replace(
            record,
            attempts=attempts,
            due_ms=due_ms,
            first_failure_ms=now_ms if is_first else record.first_failure_ms,
            last_failure_ms=now_ms,
            reason=reason,
            blocked=record.blocked and not counts,  # now it has failed itself
        )

    def _put_back(self, node: Node, record: UnresolvedRecord, *, again: bool) -> None:
        """Store `record` for a pending node that failed: it is queued (`again`), or exhausted."""
        self._move(node, Event.FAIL if again else Event.EXHAUST)
        node.record = record
        self._deadlines.discard(node.first)
        node.announced = None
        if again:
            self._retries.put(node.first, record.due_ms)
        else:
            self._exhausted[node.first] = node
