"""SubscribeToShard: subscriptions of consumers to shards (API reference, `SubscribeToShard`).

A subscription lives for five minutes, or until the shard's end. The next one for the same consumer
and shard replaces it. Events come when there are records, and every five seconds when there are
none, so that the reader knows how far it has got. Where the service searches storage without
records, they come more often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing.errors import ServiceError, in_use, not_found
from kinesis_spout.testing.service import constraints
from kinesis_spout.testing.service.answers import SubscribeToShardEvent
from kinesis_spout.testing.service.read_answers import child_answers, read, record_answers
from kinesis_spout.testing.service.starting_position import POSITION_TYPES, position_of
from kinesis_spout.testing.service.stream_consumers import StreamConsumers
from kinesis_spout.testing.stream.shard_limits import READ_BYTES_PER_S

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock
    from kinesis_spout.testing.service import requests
    from kinesis_spout.testing.service.account import Account
    from kinesis_spout.testing.settings import FakeKinesisSettings
    from kinesis_spout.testing.stream.consumer import Consumer
    from kinesis_spout.testing.stream.shard import Shard
    from kinesis_spout.testing.stream.stream import Stream

LIFETIME_MS = 300_000
QUIET_MS = 5_000
RESUBSCRIBE_MS = 5_000
SEARCH_MS = 200
_EVENT_BYTES = 1024 * 1024  # at 2 MiB a second, an event every half second


class Subscription:
    """One subscription, polled for its events by the component that delivers them.

    It pushes nothing by itself. Any thread may use it. `is_replaced`: another one has taken over.
    """

    def __init__(
        self, account: Account, stream: Stream, consumer: Consumer, *, shard_id: str, position: int
    ) -> None:
        self._account = account
        self._stream_name = stream.name
        self._created_ms = stream.created_ms
        self._consumer = consumer
        self._shard_id = shard_id
        self._position = position
        self.started_ms = account.clock.now_ms()
        self._now_ms = self._next_at_ms = self.started_ms
        self._quiet_until_ms = self.started_ms
        self._empty_events = 0  # of a run of empty pages
        self._ended = False
        self.is_replaced = False

    @property
    def ended(self) -> bool:
        """Whether there are no more events."""
        return self._ended

    def next_event(self) -> SubscribeToShardEvent | None:
        """The event to be delivered now; None when there is none yet, or no more.

        Raises `ServiceError` once, when the subscription ends because it was replaced, or because
        its stream, shard or consumer is gone.
        """
        with self._account.lock:
            if self._ended:
                return None
            now_ms = self._account.clock.now_ms()
            try:
                stream, shard = self._still_there(now_ms)
            except ServiceError:
                self._ended = True
                raise
            if now_ms - self.started_ms >= LIFETIME_MS:
                self._ended = True
                return None
            if now_ms < self._now_ms:  # a test has set the clock back
                self._next_at_ms = self._quiet_until_ms = now_ms
            self._now_ms = now_ms
            return None if now_ms < self._next_at_ms else self._event(stream, shard, now_ms)

    def _still_there(self, now_ms: int) -> tuple[Stream, Shard]:
        if self.is_replaced:
            raise in_use(
                f"Another active subscription exists for this consumer: {self._consumer.arn} on "
                f"shard {self._shard_id}."
            )
        stream = self._account.stream(self._stream_name)
        if stream.created_ms != self._created_ms or stream.status(now_ms) == "DELETING":
            raise not_found(
                f"Stream {self._stream_name} of consumer {self._consumer.arn} not found."
            )
        if self._consumer.status(now_ms) == "DELETING":
            raise not_found(f"Consumer {self._consumer.arn} not found.")
        return stream, stream.shard(self._shard_id)

    def _event(self, stream: Stream, shard: Shard, now_ms: int) -> SubscribeToShardEvent | None:
        settings = self._account.settings
        found = read(
            shard,
            self._position,
            self._empty_events,
            now_ms=now_ms,
            max_records=settings.event_records,
            max_bytes=_EVENT_BYTES,
            end_with_last_records=settings.end_with_last_records,
        )
        self._ended = found.ended
        is_searching = found.empty_pages > self._empty_events
        is_quiet = not (found.records or found.ended or is_searching)
        if is_quiet and now_ms < self._quiet_until_ms:
            return None
        self._position, self._empty_events = found.position, found.empty_pages
        if is_searching:
            self._next_at_ms = now_ms + SEARCH_MS
        else:
            self._quiet_until_ms = now_ms + QUIET_MS
            if settings.limits:
                self._next_at_ms = now_ms + found.size_bytes * 1_000 // READ_BYTES_PER_S
        last = None if found.ended else str(shard.last_before(found.position))
        return SubscribeToShardEvent(
            records=record_answers(found.records),
            millis_behind_latest=found.behind_ms,
            continuation_sequence_number=last,
            child_shards=child_answers(stream, shard) if found.ended else None,
        )


class Subscriptions(StreamConsumers):
    """A consumer has at most one subscription per shard.

    A new one is refused within 5 s of the one before, and replaces it after that.
    """

    def __init__(
        self, *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self._subscriptions: dict[tuple[Consumer, str], Subscription] = {}

    def subscribe_to_shard(self, request: requests.SubscribeToShard) -> Subscription:
        """The new subscription, to be polled for its events. Raises `ServiceError`."""
        shard_id = constraints.name("shardId", request.shard_id)
        starting = constraints.needed("startingPosition", request.starting_position)
        constraints.one_of("startingPosition.type", starting.type, POSITION_TYPES)
        stream, consumer = self._consumer_of_arn(request.consumer_arn)
        now_ms = self.clock.now_ms()
        status = consumer.status(now_ms)
        if status != "ACTIVE":
            raise in_use(f"Consumer {consumer.arn} is not ACTIVE, but {status}.")
        shard = stream.shard(shard_id)
        before = self._subscriptions.get((consumer, shard_id))
        if before is not None and 0 <= now_ms - before.started_ms < RESUBSCRIBE_MS:
            raise in_use(
                f"Consumer {consumer.arn} subscribed to shard {shard_id} less than "
                f"{RESUBSCRIBE_MS // 1000} seconds ago."
            )
        position = position_of(starting, stream, shard, now_ms)
        if before is not None:
            before.is_replaced = True
        subscription = Subscription(self, stream, consumer, shard_id=shard_id, position=position)
        self._forget_old(now_ms)
        self._subscriptions[consumer, shard_id] = subscription
        return subscription

    def _forget_old(self, now_ms: int) -> None:
        self._subscriptions = {
            place: subscription
            for place, subscription in self._subscriptions.items()
            if now_ms - subscription.started_ms < LIFETIME_MS
        }
