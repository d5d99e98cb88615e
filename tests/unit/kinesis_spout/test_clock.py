"""The machine's clock."""

from __future__ import annotations

import pickle
import threading

import pytest

from kinesis_spout.clock import InterruptibleClock, SystemClock
from kinesis_spout.errors import InterruptedSleepError


def test_the_clock_goes_on_and_can_be_pickled() -> None:
    """It is pickled to executors with the client."""
    clock = pickle.loads(pickle.dumps(SystemClock()))  # noqa: S301  # our own bytes
    before_s, before_ms = clock.monotonic_s(), clock.now_ms()
    clock.sleep(0.002)
    assert clock.monotonic_s() - before_s >= 0.002
    assert clock.now_ms() >= before_ms
    clock.sleep(-1)
    assert clock == SystemClock()


def test_a_sleep_ends_with_an_error_when_it_is_interrupted_and_none_begins_after() -> None:
    """An error, so that whoever waits for the next attempt makes no further one."""
    interrupted = threading.Event()
    clock = InterruptibleClock(interrupted)
    clock.sleep(0.002)
    timer = threading.Timer(0.01, interrupted.set)
    timer.start()
    with pytest.raises(InterruptedSleepError):
        clock.sleep(60)
    timer.join()
    with pytest.raises(InterruptedSleepError):
        clock.sleep(60)
    clock.sleep(0)
