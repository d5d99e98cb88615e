"""The standalone spout: whatever a function of the user raises is the outcome of its record, and
costs no other record anything.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.record_lines import letter_line
from kinesis_spout.spout.kinesis_spout import FailRecordError
from kinesis_spout.spout.listener import SpoutListener
from scheme.raw_scheme import RawScheme
from tests.support.outcomes.odd_errors import ODD_ERRORS, BareMalformedError, Unprintable
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission
    from scheme.record import Record

ODD = pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda one: type(one).__name__)
# In a `with emission:` block these end the program, and are no outcome.
NO_OUTCOME = (SystemExit, GeneratorExit)


def emitted(job: SimulatedJob, **changes: Any) -> tuple[SteppedSpout, SpoutEmission]:
    job.put(1)
    spout = SteppedSpout(job, **changes)
    spout.fetch()
    (emission,) = spout.drain(ack=False)
    return spout, emission


def stored_reason(spout: SteppedSpout) -> str | None:
    """After a commit, as a new process would read it."""
    spout.coordinate()
    spout.spout.next_tuple()  # raises an error that has stopped the spout
    (record,) = spout.job.states()[shard(0)].unresolved
    return record.reason


@ODD
def test_any_exception_in_a_with_block_fails_the_record_and_propagates(
    error: BaseException, one: SimulatedJob
) -> None:
    spout, emission = emitted(one)
    with pytest.raises(type(error)), emission:
        raise error
    counts = spout.spout.metrics().total.counts
    if isinstance(error, NO_OUTCOME):
        assert (counts.failed, spout.spout.metrics().total.pending) == (0, 1)
        return
    assert counts.failed == 1
    reason = stored_reason(spout)
    assert reason is not None
    assert reason.startswith(type(error).__name__)


@ODD
def test_any_exception_may_end_the_spouts_block(error: BaseException, one: SimulatedJob) -> None:
    """It is raised as it is, and its record fails."""
    spout, emission = emitted(one)

    def process() -> None:
        with ExitStack() as stack:
            stack.push(spout.spout)
            stack.enter_context(emission)
            raise error

    with pytest.raises(type(error)):
        process()


class OddFailureError(FailRecordError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [OddFailureError("x"), FailRecordError("half \ud83d"), FailRecordError(404)],  # type: ignore[arg-type]  # a user may
)
def test_a_failure_with_an_odd_reason_fails_its_record_and_the_loop_goes_on(
    error: FailRecordError, one: SimulatedJob
) -> None:
    spout, emission = emitted(one)
    with emission:
        raise error
    assert stored_reason(spout) is not None


class BareFailureError(FailRecordError):
    """It does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")


class PropertyFailureError(BareFailureError):
    @property
    def retry(self) -> bool:  # type: ignore[override]  # a user may
        raise RuntimeError("no retry")


@pytest.mark.parametrize("kind", [BareFailureError, PropertyFailureError])
def test_a_failure_of_a_class_without_the_field_retry_is_retried(
    kind: type[FailRecordError], one: SimulatedJob
) -> None:
    spout, emission = emitted(one)
    with emission:
        raise kind
    assert stored_reason(spout) == "bare"


REASONS: list[tuple[Any, str]] = [
    ("half \ud83d", "half \\ud83d"),
    ("a\0b", "a\\x00b"),
    (404, "404"),
    ({"code": 1}, "{'code': 1}"),
    ("x" * 5_000_000, "x" * 997 + "..."),
]


@pytest.mark.parametrize(("reason", "kept"), REASONS, ids=["half", "nul", "int", "dict", "long"])
@pytest.mark.parametrize("by", ["emission", "message id", "tree"])
def test_any_reason_is_kept_as_text_in_the_state_and_in_the_letter(
    by: str, reason: Any, kept: str, one: SimulatedJob
) -> None:
    heard: list[str | None] = []
    spout, emission = emitted(one, on_fail=lambda _, why: heard.append(why))
    if by == "emission":
        emission.fail(reason)
    elif by == "message id":
        spout.spout.fail(emission.message_id, reason)
    else:
        emission.tree().fail(reason)
    assert heard == [kept]
    assert stored_reason(spout) == kept
    spout.after(1.0)
    (again,) = spout.drain(ack=False)
    again.fail(reason, retry=False)
    spout.step("letters")
    (letter,) = spout.letters
    assert letter.reason == kept
    assert letter_line(letter)


@ODD
def test_any_exception_in_a_block_of_a_tree_fails_its_emission(
    error: BaseException, one: SimulatedJob
) -> None:
    spout, emission = emitted(one)
    with pytest.raises(type(error)), emission.tree():
        raise error
    reason = stored_reason(spout)
    assert reason is not None
    assert reason.startswith(type(error).__name__)


@ODD
def test_any_exception_of_the_dead_letter_function_keeps_the_record_for_a_later_call(
    error: BaseException, one: SimulatedJob
) -> None:
    refuses = [True]
    letters: list[Any] = []

    def take(letter: Any) -> None:
        if refuses[0]:
            raise error
        letters.append(letter)

    spout, emission = emitted(one, dead_letter=take)
    emission.fail("bad", retry=False)
    spout.step("letters")
    assert stored_reason(spout) == "bad"
    health = spout.spout.health()
    assert not health.ok
    assert type(error).__name__ in str(health.last_error)
    refuses[0] = False
    spout.after(2.0).step("letters")
    spout.coordinate()
    assert len(letters) == 1
    assert one.states()[shard(0)].unresolved == ()


@ODD
def test_any_exception_of_a_hook_or_listener_changes_nothing(
    error: BaseException, one: SimulatedJob
) -> None:
    def raising(*_: object) -> None:
        raise error

    class Listener(SpoutListener):
        def __repr__(self) -> str:
            raise RuntimeError("no text")

        emitted = acked = failed = timed_out = exhausted = checkpointed = raising  # type: ignore[assignment]

    one.put(3)
    spout = SteppedSpout(
        one,
        on_ack=raising,
        on_fail=raising,
        listeners=(Listener(),),
        message_timeout_s=5.0,
    )
    spout.fetch()
    acked, failed, _late = spout.drain(ack=False)
    assert acked.ack()
    assert failed.fail("no", retry=False)
    spout.after(5.0).step("timeouts")
    spout.step("letters")
    spout.coordinate()
    spout.spout.next_tuple()
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed, counts.timed_out, counts.dead_lettered) == (1, 2, 1, 1)


@ODD
def test_any_exception_of_a_scheme_is_the_outcome_of_its_record(
    error: BaseException, one: SimulatedJob
) -> None:
    """The records behind it are delivered."""
    left = [error]

    class Broken(RawScheme):
        def decode(self, record: Record) -> tuple[bytes]:
            if left:
                raise left.pop()
            return super().decode(record)

    one.put(2)
    spout = SteppedSpout(one, scheme=Broken())
    spout.fetch()
    behind = spout.spout.next_tuple()
    assert behind is not None
    if isinstance(error, BareMalformedError):
        spout.step("letters")
        assert [letter.reason for letter in spout.letters] == ["bare"]
        return
    behind.ack()
    spout.coordinate()
    (record,) = one.states()[shard(0)].unresolved
    assert type(error).__name__ in str(record.reason)


def test_an_outcome_by_message_id_counts_though_the_scheme_raises_by_then(
    one: SimulatedJob,
) -> None:
    raises = [False]

    class Broken(RawScheme):
        def decode(self, record: Record) -> tuple[bytes]:
            if raises[0]:
                raise Unprintable
            return super().decode(record)

    one.put(2)
    spout = SteppedSpout(one, scheme=Broken())
    spout.fetch()
    first, second = spout.drain(ack=False)
    raises[0] = True
    assert spout.spout.ack(first.message_id)
    assert spout.spout.fail(second.message_id, "no")
