"""The standalone spout: whatever a function of the user raises is the outcome of its record, and
costs no other record anything.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.dead_letter.letter import line_of
from kinesis_spout.spout.kinesis_spout import FailRecordError
from kinesis_spout.spout.listener import SpoutListener
from scheme.plain_schemes import RawScheme
from tests.support.outcomes.odd_errors import ODD_ERRORS, BareMalformedError
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout, emitted

if TYPE_CHECKING:
    from scheme.record import Record


def stored_reasons(spout: SteppedSpout) -> dict[str, str | None]:
    """By sequence number, after a commit, as a new process would read them."""
    spout.coordinate()
    spout.spout.next_tuple()  # raises an error that has stopped the spout
    records = spout.job.states()[shard(0)].unresolved
    return {str(one.first): one.reason for one in records if one.attempts}


class OddFailureError(FailRecordError):
    """It does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def retry(self) -> bool:  # type: ignore[override]  # a user may
        raise RuntimeError("no retry")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OddFailureError(), ""),
        (FailRecordError("half \ud83d"), "half"),
        (FailRecordError(404), "404"),  # type: ignore[arg-type]  # a user may
    ],
)
def test_a_failure_with_an_odd_reason_fails_its_record_and_the_loop_goes_on(
    error: FailRecordError, reason: str, one: SimulatedJob
) -> None:
    """Also one without the field `retry`: it is retried."""
    spout, (emission,) = emitted(one)
    with emission:
        raise error
    (stored,) = stored_reasons(spout).values()
    assert (stored or "").startswith(reason)


REASONS: dict[Any, str] = {
    "half \ud83d": "half \\ud83d",
    "a\0b": "a\\x00b",
    404: "404",
    ("code", 1): "('code', 1)",
    "x" * 5_000_000: "x" * 997 + "...",
}


@pytest.mark.parametrize("by", ["emission", "message id", "tree"])
def test_any_reason_is_kept_as_text_in_the_state_and_in_the_letter(
    by: str, one: SimulatedJob
) -> None:
    heard: list[str | None] = []
    spout, emissions = emitted(one, len(REASONS), on_fail=lambda _, why: heard.append(why))
    for reason, emission in zip(REASONS, emissions, strict=True):
        if by == "emission":
            emission.fail(reason)
        elif by == "message id":
            spout.spout.fail(emission.message_id, reason)
        else:
            emission.tree().fail(reason)
    kept = list(REASONS.values())
    assert heard == kept
    assert list(stored_reasons(spout).values()) == kept
    spout.after(1.0)
    for reason, again in zip(REASONS, spout.drain(ack=False), strict=True):
        again.fail(reason, retry=False)
    spout.step("letters", times=len(REASONS))
    assert [letter.reason for letter in spout.letters] == kept
    assert all(map(line_of, spout.letters))


def test_any_exception_of_a_hook_or_listener_changes_nothing(one: SimulatedJob) -> None:
    errors = cycle(ODD_ERRORS)

    def raising(*_: object) -> None:
        raise next(errors)

    class Listener(SpoutListener):
        def __repr__(self) -> str:
            raise RuntimeError("no text")

        emitted = acked = failed = timed_out = exhausted = checkpointed = raising  # type: ignore[assignment]

    count = len(ODD_ERRORS)
    spout, emissions = emitted(
        one,
        3 * count,
        on_ack=raising,
        on_fail=raising,
        listeners=(Listener(),),
        message_timeout_s=5.0,
    )
    assert all(emission.ack() for emission in emissions[:count])
    assert all(emission.fail("no", retry=False) for emission in emissions[count : 2 * count])
    spout.after(5.0).step("timeouts")
    spout.step("letters", times=count)
    assert len(stored_reasons(spout)) == count
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (count, 2 * count)
    assert (counts.timed_out, counts.dead_lettered) == (count, count)


def test_any_exception_of_a_scheme_is_the_outcome_of_its_record(one: SimulatedJob) -> None:
    """The records behind them are delivered, and an outcome by message id counts though the scheme
    raises by then.
    """
    left = list(ODD_ERRORS)

    class Broken(RawScheme):
        def decode(self, record: Record) -> tuple[bytes]:
            if left:
                raise left.pop(0)
            return super().decode(record)

    spout, (first, second) = emitted(one, len(left) + 2, scheme=Broken())
    spout.step("letters", times=len(ODD_ERRORS))
    others = [error for error in ODD_ERRORS if not isinstance(error, BareMalformedError)]
    assert [letter.reason for letter in spout.letters] == ["bare"] * (len(ODD_ERRORS) - len(others))
    assert {letter.attempts for letter in spout.letters} == {1}, "malformed ones are not retried"
    assert spout.spout.metrics().total.counts.malformed == len(spout.letters)
    for error, reason in zip(others, stored_reasons(spout).values(), strict=False):
        assert type(error).__name__ in str(reason)
    left += [ValueError("x")] * 9
    assert spout.spout.ack(first.message_id)
    assert spout.spout.fail(second.message_id, "no")
