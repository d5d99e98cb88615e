"""Random histories of a spout's shards against the naive oracle: turns, outcomes, time-outs, memory
limits, dead letters, restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.rotation import Phase
from kinesis_spout.spout.scheduler import SpoutScheduler
from kinesis_spout.spout.tracked_shard import LOOK_AGAIN_MS, RETRIES_IN_A_ROW, TrackedShard
from state.position import TRIM_HORIZON, PositionKind
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState
from state.tracker.transitions import Effect, NodeState
from tests.support.spout.spout_pages import FakePages, limits, page_of, payload, run_of
from tests.support.state.tracker import check_structure

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import AssignedShard

LIMIT = 1
FIRST_DELAY_MS = 100
POLICY = RetryPolicy(
    retry_limit=LIMIT, first_delay_ms=FIRST_DELAY_MS, max_delay_ms=10_000, jitter=0
)
SHARDS = ("shardId-0a", "shardId-0b", "shardId-0c")
ONE = len(payload(1_000))
INDEX = st.integers(0, 200)


@dataclass
class Entry:
    """One record. `status`: unread, pending, queued, exhausted or acked. `held`: its payload is in
    memory.
    """

    number: int
    status: str = "unread"
    attempts: int = 0
    due_ms: int = 0
    deadline_ms: int | None = None
    held: bool = True
    gone: bool = False

    @property
    def is_unresolved(self) -> bool:
        return self.status in {"pending", "queued", "exhausted"}

    @property
    def deliveries(self) -> int:
        """Attempts for which an ack still counts."""
        return {
            "pending": self.attempts + 1,
            "queued": self.attempts,
            "exhausted": self.attempts,
        }.get(self.status, 0)

    def fail(self, now_ms: int, *, retry: bool) -> str:
        self.attempts += 1
        self.due_ms = now_ms + FIRST_DELAY_MS * 2 ** (self.attempts - 1)
        self.deadline_ms = None
        self.status = "queued" if retry and self.attempts <= LIMIT else "exhausted"
        return self.status


@dataclass
class ShardOracle:
    """One shard. `closed`: its last page was put. `in_a_row`: retries since the last new record.
    `unbroken`: the same, and since the last idle turn.
    """

    entries: list[Entry] = field(default_factory=list)
    closed: bool = False
    in_a_row: int = 0
    unbroken: int = 0

    def find(self, number: int) -> Entry:
        return next(entry for entry in self.entries if entry.number == number)

    def of(self, *statuses: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.status in statuses]

    @property
    def unresolved(self) -> int:
        return sum(entry.is_unresolved for entry in self.entries)

    def due(self, now_ms: int) -> list[Entry]:
        """Due retries, in their order."""
        found = [entry for entry in self.of("queued") if entry.due_ms <= now_ms]
        return sorted(found, key=lambda entry: (entry.due_ms, entry.number))


class SpoutMachine(RuleBasedStateMachine):
    """The spout does what a walk over all records would do. The arrival time of a record, in ms, is
    its number. `group` neighbouring numbers are of one Kinesis record: with more than one, they are
    the user records of an aggregate, of which some are not there.
    """

    group = 1

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.number = 1_000
        self.limits = limits()
        self.core = SpoutScheduler(self.limits, lambda: self.now_ms)
        self.oracles: dict[str, ShardOracle] = {}
        self.pages: dict[str, FakePages] = {}
        self.made: list[tuple[SpoutEmission, Entry]] = []
        self.checkpoints: dict[str, int] = {}
        self.waited: dict[str, set[str]] = {}
        self.was_at_limit = False
        self.emitted = self.retried = self.acked = self.failed = self.timed_out = self.dead = 0

    def seq(self, number: int) -> SequenceNumber:
        return SequenceNumber(*divmod(number, self.group))

    def number_of(self, sequence: SequenceNumber) -> int:
        return sequence.sequence * self.group + sequence.sub

    @initialize(
        shards=st.integers(1, 3),
        pending=st.sampled_from([1, 3, 100]),
        unresolved=st.sampled_from([1, 4, 100]),
        timeout_s=st.none() | st.just(0.15),
        held=st.sampled_from([1, 2 * ONE, 1 << 20]),
    )
    def begin(
        self, shards: int, pending: int, unresolved: int, timeout_s: float | None, held: int
    ) -> None:
        self.limits = limits(
            max_pending=pending,
            max_unresolved_per_shard=unresolved,
            message_timeout_s=timeout_s,
            prefetch_bytes=held,
        )
        self.core = SpoutScheduler(self.limits, lambda: self.now_ms)
        for shard_id in SHARDS[:shards]:
            self.oracles[shard_id] = ShardOracle()
            self.assign(ShardState(shard_id=shard_id, read_position=TRIM_HORIZON), [])
        for which in range(shards):
            self.page(which, 5, at_tip=False, ended=False)

    def assign(self, state: ShardState, unread: list[int]) -> None:
        pages = self.pages[state.shard_id] = FakePages(
            *([page_of(unread, group=self.group)] if unread else [])
        )
        oracle = self.oracles[state.shard_id]
        if oracle.closed:
            pages.add(page_of([], ended=True, time_ms=self.now_ms))
        source = None if state.end_was_read else pages
        never_drawn_from = Random(0)  # noqa: S311  # as its name says
        self.core.add(
            TrackedShard(state, retry_policy=POLICY, random=never_drawn_from, pages=source)
        )

    def assigned(self, shard_id: str) -> AssignedShard:
        return self.core.assigned[shard_id]

    # pages ----------------------------------------------------------------------------------------
    def open_shards(self) -> list[str]:
        return [shard_id for shard_id, oracle in self.oracles.items() if not oracle.closed]

    @precondition(lambda self: self.open_shards())
    @rule(
        which=INDEX,
        count=st.integers(0, 7),
        at_tip=st.booleans(),
        ended=st.integers(0, 9).map(lambda n: n == 0),
    )
    def page(self, which: int, count: int, at_tip: bool, ended: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        shard_id = self.open_shards()[which % len(self.open_shards())]
        self.number = max(self.number, self.now_ms)  # nothing arrives before the tip that was seen
        numbers = list(range(self.number, self.number + count))
        self.number += count
        self.number += -self.number % self.group  # no aggregate is on two pages
        self.now_ms = self.number
        oracle = self.oracles[shard_id]
        oracle.entries += [Entry(number) for number in numbers]
        oracle.closed = ended
        self.pages[shard_id].add(
            page_of(
                numbers,
                shard_id=shard_id,
                at_tip=at_tip,
                ended=ended,
                time_ms=self.now_ms,
                group=self.group,
            )
        )
        self.core.reschedule(self.assigned(shard_id))

    @rule(ms=st.sampled_from([1, 50, 100, 200, 2_000]))
    def tick(self, ms: int) -> None:
        self.now_ms += ms

    # emissions ------------------------------------------------------------------------------------
    @rule(times=st.integers(1, 8))
    def emit(self, times: int) -> None:
        for _ in range(times):
            self.emit_one()

    @precondition(lambda self: self.oracles)
    @rule(records=st.integers(0, 3), begins=st.integers(0, 3).map(lambda n: n == 0))
    def begin_isolation(self, records: int, begins: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        if begins:
            self.core.rotation.isolate(records)

    def emit_isolated(self) -> SpoutEmission | None:
        """As `emit`, with the commits that isolated delivery waits for."""
        isolation = self.core.rotation.isolation
        isolated = isolation.emission
        if isolated is not None:
            assert isolation.phase >= Phase.OUT
            if isolation.waits_for_outcome:
                assert not self.core.rotation.may_emit(self.now_ms)
                assert self.core.emit() is None, "two isolated deliveries at a time"
                return None
            isolation.on_commit(isolated, with_outcome=True)
        delivery, told = self.core.emit(), isolation.emission
        if delivery is not None or told is None or told is isolated:
            return delivery
        assert self.core.emit() is None, "a delivery that is not stored"
        state = told.assigned.shard.snapshot()
        assert (told.sequence, told.attempt) in [
            (one.first, one.attempts) for one in state.unresolved
        ]
        isolation.on_commit(told, with_outcome=False)
        assert self.core.rotation.may_emit(self.now_ms)
        assert self.core.emit() is told
        return told

    @property
    def isolated_one(self) -> SpoutEmission | None:
        """The isolated delivery without an outcome."""
        isolation = self.core.rotation.isolation
        return isolation.emission if isolation.waits_for_outcome else None

    def emit_one(self) -> None:
        at_limit = self.core.rotation.pending >= self.limits.max_pending
        assert self.core.rotation.at_limit == at_limit
        ready = {shard_id for shard_id in self.oracles if self.has_turn(shard_id, new=not at_limit)}
        if self.isolated_one is not None:
            assert self.emit_isolated() is None
            return
        isolation = self.core.rotation.isolation
        if isolation.emission is not None:
            isolation.on_commit(isolation.emission, with_outcome=True)
        if ready:
            assert self.core.rotation.may_emit(self.now_ms)
        for shard_id in self.oracles.keys() - ready:
            self.oracles[shard_id].unbroken = 0
        delivery = self.emit_isolated()
        self.put_aside()
        if delivery is None:
            assert not ready, f"nothing came, though {ready} have something"
            return
        shard_id = delivery.shard_id
        oracle = self.oracles[shard_id]
        entry = oracle.find(self.number_of(delivery.sequence))
        assert delivery.data == payload(entry.number)
        assert delivery.attempt == entry.attempts + 1
        due = [one for one in oracle.due(self.now_ms) if one.held]
        unread = oracle.of("unread")
        if entry.status == "unread":
            assert not at_limit
            assert oracle.unresolved < self.limits.max_unresolved_per_shard
            assert entry is unread[0], "out of order"
            assert not due or oracle.in_a_row >= RETRIES_IN_A_ROW, (
                "a new record came before a due retry"
            )
            oracle.in_a_row = oracle.unbroken = 0
        else:
            assert entry is due[0], f"{entry} came before {due}"
            may_be_new = (
                bool(unread)
                and not at_limit
                and oracle.unresolved < self.limits.max_unresolved_per_shard
            )
            assert oracle.unbroken < RETRIES_IN_A_ROW or not may_be_new, "new records starve"
            oracle.in_a_row += 1
            oracle.unbroken += 1
        self.check_turn(shard_id, ready, at_limit=at_limit)
        entry.status = "pending"
        timeout_ms = self.limits.message_timeout_ms
        entry.deadline_ms = None if timeout_ms is None else self.now_ms + timeout_ms
        self.emitted += 1
        self.retried += delivery.attempt > 1
        self.made.append((delivery, entry))

    def has_turn(self, shard_id: str, *, new: bool) -> bool:
        oracle = self.oracles[shard_id]
        if any(entry.held for entry in oracle.due(self.now_ms)):
            return True
        return (
            new
            and bool(oracle.of("unread"))
            and oracle.unresolved < self.limits.max_unresolved_per_shard
        )

    def put_aside(self) -> None:
        """Due retries that are not in memory, before the first one that is. Those of shards that
        just had their turn are examined later.
        """
        for shard_id, oracle in self.oracles.items():
            tracker = self.assigned(shard_id).shard.tracker
            for entry in oracle.of("queued"):
                due_ms = tracker._retries._due_ms.get(self.seq(entry.number))
                if due_ms is None:
                    continue  # it was just emitted, or its record is known to be gone
                assert due_ms == entry.due_ms or (
                    not entry.held and due_ms == self.now_ms + LOOK_AGAIN_MS
                )
                entry.due_ms = due_ms

    def check_turn(self, shard_id: str, ready: set[str], *, at_limit: bool) -> None:
        """Between two turns of a shard that always has something to emit, each other shard has one
        turn at most.
        """
        if at_limit != self.was_at_limit:
            self.waited.clear()
        self.was_at_limit = at_limit
        self.waited = {one: passed for one, passed in self.waited.items() if one in ready}
        for one in ready - {shard_id}:
            passed = self.waited.setdefault(one, set())
            assert shard_id not in passed, f"{shard_id} had two turns while {one} waited"
            passed.add(shard_id)
        self.waited.pop(shard_id, None)

    @rule(times=st.integers(1, 8), failing=st.integers(0, 3), ms=st.sampled_from([0, 100, 300]))
    def turn(self, times: int, failing: int, ms: int) -> None:
        """Some are emitted, the newest of them fail, time passes: most other rules need this."""
        self.emit(times)
        for which in range(len(self.made) - min(failing, len(self.made)), len(self.made)):
            self.fail(which, retry=True)
        self.now_ms += ms

    # outcomes -------------------------------------------------------------------------------------
    @precondition(lambda self: self.made)
    @rule(which=INDEX)
    def ack(self, which: int) -> None:
        delivery, entry = self.made[which % len(self.made)]
        counts = delivery.attempt <= entry.deliveries
        assert self.core.resolve(delivery) == counts
        self.resolve(entry, counts=counts)

    def resolve(self, entry: Entry, *, counts: bool) -> None:
        if counts:
            entry.status, entry.deadline_ms = "acked", None
            self.acked += 1

    @precondition(lambda self: self.made)
    @rule(which=INDEX)
    def ack_by_id(self, which: int) -> None:
        delivery, entry = self.made[which % len(self.made)]
        counts = delivery.attempt <= entry.deliveries
        assigned, sequence = delivery.assigned, delivery.sequence
        found = assigned.shard.find(sequence, delivery.attempt)
        if found is None:
            answered = self.core.answer_unheld(
                delivery.shard_id, sequence, delivery.attempt, acked=True
            )
            assert answered == counts
        else:
            assert self.core.resolve(SpoutEmission.of(assigned, found)) == counts
        self.resolve(entry, counts=counts)

    @precondition(lambda self: self.made)
    @rule(which=INDEX, retry=st.integers(0, 5).map(bool))
    def fail(self, which: int, retry: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        delivery, entry = self.made[which % len(self.made)]
        effect = self.core.record_failure(delivery, "no", retry=retry)
        if entry.status == "pending" and delivery.attempt == entry.attempts + 1:
            assert effect.value == entry.fail(self.now_ms, retry=retry)
            self.failed += 1
        else:
            assert effect is (
                Effect.IGNORED if delivery.attempt <= entry.deliveries else Effect.UNKNOWN
            )

    @precondition(lambda self: self.made)
    @rule(which=INDEX, ms=st.none() | st.integers(1, 400))
    def extend(self, which: int, ms: int | None) -> None:
        delivery, entry = self.made[which % len(self.made)]
        deadline_ms = None if ms is None else self.now_ms + ms
        is_pending = entry.status == "pending" and delivery.attempt == entry.attempts + 1
        assert delivery.assigned.shard.extend(delivery, deadline_ms) == is_pending
        if is_pending:
            entry.deadline_ms = deadline_ms

    @rule(early=st.booleans())
    def expire(self, early: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        pending = [entry for oracle in self.oracles.values() for entry in oracle.of("pending")]
        deadlines = [entry.deadline_ms for entry in pending if entry.deadline_ms is not None]
        assert self.core.next_deadline_ms() == min(deadlines, default=None)
        if deadlines:
            self.now_ms = max(self.now_ms, min(deadlines) - early)
        late = [
            entry
            for entry in pending
            if entry.deadline_ms is not None and entry.deadline_ms <= self.now_ms
        ]
        expired = self.core.expire()
        assert sorted(self.number_of(delivery.sequence) for delivery in expired) == sorted(
            entry.number for entry in late
        )
        for entry in late:
            entry.fail(self.now_ms, retry=True)
        self.failed += len(late)
        self.timed_out += len(late)

    # payloads and letters -------------------------------------------------------------------------
    @precondition(lambda self: self.oracles)
    @rule(which=INDEX, gone=st.integers(0, 4).map(lambda n: n == 0))
    def read_again(self, which: int, gone: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        shard_id = list(self.oracles)[which % len(self.oracles)]
        shard, oracle = self.assigned(shard_id).shard, self.oracles[shard_id]
        wanted = [*shard.held.wanted(self.now_ms), *shard.held.wanted_letters()]
        self.put_aside()
        for record in wanted:
            entry = oracle.find(self.number_of(record.first))
            assert entry.status in {"queued", "exhausted"}
            assert not entry.held
            shard.held.restock(
                record, run_of(*() if gone else (entry.number,), group=self.group), self.now_ms
            )
            entry.held, entry.gone = not gone, gone
            if gone:
                entry.status = "exhausted"
            elif entry.status == "queued":
                entry.due_ms = self.now_ms
        self.core.reschedule(self.assigned(shard_id))
        assert all(entry.held or entry.gone for entry in oracle.of("exhausted"))

    @rule(most=st.integers(1, 3))
    def write_letters(self, most: int) -> None:
        for assigned, record in list(self.core.letters())[:most]:
            entry = self.oracles[assigned.shard.shard_id].find(self.number_of(record.first))
            assert entry.status == "exhausted"
            assert record.attempts == entry.attempts
            assert (assigned.shard.held.runs[record.first].size == 0) == entry.gone
            assert self.core.dead_lettered(assigned, record.first, 1)
            entry.status = "acked"
            self.dead += 1

    # the state ------------------------------------------------------------------------------------
    @rule()
    def commit(self) -> None:
        for shard_id in self.oracles:
            self.checked_state(shard_id)

    def checked_state(self, shard_id: str) -> ShardState:
        oracle = self.oracles[shard_id]
        state = self.assigned(shard_id).shard.snapshot()
        isolated = self.isolated_one
        alone = -1 if isolated is None else self.number_of(isolated.sequence)
        assert [(self.number_of(one.first), one.attempts) for one in state.unresolved] + [
            (entry.number, 0)
            for entry in oracle.entries
            if entry.is_unresolved and entry.number >= self.unread_from(state)
        ] == [
            (entry.number, entry.attempts + (entry.number == alone))
            for entry in oracle.entries
            if entry.is_unresolved
        ]
        unread = [entry for entry in oracle.entries if entry.number >= self.unread_from(state)]
        assert all(
            entry.status in {"unread", "pending"} and not entry.attempts for entry in unread
        ), "acked, and read again"
        assert all(entry.status != "unread" for entry in oracle.entries if entry not in unread), (
            "passed over"
        )
        if state.end_was_read:
            assert oracle.closed
            assert not any(
                entry.status == "pending" and not entry.attempts
                for entry in oracle.entries
                if entry.held
            )
        if state.lifecycle is Lifecycle.FINISHED:
            assert not oracle.unresolved
        checkpoint = -1 if state.checkpoint is None else state.checkpoint.sequence
        assert checkpoint >= self.checkpoints.get(shard_id, -1), "the checkpoint has moved back"
        self.checkpoints[shard_id] = checkpoint
        open_ones = [
            entry.number for entry in oracle.entries if entry.status in {"unread", "pending"}
        ]
        assert all(number // self.group > checkpoint for number in open_ones)
        untold = [entry.number for entry in unread]
        assert (
            state.verified_until_ms is None or not untold or state.verified_until_ms <= min(untold)
        )
        return state

    def unread_from(self, state: ShardState) -> int:
        """The first number that is read, or read again, in its first attempt."""
        position = state.read_position
        if position.is_end:
            return 1 << 60
        if position.sequence is None:
            return 0
        if position.kind is PositionKind.AT:
            return self.number_of(position.sequence)
        return (position.sequence.sequence + 1) * self.group

    @rule(really=st.integers(0, 5).map(lambda n: n == 0))
    def restart(self, really: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        if really:
            self.begin_again()

    def begin_again(self) -> None:
        """Only the stored state is left: the rest is read again, earlier emissions are unknown."""
        states = [self.checked_state(shard_id) for shard_id in self.oracles]
        self.core = SpoutScheduler(self.limits, lambda: self.now_ms)
        self.made.clear()
        self.waited.clear()
        self.emitted = self.retried = self.acked = self.failed = self.timed_out = self.dead = 0
        for state in states:
            oracle = self.oracles[state.shard_id]
            stored = {self.number_of(one.first): one for one in state.unresolved}
            for entry in oracle.entries:
                entry.deadline_ms = None
                entry.gone = False
                if entry.number in stored:
                    record = stored[entry.number]
                    entry.held, entry.due_ms = False, record.due_ms
                    entry.attempts = record.attempts  # one more where nobody answered
                    entry.status = (
                        "exhausted" if record.rejected or record.attempts > LIMIT else "queued"
                    )
                elif entry.number >= self.unread_from(state):
                    entry.status, entry.held = "unread", True
            oracle.in_a_row = oracle.unbroken = 0
            self.assign(state, [entry.number for entry in oracle.of("unread")])

    # invariants -----------------------------------------------------------------------------------
    @invariant()
    def counts_are_exact(self) -> None:
        if not self.oracles:
            return
        counts = [assigned.counts for assigned in self.core.assigned.values()]
        for name in ("emitted", "retried", "acked", "failed", "timed_out"):
            assert sum(getattr(one, name) for one in counts) == getattr(self, name), name
        assert sum(one.dead_lettered for one in counts) == self.dead
        assert self.core.rotation.pending == sum(
            len(oracle.of("pending")) for oracle in self.oracles.values()
        )

    @invariant()
    def shards_hold_what_is_unresolved_and_nothing_else(self) -> None:
        for shard_id, oracle in self.oracles.items():
            shard = self.assigned(shard_id).shard
            check_structure(shard.tracker)
            assert shard.pending == len(oracle.of("pending"))
            assert shard.waiting == len(oracle.of("queued", "exhausted"))
            held = shard.held
            here = {self.number_of(sequence) for sequence in held.runs}
            numbers = {self.number_of(one) for one, run in held.runs.items() if run.size}
            for entry in oracle.of("queued", "exhausted"):
                entry.held = entry.number in numbers
            assert numbers <= {entry.number for entry in oracle.entries if entry.is_unresolved}
            pending = {
                self.number_of(node.first)
                for node in shard.tracker._nodes
                if node.state is NodeState.PENDING
            }
            assert pending <= numbers, "the payload of a pending record was dropped"
            assert held.held_bytes == sum(len(payload(number)) for number in numbers)
            exhausted = {entry.number for entry in oracle.of("exhausted")}
            assert held.letter_bytes == sum(len(payload(one)) for one in numbers & exhausted)
            assert {self.number_of(one) for one in held._letters} == here & exhausted
            if not oracle.unresolved and not oracle.of("unread"):
                left = len(shard._runs), list(shard.tracker._nodes), held.held_bytes
                assert left == (0, [], 0)


class AggregateMachine(SpoutMachine):
    """As `SpoutMachine`, with shards of aggregates: outcomes, retries and letters are of user
    records, the checkpoint is of Kinesis records.
    """

    group = 3


TestSpout = SpoutMachine.TestCase
TestAggregates = AggregateMachine.TestCase
