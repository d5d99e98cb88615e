"""Operations that put and get records (API reference, each operation)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.testing.errors import (
    ServiceError,
    invalid_argument,
    throughput_exceeded,
    validation,
)
from kinesis_spout.testing.service import constraints, requests
from kinesis_spout.testing.service.account import Account
from kinesis_spout.testing.service.answers import (
    GetRecordsAnswer,
    GetShardIteratorAnswer,
    PutRecordAnswer,
    PutRecordsAnswer,
    PutRecordsEntryAnswer,
)
from kinesis_spout.testing.service.read_answers import child_answers, read, record_answers
from kinesis_spout.testing.service.starting_position import POSITION_TYPES, position_of
from kinesis_spout.testing.service.tokens import LIFETIME_MS, ShardIterator, decode, encode
from kinesis_spout.testing.stream.hash_keys import hash_key
from kinesis_spout.testing.stream.shard import size_of
from kinesis_spout.testing.stream.stream import AUTO

if TYPE_CHECKING:
    from kinesis_spout.testing.stream.shard import Shard
    from kinesis_spout.testing.stream.stream import Stream

_PAGE_BYTES = 10 * 1024 * 1024
_PAGE_RECORDS = 10_000
_REQUEST_BYTES = 10 * 1024 * 1024
_REQUEST_RECORDS = 500


class DataPlane(Account):
    """Each method takes the operation's request and returns its answer. Raises `ServiceError`."""

    def put_record(self, request: requests.PutRecord) -> PutRecordAnswer:
        stream = self._data_stream(request)
        if stream.distribution == AUTO and request.sequence_number_for_ordering is not None:
            raise invalid_argument(
                f"SequenceNumberForOrdering cannot be used with stream {stream.name}, whose record "
                "distribution strategy is AUTO."
            )
        answer = self._put(stream, self._checked(stream, request))
        if answer.error_code is not None:
            raise ServiceError(answer.error_code, answer.error_message or "")
        return PutRecordAnswer(answer.shard_id or "", answer.sequence_number or "")

    def put_records(self, request: requests.PutRecords) -> PutRecordsAnswer:
        """Puts every entry that the shards' limits allow.

        An entry outside the API's bounds refuses the whole request.
        """
        stream = self._data_stream(request)
        entries = constraints.needed("records", request.records)
        if not 1 <= len(entries) <= _REQUEST_RECORDS:
            raise validation(
                "records", len(entries), f"Member must have length between 1 and {_REQUEST_RECORDS}"
            )
        checked = [self._checked(stream, entry) for entry in entries]
        if sum(entry.size_bytes for entry in checked) > _REQUEST_BYTES:
            raise invalid_argument("Records size exceeds 10 MB limit")
        answers = [self._put(stream, entry) for entry in checked]
        return PutRecordsAnswer(sum(answer.error_code is not None for answer in answers), answers)

    def get_shard_iterator(self, request: requests.GetShardIterator) -> GetShardIteratorAnswer:
        kind = constraints.one_of("shardIteratorType", request.shard_iterator_type, POSITION_TYPES)
        shard_id = constraints.name("shardId", request.shard_id)
        stream = self._data_stream(request)
        shard = stream.shard(shard_id)
        now_ms = self.clock.now_ms()
        if self.settings.limits and not shard.reads.allows_iterator(now_ms):
            raise self._rate_exceeded(stream, shard)
        start = requests.StartingPosition(
            type=kind,
            sequence_number=request.starting_sequence_number,
            timestamp_s=request.timestamp_s,
        )
        position = position_of(start, stream, shard, now_ms)
        return GetShardIteratorAnswer(_iterator(stream, shard, position, now_ms))

    def get_records(self, request: requests.GetRecords) -> GetRecordsAnswer:
        limit = constraints.limit("limit", request.limit, default=_PAGE_RECORDS)
        token = self._valid_iterator(request)
        stream = self.stream(token.stream)
        if token.created_ms != stream.created_ms:
            raise self._unknown_stream(stream.name)
        shard = stream.shard(token.shard_id)
        now_ms = self.clock.now_ms()
        if self.settings.limits and not shard.reads.allows_call(now_ms):
            raise self._rate_exceeded(stream, shard)
        return self._page(stream, shard, token, limit)

    def _page(
        self, stream: Stream, shard: Shard, token: ShardIterator, limit: int
    ) -> GetRecordsAnswer:
        now_ms = self.clock.now_ms()
        found = read(
            shard,
            int(token.sequence),
            token.empty_pages,
            now_ms=now_ms,
            max_records=limit,
            max_bytes=_PAGE_BYTES,
            end_with_last_records=self.settings.end_with_last_records,
        )
        shard.reads.page_was_read(now_ms, found.size_bytes)
        following = _iterator(stream, shard, found.position, now_ms, empty_pages=found.empty_pages)
        return GetRecordsAnswer(
            records=record_answers(found.records),
            millis_behind_latest=found.behind_ms,
            next_shard_iterator=None if found.ended else following,
            child_shards=child_answers(stream, shard) if found.ended else None,
        )

    def _valid_iterator(self, request: requests.GetRecords) -> ShardIterator:
        token = decode(constraints.needed("shardIterator", request.shard_iterator), ShardIterator)
        if token is None:
            raise invalid_argument("Invalid ShardIterator.")
        now_ms = self.clock.now_ms()
        if token.expired(now_ms):
            raise ServiceError(
                "ExpiredIteratorException",
                f"Iterator expired. The iterator was created at time {token.issued_ms} while right "
                f"now it is {now_ms} "
                f"which is further in the future than the tolerated delay of {LIFETIME_MS} "
                "milliseconds.",
            )
        return token

    def _checked(
        self, stream: Stream, entry: requests.PutRecord | requests.PutRecordsEntry
    ) -> _Entry:
        data = constraints.needed("data", entry.data)
        key = constraints.partition_key(
            entry.partition_key, is_optional=stream.distribution == AUTO
        )
        size_bytes = size_of(data, key)
        if size_bytes > stream.max_record_bytes:
            raise validation(
                "data",
                f"{size_bytes} bytes",
                f"Data and partition key may have {stream.max_record_bytes} bytes",
            )
        explicit = entry.explicit_hash_key
        hashed = (
            hash_key(key)
            if explicit is None
            else constraints.hash_key_text("ExplicitHashKey", explicit)
        )
        return _Entry(hashed, key, data, size_bytes)

    def _put(self, stream: Stream, entry: _Entry) -> PutRecordsEntryAnswer:
        shard = stream.shard_for(entry.hash_key)
        now_ms = self.clock.now_ms()
        if self.settings.limits and not shard.writes.allows(now_ms, entry.size_bytes):
            refused = self._rate_exceeded(stream, shard)
            return PutRecordsEntryAnswer(error_code=refused.code, error_message=refused.message)
        record = shard.append(
            counter=stream.next_counter(),
            arrival_ms=now_ms,
            put_ms=now_ms,
            partition_key=entry.partition_key,
            data=entry.data,
        )
        return PutRecordsEntryAnswer(sequence_number=str(record.sequence), shard_id=shard.shard_id)

    def _rate_exceeded(self, stream: Stream, shard: Shard) -> ServiceError:
        return throughput_exceeded(
            f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} under account "
            f"{self.settings.account_id}."
        )


class _Entry(NamedTuple):
    hash_key: int
    partition_key: str | None
    data: bytes
    size_bytes: int


def _iterator(
    stream: Stream, shard: Shard, position: int, now_ms: int, *, empty_pages: int = 0
) -> str:
    return encode(
        ShardIterator(
            stream.name, stream.created_ms, now_ms, shard.shard_id, str(position), empty_pages
        )
    )
