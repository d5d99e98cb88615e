"""One shard by subscription, with scripted feeds and a scripted polling getter."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ServiceUnavailableError, ShardNotFoundError
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.subscribed_getter import SubscribedGetter
from kinesis_spout.reading.subscription_counts import SubscriptionCounts
from state.position import TRIM_HORIZON
from tests.support.kinesis.scripted_feeds import SHARD, ScriptedShard, after, event, polled

if TYPE_CHECKING:
    from state.position import Position


class Shard(ScriptedShard):
    def __init__(self) -> None:
        super().__init__()
        self.counts = SubscriptionCounts("reader")
        polling: Any = self.polling
        self.getter = SubscribedGetter(
            polling,
            self._subscribe,
            new_feed=self.new_feed,
            on_news=lambda: None,
            counts=self.counts,
            fallback_after_s=30.0,
            clock=self.clock,
            random=Random(0),  # noqa: S311  # a test to repeat, not a secret
        )
        self.nothing()

    def _subscribe(self, _shard_id: str, position: Position) -> Any:
        self.asked.append(position)


def test_a_subscription_is_renewed_after_the_continuation_number() -> None:
    """Also after an event without records; the position stays that of the last record."""
    shard = Shard()
    shard.feeds[0].events += [event(3, 5, continuation=7), event(continuation=9)]
    assert (shard.numbers(), shard.numbers()) == ([3, 5], [])
    assert shard.getter.position == after(5)
    shard.feeds[0].end()
    shard.nothing()
    assert shard.asked == [TRIM_HORIZON, after(9)]


def test_an_event_is_handed_over_in_parts_before_the_next_subscription() -> None:
    """The position is after each part. A subscription that broke meanwhile is renewed at the
    end.
    """
    shard = Shard()
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
    shard = Shard()
    shard.clock.advance(31)
    shard.polling.pages += [polled(1, 2), polled(3)]
    assert (shard.numbers(), shard.numbers()) == ([1, 2], [3])
    assert shard.counts.totals().polled_shards == 1
    shard.feeds[0].events += [event(1, 2, continuation=2), event(3, 4, continuation=4)]
    assert (shard.numbers(), shard.numbers()) == ([], [4])
    assert shard.counts.totals().polled_shards == 0


def test_polling_moves_the_next_subscription_on() -> None:
    """The continuation number of an event from before does not count then."""
    shard = Shard()
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
    """The polling getter tells a shard that is gone from a consumer that is."""
    shard = Shard()
    shard.feeds[0].end(ShardNotFoundError("gone"))
    shard.polling.pages.append(Page.empty(SHARD, gone=True))
    assert shard.getter.fetch_unless_throttled(10).gone
    assert shard.getter.ready_at_s() == float("inf")


def test_events_out_of_order_are_a_failure_of_the_subscription_and_a_fault_is_raised() -> None:
    """Nothing of them is handed over. A fault of the program is not tried again."""
    shard = Shard()
    shard.feeds[0].events.append(event(5, 3, continuation=5))
    shard.nothing()
    assert (shard.counts.totals().failed, shard.getter.position) == (1, TRIM_HORIZON)
    shard = Shard()
    shard.feeds[0].end(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        shard.getter.fetch_unless_throttled(1)
