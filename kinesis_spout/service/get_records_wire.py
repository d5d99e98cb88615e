"""How GetRecords travels: the hooks on botocore's client that ask in JSON or in CBOR, read an
answer's body at once, and keep it from botocore's parser.

CBOR is Kinesis's JSON protocol with other bodies: the same targets and names, the content type
`application/x-amz-cbor-1.1`, payloads as they are and times in milliseconds. The SDK for Java
speaks it; botocore does not. Requests become CBOR before they are signed, errors become JSON before
botocore parses them. An endpoint that does not speak it answers in something else, as moto does
with a page of HTML: then the request is sent again in JSON, and if that works, so are all others.
Where the user left the choice to us, an answer in CBOR that cannot be read has the same end.

botocore reads a body in pieces of 64 KB and joins them, which takes more CPU than all the rest of
receiving it. One read into one piece of memory is the least that Python can do. Memory of our own
that is used for every page was tried: it saves nothing, as the allocator gives the memory of the
last page again.
"""

from __future__ import annotations

import json
import logging
import threading
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
import urllib3.exceptions
from botocore.awsrequest import AWSResponse

from kinesis_spout.errors import ConfigError, MalformedResponseError, UnreadableRecordError
from kinesis_spout.programs.installation import how_to_install
from kinesis_spout.service.get_records_decoder import DecodedPage, decode_get_records
from kinesis_spout.service.native_decoder import decode_natively

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from botocore.awsrequest import AWSPreparedRequest

    from kinesis_spout.clock import Clock

log = logging.getLogger("kinesis_spout")
RAW_BODY = "KinesisSpoutRawBody"
IS_CBOR = "KinesisSpoutIsCbor"
ANSWERED_S = "KinesisSpoutAnsweredS"
_CONTENT_TYPE = "application/x-amz-cbor-1.1"


class _WholeResponse(AWSResponse):  # type: ignore[misc]  # botocore ships no types
    """A response whose body was read by one call."""

    def __init__(self, response: AWSResponse, content: bytes) -> None:
        super().__init__(response.url, response.status_code, response.headers, response.raw)
        self._whole = content

    @property
    def content(self) -> bytes:
        return self._whole


class _CborNotSpokenError(Exception):
    """A request in CBOR was answered in something else, and no other one in CBOR before."""


class GetRecordsWire:
    """The encoding of one connection's GetRecords: `json`, `cbor`, or `auto`, which is CBOR where
    its packages are installed. Threads may share it.

    `as_lists`: pages are for a caller that reads record by record (`RecordColumns`). `clock`: says
    when an answer began (`ANSWERED_S`, monotonic).
    """

    def __init__(self, wire_format: str, *, clock: Clock, as_lists: bool = False) -> None:
        self._clock = clock
        self._as_lists = as_lists
        self._is_auto = wire_format == "auto"
        self._asks_in_cbor = wire_format != "json"
        self._was_spoken = False
        # botocore calls the hooks of a request in the thread that sends it.
        self._request = _Request()

    def call(self, send: Callable[[], dict[str, Any]], where: str) -> dict[str, Any]:
        """Send a request, in JSON where the endpoint does not speak CBOR; `where` names the stream
        and the endpoint.
        """
        try:
            return send()
        except _CborNotSpokenError as exc:
            self._request.must_be_json = True
            try:
                answer = send()
            finally:
                self._request.must_be_json = False
            self._give_up_cbor(f"{where} does not speak CBOR ({exc}); reading JSON instead")
            return answer

    def decode(self, answer: dict[str, Any]) -> DecodedPage:
        """The page of an answer. Raises `MalformedResponseError`."""
        body, is_cbor = answer[RAW_BODY], bool(answer.get(IS_CBOR))
        found = decode_natively(body, is_cbor=is_cbor, as_lists=self._as_lists)
        if found is not None:
            return found
        if not is_cbor:
            return decode_get_records(body)
        try:
            page: DecodedPage = _cbor_codec().decode_get_records_cbor(body, as_lists=self._as_lists)
        except UnreadableRecordError:
            raise  # it is so in JSON, too
        except MalformedResponseError as exc:
            if self._is_auto:  # the caller asks again
                self._give_up_cbor(f"{exc}; reading JSON instead", logging.WARNING)
            raise
        return page

    def hook(self, client: Any, http_session: Any) -> None:
        """Register the hooks on a client of botocore. Without its HTTP session botocore reads the
        bodies. Raises `ConfigError` for `cbor` without its packages.
        """
        if self._asks_in_cbor:
            try:
                _cbor_codec()
            except ConfigError as exc:
                if not self._is_auto:
                    raise
                self._give_up_cbor(f"{exc}; reading JSON")
        events = client.meta.events
        if http_session is not None:
            events.register(
                "before-send.kinesis.GetRecords", partial(self._read_at_once, http_session)
            )
        events.register("before-call.kinesis.GetRecords", self._encode)
        events.register("before-parse.kinesis.GetRecords", self._take_body)

    def _encode(self, params: dict[str, Any], **_: Any) -> None:
        """Before the request is signed."""
        self._request.answered_s = None
        self._request.is_cbor = self._asks_in_cbor and not self._request.must_be_json
        if self._request.is_cbor:
            params["body"] = _cbor_codec().encode_cbor(json.loads(params["body"]))
            params["headers"]["Content-Type"] = _CONTENT_TYPE

    def _read_at_once(
        self, http_session: Any, request: AWSPreparedRequest, **_: Any
    ) -> AWSResponse:
        """Send a request in botocore's place, and read the body of its answer by one call."""
        request.stream_output = True  # leaves the body unread
        response = http_session.send(request)
        self._request.answered_s = self._clock.monotonic_s()
        try:
            # http.client reads as much as Content-Length says, and raises when less comes.
            content = response.raw.read(decode_content=True)
        except urllib3.exceptions.ReadTimeoutError as exc:
            raise vendor.ReadTimeoutError(endpoint_url=request.url, error=exc) from exc
        except urllib3.exceptions.ProtocolError as exc:
            raise vendor.ConnectionClosedError(
                error=exc, request=request, endpoint_url=request.url
            ) from exc
        except urllib3.exceptions.HTTPError as exc:
            raise vendor.HTTPClientError(error=exc) from exc
        return _WholeResponse(response, content)

    def _take_body(
        self, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
    ) -> None:
        """Hide the body of a successful answer from botocore's parser. The parser still gets
        errors, in JSON.
        """
        status, content_type = (
            response_dict["status_code"],
            str(response_dict["headers"].get("content-type", "")),
        )
        is_cbor = content_type.startswith("application/x-amz-cbor")
        if is_cbor:
            self._was_spoken = True
        elif self._request.is_cbor and not self._was_spoken:
            kind = content_type.partition(";")[0] or "nothing"
            raise _CborNotSpokenError(f"status {status}, {kind}")
        if status < 300:
            if self._request.answered_s is None:  # botocore has read the body
                self._request.answered_s = self._clock.monotonic_s()
            customized_response_dict |= {
                RAW_BODY: response_dict["body"],
                IS_CBOR: is_cbor,
                ANSWERED_S: self._request.answered_s,
            }
            response_dict["body"] = b"{}"
        elif is_cbor:
            response_dict["body"] = _as_json(response_dict["body"])

    def _give_up_cbor(self, sentence: str, level: int | None = None) -> None:
        """`level` is that of the log; by default what the choice deserves that is overruled."""
        is_first, self._asks_in_cbor = self._asks_in_cbor, False
        if is_first:
            log.log(level or (logging.INFO if self._is_auto else logging.WARNING), "%s", sentence)


class _Request(threading.local):
    """Of the request that a thread sends."""

    is_cbor = False
    must_be_json = False
    answered_s: float | None = None


@cache
def _cbor_codec() -> ModuleType:
    try:
        from kinesis_spout.service import get_records_cbor  # noqa: PLC0415  # needs an extra

        get_records_cbor.decode_cbor(b"\x80")
    except ModuleNotFoundError as exc:
        raise _needs(f"the package {exc.name}") from exc
    except TypeError as exc:  # it came with another package
        raise _needs("a newer version of the package cbor2") from exc
    return get_records_cbor


def _needs(what: str) -> ConfigError:
    return ConfigError.of(
        "wireFormat", f"needs {what}", "cbor", remedy=f"{how_to_install('cbor')}, or read json"
    )


def _as_json(error: bytes) -> bytes:
    try:
        found = _cbor_codec().decode_cbor(error)
    except ValueError:
        return b""  # the status says enough
    names = ("__type", "message", "Message")
    texts = {name: str(found[name]) for name in names if name in found}
    return json.dumps(texts).encode()
