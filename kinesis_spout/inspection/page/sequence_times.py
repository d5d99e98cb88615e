"""When a shard was created, and a record put, as their sequence numbers suggest. Pure.

The service promises only that the numbers of a key grow. Authors of emulators derived a layout of
56 digits from numbers that they observed (kinesalite's `db/index.js`, `parseSequence`): the second
of the shard's creation, and the second of the put. A picture may place things by it. Nothing is
decided by it, and a time that cannot be right is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

_VERSION = 2
_SECOND = 0xF_FFFF_FFFF
_SLACK_MS = 60_000  # clocks differ


@dataclass(frozen=True, slots=True)
class SequenceTimes:
    """Between `first_ms`, when the stream was created, and `last_ms`, the time of the look."""

    first_ms: int
    last_ms: int

    def shard_created_ms(self, number: SequenceNumber | None) -> int | None:
        return self._plausible(number, 148)

    def put_ms(self, number: SequenceNumber | None) -> int | None:
        return self._plausible(number, 36)

    def _plausible(self, number: SequenceNumber | None, shift: int) -> int | None:
        if (
            number is None
            or number.sequence >> 184 != _VERSION
            or number.sequence & 0xF != _VERSION
        ):
            return None
        time_ms = (number.sequence >> shift & _SECOND) * 1000
        if not self.first_ms - _SLACK_MS <= time_ms <= self.last_ms + _SLACK_MS:
            return None
        return min(max(time_ms, self.first_ms), self.last_ms)
