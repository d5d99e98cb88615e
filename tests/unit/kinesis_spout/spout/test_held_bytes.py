"""How much payload a spout holds: what its unresolved records need, and what its options allow."""

from __future__ import annotations

import gc
import os
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import FakeKinesis
from scheme.plain_schemes import RawScheme
from state.retry_policy import RetryPolicy
from tests.support.spout.gates import LetterSink
from tests.support.spout.spout_world import SpoutUnderTest, drain

if TYPE_CHECKING:
    from collections.abc import Callable


KIB = 1024
SIZE = 4 * KIB
BUDGET = 40 * KIB
MOST_TURNS = 300
SOON = RetryPolicy(retry_limit=3, first_delay_ms=1, jitter=0)


def held_bytes(*roots: object, size: int) -> int:
    """The bytes of all payloads that can be reached from these objects, each counted once. Each
    payload has `size` bytes. The service and its client are not looked into.
    """
    found = 0
    seen: set[int] = set()
    stack: list[Any] = list(roots)
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, ModuleType | type | KinesisClient | FakeKinesis):
            continue
        seen.add(id(one))
        if isinstance(one, bytes):
            found += size if len(one) == size else 0
        elif isinstance(one, FunctionType):  # not its globals: all modules are reached from there
            stack += [one.__closure__, one.__defaults__, one.__kwdefaults__]
        else:
            stack += gc.get_referents(one)
    return found


def put(under_test: SpoutUnderTest, count: int) -> list[str]:
    """The sequence numbers of records whose payloads differ."""
    return [
        under_test.fake.put("orders", f"key {number}", os.urandom(SIZE)).partition(":")[2]
        for number in range(count)
    ]


def turns(under_test: SpoutUnderTest, count: int, *names: str) -> None:
    for _ in range(count):
        under_test.loops.take(*names)
        under_test.clock.advance(1)


def turns_until(under_test: SpoutUnderTest, fact: Callable[[], bool]) -> None:
    for _ in range(MOST_TURNS):
        if fact():
            return
        turns(under_test, 1)
    raise AssertionError("it does not become so")


def test_a_sink_that_is_down_makes_the_spout_hold_no_more_than_prefetch_bytes() -> None:
    """Retries go on: letters take at most half of the room that is kept for them. The letters are
    complete when it is up again: payloads are read again.
    """
    under_test = SpoutUnderTest()
    numbers = put(under_test, 100)
    retried = set(put(under_test, 50))
    sink = LetterSink(is_up=False)
    with under_test.fresh(dead_letter=sink, prefetch_bytes=BUDGET, retry=SOON) as spout:
        for emission in drain(spout, under_test.loops):
            emission.fail("bad", retry=emission.sequence_number in retried)
        del emission
        assert held_bytes(spout, size=SIZE) <= BUDGET + SIZE, "also before a letter is refused"
        for _ in range(MOST_TURNS):
            turns(under_test, 1)
            assert held_bytes(spout, size=SIZE) <= BUDGET + SIZE
            while (again := spout.next_tuple()) is not None:
                retried.remove(again.sequence_number)
                again.ack()
            del again
            if not retried:
                break
        assert (retried, sink.taken) == (set(), [])
        sink.is_up = True
        turns_until(under_test, lambda: len(sink.taken) == 100)
        assert sorted(sink.taken, key=int) == sorted(numbers, key=int)
        assert sink.sizes == {SIZE}
        turns(under_test, 1)
        assert held_bytes(spout, size=SIZE) == 0
    (state,) = under_test.states().values()
    assert state.unresolved_count == 0


def test_records_that_have_aged_in_the_queue_keep_no_more_than_the_half_of_letters() -> None:
    """Else a sink that is down would leave no room for retries. Their letters are complete."""
    under_test = SpoutUnderTest()
    numbers = put(under_test, 40)
    sink = LetterSink(is_up=False)
    ages = RetryPolicy(first_delay_ms=2_000, max_delay_ms=2_000, max_age_ms=1_000, jitter=0)
    with under_test.fresh(dead_letter=sink, prefetch_bytes=BUDGET, retry=ages) as spout:
        for emission in drain(spout, under_test.loops):
            emission.fail("bad")
        del emission
        turns(under_test, 30)
        assert held_bytes(spout, size=SIZE) <= BUDGET // 2 + SIZE
        sink.is_up = True
        turns_until(under_test, lambda: len(sink.taken) == 40)
        assert sorted(sink.taken, key=int) == sorted(numbers, key=int)
        assert sink.sizes == {SIZE}


def test_letters_that_the_sink_refuses_leave_room_for_the_others() -> None:
    """Here the first 30 are refused for ever, and fill the room several times over."""
    under_test = SpoutUnderTest()
    numbers = put(under_test, 60)
    sink = LetterSink()
    with under_test.fresh(dead_letter=sink, prefetch_bytes=BUDGET) as spout:
        for emission in drain(spout, under_test.loops):
            emission.fail("bad", retry=False)
        del emission
        sink.refused = set(numbers[:30])
        for turn in range(MOST_TURNS):
            turns(under_test, 1, "retries", "letters")
            if len(sink.taken) == 30:
                break
            if not turn % 10:
                assert held_bytes(spout, size=SIZE) <= BUDGET + SIZE
        assert sorted(sink.taken, key=int) == sorted(numbers[30:], key=int)


@pytest.mark.parametrize("committed", ["never", "between the acks", "after them"])
@pytest.mark.parametrize("options", [{}, {"message_timeout_s": None}, {"scheme": RawScheme()}])
def test_an_emission_that_is_held_keeps_no_other_payload(
    options: dict[str, Any], committed: str
) -> None:
    under_test = SpoutUnderTest()
    put(under_test, 100)
    with under_test.fresh(**options) as spout:
        came = drain(spout, under_test.loops)
        under_test.clock.advance(10)
        put(under_test, 100)
        came += drain(spout, under_test.loops)
        assert len(came) == 200
        kept = came[::25]
        others = [one for one in came if one not in kept]
        del came
        for number, emission in enumerate(others):
            if committed == "between the acks" and number == 90:
                turns(under_test, 1, "commit")
            assert emission.ack()
        del others, emission
        if committed == "after them":
            turns(under_test, 3, "commit", "fetch")
        assert held_bytes(spout, kept, size=SIZE) == len(kept) * SIZE
        for one in kept:
            assert len(one.data) == len(one.record.data) == SIZE
            assert one.ack()
        turns(under_test, 3, "commit", "fetch")
        assert spout.metrics().total.pending == 0
        assert held_bytes(spout, size=SIZE) == 0
