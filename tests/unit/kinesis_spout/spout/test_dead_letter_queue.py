"""Letters that the sink refuses, or does not return from, beside letters that it takes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.spout.dead_letter_queue import (
    LETTER_TIMEOUT_S,
    LETTERS_AT_ONCE,
    MAX_HANGING,
    REFUSALS,
    LetterRefusedError,
)
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.threads import DaemonPool
from tests.support.spout.gates import Gate, LetterSink
from tests.support.spout.spout_world import SpoutUnderTest, drain
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.spout.kinesis_spout import KinesisSpout


class Errors(SpoutListener):
    """The refusals that were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def error(self, error: Exception) -> None:
        assert isinstance(error, LetterRefusedError)
        self.told.append(str(error))


def exhausted(under_test: SpoutUnderTest, spout: KinesisSpout, count: int) -> list[str]:
    """Reject so many new records. Returns their sequence numbers. Reads may run in threads."""
    under_test.put(count)
    numbers: list[str] = []

    def take() -> bool:
        under_test.loops.take("fetch")
        while (emission := spout.next_tuple()) is not None:
            assert emission.fail("bad", retry=False)
            numbers.append(emission.sequence_number)
        return len(numbers) == count

    wait_until(take)
    return numbers


def test_a_refused_letter_waits_for_a_backoff_of_its_own_and_each_refusal_is_reported() -> None:
    """1, 2, 4 ... up to 60 seconds. It is counted as refused once it was several times."""
    under_test, sink, errors = SpoutUnderTest(), LetterSink(), Errors()
    with under_test.fresh(dead_letter=sink, listeners=(errors,)) as spout:
        (number,) = exhausted(under_test, spout, 1)
        sink.refused = {number}
        under_test.loops.take("letters")
        for made, backoff_s in enumerate((1, 2, 4, 8, 16, 32, 60, 60), 1):
            assert spout.metrics().total.refused == (made >= REFUSALS)
            under_test.clock.advance(backoff_s - 0.001)
            under_test.loops.take("letters")
            assert len(sink.calls) == made
            under_test.clock.advance(0.001)
            under_test.loops.take("letters")
            assert len(sink.calls) == made + 1
        assert len(errors.told) == len(sink.calls)
        for said in errors.told:
            assert "could not be written (OSError: no room)" in said
            assert number in said
        fresh = exhausted(under_test, spout, 1)
        under_test.loops.take("letters")
        assert sink.taken == fresh
        sink.refused.clear()
        under_test.clock.advance(60)
        under_test.loops.take("letters")
        assert spout.metrics().total.refused == 0
        assert spout.metrics().total.counts.dead_lettered == 2


def test_a_late_ack_ends_the_refusals_of_a_letter() -> None:
    under_test, sink = SpoutUnderTest(), LetterSink()
    with under_test.fresh(dead_letter=sink) as spout:
        under_test.put(1)
        (emission,) = drain(spout, under_test.loops)
        emission.fail("bad", retry=False)
        sink.refused = {emission.sequence_number}
        for _ in range(REFUSALS):
            under_test.loops.take("letters")
            under_test.clock.advance(60)
        assert spout.metrics().total.refused == 1
        assert emission.ack()
        under_test.loops.take("letters")
        assert spout.metrics().total.refused == 0
        assert len(sink.calls) == REFUSALS


def stepped(under_test: SpoutUnderTest, fact: Callable[[], bool]) -> None:
    """Step the letters until it is so. Their calls run in threads."""

    def look() -> bool:
        under_test.loops.take("letters")
        return fact()

    wait_until(look)


@contextmanager
def hanging(
    under_test: SpoutUnderTest, sink: LetterSink, count: int, more: int = 0
) -> Iterator[list[str]]:
    """A spout with letters of which so many hang until the end. Yields their numbers."""
    errors = Errors()
    spout = under_test.fresh(
        dead_letter=sink, listeners=(errors,), new_pool=DaemonPool, close_timeout_s=0.1
    )
    spout.open()
    numbers = exhausted(under_test, spout, count + more)
    sink.gates = {number: Gate() for number in numbers[:count]}
    for gate in sink.gates.values():
        gate.shut()
    yield numbers
    for gate in sink.gates.values():
        gate.open()
    stepped(under_test, lambda: spout.metrics().total.counts.dead_lettered == len(numbers))
    assert sorted(sink.calls) == sorted(sink.taken) == sorted(numbers), "none is called twice"
    assert errors.told
    assert all("the spout waits for the end of this call" in said for said in errors.told)
    spout.close()


def test_a_call_beyond_the_time_limit_is_left_and_not_made_again_until_it_returns() -> None:
    under_test, sink = SpoutUnderTest(), LetterSink()
    with hanging(under_test, sink, LETTERS_AT_ONCE, more=1) as numbers:
        under_test.loops.take("letters")
        assert all(gate.reached.wait(60) for gate in sink.gates.values())
        under_test.loops.take("letters")
        assert sorted(sink.calls) == sorted(sink.gates), "all places are taken"
        under_test.clock.advance(LETTER_TIMEOUT_S)
        stepped(under_test, lambda: sink.taken == numbers[LETTERS_AT_ONCE:])
        under_test.clock.advance(1000)
        under_test.loops.take("letters")
        assert sorted(sink.calls) == sorted(numbers), "none is called again while it hangs"


def test_the_calls_that_hang_are_bounded() -> None:
    under_test, sink = SpoutUnderTest(), LetterSink()
    with hanging(under_test, sink, 2 * MAX_HANGING):
        for _ in range(MAX_HANGING):
            under_test.loops.take("letters")
            under_test.clock.advance(LETTER_TIMEOUT_S)
        under_test.loops.take("letters")
        stepped(under_test, lambda: len(sink.calls) == MAX_HANGING)
