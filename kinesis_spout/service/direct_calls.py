"""Calls of an operation without botocore's serializer, validator, event handlers and parser, which
take more CPU than all the rest of a call.

botocore makes the first request of an operation whole, up to its signature, and does not send it:
it resolves the endpoint and makes the headers, which are the same for all requests to a stream. The
requests that are sent take these over. botocore still signs each of them, with credentials that it
renews; sends it through its pool of connections, by the proxies, certificates and time limits that
it has found; and parses the answers that are errors.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
import urllib3.exceptions
from botocore import xform_name
from botocore.awsrequest import create_request_object
from botocore.parsers import create_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.awsrequest import AWSResponse

JSON = "application/x-amz-json-1.1"
_MADE = "KinesisSpoutRequest"


class DirectCalls:
    """The calls of one operation, by a client of botocore. Threads may share it."""

    def __init__(self, client: Any, operation: str) -> None:
        self._operation = operation
        self._through_botocore = getattr(client, xform_name(operation))
        # botocore gives its HTTP session to nobody, and one of our own would have to find proxies
        # and certificates as that one does.
        self._session = client._endpoint.http_session  # noqa: SLF001  # as said above
        model = client.meta.service_model
        self._parser = create_parser(model.metadata["protocol"])
        self._output = model.operation_model(operation).output_shape
        self._made: tuple[Any, dict[str, Any]] | None = None
        client.meta.events.register(f"before-call.kinesis.{operation}", _unsent)

    def send(
        self, arguments: Mapping[str, Any], body: bytes, content_type: str = JSON
    ) -> AWSResponse:
        """The answer to `body`, not read yet. `arguments` are as of botocore's client: they are
        read for the first request only, where they name the stream.
        """
        if self._made is None:
            self._made = self._through_botocore(**arguments)[_MADE]
        signer, made = self._made
        headers = dict(made["headers"])
        headers["Content-Type"] = content_type
        request = create_request_object(
            made | {"body": body, "headers": headers, "context": dict(made["context"])}
        )
        signer.sign(self._operation, request)
        prepared = request.prepare()
        prepared.stream_output = True  # leaves the body unread
        return self._session.send(prepared)

    def read(self, response: AWSResponse) -> bytes:
        """The body, by one call into one piece of memory. botocore reads pieces of 64 KB and joins
        them, which takes more CPU than all the rest of receiving it.

        Memory of our own that is used for every page saves nothing: the allocator gives the memory
        of the last page again, without a page fault. A page of 10 MB took 2.45 ms so, 2.56 into a
        kept buffer, and as much in four threads.
        """
        try:
            # http.client reads as much as Content-Length says, and raises when less comes.
            body: bytes = response.raw.read(decode_content=True)
        except urllib3.exceptions.ReadTimeoutError as exc:
            raise vendor.ReadTimeoutError(endpoint_url=response.url, error=exc) from exc
        except urllib3.exceptions.ProtocolError as exc:
            raise vendor.ConnectionClosedError(error=exc, endpoint_url=response.url) from exc
        except urllib3.exceptions.HTTPError as exc:
            raise vendor.HTTPClientError(error=exc) from exc
        return body

    def error(self, response: AWSResponse, body: bytes) -> vendor.ClientError:
        """The error of an answer with a status of 300 or more. `body` is in JSON."""
        parsed = self._parser.parse(
            {"headers": response.headers, "status_code": response.status_code, "body": body},
            self._output,
        )
        return vendor.ClientError(parsed, self._operation)


def _unsent(params: dict[str, Any], request_signer: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
    """An answer in the place of the service's: botocore's client returns the second part of it."""
    return SimpleNamespace(status_code=200), {_MADE: (request_signer, params)}
