"""The registered consumer with which the tasks of a query subscribe (enhanced fan-out)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.service.consumers import OwnConsumer
from spark_job.settings import EFO

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from spark_job.settings import SourceSettings

log = logging.getLogger("kinesis_spout")
_START_WAIT_S = 15.0  # a new consumer is CREATING for some seconds
_LOOK_AGAIN_S = 0.5
_ASK_AGAIN_S = 60.0


class QueryConsumer:
    """The consumer of one stream of a query; of one that polls, none. For the driver's thread."""

    def __init__(self, settings: SourceSettings, client: KinesisClient, clock: Clock) -> None:
        self._label = settings.label
        self._clock = clock
        self._own = (
            OwnConsumer(client, name=settings.consumer_name, arn=settings.consumer_arn, clock=clock)
            if settings.read_mode == EFO
            else None
        )
        self._arn: str | None = None
        self._ask_at_s: float | None = None  # None: it was never asked for
        self._refusal: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why the stream is polled, as the last answer has said; None where it is not for want of a
        consumer.
        """
        return self._refusal

    @property
    def is_wanted(self) -> bool:
        """Whether the query is to read by subscription."""
        return self._own is not None

    def arn(self) -> str | None:
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
            if self._refusal is None:
                log.warning(
                    "stream %s is polled, as it cannot be subscribed to (%s); the consumer is "
                    "asked for again every minute",
                    self._label,
                    exc,
                )
            self._refusal = str(exc)
            return None
        self._ask_at_s = self._clock.monotonic_s()
        if self._refusal is not None:
            log.warning("stream %s is read by subscription again", self._label)
        self._refusal = None
        return self._arn

    def forget(self) -> None:
        """A task was told that the consumer, or its shard, is not there: look again."""
        if self._own is not None and self._arn is not None:
            self._own.forget(self._arn)
            self._arn = None

    def _active(self, own: OwnConsumer, until_s: float) -> str:
        while True:
            try:
                return own.active_arn()
            except KinesisError as exc:
                if not exc.retryable or self._clock.monotonic_s() >= until_s:
                    raise
            self._clock.sleep(_LOOK_AGAIN_S)
