from __future__ import annotations

import sys

from state.collections.shrinking_dict import ShrinkingDict


def test_memory_is_released_when_most_entries_are_removed() -> None:
    """Also when a few stay: one stuck record must not hold the memory of a million resolved
    ones.
    """
    entries: ShrinkingDict[int, int] = ShrinkingDict()
    for key in range(100_000):
        entries[key] = key
    full_bytes = sys.getsizeof(entries)
    for key in range(5, 100_000):
        assert entries.drop(key) == key
    assert dict(entries) == {key: key for key in range(5)}
    assert sys.getsizeof(entries) < full_bytes / 20


def test_a_rebuild_keeps_entries_and_their_order() -> None:
    """The tracker relies on it: records are dead-lettered in the order in which they were
    exhausted.
    """
    entries: ShrinkingDict[int, int] = ShrinkingDict()
    for key in range(10_000, 0, -1):
        entries[key] = -key
    for key in range(8_000, 0, -1):
        entries.drop(key)
    assert entries.drop(8_000) is None
    assert list(entries.items()) == [(key, -key) for key in range(10_000, 8_000, -1)]
