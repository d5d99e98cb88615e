"""Reading one shard by subscription (enhanced fan-out): the service pushes its records, and where
it does not, the shard is polled.

The position is that of the records which were handed over, and the polling getter has it. A
subscription only continues from there. So any subscription may end at any time, by its five
minutes, a broken connection or another reader, or may never begin, and nothing is lost. The next
one begins after the continuation number of the last event, if the whole of that was handed over and
nothing was polled since, or else at the position. What is polled beside a subscription is left out
of its events.

Trouble never leaves the shard. Each failure makes the shard wait, with exponential backoff, and no
other. Meanwhile it is polled, as soon as `Subscriptions` says so.

An event that has no records and is behind the tip helps nobody who reads for a short time: the
subscription of the next read would search the same empty storage again. A polled page does help, as
its iterator is a hint for the next read. So a shard with such events is polled too, where the rules
bound the silence.
"""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff
from kinesis_spout.errors import (
    KinesisError,
    MalformedResponseError,
    ShardNotFoundError,
    StillThrottledError,
    SubscriptionInUseError,
)
from kinesis_spout.reading.page import Page, continue_shard, record_before
from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.service.subscription import EventByteBudget
from state.plan import Fallback
from state.position import SHARD_END, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.shard_getter import KinesisShardGetter
    from kinesis_spout.reading.subscriptions import NewFeed, SubscriptionCounts, SubscriptionFeed
    from kinesis_spout.service.subscription import EventShare, ShardSubscription, SubscriptionEvent
    from state.sequence_number import SequenceNumber

_FAILED = Backoff(first_s=0.5, longest_s=16.0)
# API reference of SubscribeToShard: a second subscription within five seconds is refused. These are
# counted here from the request, and there from a moment after it.
RESUBSCRIBE_S = 5.2
_REFUSALS = (Fallback.REFUSED, Fallback.MISSING)
_PUSHED_BYTES_PER_S = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subscriptions:
    """What the subscriptions of one reader share: of a spout, or of an attempt of a task.

    - `subscribe`: opens a subscription to a shard at a position, with its share of `budget`; called
      in the feed's thread.
    - `poll_after_s`: a shard is polled once it had no subscription that has pushed for so long.
    - `silent_s`: it is polled beside a subscription that has pushed nothing useful for so long, and
      the time that the bytes of its last event take. None: a subscription that has pushed is relied
      on until it ends.
    - `refused_s`: the pause after an error that no waiting mends, as a missing permission, where
      that is longer than the backoff.
    - `slots`: so many may be open at a time, each with a thread. A shard without one is polled.
    - `budget`: bounds the bytes of events that were not handed over yet.
    - `pushed`: is set in any thread when `ready_at_s` of a getter may have come nearer.
    """

    subscribe: Callable[[str, Position, EventShare], ShardSubscription]
    counts: SubscriptionCounts
    new_feed: NewFeed
    wait_for: Callable[[threading.Event, float], object]
    clock: Clock
    random: Random
    poll_after_s: float
    silent_s: float | None = None
    refused_s: float = 0.0
    slots: threading.Semaphore = field(default_factory=partial(threading.Semaphore, sys.maxsize))
    budget: EventByteBudget = field(default_factory=EventByteBudget)
    pushed: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s: float) -> None:
        """Wait until something was pushed, at most so many seconds."""
        # Cleared after the wait: the look that follows sees every later push.
        self.wait_for(self.pushed, timeout_s)
        self.pushed.clear()


@dataclass(slots=True)
class _OpenSubscription:
    """A subscription from the attempt to have it to its end. `has_events`: it has pushed."""

    feed: SubscriptionFeed
    share: EventShare
    has_events: bool = False


@dataclass(frozen=True, slots=True)
class _Event:
    """What is left to hand over of an event, which `share` holds with all its bytes."""

    page: Page
    wire_bytes: int
    share: EventShare


class SubscribedGetter:
    """A `ShardGetter` whose pages are pushed, or polled. `fetch_unless_throttled` waits for the
    service where the shard is polled, and never for a push.

    `polling`: reads the shard where subscriptions do not, and has the position of both.
    `not_before_s`: when the service allows the first subscription, on the clock's monotonic scale.
    `fallback`: why the shard is polled, or was polled last; None while no subscription has failed,
    and after an event.
    """

    def __init__(
        self,
        polling: KinesisShardGetter,
        subscriptions: Subscriptions,
        *,
        not_before_s: float = -math.inf,
    ) -> None:
        self.shard_id = polling.shard_id
        self.fallback: Fallback | None = None
        self._polling = polling
        self._shared = subscriptions
        self._lock = threading.Lock()  # `close` comes from another thread
        self._may_subscribe = True
        self._open: _OpenSubscription | None = None
        self._subscribe_at_s = not_before_s
        self._begun_s: float | None = None  # when the newest subscription was asked for
        self._failures = 0
        self._event: _Event | None = None  # with more records than were asked for
        self._continuation: SequenceNumber | None = None  # where the newest records were pushed
        self._poll_from_s = self._now_s() + subscriptions.poll_after_s
        self._must_poll = False

    @property
    def position(self) -> Position:
        return self._polling.position

    @property
    def next_subscribe_s(self) -> float | None:
        """When the next subscription makes sense, on the clock's monotonic scale; None if this one
        was never tried.
        """
        return None if self._begun_s is None else self._subscribe_at_s

    def ready_at_s(self) -> float:
        """When there is something to do. May be infinite: then only `Subscriptions.pushed` tells,
        which may be set earlier in any case.
        """
        opened = self._open
        if self._event is not None or self.position.is_end:
            return self._now_s()
        if opened is not None and opened.feed.has_news:
            return self._now_s()
        if self._must_poll:
            return self._polling.ready_at_s()
        poll_s = max(self._polling.ready_at_s(), self._poll_from_s)
        may_subscribe = opened is None and self._may_subscribe
        return min(poll_s, self._subscribe_at_s) if may_subscribe else poll_s

    def fetch_unless_throttled(self, limit: int) -> Page:
        """What was pushed, at most `limit` records of it. Raises `FetchPostponedError` when there
        is nothing yet. Blocks on the network only for a shard that is polled, and raises then what
        the polling getter raises.
        """
        if self.position.is_end:
            return self._polling.fetch_unless_throttled(limit)
        event = self._event or self._next_event()
        if event is not None:
            return self._hand_over(event, limit)
        if self._must_poll or self._now_s() >= self._poll_from_s:
            if self._open is not None:
                self.fallback = Fallback.SILENT
            # "Now" is what a getter that is ready may say: the clock is read after it was asked.
            ready_at_s = self._polling.ready_at_s()
            if ready_at_s <= self._now_s():
                return self._poll(limit)
        raise FetchPostponedError(f"shard {self.shard_id} has no new records")

    def demand(self) -> None:
        """Somebody waits for the next page: its event may come without room. Any thread."""
        opened = self._open
        if opened is not None:
            opened.share.demand()

    def close(self) -> None:
        """End the subscription, or never open it. What is read from now on is polled. Any thread;
        never blocks.
        """
        with self._lock:
            self._may_subscribe = False
        self._end_subscription()
        self._shared.counts.forget(self.shard_id)

    # subscriptions --------------------------------------------------------------------------------
    def _next_event(self) -> _Event | None:
        """The next event in order, if there is one. Renews a subscription that is over."""
        opened = self._open
        if opened is not None and opened.feed.is_over:
            error = opened.feed.error
            if error is not None and not isinstance(error, KinesisError):
                self.close()
                raise error  # a fault of the program
            if error is None and opened.has_events:  # its five minutes are over
                self._end_subscription()
                self.fallback = Fallback.ENDED
            else:
                self._on_failure(opened, error)
        if self._open is None:
            self._begin_if_due()
        opened = self._open
        pushed = None if opened is None else opened.feed.take()
        if opened is None or pushed is None:
            return None  # also where `close` was called meanwhile
        first, last = pushed.page.first, pushed.page.last
        if first is not None and last is not None and last < first:
            what = (
                f"the subscription to shard {self.shard_id} returned records from {first} to "
                f"{last}. These records are out of order, so they were dropped"
            )
            self._on_failure(opened, MalformedResponseError(what))
            return None
        page = _pushed_page(pushed, self.shard_id, position=self.position)
        if not self._polling.keeps_lists:
            page.columns.to_arrow()  # once: what is cut from it is sliced
        event = _Event(page, pushed.wire_bytes, opened.share)
        self._event = event  # from now on `close` keeps its bytes
        self._on_event(opened, page)
        if page.continuation is None and not page.ended:
            # No subscription until the polling getter knows whether the shard has ended.
            self._must_poll = True
            what = (
                f"the subscription to shard {self.shard_id} ended without naming child shards. "
                "The shard may not have ended, so it is read with GetRecords"
            )
            self._on_failure(opened, MalformedResponseError(what))
        return event

    def _begin_if_due(self) -> None:
        shared, now_s = self._shared, self._now_s()
        if self._must_poll or now_s < self._subscribe_at_s:
            return
        position = self.position
        if self._continuation is not None:
            position = Position.after(self._continuation)
        with self._lock:
            if not self._may_subscribe:
                return
            self._subscribe_at_s = now_s + RESUBSCRIBE_S
            if not shared.slots.acquire(blocking=False):
                return
            self._begun_s = now_s
            if shared.silent_s is not None:
                self._poll_from_s = now_s + shared.silent_s
            share = shared.budget.share()
            subscribe = partial(shared.subscribe, self.shard_id, position, share)
            feed = shared.new_feed(self.shard_id, subscribe, shared.pushed.set)
            self._open = _OpenSubscription(feed, share)

    def _on_event(self, opened: _OpenSubscription, page: Page) -> None:
        if not opened.has_events:
            self._shared.counts.opened(self.shard_id)
        opened.has_events = True
        self._failures, self.fallback = 0, None
        silent_s = self._shared.silent_s
        if silent_s is None:
            self._poll_from_s = math.inf
        elif page.count or page.at_tip or page.ended:
            paid_off_s = page.columns.read_bytes / _PUSHED_BYTES_PER_S
            self._poll_from_s = self._now_s() + silent_s + paid_off_s

    def _on_failure(self, opened: _OpenSubscription, error: KinesisError | None) -> None:
        """The subscription was refused or broke; `error` is None where it ended without a word."""
        self._end_subscription()
        self._failures += 1
        self.fallback = reason = _reason(error, has_events=opened.has_events)
        now_s = self._now_s()
        self._shared.counts.failed(
            self.shard_id,
            error,
            in_a_row=self._failures,
            # A refusal alone says little: an earlier process may have subscribed just before.
            was_taken=reason is Fallback.IN_USE and opened.has_events,
            now_s=now_s,
        )
        # The service has one code for a shard and a consumer that is gone. The polling getter knows
        # what to do about a shard.
        self._must_poll = self._must_poll or reason is Fallback.MISSING
        pause_s = _FAILED.wait_s(self._failures, self._shared.random)
        if reason in _REFUSALS and error is not None and not error.retryable:
            pause_s = max(pause_s, self._shared.refused_s)
        # A refused one does not count at the service: the next one may come sooner than that.
        allowed_s = self._subscribe_at_s if opened.has_events else now_s
        self._subscribe_at_s = max(allowed_s, now_s + pause_s)

    def _end_subscription(self) -> None:
        with self._lock:
            opened, self._open = self._open, None
            if opened is None:
                return
            poll_from_s = self._now_s() + self._shared.poll_after_s
            self._poll_from_s = min(self._poll_from_s, poll_from_s)
        event = self._event
        is_held = event is not None and event.share is opened.share
        opened.share.close(kept_bytes=event.wire_bytes if event is not None and is_held else 0)
        opened.feed.close()
        self._shared.slots.release()

    # pages ----------------------------------------------------------------------------------------
    def _hand_over(self, event: _Event, limit: int) -> Page:
        part = event.page.head(limit)
        if part.last is not None:
            self._polling.move_to(Position.after(part.last))
        if part.count < event.page.count:
            self._event = replace(event, page=event.page.after(part.count))
            return part
        self._event = None
        event.share.release(event.wire_bytes)
        if part.continuation is not None:
            self._continuation = part.continuation
        if part.ended:
            self._polling.move_to(SHARD_END)
            self.close()
        elif not part.count and not part.at_tip:
            return replace(part, next_iterator=self._polling.iterator)  # still good
        return part

    def _poll(self, limit: int) -> Page:
        after_s = self._shared.poll_after_s  # 0: polled as a matter of course, which is not counted
        if after_s and not self._must_poll:
            self._shared.counts.polled(self.shard_id, after_s)
        try:
            page = self._polling.fetch_unless_throttled(limit)
        except StillThrottledError as exc:
            if self._open is None:
                raise
            # The subscription is not held up by what other consumers use up.
            raise FetchPostponedError(str(exc)) from exc
        # Without an iterator, the shard may have ended, which further polls prove.
        self._must_poll = self._must_poll and page.next_iterator is None
        if page.count:
            self._continuation = None
        if page.ended or page.gone:
            self.close()
        return page

    def _now_s(self) -> float:
        return self._shared.clock.monotonic_s()


def _reason(error: KinesisError | None, *, has_events: bool) -> Fallback:
    """Why a subscription failed that had events or none."""
    if error is None:
        return Fallback.ENDED
    if isinstance(error, ShardNotFoundError):
        return Fallback.MISSING
    if isinstance(error, SubscriptionInUseError):
        return Fallback.IN_USE
    is_broken = has_events or isinstance(error, MalformedResponseError)
    return Fallback.BROKEN if is_broken else Fallback.REFUSED


def _pushed_page(event: SubscriptionEvent, shard_id: str, *, position: Position) -> Page:
    """What a subscription has pushed, without the records before `position`, which were read
    before.
    """
    decoded = event.page
    behind_ms = decoded.millis_behind_latest
    # An end that names no children is no evidence, and nothing that a malformed event says counts.
    is_end, is_proven = decoded.continuation is None, continue_shard(shard_id, decoded.child_shards)
    # An event without records that does not say how far behind it is comes at the tip.
    is_at_tip = not decoded.count if behind_ms is None else not behind_ms
    page = Page.of(
        decoded,
        shard_id,
        ended=is_end and is_proven,
        at_tip=is_at_tip and (is_proven or not is_end),
        latest_ms=event.latest_ms,
        is_pushed=True,
    )
    last = record_before(position)
    if last is None or page.first is None or page.first > last:
        return page
    return page.after(page.up_to(last))
