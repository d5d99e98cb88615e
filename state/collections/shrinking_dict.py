"""A dict that gives its memory back.

Python's dict keeps the table of its largest size when entries are deleted: a shard that once had a
million records in flight would hold some 40 MB for ever.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Tables below this size are not worth a rebuild.
_SMALL = 1_024


class ShrinkingDict(dict[K, V], Generic[K, V]):
    """Take entries out with `drop` only: it rebuilds the table when it has become four times too
    large, so O(1) amortised.
    """

    __slots__ = ("_peak",)

    def __init__(self) -> None:
        super().__init__()
        self._peak = _SMALL

    def drop(self, key: K) -> V | None:
        """Take an entry out and return it; None for one that is not in."""
        # Entries only become more between two drops, so this sees every peak.
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
