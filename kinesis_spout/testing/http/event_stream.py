"""Framing of SubscribeToShard events: vnd.amazon.eventstream.

Source: Smithy specification, "Amazon Event Stream". All numbers are big-endian.

    message   total length (4 bytes), length of the headers (4), CRC-32 of these 8 bytes (4),
              headers, payload, CRC-32 of everything before (4)
    header    length of the name (1), name, type (1; 7 is a string), length of the value (2), value

The first message has the event type `initial-response`. In the JSON protocol it carries the
operation's response, which clients wait for.
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
    return _message("event", "initial-response", b"{}")


def next_message(
    subscription: Subscription, alter: Callable[[Any], object] | None = None
) -> bytes | None:
    """The next message of the subscription: an event, or the error that ends it. None: nothing now.

    `alter`: a fault's change to the event.
    """
    try:
        event = subscription.next_event()
    except ServiceError as exc:
        return _message("exception", exc.code, msgspec.json.encode({"message": exc.message}))
    if event is None:
        return None
    payload = msgspec.json.encode(event if alter is None else alter(event))
    return _message("event", "SubscribeToShardEvent", payload)


def _message(kind: str, name: str, payload: bytes) -> bytes:
    """A message of a kind, event or exception, with the name of the event or exception."""
    headers = {":message-type": kind, f":{kind}-type": name, ":content-type": _PAYLOAD_TYPE}
    head = b"".join(_header(*header) for header in headers.items())
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
