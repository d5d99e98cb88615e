"""Reading one shard for a short time: by subscription where one may be opened, polled otherwise.

The position is that of the records which were handed over, and the polling getter has it. So a
subscription may end at any time, or never begin, and polling goes on after the last record of the
last complete event. The next one is opened when the service allows it, if the read still goes on.

Nobody waits for a subscription longer than for a poll. The service lets a poller wait until the
bytes of its last page are paid off, and for up to a second between calls. Where nothing was pushed
for so long, the shard is polled too, and whatever comes first is handed over. That may be the next
event, as other consumers may use up what polling is allowed. Records of it that were polled are
left out.

Nor does an event help that has no records and is behind the tip: the service searches storage that
holds none. The position is as before, and a subscription of the next read would search the same
again. A polled page does help, as its iterator is a hint for the next read.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.errors import (
    KinesisError,
    ShardNotFoundError,
    StillThrottledError,
    SubscriptionInUseError,
)
from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.reading.pushed_page import ends_without_children, is_in_order, page_of
from kinesis_spout.reading.shard_getter import FetchPostponedError
from state.position import SHARD_END, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.event_room import EventRoom, RoomShare
    from kinesis_spout.reading.page import Page
    from kinesis_spout.reading.shard_getter import KinesisShardGetter
    from kinesis_spout.reading.subscription_feed import NewFeed, SubscriptionFeed
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent
    from state.sequence_number import SequenceNumber

# API reference of SubscribeToShard: a second subscription within five seconds is refused. These are
# counted here from the request, and there from a moment after it.
RESUBSCRIBE_S = 5.2
# What no waiting mends: a missing permission, a consumer that is not there.
_REFUSED_FOR_GOOD_S = 60.0
_PATIENCE_S = 1.0
_PUSHED_BYTES_PER_S = 2 * 1024 * 1024


class SubscriptionSlots:
    """How many subscriptions may be open at a time, each with a thread. Any thread."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    def try_take(self) -> bool:
        return self._free.acquire(blocking=False)

    def release(self) -> None:
        self._free.release()


class PushOrPollGetter:
    """A `ShardGetter`. `fetch_unless_throttled` waits for the service where the shard is polled,
    and never while it is subscribed to.

    - `polling`: reads the shard where the subscription does not, and has the position of both.
    - `subscribe`: opens a subscription to a shard at a position, with its share of the room; called
      in the feed's thread.
    - `room`: for the events that were not handed over yet.
    - `on_news`: called in any thread when `ready_at_s` may have come nearer.
    - `not_before_s`: when the service allows the subscription. Until then, the shard is polled.
    - `slots`: without a free one, the shard is polled.
    """

    def __init__(
        self,
        polling: KinesisShardGetter,
        subscribe: Callable[[str, Position, RoomShare], ShardSubscription],
        *,
        new_feed: NewFeed,
        on_news: Callable[[], None],
        slots: SubscriptionSlots,
        room: EventRoom,
        not_before_s: float,
        clock: Clock,
    ) -> None:
        self._polling = polling
        self._subscribe = subscribe
        self._new_feed = new_feed
        self._on_news = on_news
        self._slots = slots
        self._room = room
        self._not_before_s = not_before_s
        self._clock = clock
        self._lock = threading.Lock()  # `close` comes from another thread
        self._may_subscribe = True
        self._feed: SubscriptionFeed | None = None
        self._has_events = False
        self._poll_from_s = 0.0
        self._share: RoomShare | None = None  # of the newest subscription
        self._rest: Page | None = None  # of an event with more records than were asked for
        self._rest_bytes = 0  # of that event, in the share
        self._next_subscribe_s: float | None = None
        self._fallback: Fallback | None = None
        self._pushed: list[tuple[SequenceNumber, SequenceNumber]] = []
        self._has_polled = True  # since the last event

    @property
    def shard_id(self) -> str:
        return self._polling.shard_id

    @property
    def position(self) -> Position:
        return self._polling.position

    @property
    def iterator(self) -> str | None:
        return self._polling.iterator

    @property
    def pushed(self) -> list[tuple[SequenceNumber, SequenceNumber]]:
        """The first and the last record of each range that was pushed."""
        return list(self._pushed)

    @property
    def fallback(self) -> Fallback | None:
        """Why the shard is polled, or was polled last; None while no subscription has failed, and
        after an event.
        """
        return self._fallback

    @property
    def next_subscribe_s(self) -> float | None:
        """When the next subscription makes sense, on the clock's monotonic scale; None if this one
        was never tried.
        """
        return self._next_subscribe_s

    def ready_at_s(self) -> float:
        """When there is something to do. `on_news` tells when it may be earlier."""
        now_s = self._clock.monotonic_s()
        feed = self._feed
        if self._rest is not None or self.position.is_end or (feed is not None and feed.has_news):
            return now_s
        ready_at_s = self._polling.ready_at_s()
        if feed is not None:
            return max(ready_at_s, self._poll_from_s)
        return min(ready_at_s, self._not_before_s) if self._may_subscribe else ready_at_s

    def fetch(self, limit: int) -> Page:
        """The next page. Waits until there is one. Raises `KinesisError`."""
        while True:
            self._clock.sleep(self.ready_at_s() - self._clock.monotonic_s())
            try:
                return self.fetch_unless_throttled(limit)
            except FetchPostponedError:
                continue

    def fetch_unless_throttled(self, limit: int) -> Page:
        """What was pushed, at most `limit` records of it. Raises `FetchPostponedError` when there
        is nothing yet. Blocks on the network only for a shard that is polled, and raises then what
        the polling getter raises.
        """
        if self._rest is not None and limit > 0:
            return self._hand_over(self._rest, limit)
        if limit < 1 or self.position.is_end:
            return self._polling.fetch_unless_throttled(limit)
        self._begin_if_due()
        feed = self._feed
        if feed is not None:
            page = self._next_page(feed)
            if page is not None:
                return self._hand_over(page, limit)
            if self._feed is not None and not self._is_late():
                raise FetchPostponedError(f"nothing was pushed of shard {self.shard_id} yet")
        if self._polling.ready_at_s() > self._clock.monotonic_s():
            raise FetchPostponedError(f"shard {self.shard_id} is polled when its limits allow it")
        page = self._polled(limit)
        self._has_polled = self._has_polled or page.count > 0
        return page

    def demand(self) -> None:
        """Somebody waits for the next page: its event may come without room. Any thread."""
        share = self._share
        if share is not None:
            share.demand()

    def close(self) -> None:
        """End the subscription, or never open it. What is read from now on is polled. Any thread;
        never blocks.
        """
        with self._lock:
            self._may_subscribe = False
        self._drop_feed()

    # private
    def _polled(self, limit: int) -> Page:
        try:
            return self._polling.fetch_unless_throttled(limit)
        except StillThrottledError as exc:
            if self._feed is None:
                raise
            # The subscription is not held up by what other consumers use up.
            raise FetchPostponedError(str(exc)) from exc

    def _drop_feed(self) -> None:
        with self._lock:
            feed, self._feed = self._feed, None
        if feed is not None:
            if self._share is not None:
                self._share.close(kept_bytes=self._rest_bytes)
            feed.close()
            self._slots.release()

    def _begin_if_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._feed is not None or not self._may_subscribe or now_s < self._not_before_s:
            return
        with self._lock:
            if not self._may_subscribe:
                return
            self._not_before_s = now_s + RESUBSCRIBE_S
            if not self._slots.try_take():
                return
            self._next_subscribe_s = self._not_before_s
            self._poll_from_s = now_s + _PATIENCE_S
            self._has_events = False
            self._share = share = self._room.share()
            self._feed = self._new_feed(
                self.shard_id,
                partial(self._subscribe, self.shard_id, self.position, share),
                self._on_news,
            )

    def _next_page(self, feed: SubscriptionFeed) -> Page | None:
        """The next event as a page, if there is one. Without one, `close` may have been called."""
        event = feed.take()
        if event is None:
            if feed.is_over:
                self._on_over(feed.error)
            return None
        if not is_in_order(event):
            self._give_up(Fallback.BROKEN)
            return None
        self._has_events, self._fallback = True, None
        self._rest_bytes = event.wire_bytes
        page = page_of(event, self.shard_id, position=self.position)
        page.columns.to_arrow()  # once: what is cut from it is sliced
        if page.count or page.at_tip or page.ended:
            self._poll_from_s = self._clock.monotonic_s() + _patience_s(event)
        else:
            page = replace(page, next_iterator=self._polling.iterator)  # still good
        if ends_without_children(event, self.shard_id):
            self._give_up(Fallback.BROKEN)  # polling tells whether it has ended
        return page

    def _is_late(self) -> bool:
        """Whether nothing was pushed for so long that the shard is polled too."""
        is_late = self._clock.monotonic_s() >= self._poll_from_s
        if is_late:
            self._fallback = Fallback.SILENT
        return is_late

    def _on_over(self, error: Exception | None) -> None:
        """The subscription has ended, or was not opened."""
        if error is None:
            self._give_up(Fallback.ENDED)
        elif not isinstance(error, KinesisError):
            self.close()
            raise error  # a fault of the program
        elif isinstance(error, ShardNotFoundError):
            self._give_up(Fallback.MISSING, for_good=True)
        elif isinstance(error, SubscriptionInUseError):
            self._give_up(Fallback.IN_USE)
        elif self._has_events:
            self._give_up(Fallback.BROKEN)
        else:
            self._give_up(Fallback.REFUSED, for_good=not error.retryable)

    def _give_up(self, reason: Fallback, *, for_good: bool = False) -> None:
        self._drop_feed()
        self._fallback = reason
        if for_good:
            self._not_before_s = self._clock.monotonic_s() + _REFUSED_FOR_GOOD_S
            self._next_subscribe_s = self._not_before_s

    def _hand_over(self, page: Page, limit: int) -> Page:
        part = page.head(limit)
        if part.first is not None and part.last is not None:
            self._polling.move_to(Position.after(part.last))
            first = part.first if self._has_polled else self._pushed.pop()[0]
            self._pushed.append((first, part.last))
            self._has_polled = False
        self._rest = page.after(part.count) if part.count < page.count else None
        if self._rest is None and self._share is not None:
            self._share.release(self._rest_bytes)
            self._rest_bytes = 0
        if part.ended:
            self._polling.move_to(SHARD_END)
            self.close()
        return part


def _patience_s(event: SubscriptionEvent) -> float:
    """How long to wait for the event after this one."""
    return _PATIENCE_S + event.page.columns.read_bytes / _PUSHED_BYTES_PER_S
