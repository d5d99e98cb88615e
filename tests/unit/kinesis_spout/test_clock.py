"""The machine's clock."""

from __future__ import annotations

import threading

import pytest

from kinesis_spout.clock import InterruptibleClock
from kinesis_spout.errors import InterruptedSleepError


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
