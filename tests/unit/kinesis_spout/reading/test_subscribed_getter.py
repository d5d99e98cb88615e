"""One shard by subscription, with scripted feeds and a scripted polling getter: by the rules of a
spout, and by those of a task.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import (
    AccessDeniedError,
    ServiceUnavailableError,
    ShardNotFoundError,
    SubscriptionInUseError,
)
from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.subscribed_getter import (
    RESUBSCRIBE_S,
    FallbackRules,
    SubscribedGetter,
    Subscriptions,
)
from kinesis_spout.reading.subscription_counts import SubscriptionCounts
from kinesis_spout.service.subscription import EventByteBudget
from state.position import TRIM_HORIZON
from tests.support.kinesis.scripted_feeds import SHARD, ScriptedShard, after, event, polled

if TYPE_CHECKING:
    from kinesis_spout.service.subscription import EventShare
    from state.position import Position

SPOUT = FallbackRules(poll_after_s=30.0)
TASK = FallbackRules(poll_after_s=0.0, silent_s=1.0, refused_s=60.0)
LATE_S = 60.0
ROOM_BYTES = 100


class Shard(ScriptedShard):
    """A shard that was not looked at yet. `shares`: of its subscriptions."""

    def __init__(self, rules: FallbackRules = TASK, *, not_before_s: float = 0.0) -> None:
        super().__init__()
        self.counts = SubscriptionCounts("reader")
        self.slots = threading.Semaphore(1)
        self.budget = EventByteBudget(ROOM_BYTES)
        self.shares: list[EventShare] = []
        self.began_s = self.clock.monotonic_s()
        polling: Any = self.polling
        subscriptions = Subscriptions(
            subscribe=self._subscribe,
            rules=rules,
            counts=self.counts,
            new_feed=self.new_feed,
            wait_for=threading.Event.wait,
            clock=self.clock,
            random=Random(0),  # noqa: S311  # a test to repeat, not a secret
            slots=self.slots,
            budget=self.budget,
        )
        self.getter = SubscribedGetter(
            polling, subscriptions, not_before_s=self.began_s + not_before_s
        )

    def _subscribe(self, _shard_id: str, position: Position, share: EventShare) -> Any:
        self.asked.append(position)
        self.shares.append(share)

    def subscribed(self) -> Shard:
        self.nothing()
        return self

    def is_pushed(self, limit: int = 100) -> list[tuple[int, bool]]:
        """The numbers of the next page, and how each came."""
        page = self.getter.fetch_unless_throttled(limit)
        return [(int(number), page.is_pushed) for number in page.columns.lists().numbers]


def test_a_subscription_is_renewed_after_the_continuation_number() -> None:
    """Also after an event without records; the position stays that of the last record."""
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].events += [event(3, 5, continuation=7), event(continuation=9)]
    assert (shard.numbers(), shard.numbers()) == ([3, 5], [])
    assert shard.getter.position == after(5)
    shard.clock.advance(300)
    shard.feeds[0].end()
    shard.nothing()
    assert shard.asked == [TRIM_HORIZON, after(9)]


def test_an_event_is_handed_over_in_parts_before_the_next_subscription() -> None:
    """The position is after each part. A subscription that broke meanwhile is renewed at the
    end.
    """
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].events.append(event(1, 2, 3, continuation=4))
    assert shard.numbers(2) == [1, 2]
    assert shard.getter.position == after(2)
    shard.feeds[0].end(ServiceUnavailableError("broken"))
    assert shard.numbers(2) == [3]
    shard.nothing()
    assert len(shard.feeds) == 1
    shard.clock.advance(6)
    shard.nothing()
    assert shard.asked == [TRIM_HORIZON, after(4)]


def test_what_was_polled_meanwhile_is_left_out_of_the_first_event() -> None:
    """Its subscription began before."""
    shard = Shard(SPOUT).subscribed()
    shard.clock.advance(31)
    shard.polling.pages += [polled(1, 2), polled(3)]
    assert (shard.numbers(), shard.numbers()) == ([1, 2], [3])
    assert shard.counts.totals().polled_shards == 1
    shard.feeds[0].events += [event(1, 2, continuation=2), event(3, 4, continuation=4)]
    assert (shard.numbers(), shard.numbers()) == ([], [4])
    assert shard.counts.totals().polled_shards == 0


def test_polling_moves_the_next_subscription_on() -> None:
    """The continuation number of an event from before does not count then."""
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].events.append(event(1, continuation=1))
    assert shard.numbers() == [1]
    shard.feeds[0].end(ServiceUnavailableError("broken"))
    shard.nothing()
    shard.clock.advance(6)
    shard.nothing()
    shard.clock.advance(31)
    shard.polling.pages.append(polled(5))
    assert shard.numbers() == [5]
    shard.feeds[1].end(ServiceUnavailableError("broken"))
    shard.polling.pages += [polled()] * 3
    assert shard.numbers() == []
    shard.clock.advance(20)
    assert shard.numbers() == []
    assert shard.asked == [TRIM_HORIZON, after(1), after(5)]


def test_a_shard_that_is_said_to_be_gone_is_polled_at_once() -> None:
    """The polling getter tells a shard that is gone from a consumer that is. It is not subscribed
    to again.
    """
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].end(ShardNotFoundError("gone"))
    shard.polling.pages += [Page(shard_id=SHARD, gone=True)] * 2
    assert shard.getter.fetch_unless_throttled(10).gone
    shard.clock.advance(LATE_S)
    assert shard.getter.fetch_unless_throttled(10).gone
    assert len(shard.feeds) == 1


def test_events_out_of_order_are_a_failure_of_the_subscription_and_a_fault_is_raised() -> None:
    """Nothing of them is handed over: a task polls instead. A fault of the program is not tried
    again.
    """
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].events.append(event(5, 3, continuation=5))
    shard.nothing()
    assert (shard.counts.totals().failed, shard.getter.position) == (1, TRIM_HORIZON)
    shard = Shard().subscribed()
    shard.feeds[0].events.append(event(9, 3, continuation=9))
    shard.polling.pages.append(polled(3))
    assert (shard.numbers(), shard.getter.fallback) == ([3], Fallback.BROKEN)
    shard = Shard(SPOUT).subscribed()
    shard.feeds[0].end(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        shard.getter.fetch_unless_throttled(1)


def test_an_event_is_held_until_its_last_record_was_handed_over() -> None:
    """Also where its subscription has ended: the rest comes before what is polled. Events that
    nobody took are not held then.
    """
    shard = Shard().subscribed()
    for number in (1, 3):
        shard.shares[0].charge(40)
        pushed = event(number, number + 1, continuation=number + 1)
        shard.feeds[0].events.append(replace(pushed, wire_bytes=40))
    assert shard.numbers(1) == [1]
    assert shard.budget.held_bytes == 80
    shard.getter.close()
    assert shard.budget.held_bytes == 40
    shard.polling.pages.append(polled(4))
    assert shard.numbers() == [2]
    assert shard.budget.held_bytes == 0
    assert shard.numbers() == [4]


def test_a_subscription_that_breaks_is_polled_after_its_last_complete_event() -> None:
    """And opened again when the service allows that, after what was polled."""
    shard = Shard().subscribed()
    shard.feeds[0].events.append(event(3, 5, continuation=7))
    assert (shard.is_pushed(1), shard.is_pushed()) == ([(3, True)], [(5, True)])
    shard.feeds[0].end(ServiceUnavailableError("broke"))
    shard.polling.pages += [polled(6), polled(7)]
    assert (shard.is_pushed(), shard.numbers()) == ([(6, False)], [7])
    assert (shard.getter.fallback, len(shard.feeds)) == (Fallback.BROKEN, 1)
    shard.clock.advance(RESUBSCRIBE_S)
    shard.nothing()
    shard.feeds[1].events.append(event(8, continuation=8))
    assert (shard.is_pushed(), shard.asked) == ([(8, True)], [TRIM_HORIZON, after(7)])
    assert shard.getter.fallback is None


@pytest.mark.parametrize(
    ("error", "fallback", "for_good"),
    [
        (ServiceUnavailableError("no answer"), Fallback.REFUSED, False),
        (SubscriptionInUseError("in use"), Fallback.IN_USE, False),
        (AccessDeniedError("not allowed"), Fallback.REFUSED, True),
        (ShardNotFoundError("no consumer"), Fallback.MISSING, True),
        (None, Fallback.ENDED, False),
    ],
)
def test_a_subscription_that_is_refused_is_no_fault(
    error: Exception | None, fallback: Fallback, *, for_good: bool
) -> None:
    """The shard is polled at once. What waiting does not mend is not tried again soon."""
    shard = Shard().subscribed()
    shard.feeds[0].end(error)
    shard.polling.pages.append(polled(1))
    assert shard.numbers() == [1]
    assert shard.getter.fallback is fallback
    next_s = shard.getter.next_subscribe_s
    assert next_s is not None
    assert (next_s > shard.began_s + RESUBSCRIBE_S) is for_good


def test_a_subscription_that_falls_silent_is_polled_beside() -> None:
    """Also one that never pushed. What it pushes later is handed over without the records that were
    polled, and ends that.
    """
    shard = Shard().subscribed()
    shard.clock.advance(shard.getter.ready_at_s() - shard.clock.monotonic_s())
    shard.polling.pages.append(polled(1))
    assert (shard.numbers(), shard.getter.fallback) == ([1], Fallback.SILENT)
    shard = Shard().subscribed()
    shard.clock.advance(LATE_S)
    shard.feeds[0].events.append(event(3, continuation=3, behind_ms=5_000))
    assert (shard.numbers(), shard.getter.fallback) == ([3], None), "nobody looked meanwhile"
    shard.nothing()
    shard.clock.advance(2.0)
    shard.polling.pages.append(polled(4))
    assert (shard.numbers(), shard.getter.fallback) == ([4], Fallback.SILENT)
    shard.feeds[0].events.append(event(4, 5, continuation=5, behind_ms=5_000))
    assert (shard.numbers(), shard.getter.fallback) == ([5], None)
    shard.nothing()
    assert len(shard.feeds) == 1


def test_a_silent_subscription_is_heard_while_polling_is_throttled() -> None:
    """Other consumers may use up all that the shard gives to those that poll."""
    shard = Shard().subscribed()
    shard.clock.advance(2.0)
    shard.polling.ready_s = shard.clock.monotonic_s() + LATE_S
    shard.nothing()
    shard.feeds[0].events.append(event(1, continuation=1))
    assert (shard.numbers(), shard.polling.position) == ([1], after(1))


def test_a_shard_is_polled_beside_events_without_records() -> None:
    """They do not move the position. A polled page's iterator does go on, and is not lost."""
    shard = Shard().subscribed()
    for _ in range(3):
        shard.clock.advance(0.5)
        shard.feeds[0].events.append(event(continuation=7, behind_ms=5_000))
        assert shard.numbers() == []
    shard.polling.pages.append(polled())
    shard.polling.iterator = "far inside"
    assert shard.numbers() == []
    assert not shard.polling.pages
    shard.feeds[0].events.append(event(continuation=7, behind_ms=5_000))
    assert shard.getter.fetch_unless_throttled(100).next_iterator == "far inside"


def test_a_shard_is_polled_until_it_may_be_subscribed_to() -> None:
    """Then it is subscribed to after what was polled, and its records are told apart."""
    shard = Shard(not_before_s=2.0)
    shard.polling.pages.append(polled(1, 2))
    assert (shard.is_pushed(), shard.feeds) == ([(1, False), (2, False)], [])
    shard.clock.advance(2.0)
    shard.nothing()
    shard.feeds[0].events.append(event(2, 3, continuation=3))
    assert (shard.asked, shard.is_pushed()) == ([after(2)], [(3, True)])


def test_a_shard_without_a_free_slot_is_polled() -> None:
    """A slot is free again when its subscription is closed, once."""
    shard = Shard()
    assert shard.slots.acquire(blocking=False)
    shard.polling.pages.append(polled(1))
    assert (shard.numbers(), shard.feeds) == ([1], [])
    other = Shard().subscribed()
    other.getter.close()
    other.getter.close()
    assert other.slots.acquire(blocking=False)
    assert not other.slots.acquire(blocking=False)


def test_a_closed_getter_polls_within_the_limits_and_never_subscribes() -> None:
    shard = Shard()
    shard.getter.close()
    shard.polling.pages.append(polled(1))
    assert (shard.numbers(), shard.feeds, shard.getter.next_subscribe_s) == ([1], [], None)
    shard.polling.ready_s = shard.clock.monotonic_s() + 3.0
    shard.nothing()
    assert shard.getter.ready_at_s() == shard.polling.ready_s
