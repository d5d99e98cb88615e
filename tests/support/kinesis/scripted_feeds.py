"""Feeds and polling getters of a shard that a test scripts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.reading.page import Page
from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.service.get_records_decoder import decode_event
from kinesis_spout.service.subscription import SubscriptionEvent
from kinesis_spout.testing import ManualClock
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from kinesis_spout.reading.subscription_feed import Subscribe

SHARD = "shardId-000000000000"


def event(*numbers: int, continuation: int, behind_ms: int = 0) -> SubscriptionEvent:
    records = ",".join(
        f'{{"SequenceNumber":"{n}","Data":"eA==","PartitionKey":"k","ApproximateArrivalTimestamp":1}}'
        for n in numbers
    )
    page, after = decode_event(
        f'{{"Records":[{records}],"ContinuationSequenceNumber":"{continuation}",'
        f'"MillisBehindLatest":{behind_ms},"ChildShards":null}}'.encode()
    )
    return SubscriptionEvent(page, after)


@dataclass
class Feed:
    """A feed to which a test gives events and an end. It never subscribes by itself."""

    subscribe: Subscribe
    events: deque[SubscriptionEvent] = field(default_factory=deque)
    has_ended: bool = False
    error: Exception | None = None

    @property
    def has_news(self) -> bool:
        return bool(self.events) or self.has_ended

    @property
    def is_over(self) -> bool:
        return self.has_ended and not self.events

    def take(self) -> SubscriptionEvent | None:
        return self.events.popleft() if self.events else None

    def end(self, error: Exception | None = None) -> None:
        self.has_ended, self.error = True, error

    def close(self) -> None:
        self.has_ended = True


@dataclass
class Polling:
    """The part of a polling getter that is used, over pages of a test."""

    shard_id: str = SHARD
    position: Position = TRIM_HORIZON
    iterator: str | None = None
    ready_s: float = 0.0
    keeps_lists: bool = False
    pages: deque[Page] = field(default_factory=deque)

    def move_to(self, position: Position) -> None:
        self.position = position

    def ready_at_s(self) -> float:
        return self.ready_s

    def fetch_unless_throttled(self, _limit: int) -> Page:
        page = self.pages.popleft()
        if page.last is not None:
            self.position = Position.after(page.last)
        return page


def after(number: int) -> Position:
    return Position.after(SequenceNumber(number))


def polled(*numbers: int) -> Page:
    decoded = event(*numbers, continuation=1).page
    return Page(
        shard_id=SHARD,
        columns=decoded.columns,
        count=decoded.count,
        first=decoded.first,
        last=decoded.last,
    )


class ScriptedShard:
    """What a getter under test reads. `asked`: the positions of its subscriptions, once they are
    opened.
    """

    getter: Any

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.polling = Polling()
        self.feeds: list[Feed] = []
        self.asked: list[Position] = []

    def new_feed(self, _shard_id: str, subscribe: Subscribe, _on_news: Any) -> Feed:
        self.feeds.append(Feed(subscribe))
        subscribe()
        return self.feeds[-1]

    def nothing(self) -> None:
        with pytest.raises(FetchPostponedError):
            self.getter.fetch_unless_throttled(100)

    def numbers(self, limit: int = 100) -> list[int]:
        page = self.getter.fetch_unless_throttled(limit)
        return [int(number) for number in page.columns.lists().numbers]
