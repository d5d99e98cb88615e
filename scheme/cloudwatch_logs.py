"""The records of a CloudWatch Logs subscription: gzip of JSON with many log events.

Source of the format: "Log group-level subscription filters" in the CloudWatch Logs User Guide,
"Example 1: Subscription filters with Kinesis Data Streams".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from scheme.compressed import MAX_BYTES, decompressed
from scheme.errors import PayloadError
from scheme.json_rules import FIRST_TIME_US, LAST_TIME_US
from scheme.payload_scheme import PayloadScheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOT_CLOUDWATCH = (
    "not a CloudWatch Logs message: it is not JSON, or a field is missing or has the wrong type"
)
TOO_MANY_ROWS = "the log events with their log group and stream are larger than 64 MiB"

MAX_ROWS_BYTES = 64 * 1024 * 1024
"""Each row repeats the log group, stream and filters, which the payload has once: a hostile one of
10 MiB could give rows of terabytes.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _LogEvent(msgspec.Struct, gc=False):
    id: str
    timestamp: Annotated[
        int, msgspec.Meta(ge=FIRST_TIME_US // 1000, le=LAST_TIME_US // 1000)
    ]  # milliseconds since 1970 UTC
    message: str


class _Message(msgspec.Struct, gc=False):
    """As it stands in the payload; as a collection, its rows."""

    messageType: Literal["DATA_MESSAGE", "CONTROL_MESSAGE"]  # noqa: N815  # the format's name
    owner: str
    logGroup: str  # noqa: N815  # the format's name
    logStream: str  # noqa: N815  # the format's name
    subscriptionFilters: list[str]  # noqa: N815  # the format's name
    logEvents: list[_LogEvent]  # noqa: N815  # the format's name

    def __len__(self) -> int:
        return len(self.logEvents)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for event in self.logEvents:
            yield (
                self.owner,
                self.logGroup,
                self.logStream,
                self.subscriptionFilters,
                event.id,
                _EPOCH + timedelta(milliseconds=event.timestamp),
                event.message,
                _json(event.message),
            )


_MESSAGES = msgspec.json.Decoder(_Message)
_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class CloudWatchLogsScheme(PayloadScheme):
    """A row for each log event of a record: `owner`, `logGroup`, `logStream`,
    `subscriptionFilters`, and the event's `id`, `timestamp` and `message`.

    `json` is the message if it is a JSON object or array, otherwise None. A message such as `12` or
    `true` counts as text. Control messages, with which CloudWatch checks that the destination can
    be reached, give no rows. A payload that is larger than `max_bytes` after decompression is
    malformed.
    """

    max_bytes: int = MAX_BYTES

    schema_ddl = (
        "owner STRING, logGroup STRING, logStream STRING, subscriptionFilters ARRAY<STRING>, "
        "id STRING, timestamp TIMESTAMP, message STRING, json STRING"
    )
    many = True
    values_fit = True

    def unpacked(self, payload: bytes) -> bytes:
        return decompressed(payload, "gzip", self.max_bytes)

    def read(self, payload: bytes) -> _Message:
        try:
            message = _MESSAGES.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise PayloadError(NOT_CLOUDWATCH) from None
        if message.messageType == "CONTROL_MESSAGE":
            message.logEvents = []
        names = (message.owner, message.logGroup, message.logStream, *message.subscriptionFilters)
        if (sum(map(len, names)) + 8 * len(names)) * len(message) > MAX_ROWS_BYTES:
            raise PayloadError(TOO_MANY_ROWS)
        return message

    def columns(self, values: Sequence[_Message]) -> list[pa.Array]:
        events = [event for message in values for event in message.logEvents]
        texts = [event.message for event in events]
        # The names are made once for each record, and repeated by Arrow.
        owners = np.repeat(np.arange(len(values)), [len(message) for message in values])
        times_ms = pa.array([event.timestamp for event in events], pa.timestamp("ms", tz="UTC"))
        return [
            *(
                pa.array([getattr(message, name) for message in values], kind).take(owners)
                for name, kind in (
                    ("owner", pa.string()),
                    ("logGroup", pa.string()),
                    ("logStream", pa.string()),
                    ("subscriptionFilters", pa.list_(pa.field("element", pa.string()))),
                )
            ),
            pa.array([event.id for event in events], pa.string()),
            times_ms.cast(pa.timestamp("us", tz="UTC")),
            pa.array(texts, pa.string()),
            pa.array(map(_json, texts), pa.string()),
        ]


def _json(message: str) -> str | None:
    """The message if it is a JSON object or array."""
    if message.startswith(("{", "[")):
        try:
            _ANY_JSON.decode(message)
        except (msgspec.DecodeError, RecursionError):
            return None
        return message
    return None
