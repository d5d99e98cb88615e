"""One shard for a short time, by one subscription, with scripted feeds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import (
    AccessDeniedError,
    ServiceUnavailableError,
    ShardNotFoundError,
    SubscriptionInUseError,
)
from kinesis_spout.reading.event_room import EventRoom, RoomShare
from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.reading.push_or_poll_getter import (
    RESUBSCRIBE_S,
    PushOrPollGetter,
    SubscriptionSlots,
)
from state.position import TRIM_HORIZON
from tests.support.kinesis.scripted_feeds import ScriptedShard, after, event, polled

if TYPE_CHECKING:
    from state.position import Position

LATE_S = 60.0
ROOM_BYTES = 100


class Shard(ScriptedShard):
    def __init__(self, *, not_before_s: float = 0.0) -> None:
        super().__init__()
        self.slots = SubscriptionSlots(1)
        self.room = EventRoom(ROOM_BYTES)
        self.shares: list[RoomShare] = []
        self.began_s = self.clock.monotonic_s()
        polling: Any = self.polling
        self.getter = PushOrPollGetter(
            polling,
            self._subscribe,
            new_feed=self.new_feed,
            on_news=lambda: None,
            slots=self.slots,
            room=self.room,
            not_before_s=self.began_s + not_before_s,
            clock=self.clock,
        )

    def _subscribe(self, _shard_id: str, position: Position, share: RoomShare) -> Any:
        self.asked.append(position)
        self.shares.append(share)

    def subscribed(self) -> Shard:
        self.nothing()
        return self


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
    assert shard.room.held_bytes == 80
    shard.getter.close()
    assert shard.room.held_bytes == 40
    shard.polling.pages.append(polled(4))
    assert shard.numbers() == [2]
    assert shard.room.held_bytes == 0
    assert shard.numbers() == [4]


def test_a_subscription_that_breaks_is_polled_after_its_last_complete_event() -> None:
    """And opened again when the service allows that, after what was polled."""
    shard = Shard().subscribed()
    shard.feeds[0].events.append(event(3, 5, continuation=7))
    assert shard.numbers() == [3, 5]
    shard.feeds[0].end(ServiceUnavailableError("broke"))
    shard.polling.pages += [polled(6), polled(7)]
    assert (shard.numbers(), shard.numbers()) == ([6], [7])
    assert (shard.getter.fallback, len(shard.feeds)) == (Fallback.BROKEN, 1)
    shard.clock.advance(RESUBSCRIBE_S)
    shard.nothing()
    shard.feeds[1].events.append(event(8, continuation=8))
    assert (shard.numbers(), shard.asked) == ([8], [TRIM_HORIZON, after(7)])
    assert shard.getter.fallback is None
    ranges = [(first.sequence, last.sequence) for first, last in shard.getter.pushed]
    assert ranges == [(3, 5), (8, 8)]


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
    assert (shard.numbers(), shard.feeds) == ([1, 2], [])
    assert shard.getter.pushed == []
    shard.clock.advance(2.0)
    shard.nothing()
    shard.feeds[0].events.append(event(2, 3, continuation=3))
    assert (shard.asked, shard.numbers()) == ([after(2)], [3])
    assert [(one.sequence, two.sequence) for one, two in shard.getter.pushed] == [(3, 3)]


def test_a_shard_without_a_free_slot_is_polled() -> None:
    """A slot is free again when its subscription is closed, once."""
    shard = Shard()
    assert shard.slots.try_take()
    shard.polling.pages.append(polled(1))
    assert (shard.numbers(), shard.feeds) == ([1], [])
    other = Shard().subscribed()
    other.getter.close()
    other.getter.close()
    assert other.slots.try_take()
    assert not other.slots.try_take()


def test_a_closed_getter_polls_within_the_limits_and_never_subscribes() -> None:
    shard = Shard()
    shard.getter.close()
    shard.polling.pages.append(polled(1))
    assert (shard.numbers(), shard.feeds, shard.getter.next_subscribe_s) == ([1], [], None)
    shard.polling.ready_s = shard.clock.monotonic_s() + 3.0
    shard.nothing()
    assert shard.getter.ready_at_s() == shard.polling.ready_s


def test_an_event_out_of_order_is_polled_instead_and_a_fault_is_raised() -> None:
    shard = Shard().subscribed()
    shard.feeds[0].events.append(event(9, 3, continuation=9))
    shard.polling.pages.append(polled(3))
    assert (shard.numbers(), shard.getter.fallback) == ([3], Fallback.BROKEN)
    shard = Shard().subscribed()
    shard.feeds[0].end(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        shard.getter.fetch_unless_throttled(1)
