"""The subscriptions of a query's tasks (enhanced fan-out): the registered consumer that they use,
and how much came by them.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.reading.subscriptions import SharedConsumer
from kinesis_spout.service.consumers import OwnConsumer
from spark_job.settings import EFO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult

log = logging.getLogger("kinesis_spout")
_START_WAIT_S = 15.0  # a new consumer is CREATING for some seconds
_LOOK_AGAIN_S = 0.5
_ASK_AGAIN_S = 60.0


class QuerySubscriptions:
    """Those of one stream of a query, over the plans that this run has settled; of a stream that is
    polled, none. For the driver's thread.
    """

    def __init__(self, settings: SourceSettings, client: KinesisClient, clock: Clock) -> None:
        name, arn = settings.consumer_name, settings.consumer_arn
        self._label = settings.label
        self._clock = clock
        self._own = (
            OwnConsumer(client, name=name, arn=arn, clock=clock)
            if settings.read_mode == EFO
            else None
        )
        self._shared = SharedConsumer(name or arn or "", option="consumerName")
        self._arn: str | None = None
        self._ask_at_s: float | None = None  # None: it was never asked for
        self._no_consumer: KinesisError | None = None  # why the last answer had none
        self._is_refused = False  # the service has opened none of the last subscriptions
        self._records: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()

    @property
    def are_wanted(self) -> bool:
        """Whether the query is to read by subscription."""
        return self._own is not None

    def consumer_arn(self) -> str | None:
        """The consumer's ARN; None while there is none that is ACTIVE: the tasks poll then.

        Registers it where it is missing and may be. The first call waits up to 15 s until it is
        ACTIVE; later ones ask once a minute, and do not wait. Raises nothing that the service says.
        """
        if self._own is None or self._arn is not None:
            return self._arn
        now_s = self._clock.monotonic_s()
        if self._ask_at_s is not None and now_s < self._ask_at_s:
            return None
        until_s = now_s + (_START_WAIT_S if self._ask_at_s is None else 0.0)
        try:
            self._arn = self._active(self._own, until_s)
        except KinesisError as exc:
            self._ask_at_s = self._clock.monotonic_s() + _ASK_AGAIN_S
            if self._no_consumer is None:
                log.warning(
                    "stream %s is polled, because its enhanced fan-out consumer cannot be used "
                    "(%s). The job tries the consumer again every minute",
                    self._label,
                    exc,
                )
            self._no_consumer = exc
            return None
        self._ask_at_s = self._clock.monotonic_s()
        if self._no_consumer is not None:
            log.warning("stream %s is read by subscription again", self._label)
        self._no_consumer = None
        return self._arn

    def _active(self, own: OwnConsumer, until_s: float) -> str:
        while True:
            try:
                return own.active_arn()
            except KinesisError as exc:
                if not exc.retryable or self._clock.monotonic_s() >= until_s:
                    raise
            self._clock.sleep(_LOOK_AGAIN_S)

    def note(self, ends: Iterable[ShardReadResult]) -> None:
        """Note how the tasks of a settled plan have read."""
        is_missing = False
        for end in ends:
            if end.pushed or end.fallback is not None:
                self._is_refused = end.fallback == Fallback.REFUSED
            self._records["pushed"] += end.pushed
            self._records["polled"] += max(0, end.count - end.pushed)
            if end.fallback is not None:
                self._fallbacks[end.fallback] += 1
            is_missing |= end.fallback == Fallback.MISSING
            # Its own tasks wait for the service's five seconds: plans say when these are over.
            if end.fallback == Fallback.IN_USE:
                self._shared.note(end.shard_id, self._clock.monotonic_s())
        if is_missing and self._own is not None and self._arn is not None:
            # The service did not find the consumer, or the shard, for a task: look again.
            self._own.forget(self._arn)
            self._arn = None

    def why_polled(self) -> KinesisError | None:
        """Why shards are polled that are to be read by subscription; None where none is."""
        if self._no_consumer is not None:
            return self._no_consumer
        if taken := self._shared.conflict(self._clock.monotonic_s()):
            return taken
        if not self._is_refused:
            return None
        return ServiceUnavailableError(
            "Kinesis did not open a subscription (SubscribeToShard)",
            "check that the executors' IAM role or user may call SubscribeToShard on the consumer",
        )

    def report(self) -> dict[str, Any]:
        """For the progress report; empty for a stream that is polled. `fallbacks`: reads of a shard
        whose subscription had failed at their end, by why.
        """
        if not self.are_wanted:
            return {}
        return {
            "pushedRecords": self._records["pushed"],
            "polledRecords": self._records["polled"],
            "fallbacks": dict(sorted(self._fallbacks.items())),
        }
