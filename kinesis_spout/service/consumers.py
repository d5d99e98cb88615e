"""The registered consumers of a stream, whom the service pushes records to (enhanced fan-out)."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import (
    ConsumerNotFoundError,
    KinesisError,
    ServiceUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
)
from kinesis_spout.service.shard_info import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.subscription import EventShare, ShardSubscription
    from state.position import Position

ACTIVE = "ACTIVE"
# All shards of a process want the consumer at the same time: one of them asks for it, at most so
# often.
_ASK_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredConsumer:
    """One consumer of a stream. `created_ms`: since 1970. `status`: CREATING, ACTIVE or
    DELETING.
    """

    name: str
    arn: str
    status: str
    created_ms: int

    @classmethod
    def of(cls, described: dict[str, Any]) -> RegisteredConsumer:
        """Raises KeyError for an incomplete description."""
        return cls(
            name=described["ConsumerName"],
            arn=described["ConsumerARN"],
            status=described["ConsumerStatus"],
            created_ms=milliseconds(described["ConsumerCreationTimestamp"]),
        )


class ConsumerRegistry:
    """The consumers of one stream. Methods block on the network, may be called from many threads,
    and raise `KinesisError`. Without `retry` a method makes one attempt of each call.
    """

    def __init__(self, client: KinesisClient, *, retry: bool = True) -> None:
        self._client = client
        self._retry = retry
        self._stream_arn = client.stream.arn

    def list(self) -> tuple[RegisteredConsumer, ...]:
        """All of them, by name."""
        found: dict[str, RegisteredConsumer] = {}
        arguments = {"StreamARN": self._arn_of_stream()}

        def token_after(answer: dict[str, Any]) -> str | None:
            found.update((one.name, one) for one in map(RegisteredConsumer.of, answer["Consumers"]))
            return answer.get("NextToken") or None

        while token := self._client.call(
            "list_stream_consumers", arguments, token_after, retry=self._retry
        ):
            arguments["NextToken"] = token
        return tuple(found[name] for name in sorted(found))

    def find(self, *, name: str | None = None, arn: str | None = None) -> RegisteredConsumer:
        """The consumer of that ARN, or of that name. Raises `ConsumerNotFoundError`."""
        with self._named(arn or str(name)):
            return self._client.call(
                "describe_stream_consumer",
                {"StreamARN": self._arn_of_stream(), "ConsumerName": name}
                if arn is None
                else {"ConsumerARN": arn},
                lambda answer: RegisteredConsumer.of(answer["ConsumerDescription"]),
                retry=self._retry,
            )

    def register(self, name: str) -> RegisteredConsumer:
        """Register a consumer. It is CREATING for a while."""
        return self._client.call(
            "register_stream_consumer",
            {"StreamARN": self._arn_of_stream(), "ConsumerName": name},
            lambda answer: RegisteredConsumer.of(answer["Consumer"]),
            retry=self._retry,
        )

    def deregister(self, arn: str) -> None:
        """Remove a consumer. Its subscriptions end. Raises `ConsumerNotFoundError`."""
        arguments = {"ConsumerARN": arn}
        with self._named(arn):
            self._client.call(
                "deregister_stream_consumer", arguments, lambda _answer: None, retry=self._retry
            )

    @contextmanager
    def _named(self, consumer: str) -> Iterator[None]:
        """The service has one code for a missing stream and for a missing consumer."""
        try:
            yield
        except StreamNotFoundError as exc:
            raise ConsumerNotFoundError(
                f"{self._client.where} has no registered consumer {consumer}",
                "list the stream's registered consumers with kinesis-spout consumers list",
            ) from exc

    def _arn_of_stream(self) -> str:
        if self._stream_arn is None:
            self._stream_arn = self._client.describe(retry=self._retry).arn
        return self._stream_arn


class OwnConsumer:
    """The consumer with which a process subscribes: by its ARN, or by its name, and registered when
    it is missing. Any thread may use it.
    """

    def __init__(
        self, client: KinesisClient, *, name: str | None, arn: str | None, clock: Clock
    ) -> None:
        self._client = client
        self._registry = ConsumerRegistry(client, retry=False)
        self._name = name
        self._given_arn = arn
        self._clock = clock
        self._lock = threading.Lock()
        self._arn: str | None = None
        self._refused: KinesisError | None = None
        self._ask_again_at_s = float("-inf")

    def subscribe(
        self, shard_id: str, position: Position, share: EventShare | None = None
    ) -> ShardSubscription:
        """Subscribe to a shard. One attempt; blocks on the network. Raises `KinesisError`, among
        them `ConsumerNotFoundError`, and `ShardNotFoundError` for a shard that is gone.
        """
        arn = self.active_arn()
        try:
            return self._client.subscribe(arn, shard_id, position, share)
        except ShardNotFoundError:
            # The service has one code for a missing shard and for a missing consumer.
            self.forget(arn)
            self.active_arn()
            raise

    def active_arn(self) -> str:
        """The consumer's ARN, once it is ACTIVE. Registers it where it is missing and has a name.
        One attempt; blocks on the network. Raises `KinesisError`, which is retryable while it is
        being created.
        """
        with self._lock:
            if self._arn is not None:
                return self._arn
            now_s = self._clock.monotonic_s()
            if self._refused is not None and now_s < self._ask_again_at_s:
                raise self._refused
            try:
                self._arn = self._find_or_register().arn
            except KinesisError as exc:
                self._refused = exc
                self._ask_again_at_s = now_s + _ASK_AGAIN_S
                raise
            self._refused = None
            return self._arn

    def _find_or_register(self) -> RegisteredConsumer:
        try:
            found = self._registry.find(name=self._name, arn=self._given_arn)
        except ConsumerNotFoundError:
            if self._given_arn is not None or self._name is None:
                raise
            self._registry.register(self._name)
            found = self._registry.find(name=self._name)
        if found.status != ACTIVE:
            raise ServiceUnavailableError(
                f"consumer {found.name} of {self._client.where} is {found.status}. The job or "
                "spout waits until the consumer is ACTIVE"
            )
        return found

    def forget(self, arn: str | None = None) -> None:
        """Look for the consumer again: this one (None: the known one) may be gone."""
        with self._lock:
            if arn in (None, self._arn):
                self._arn = None
