"""The bodies of the service's protocol in CBOR (`application/x-amz-cbor-1.1`).

They have the names of the JSON protocol. Blobs are byte strings, times are whole milliseconds since
1970 with the tag of a time, as the SDK for Java writes and reads them.
"""

from __future__ import annotations

from typing import Any

import cbor2
import msgspec

CONTENT_TYPE = "application/x-amz-cbor-1.1"
_TIME = 1  # the tag


def decode(body: bytes, kind: type[msgspec.Struct]) -> Any:
    """A request. Raises `msgspec.DecodeError`."""
    if not body:
        return msgspec.convert({}, kind)
    try:
        items = cbor2.loads(body, semantic_decoders={_TIME: _seconds})
    except cbor2.CBORDecodeError as exc:
        raise msgspec.DecodeError(str(exc)) from exc
    return msgspec.convert(items, kind)


def encode(answer: object) -> bytes:
    return cbor2.dumps(_with_times(msgspec.to_builtins(answer, builtin_types=(bytes,))))


def _seconds(milliseconds: Any, _immutable: bool) -> Any:  # noqa: FBT001  # cbor2's signature
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else milliseconds


def _with_times(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_times(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_times(item) for item in value]
    if name.endswith("Timestamp") and isinstance(value, int | float):
        return cbor2.CBORTag(_TIME, round(value * 1000))
    return value
