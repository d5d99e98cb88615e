"""What the driver knows of each shard beside its stored state: is it at its tip, since when, with
which iterator to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from spark_job.driver.prober import Answer, Probe

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from state.plan import ShardReadResult
    from state.position import Position


@dataclass(slots=True)
class _Tip:
    checked_s: float = float("-inf")
    at_tip: bool = False
    iterator: str | None = None
    iterator_s: float = float("-inf")
    verified_ms: int | None = None


@dataclass(slots=True)
class ShardTips:
    """A memory that may be lost: what it does not know is asked again. Times are the clock's
    monotonic seconds.
    """

    _tips: dict[str, _Tip] = field(default_factory=dict)

    def on_end(self, end: ShardReadResult, now_s: float) -> None:
        """A plan's task has read the shard. One that is gone counts as idle: to plan it at once
        again would find nothing.
        """
        self._tips[end.shard_id] = _Tip(now_s, end.at_tip or end.gone, end.iterator, now_s)

    def forget(self, shard_id: str) -> None:
        """The shard was read without word of when: what is known of it is old."""
        self._tips.pop(shard_id, None)

    def on_answer(self, answer: Answer, now_s: float) -> None:
        """A probe has asked the shard."""
        tip = self._tips.setdefault(answer.shard_id, _Tip())
        tip.checked_s, tip.at_tip = now_s, not answer.has_work
        tip.iterator, tip.iterator_s = answer.iterator, now_s
        if answer.tip_ms is not None:
            tip.verified_ms = answer.tip_ms

    def is_idle(self, shard_id: str) -> bool:
        """At its tip when it was last looked at."""
        return shard_id in self._tips and self._tips[shard_id].at_tip

    def is_behind(self, shard_id: str) -> bool:
        """Known to have more to read."""
        return shard_id in self._tips and not self._tips[shard_id].at_tip

    def checked_s(self, shard_id: str) -> float:
        """When it was last looked at; minus infinity if never."""
        return self._tips[shard_id].checked_s if shard_id in self._tips else float("-inf")

    def verified_ms(self, shard_id: str) -> int | None:
        """Service time of the last tip that a probe saw."""
        return self._tips[shard_id].verified_ms if shard_id in self._tips else None

    def iterator(self, shard_id: str, now_s: float) -> str | None:
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

    def keep_only(self, shard_ids: Collection[str]) -> None:
        self._tips = {shard: tip for shard, tip in self._tips.items() if shard in shard_ids}
