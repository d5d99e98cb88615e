"""A record that ends its process at each delivery is found; a process that is killed for another
reason costs no attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import StoreUnavailableError
from state.tracker.inflight_record_tracker import UNANSWERED
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout, emitted
from tests.support.state.breaking_tree import breaking_store

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission

LIMIT = 2  # of retries, by `stepped_spout.EXACT`


def turn(spout: SteppedSpout) -> None:
    """A turn of all background steps."""
    spout.after(2.0).fetch()
    for name in ("retries", "letters", "commit", "coordinate"):
        spout.step(name)


def live(spout: SteppedSpout, deadly: int | None = None, rounds: int = 40) -> list[SpoutEmission]:
    """A consumer that acks everything but `deadly`, which ends its process. Its emissions."""
    came: list[SpoutEmission] = []
    for _ in range(rounds):
        turn(spout)
        while (emission := spout.spout.next_tuple()) is not None:
            came.append(emission)
            if int(emission.sequence_number) == deadly:
                spout.crash()
                return came
            emission.ack()
    return came


def crash_twice(job: SimulatedJob) -> None:
    """Two spouts that are killed with all their records in flight."""
    for _ in range(2):
        spout = SteppedSpout(job)
        spout.fetch()
        spout.drain(ack=False)
        spout.crash()


def test_one_crash_does_not_make_the_next_spout_careful(one: SimulatedJob) -> None:
    one.put(5)
    spout = SteppedSpout(one)
    spout.fetch()
    spout.drain(ack=False)
    spout.crash()
    again = SteppedSpout(one)
    again.fetch()
    assert len(again.drain(ack=False)) == 5


def test_a_careful_delivery_is_stored_before_it_goes_out(job: SimulatedJob) -> None:
    """As a failed attempt, once the store takes it. It is the only one in flight on all shards."""
    for index in (0, 1):
        job.put(2, key=job.key_of(index))
    crash_twice(job)
    store, tree = breaking_store(job.backend, application=APPLICATION, stream=STREAM)
    spout = SteppedSpout(job, store=store)
    spout.fetch()
    assert spout.spout.next_tuple() is None
    tree.break_at(0, after=False)
    spout.coordinate()
    assert spout.spout.next_tuple() is None
    assert not any(state.unresolved for state in job.states().values())
    tree.break_at(1_000_000, after=False)
    spout.coordinate()
    emission = spout.spout.next_tuple()
    assert emission is not None
    stored = job.states()[emission.shard_id].unresolved
    assert [(str(one.first), one.attempts, one.reason) for one in stored] == [
        (emission.sequence_number, 1, UNANSWERED)
    ]
    for _ in range(2):
        spout.coordinate()
        assert spout.spout.next_tuple() is None
    emission.ack()
    assert spout.spout.next_tuple() is None
    spout.coordinate()
    assert not any(
        one.first == stored[0].first for state in job.states().values() for one in state.unresolved
    )
    assert spout.spout.next_tuple() is not None


def test_full_speed_begins_when_the_last_outcome_is_stored(one: SimulatedJob) -> None:
    """Else a crash after it would cost the last record an attempt."""
    one.put(1)
    crash_twice(one)
    spout = SteppedSpout(one)
    spout.fetch()
    spout.spout.next_tuple()
    spout.coordinate()
    emission = spout.spout.next_tuple()
    assert emission is not None
    emission.ack()
    spout.after(2.0).fetch()
    assert spout.spout.next_tuple() is None, "at the tip"
    one.put(3)
    spout.after(2.0).fetch()
    assert spout.spout.next_tuple() is None
    spout.coordinate()
    assert [each.attempts for each in one.states()[shard(0)].unresolved] == [1], "the next one"


def test_a_record_that_has_ended_a_process_is_always_delivered_carefully(
    one: SimulatedJob,
) -> None:
    """Also after a spout that was closed in order before it came to the record."""
    (deadly, *_) = one.put(3)
    crash_twice(one)
    assert [int(each.sequence_number) for each in live(SteppedSpout(one), deadly)] == [deadly]
    SteppedSpout(one).spout.close()
    assert unclosed(one) == b"0"
    spout = SteppedSpout(one)
    spout.fetch()
    spout.step("retries")
    assert spout.spout.next_tuple() is None
    spout.coordinate()
    emission = spout.spout.next_tuple()
    assert emission is not None
    assert (int(emission.sequence_number), emission.attempt) == (deadly, 2)
    assert one.states()[shard(0)].unresolved[0].attempts == 2


def test_a_deadline_begins_when_the_careful_delivery_goes_out(one: SimulatedJob) -> None:
    """A store that is slow to take its announcement does not use it up."""
    one.put(1)
    crash_twice(one)
    spout = SteppedSpout(one, message_timeout_s=30.0)
    spout.fetch()
    assert spout.spout.next_tuple() is None
    spout.after(40.0).step("timeouts")
    spout.coordinate()
    emission = spout.spout.next_tuple()
    assert emission is not None
    spout.after(29.0).step("timeouts")
    assert emission.ack()
    assert spout.spout.metrics().total.counts.timed_out == 0


def test_a_spout_that_is_closed_counts_no_attempt_of_what_it_had_in_flight(
    one: SimulatedJob,
) -> None:
    """Nor does it count as one that was killed."""
    one.put(2)
    crash_twice(one)
    for _ in range(2):
        spout = SteppedSpout(one)
        spout.fetch()
        spout.spout.next_tuple()
        spout.coordinate()
        spout.spout.next_tuple()
        spout.spout.close()
        assert one.states()[shard(0)].unresolved == ()
    again = SteppedSpout(one)
    again.fetch()
    assert [each.attempt for each in again.drain(ack=False)] == [1, 1]


def test_the_end_of_a_shard_waits_for_a_first_delivery_that_is_announced(
    one: SimulatedJob,
) -> None:
    """Its children would overtake it. A delivery that ended its process had its outcome."""
    (last,) = one.put(1)
    one.fake.split(STREAM, shard(0))
    crash_twice(one)
    spout = SteppedSpout(one)
    for _ in range(3):
        spout.fetch()
        spout.spout.next_tuple()
        spout.coordinate()
    assert not one.states()[shard(0)].end_was_read
    spout.crash()
    again = SteppedSpout(one)
    came = live(again, rounds=10)
    assert [(int(each.sequence_number), each.attempt) for each in came] == [(last, 2)]
    assert one.states()[shard(0)].finished


# openings -----------------------------------------------------------------------------------------
def unclosed(job: SimulatedJob) -> bytes:
    node = job.backend.read([job.store().paths.base + "/epoch/unclosed-0-of-1"])[0]
    assert node is not None
    return node.data


def test_a_close_whose_commit_fails_is_no_orderly_end(one: SimulatedJob) -> None:
    """Its outcomes are not stored."""
    one.put(1)
    store, tree = breaking_store(one.backend, application=APPLICATION, stream=STREAM)
    spout = SteppedSpout(one, store=store)
    spout.fetch()
    spout.drain()
    tree.break_at(0, after=False)
    spout.spout.close()
    assert unclosed(one) == b"1"


def test_a_spout_that_has_answered_all_it_found_is_the_only_one_to_count(
    one: SimulatedJob,
) -> None:
    """It has outlived what may have ended the one before it."""
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    spout.drain(ack=False)
    spout.crash()
    again = SteppedSpout(one)
    again.fetch()
    *others, last = again.drain(ack=False)
    for each in others:
        each.ack()
    again.coordinate()
    assert unclosed(one) == b"2", "one record is in flight"
    last.ack()
    again.coordinate()
    assert unclosed(one) == b"1"


def test_records_behind_one_that_is_in_flight_prove_nothing(one: SimulatedJob) -> None:
    """A record may take its time to end the process, while others are answered."""
    one.put(1_500)
    SteppedSpout(one).crash()
    spout = SteppedSpout(one)
    spout.fetch()
    first, *others = (spout.spout.next_tuple() for _ in range(1_200))
    for each in others:
        assert each is not None
        each.ack()
    for _ in range(3):
        spout.coordinate()
    assert unclosed(one) == b"2"
    assert first is not None
    first.ack()
    spout.coordinate()
    assert unclosed(one) == b"1", "300 records are left to read, but enough were answered"


def test_a_record_left_by_an_earlier_spout_is_answered_before_it_is_outlived(
    one: SimulatedJob,
) -> None:
    """Also if it is in memory no more, and has to be read again first."""
    spout, (_first, second) = emitted(one, 2)
    second.ack()
    spout.coordinate()
    spout.crash()
    again = SteppedSpout(one)
    again.fetch()
    again.coordinate()
    assert unclosed(one) == b"2"
    again.step("retries")
    again.drain()
    again.coordinate()
    assert unclosed(one) == b"1"


def test_a_record_that_ends_its_worker_process_is_dead_lettered_in_the_end(
    one: SimulatedJob,
) -> None:
    """The spout's own process goes on, and closes the spout as crashed. What was answered is
    stored.
    """
    deadly, other = one.put(2)
    came: list[tuple[int, int]] = []
    for _ in range(LIMIT + 3):
        spout = SteppedSpout(one)
        for _ in range(6):
            turn(spout)
            emission = spout.spout.next_tuple()
            if emission is None:
                continue
            came.append((int(emission.sequence_number), emission.attempt))
            if came[-1][0] == deadly:
                break
            emission.ack()
        spout.spout.close(crashed=True)
    spout = SteppedSpout(one)
    assert [each for each in came if each[0] == other] == []
    assert [int(each.sequence_number) for each in live(spout, rounds=10)] == [other]
    assert [int(letter.sequence_number) for letter in spout.letters] == [deadly]
    assert [attempt for _, attempt in came] == [1, 1, 1, 2, 3]


def test_a_store_that_is_down_does_not_open_a_spout_uncounted(one: SimulatedJob) -> None:
    SteppedSpout(one).spout.close()
    store, tree = breaking_store(one.backend, application=APPLICATION, stream=STREAM)
    tree.break_at(1, after=False)  # after the ownership
    with pytest.raises(StoreUnavailableError):
        SteppedSpout(one, store=store)
