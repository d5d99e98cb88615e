from __future__ import annotations

import sys

from state.collections.shrinking_dict import ShrinkingDict


def test_memory_is_given_back_when_most_entries_are_gone() -> None:
    """Also when a few stay: a stuck record must not hold the memory of a million that
    have passed.
    """
    entries: ShrinkingDict[int, int] = ShrinkingDict()
    for key in range(100_000):
        entries[key] = key
    full_bytes = sys.getsizeof(entries)
    for key in range(5, 100_000):
        assert entries.drop(key) == key
    assert dict(entries) == {key: key for key in range(5)}
    assert sys.getsizeof(entries) < full_bytes / 20


def test_order_and_entries_outlive_the_rebuilding() -> None:
    """What is dead-lettered first is found first."""
    entries: ShrinkingDict[int, int] = ShrinkingDict()
    for key in range(10_000, 0, -1):
        entries[key] = -key
    for key in range(8_000, 0, -1):
        entries.drop(key)
    assert entries.drop(8_000) is None
    assert list(entries.items()) == [(key, -key) for key in range(10_000, 8_000, -1)]
