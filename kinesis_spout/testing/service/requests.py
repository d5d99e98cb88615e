"""The requests of the service, as its JSON protocol carries them.

Source: API reference, "Request Syntax" of each operation. Only types are stated here. The model
checks which members are needed and what they may hold. Unknown members are ignored, as the service
ignores them.
"""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A request for one stream, by its name or its ARN."""

    stream_name: str | None = None
    stream_arn: str | None = msgspec.field(default=None, name="StreamARN")


class StreamMode(msgspec.Struct, frozen=True, rename="pascal"):
    stream_mode: str | None = None


class CreateStream(Request, frozen=True, kw_only=True, rename="pascal"):
    shard_count: int | None = None
    stream_mode_details: StreamMode | None = None
    max_record_size_kib: int | None = msgspec.field(default=None, name="MaxRecordSizeInKiB")
    record_distribution_strategy: str | None = None


class UpdateMaxRecordSize(Request, frozen=True, kw_only=True, rename="pascal"):
    max_record_size_kib: int | None = msgspec.field(default=None, name="MaxRecordSizeInKiB")


class UpdateStreamRecordDistributionStrategy(Request, frozen=True, kw_only=True, rename="pascal"):
    record_distribution_strategy: str | None = None


class DeleteStream(Request, frozen=True, kw_only=True, rename="pascal"):
    enforce_consumer_deletion: bool | None = None


class DescribeLimits(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    pass


class DescribeStreamSummary(Request, frozen=True, kw_only=True, rename="pascal"):
    pass


class DescribeStream(Request, frozen=True, kw_only=True, rename="pascal"):
    limit: int | None = None
    exclusive_start_shard_id: str | None = None


class ListStreams(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    limit: int | None = None
    exclusive_start_stream_name: str | None = None


class ShardFilter(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    type: str | None = None
    shard_id: str | None = None
    timestamp_s: float | None = msgspec.field(default=None, name="Timestamp")


class ListShards(Request, frozen=True, kw_only=True, rename="pascal"):
    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: int | None = None
    stream_creation_timestamp_s: float | None = msgspec.field(
        default=None, name="StreamCreationTimestamp"
    )
    shard_filter: ShardFilter | None = None


class SplitShard(Request, frozen=True, kw_only=True, rename="pascal"):
    shard_to_split: str | None = None
    new_starting_hash_key: str | None = None


class MergeShards(Request, frozen=True, kw_only=True, rename="pascal"):
    shard_to_merge: str | None = None
    adjacent_shard_to_merge: str | None = None


class UpdateShardCount(Request, frozen=True, kw_only=True, rename="pascal"):
    target_shard_count: int | None = None
    scaling_type: str | None = None


class ChangeRetention(Request, frozen=True, kw_only=True, rename="pascal"):
    """IncreaseStreamRetentionPeriod and DecreaseStreamRetentionPeriod."""

    retention_period_hours: int | None = None


class PutRecord(Request, frozen=True, kw_only=True, rename="pascal"):
    data: bytes | None = None
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    sequence_number_for_ordering: str | None = None


class PutRecordsEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    data: bytes | None = None
    partition_key: str | None = None
    explicit_hash_key: str | None = None


class PutRecords(Request, frozen=True, kw_only=True, rename="pascal"):
    records: list[PutRecordsEntry] | None = None


class GetShardIterator(Request, frozen=True, kw_only=True, rename="pascal"):
    shard_id: str | None = None
    shard_iterator_type: str | None = None
    starting_sequence_number: str | None = None
    timestamp_s: float | None = msgspec.field(default=None, name="Timestamp")


class GetRecords(Request, frozen=True, kw_only=True, rename="pascal"):
    shard_iterator: str | None = None
    limit: int | None = None


class StreamConsumer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """DescribeStreamConsumer and DeregisterStreamConsumer.

    A consumer is named by its ARN, or by the stream's ARN and its own name.
    """

    stream_arn: str | None = msgspec.field(default=None, name="StreamARN")
    consumer_name: str | None = None
    consumer_arn: str | None = msgspec.field(default=None, name="ConsumerARN")


class RegisterStreamConsumer(Request, frozen=True, kw_only=True, rename="pascal"):
    consumer_name: str | None = None


class ListStreamConsumers(Request, frozen=True, kw_only=True, rename="pascal"):
    next_token: str | None = None
    max_results: int | None = None
    stream_creation_timestamp_s: float | None = msgspec.field(
        default=None, name="StreamCreationTimestamp"
    )


class StartingPosition(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    type: str | None = None
    sequence_number: str | None = None
    timestamp_s: float | None = msgspec.field(default=None, name="Timestamp")


class SubscribeToShard(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    consumer_arn: str | None = msgspec.field(default=None, name="ConsumerARN")
    shard_id: str | None = None
    starting_position: StartingPosition | None = None
