"""How PutRecords travels: what writes the records of a request, and what reads the outcomes of its
answer, in place of botocore's serializer, validator and parser.

These walk the service's description for every member of every record, which takes more CPU than all
the rest of a put. The request and the answer are the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from kinesis_spout.service.direct_calls import DirectCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BODY = "KinesisSpoutPutBody"
_ANY = [{"Data": b"", "PartitionKey": "-"}]


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


def hook(client: Any) -> None:
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
    return {_BODY: body}


def request_body(stream: dict[str, Any], records: Sequence[Entry]) -> bytes:
    """The body of a request. Bytes are written in base64, as the protocol has them. `stream`: the
    arguments that name it.
    """
    return msgspec.json.encode(stream | {"Records": records})


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
