"""How GetRecords, PutRecords and SubscribeToShard travel, in place of botocore's serializer,
validator and parser. These walk the service's description for every member of every record, which
takes more CPU than all the rest of a call.

A request of GetRecords is in JSON or in CBOR, and so is the body of its answer, which
`get_records_decoder` decodes. CBOR is Kinesis's JSON protocol with other bodies: the same targets
and names, the content type `application/x-amz-cbor-1.1`, payloads as they are and times in
milliseconds. The SDK for Java speaks it; botocore does not. Errors become JSON before botocore
parses them. An endpoint that does not speak it answers in something else, as moto does with a page
of HTML: then the request is sent again in JSON, and if that works, so are all others. Where the
user left the choice to us, an answer in CBOR that cannot be read has the same end.

Of PutRecords, the records of a request are written, and the outcomes of its answer are read. Of
SubscribeToShard, the answer's body is handed over unread: botocore would wait for an initial
response, which some emulators never send. The requests and the answers are the same as botocore's.
"""

from __future__ import annotations

import json
import logging
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kinesis_spout.errors import ConfigError, MalformedResponseError, UnreadableRecordError
from kinesis_spout.programs import how_to_install
from kinesis_spout.service.direct_calls import DirectCalls
from kinesis_spout.service.get_records_decoder import DecodedPage, decode_get_records
from kinesis_spout.service.native_decoder import decode_natively

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from kinesis_spout.clock import Clock

log = logging.getLogger("kinesis_spout")
RAW_BODY = "KinesisSpoutRawBody"
IS_CBOR = "KinesisSpoutIsCbor"
ANSWERED_S = "KinesisSpoutAnsweredS"
EVENTS = "KinesisSpoutEvents"
_CBOR = "application/x-amz-cbor-1.1"


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

    def hook(self, client: Any, where: str) -> None:
        """Make a client of botocore get records so. `where` names the stream and the endpoint.
        Raises `ConfigError` for `cbor` without its packages.
        """
        if self._asks_in_cbor:
            try:
                _cbor_codec()
            except ConfigError as exc:
                if not self._is_auto:
                    raise
                self._give_up_cbor(f"{exc}; reading JSON")
        client.get_records = partial(self._get, DirectCalls(client, "GetRecords"), where)

    def _get(self, calls: DirectCalls, where: str, **arguments: Any) -> dict[str, Any]:
        """In JSON where the endpoint does not speak CBOR."""
        try:
            return self._answer(calls, arguments, in_cbor=self._asks_in_cbor)
        except _CborNotSpokenError as exc:
            answer = self._answer(calls, arguments, in_cbor=False)
            self._give_up_cbor(f"{where} does not speak CBOR ({exc}); reading JSON instead")
            return answer

    def _answer(
        self, calls: DirectCalls, arguments: dict[str, Any], *, in_cbor: bool
    ) -> dict[str, Any]:
        if in_cbor:
            response = calls.send(arguments, _cbor_codec().encode_cbor(arguments), _CBOR)
        else:
            response = calls.send(arguments, json.dumps(arguments).encode())
        answered_s = self._clock.monotonic_s()
        body = calls.read(response)
        status, kind = response.status_code, str(response.headers.get("Content-Type", ""))
        is_cbor = kind.startswith("application/x-amz-cbor")
        if is_cbor:
            self._was_spoken = True
        elif in_cbor and not self._was_spoken:
            raise _CborNotSpokenError(f"status {status}, {kind.partition(';')[0] or 'nothing'}")
        if status >= 300:
            raise calls.error(response, _as_json(body) if is_cbor else body)
        return {
            RAW_BODY: body,
            IS_CBOR: is_cbor,
            ANSWERED_S: answered_s,
            "ResponseMetadata": {"HTTPHeaders": response.headers},
        }

    def _give_up_cbor(self, sentence: str, level: int | None = None) -> None:
        """`level` is that of the log; by default what the choice deserves that is overruled."""
        is_first, self._asks_in_cbor = self._asks_in_cbor, False
        if is_first:
            log.log(level or (logging.INFO if self._is_auto else logging.WARNING), "%s", sentence)


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


_PUT_BODY = "KinesisSpoutPutBody"
_ANY = [{"Data": b"", "PartitionKey": "-"}]


class PutResult(msgspec.Struct, gc=False, rename="pascal"):
    """The outcome of one record of a request: the shard that took it and its sequence number, or
    the error code with which it was refused.
    """

    shard_id: str | None = None
    error_code: str | None = None
    sequence_number: str | None = None


class Entry(msgspec.Struct, gc=False, rename="pascal", omit_defaults=True):
    """A record in a request."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class _Code(msgspec.Struct, gc=False, rename="pascal"):
    """A `PutResult` of which nothing but this is read."""

    error_code: str | None = None


_O = TypeVar("_O")


class _Answer(msgspec.Struct, Generic[_O], rename="pascal"):
    records: list[_O]


_decode_codes = msgspec.json.Decoder(_Answer[_Code]).decode
_decode = msgspec.json.Decoder(_Answer[PutResult]).decode


def direct_puts(client: Any) -> None:
    """Make a client of botocore put records so: its `Records` are entries, and its answers are read
    by `results` and `refusals`. The caller checks the records: only the service does so after it.
    All requests of a client are to one stream.
    """
    client.put_records = partial(_put, DirectCalls(client, "PutRecords"))


def _put(calls: DirectCalls, *, Records: Sequence[Entry], **stream: Any) -> dict[str, Any]:  # noqa: N803  # botocore's name
    response = calls.send(stream | {"Records": _ANY}, request_body(stream, Records))
    body = calls.read(response)
    if response.status_code >= 300:
        raise calls.error(response, body)
    return {_PUT_BODY: body}


def request_body(stream: dict[str, Any], records: Sequence[Entry]) -> bytes:
    """The body of a request. Bytes are written in base64, as the protocol has them. `stream`: the
    arguments that name it.
    """
    return msgspec.json.encode(stream | {"Records": records})


def results(answer: dict[str, Any], count: int) -> list[PutResult]:
    """The outcomes of the `count` records of a request, in their order. Raises `ValueError` for an
    answer that does not have them.
    """
    return _outcomes(_decode, answer, count)


def refusals(answer: dict[str, Any], count: int) -> dict[int, str]:
    """The error codes of the records that were refused, by their index in the request. Raises
    `ValueError` as `results` does.
    """
    codes = [outcome.error_code for outcome in _outcomes(_decode_codes, answer, count)]
    if codes.count(None) == count:  # nearly every answer
        return {}
    return {index: code for index, code in enumerate(codes) if code is not None}


def _outcomes(
    decode: Callable[[bytes], _Answer[_O]], answer: dict[str, Any], count: int
) -> list[_O]:
    try:
        outcomes = decode(answer[_PUT_BODY]).records
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise ValueError("the answer has no outcomes") from exc
    if len(outcomes) != count:
        raise ValueError("the answer has more or fewer outcomes than the request has records")
    return outcomes


def direct_subscriptions(client: Any, clock: Clock) -> None:
    """Make a client of botocore subscribe so: its answers have their bodies as `EVENTS`, and the
    time at which they began as `ANSWERED_S`.
    """
    client.subscribe_to_shard = partial(_subscribe, DirectCalls(client, "SubscribeToShard"), clock)


def _subscribe(calls: DirectCalls, clock: Clock, **arguments: Any) -> dict[str, Any]:
    # A time is in whole seconds, as botocore has it.
    body = json.dumps(arguments, default=lambda moment: int(moment.timestamp()))
    response = calls.send(arguments, body.encode())
    answered_s = clock.monotonic_s()
    if response.status_code >= 300:
        raise calls.error(response, calls.read(response))
    return {
        EVENTS: response.raw,
        ANSWERED_S: answered_s,
        "ResponseMetadata": {"HTTPHeaders": response.headers},
    }
