"""The pace of reading retries: two of the five calls a second that a shard has, so that new records
always get through.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.reading.pacing import Pacer

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.config import ReadRate

SHARE_OF_CALLS = 2 / 5


class RetryPacer(Pacer):
    """Holds each call against its own smaller rate and against the shard's. Not for concurrent use,
    as the shard's is not.
    """

    def __init__(self, rate: ReadRate, shard: Pacer) -> None:
        super().__init__(replace(rate, reads_per_second=rate.reads_per_second * SHARE_OF_CALLS))
        self._shard = shard

    def ready_at_s(self, now_s: float) -> float:
        return max(super().ready_at_s(now_s), self._shard.ready_at_s(now_s))

    def on_fetch(self, now_s: float) -> None:
        super().on_fetch(now_s)
        self._shard.on_fetch(now_s)

    def on_page(self, now_s: float, payload_bytes: int) -> None:
        super().on_page(now_s, payload_bytes)
        self._shard.on_page(now_s, payload_bytes)

    def on_throttled(self, now_s: float, random: Random) -> None:
        super().on_throttled(now_s, random)
        self._shard.on_throttled(now_s, random)
