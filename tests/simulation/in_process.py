"""The product's client in this process, without sockets and threads: its connection answers from a
FakeKinesis, and subscriptions have the product's own framing and decoding.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
import msgspec

from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.subscription import SILENT_S
from kinesis_spout.service.wire import ANSWERED_S, EVENTS, RAW_BODY
from kinesis_spout.testing import FakeKinesisProtocol, TransportFaultError
from kinesis_spout.testing.http import event_stream

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from random import Random

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.subscriptions import Subscribe
    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent
    from kinesis_spout.testing import FakeKinesis
    from kinesis_spout.testing.http.protocol import Answer
    from kinesis_spout.testing.service.subscribe_to_shard import Subscription
    from spark_job.settings import SourceSettings


class Connection:
    """The body of one answer to SubscribeToShard. It breaks by `cut`, and falls silent by
    `silence`, as a connection whose peer is gone.
    """

    def __init__(
        self, subscription: Subscription, alter: Callable[[Any], object] | None, clock: Clock
    ) -> None:
        self._subscription = subscription
        self._alter = alter
        self._clock = clock
        self._first: list[bytes] = [event_stream.initial_response()]
        self._is_cut = False
        self._breaks_after: tuple[int, Callable[[], None]] | None = None
        self._silent_since_s: float | None = None
        self.is_closed = False

    def stream(self, _bytes: int) -> Iterator[bytes]:
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._is_cut:
            raise ConnectionResetError("cut by the test")
        if self._silent_since_s is not None:
            if self._clock.monotonic_s() - self._silent_since_s >= SILENT_S:
                raise TimeoutError("nothing came")
            raise BlockingIOError
        if self._first:
            return self._first.pop()
        if self._breaks_after is not None and self._breaks_after[0] <= 0:
            self._breaks_after[1]()
            self._breaks_after = None
            return next(self)
        message = event_stream.next_message(self._subscription, self._alter)
        if message is not None:
            if self._breaks_after is not None:
                self._breaks_after = self._breaks_after[0] - 1, self._breaks_after[1]
            return message
        if self._subscription.ended:
            raise StopIteration
        raise BlockingIOError

    def cut(self) -> None:
        self._is_cut = True

    def silence(self) -> None:
        self._silent_since_s = self._clock.monotonic_s()

    def break_after(self, events: int, *, silently: bool) -> None:
        """It breaks, or falls silent, after so many events."""
        self._breaks_after = events, self.silence if silently else self.cut

    def close(self) -> None:
        self.is_closed = True


class InlineFeed:
    """A `SubscriptionFeed` that subscribes and reads when somebody looks."""

    def __init__(self, _shard_id: str, subscribe: Subscribe, _on_news: Callable[[], None]) -> None:
        self._subscribe = subscribe
        self._subscription: ShardSubscription | None = None
        self._events: deque[SubscriptionEvent] = deque()
        self._has_ended = False
        self.error: Exception | None = None

    @property
    def has_news(self) -> bool:
        self._look()
        return bool(self._events) or self._has_ended

    @property
    def is_over(self) -> bool:
        self._look()
        return self._has_ended and not self._events

    def take(self) -> SubscriptionEvent | None:
        self._look()
        return self._events.popleft() if self._events else None

    def close(self) -> None:
        self._has_ended = True
        self._events.clear()
        if self._subscription is not None:
            self._subscription.release()

    def _look(self) -> None:
        if self._has_ended or self._events:
            return
        try:
            if self._subscription is None:
                self._subscription = self._subscribe()
            event = self._subscription.next_event()
        except BlockingIOError:
            return
        except Exception as exc:  # noqa: BLE001  # as the product's feed: the getter gets it
            self.error, event = exc, None
        if event is None:
            self._has_ended = True
        else:
            self._events.append(event)


def wait_in(clock: Clock) -> Callable[[threading.Event, float], object]:
    """The wait for pushes, in simulated time: whoever looks afterwards sees what has come."""
    return lambda _pushed, timeout_s: clock.sleep(timeout_s)


RETRY_FOR_S = 60.0


class Service:
    """A botocore client for `KinesisClient`: the operations that the source calls. `reads`: how
    often records were asked for. `subscriptions`: how often a shard was subscribed to.
    `breaks`: after how many events the next subscriptions break, and whether they fall silent.
    `answer_s`: how long an answer takes, for which the clock moves.
    """

    def __init__(self, fake: FakeKinesis) -> None:
        self.reads = 0
        self.subscriptions = 0
        self.answer_s = 0.0
        self.connections: list[Connection] = []
        self.breaks: list[tuple[int, bool]] = []
        self._protocol = FakeKinesisProtocol(fake)
        self._clock = fake.clock

    def describe_stream_summary(self, **arguments: Any) -> dict[str, Any]:
        answer = self._parsed("DescribeStreamSummary", arguments)
        summary = answer["StreamDescriptionSummary"]
        summary["StreamCreationTimestamp"] = datetime.fromtimestamp(
            summary["StreamCreationTimestamp"], UTC
        )
        return answer

    def list_shards(self, **arguments: Any) -> dict[str, Any]:
        return self._parsed("ListShards", arguments)

    def get_shard_iterator(self, **arguments: Any) -> dict[str, Any]:
        if (moment := arguments.get("Timestamp")) is not None:
            arguments["Timestamp"] = moment.timestamp()
        return self._parsed("GetShardIterator", arguments)

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        self.reads += 1
        body = self._body("GetRecords", arguments)
        return self._told({RAW_BODY: body, ANSWERED_S: self._clock.monotonic_s()})

    def describe_stream_consumer(self, **arguments: Any) -> dict[str, Any]:
        return self._consumer("DescribeStreamConsumer", "ConsumerDescription", arguments)

    def register_stream_consumer(self, **arguments: Any) -> dict[str, Any]:
        return self._consumer("RegisterStreamConsumer", "Consumer", arguments)

    def subscribe_to_shard(self, **arguments: Any) -> dict[str, Any]:
        """Its events are in `connections`, the newest last."""
        self.subscriptions += 1
        start = arguments["StartingPosition"]
        if (moment := start.get("Timestamp")) is not None:
            start["Timestamp"] = moment.timestamp()
        answer = self._answer("SubscribeToShard", arguments)
        assert answer.subscription is not None
        connection = Connection(answer.subscription, answer.alter, self._clock)
        self.connections = [one for one in self.connections if not one.is_closed]
        self.connections.append(connection)
        if self.breaks:
            after, silently = self.breaks.pop()
            connection.break_after(after, silently=silently)
        return self._told({EVENTS: connection, ANSWERED_S: self._clock.monotonic_s()})

    def _consumer(self, operation: str, member: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self._parsed(operation, arguments)
        created_s = answer[member]["ConsumerCreationTimestamp"]
        answer[member]["ConsumerCreationTimestamp"] = datetime.fromtimestamp(created_s, UTC)
        return answer

    def _parsed(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._told(msgspec.json.decode(self._body(operation, arguments)))

    def _told(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {
            "ResponseMetadata": {"HTTPHeaders": {"date": _date(self._clock.now_ms() // 1000)}}
        }

    def _body(self, operation: str, arguments: dict[str, Any]) -> bytes:
        return self._answer(operation, arguments).body

    def _answer(self, operation: str, arguments: dict[str, Any]) -> Answer:
        self._clock.sleep(self.answer_s)
        try:
            answer = self._protocol.answer(
                f"Kinesis_20131202.{operation}", msgspec.json.encode(arguments), authorization=None
            )
        except TransportFaultError as exc:
            raise vendor.ConnectionClosedError(endpoint_url="in this process") from exc
        if answer.status < 300:
            return answer
        told = msgspec.json.decode(answer.body)
        response: Any = {
            "Error": {"Code": told["__type"], "Message": told["message"]},
            "ResponseMetadata": {"HTTPStatusCode": answer.status},
        }
        raise vendor.ClientError(response, operation)


@lru_cache(maxsize=64)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


class InProcessClient(KinesisClient):
    """The product's client, connected to a fake in this process."""

    def __init__(
        self,
        service: Service,
        settings: SourceSettings,
        clock: Clock,
        random: Random,
        *,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        super().__init__(
            settings.aws, settings.stream, clock=clock, random=random, retry_for_s=retry_for_s
        )
        self._service = service

    def _vendor_client(self) -> Service:
        return self._service

    def close(self) -> None:
        """Nothing to close."""


class InlinePool(Executor):
    """Runs each call at once, in the thread of the caller."""

    def __init__(self, most: int = 1, name: str = "") -> None:
        del most, name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as exc:  # noqa: BLE001  # as a pool does: the caller of result() gets it
            future.set_exception(exc)
        return future
