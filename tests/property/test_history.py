"""The history of an application that runs, reshards and is moved by an operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.application.history_recorder import INTERVAL_S, MARGIN_MS, HistoryRecorder
from kinesis_spout.checkpoints.recorded_move import recorded_move
from kinesis_spout.checkpoints.rewind import read_history
from kinesis_spout.testing import ManualClock
from state.codec.history import mark_of
from state.memory_store import MemoryStateStore
from state.moves.history import (
    MAX_ENTRIES,
    Past,
    earlier,
    max_entries,
    merged,
    past_at,
    resume_position,
    to_drop,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.store.history import HistoryEntry
from state.store.shard_states import StateChange, StoredState
from tests.support.state.state_stores import OWNER

RETENTION_MS = 3_600_000
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["settle", "settle", "settle", "fail", "split", "move", "restart", "kill"]),
        st.integers(0, 7),
        st.one_of(st.integers(0, 120_000), st.integers(0, 2_000)),
    ),
    max_size=60,
)


def position(number: int) -> Position:
    return Position.after(SequenceNumber(number)) if number else TRIM_HORIZON


@dataclass
class Application:
    """What consumes a stream, and the truth of each time: the positions before which all was acked.
    A shard that is not in it has no state yet.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStateStore = field(default_factory=MemoryStateStore)
    truth: list[tuple[int, dict[str, Position]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.ownership.acquire(OWNER, timeout_s=1)
        self.write(ShardState(shard_id="s0", read_position=TRIM_HORIZON))
        self.do_restart(0)
        self.record()

    def states(self) -> dict[str, StoredState]:
        return dict(self.store.shard_states.load())

    def write(self, state: ShardState) -> None:
        before = self.states().get(state.shard_id)
        self.store.shard_states.move([StateChange(before, state)])
        self.note()

    def note(self) -> None:
        positions = {shard: resume_position(one.state) for shard, one in self.states().items()}
        self.truth.append((self.clock.now_ms(), positions))

    def told_ms(self) -> int:
        """What the service says the time is: its header is cut to whole seconds."""
        return self.clock.now_ms() // 1_000 * 1_000

    def record(self) -> None:
        self.recorder.record(self.states(), now_ms=self.told_ms(), retention_ms=RETENTION_MS)

    def chosen(self, shard: int) -> ShardState:
        states = sorted(self.states().items())
        return states[shard % len(states)][1].state

    def do(self, step: str, shard: int, wait_ms: int) -> None:
        getattr(self, f"do_{step}")(shard)
        self.clock.advance(wait_ms / 1_000)
        self.record()

    def do_settle(self, shard: int) -> None:
        self._go_on(self.chosen(shard), unresolved=())

    def do_fail(self, shard: int) -> None:
        """The next record fails, and the one after it is acked."""
        state = self.chosen(shard)
        if state.end_was_read:
            return
        number = SequenceNumber(_number(state) + 1)
        self._go_on(
            state,
            unresolved=state.unresolved
            or (UnresolvedRecord(first=number, last=number, attempts=1, due_ms=0),),
        )

    def _go_on(self, state: ShardState, unresolved: tuple[UnresolvedRecord, ...]) -> None:
        read = SHARD_END if state.end_was_read else position(_number(state) + 2)
        self.write(
            ShardState(
                shard_id=state.shard_id,
                read_position=read,
                unresolved=unresolved,
                lifecycle=Lifecycle.ACTIVE if not state.end_was_read else Lifecycle.DRAINED,
            )
        )

    def do_split(self, shard: int) -> None:
        state = self.chosen(shard)
        if not state.end_was_read:
            for child in {f"{state.shard_id}{name}" for name in "ab"} - self.states().keys():
                self.write(ShardState(shard_id=child, read_position=TRIM_HORIZON))
            self.write(
                ShardState(
                    shard_id=state.shard_id,
                    read_position=SHARD_END,
                    unresolved=state.unresolved,
                    lifecycle=Lifecycle.DRAINED,
                )
            )

    def do_move(self, number: int) -> None:
        """All shards are moved by an operator, some back, some forward."""
        states = self.states()
        moved = self._moved(number)
        with recorded_move(self.store, "set", moved, now_ms=self.told_ms):
            self.store.shard_states.move([StateChange(states[one.shard_id], one) for one in moved])
            self.note()
            self.clock.advance(number / 5)
        self.do_restart(0)

    def do_restart(self, _: int) -> None:
        self.recorder = HistoryRecorder(self.store.history, self.clock)

    def do_kill(self, number: int) -> None:
        """In the middle of a move, before the states are written."""
        move = recorded_move(self.store, "set", self._moved(number), now_ms=self.told_ms)
        move.__enter__()
        self.do_restart(0)

    def _moved(self, number: int) -> list[ShardState]:
        return [
            ShardState(shard_id=shard, read_position=position(number + at % 3 * number))
            for at, shard in enumerate(sorted(self.states()))
        ]

    def truth_at(self, time_ms: int) -> dict[str, Position]:
        return [positions for at_ms, positions in self.truth if at_ms <= time_ms][-1]


def _number(state: ShardState) -> int:
    return 0 if state.read_position.sequence is None else state.read_position.sequence.sequence


def is_not_ahead(past: Past, truth: dict[str, Position]) -> bool:
    """Whether nothing is skipped: a shard that the past does not have goes to its beginning."""
    return all(
        shard in truth and earlier(at, truth[shard]) == at for shard, at in past.positions.items()
    )


@given(steps=STEPS, back_ms=st.one_of(st.integers(0, 4_000_000), st.integers(0, 5_000)))
def test_who_goes_back_lands_after_no_record_that_was_not_acked_then(
    steps: list[tuple[str, int, int]], back_ms: int
) -> None:
    """Whatever failed, was resharded, moved, restarted or killed."""
    application = Application()
    for step in steps:
        application.do(*step)
    entries = read_history(application.store.history)
    since = [at_ms for at_ms, _ in application.truth]
    for time_ms in (*since, application.clock.now_ms() - back_ms):
        past = past_at(entries, time_ms)
        if past is not None:
            assert is_not_ahead(past, application.truth_at(time_ms))


@given(
    steps=st.lists(st.tuples(st.just("settle"), st.just(0), st.integers(0, 60_000)), max_size=60)
)
def test_it_lands_where_the_application_was_at_the_last_entry(
    steps: list[tuple[str, int, int]],
) -> None:
    """While something goes on, entries are no further apart than the interval and a pause."""
    application = Application()
    for step in steps:
        application.do(*step)
    pause_ms = max((wait_ms for _, _, wait_ms in steps), default=0)
    entries = read_history(application.store.history)
    for at_ms, _ in application.truth:
        then_ms = at_ms + round(INTERVAL_S * 1000) + MARGIN_MS + pause_ms
        if then_ms <= application.clock.now_ms():
            past, low = past_at(entries, then_ms), application.truth_at(at_ms)
            assert past is not None
            assert all(earlier(low[shard], past.positions[shard]) == low[shard] for shard in low)


@given(
    gaps_ms=st.lists(st.integers(1, 100_000), min_size=1, max_size=700),
    moves=st.sets(st.integers(0, 700), max_size=40),
    kept=st.integers(4, 60),
)
def test_the_history_is_bounded_and_thinned_without_getting_ahead(
    gaps_ms: list[int], moves: set[int], kept: int
) -> None:
    """A position counts from a later time on, or not at all any more; and the retention is kept."""
    entries: list[HistoryEntry] = []
    time_ms, number = 0, 0
    truth: list[tuple[int, int]] = []
    for at, gap_ms in enumerate(gaps_ms):
        time_ms += gap_ms
        number = number // 2 if at in moves else number + 1
        moved = at in moves
        entries.append(
            HistoryEntry(
                time_ms=time_ms,
                positions={"a": position(number + 1)},
                full=moved or not at,
                cause="set" if moved else None,
            )
        )
        truth.append((time_ms, number + 1))
        marks = [mark_of(index, one) for index, one in enumerate(entries)]
        drops = to_drop(marks, now_ms=time_ms, horizon_ms=time_ms - RETENTION_MS, max_kept=kept)
        assert all(later - sooner > 1 for sooner, later in pairwise(sorted(drops)))
        for drop in sorted(drops, reverse=True):
            entries[drop : drop + 2] = [merged(entries[drop], entries[drop + 1])]
        assert len(entries) <= kept + 1
    assert entries[0].full
    for at_ms, number in truth:
        past = past_at(entries, at_ms)
        if past is not None:
            assert earlier(past.positions["a"], position(number)) == past.positions["a"]
        if not moves and len(truth) <= kept and at_ms >= truth[-1][0] - RETENTION_MS:
            assert past is not None
            assert past.positions["a"] == position(number)
    assert max_entries(1) == MAX_ENTRIES
