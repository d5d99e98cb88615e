"""A dict that releases its memory when entries are removed.

CPython's dict never shrinks its table on deletion. A shard that once had a million records in
flight would hold some 40 MB for ever.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Tables below this size are not worth a rebuild.
_SMALL = 1_024


class ShrinkingDict(dict[K, V], Generic[K, V]):
    """Remove entries with `drop` only. It rebuilds the table when the table is four times too
    large, which costs O(1) amortised.
    """

    __slots__ = ("_peak",)

    def __init__(self) -> None:
        super().__init__()
        self._peak = _SMALL

    def drop(self, key: K) -> V | None:
        """Remove an entry and return its value; None for a key that is not in the dict."""
        # Between two drops the dict only grows, so looking here sees every peak.
        self._peak = max(self._peak, len(self))
        value = self.pop(key, None)
        if 4 * len(self) < self._peak and self._peak > _SMALL:
            self._rebuild()
        return value

    def _rebuild(self) -> None:
        entries = dict(self)
        self.clear()
        self.update(entries)
        self._peak = max(len(entries), _SMALL)
