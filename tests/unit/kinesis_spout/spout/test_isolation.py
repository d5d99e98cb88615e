"""A record that ends its process at each delivery is found; a process that is killed for another
reason costs no attempt.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from state.errors import StoreUnavailableError
from state.tracker.inflight_record_tracker import UNANSWERED
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.spout.spout_world import SteppedSpout, emitted, reading
from tests.support.state.trees import breaking_store

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission

LIMIT = 2  # of retries, by `spout_world.EXACT`


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


def killed(job: SimulatedJob, times: int) -> None:
    """So many spouts that are killed with all their records in flight."""
    for _ in range(times):
        spout = reading(job)
        spout.drain(ack=False)
        spout.crash()


def announced(spout: SteppedSpout, *, after_s: float = 0.0) -> SpoutEmission:
    """The next isolated delivery: it goes out once it is stored."""
    assert spout.spout.next_tuple() is None
    spout.after(after_s).step("timeouts")
    spout.coordinate()
    emission = spout.spout.next_tuple()
    assert emission is not None
    return emission


def test_an_isolated_delivery_is_stored_before_it_goes_out(job: SimulatedJob) -> None:
    """As a failed attempt, once the store takes it. It is the only one in flight on all shards."""
    for index in (0, 1):
        job.put(2, key=job.key_of(index))
    killed(job, 2)
    store, tree = breaking_store(job.backend, application=APPLICATION, stream=STREAM)
    spout = reading(job, store=store)
    assert spout.spout.next_tuple() is None
    tree.break_at(0, after=False)
    spout.coordinate()
    assert spout.spout.next_tuple() is None
    assert not any(state.unresolved for state in job.states().values())
    tree.break_at(1_000_000, after=False)
    emission = announced(spout)
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
    killed(one, 2)
    spout = reading(one)
    announced(spout).ack()
    spout.after(2.0).fetch()
    assert spout.spout.next_tuple() is None, "at the tip"
    one.put(3)
    spout.after(2.0).fetch()
    assert spout.spout.next_tuple() is None
    spout.coordinate()
    assert [each.attempts for each in one.states()[shard(0)].unresolved] == [1], "the next one"


def test_a_record_that_has_ended_a_process_is_always_delivered_alone(
    one: SimulatedJob,
) -> None:
    """Also after a spout that was closed in order before it came to the record."""
    (deadly, *_) = one.put(3)
    killed(one, 2)
    assert [int(each.sequence_number) for each in live(SteppedSpout(one), deadly)] == [deadly]
    SteppedSpout(one).spout.close()
    assert unclosed(one) == b"0"
    spout = reading(one)
    spout.step("retries")
    emission = announced(spout)
    assert (int(emission.sequence_number), emission.attempt) == (deadly, 2)
    assert one.states()[shard(0)].unresolved[0].attempts == 2


def test_a_deadline_begins_when_the_isolated_delivery_goes_out(one: SimulatedJob) -> None:
    """A store that is slow to take its announcement does not use it up."""
    one.put(1)
    killed(one, 2)
    spout = reading(one, message_timeout_s=30.0)
    emission = announced(spout, after_s=40.0)
    spout.after(29.0).step("timeouts")
    assert emission.ack()
    assert spout.spout.metrics().total.counts.timed_out == 0


def test_a_spout_that_is_closed_counts_no_attempt_of_what_it_had_in_flight(
    one: SimulatedJob,
) -> None:
    """Nor does it count as one that was killed."""
    one.put(2)
    killed(one, 2)
    for _ in range(2):
        spout = reading(one)
        spout.spout.next_tuple()
        spout.coordinate()
        spout.spout.next_tuple()
        spout.spout.close()
        assert one.states()[shard(0)].unresolved == ()
    assert [each.attempt for each in reading(one).drain(ack=False)] == [1, 1]


def test_the_end_of_a_shard_waits_for_a_first_delivery_that_is_announced(
    one: SimulatedJob,
) -> None:
    """Its children would overtake it. A delivery that ended its process had its outcome."""
    (last,) = one.put(1)
    one.fake.split(STREAM, shard(0))
    killed(one, 2)
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


def unclosed(job: SimulatedJob) -> bytes:
    node = job.backend.read([job.store().paths.base + "/epoch/unclosed-0-of-1"])[0]
    assert node is not None
    return node.data


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_spout_that_has_answered_all_it_found_is_the_only_one_to_count(
    one: SimulatedJob, *, is_in_memory: bool
) -> None:
    """It has outlived what may have ended the one before it. A record that an earlier spout left
    may have to be read again first.
    """
    spout, (*_, last) = emitted(one, 2)
    if not is_in_memory:
        last.ack()
        spout.coordinate()
    spout.crash()
    again = reading(one)
    in_flight = again.drain(ack=False)
    assert len(in_flight) == (2 if is_in_memory else 0)
    for each in in_flight[1:]:
        each.ack()
    again.coordinate()
    assert unclosed(one) == b"2", "one record is in flight, or was not read again"
    again.step("retries")
    again.drain()
    for each in in_flight[:1]:
        each.ack()
    again.coordinate()
    assert unclosed(one) == b"1"


def test_records_behind_one_that_is_in_flight_prove_nothing(one: SimulatedJob) -> None:
    """A record may take its time to end the process, while others are answered."""
    one.put(1_500)
    SteppedSpout(one).crash()
    spout = reading(one)
    first, *others = islice(spout.spout.emissions(), 1_200)
    for each in others:
        each.ack()
    for _ in range(3):
        spout.coordinate()
    assert unclosed(one) == b"2"
    first.ack()
    spout.coordinate()
    assert unclosed(one) == b"1", "300 records are left to read, but enough were answered"


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


def test_a_shard_that_is_given_up_costs_the_record_that_was_announced_no_attempt(
    job: SimulatedJob,
) -> None:
    """The program never had it, and the process lives. What is gone becomes a letter, and one whose
    process ended in between, that of an attempt.
    """
    job.put(1, key=job.key_of(1))
    killed(job, 2)
    spout = reading(job, fail_on_data_loss=False)
    assert spout.spout.next_tuple() is None
    spout.step("commit")
    assert [one.reason for one in job.states()[shard(1)].unresolved] == [UNANSWERED]
    with job.fake.lock:
        del job.fake.stream(STREAM).shards[shard(1)]
    while not job.states()[shard(1)].end_was_read:
        spout.after(10.0).coordinate()
        assert job.clock.monotonic_s() < 300
    spout.coordinate()
    assert [(one.attempts, one.reason) for one in job.states()[shard(1)].unresolved] == [(0, None)]
    turn(spout)
    (letter,) = spout.letters
    assert (letter.data, letter.attempts) == (None, 0)
    assert letter.reason != UNANSWERED
