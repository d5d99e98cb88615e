"""The standalone spout: acks, failures, timeouts, retries, dead letters, tuple trees, hooks."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.spout.kinesis_spout import FailRecordError
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.spout.session import NothingAckedError
from scheme.json_scheme import JsonScheme
from scheme.raw_scheme import RawScheme
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission
    from scheme.record import Record


# outcomes -----------------------------------------------------------------------------------------
def test_outcomes_count_while_the_spout_is_inactive(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    emissions = [spout.spout.next_tuple() for _ in range(2)]
    spout.spout.deactivate()
    assert spout.spout.next_tuple() is None
    assert all(emission is not None and emission.ack() for emission in emissions)
    spout.spout.activate()
    assert len(spout.drain()) == 1


def test_a_spout_that_starts_inactive_connects_when_it_is_activated(one: SimulatedJob) -> None:
    one.put(1)
    one.count_calls()
    spout = SteppedSpout(one, start_active=False)
    assert spout.spout.is_open
    assert spout.spout.next_tuple() is None
    assert not one.fake.faults.struck
    spout.spout.activate()
    spout.fetch()
    assert len(spout.drain()) == 1


def test_emissions_waits_for_the_activation(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one, start_active=False)
    found: list[SpoutEmission] = []
    loop = threading.Thread(target=lambda: found.extend(spout.spout.emissions(lambda: bool(found))))
    loop.start()
    spout.spout.activate()
    spout.fetch()
    wait_until(lambda: bool(found), timeout_s=20)
    spout.spout.close()
    loop.join(20)
    assert not loop.is_alive()


def test_an_outcome_by_message_id_counts_as_one_by_emission(one: SimulatedJob) -> None:
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
    assert not first.fail("again"), "a late failure of an earlier attempt"
    assert spout.spout.ack(first.message_id), "a late ack of an earlier attempt counts"
    assert not again.ack()


def test_a_with_block_acks_and_an_exception_in_it_fails(one: SimulatedJob) -> None:
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


def test_an_interrupt_in_a_with_block_is_not_a_failure_of_the_record(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with pytest.raises(KeyboardInterrupt), emission:
        raise KeyboardInterrupt
    assert spout.spout.metrics().total.pending == 1


@pytest.mark.parametrize("by", ["emission", "message id", "copy"])
@pytest.mark.parametrize("retry", [True, False])
def test_a_failure_inside_a_with_block_stands(by: str, *, retry: bool, one: SimulatedJob) -> None:
    """The end of the block does not turn it into an ack: the record is retried, or has a letter."""
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with emission:
        if by == "emission":
            assert emission.fail("no rates", retry=retry)
        elif by == "message id":
            assert spout.spout.fail(emission.message_id, "no rates", retry=retry)
        else:
            assert emission.decoded(RawScheme()).fail("no rates", retry=retry)
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (0, 1)
    if retry:
        spout.after(1.0)
        (again,) = spout.drain(ack=False)
        assert again.attempt == 2
    else:
        spout.step("letters")
        (letter,) = spout.letters
        assert letter.reason == "no rates"


@pytest.mark.parametrize(
    ("first", "by"),
    [
        ("ack", "emission"),
        ("ack", "message id"),
        ("ack", "FailRecordError"),
        ("fail", "emission"),
        ("fail", "message id"),
    ],
)
def test_a_second_outcome_that_contradicts_the_first_in_a_with_block_raises(
    first: str, by: str, one: SimulatedJob
) -> None:
    """And the first one stands."""
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    is_ack = first == "ack"
    name = emission.message_id

    def process() -> None:
        with emission:
            assert emission.ack() if is_ack else emission.fail("no")
            if by == "emission":
                _ = emission.fail("no") if is_ack else emission.ack()
            elif by == "message id":
                _ = spout.spout.fail(name, "no") if is_ack else spout.spout.ack(name)
            else:
                raise FailRecordError("no")

    with pytest.raises(IllegalAckerEventError, match=name):
        process()
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == ((1, 0) if is_ack else (0, 1))


def test_the_same_outcome_again_in_a_with_block_changes_nothing(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    acked, failed, raised = spout.drain(ack=False)
    with acked:
        assert acked.ack()
        assert not acked.ack()
    with failed:
        assert failed.fail("first")
        assert not failed.fail("second")
    with raised:
        raised.fail("first")
        raise FailRecordError("second")
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (1, 2)


def test_an_exception_after_an_outcome_in_a_with_block_changes_it_not(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    first, second = spout.drain(ack=False)

    def process() -> None:
        with first:
            first.ack()
            raise KeyError("first")

    def reject() -> None:
        with second:
            second.fail("no", retry=False)
            raise KeyError("second")

    with pytest.raises(KeyError, match="first"):
        process()
    with pytest.raises(KeyError, match="second"):
        reject()
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (1, 1)
    spout.step("letters")
    assert [letter.reason for letter in spout.letters] == ["no"]


@pytest.mark.parametrize("outcome", ["fail", "ack", "none"])
def test_a_late_outcome_in_a_with_block_is_that_of_any_late_outcome(
    outcome: str, one: SimulatedJob
) -> None:
    """The record has timed out meanwhile: a late ack counts, a late failure does not."""
    one.put(1)
    spout = SteppedSpout(one, message_timeout_s=5.0)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with emission:
        spout.after(5.0).step("timeouts")
        if outcome == "ack":
            assert emission.ack()
        elif outcome == "fail":
            assert not emission.fail("too slow")
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.timed_out) == (0 if outcome == "fail" else 1, 1)


def test_a_failure_by_message_id_without_a_payload_at_hand_stands_in_its_with_block(
    one: SimulatedJob,
) -> None:
    """The record has timed out, and its payload found no room: the late failure does not count, and
    the end of the block is no ack.
    """
    one.put(1)
    spout = SteppedSpout(one, message_timeout_s=5.0, prefetch_bytes=1)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with emission:
        spout.after(5.0).step("timeouts")
        assert not spout.spout.fail(emission.message_id, "too slow")
    assert spout.spout.metrics().total.counts.acked == 0


def test_outcomes_after_a_with_block_are_as_any_others(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    first, second = spout.drain(ack=False)
    with first:
        pass
    assert not first.fail("late")
    with second:
        second.fail("no")
    assert second.ack(), "a late ack of a failed delivery counts"


def test_blocks_of_one_emission_in_each_other_have_one_outcome(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    first, second = spout.drain(ack=False)
    with first:  # noqa: SIM117  # the blocks of this test
        with first:
            first.fail("no")

    def contradict() -> None:
        with second:
            with second:
                pass
            second.fail("no")

    with pytest.raises(IllegalAckerEventError):
        contradict()
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (1, 1)


@pytest.mark.parametrize("end", ["ack", "fail", "raise"])
def test_a_tree_made_in_a_with_block_answers_for_it(end: str, one: SimulatedJob) -> None:
    """The end of the block ends the part of the block, not the parts that are still under way."""
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    with suppress(KeyError), emission:
        part = emission.tree().child()
        if end == "raise":
            raise KeyError("airport")
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (0, 1 if end == "raise" else 0)
    if end == "fail":
        part.fail("no")
    else:
        part.ack()
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == ((1, 0) if end == "ack" else (0, 1))


def test_an_emission_without_an_outcome_fails_at_its_deadline(one: SimulatedJob) -> None:
    """Not a millisecond before."""
    one.put(1)
    spout = SteppedSpout(one, message_timeout_s=5.0)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    spout.after(4.999).step("timeouts")
    assert spout.spout.metrics().total.pending == 1
    spout.after(0.001).step("timeouts")
    total = spout.spout.metrics().total
    assert (total.pending, total.queued, total.counts.timed_out, total.counts.failed) == (
        0,
        1,
        1,
        1,
    )
    assert emission.ack(), "a late ack removes it from the retry queue"
    assert spout.spout.metrics().total.queued == 0


def test_the_deadline_of_an_emission_can_be_extended(one: SimulatedJob) -> None:
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


@pytest.mark.parametrize("by", ["emission", "tree", "part"])
def test_a_tree_is_extended_with_its_emission(by: str, one: SimulatedJob) -> None:
    """From the emission, from the tree, and from a part of it, in seconds from now."""
    one.put(1)
    spout = SteppedSpout(one, message_timeout_s=5.0)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    tree = emission.tree()
    part = tree.child()
    extend = {"emission": emission.extend, "tree": tree.extend, "part": part.extend}[by]
    assert extend(20.0)
    spout.after(19.9).step("timeouts")
    assert not tree.ended
    assert spout.spout.metrics().total.pending == 1
    spout.after(0.1).step("timeouts")
    assert tree.ended
    assert not part.extend(20.0)
    assert spout.spout.metrics().total.counts.timed_out == 1


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
    assert (letter.sequence_number, letter.attempts, letter.reason, letter.data) == (
        str(sequence),
        3,
        "attempt 3",
        b"record 0",
    )
    assert letter.message_id == f"{shard(0)}:{sequence}:3"
    assert spout.drain() == []
    spout.spout.close()
    assert one.states()[shard(0)].unresolved == ()


def test_a_record_whose_letter_cannot_be_written_stays_unresolved(one: SimulatedJob) -> None:
    one.put(1)
    spout = SteppedSpout(one)
    spout.refuse_letters = True
    spout.fetch()
    spout.drain(ack=False)[0].fail("bad", retry=False)
    spout.step("letters")
    spout.coordinate()
    assert one.states()[shard(0)].unresolved
    spout.refuse_letters = False
    spout.after(1.0).step("letters")
    spout.coordinate()
    assert len(spout.letters) == 1
    assert not one.states()[shard(0)].unresolved


def test_a_tree_acks_or_fails_its_emission(one: SimulatedJob) -> None:
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
    """The fault is not in the records then, so none is dead-lettered."""
    one.put(10)
    spout = SteppedSpout(one, breaker_failures=5)
    spout.fetch()
    for emission in spout.drain(ack=False)[:5]:
        emission.fail("no database")
    with pytest.raises(NothingAckedError, match="none was ever acked"):
        spout.spout.next_tuple()
    assert spout.letters == []


def test_hooks_are_called_and_their_exceptions_change_nothing(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    one.put(2)
    seen: list[Any] = []

    def on_ack(emission: SpoutEmission) -> None:
        seen.append(("ack", emission.values))
        raise RuntimeError("an error of the hook")

    spout = SteppedSpout(
        one,
        on_ack=on_ack,
        on_fail=lambda emission, reason: seen.append(("fail", emission.values, reason)),
    )
    spout.fetch()
    first, second = spout.drain(ack=False)
    assert first.ack()
    assert second.fail("no")
    assert seen == [("ack", (b"record 0",)), ("fail", (b"record 1",), "no")]
    assert "an error of the hook" in caplog.text


def test_an_error_of_the_scheme_itself_fails_the_record_alone(one: SimulatedJob) -> None:
    """The data is not malformed, the code is wrong, so it is retried: the code may be mended."""

    class Broken(RawScheme):
        def decode(self, record: Record) -> tuple[bytes]:
            raise KeyError(record.partition_key)

    one.put(1)
    spout = SteppedSpout(one, scheme=Broken())
    spout.fetch()
    assert spout.spout.next_tuple() is None
    total = spout.spout.metrics().total
    assert (total.pending, total.queued) == (0, 1)


def test_the_breaker_counts_malformed_records_and_listeners_get_its_error(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        one.put(1, data=b"nonsense")
    seen: list[Exception] = []

    class Listener(SpoutListener):
        def error(self, error: Exception) -> None:
            seen.append(error)

    spout = SteppedSpout(
        one, scheme=JsonScheme("n INT"), breaker_failures=3, listeners=(Listener(),)
    )
    spout.fetch()
    with pytest.raises(NothingAckedError):
        spout.spout.next_tuple()
    assert [type(error) for error in seen] == [NothingAckedError]
    assert "NothingAckedError" not in caplog.text  # it was raised
