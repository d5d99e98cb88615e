"""Counting of subscriptions over all shards of a process, and what its log says of them."""

from __future__ import annotations

import logging
import threading

from kinesis_spout.reading.shared_consumer import SharedConsumer
from kinesis_spout.reading.subscription_totals import SubscriptionTotals

log = logging.getLogger("kinesis_spout")
NO_ANSWER = "no answer came"
_REFUSED_AFTER = 3  # a connection that breaks is soon there again


class SubscriptionCounts:
    """Counts, and says once that shards are polled, once that none is any more, and once that
    another reader has the same consumer. Any thread may call it.

    `consumer`: its name or ARN.
    """

    def __init__(self, consumer: str) -> None:
        self._shared = SharedConsumer(consumer, option="consumer_name")
        self._lock = threading.Lock()
        self._opened = 0
        self._failed = 0
        self._polled: set[str] = set()
        self._refused: dict[str, str] = {}

    def opened(self, shard_id: str) -> None:
        with self._lock:
            self._opened += 1
            self._refused.pop(shard_id, None)

    def failed(self, shard_id: str, error: Exception | None, *, in_a_row: int) -> None:
        """A subscription could not be had, or broke: the last of so many attempts."""
        with self._lock:
            self._failed += 1
            if in_a_row >= _REFUSED_AFTER:
                self._refused[shard_id] = str(error or NO_ANSWER)

    def forget(self, shard_id: str) -> None:
        """The shard is not read any more."""
        with self._lock:
            self._refused.pop(shard_id, None)

    def taken(self, shard_id: str, now_s: float) -> None:
        """A subscription that gave events was replaced by another one of the consumer."""
        self._shared.note(shard_id, now_s)

    def begin_polling(self, shard_id: str, after_s: float, error: Exception | None) -> None:
        """A shard has had no subscription for `after_s` seconds, last because of `error`."""
        with self._lock:
            is_first = not self._polled
            self._polled.add(shard_id)
            self._refused.setdefault(shard_id, str(error or NO_ANSWER))
        if is_first:
            log.warning(
                "shard %s is polled, as no subscription could be had for %g s (%s); subscribing is "
                "tried again, for it and for any other shard",
                shard_id,
                after_s,
                error or NO_ANSWER,
            )

    def end_polling(self, shard_id: str, *, subscribed: bool) -> None:
        """A shard is polled no more: it is `subscribed`, or read no more."""
        with self._lock:
            was_last = self._polled == {shard_id}
            self._polled.discard(shard_id)
        if was_last and subscribed:
            log.warning("all shards are read by subscription again")

    def refusal(self, now_s: float) -> str | None:
        """Why a shard gets no subscription, after several attempts, or keeps none; None where each
        has one. `now_s`: monotonic.
        """
        taken = self._shared.sentence(now_s)
        with self._lock:
            return taken or next(iter(self._refused.values()), None)

    def totals(self) -> SubscriptionTotals:
        with self._lock:
            return SubscriptionTotals(
                opened=self._opened, failed=self._failed, polled_shards=len(self._polled)
            )
