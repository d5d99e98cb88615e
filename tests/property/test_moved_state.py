"""Random states and positions: a moved state keeps the invariant of `state.shard_state`, and a
tracker takes it.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.moves import is_before, moved_state, position_outside_ranges
from state.position import SHARD_END, TRIM_HORIZON, Position, PositionKind
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.tracker.inflight_record_tracker import InflightRecordTracker

# A shard of Kinesis records 1 to 12; each third one is an aggregate of four user records.
USERS = [
    SequenceNumber(number, sub) for number in range(1, 13) for sub in range(1 if number % 3 else 4)
]
NOW_MS = 1_000
_RANDOM = Random(0)  # noqa: S311  # jitter of delays


@st.composite
def states(draw: st.DrawFn) -> ShardState:
    """Read up to some record, with unresolved ones before that, alone or in ranges."""
    read = draw(st.integers(0, 12))
    known = [number for number in USERS if number.sequence <= read]
    bounds = draw(st.sets(st.integers(0, max(0, len(known) - 1)), max_size=8)) if known else set()
    ends = sorted(bounds)
    unresolved = []
    while ends:
        first = ends.pop(0)
        is_range = bool(ends) and draw(st.booleans())
        last = ends.pop(0) if is_range else first
        whole = not is_range and not known[first].sub and draw(st.booleans())
        if whole:  # of an aggregate that is unresolved as a whole, no other record is
            while ends and known[ends[0]].shares_record(known[first]):
                ends.pop(0)
        unresolved.append(
            UnresolvedRecord(
                first=known[first],
                last=known[last],
                count=2 if is_range else 1,
                attempts=draw(st.integers(0, 3)),
                due_ms=draw(st.integers(0, 9)),
                whole=whole,
            )
        )
    limit = unresolved[0].first.sequence - 1 if unresolved else read
    checkpoint = draw(st.integers(0, limit))
    ended = read == 12 and draw(st.booleans())
    position = Position.after(SequenceNumber(read)) if read else TRIM_HORIZON
    return ShardState(
        shard_id="shardId-000000000001",
        checkpoint=SequenceNumber(checkpoint) if checkpoint else None,
        read_position=SHARD_END if ended else position,
        unresolved=tuple(unresolved),
        parents=("shardId-000000000000",),
        settled_plan="3-aa",
        verified_until_ms=NOW_MS - 1,
        at_tip=draw(st.booleans()),
    )


positions = st.one_of(
    st.sampled_from([TRIM_HORIZON, SHARD_END, Position.at_timestamp(5)]),
    st.sampled_from(USERS).map(Position.at),
    st.sampled_from(USERS).map(Position.after),
)


def waits(state: ShardState, number: SequenceNumber) -> bool:
    """Whether the record is unresolved, alone, in a range, or in an aggregate that is as a
    whole.
    """
    return any(
        one.first <= number <= one.last or (one.whole and one.first.shares_record(number))
        for one in state.unresolved
    )


@given(states(), positions)
def test_each_record_is_read_again_or_is_what_it_was(state: ShardState, wanted: Position) -> None:
    """Never both unresolved and read again, and no unresolved record is lost."""
    to = position_outside_ranges(state, wanted)
    after = moved_state(state, to, verified_until_ms=NOW_MS)
    for number in USERS:
        assert is_before(number, wanted) or not is_before(number, to), "not after what was wanted"
        is_passed = is_before(number, to)
        assert waits(after, number) == (waits(state, number) and is_passed)
    known = [state.checkpoint, to.sequence if to.kind is PositionKind.AFTER else None]
    safe = [
        one
        for one in known
        if one is not None
        and not one.sub
        and all(is_before(number, to) for number in USERS if number.shares_record(one))
        and not any(waits(after, number) for number in USERS if number.sequence <= one.sequence)
    ]
    if after is not state:  # where it stays, its checkpoint stays, too
        # Nobody knows here how many user records an aggregate has: at one, the checkpoint may be
        # lower than it could be.
        is_inside = to.sequence is not None and to.sequence.sub
        assert after.checkpoint == max(safe, default=None) or (
            is_inside and after.checkpoint in {None, *safe}
        )
        assert (after.verified_until_ms, after.at_tip) == (NOW_MS, False)
    assert after.read_position == to
    assert (after.parents, after.settled_plan) == (state.parents, state.settled_plan)


@given(states(), positions)
def test_a_tracker_and_the_codec_take_a_moved_state(state: ShardState, wanted: Position) -> None:
    """And the lifecycle says whether the end was read."""
    to = position_outside_ranges(state, wanted)
    after = moved_state(state, to, verified_until_ms=NOW_MS)
    tracker = InflightRecordTracker(after, retry_policy=RetryPolicy(), random=_RANDOM)
    assert tracker.snapshot().read_position == to
    data, stored = encode_shard_state(after, "path")
    assert decode_shard_state(data, after.shard_id, "path") == stored == after
    assert after.end_was_read == (after.lifecycle is not Lifecycle.ACTIVE)
    assert after.finished == (after.end_was_read and not after.unresolved)


@given(states())
def test_a_move_to_where_it_is_changes_nothing(state: ShardState) -> None:
    assert moved_state(state, state.read_position, verified_until_ms=NOW_MS) is state


@given(states(), positions, positions)
def test_moving_on_by_a_detour_is_never_more_than_moving_at_once(
    state: ShardState, first: Position, second: Position
) -> None:
    """What is dropped on the way back does not come back by moving on: it was skipped."""
    detour = moved_state(state, position_outside_ranges(state, first), verified_until_ms=NOW_MS)
    there = moved_state(detour, position_outside_ranges(detour, second), verified_until_ms=NOW_MS)
    assert set(there.unresolved) <= set(state.unresolved)
