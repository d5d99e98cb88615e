"""How GetRecords travels: the hooks on botocore's client that read an answer's body at once, and
keep it from botocore's parser.

botocore reads a body in pieces of 64 KB and joins them, which takes more CPU than all the rest of
receiving it. One read into one piece of memory is the least that Python can do. Memory of our own
that is used for every page was tried: it saves nothing, as the allocator gives the memory of the
last page again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
import urllib3.exceptions
from botocore.awsrequest import AWSResponse

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

RAW_BODY = "KinesisSpoutRawBody"


class _WholeResponse(AWSResponse):  # type: ignore[misc]  # botocore ships no types
    """A response whose body was read by one call."""

    def __init__(self, response: AWSResponse, content: bytes) -> None:
        super().__init__(response.url, response.status_code, response.headers, response.raw)
        self._whole = content

    @property
    def content(self) -> bytes:
        return self._whole


def hook_get_records(client: Any) -> None:
    """Register the hooks on a client of botocore."""
    events = client.meta.events
    # botocore gives its HTTP session to nobody, and one of our own would have to find proxies and
    # certificates as that one does. Without it, botocore reads the body.
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    if session is not None:
        events.register("before-send.kinesis.GetRecords", _OneRead(session))
    events.register("before-parse.kinesis.GetRecords", _take_body)


class _OneRead:
    """Sends a request, and reads the answer's body by one call."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        request.stream_output = True  # leaves the body unread
        response = self._session.send(request)
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
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Hide the body of a successful answer from botocore's parser. The parser still gets errors."""
    if response_dict["status_code"] < 300:
        customized_response_dict[RAW_BODY] = response_dict["body"]
        response_dict["body"] = b"{}"
