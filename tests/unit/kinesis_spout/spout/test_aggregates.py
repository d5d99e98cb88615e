"""The user records of aggregates: each is a tuple with an outcome of its own."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.reading.user_records import AggregatedRecordError
from state.sequence_number import SequenceNumber
from tests.support.aggregates.wire import aggregate_of
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated
from tests.support.spout.spout_world import SteppedSpout, payloads, reading

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission
    from state.shard_state import ShardState

USERS = [b"user %d" % number for number in range(500)]


def put_aggregate(job: SimulatedJob, users: list[bytes] = USERS, *keys: str) -> int:
    (sequence,) = job.put(1, data=aggregate_of(users, keys or ("key",)))
    return sequence


def state_of(job: SimulatedJob) -> ShardState:
    return job.states()[shard(0)]


def unresolved(job: SimulatedJob) -> list[tuple[SequenceNumber, int]]:
    return [(one.first, one.attempts) for one in state_of(job).unresolved]


def read_again(spout: SteppedSpout) -> SpoutEmission:
    """The only record that a new process emits, which is due and has to be read again."""
    assert spout.drain() == []  # its payload is not here
    spout.step("retries")
    (emission,) = spout.after(5).drain(ack=False)
    return emission


def test_what_was_unpacked_stays_unpacked_where_raw_is_set_later(one: SimulatedJob) -> None:
    """The rest of an aggregate that was delivered in part, and its user records that failed.
    Aggregates after it are delivered as they are.
    """
    put_aggregate(one, USERS[:5])
    put_aggregate(one, [b"whole"])
    spout = reading(one)
    first, second, third = islice(spout.spout.emissions(), 3)
    first.ack()
    second.fail("no")
    third.ack()
    spout.step("commit")
    spout.crash()
    spout = SteppedSpout(one, aggregated_records="raw").after(60)
    spout.fetch()
    spout.drain(ack=False)
    spout.step("retries")
    assert payloads(spout.after(5).drain()) == ["user 1"]
    spout.spout.close()
    spout = reading(one, aggregated_records="raw")
    assert [one.data for one in spout.drain()] == [*USERS[3:5], aggregate_of([b"whole"])]


@pytest.mark.parametrize("mode", ["raw", "fail"])
def test_the_first_user_record_stays_one_where_the_option_changes(
    mode: str, one: SimulatedJob
) -> None:
    """The state has as whole only what is delivered since the change."""
    packed = put_aggregate(one, USERS[:2])
    spout = reading(one)
    for emission in spout.drain(ack=False):
        emission.fail("no")
    spout.spout.close()
    flags = {SequenceNumber(packed, sub): False for sub in range(2)}
    spout = SteppedSpout(one, aggregated_records=mode).after(60)
    spout.drain()
    spout.step("retries")
    again = spout.after(5).drain(ack=False)
    assert [each.data for each in again] == USERS[:2]
    if mode == "raw":
        flags[SequenceNumber(put_aggregate(one, [b"kept"]))] = True
        spout.fetch()
        again += spout.drain(ack=False)
    for emission in again:
        emission.fail("no")
    spout.spout.close()
    assert {each.first: each.whole for each in state_of(one).unresolved} == flags


def test_what_was_raw_stays_whole_where_unpack_is_set_later(one: SimulatedJob) -> None:
    """An aggregate that failed, until its letter, and one that had no outcome. Those that were not
    delivered are unpacked.
    """
    first, second, third = (put_aggregate(one, [name, name]) for name in (b"a", b"b", b"c"))
    spout = reading(one, aggregated_records="raw")
    failed, unanswered, acked = spout.drain(ack=False)
    failed.fail("no")
    acked.ack()
    spout.step("commit")
    spout.crash()
    assert unresolved(one) == [(SequenceNumber(first), 1), (SequenceNumber(second), 0)]
    put_aggregate(one, [b"new", b"new"])
    spout = SteppedSpout(one).after(60)
    spout.fetch()
    assert payloads(spout.drain()) == ["new", "new"]
    spout.step("retries")
    again, answered = spout.after(5).drain(ack=False)
    assert (again.data, again.attempt) == (failed.data, 2)
    assert again.message_id == f"{shard(0)}:{first}:2"
    assert (answered.data, answered.attempt) == (unanswered.data, 1)
    answered.ack()
    again.fail("no")
    spout.spout.close()
    assert unresolved(one) == [(SequenceNumber(first), 2)]
    again = read_again(spout := SteppedSpout(one).after(60))
    assert (again.data, again.attempt) == (failed.data, 3)
    again.fail("no")
    spout.step("letters", times=2)
    assert [letter.data for letter in spout.letters] == [failed.data]
    spout.step("commit")
    checkpoint = state_of(one).checkpoint
    assert checkpoint is not None
    assert checkpoint.sequence > third


def test_aggregates_stop_a_spout_that_refuses_them(one: SimulatedJob) -> None:
    put_aggregate(one)
    spout = reading(one, aggregated_records="fail")
    with pytest.raises(AggregatedRecordError):
        spout.spout.next_tuple()


@pytest.mark.parametrize("strategy", ["AUTO", "USER_PARTITION_KEY"])
def test_nothing_is_left_out_of_a_stream_that_may_ignore_keys(strategy: str) -> None:
    """Where the strategy is by key today, it may have been AUTO when the records were put."""
    keys = [str(number) for number in range(20)]
    with simulated(shards=4) as job:
        job.fake.stream(STREAM).distribution = strategy
        job.put(4, data=aggregate_of(USERS[:20], keys))
        assert len(SteppedSpout(job).pump()) == 80
