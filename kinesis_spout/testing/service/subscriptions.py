"""SubscribeToShard: how a consumer comes to its subscription (API reference,
`SubscribeToShard`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing.errors import in_use
from kinesis_spout.testing.service import constraints
from kinesis_spout.testing.service.positions import POSITION_TYPES, Start, position_of
from kinesis_spout.testing.service.stream_consumers import StreamConsumers
from kinesis_spout.testing.service.subscription import LIFETIME_MS, Subscription

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock
    from kinesis_spout.testing.service import requests
    from kinesis_spout.testing.settings import FakeKinesisSettings
    from kinesis_spout.testing.stream.consumer import Consumer

RESUBSCRIBE_MS = 5_000


class Subscriptions(StreamConsumers):
    """A consumer has one subscription a shard. A new one is refused within 5 s of the one before,
    and takes over after that.
    """

    def __init__(
        self, *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self._subscriptions: dict[tuple[Consumer, str], Subscription] = {}

    def subscribe_to_shard(self, request: requests.SubscribeToShard) -> Subscription:
        """The subscription, from which its events are fetched. Errors are `ServiceError`."""
        shard_id = constraints.name("shardId", request.shard_id)
        starting = constraints.needed("startingPosition", request.starting_position)
        kind = constraints.one_of("startingPosition.type", starting.type, POSITION_TYPES)
        stream, consumer = self._consumer_of_arn(request.consumer_arn)
        now_ms = self.clock.now_ms()
        status = consumer.status(now_ms)
        if status != "ACTIVE":
            raise in_use(f"Consumer {consumer.arn} is not ACTIVE, but {status}.")
        shard = stream.shard(shard_id)
        before = self._subscriptions.get((consumer, shard_id))
        if before is not None and now_ms - before.started_ms < RESUBSCRIBE_MS:
            raise in_use(
                f"Consumer {consumer.arn} subscribed to shard {shard_id} less than "
                f"{RESUBSCRIBE_MS // 1000} seconds ago."
            )
        position = position_of(
            Start(kind, starting.sequence_number, starting.timestamp_s), stream, shard, now_ms
        )
        if before is not None:
            before.take_over()
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
