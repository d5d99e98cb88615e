"""The checker of soaks accepts a history that keeps all promises, and rejects each bad one.

The good history: one shard of one key. Task 0 processes some records and is killed after its last
commit; its successor continues. Times are in steps of a second.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.drills.history.checks import (
    broken_promises,
    commit_delays,
    deliveries_s,
    handovers_s,
    is_resolved,
    repeats,
)
from kinesis_spout.drills.history.events import (
    Fate,
    Fault,
    History,
    Put,
    Sample,
    Step,
    Told,
    fate,
)
from kinesis_spout.drills.world.use import MIB, ProcessUse, UseSample, levels
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARD, CHILD = "shardId-000000000000", "shardId-000000000001"
KEY = "ann"
FIRST, SECOND = "first", "second"
S = 1_000_000_000


def told(
    at_s: float, step: Step, number: int = -1, run: str = FIRST, *, shard: str = SHARD
) -> Told:
    """A line about the record with this number, whose sequence number is 100 more."""
    at_ns = round(at_s * S)
    if step is Step.COMMIT:
        return Told(at_ns, step, shard, run)
    return Told(at_ns, step, shard, run, 100 + number, KEY, number, 1)


def state(read_to: int, *unresolved: int, shard: str = SHARD) -> ShardState:
    """A state that has read up to the record with this number."""
    first = min(unresolved, default=read_to + 1)
    return ShardState(
        shard_id=shard,
        checkpoint=SequenceNumber(100 + first - 1),
        read_position=Position.after(SequenceNumber(100 + read_to)),
        unresolved=tuple(
            UnresolvedRecord(
                first=SequenceNumber(100 + one),
                last=SequenceNumber(100 + one),
                attempts=1,
                due_ms=0,
            )
            for one in unresolved
        ),
    )


def sample(at_s: float, *states: ShardState) -> Sample:
    return Sample(round(at_s * S), round(at_s * S), {one.shard_id: one for one in states})


def good() -> History:
    """Records 0 to 3; 2 and 3 were acked after the commit before last, and 3 comes again."""
    return History(
        puts=[Put(KEY, number, SHARD, 100 + number) for number in range(4)],
        told=[
            told(1, Step.GOT, 0),
            told(2, Step.ACK, 0),
            told(3, Step.GOT, 1),
            told(4, Step.ACK, 1),
            told(5, Step.GOT, 2),
            told(6, Step.COMMIT),
            told(8, Step.ACK, 2),
            told(9, Step.GOT, 3),
            told(10, Step.COMMIT),
            told(12, Step.ACK, 3),
            told(20, Step.GOT, 3, SECOND),
            told(21, Step.ACK, 3, SECOND),
            told(22, Step.COMMIT, run=SECOND),
        ],
        faults=[Fault("kill -9", 13 * S, 14 * S, run=FIRST, free_ns=15 * S)],
        samples=[sample(7, state(2, 2)), sample(11, state(3, 3)), sample(23, state(3))],
        tasks={FIRST: 0, SECOND: 0},
    )


def test_a_history_that_keeps_all_promises_is_accepted() -> None:
    """So is none at all, but for the states that nobody has read."""
    assert broken_promises(good()) == []
    assert broken_promises(History()) == [
        "1 states are left with something to do: no state was ever read"
    ]


def lose_one(history: History) -> None:
    history.puts = [*history.puts, Put(KEY, 4, SHARD, 104)]
    history.samples = [*history.samples[:-1], sample(23, state(4, 4)), sample(24, state(4))]


def lose_the_ack_of_one(history: History) -> None:
    history.told = [one for one in history.told if one.number != 1 or one.step is not Step.ACK]


def deliver_a_key_out_of_order(history: History) -> None:
    """A record is first seen after its successor, and no kill can be the reason."""
    order = [one for one in history.told if one.number != 0]
    history.told = sorted(
        [*order, told(3.2, Step.GOT, 0), told(3.4, Step.ACK, 0)], key=lambda one: one.at_ns
    )


def deliver_two_late_after_one_kill(history: History) -> None:
    """A kill takes the line of one delivery at most."""
    history.puts = [Put(KEY, number, SHARD, 100 + number) for number in range(6)]
    late = [
        told(24 + step, verdict, number, SECOND)
        for step, (verdict, number) in enumerate(
            [
                (Step.GOT, 5),
                (Step.ACK, 5),
                (Step.GOT, 3),
                (Step.ACK, 3),
                (Step.GOT, 4),
                (Step.ACK, 4),
            ]
        )
    ]
    history.told = [one for one in history.told if one.number != 3] + late
    history.samples = [*history.samples[:-1], sample(40, state(5))]


def move_a_checkpoint_back(history: History) -> None:
    history.samples = [history.samples[1], sample(12, state(2, 2)), history.samples[2]]


def move_a_read_position_back(history: History) -> None:
    back = replace(state(2), checkpoint=SequenceNumber(102))
    history.samples = [history.samples[1], sample(12, back), history.samples[2]]


def store_a_record_that_is_pending(history: History) -> None:
    history.samples = [sample(7, state(2)), *history.samples[1:]]


def deliver_again_what_is_stored(history: History) -> None:
    history.told = [*history.told, told(25, Step.GOT, 3, SECOND)]


def deliver_again_what_was_committed(history: History) -> None:
    """No state was read in time, but the process told of its commits."""
    history.samples = [sample(30, state(3))]
    history.told = [*history.told, told(25, Step.GOT, 1, SECOND)]


def leave_a_record_unresolved(history: History) -> None:
    history.samples = [
        *history.samples,
        sample(30, replace(state(3), unresolved=state(3, 3).unresolved)),
    ]


def leave_a_record_unread(history: History) -> None:
    history.samples = [sample(7, state(2, 2)), sample(11, state(2))]


def forget_a_shard(history: History) -> None:
    """Its last state was not finished."""
    history.samples = [*history.samples, sample(30, state(0, shard=CHILD))]


def kill_an_innocent_record(history: History) -> None:
    history.told = [*history.told, told(30, Step.LETTER, 3, SECOND)._replace(reason="not yet")]


def ack_a_record_that_always_fails(history: History) -> None:
    history.puts = [*history.puts, Put(KEY, 99, SHARD, 199)]
    history.told = [*history.told, told(30, Step.GOT, 99, SECOND), told(31, Step.ACK, 99, SECOND)]
    history.samples = [*history.samples, sample(40, state(99))]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lose_one, "records were lost: ann 4"),
        (lose_the_ack_of_one, "records were lost: ann 1"),
        (deliver_a_key_out_of_order, "first delivered out of order: ann 0 after 1"),
        (deliver_two_late_after_one_kill, "1 records of a key were first delivered out of order"),
        (move_a_checkpoint_back, "checkpoints moved back"),
        (move_a_read_position_back, "checkpoints moved back"),
        (store_a_record_that_is_pending, "states passed records without an outcome"),
        (deliver_again_what_is_stored, "came again that were stored as resolved: ann 3"),
        (deliver_again_what_was_committed, "acked before the last commit began: ann 1"),
        (leave_a_record_unresolved, "left with something to do"),
        (leave_a_record_unread, "left with something to do"),
        (forget_a_shard, "left with something to do: shardId-000000000000 has no state"),
        (kill_an_innocent_record, "another outcome than theirs: ann 3 was dead-lettered"),
        (ack_a_record_that_always_fails, "another outcome than theirs: ann 99 was acked"),
    ],
)
def test_each_broken_promise_is_named(spoil: Callable[[History], None], what: str) -> None:
    history = good()
    spoil(history)
    assert any(what in one for one in broken_promises(history)), broken_promises(history)


def test_a_kill_excuses_one_delivery_whose_line_it_took() -> None:
    """Record 3 went out just before the kill, untold, and comes as a retry after record 4."""
    history = good()
    history.puts = [Put(KEY, number, SHARD, 100 + number) for number in range(5)]
    rest = [one for one in history.told if one.number != 3]
    again = [told(20, Step.GOT, 4, SECOND), told(21, Step.ACK, 4, SECOND)]
    late = [told(24, Step.GOT, 3, SECOND), told(25, Step.ACK, 3, SECOND)]
    history.told = sorted([*rest, *again, *late], key=lambda one: one.at_ns)
    history.samples = [*history.samples[:-1], sample(26, state(4))]
    assert broken_promises(history) == []


def test_a_record_may_die_of_the_kills_while_it_was_delivered_alone() -> None:
    history = good()
    letter = told(20.5, Step.LETTER, 3, SECOND)._replace(reason=UNANSWERED)
    history.told = [*history.told[:-2], letter]
    assert broken_promises(history) == []


def test_a_finished_shard_may_be_forgotten() -> None:
    """The service does not list it any more, and the store has removed its state."""
    history = good()
    finished = replace(state(3), lifecycle=Lifecycle.FINISHED, read_position=SHARD_END)
    history.samples = [*history.samples, sample(30, finished), sample(31, state(0, shard=CHILD))]
    assert broken_promises(history) == []


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


def test_repeats_are_counted_by_kill_with_the_age_of_the_oldest() -> None:
    """Record 3 was acked a second before the kill; its successor was started a second after it, and
    had its first record five seconds later.
    """
    (found,) = repeats(good())
    assert (found.records, found.oldest_s) == (1, 1.0)
    assert list(handovers_s(good()).values()) == [5.0]


def test_a_successor_is_not_late_for_a_record_that_was_put_after_it_began() -> None:
    history = good()
    history.puts = [put._replace(at_ns=round(19.5 * S)) for put in history.puts]
    assert list(handovers_s(history).values()) == [0.5]


def test_a_record_waits_from_its_put_to_its_first_delivery() -> None:
    """What comes again does not count."""
    history = good()
    history.puts = [put._replace(at_ns=put.number * S) for put in history.puts]
    assert deliveries_s(history) == [1.0, 2.0, 3.0, 6.0]


def test_an_outcome_waits_for_the_next_commit_of_its_shard() -> None:
    """The oldest one counts. One that was never stored has no delay."""
    assert commit_delays(good()) == [(2 * S, 6 * S), (8 * S, 10 * S), (21 * S, 22 * S)]


def test_each_fate_occurs() -> None:
    """Among few numbers, and most records are acked at once."""
    fates = [fate(number) for number in range(200)]
    assert set(fates) == set(Fate)
    assert fates.count(Fate.ACKED) > 180


def growing(rss_mib: Iterator[float], *, seconds: int) -> list[UseSample]:
    return [
        UseSample(float(at_s), {FIRST: ProcessUse(round(next(rss_mib) * MIB), 10, 20)}, 50, 5, 9)
        for at_s in range(seconds)
    ]


def test_memory_that_grows_is_told_from_memory_that_warms_up() -> None:
    """The first quarter does not count. A short soak has no verdict."""
    warm = (min(60.0 + at_s, 100.0) for at_s in count())
    assert [level.is_level for level in levels(growing(warm, seconds=600), FIRST)] == [True] * 4
    leak = levels(growing((60 + at_s / 10 for at_s in count()), seconds=600), FIRST)
    assert [level.name for level in leak if not level.is_level] == ["memory"]
    assert levels(growing(count(60.0), seconds=60), FIRST) == []
