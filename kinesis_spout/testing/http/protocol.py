"""The service's protocol without a transport: a target and a body in, a status and a body out.

AWS JSON 1.1: `X-Amz-Target: Kinesis_20131202.<Operation>`, times in seconds since 1970, blobs in
base64. An error is `{"__type": code, "message": text}`. A request in CBOR is answered in CBOR
(`testing.http.cbor`). Of the `Authorization` header only the access key id is checked, never the
signature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesis_spout.testing.errors import ServiceError, TransportFaultError
from kinesis_spout.testing.faults.plan import FaultKind
from kinesis_spout.testing.service import requests, tokens
from kinesis_spout.testing.service.subscribe_to_shard import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing.fake_kinesis import FakeKinesis
    from kinesis_spout.testing.faults.plan import Fault

JSON = "application/x-amz-json-1.1"
_TARGET = "Kinesis_20131202."
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_SIGNATURE = "AWS4-HMAC-SHA256 "


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status with its body. For SubscribeToShard, the subscription's events are the body.

    `alter`: a fault's change to each event of the subscription. `truncated`: the connection is to
    break in the middle of the body. `content_type`: of the body.
    """

    status: int
    body: bytes
    subscription: Subscription | None = None
    alter: Callable[[Any], object] | None = None
    truncated: bool = False
    content_type: str = JSON


class _Codec(NamedTuple):
    content_type: str
    decode: Callable[[bytes, msgspec.json.Decoder[Any]], Any]
    encode: Callable[[Any], bytes]


_JSON = _Codec(JSON, lambda body, decoder: decoder.decode(body or b"{}"), msgspec.json.encode)


class FakeKinesisProtocol:
    """Answers one request: credentials, decoding, fault plan, model, encoding.

    Any thread may use it. The model runs under the fake's lock.
    """

    def __init__(
        self, fake: FakeKinesis, *, wait_s: Callable[[float], object] | None = None
    ) -> None:
        """`wait_s` waits for a fault's delay, in seconds; by default the fake's clock does."""
        self._fake = fake
        self._wait_s = fake.clock.sleep if wait_s is None else wait_s
        self._operations: dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Any], object]]] = {
            method.__name__.title().replace("_", ""): (msgspec.json.Decoder(kind), method)
            for kind, method in _operations(fake)
        }

    def answer(
        self,
        target: str,
        body: bytes,
        *,
        authorization: str | None,
        content_type: str | None = None,
    ) -> Answer:
        """The response to a request, in CBOR if `content_type` is. Blocks for as long as a fault
        delays it.

        Raises `TransportFaultError` if a fault leaves the caller without a response.
        """
        codec = _JSON
        try:
            codec = _codec(content_type)
            self._check_credentials(authorization)
            return self._serve(target, body, codec)
        except ServiceError as exc:
            told = {"__type": exc.code, "message": exc.message}
            return Answer(exc.status, codec.encode(told), content_type=codec.content_type)

    def _serve(self, target: str, body: bytes, codec: _Codec) -> Answer:
        operation = target.removeprefix(_TARGET)
        if not target.startswith(_TARGET) or operation not in self._operations:
            raise ServiceError(
                "UnknownOperationException", f"FakeKinesis does not support operation {target}"
            )
        decoder, method = self._operations[operation]
        try:
            request = codec.decode(body, decoder)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise ServiceError("SerializationException", str(exc)) from exc
        faults = self._fake.faults
        fault = None if faults.is_empty() else faults.take(operation, _shard_of(request))
        if fault is not None:
            self._apply(fault)
        with self._fake.lock:
            self._fake.count_call(operation, request)
            answer = method(request)
        if fault is not None and fault.kind is FaultKind.DROP_ANSWER:
            raise TransportFaultError(processed=True)
        alter = None if fault is None else fault.alter
        if isinstance(answer, Subscription):
            return Answer(200, b"", answer, alter)
        if alter is not None:
            answer = alter(answer)
        if fault is not None and fault.replace is not None:
            answer = fault.replace(request)
        truncated = fault is not None and fault.kind is FaultKind.TRUNCATE
        body = b"" if answer is None else codec.encode(answer)
        return Answer(200, body, truncated=truncated, content_type=codec.content_type)

    def _apply(self, fault: Fault) -> None:
        if fault.delay_s:
            self._wait_s(fault.delay_s)
        if fault.kind is FaultKind.ERROR:
            raise fault.error()
        if fault.kind is FaultKind.DROP:
            raise TransportFaultError(processed=False)

    def _check_credentials(self, authorization: str | None) -> None:
        known = self._fake.settings.access_keys
        if known is None:
            return
        if authorization is None:
            raise ServiceError(
                "MissingAuthenticationTokenException", "Missing Authentication Token"
            )
        match = _CREDENTIAL.search(authorization)
        if match is None or not authorization.startswith(_SIGNATURE):
            raise ServiceError(
                "IncompleteSignatureException",
                "Authorization header requires 'Credential' parameter.",
            )
        if match[1] not in known:
            raise ServiceError(
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )


def _codec(content_type: str | None) -> _Codec:
    if content_type is None or not content_type.startswith("application/x-amz-cbor"):
        return _JSON
    try:
        from kinesis_spout.testing.http import cbor  # noqa: PLC0415  # needs an extra
    except ModuleNotFoundError as exc:
        raise ServiceError(
            "SerializationException", f"the fake Kinesis needs the package {exc.name} to read CBOR"
        ) from exc
    return _Codec(cbor.CONTENT_TYPE, lambda body, json: cbor.decode(body, json.type), cbor.encode)


def _operations(fake: FakeKinesis) -> list[tuple[type[msgspec.Struct], Callable[[Any], object]]]:
    """The request and the method of each operation, which has the method's name in Pascal case."""
    return [
        (requests.CreateStream, fake.create_stream),
        (requests.DeleteStream, fake.delete_stream),
        (requests.ListStreams, fake.list_streams),
        (requests.DescribeStream, fake.describe_stream),
        (requests.DescribeStreamSummary, fake.describe_stream_summary),
        (requests.ListShards, fake.list_shards),
        (requests.SplitShard, fake.split_shard),
        (requests.MergeShards, fake.merge_shards),
        (requests.UpdateShardCount, fake.update_shard_count),
        (requests.ChangeRetention, fake.increase_stream_retention_period),
        (requests.ChangeRetention, fake.decrease_stream_retention_period),
        (requests.UpdateMaxRecordSize, fake.update_max_record_size),
        (
            requests.UpdateStreamRecordDistributionStrategy,
            fake.update_stream_record_distribution_strategy,
        ),
        (requests.DescribeLimits, fake.describe_limits),
        (requests.RegisterStreamConsumer, fake.register_stream_consumer),
        (requests.StreamConsumer, fake.describe_stream_consumer),
        (requests.StreamConsumer, fake.deregister_stream_consumer),
        (requests.ListStreamConsumers, fake.list_stream_consumers),
        (requests.SubscribeToShard, fake.subscribe_to_shard),
        (requests.PutRecord, fake.put_record),
        (requests.PutRecords, fake.put_records),
        (requests.GetShardIterator, fake.get_shard_iterator),
        (requests.GetRecords, fake.get_records),
    ]


def _shard_of(request: object) -> str | None:
    """The shard id of a request that is for one shard, else None."""
    if isinstance(request, requests.GetShardIterator | requests.SubscribeToShard):
        return request.shard_id
    if isinstance(request, requests.GetRecords):
        token = tokens.decode(request.shard_iterator or "", tokens.ShardIterator)
        return None if token is None else token.shard_id
    return None
