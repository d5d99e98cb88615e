"""The subscriptions of one attempt of a task (enhanced fan-out). They live as long as its read: no
process surely gets the same shard in the next batch.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.reading.event_room import EventRoom
from kinesis_spout.reading.push_or_poll_getter import PushOrPollGetter, SubscriptionSlots

if TYPE_CHECKING:
    from kinesis_spout.reading.shard_getter import KinesisShardGetter
    from spark_job.process_services import ProcessServices
    from state.plan import ShardSlice

# Each has a thread. The other shards are polled.
MAX_SUBSCRIPTIONS = 16
# Beside the memory for pages. An event has a megabyte or two, or more where records are larger.
MAX_EVENT_BYTES = 16 * 1024 * 1024
# A hint by another machine's clock, which may be wrong, is not heeded for longer.
_LONGEST_HINT_S = 60.0


class TaskSubscriptions:
    """Makes the getters of the shards that an attempt may subscribe to. For the attempt's thread.

    `consumer_arn`: the registered consumer of all of them. `max_event_bytes`: what of their events
    may be held that was not handed over yet (`EventRoom`).
    """

    def __init__(
        self,
        consumer_arn: str,
        services: ProcessServices,
        *,
        max_event_bytes: int = MAX_EVENT_BYTES,
    ) -> None:
        self._consumer_arn = consumer_arn
        self._services = services
        self._slots = SubscriptionSlots(MAX_SUBSCRIPTIONS)
        self._room = EventRoom(max_event_bytes)
        self._pushed = threading.Event()

    def getter(self, shard: ShardSlice, polling: KinesisShardGetter) -> PushOrPollGetter:
        """The getter of a shard, which subscribes when the service allows it, and polls else."""
        clock = self._services.clock
        wait_s = ((shard.next_subscribe_ms or 0) - clock.now_ms()) / 1000
        return PushOrPollGetter(
            polling,
            partial(self._services.client.subscribe, self._consumer_arn),
            new_feed=self._services.new_feed,
            on_news=self._pushed.set,
            slots=self._slots,
            room=self._room,
            not_before_s=clock.monotonic_s() + min(max(wait_s, 0.0), _LONGEST_HINT_S),
            clock=clock,
        )

    @property
    def held_bytes(self) -> int:
        """Of events that were received and not handed over."""
        return self._room.held_bytes

    def wait(self, timeout_s: float) -> None:
        """Wait until something was pushed, at most so many seconds."""
        # Cleared after the wait: what comes from now on is seen by the look that follows.
        self._services.wait_for(self._pushed, timeout_s)
        self._pushed.clear()
