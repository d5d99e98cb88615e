"""The driver's knowledge of each shard beside its stored state: whether it is at its tip, when it
was last checked, and hints for the next read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from spark_job.driver.prober import Probe, ProbeResult

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from state.plan import ShardReadResult
    from state.position import Position

MAX_HINT_MS = 60_000  # a task does not try for longer (`executor.shard_feed`)


@dataclass(slots=True)
class _Tip:
    checked_s: float = float("-inf")
    at_tip: bool = False
    iterator: str | None = None
    iterator_s: float = float("-inf")
    verified_ms: int | None = None
    next_read_ms: int | None = None


@dataclass(slots=True)
class ShardTips:
    """A cache that may be lost: a shard that it does not know is probed again.

    Times are the clock's monotonic seconds, unless the name says `_ms`.
    """

    _tips: dict[str, _Tip] = field(default_factory=dict)
    _next_subscribe_ms: dict[str, int] = field(default_factory=dict)

    def on_end(self, end: ShardReadResult, now_s: float, *, checked_s: float | None = None) -> None:
        """Note what a task read of the shard, at `checked_s` or later; now by default. A shard that
        is gone counts as idle: another plan would find nothing.
        """
        self._tips[end.shard_id] = _Tip(
            now_s if checked_s is None else checked_s,
            end.at_tip or end.gone,
            end.iterator,
            now_s,
            next_read_ms=end.next_read_ms,
        )

    def on_subscribed(self, end: ShardReadResult) -> None:
        """Note when the shard may be subscribed to again. It holds whenever it was read."""
        if end.next_subscribe_ms is not None:
            known_ms = self._next_subscribe_ms.get(end.shard_id, 0)
            self._next_subscribe_ms[end.shard_id] = max(known_ms, end.next_subscribe_ms)

    def forget(self, shard_id: str) -> None:
        """Forget a shard that was read at an unknown time, since what is known of it is old."""
        self._tips.pop(shard_id, None)

    def on_answer(self, answer: ProbeResult, now_s: float) -> None:
        """Note the answer to a probe."""
        tip = self._tips.setdefault(answer.shard_id, _Tip())
        tip.checked_s, tip.at_tip = now_s, not answer.has_work
        tip.iterator, tip.iterator_s = answer.iterator, now_s
        if answer.tip_ms is not None:
            tip.verified_ms = answer.tip_ms

    def is_idle(self, shard_id: str) -> bool:
        """Whether the shard was at its tip when it was last checked."""
        return shard_id in self._tips and self._tips[shard_id].at_tip

    def is_behind(self, shard_id: str) -> bool:
        """Whether the shard is known to have more to read. False for an unknown shard."""
        return shard_id in self._tips and not self._tips[shard_id].at_tip

    def checked_s(self, shard_id: str) -> float:
        """When the shard was last checked; minus infinity if never."""
        return self._tips[shard_id].checked_s if shard_id in self._tips else float("-inf")

    def verified_ms(self, shard_id: str) -> int | None:
        """The service's time at the last tip that a probe saw; None without one."""
        return self._tips[shard_id].verified_ms if shard_id in self._tips else None

    def iterator(self, shard_id: str, now_s: float) -> str | None:
        """An iterator for the shard's next read, unless it is about to expire."""
        tip = self._tips.get(shard_id)
        return (
            tip.iterator if tip is not None and now_s - tip.iterator_s < ITERATOR_LIFE_S else None
        )

    def probe(self, shard_id: str, position: Position, now_s: float) -> Probe:
        return Probe(shard_id, position, self.iterator(shard_id, now_s))

    def iterators(self, shard_ids: Sequence[str], now_s: float) -> dict[str, str]:
        return {
            shard: iterator
            for shard in shard_ids
            if (iterator := self.iterator(shard, now_s)) is not None
        }

    def next_reads(self, shard_ids: Sequence[str], now_ms: int) -> dict[str, int]:
        """Of the shards that the service does not let anybody read yet, when it will."""
        return {
            shard: tip.next_read_ms
            for shard in shard_ids
            if (tip := self._tips.get(shard)) is not None
            and tip.next_read_ms is not None
            and tip.next_read_ms > now_ms
        }

    def next_subscribes(self, shard_ids: Sequence[str], now_ms: int) -> dict[str, int]:
        """Of the shards that the service does not let anybody subscribe to yet, when it will. The
        clock of the machine that says so may be ahead: what is too far away is not believed.
        """
        return {
            shard: next_ms
            for shard in shard_ids
            if now_ms < (next_ms := self._next_subscribe_ms.get(shard, 0)) <= now_ms + MAX_HINT_MS
        }

    def keep_only(self, shard_ids: Collection[str]) -> None:
        self._tips = {shard: tip for shard, tip in self._tips.items() if shard in shard_ids}
        self._next_subscribe_ms = {
            shard: next_ms
            for shard, next_ms in self._next_subscribe_ms.items()
            if shard in shard_ids
        }
