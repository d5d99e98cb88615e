"""How PutRecords travels: what writes the records of a request and sends it, and what reads the
outcomes of its answer, in place of botocore's serializer, validator and parser.

These walk the service's description for every member of every record, which takes more CPU than all
the rest of a put. The request and the answer are the same.

botocore makes the first request of a client whole: it resolves the endpoint and makes the headers,
which are the same for all requests to a stream. The later ones take these over, so botocore only
signs and sends them, which also renews credentials. It gets all answers that are errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import botocore.exceptions as vendor
import msgspec
from botocore.awsrequest import create_request_object
from botocore.parsers import create_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RECORDS = "KinesisSpoutRecords"  # in the context of a request
_BODY = "KinesisSpoutPutBody"
_ANY = [{"Data": b"", "PartitionKey": "-"}]
_JSON = "application/x-amz-json-1.1"


class PutResult(NamedTuple):
    """The outcome of one record of a request: the shard that took it and its sequence number, or
    the error code with which it was refused.
    """

    shard_id: str | None
    error_code: str | None
    sequence_number: str | None = None


class Entry(msgspec.Struct, gc=False, rename="pascal", omit_defaults=True):
    """A record in a request."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class _Code(msgspec.Struct, gc=False, rename="pascal"):
    error_code: str | None = None


class _Outcome(_Code, gc=False, rename="pascal"):
    shard_id: str | None = None
    sequence_number: str | None = None


_O = TypeVar("_O", bound=_Code)


class _Answer(msgspec.Struct, Generic[_O], rename="pascal"):
    records: list[_O]


_decode_codes = msgspec.json.Decoder(_Answer[_Code]).decode
_decode = msgspec.json.Decoder(_Answer[_Outcome]).decode


def hook(client: Any, http_session: Any) -> None:
    """Make a client of botocore put records so: its `Records` are entries, and its answers are read
    by `results` and `refusals`. The caller checks the records: only the service does so after it.
    Without its HTTP session every request goes the whole way through botocore.
    """
    events = client.meta.events
    events.register("provide-client-params.kinesis.PutRecords", _set_aside)
    events.register("before-call.kinesis.PutRecords", _write)
    events.register("before-parse.kinesis.PutRecords", _keep_body)
    if http_session is not None:
        client.put_records = _DirectPut(client, http_session)


def results(answer: dict[str, Any], count: int) -> list[PutResult]:
    """The outcomes of the `count` records of a request, in their order. Raises `ValueError` for an
    answer that does not have them.
    """
    return [
        PutResult(one.shard_id, one.error_code, one.sequence_number)
        for one in _outcomes(_decode, answer, count)
    ]


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
        outcomes = decode(answer[_BODY]).records
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise ValueError("the answer has no outcomes") from exc
    if len(outcomes) != count:
        raise ValueError("the answer has more or fewer outcomes than the request has records")
    return outcomes


# the whole way through botocore -------------------------------------------------------------------
def _set_aside(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Let botocore see one record, of no size."""
    context[_RECORDS] = params["Records"]
    return params | {"Records": _ANY}


def _write(params: dict[str, Any], **_: Any) -> None:
    """Before the request is signed."""
    params["body"] = request_body(_members(params), params["context"][_RECORDS])


def _members(params: dict[str, Any]) -> dict[str, Any]:
    """What botocore has written besides the records."""
    members: dict[str, Any] = msgspec.json.decode(params["body"])
    return members


def request_body(members: dict[str, Any], records: Sequence[Entry]) -> bytes:
    """The body of a request. Bytes are written in base64, as the protocol has them."""
    return msgspec.json.encode(members | {"Records": records})


def _keep_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Hide the outcomes from botocore's parser, which gets errors."""
    if response_dict["status_code"] < 300:
        customized_response_dict[_BODY] = response_dict["body"]
        response_dict["body"] = b"{}"


# the direct way -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Template:
    """A request of botocore's, to be sent with other records. `members`: its body without records,
    which are the arguments that name its stream.
    """

    members: dict[str, Any]
    params: dict[str, Any]
    signer: Any
    parser: Any
    output: Any

    def request(self, records: Sequence[Entry]) -> Any:
        """A signed request."""
        params = self.params | {
            "body": request_body(self.members, records),
            "headers": dict(self.params["headers"]),
            "context": dict(self.params["context"]),
        }
        request = create_request_object(params)
        self.signer.sign("PutRecords", request)
        return request.prepare()


class _DirectPut:
    """`put_records` of a client, with the same arguments and errors. Threads may share it."""

    def __init__(self, client: Any, session: Any) -> None:
        self._through_botocore = client.put_records
        self._service = client.meta.service_model
        self._session = session
        self._template: _Template | None = None
        client.meta.events.register_first("before-call.kinesis.PutRecords", self._remember)

    def __call__(self, *, Records: Sequence[Entry], **stream: Any) -> dict[str, Any]:  # noqa: N803  # botocore's name
        template = self._template
        if template is None or template.members != stream:
            answer: dict[str, Any] = self._through_botocore(Records=Records, **stream)
            return answer
        response = self._session.send(template.request(Records))
        if response.status_code >= 300:
            error = template.parser.parse(
                {
                    "headers": response.headers,
                    "status_code": response.status_code,
                    "body": response.content,
                },
                template.output,
            )
            raise vendor.ClientError(error, "PutRecords")
        return {_BODY: response.content}

    def _remember(
        self, params: dict[str, Any], request_signer: Any, context: dict[str, Any], **_: Any
    ) -> None:
        """Before the records are written into botocore's request."""
        if params["headers"].get("Content-Type") != _JSON:
            return
        members = _members(params)
        del members["Records"]
        kept = {key: value for key, value in context.items() if key != _RECORDS}
        self._template = _Template(
            members=members,
            params=params | {"headers": dict(params["headers"]), "context": kept},
            signer=request_signer,
            parser=create_parser(self._service.metadata["protocol"]),
            output=self._service.operation_model("PutRecords").output_shape,
        )
