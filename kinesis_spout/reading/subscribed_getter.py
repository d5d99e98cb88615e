"""Reading one shard by subscription (enhanced fan-out): the service pushes its records.

The position is that of the records which were handed over, and a subscription only a way to go on
from there. So any subscription may end at any time, by its five minutes, a broken connection or
another reader, and nothing is lost. The next one begins after the continuation number of the last
event, if the whole of that was handed over and nothing was polled since, or else at the position.

Trouble never leaves the shard. Each failure makes the shard wait, with exponential backoff, and no
other. A shard that had no subscription for some time is polled, and subscribing is tried again
meanwhile. The first event ends the polling. Its subscription began where the shard was when it was
asked for, so records that were polled since then are left out of it.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff
from kinesis_spout.errors import (
    KinesisError,
    MalformedResponseError,
    ShardNotFoundError,
    SubscriptionInUseError,
)
from kinesis_spout.reading.pushed_page import ends_without_children, is_in_order, page_of
from kinesis_spout.reading.shard_getter import FetchPostponedError
from state.position import SHARD_END, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.page import Page
    from kinesis_spout.reading.shard_getter import KinesisShardGetter
    from kinesis_spout.reading.subscription_counts import SubscriptionCounts
    from kinesis_spout.reading.subscription_feed import NewFeed, SubscriptionFeed
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent
    from state.sequence_number import SequenceNumber

_FAILED = Backoff(first_s=0.5, longest_s=16.0)
# API reference of SubscribeToShard: a second subscription within five seconds is refused.
_RESUBSCRIBE_S = 5.0
_LOOK_AGAIN_S = 0.05


class SubscribedGetter:
    """A `ShardGetter` whose pages are pushed. `fetch_unless_throttled` never waits for the service
    while the shard is subscribed to.

    - `polling`: reads the shard where subscriptions do not, and has the position of both.
    - `subscribe`: opens a subscription to a shard at a position; called in the feed's thread.
    - `on_news`: called in any thread when `ready_at_s` may have come nearer.
    - `fallback_after_s`: how long without a subscription until the shard is polled.
    """

    def __init__(
        self,
        polling: KinesisShardGetter,
        subscribe: Callable[[str, Position], ShardSubscription],
        *,
        new_feed: NewFeed,
        on_news: Callable[[], None],
        counts: SubscriptionCounts,
        fallback_after_s: float,
        clock: Clock,
        random: Random,
    ) -> None:
        self._polling = polling
        self._subscribe = subscribe
        self._new_feed = new_feed
        self._on_news = on_news
        self._counts = counts
        self._fallback_after_s = fallback_after_s
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()  # `close` comes from another thread
        self._is_closed = False
        self._feed: SubscriptionFeed | None = None
        self._feed_began_s = 0.0
        self._feed_gave_events = False
        # The rest of an event, where it has more records than were asked for.
        self._rest: Page | None = None
        self._rest_continuation: SequenceNumber | None = None
        self._continuation: SequenceNumber | None = None
        self._failures = 0
        self._error: Exception | None = None
        self._subscribe_at_s = -math.inf
        self._poll_from_s = clock.monotonic_s() + fallback_after_s
        self._is_polling = False
        self._must_poll = False

    @property
    def shard_id(self) -> str:
        return self._polling.shard_id

    @property
    def position(self) -> Position:
        return self._polling.position

    @property
    def iterator(self) -> str | None:
        return self._polling.iterator

    def ready_at_s(self) -> float:
        """When there is something to do. May be infinite: then only `on_news` tells."""
        now_s = self._clock.monotonic_s()
        feed = self._feed
        if self._is_closed:
            return math.inf
        if self._rest is not None or self.position.is_end or (feed is not None and feed.has_news):
            return now_s
        if self._must_poll:
            return self._polling.ready_at_s()
        next_s = math.inf if feed is not None else self._subscribe_at_s
        return min(next_s, self._polling.ready_at_s() if self._is_polling else self._poll_from_s)

    def fetch(self, limit: int) -> Page:
        """The next page. Waits until there is one. Raises `KinesisError`."""
        while True:
            wait_s = self.ready_at_s() - self._clock.monotonic_s()
            self._clock.sleep(min(wait_s, _LOOK_AGAIN_S))
            try:
                return self.fetch_unless_throttled(limit)
            except FetchPostponedError:
                continue

    def fetch_unless_throttled(self, limit: int) -> Page:
        """What was pushed, at most `limit` records of it. Raises `FetchPostponedError` when there
        is nothing. Blocks on the network only for a shard that is polled, and raises then what the
        polling getter raises.
        """
        if limit < 1 or self.position.is_end:
            return self._polling.fetch_unless_throttled(limit)
        if self._rest is not None:
            return self._hand_over(self._rest, self._rest_continuation, limit)
        event = self._next_event()
        if event is not None:
            return self._hand_over(self._page_of(event), event.continuation, limit)
        if self._may_poll(self._clock.monotonic_s()):
            # "Now" is what a getter that is ready may say: the clock is read after it was asked.
            ready_at_s = self._polling.ready_at_s()
            if ready_at_s <= self._clock.monotonic_s():
                return self._poll(limit)
        raise FetchPostponedError(f"shard {self.shard_id} has nothing new")

    def close(self) -> None:
        """End the subscription. Any thread; never blocks."""
        with self._lock:
            self._is_closed = True
            feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
        self._stop_polling(subscribed=False)
        self._counts.forget(self.shard_id)

    # subscriptions --------------------------------------------------------------------------------
    def _next_event(self) -> SubscriptionEvent | None:
        """The next event in order, if there is one. Renews a subscription that is over."""
        feed = self._feed
        if feed is not None and feed.is_over:
            self._on_over(feed)
        if self._feed is None:
            self._begin()
        feed = self._feed
        event = None if feed is None else feed.take()
        if event is None:
            return None
        if not is_in_order(event):
            self._drop_feed()
            self._on_failure(
                MalformedResponseError(
                    f"shard {self.shard_id} pushed records from {event.page.first} to "
                    f"{event.page.last}, which is out of order; nothing of it was read"
                )
            )
            return None
        self._on_event()
        return event

    def _begin(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._must_poll or now_s < self._subscribe_at_s:
            return
        position = self.position
        if self._continuation is not None:
            position = Position.after(self._continuation)
        with self._lock:
            if self._is_closed:
                return
            self._feed_began_s, self._feed_gave_events = now_s, False
            self._feed = self._new_feed(
                self.shard_id, partial(self._subscribe, self.shard_id, position), self._on_news
            )

    def _on_event(self) -> None:
        if not self._feed_gave_events:
            self._counts.opened(self.shard_id)
        self._feed_gave_events = True
        self._failures, self._error = 0, None
        self._poll_from_s = math.inf
        self._stop_polling(subscribed=True)

    def _on_over(self, feed: SubscriptionFeed) -> None:
        """The subscription has ended, or could not be had."""
        self._feed = None
        now_s = self._clock.monotonic_s()
        if self._poll_from_s == math.inf:
            self._poll_from_s = now_s + self._fallback_after_s
        error = feed.error
        if error is not None and not isinstance(error, KinesisError):
            raise error  # a fault of the program
        if error is None and self._feed_gave_events:
            self._subscribe_at_s = now_s  # its five minutes are over
            return
        self._on_failure(error)

    def _on_failure(self, error: KinesisError | None) -> None:
        now_s = self._clock.monotonic_s()
        self._counts.failed(self.shard_id, error, in_a_row=self._failures + 1)
        self._error = error
        if isinstance(error, SubscriptionInUseError) and self._feed_gave_events:
            # A refusal alone says little: an earlier process may have subscribed just before.
            self._counts.taken(self.shard_id, now_s)
        # The polling getter knows what to do about a shard that is gone.
        self._must_poll = self._must_poll or isinstance(error, ShardNotFoundError)
        self._failures += 1
        self._subscribe_at_s = now_s + _FAILED.wait_s(self._failures, self._random)
        if self._feed_gave_events:
            refused_until_s = self._feed_began_s + _RESUBSCRIBE_S
            self._subscribe_at_s = max(
                self._subscribe_at_s, refused_until_s + self._random.uniform(0.1, 0.5)
            )
        if self._poll_from_s == math.inf:
            self._poll_from_s = now_s + self._fallback_after_s

    def _drop_feed(self) -> None:
        with self._lock:
            feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    # pages ----------------------------------------------------------------------------------------
    def _page_of(self, event: SubscriptionEvent) -> Page:
        """The event as a page, without records that were handed over before."""
        if ends_without_children(event, self.shard_id):
            # The polling getter asks again whether the shard has ended.
            self._must_poll = True
            self._drop_feed()
        return page_of(event, self.shard_id, position=self.position)

    def _hand_over(self, page: Page, continuation: SequenceNumber | None, limit: int) -> Page:
        part = page.head(limit)
        if part.last is not None:
            self._polling.move_to(Position.after(part.last))
        if part.count < page.count:
            self._rest, self._rest_continuation = page.after(part.count), continuation
            return part
        self._rest = self._rest_continuation = None
        if continuation is not None:
            self._continuation = continuation
        if page.ended:
            self._polling.move_to(SHARD_END)
            self.close()
        return page

    # polling --------------------------------------------------------------------------------------
    def _may_poll(self, now_s: float) -> bool:
        if not self._is_polling and now_s >= self._poll_from_s and not self._is_closed:
            self._is_polling = True
            self._counts.begin_polling(self.shard_id, self._fallback_after_s, self._error)
        return self._is_polling or self._must_poll

    def _poll(self, limit: int) -> Page:
        page = self._polling.fetch_unless_throttled(limit)
        # Without an iterator, the shard may have ended, which further polls prove.
        self._must_poll = self._must_poll and page.next_iterator is None
        if page.count:
            self._continuation = None
        if page.ended or page.gone:
            self.close()
        return page

    def _stop_polling(self, *, subscribed: bool) -> None:
        if self._is_polling:
            self._is_polling = False
            self._counts.end_polling(self.shard_id, subscribed=subscribed)
