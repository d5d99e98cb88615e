"""The events of one subscription to a shard, received in the background and taken one by one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent

# An event has up to a megabyte or two. While these are not taken, nothing more is received: the
# connection fills up, and the service ends the subscription at last.
_BUFFERED_EVENTS = 2


class SubscriptionFeed(Protocol):
    """One subscription, from the attempt to have it to its end. Nothing here blocks."""

    @property
    def has_news(self) -> bool:
        """Whether there is an event to take, or it is over."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether there is no event, and none will come."""
        ...

    @property
    def error(self) -> Exception | None:
        """Once it is over: why, or None for a subscription that the service has ended in order."""
        ...

    def take(self) -> SubscriptionEvent | None:
        """Remove and return the oldest event; None without one."""
        ...

    def close(self) -> None:
        """End it. Any thread. What was not taken is dropped."""
        ...


Subscribe = Callable[[], "ShardSubscription"]
"""Opens one subscription. Blocks; raises `KinesisError`."""

NewFeed = Callable[[str, Subscribe, Callable[[], None]], SubscriptionFeed]
"""Starts a feed: the shard's id, its subscription, and what to call in any thread when it has news.
"""


class ThreadFeed:
    """The feed of production: a daemon thread subscribes and reads. A blocking read of its own per
    shard costs little, and no shard can hold up another one.
    """

    def __init__(self, shard_id: str, subscribe: Subscribe, on_news: Callable[[], None]) -> None:
        self._subscribe = subscribe
        self._on_news = on_news
        self._changed = threading.Condition()
        self._events: deque[SubscriptionEvent] = deque()
        self._subscription: ShardSubscription | None = None
        self._is_closed = False
        self._has_ended = False
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"kinesis-subscription-{shard_id}", daemon=True
        )

    @classmethod
    def start(cls, shard_id: str, subscribe: Subscribe, on_news: Callable[[], None]) -> ThreadFeed:
        """Create a feed and start its thread."""
        feed = cls(shard_id, subscribe, on_news)
        feed._thread.start()
        return feed

    @property
    def has_news(self) -> bool:
        return bool(self._events) or self._has_ended

    @property
    def is_over(self) -> bool:
        return self._has_ended and not self._events

    @property
    def error(self) -> Exception | None:
        return self._error

    def take(self) -> SubscriptionEvent | None:
        with self._changed:
            if not self._events:
                return None
            self._changed.notify_all()
            return self._events.popleft()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._events.clear()
            self._changed.notify_all()
            if self._subscription is not None:
                self._subscription.close()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread, after `close`. Returns whether it has ended in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as exc:  # noqa: BLE001  # the getter gets it, and knows which it mends
            self._error = exc
        self._has_ended = True
        self._on_news()

    def _receive(self) -> None:
        subscription = self._subscribe()
        try:
            with self._changed:
                self._subscription = subscription
                if self._is_closed:
                    return
            while (event := subscription.next_event()) is not None:
                if not self._keep(event):
                    return
                self._on_news()
        finally:
            subscription.release()

    def _keep(self, event: SubscriptionEvent) -> bool:
        """Wait for room and keep the event. False when it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._events) < _BUFFERED_EVENTS)
            if not self._is_closed:
                self._events.append(event)
            return not self._is_closed
