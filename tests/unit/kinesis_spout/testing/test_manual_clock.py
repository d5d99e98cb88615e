"""Simulated time moves only when a test, or what it tests, lets it pass."""

from __future__ import annotations

from kinesis_spout.testing import ManualClock


def test_a_wait_that_rounding_leaves_is_over_in_the_end() -> None:
    """Due times are sums, and the wait for one is a difference: it may be less than what the time
    can be told to. Zero and negative waits are none.
    """
    clock = ManualClock()
    clock.sleep(1.0255400912476837)
    before_s = clock.monotonic_s()
    clock.sleep(2.2e-16)
    assert clock.monotonic_s() > before_s
    before_s = clock.monotonic_s()
    for none_s in (0.0, -1.0):
        clock.sleep(none_s)
    assert clock.monotonic_s() == before_s
