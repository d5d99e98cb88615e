"""One shard by subscription, with scripted feeds and a scripted polling getter."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import KinesisError, ServiceUnavailableError, ShardNotFoundError
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.reading.subscribed_getter import SubscribedGetter
from kinesis_spout.reading.subscription_counts import SubscriptionCounts
from kinesis_spout.testing import ManualClock
from state.position import TRIM_HORIZON, Position
from tests.support.kinesis.scripted_feeds import SHARD, Feed, Polling, after, event, polled

if TYPE_CHECKING:
    from kinesis_spout.reading.subscription_feed import Subscribe


class Shard:
    """A getter under test. `asked`: the positions of its subscriptions, once they are opened."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.polling = Polling()
        self.feeds: list[Feed] = []
        self.counts = SubscriptionCounts("reader")
        polling: Any = self.polling
        self.getter = SubscribedGetter(
            polling,
            self._subscribe,
            new_feed=self._new_feed,
            on_news=lambda: None,
            counts=self.counts,
            fallback_after_s=30.0,
            clock=self.clock,
            random=Random(0),  # noqa: S311  # a test to repeat, not a secret
        )
        self.asked: list[Position] = []

    def _new_feed(self, _shard_id: str, subscribe: Subscribe, _on_news: Any) -> Feed:
        feed = Feed(subscribe)
        self.feeds.append(feed)
        subscribe()
        return feed

    def _subscribe(self, _shard_id: str, position: Position) -> Any:
        self.asked.append(position)

    def nothing(self) -> None:
        with pytest.raises(FetchPostponedError):
            self.getter.fetch_unless_throttled(100)

    def numbers(self, limit: int = 100) -> list[int]:
        page = self.getter.fetch_unless_throttled(limit)
        return [int(number) for number in page.columns.lists().numbers]


def test_a_subscription_is_renewed_after_the_continuation_number() -> None:
    """Also after an event without records; the position stays that of the last record."""
    shard = Shard()
    shard.nothing()
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
    shard.nothing()
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
    shard.nothing()
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
    shard.nothing()
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
    shard.nothing()
    shard.feeds[0].end(ShardNotFoundError("gone"))
    shard.polling.pages.append(Page.empty(SHARD, gone=True))
    assert shard.getter.fetch_unless_throttled(10).gone
    assert shard.getter.ready_at_s() == float("inf")


def test_pauses_grow_while_subscriptions_are_refused() -> None:
    """To 16 s at most. It is ready again at the end of each."""
    shard = Shard()
    pauses = []
    shard.polling.pages += [polled()] * 100
    for _ in range(8):
        shard.getter._is_polling = False
        with pytest.raises(FetchPostponedError):
            shard.getter.fetch_unless_throttled(1)
        shard.getter._poll_from_s = float("inf")
        shard.feeds[-1].end(ServiceUnavailableError("refused"))
        with pytest.raises(FetchPostponedError):
            shard.getter.fetch_unless_throttled(1)
        pauses.append(shard.getter.ready_at_s() - shard.clock.monotonic_s())
        shard.clock.advance(pauses[-1])
    assert 0.25 <= pauses[0] <= 0.5
    assert all(8 <= pause <= 16 for pause in pauses[5:])


def test_events_out_of_order_are_a_failure_of_the_subscription() -> None:
    """Nothing of them is handed over."""
    shard = Shard()
    shard.nothing()
    shard.feeds[0].events.append(event(5, 3, continuation=5))
    shard.nothing()
    assert shard.counts.totals().failed == 1
    assert shard.getter.position == TRIM_HORIZON


def test_a_fault_of_the_program_is_raised() -> None:
    """It is not tried again."""
    shard = Shard()
    shard.nothing()
    shard.feeds[0].end(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        shard.getter.fetch_unless_throttled(1)


def test_what_is_refused_is_forgotten_with_its_shard() -> None:
    counts = SubscriptionCounts("reader")
    for attempt in range(1, 4):
        assert counts.refusal(0.0) is None, "a connection that broke is soon there again"
        counts.failed("shard", KinesisError("no right"), in_a_row=attempt)
    assert counts.refusal(0.0) == "no right"
    counts.forget("shard")
    assert counts.refusal(0.0) is None
