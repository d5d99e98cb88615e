"""How the records of a query came: by subscription or by polling. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesis_spout.reading.fallback import Fallback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from state.plan import ShardReadResult


class SubscriptionCounts:
    """Counts over the plans that this run of the query has settled."""

    def __init__(self) -> None:
        self._pushed = 0
        self._polled = 0
        self._fallbacks: Counter[str] = Counter()
        self._is_refused = False

    def note(self, ends: Iterable[ShardReadResult]) -> None:
        for end in ends:
            if end.pushed or end.fallback is not None:
                self._is_refused = end.fallback == Fallback.REFUSED
            self._pushed += end.pushed
            self._polled += max(0, end.count - end.pushed)
            if end.fallback is not None:
                self._fallbacks[end.fallback] += 1

    @property
    def refusal(self) -> str | None:
        """Why shards are polled, where the service has opened none of the last subscriptions."""
        if not self._is_refused:
            return None
        return (
            "the service did not open a subscription (SubscribeToShard); check that the role or "
            "user of the executors may call it on the consumer (IAM)"
        )

    def report(self) -> dict[str, Any]:
        """For the progress report. `fallbacks`: reads of a shard whose subscription had failed at
        their end, by why.
        """
        return {
            "pushedRecords": self._pushed,
            "polledRecords": self._polled,
            "fallbacks": dict(sorted(self._fallbacks.items())),
        }
