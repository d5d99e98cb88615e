"""A stored state says which records are resolved."""

from __future__ import annotations

from msgspec.structs import replace

from kinesis_spout.drills.history.states import is_resolved, states_by_shard
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord
from tests.support.drills.short_history import SHARD, S, sample, state


def test_a_state_resolves_what_it_has_read_but_for_its_unresolved_records() -> None:
    """The position `at` a record does not include it; a shard's end includes all."""
    assert [is_resolved(state(2, 1), 100 + number) for number in range(4)] == [
        True,
        False,
        True,
        False,
    ]
    at = replace(state(2), read_position=Position.at(SequenceNumber(102)))
    assert [is_resolved(at, 101), is_resolved(at, 102)] == [True, False]
    assert is_resolved(replace(state(2), read_position=SHARD_END), 9_000)


def test_a_range_of_whole_records_has_all_of_their_user_records() -> None:
    """Another range ends with the user record that it names."""
    waits = UnresolvedRecord(
        first=SequenceNumber(101), last=SequenceNumber(102), count=2, attempts=1, due_ms=0
    )
    places = [(100, 5), (101, 5), (102, 0), (102, 5)]
    for is_whole, expected in ((False, [True, False, False, True]), (True, [True] + [False] * 3)):
        one = replace(state(3), unresolved=(replace(waits, whole=is_whole),))
        assert [is_resolved(one, *place) for place in places] == expected


def test_the_last_state_that_was_read_counts() -> None:
    """None before the first, and none where it was removed."""
    samples = [sample(1, state(1)), sample(2, state(1)), sample(3, state(2)), sample(4)]
    states = states_by_shard(samples)[SHARD]
    known = [states.known_at(round(at_s * S)) for at_s in (0.5, 2.5, 3, 4)]
    read = [None if one is None else str(one.state.read_position) for one in known]
    assert read == [None, "AFTER:101", "AFTER:102", None]
    assert len(states.views) == 3
