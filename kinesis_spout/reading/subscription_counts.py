"""Counting of subscriptions over all shards of a process, and what its log says of them."""

from __future__ import annotations

import logging
import threading

from kinesis_spout.reading.shared_consumer import SharedConsumer
from kinesis_spout.reading.subscription_totals import SubscriptionTotals

log = logging.getLogger("kinesis_spout")


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
        self._polled_because: str | None = None

    def opened(self) -> None:
        with self._lock:
            self._opened += 1

    def failed(self) -> None:
        with self._lock:
            self._failed += 1

    def taken(self, shard_id: str, now_s: float) -> None:
        """A subscription that gave events was replaced by another one of the consumer."""
        self._shared.note(shard_id, now_s)

    def begin_polling(self, shard_id: str, after_s: float, error: Exception | None) -> None:
        """A shard has had no subscription for `after_s` seconds, last because of `error`."""
        with self._lock:
            is_first = not self._polled
            self._polled.add(shard_id)
            self._polled_because = str(error or "no answer came")
        if is_first:
            log.warning(
                "shard %s is polled, as no subscription could be had for %g s (%s); subscribing is "
                "tried again, for it and for any other shard",
                shard_id,
                after_s,
                self._polled_because,
            )

    def end_polling(self, shard_id: str, *, subscribed: bool) -> None:
        """A shard is polled no more: it is `subscribed`, or read no more."""
        with self._lock:
            was_last = self._polled == {shard_id}
            self._polled.discard(shard_id)
            if not self._polled:
                self._polled_because = None
        if was_last and subscribed:
            log.warning("all shards are read by subscription again")

    @property
    def polled_because(self) -> str | None:
        """Why the shard was given no subscription that began to be polled last; None where none is
        polled.
        """
        return self._polled_because

    def totals(self) -> SubscriptionTotals:
        with self._lock:
            return SubscriptionTotals(
                opened=self._opened, failed=self._failed, polled_shards=len(self._polled)
            )
