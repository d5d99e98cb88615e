"""Subscriptions to a FakeKinesis in this process: the product's own framing and decoding, without
a socket and without a thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kinesis_spout.service.subscription import SILENT_S, EventSource
from kinesis_spout.testing.http import event_stream

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.subscription_feed import Subscribe
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent
    from kinesis_spout.testing.service.subscribe_to_shard import Subscription


class Connection:
    """The body of one answer to SubscribeToShard. It breaks by `cut`, and falls silent by
    `silence`, as a connection whose peer is gone.
    """

    def __init__(
        self, subscription: Subscription, alter: Callable[[Any], object] | None, clock: Clock
    ) -> None:
        self._subscription = subscription
        self._alter = alter
        self._clock = clock
        self._first: list[bytes] = [event_stream.initial_response()]
        self._is_cut = False
        self._breaks_after: tuple[int, Callable[[], None]] | None = None
        self._silent_since_s: float | None = None
        self.is_closed = False

    def stream(self, _bytes: int) -> Iterator[bytes]:
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._is_cut:
            raise ConnectionResetError("cut by the test")
        if self._silent_since_s is not None:
            if self._clock.monotonic_s() - self._silent_since_s >= SILENT_S:
                raise TimeoutError("nothing came")
            raise BlockingIOError
        if self._first:
            return self._first.pop()
        if self._breaks_after is not None and self._breaks_after[0] <= 0:
            self._breaks_after[1]()
            self._breaks_after = None
            return next(self)
        message = event_stream.next_message(self._subscription, self._alter)
        if message is not None:
            if self._breaks_after is not None:
                self._breaks_after = self._breaks_after[0] - 1, self._breaks_after[1]
            return message
        if self._subscription.ended:
            raise StopIteration
        raise BlockingIOError

    def cut(self) -> None:
        self._is_cut = True

    def silence(self) -> None:
        self._silent_since_s = self._clock.monotonic_s()

    def break_after(self, events: int, *, silently: bool) -> None:
        """It breaks, or falls silent, after so many events."""
        self._breaks_after = events, self.silence if silently else self.cut

    def close(self) -> None:
        self.is_closed = True

    def source(self) -> EventSource:
        return EventSource(self, self._clock.monotonic_s())


class InlineFeed:
    """A `SubscriptionFeed` that subscribes and reads when somebody looks."""

    def __init__(self, _shard_id: str, subscribe: Subscribe, _on_news: Callable[[], None]) -> None:
        self._subscribe = subscribe
        self._subscription: ShardSubscription | None = None
        self._events: deque[SubscriptionEvent] = deque()
        self._has_ended = False
        self.error: Exception | None = None

    @property
    def has_news(self) -> bool:
        self._look()
        return bool(self._events) or self._has_ended

    @property
    def is_over(self) -> bool:
        self._look()
        return self._has_ended and not self._events

    def take(self) -> SubscriptionEvent | None:
        self._look()
        return self._events.popleft() if self._events else None

    def close(self) -> None:
        self._has_ended = True
        self._events.clear()
        if self._subscription is not None:
            self._subscription.release()

    def _look(self) -> None:
        if self._has_ended or self._events:
            return
        try:
            if self._subscription is None:
                self._subscription = self._subscribe()
            event = self._subscription.next_event()
        except BlockingIOError:
            return
        except Exception as exc:  # noqa: BLE001  # as the product's feed: the getter gets it
            self.error, event = exc, None
        if event is None:
            self._has_ended = True
        else:
            self._events.append(event)


def wait_in(clock: Clock) -> Callable[[threading.Event, float], object]:
    """The wait for pushes, in simulated time: whoever looks afterwards sees what has come."""
    return lambda _pushed, timeout_s: clock.sleep(timeout_s)
