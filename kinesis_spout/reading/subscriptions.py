"""Subscriptions to shards: the events of one, received in the background and taken one by one; the
counts over all shards of a reader, and what its log says of them; and whether another reader
subscribes with the same registered consumer. The service gives a shard to one of them: each takes
it from the other, again and again, and both read little by subscription.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.errors import ServiceUnavailableError, SubscriptionInUseError

if TYPE_CHECKING:
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent

log = logging.getLogger("kinesis_spout")
_NO_ANSWER = ServiceUnavailableError("Kinesis did not respond to the request for a subscription")
# A restart, or a shard that moves to another task of the application, takes it once or twice.
_TIMES = 3
_WITHIN_S = 300.0
_REFUSED_AFTER = 3  # a connection that breaks is soon there again
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
        self._events: Queue[SubscriptionEvent] = Queue(_BUFFERED_EVENTS)
        self._subscription: ShardSubscription | None = None
        self._is_closed = False
        self._has_ended = False
        self.error: Exception | None = None
        self.thread = threading.Thread(
            target=self._run, name=f"kinesis-subscription-{shard_id}", daemon=True
        )

    @classmethod
    def start(cls, shard_id: str, subscribe: Subscribe, on_news: Callable[[], None]) -> ThreadFeed:
        """Create a feed and start its thread."""
        feed = cls(shard_id, subscribe, on_news)
        feed.thread.start()
        return feed

    @property
    def has_news(self) -> bool:
        return not self._events.empty() or self._has_ended

    @property
    def is_over(self) -> bool:
        return self._has_ended and self._events.empty()

    def take(self) -> SubscriptionEvent | None:
        try:
            return self._events.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        # Set before the subscription is looked for: the thread, which sets that first, sees this
        # otherwise.
        self._is_closed = True
        while self.take() is not None:
            pass  # the thread may wait for room
        if self._subscription is not None:
            self._subscription.close()

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as exc:  # noqa: BLE001  # the getter gets it, and knows which it mends
            self.error = exc
        self._has_ended = True
        self._on_news()

    def _receive(self) -> None:
        self._subscription = subscription = self._subscribe()
        try:
            while not self._is_closed and (event := subscription.next_event()) is not None:
                self._events.put(event)
                self._on_news()
        finally:
            subscription.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTotals:
    """`opened`: subscriptions that gave an event. `failed`: attempts without one, and subscriptions
    that broke. `polled_shards`: shards that are polled now for want of a subscription.
    """

    opened: int = 0
    failed: int = 0
    polled_shards: int = 0


class SubscriptionCounts:
    """Counts, and says once that shards are polled, once that none is any more, and once that
    another reader has the same consumer. Any thread may call it. Times are monotonic. The arguments
    are those of `SharedConsumer`.
    """

    def __init__(self, consumer: str, *, option: str) -> None:
        self._shared = SharedConsumer(consumer, option=option)
        self._lock = threading.RLock()
        self._opened = 0
        self._failed = 0
        self._polled: set[str] = set()
        self._errors: dict[str, Exception] = {}  # of the shards whose last attempt has failed
        self._refused: set[str] = set()

    def opened(self, shard_id: str) -> None:
        """A subscription has pushed its first event, so the shard is not polled any more."""
        with self._lock:
            self._opened += 1
            was_last = self._polled == {shard_id}
            self.forget(shard_id)
        if was_last:
            log.warning("all shards are read by subscription again")

    def failed(
        self,
        shard_id: str,
        error: Exception | None,
        *,
        in_a_row: int,
        was_taken: bool,
        now_s: float,
    ) -> None:
        """A subscription could not be had, or broke: the last of so many attempts. `was_taken`: it
        gave events, and another one of the consumer has replaced it.
        """
        with self._lock:
            self._failed += 1
            self._errors[shard_id] = error or _NO_ANSWER
            if in_a_row >= _REFUSED_AFTER:
                self._refused.add(shard_id)
        if was_taken:
            self._shared.note(shard_id, now_s)

    def polled(self, shard_id: str, after_s: float) -> None:
        """A shard is polled, as it has had no subscription for so many seconds."""
        with self._lock:
            is_first = not self._polled
            self._polled.add(shard_id)
            self._refused.add(shard_id)
            error = self._errors.setdefault(shard_id, _NO_ANSWER)
        if is_first:
            log.warning(
                "shard %s is read with GetRecords, because it has had no subscription for %g s "
                "(%s). The job or spout keeps trying to subscribe",
                shard_id,
                after_s,
                error,
            )

    def forget(self, shard_id: str) -> None:
        """The shard is not read any more, or has a subscription again."""
        with self._lock:
            self._polled.discard(shard_id)
            self._refused.discard(shard_id)
            self._errors.pop(shard_id, None)

    def refusal(self, now_s: float) -> Exception | None:
        """Why a shard gets no subscription, after several attempts, or keeps none; None where each
        has one.
        """
        taken = self._shared.conflict(now_s)
        with self._lock:
            refused = (error for shard, error in self._errors.items() if shard in self._refused)
            return taken or next(refused, None)

    def totals(self) -> SubscriptionTotals:
        with self._lock:
            return SubscriptionTotals(
                opened=self._opened, failed=self._failed, polled_shards=len(self._polled)
            )


class SharedConsumer:
    """Warns once that another reader seems to use the consumer: as soon as one shard was taken
    three times within five minutes. Any thread may call it. Times are monotonic.

    `consumer`: its name or ARN. `option`: where the user names it.
    """

    def __init__(self, consumer: str, *, option: str) -> None:
        self._consumer = consumer
        self._option = option
        self._lock = threading.Lock()
        self._taken_s: dict[str, deque[float]] = {}
        self._has_warned = False

    def note(self, shard_id: str, now_s: float) -> None:
        """The consumer's subscription to a shard was taken, or was refused because there is another
        one.
        """
        with self._lock:
            times_s = self._taken_s.setdefault(shard_id, deque(maxlen=_TIMES))
            times_s.append(now_s)
            if self._has_warned or not _is_often(times_s, now_s):
                return
            self._has_warned = True
        log.warning(
            "another application probably uses consumer %s too: the subscription to shard %s was "
            "taken over %d times in %.0f s. Both applications therefore read with GetRecords "
            "part of the time. Give each application its own consumer with %s",
            self._consumer,
            shard_id,
            _TIMES,
            now_s - times_s[0],
            self._option,
        )

    def conflict(self, now_s: float) -> SubscriptionInUseError | None:
        """That another reader seems to use the consumer now; None where none does."""
        with self._lock:
            if not any(_is_often(times_s, now_s) for times_s in self._taken_s.values()):
                return None
        return SubscriptionInUseError(
            f"another application uses consumer {self._consumer} too, and keeps taking over this "
            "application's subscriptions",
            f"give each application its own consumer with {self._option}",
        )


def _is_often(times_s: deque[float], now_s: float) -> bool:
    return len(times_s) == _TIMES and now_s - times_s[0] <= _WITHIN_S
