"""The streams of one account in one region, and how a request finds its stream."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.testing.errors import ServiceError, in_use, invalid_argument, not_found
from kinesis_spout.testing.service import constraints, tokens
from kinesis_spout.testing.service.control_limits import ControlLimits
from kinesis_spout.testing.settings import FakeKinesisSettings

if TYPE_CHECKING:
    from kinesis_spout.testing.service.requests import Request
    from kinesis_spout.testing.stream.stream import Stream

_ARN = re.compile(r"arn:aws[^:]*:kinesis:[^:]*:[0-9]{12}:stream/([a-zA-Z0-9_.-]{1,128})", re.ASCII)


class Account:
    """State that all operations share.

    `lock` serialises the operations: each is atomic to the others, as in the service.
    """

    def __init__(
        self, *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings or FakeKinesisSettings()
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self._streams: dict[str, Stream] = {}
        self._newest_stream_ms = 0
        self._control_limits = ControlLimits(self.settings.account_id)

    def count_call(self, operation: str, request: object) -> None:
        """Count a call against the rate limit of its operation, if `settings.control_limits` is on.

        Raises LimitExceededException. For calls from outside: the short forms of `FakeKinesis` do
        not count.
        """
        if self.settings.control_limits:
            self._control_limits.count(operation, _stream_named(request), self.clock.now_ms())

    def stream(self, stream_name: str) -> Stream:
        """The stream of that name, brought up to the clock's time.

        Raises ResourceNotFoundException.
        """
        now_ms = self.clock.now_ms()
        self._forget_deleted(now_ms)
        try:
            stream = self._streams[stream_name]
        except KeyError:
            raise self._unknown_stream(stream_name) from None
        stream.settle(now_ms)
        return stream

    def _stream_of(self, request: Request) -> Stream:
        """The stream that a request names by name, ARN or both."""
        if request.stream_arn is None:
            if request.stream_name is None:
                raise invalid_argument("Either StreamName or StreamARN must be specified.")
            return self.stream(constraints.name("streamName", request.stream_name))
        match = _ARN.fullmatch(request.stream_arn)
        if match is None or request.stream_name not in (None, match[1]):
            raise invalid_argument(
                f"StreamARN {request.stream_arn} is malformed or does not match StreamName "
                f"{request.stream_name}."
            )
        stream = self.stream(match[1])
        if stream.arn != request.stream_arn:
            raise self._unknown_stream(match[1])
        return stream

    def _data_stream(self, request: Request) -> Stream:
        """The stream of a request for records.

        A stream that is CREATING or DELETING has no records, and is not found.
        """
        stream = self._stream_of(request)
        if stream.status(self.clock.now_ms()) in ("CREATING", "DELETING"):
            raise self._unknown_stream(stream.name)
        return stream

    def _unknown_stream(self, name: str) -> ServiceError:
        return not_found(f"Stream {name} under account {self.settings.account_id} not found.")

    def _not_active(self, stream: Stream, status: str) -> ServiceError:
        return in_use(
            f"Stream {stream.name} under account {self.settings.account_id} not ACTIVE, instead in "
            f"state {status}"
        )

    def _creation_ms(self, now_ms: int) -> int:
        """The creation time of a new stream, later than that of every earlier stream.

        It tells a stream from an earlier one of the same name.
        """
        self._newest_stream_ms = max(now_ms, self._newest_stream_ms + 1)
        return self._newest_stream_ms

    def _forget_deleted(self, now_ms: int) -> None:
        for stream in list(self._streams.values()):
            if (
                stream.deleted_ms is not None
                and stream.deleted_ms + self.settings.delete_ms <= now_ms
            ):
                del self._streams[stream.name]


def _stream_named(request: object) -> str | None:
    """The name of the stream in a request, or None. Nothing is looked up or checked."""
    arn = getattr(request, "stream_arn", None) or getattr(request, "consumer_arn", None)
    if arn is not None:
        return str(arn).partition(":stream/")[2].partition("/")[0]
    token = tokens.decode(getattr(request, "next_token", None) or "", tokens.ListToken)
    return getattr(request, "stream_name", None) if token is None else token.stream
