"""Checks of enhanced fan-out: the consumer that a job is to read with, and the actions on it.

Nothing is registered, and no shard is subscribed to: that would take it from the process that reads
with the consumer now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.finding import Finding, failed, not_tried, ok, warning
from kinesis_spout.errors import AccessDeniedError, ConsumerNotFoundError, ThrottledError
from kinesis_spout.service.consumers import ACTIVE, ConsumerRegistry, RegisteredConsumer
from kinesis_spout.service.permissions import action_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.service.client import KinesisClient

OPERATIONS = frozenset(
    {
        "describe_stream_consumer",
        "list_stream_consumers",
        "register_stream_consumer",
        "subscribe_to_shard",
    }
)
DESCRIBE = action_of("describe_stream_consumer")
LIST = action_of("list_stream_consumers")
REGISTER = action_of("register_stream_consumer")
SUBSCRIBE = action_of("subscribe_to_shard")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedConsumer:
    """The consumer that a job is to read with: by its name, or by its ARN."""

    name: str | None = None
    arn: str | None = None

    def __str__(self) -> str:
        return str(self.name or self.arn)


@dataclass(slots=True)
class FanOutCheckup:
    """The checks of one consumer. `client` is not closed here."""

    client: KinesisClient
    wanted: WantedConsumer
    _found: RegisteredConsumer | None = field(init=False, default=None)

    def checks(self, needs: Sequence[str]) -> list[Check]:
        return [
            Check(name=LIST, look=self.list_consumers, needs=needs),
            Check(name=DESCRIBE, look=self.describe_consumer, needs=needs),
            Check(name=REGISTER, look=self.look_at_registering, needs=[DESCRIBE]),
            Check(name=SUBSCRIBE, look=self.look_at_subscribing, needs=[DESCRIBE]),
        ]

    def list_consumers(self) -> Iterator[Finding]:
        """Only `kinesis-spout consumers` needs it, so a refusal is no failure."""
        try:
            count = len(self._registry().list())
        except ThrottledError as exc:
            yield _throttled(LIST, exc)
        except AccessDeniedError:
            yield warning(
                LIST,
                f"the credentials may not call it; a reader does not need it, kinesis-spout "
                f"consumers does: allow {LIST} there",
            )
        else:
            yield ok(LIST, f"allowed; {count} consumer{'' if count == 1 else 's'} registered")

    def describe_consumer(self) -> Iterator[Finding]:
        try:
            self._found = self._registry().find(name=self.wanted.name, arn=self.wanted.arn)
        except ConsumerNotFoundError:
            yield self._missing()
        except ThrottledError as exc:
            yield _throttled(DESCRIBE, exc)
        except AccessDeniedError:
            yield failed(
                DESCRIBE,
                f"the credentials may not call it on {self.wanted}; allow {DESCRIBE} on the "
                "stream's consumers in their IAM policy; until then shards are polled",
            )
        else:
            yield self._standing(self._found)

    def look_at_registering(self) -> Iterator[Finding]:
        """Trying it would register a consumer, which is billed."""
        if self._found is not None:
            yield ok(REGISTER, f"not needed: {self._found.name} is registered")
        else:
            yield not_tried(
                REGISTER,
                f"it would register {self.wanted}; allow {REGISTER} on the stream, or register the "
                "consumer once and give its ARN",
            )

    def look_at_subscribing(self) -> Iterator[Finding]:
        if self._found is None:
            yield not_tried(
                SUBSCRIBE,
                f"it cannot be tried without a consumer, and {self.wanted} is not registered; "
                f"allow {SUBSCRIBE} on the stream's consumers",
            )
        else:
            yield not_tried(
                SUBSCRIBE,
                f"it would take a shard from the process that reads with {self._found.name}; allow "
                f"{SUBSCRIBE} on the stream's consumers, and see that the spout's metric "
                "kinesis_spout_polled_shards stays 0",
            )

    def _registry(self) -> ConsumerRegistry:
        return ConsumerRegistry(self.client)

    def _missing(self) -> Finding:
        if self.wanted.arn is None:
            return ok(DESCRIBE, f"allowed; there is no consumer {self.wanted} yet")
        return failed(
            DESCRIBE,
            f"there is no consumer {self.wanted}; kinesis-spout consumers list shows those that "
            "there are; a name in place of an ARN is registered by the spout",
        )

    def _standing(self, found: RegisteredConsumer) -> Finding:
        if found.status == ACTIVE:
            return ok(DESCRIBE, f"allowed; consumer {found.name} is ACTIVE")
        return warning(
            DESCRIBE,
            f"allowed; consumer {found.name} is {found.status}; shards are polled until it is "
            "ACTIVE: try again in a minute",
        )


def _throttled(action: str, exc: KinesisError) -> Finding:
    return warning(action, f"allowed, but throttled: {exc}")
