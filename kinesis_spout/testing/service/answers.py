"""The answers of the service, as its JSON protocol writes them.

Source: API reference, "Response Syntax" and "Data Types". Members without a value are left out.
Times are in seconds since 1970, with three decimals.
"""

from __future__ import annotations

import msgspec

from kinesis_spout.testing.service.requests import StreamMode


class HashKeyRangeAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    starting_hash_key: str
    ending_hash_key: str


class SequenceNumberRangeAnswer(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    starting_sequence_number: str
    ending_sequence_number: str | None = None


class ShardAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    shard_id: str
    hash_key_range: HashKeyRangeAnswer
    sequence_number_range: SequenceNumberRangeAnswer
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None


class ChildShardAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRangeAnswer


class RecordAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """A record. It has no partition key if its producer gave none, which an AUTO stream allows."""

    sequence_number: str
    approximate_arrival_timestamp: float
    data: bytes
    partition_key: str | msgspec.UnsetType = msgspec.UNSET


class GetRecordsAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    """Without `next_shard_iterator` the shard is at its end, and `child_shards` follow it."""

    records: list[RecordAnswer]
    millis_behind_latest: int
    next_shard_iterator: str | None = None
    child_shards: list[ChildShardAnswer] | None = None


class GetShardIteratorAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    shard_iterator: str


class PutRecordAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    shard_id: str
    sequence_number: str


class PutRecordsEntryAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    """Either the place of the record, or the error that refused it."""

    sequence_number: str | None = None
    shard_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class PutRecordsAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    failed_record_count: int
    records: list[PutRecordsEntryAnswer]


class ListShardsAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    shards: list[ShardAnswer]
    next_token: str | None = None


class _Described(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """What both descriptions of a stream have."""

    stream_name: str
    stream_arn: str = msgspec.field(name="StreamARN")
    stream_status: str
    stream_mode_details: StreamMode
    retention_period_hours: int
    stream_creation_timestamp: float
    enhanced_monitoring: list[dict[str, list[str]]]
    encryption_type: str = "NONE"


class StreamDescription(_Described, frozen=True, kw_only=True, rename="pascal"):
    shards: list[ShardAnswer]
    has_more_shards: bool


class DescribeStreamAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    stream_description: StreamDescription


class StreamDescriptionSummary(_Described, frozen=True, kw_only=True, rename="pascal"):
    open_shard_count: int
    consumer_count: int
    max_record_size_kib: int = msgspec.field(name="MaxRecordSizeInKiB")
    record_distribution_strategy: str | msgspec.UnsetType = msgspec.UNSET


class DescribeStreamSummaryAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    stream_description_summary: StreamDescriptionSummary


class ListStreamsAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    stream_names: list[str]
    has_more_streams: bool


class UpdateShardCountAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    stream_name: str
    current_shard_count: int
    target_shard_count: int
    stream_arn: str = msgspec.field(name="StreamARN")


class DescribeLimitsAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    shard_limit: int
    open_shard_count: int
    on_demand_stream_count: int
    on_demand_stream_count_limit: int


class ConsumerAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    """A consumer. Only DescribeStreamConsumer gives the ARN of its stream."""

    consumer_name: str
    consumer_arn: str = msgspec.field(name="ConsumerARN")
    consumer_status: str
    consumer_creation_timestamp: float
    stream_arn: str | None = msgspec.field(default=None, name="StreamARN")


class RegisterStreamConsumerAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    consumer: ConsumerAnswer


class DescribeStreamConsumerAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    consumer_description: ConsumerAnswer


class ListStreamConsumersAnswer(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    consumers: list[ConsumerAnswer]
    next_token: str | None = None


class SubscribeToShardEvent(
    msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True
):
    """One event of a subscription.

    At the shard's end there are `child_shards` and no `continuation_sequence_number`.
    """

    records: list[RecordAnswer]
    millis_behind_latest: int
    continuation_sequence_number: str | None = None
    child_shards: list[ChildShardAnswer] | None = None
