"""The framing of what a subscription pushes: vnd.amazon.eventstream (Smithy specification, "Amazon
Event Stream").

A message: its whole length and that of its headers (4 bytes each), the CRC-32 of these eight bytes,
the headers, the payload, and the CRC-32 of all before it. A header: the length of its name (1
byte), the name, its type (1 byte; 7 is a string), the length of its value (2 bytes), the value. All
numbers are big-endian. The first message is of the type `initial-response`: in the JSON protocol it
carries the operation's answer, which clients wait for.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.testing.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing.service.subscribe_to_shard import Subscription

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_STRING = 7
_PAYLOAD_TYPE = "application/x-amz-json-1.1"


def initial_response() -> bytes:
    return _message(
        {
            ":message-type": "event",
            ":event-type": "initial-response",
            ":content-type": _PAYLOAD_TYPE,
        },
        b"{}",
    )


def next_message(
    subscription: Subscription, alter: Callable[[Any], object] | None = None
) -> bytes | None:
    """What the subscription has to push now: an event, or the error that it ends with; None when
    there is nothing.

    `alter`: what a fault makes of an event.
    """
    try:
        event = subscription.next_event()
    except ServiceError as exc:
        return _exception(exc)
    if event is None:
        return None
    headers = {
        ":message-type": "event",
        ":event-type": "SubscribeToShardEvent",
        ":content-type": _PAYLOAD_TYPE,
    }
    return _message(headers, msgspec.json.encode(event if alter is None else alter(event)))


def _exception(error: ServiceError) -> bytes:
    headers = {
        ":message-type": "exception",
        ":exception-type": error.code,
        ":content-type": _PAYLOAD_TYPE,
    }
    return _message(headers, msgspec.json.encode({"message": error.message}))


def _message(headers: dict[str, str], payload: bytes) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    lengths = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", _STRING, len(value))
        + value.encode()
    )
