"""The standalone spout: emissions, outcomes, retries, time-outs, dead letters, commits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError, StreamNotFoundError
from kinesis_spout.spout import FailRecordError, KinesisSpout, SpoutClosedError, SpoutConfig
from kinesis_spout.spout_session import NothingAckedError
from kinesis_spout.testing import internal_failure, throttle
from scheme.json_scheme import JsonScheme
from state.errors import OwnedByAnotherError, StaleOwnerError
from state.ownership import this_process
from state.shard_state import Lifecycle
from tests.support.breaking_tree import breaking_store
from tests.support.simulated_job import AGGREGATE, APPLICATION, STREAM, SimulatedJob, shard, simulated
from tests.support.stepped_spout import SteppedSpout, payloads, spout_settings

if TYPE_CHECKING:
    from kinesis_spout.spout_emission import SpoutEmission


# handing over -----------------------------------------------------------------------------------------------------
def test_shards_take_turns_record_by_record(job: SimulatedJob) -> None:
    """Strict round robin, whatever the pages."""
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    spout = SteppedSpout(job)
    spout.fetch()
    shards = [emission.shard_id for emission in spout.drain()]
    assert shards in ([shard(0), shard(1)] * 5, [shard(1), shard(0)] * 5)


def test_a_shard_that_is_throttled_holds_up_nobody(job: SimulatedJob) -> None:
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    job.fake.faults.add(throttle(), operation="GetRecords", shard_id=shard(0), times=3)
    spout = SteppedSpout(job)
    spout.fetch()
    assert {emission.shard_id for emission in spout.drain()} == {shard(1)}
    for _ in range(4):
        spout.after(10).fetch()
    assert len(spout.drain()) == 5


def test_next_tuple_asks_nobody(one: SimulatedJob) -> None:
    """What was read is handed over, and what was not is None, without a call."""
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    one.count_calls()
    assert len(spout.drain()) == 3
    assert spout.spout.next_tuple() is None
    assert not one.fake.faults.struck


def test_an_emission_tells_its_record(one: SimulatedJob) -> None:
    (sequence,) = one.put(1, key="k", data=b"payload", arrival_ms=1_795_000_000_123)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain()
    assert (emission.data, emission.partition_key, emission.attempt) == (b"payload", "k", 1)
    assert emission.sequence_number == str(sequence)
    assert emission.approximate_arrival_ms == 1_795_000_000_123
    assert emission.message_id == emission.record.message_id == f"{shard(0)}:{sequence}:1"
    assert emission.values == (b"payload",)
    assert "payload" not in repr(emission)


def test_the_scheme_makes_the_values_and_dead_letters_what_is_malformed(one: SimulatedJob) -> None:
    """A record that does not decode is never handed over, never retried, and not lost."""
    for data in (b'{"n": 1}', b"nonsense", b'{"n": 2}'):
        one.put(1, data=data)
    spout = SteppedSpout(one, scheme=JsonScheme("n INT"))
    spout.fetch()
    assert [emission.values for emission in spout.drain()] == [(1,), (2,)]
    spout.step("letters")
    (letter,) = spout.letters
    assert letter.data == b"nonsense"
    assert letter.attempts == 1
    assert spout.spout.metrics().total.counts.malformed == 1


def test_an_aggregate_stops_the_spout(one: SimulatedJob) -> None:
    """Its bytes are no user's record; with `refuse_aggregated` off they are handed over as they are."""
    one.put(1, data=AGGREGATE)
    spout = SteppedSpout(one)
    spout.fetch()
    with pytest.raises(Exception, match="KPL aggregate"):
        spout.spout.next_tuple()
    spout.spout.close()
    raw = SteppedSpout(one, refuse_aggregated=False)
    raw.fetch()
    assert [emission.data for emission in raw.drain()] == [AGGREGATE]


# pending ----------------------------------------------------------------------------------------------------------
def test_at_max_pending_retries_go_on_and_new_records_wait(one: SimulatedJob) -> None:
    one.put(10)
    spout = SteppedSpout(one, max_pending=3)
    spout.fetch()
    first, second, third = spout.drain(ack=False)
    assert spout.spout.next_tuple() is None
    first.fail("not now")
    assert [emission.data for emission in spout.drain(ack=False)] == [b"record 3"]
    spout.after(1.0)
    (again,) = spout.drain(ack=False)
    assert (again.data, again.attempt) == (first.data, 2)
    for emission in (second, third):
        emission.ack()
    assert [emission.data for emission in spout.drain(ack=False)] == [b"record 4"], "four were pending with the retry"


def test_a_retry_goes_before_new_records_and_starves_none(one: SimulatedJob) -> None:
    one.put(30)
    spout = SteppedSpout(one)
    spout.fetch()
    failed = [spout.spout.next_tuple() for _ in range(10)]
    for emission in failed:
        assert emission is not None
        emission.fail()
    spout.after(1.0)
    attempts = [emission.attempt for emission in spout.drain()]
    assert attempts[:10] == [2, 2, 2, 2, 1, 2, 2, 2, 2, 1]
    assert len(attempts) == 30


def test_a_shard_with_too_much_unresolved_waits_with_its_new_records(job: SimulatedJob) -> None:
    """The other shards go on."""
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    spout = SteppedSpout(job, max_unresolved_per_shard=2)
    spout.fetch()
    emissions = spout.drain(ack=False)
    assert sorted(emission.shard_id for emission in emissions) == [shard(0)] * 2 + [shard(1)] * 2
    for emission in emissions:
        emission.ack()
    assert len(spout.drain()) == 6


def test_without_tracking_each_emission_counts_as_acked(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one, tracking=False, max_pending=1)
    spout.fetch()
    emissions = spout.drain(ack=False)
    assert len(emissions) == 3
    assert not emissions[0].fail("too late")
    spout.spout.close()
    assert one.states()[shard(0)].checkpoint_text == emissions[-1].sequence_number


# outcomes ---------------------------------------------------------------------------------------------------------
def test_outcomes_are_taken_while_the_spout_is_not_active(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    emissions = [spout.spout.next_tuple() for _ in range(2)]
    spout.spout.deactivate()
    assert spout.spout.next_tuple() is None
    assert all(emission is not None and emission.ack() for emission in emissions)
    spout.spout.activate()
    assert len(spout.drain()) == 1


def test_a_spout_can_start_inactive_without_being_closed(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one, start_active=False)
    spout.fetch()
    assert spout.spout.next_tuple() is None
    spout.spout.activate()
    assert len(spout.drain()) == 1


def test_by_message_id_or_by_emission_is_the_same(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    first, second = spout.drain(ack=False)
    assert spout.spout.fail(first.message_id, "no")
    assert spout.spout.ack(second.message_id)
    assert not second.ack(), "it was acked before"
    assert not spout.spout.ack(f"{shard(7)}:1:1"), "a shard that is not ours"
    with pytest.raises(ValueError, match="is not a message id"):
        spout.spout.ack("nonsense")
    spout.after(1.0)
    (again,) = spout.drain(ack=False)
    assert not first.fail("again"), "a late fail of an earlier attempt"
    assert spout.spout.ack(first.message_id), "a late ack of an earlier attempt is still the truth"
    assert not again.ack()


def test_a_block_acks_and_an_error_in_it_fails(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    first, second, third = spout.drain(ack=False)
    with first:
        pass
    with pytest.raises(KeyError), second:
        raise KeyError("airport")
    with third:
        raise FailRecordError("not yet")
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (1, 2)


def test_an_interrupt_in_a_block_is_no_fault_of_the_record(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with pytest.raises(KeyboardInterrupt), emission:
        raise KeyboardInterrupt
    assert spout.spout.metrics().total.pending == 1


def test_what_nobody_answers_has_failed_at_its_deadline(one: SimulatedJob) -> None:
    """Not a millisecond before."""
    one.put(1)
    spout = SteppedSpout(one, message_timeout_s=5.0)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    spout.after(4.999).step("timeouts")
    assert spout.spout.metrics().total.pending == 1
    spout.after(0.001).step("timeouts")
    total = spout.spout.metrics().total
    assert (total.pending, total.queued, total.counts.timed_out, total.counts.failed) == (0, 1, 1, 1)
    assert emission.ack(), "a late ack takes it off the queue"
    assert spout.spout.metrics().total.queued == 0


def test_an_emission_can_be_given_more_time(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one, message_timeout_s=5.0)
    spout.fetch()
    longer, other = spout.drain(ack=False)
    assert longer.extend(20.0)
    spout.after(5.0).step("timeouts")
    assert not other.extend(5.0), "it has timed out"
    assert spout.spout.metrics().total.pending == 1
    spout.after(15.0).step("timeouts")
    assert spout.spout.metrics().total.pending == 0


def test_exhausted_records_are_dead_lettered_and_counted_as_acked(one: SimulatedJob) -> None:
    (sequence, _) = one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    for attempt in (1, 2, 3):
        emissions = spout.drain(ack=False)
        assert emissions[0].attempt == attempt
        emissions[0].fail(f"attempt {attempt}")
        for emission in emissions[1:]:
            emission.ack()
        spout.after(10.0)
    spout.step("letters")
    (letter,) = spout.letters
    assert (letter.sequence_number, letter.attempts, letter.reason, letter.data) == (str(sequence), 3, "attempt 3", b"record 0")
    assert letter.message_id == f"{shard(0)}:{sequence}:3"
    assert spout.drain() == []
    spout.spout.close()
    assert one.states()[shard(0)].unresolved == ()


def test_a_letter_that_cannot_be_written_keeps_its_record(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one)
    spout.refuse_letters = True
    spout.fetch()
    spout.drain(ack=False)[0].fail("bad", retry=False)
    spout.step("letters")
    spout.keep()
    assert one.states()[shard(0)].unresolved
    spout.refuse_letters = False
    spout.step("letters")
    spout.keep()
    assert len(spout.letters) == 1
    assert not one.states()[shard(0)].unresolved


def test_a_tree_answers_for_its_emission(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    whole, broken = spout.drain(ack=False)
    with whole.tree() as tree:
        parts = [tree.child() for _ in range(2)]
    assert spout.spout.metrics().total.counts.acked == 0
    for part in parts:
        part.ack()
    with broken.tree() as tree:
        tree.child().fail("a part")
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (1, 1)


def test_the_spout_stops_when_everything_fails(one: SimulatedJob) -> None:
    """The fault is not in the records then, and nothing is dead-lettered for it."""
    one.put(10)
    spout = SteppedSpout(one, breaker_failures=5)
    spout.fetch()
    for emission in spout.drain(ack=False)[:5]:
        emission.fail("no database")
    with pytest.raises(NothingAckedError, match="none was ever acked"):
        spout.spout.next_tuple()
    assert spout.letters == []


def test_hooks_are_told_and_cannot_break_anything(one: SimulatedJob, caplog: pytest.LogCaptureFixture) -> None:
    one.put(2)
    told: list[Any] = []

    def on_ack(emission: SpoutEmission) -> None:
        told.append(("ack", emission.values))
        raise RuntimeError("a hook's own fault")

    spout = SteppedSpout(one, on_ack=on_ack, on_fail=lambda emission, reason: told.append(("fail", emission.values, reason)))
    spout.fetch()
    first, second = spout.drain(ack=False)
    assert first.ack()
    assert second.fail("no")
    assert told == [("ack", (b"record 0",)), ("fail", (b"record 1",), "no")]
    assert "a hook's own fault" in caplog.text


# states -----------------------------------------------------------------------------------------------------------
def test_a_restart_brings_what_is_unresolved_with_its_attempts_and_nothing_else(one: SimulatedJob) -> None:
    one.put(6)
    spout = SteppedSpout(one)
    spout.fetch()
    emissions = spout.drain(ack=False)
    emissions[1].fail("once")
    for at in (0, 2, 4):
        emissions[at].ack()
    spout.keep()
    spout.crash()
    again = SteppedSpout(one)
    again.after(2.0).fetch()
    again.step("reread")
    again.after(2.0).fetch()
    again.step("reread")
    found = sorted((emission.data.decode(), emission.attempt) for emission in again.drain())
    assert found == [("record 1", 2), ("record 3", 1), ("record 5", 1)]


def test_a_commit_writes_only_what_has_changed(job: SimulatedJob) -> None:
    for index in (0, 1):
        job.put(1, key=job.key_of(index))
    store, tree = breaking_store(job.backend, application=APPLICATION, stream=STREAM)
    spout = SteppedSpout(job, store=store)
    spout.pump()
    job.put(1, key=job.key_of(0))
    spout.fetch()
    spout.drain()
    tree.written.clear()
    spout.keep()
    spout.keep()
    assert [[path.split("/")[-2] for path in paths] for paths in tree.written] == [[shard(0)]]


def test_a_commit_that_fails_is_done_later(one: SimulatedJob) -> None:
    one.put(3)
    store, tree = breaking_store(one.backend, application=APPLICATION, stream=STREAM)
    spout = SteppedSpout(one, store=store)
    spout.fetch()
    last = spout.drain()[-1]
    tree.break_at(0, after=False)
    spout.keep()
    assert one.states()[shard(0)].checkpoint is None
    assert spout.spout.next_tuple() is None, "the loop goes on"
    tree.break_at(1_000_000, after=False)
    spout.keep()
    assert one.states()[shard(0)].checkpoint_text == last.sequence_number


def test_closing_commits(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    last = spout.drain()[-1]
    spout.spout.close()
    spout.spout.close()
    assert one.states()[shard(0)].checkpoint_text == last.sequence_number
    with pytest.raises(SpoutClosedError):
        spout.spout.next_tuple()
    assert not last.ack(), "an ack after the close does not count"


def test_who_was_overtaken_stops(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one)
    other = one.store()
    with pytest.raises(OwnedByAnotherError):
        SteppedSpout(one)
    spout.services.store.release()
    other.acquire(this_process(0), timeout_s=0)
    spout.fetch()
    spout.drain()
    spout.keep()
    with pytest.raises(StaleOwnerError):
        spout.spout.next_tuple()
    other.close()


# resharding -------------------------------------------------------------------------------------------------------
def test_a_child_waits_until_its_parent_is_read_and_answered(one: SimulatedJob) -> None:
    one.put(3)
    one.fake.split(STREAM, shard(0))
    one.put(4)
    spout = SteppedSpout(one)
    spout.fetch()
    *others, last = spout.drain(ack=False)
    for emission in others:
        emission.ack()
    for _ in range(3):
        spout.keep()
        spout.after(40).fetch()
    assert spout.drain() == [], "the last record of the parent has no outcome yet"
    last.fail("a retry does not hold the children")
    spout.keep()
    spout.keep()
    spout.fetch()
    found = [emission for emission in spout.drain() if emission.shard_id != shard(0)]
    assert len(found) == 4


def test_merges_and_splits_are_followed_to_the_end(job: SimulatedJob) -> None:
    expected = job.put(20)
    job.fake.merge(STREAM, shard(0), shard(1))
    expected += job.put(20)
    job.fake.split(STREAM, shard(2))
    expected += job.put(20)
    spout = SteppedSpout(job)
    found = [int(emission.sequence_number) for emission in spout.pump(12)]
    assert sorted(found) == sorted(expected)
    states = job.states()
    assert {states[shard(index)].lifecycle for index in (0, 1, 2)} == {Lifecycle.FINISHED}


# errors -----------------------------------------------------------------------------------------------------------
def test_a_stream_that_is_not_there_is_said_at_once_and_nothing_stays_open(one: SimulatedJob) -> None:
    spout = KinesisSpout(SpoutConfig(**(spout_settings(one) | {"stream": "nowhere", "application": None, "zookeeper": None})))
    with pytest.raises(StreamNotFoundError):
        spout.open()
    assert not spout.is_open
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kinesis-spout")]


def test_a_service_that_stays_down_stops_the_spout(one: SimulatedJob) -> None:
    """With its own error, in `next_tuple`, after the client has tried for long enough."""
    spout = SteppedSpout(one)
    one.fake.faults.add(internal_failure(), operation="GetRecords", times=None)
    spout.fetch()
    with pytest.raises(Exception, match="GetRecords"):
        spout.spout.next_tuple()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stream": "a b"}, "stream"),
        ({"starting_position": "yesterday"}, "starting_position"),
        ({"application": "a"}, "zookeeper"),
        ({"max_pending": 0}, "max_pending"),
        ({"commit_interval_s": -1}, "commit_interval_s"),
        ({"task_index": 2, "total_tasks": 2}, "task_index"),
        ({"total_tasks": 2}, "total_tasks"),
        ({"breaker_failures": 0}, "breaker_failures"),
    ],
)
def test_a_bad_setting_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SpoutConfig(**({"stream": "orders"} | changes))


def test_no_secret_shows_in_the_configuration() -> None:
    aws = AwsConfig(access_key_id="AKIAEXAMPLE", secret_access_key="very-secret")  # the test's own
    assert "very-secret" not in repr(SpoutConfig(stream="orders", aws=aws))


# tasks ------------------------------------------------------------------------------------------------------------
def test_tasks_share_the_shards_over_a_reshard() -> None:
    with simulated(shards=4) as job:
        expected = job.put(40)
        tasks = [SteppedSpout(job, task_index=index, total_tasks=2) for index in (0, 1)]
        job.fake.split(STREAM, shard(1))
        job.fake.merge(STREAM, shard(2), shard(3))
        expected += job.put(40)
        found: list[SpoutEmission] = []
        for _ in range(12):
            for task in tasks:
                found += task.pump(1)
            job.clock.advance(2.1)
        assert sorted(int(emission.sequence_number) for emission in found) == sorted(expected)
        ours = [{emission.shard_id for emission in found if int(emission.shard_id[-3:]) % 2 == index} for index in (0, 1)]
        assert set(tasks[0].spout.metrics().shards) <= ours[0] | {shard(4), shard(6)}
        with pytest.raises(Exception, match=r"of 3|3 tasks|total"):
            SteppedSpout(job, task_index=0, total_tasks=3)


def test_a_task_that_was_killed_goes_on_where_it_was() -> None:
    with simulated(shards=2) as job:
        for index in (0, 1):
            job.put(3, key=job.key_of(index), data=b"%d" % index)
        tasks = [SteppedSpout(job, task_index=index, total_tasks=2) for index in (0, 1)]
        for task in tasks:
            task.fetch()
            first = task.spout.next_tuple()
            assert first is not None
            first.ack()
            task.keep()
        tasks[1].crash()
        assert payloads(tasks[0].pump()) == ["0", "0"], "the other goes on"
        again = SteppedSpout(job, task_index=1, total_tasks=2)
        assert payloads(again.pump()) == ["1", "1"]
