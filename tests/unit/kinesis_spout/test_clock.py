"""The machine's clock."""

from __future__ import annotations

import pickle

from kinesis_spout.clock import SystemClock


def test_the_clock_goes_on_and_can_be_pickled() -> None:
    """It is pickled to executors with the client."""
    clock = pickle.loads(pickle.dumps(SystemClock()))  # noqa: S301  # our own bytes
    before_s, before_ms = clock.monotonic_s(), clock.now_ms()
    clock.sleep(0.002)
    assert clock.monotonic_s() - before_s >= 0.002
    assert clock.now_ms() >= before_ms
    clock.sleep(-1)
    assert clock == SystemClock()
