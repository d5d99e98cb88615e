"""How GetRecords, PutRecords and SubscribeToShard travel, in place of botocore's serializer,
validator, event handlers and parser. These walk the service's description for every member of every
record, which takes more CPU than all the rest of a call. The requests and the answers are the same
as botocore's.

A request of GetRecords is in JSON or in CBOR, and so is the body of its answer, which
`get_records_decoder` decodes. CBOR is Kinesis's JSON protocol with other bodies: the same targets
and names, the content type `application/x-amz-cbor-1.1`, payloads as they are and times in
milliseconds. The SDK for Java speaks it; botocore does not. Errors become JSON before botocore
parses them. An endpoint that does not speak it answers in something else, as moto does with a page
of HTML: then the request is sent again in JSON, and if that works, so are all others. Where the
user left the choice to us, an answer in CBOR that cannot be read has the same end.

Of PutRecords, the records of a request are written. Of SubscribeToShard, the answer's body is
handed over unread: botocore would wait for an initial response, which some emulators never send.
"""

from __future__ import annotations

import json
import logging
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
import msgspec
import urllib3.exceptions
from botocore import xform_name
from botocore.awsrequest import create_request_object
from botocore.parsers import create_parser

from kinesis_spout.errors import ConfigError, MalformedResponseError, UnreadableRecordError
from kinesis_spout.programs import how_to_install
from kinesis_spout.service.get_records_decoder import DecodedPage, decode_get_records
from kinesis_spout.service.native_decoder import decode_natively

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from botocore.awsrequest import AWSResponse

    from kinesis_spout.clock import Clock

log = logging.getLogger("kinesis_spout")
# Of an answer: its body, as bytes, or not read yet; whether that is CBOR; when it began.
RAW_BODY = "KinesisSpoutRawBody"
EVENTS = "KinesisSpoutEvents"
IS_CBOR = "KinesisSpoutIsCbor"
ANSWERED_S = "KinesisSpoutAnsweredS"
_JSON, _CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
_MADE = "KinesisSpoutRequest"
_ANY = [{"Data": b"", "PartitionKey": "-"}]  # for botocore, which refuses a request without any


class DirectCalls:
    """The calls of one operation, by a client of botocore. Threads may share it.

    botocore makes the first request of an operation whole, up to its signature, and does not send
    it: it resolves the endpoint and makes the headers, which are the same for all requests to a
    stream. The requests that are sent take these over. botocore still signs each of them, with
    credentials that it renews; sends it through its pool of connections, by the proxies,
    certificates and time limits that it has found; and parses the answers that are errors.
    """

    def __init__(self, client: Any, operation: str, clock: Clock) -> None:
        self._operation = operation
        self._clock = clock
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
        self, arguments: Mapping[str, Any], body: bytes, content_type: str = _JSON
    ) -> tuple[AWSResponse, dict[str, Any]]:
        """The response to `body`, not read yet; and an answer as botocore's client has it, so far:
        with the headers, whether its body is CBOR, and when it began (monotonic).

        `arguments` are as of botocore's client: they are read for the first request only, where
        they name the stream.
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
        response = self._session.send(prepared)
        return response, {
            ANSWERED_S: self._clock.monotonic_s(),
            IS_CBOR: _content_type(response).startswith("application/x-amz-cbor"),
            "ResponseMetadata": {"HTTPHeaders": response.headers},
        }

    def whole(self, response: AWSResponse, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer with its body, which is read now. Raises botocore's error where it is one."""
        body = _read(response)
        if response.status_code >= 300:
            in_json = _as_json(body) if answer[IS_CBOR] else body
            told = {"headers": response.headers, "status_code": response.status_code}
            parsed = self._parser.parse(told | {"body": in_json}, self._output)
            raise vendor.ClientError(parsed, self._operation)
        return answer | {RAW_BODY: body}


def _read(response: AWSResponse) -> bytes:
    """The body, by one call into one piece of memory. botocore reads pieces of 64 KB and joins
    them, which takes more CPU than all the rest of receiving it.

    Memory of our own that is used for every page saves nothing: the allocator gives the memory of
    the last page again, without a page fault. A page of 10 MB took 2.45 ms so, 2.56 into a kept
    buffer, and as much in four threads.
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


def _content_type(response: AWSResponse) -> str:
    return str(response.headers.get("Content-Type", ""))


def _unsent(params: dict[str, Any], request_signer: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
    """An answer in the place of the service's: botocore's client returns the second part of it."""
    return SimpleNamespace(status_code=200), {_MADE: (request_signer, params)}


class Wire:
    """What travels through one connection. Threads may share it.

    `wire_format`: of GetRecords: `json`, `cbor`, or `auto`, which is CBOR where its packages are
    installed. `as_lists`: pages are for a caller that reads record by record: where the native
    decoder reads them, they are lists.
    """

    def __init__(self, wire_format: str, *, clock: Clock, as_lists: bool = False) -> None:
        self._clock = clock
        self._as_lists = as_lists
        self._is_auto = wire_format == "auto"
        self._asks_in_cbor = wire_format != "json"
        self._was_spoken = False

    def hook(self, client: Any, where: str) -> None:
        """Make a client of botocore send these operations so. `where` names the stream and the
        endpoint. All requests of a client are to one stream. Raises `ConfigError` for `cbor`
        without its packages.
        """
        if self._asks_in_cbor:
            try:
                _cbor_codec()
            except ConfigError as exc:
                if not self._is_auto:
                    raise
                self._give_up_cbor(f"{exc}; reading JSON")
        gets, puts, subscriptions = (
            DirectCalls(client, operation, self._clock)
            for operation in ("GetRecords", "PutRecords", "SubscribeToShard")
        )
        client.get_records = partial(self._get, gets, where)
        client.put_records = partial(_put, puts)
        client.subscribe_to_shard = partial(_subscribe, subscriptions)

    def decode(self, answer: dict[str, Any]) -> DecodedPage:
        """The page of an GetRecords response. Raises `MalformedResponseError`."""
        body, is_cbor = answer[RAW_BODY], bool(answer.get(IS_CBOR))
        found = decode_natively(body, is_cbor=is_cbor, as_lists=self._as_lists)
        if found is not None:
            return found
        if not is_cbor:
            return decode_get_records(body)
        try:
            page: DecodedPage = _cbor_codec().decode_get_records_cbor(body)
        except UnreadableRecordError:
            raise  # it is so in JSON, too
        except MalformedResponseError as exc:
            if self._is_auto:  # the caller asks again
                self._give_up_cbor(
                    f"{exc}; GetRecords responses are encoded as JSON instead", logging.WARNING
                )
            raise
        return page

    def _get(self, calls: DirectCalls, where: str, **arguments: Any) -> dict[str, Any]:
        said = ""
        if self._asks_in_cbor:
            response, answer = calls.send(arguments, _cbor_codec().encode_cbor(arguments), _CBOR)
            self._was_spoken = self._was_spoken or answer[IS_CBOR]
            if self._was_spoken:
                return calls.whole(response, answer)
            _read(response)  # so that its connection can be used again
            kind = _content_type(response).partition(";")[0] or "nothing"
            said = (
                f"{where} does not support responses in CBOR (status {response.status_code}, "
                f"{kind})"
            )
        answer = calls.whole(*calls.send(arguments, json.dumps(arguments).encode()))
        if said:
            self._give_up_cbor(f"{said}; GetRecords responses are encoded as JSON instead")
        return answer

    def _give_up_cbor(self, sentence: str, level: int | None = None) -> None:
        """`level` is that of the log; by default what the choice deserves that is overruled."""
        is_first, self._asks_in_cbor = self._asks_in_cbor, False
        if is_first:
            log.log(level or (logging.INFO if self._is_auto else logging.WARNING), "%s", sentence)


def _put(calls: DirectCalls, *, Records: Sequence[Any], **stream: Any) -> dict[str, Any]:  # noqa: N803  # botocore's name
    """`Records` are entries that msgspec encodes: bytes in base64, as the protocol has them. The
    caller checks them: only the service does so after it.
    """
    body = msgspec.json.encode(stream | {"Records": Records})
    return calls.whole(*calls.send(stream | {"Records": _ANY}, body))


def _subscribe(calls: DirectCalls, **arguments: Any) -> dict[str, Any]:
    # A time is in whole seconds, as botocore has it.
    body = json.dumps(arguments, default=lambda moment: int(moment.timestamp()))
    response, answer = calls.send(arguments, body.encode())
    if response.status_code >= 300:
        calls.whole(response, answer)  # raises
    return answer | {EVENTS: response.raw}


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
        "wireFormat",
        f"needs {what}",
        "cbor",
        remedy=f"{how_to_install('cbor')}, or set the option to json",
    )


def _as_json(error: bytes) -> bytes:
    try:
        found = _cbor_codec().decode_cbor(error)
    except ValueError:
        return b""  # the status says enough
    names = ("__type", "message", "Message")
    texts = {name: str(found[name]) for name in names if name in found}
    return json.dumps(texts).encode()
