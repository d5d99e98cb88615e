"""Pacing keeps within a shard's read limits."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.config import ReadRate
from kinesis_spout.reading.pacing import Pacer

MIB = 1024 * 1024


def test_reads_of_another_process_count_for_as_long_as_the_largest_page_blocks_a_shard() -> None:
    """No longer, since the other machine's clock may be wrong; and a wait that is over is none."""
    pacer = Pacer(ReadRate())
    pacer.wait_for_others(10.0, -3.0)
    assert pacer.ready_at_s(10.0) == 10.0
    pacer.wait_for_others(10.0, 1.5)
    assert pacer.ready_at_s(10.0) == 11.5
    pacer.wait_for_others(10.0, 3_600.0)
    assert pacer.ready_at_s(10.0) == 16.0


def test_throttling_doubles_the_wait_up_to_a_bound_until_a_page_comes() -> None:
    """With jitter from the random that is passed in."""
    pacer, random = Pacer(ReadRate()), Random(7)  # noqa: S311  # the same in every run
    waits, now_s = [], 100.0
    for _ in range(8):
        pacer.on_fetch(now_s)
        pacer.back_off(now_s, random)
        waits.append(pacer.ready_at_s(now_s) - now_s)
        now_s = pacer.ready_at_s(now_s)
    for attempt, wait_s in enumerate(waits):
        longest_s = min(8.0, 0.5 * 2**attempt)
        assert longest_s / 2 - 1e-6 <= wait_s <= max(longest_s, 1.0) + 1e-6
    assert pacer.refused_in_a_row == 8
    pacer.on_fetch(now_s)
    pacer.on_page(now_s, 0)
    assert pacer.refused_in_a_row == 0


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1), st.integers(0, 3 * MIB)), max_size=60),
    st.floats(0.3, 5),
)
def test_whatever_the_networks_delays_the_service_sees_no_more_than_the_limit(
    calls: list[tuple[float, float, int]], reads_per_second: float
) -> None:
    """The service counts each call somewhere between its start and its answer: never six in less
    than a second, at the default rate.
    """
    pacer, now_s, seen_s = Pacer(ReadRate(reads_per_second=reads_per_second)), 0.0, []
    for took_s, fraction, payload_bytes in calls:
        now_s = pacer.ready_at_s(now_s)
        pacer.on_fetch(now_s)
        seen_s.append(now_s + took_s * fraction)
        now_s += took_s
        pacer.on_page(now_s, payload_bytes)
    window = max(1, int(reads_per_second))
    for earlier, later in zip(seen_s, seen_s[window:], strict=False):
        assert later - earlier >= window / reads_per_second - 1e-6
