"""SubscribeToShard: one subscription of a consumer to a shard, and the events that it pushes.

botocore frames the events, and parses none of them: its parser takes as long for an event as for a
page of GetRecords (`benchmarks/decode.py`). The payloads are decoded as pages are.

A subscription lives for five minutes (API reference of SubscribeToShard). The service pushes an
event at least every five seconds or so, also when there are no records. A connection that is silent
for longer than `SILENT_S` is half open, and counts as broken.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import urllib3.exceptions
from botocore.eventstream import EventStreamBuffer, ParserError

from kinesis_spout.errors import MalformedResponseError, ServiceUnavailableError
from kinesis_spout.service.get_records_decoder import EVENT, decode_get_records
from kinesis_spout.service.native_decoder import decode_natively

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.eventstream import EventStreamMessage

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.get_records_decoder import DecodedPage

SILENT_S = 15.0
_LIFETIME_S = 300.0
_CHUNK_BYTES = 1024 * 1024
# A receive that waited for so long began with an empty connection.
_QUIET_S = 1.0
_READING_FAULTS = (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """One event.

    - `wire_bytes`: its size as it came.
    - `page`: its `service_time_ms` is a time at which the event had not been made yet, or just
      then: what it says of the tip is true of that time.
    - `latest_ms`: a time by the same clock at which it had been made: what was not in it then had
      not expired later than that. None if unknown.
    """

    page: DecodedPage
    latest_ms: int | None = None
    wire_bytes: int = 0


class EventByteBudget:
    """The bytes of events that all subscriptions of a reader may hold. Any thread.

    An event is charged while its bytes come, and until it was handed over. While there is no room,
    a subscription receives nothing more, and the service waits. Two continue nevertheless, so that
    nobody waits for ever: the first that asks, for one event, until that was handed over; and one
    whose event somebody waits for, as what fills the budget may be handed over only after that.

    So what is held has a bound: the budget, one receive of each subscription, and two events.
    """

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self.changed = threading.Condition()
        # Both with the lock of `changed`. `first`: the share that continues without room.
        self.held_bytes = 0
        self.first: EventShare | None = None

    def share(self) -> EventShare:
        """The share of one subscription, to be closed with it."""
        return EventShare(self)


class EventShare:
    """What one subscription holds of an `EventByteBudget`. Any thread; only `wait` blocks."""

    def __init__(self, budget: EventByteBudget) -> None:
        self._budget = budget
        self._changed = budget.changed
        self._bytes = 0
        self._is_closed = False
        self._is_demanded = False
        self._has_event = False

    def wait(self) -> None:
        """Wait until more may be received, or this is closed."""
        with self._changed:
            self._changed.wait_for(self._may_receive)

    def charge(self, count: int) -> None:
        """So many bytes were received."""
        with self._changed:
            if not self._is_closed:
                self._add(count)

    def release(self, count: int) -> None:
        """An event of so many bytes is not held any more."""
        with self._changed:
            self._has_event = False
            self._give_way()
            self._add(-min(count, self._bytes))

    def on_event(self) -> None:
        """An event is complete: this subscription continues when there is room again."""
        with self._changed:
            self._is_demanded = False
            self._has_event = True

    def demand(self) -> None:
        """Somebody waits for the next event of this subscription."""
        with self._changed:
            self._is_demanded = True
            self._changed.notify_all()

    def close(self, *, kept_bytes: int = sys.maxsize) -> None:
        """Nothing more is received, and at most `kept_bytes` of what was received are still held,
        to be released.
        """
        with self._changed:
            self._is_closed = True
            self._give_way()
            self._add(-max(0, self._bytes - kept_bytes))

    # private, with the lock
    def _may_receive(self) -> bool:
        budget = self._budget
        if self._is_closed or self._is_demanded or budget.held_bytes < budget.max_bytes:
            return True
        if self._has_event:
            return False
        budget.first = budget.first or self
        return budget.first is self

    def _add(self, count: int) -> None:
        self._bytes += count
        self._budget.held_bytes += count
        self._changed.notify_all()

    def _give_way(self) -> None:
        if self._budget.first is self:
            self._budget.first = None


class ShardSubscription:
    """An open subscription: `raw` is the body of an answer, which was not read yet and whose head
    came at `answered_s` (monotonic). One thread reads it; any other thread may close it.

    `refused` translates an exception event, from its code and its message, and raises.
    `service_time_ms`: the service's time when it answered. `where`: for messages. `share`: of the
    room for what is received; without one it receives without a bound.
    """

    def __init__(
        self,
        raw: Any,
        *,
        answered_s: float,
        where: str,
        service_time_ms: int | None,
        refused: Callable[[str, str], NoReturn],
        clock: Clock,
        share: EventShare | None = None,
    ) -> None:
        self._raw = raw
        self._share = share or EventByteBudget().share()
        self._where = where
        self._answered_s = self._empty_at_s = self._received_s = answered_s
        self._service_time_ms = service_time_ms
        self._refused = refused
        self._clock = clock
        self._messages = EventStreamBuffer()
        self._chunks: Iterator[bytes] = iter(raw.stream(_CHUNK_BYTES))
        self._is_closed = False
        # Of a body without a socket (a test's), nothing but a read tells that it is broken.
        self._socket = _socket_of(raw)
        if self._socket is not None:
            self._socket.settimeout(SILENT_S)

    def next_event(self) -> SubscriptionEvent | None:
        """The next event; None when the subscription is over, or closed. Blocks for `SILENT_S` at
        most, and before that while there is no room.

        Raises `KinesisError`: what an exception event means, `ServiceUnavailableError` for a broken
        connection, `MalformedResponseError`. The subscription is over then.
        """
        while not self._is_closed:
            try:
                message = next(self._messages, None)
            except (ParserError, struct.error) as exc:
                raise MalformedResponseError(
                    f"an event of {self._where} cannot be read ({exc}), so the job or spout "
                    "subscribes again"
                ) from exc
            if message is not None:
                event = self._event_of(message)
                self._share.on_event()
                if event is not None:
                    return event
                self._share.release(message.prelude.total_length)
            elif not self._receive():
                return None
        return None

    def close(self) -> None:
        """End it. A read that is waiting ends at once. Never blocks."""
        self._is_closed = True
        self._share.close()
        if self._socket is not None:
            with suppress(OSError):  # the peer may have been faster
                # Not by the method of a TLS socket, which drops what the reading thread is using.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def release(self) -> None:
        """Give the connection up. Only for the thread that reads."""
        self.close()
        with suppress(*_READING_FAULTS):
            self._raw.close()

    def _receive(self) -> bool:
        """Receive more bytes, once there is room. False when there are no more."""
        self._share.wait()
        began_s = self._clock.monotonic_s()
        try:
            chunk = next(self._chunks, None)
        except BlockingIOError:  # a source in this process has nothing now
            self._empty_at_s = began_s
            raise
        except _READING_FAULTS as exc:
            if self._is_closed:
                return False
            raise ServiceUnavailableError(
                f"the connection of {self._where} broke ({type(exc).__name__}), so the job or "
                "spout subscribes again"
            ) from exc
        self._received_s = self._clock.monotonic_s()
        if self._received_s - began_s >= _QUIET_S:
            # What came now was on its way for less than the wait.
            self._empty_at_s = max(self._empty_at_s, began_s - _QUIET_S)
        if chunk is None:
            return False
        self._share.charge(len(chunk))
        self._messages.add_data(chunk)
        return True

    def _event_of(self, message: EventStreamMessage) -> SubscriptionEvent | None:
        """None for a message that is no event of the shard, as the initial response."""
        headers = message.headers
        if headers.get(":message-type") in ("exception", "error"):
            code = headers.get(":exception-type") or headers.get(":error-code") or "unknown"
            self._refused(str(code), _text_of(message))
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None
        payload = message.payload
        page = decode_natively(payload, is_cbor=False) or decode_get_records(payload, what=EVENT)
        # Bytes may wait in the connection for long, so the time of their receiving says nothing of
        # when the event was made. But an event that arrives after the connection was empty was made
        # after that, and no record arrived after its event. Arrival times are approximate.
        made_after_ms = self._by_service(self._empty_at_s)
        if made_after_ms is not None:
            made_after_ms = max(made_after_ms, (page.last_arrival_ms or 0) - 1_000)
        received_s = min(self._received_s, self._answered_s + _LIFETIME_S)  # its bytes were here
        return SubscriptionEvent(
            replace(page, service_time_ms=made_after_ms),
            latest_ms=self._by_service(received_s),
            wire_bytes=message.prelude.total_length,
        )

    def _by_service(self, at_s: float) -> int | None:
        """A time of the monotonic clock by the service's clock, in ms since 1970."""
        if self._service_time_ms is None:
            return None
        return self._service_time_ms + max(0, int((at_s - self._answered_s) * 1000))


def _text_of(message: EventStreamMessage) -> str:
    """What an exception event says."""
    with suppress(ValueError, AttributeError):
        body = json.loads(message.payload or b"{}")
        if text := body.get("message") or body.get("Message"):
            return str(text)
    return str(message.headers.get(":error-message", ""))


def _socket_of(raw: Any) -> socket.socket | None:
    """The socket of a response. urllib3 has no public way to it that all its versions know."""
    found = getattr(getattr(raw, "connection", None), "sock", None)
    if found is None:
        file = getattr(getattr(raw, "_fp", None), "fp", None)
        found = getattr(getattr(file, "raw", None), "_sock", None)
    return found if isinstance(found, socket.socket) else None
