"""Operations that register, describe and deregister consumers (API reference, each operation)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kinesis_spout.testing.errors import (
    ServiceError,
    in_use,
    invalid_argument,
    limit_exceeded,
    not_found,
)
from kinesis_spout.testing.service import constraints, requests
from kinesis_spout.testing.service.account import Account
from kinesis_spout.testing.service.answers import (
    ConsumerAnswer,
    DescribeStreamConsumerAnswer,
    ListStreamConsumersAnswer,
    RegisterStreamConsumerAnswer,
)
from kinesis_spout.testing.service.tokens import ConsumerListToken, encode, page_token
from kinesis_spout.testing.stream.consumer import Consumer

if TYPE_CHECKING:
    from kinesis_spout.testing.stream.stream import Stream

CONSUMERS_PER_STREAM = 20
CONSUMERS_CREATING = 5
_CONSUMER_ARN = re.compile(
    r"(arn:aws[^:]*:kinesis:[^:]*:[0-9]{12}:stream/[^/]+)/consumer/([a-zA-Z0-9_.-]{1,128}):[0-9]+",
    re.ASCII,
)


class StreamConsumers(Account):
    """Each method takes the operation's request and returns its answer. Raises `ServiceError`."""

    def register_stream_consumer(
        self, request: requests.RegisterStreamConsumer
    ) -> RegisterStreamConsumerAnswer:
        """The answer says CREATING, as the service's, even if the consumer is ACTIVE at once."""
        name = constraints.name("consumerName", request.consumer_name)
        stream = self._stream_of_arn(request.stream_arn)
        now_ms = self.clock.now_ms()
        status = stream.status(now_ms)
        if status in ("CREATING", "DELETING"):
            raise self._not_active(stream, status)
        if name in stream.consumers:
            raise in_use(
                f"Consumer {name} of stream {stream.name} under account {self.settings.account_id} "
                "already exists."
            )
        self._check_consumer_limits(stream, now_ms)
        consumer = Consumer(
            name=name, stream_arn=stream.arn, created_ms=now_ms, phase_ms=self.settings.consumer_ms
        )
        stream.consumers[name] = consumer
        return RegisterStreamConsumerAnswer(_answer(consumer, "CREATING"))

    def describe_stream_consumer(
        self, request: requests.StreamConsumer
    ) -> DescribeStreamConsumerAnswer:
        _, consumer = self._consumer_of(request)
        status = consumer.status(self.clock.now_ms())
        return DescribeStreamConsumerAnswer(
            _answer(consumer, status, stream_arn=consumer.stream_arn)
        )

    def deregister_stream_consumer(self, request: requests.StreamConsumer) -> None:
        """The consumer's subscriptions end with an error."""
        stream, consumer = self._consumer_of(request)
        now_ms = self.clock.now_ms()
        consumer.deregister(now_ms)
        stream.settle(now_ms)

    def list_stream_consumers(
        self, request: requests.ListStreamConsumers
    ) -> ListStreamConsumersAnswer:
        """Consumers in order of their names. The stream's ARN is required with a page token too."""
        stream = self._stream_of_arn(request.stream_arn)
        created_s = request.stream_creation_timestamp_s
        if created_s is not None and stream.created_ms // 1000 != int(created_s):
            raise invalid_argument(
                f"StreamCreationTimestamp belongs to another stream with the name {stream.name}."
            )
        limit = constraints.limit("maxResults", request.max_results, default=100)
        now_ms = self.clock.now_ms()
        after = "" if request.next_token is None else _after(request.next_token, stream, now_ms)
        rest = sorted(name for name in stream.consumers if name > after)
        page = [stream.consumers[name] for name in rest[:limit]]
        token = None
        if len(rest) > len(page):
            token = encode(ConsumerListToken(stream.name, stream.created_ms, now_ms, page[-1].name))
        return ListStreamConsumersAnswer(
            consumers=[_answer(consumer, consumer.status(now_ms)) for consumer in page],
            next_token=token,
        )

    def _consumer_of(self, request: requests.StreamConsumer) -> tuple[Stream, Consumer]:
        """A consumer by its ARN, or by the stream's ARN and its name.

        Raises ResourceNotFoundException.
        """
        if request.consumer_arn is not None:
            return self._consumer_of_arn(request.consumer_arn)
        if request.stream_arn is None or request.consumer_name is None:
            raise invalid_argument(
                "Either ConsumerARN or both StreamARN and ConsumerName must be specified."
            )
        stream = self._stream_of_arn(request.stream_arn)
        consumer = stream.consumers.get(constraints.name("consumerName", request.consumer_name))
        if consumer is None:
            raise _unknown(f"{stream.arn}/consumer/{request.consumer_name}")
        return stream, consumer

    def _consumer_of_arn(self, arn: str | None) -> tuple[Stream, Consumer]:
        text = constraints.needed("consumerARN", arn)
        match = _CONSUMER_ARN.fullmatch(text)
        if match is None:
            raise invalid_argument(f"ConsumerARN {text} is malformed.")
        stream = self._stream_of_arn(match[1])
        consumer = stream.consumers.get(match[2])
        if consumer is None or consumer.arn != text:
            raise _unknown(text)
        return stream, consumer

    def _stream_of_arn(self, arn: str | None) -> Stream:
        return self._stream_of(requests.Request(stream_arn=constraints.needed("streamARN", arn)))

    def _check_consumer_limits(self, stream: Stream, now_ms: int) -> None:
        """Refuse one consumer too many, whatever the settings say.

        The maximum is part of what the operation means; it is not a rate.
        """
        creating = sum(
            consumer.status(now_ms) == "CREATING" for consumer in stream.consumers.values()
        )
        if len(stream.consumers) >= CONSUMERS_PER_STREAM or creating >= CONSUMERS_CREATING:
            raise limit_exceeded(
                f"Stream {stream.name} under account {self.settings.account_id} has "
                f"{len(stream.consumers)} consumers "
                f"(at most {CONSUMERS_PER_STREAM}), of which {creating} are CREATING (at most "
                f"{CONSUMERS_CREATING})."
            )


def _answer(consumer: Consumer, status: str, *, stream_arn: str | None = None) -> ConsumerAnswer:
    return ConsumerAnswer(
        consumer_name=consumer.name,
        consumer_arn=consumer.arn,
        consumer_status=status,
        consumer_creation_timestamp=consumer.created_ms / 1000,
        stream_arn=stream_arn,
    )


def _after(text: str, stream: Stream, now_ms: int) -> str:
    token = page_token(text, ConsumerListToken, now_ms)
    if (token.stream, token.created_ms) != (stream.name, stream.created_ms):
        raise invalid_argument("NextToken is invalid.")
    return token.after_name


def _unknown(arn: str) -> ServiceError:
    return not_found(f"Consumer {arn} not found.")
