"""Starting positions, which GetShardIterator and SubscribeToShard share (API reference)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing.errors import invalid_argument
from kinesis_spout.testing.service import constraints
from kinesis_spout.testing.stream.sequence_number import SequenceParts

if TYPE_CHECKING:
    from kinesis_spout.testing.service import requests
    from kinesis_spout.testing.stream.shard import Shard
    from kinesis_spout.testing.stream.stream import Stream

POSITION_TYPES = (
    "TRIM_HORIZON",
    "LATEST",
    "AT_TIMESTAMP",
    "AT_SEQUENCE_NUMBER",
    "AFTER_SEQUENCE_NUMBER",
)


def position_of(start: requests.StartingPosition, stream: Stream, shard: Shard, now_ms: int) -> int:
    """The sequence number where reading starts. Members that the type does not need are ignored.

    The first record with that number or a higher one comes first. Raises `ServiceError`.
    """
    if start.type == "TRIM_HORIZON":
        return shard.starting_sequence
    if start.type == "LATEST":
        return shard.tip
    if start.type == "AT_TIMESTAMP":
        return _position_of_time(start.timestamp_s, shard, now_ms)
    if start.sequence_number is None:
        raise invalid_argument(
            "Must either specify timestampInMillis or startingSequenceNumber with iterator type "
            f"{start.type}."
        )
    sequence = constraints.sequence_number_text("startingSequenceNumber", start.sequence_number)
    _check_sequence(sequence, stream, shard)
    return sequence + (start.type == "AFTER_SEQUENCE_NUMBER")


def _position_of_time(timestamp_s: float | None, shard: Shard, now_ms: int) -> int:
    if timestamp_s is None:
        raise invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. Current "
            "request has no timestamp."
        )
    timestamp_ms = round(timestamp_s * 1000)
    if timestamp_ms > now_ms:
        raise invalid_argument(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {timestamp_ms}, currentTimestampInMillis: {now_ms}"
        )
    return shard.position_of_time(timestamp_ms)


def _check_sequence(sequence: int, stream: Stream, shard: Shard) -> None:
    """Refuse a number of another shard or stream.

    Whether such a record exists, or ever existed, does not matter.
    """
    parts = SequenceParts.of(sequence)
    used = (
        f"StartingSequenceNumber {sequence} used in GetShardIterator on shard {shard.shard_id} in "
        f"stream {stream.name}"
    )
    if parts is None or parts.shard_created_s < stream.created_ms // 1000:
        raise invalid_argument(f"{used} is invalid because it did not come from this stream.")
    if parts.shard_index != shard.index or parts.shard_created_s != shard.created_s:
        raise invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes shardId-{parts.shard_index:012d}, "
            f"while it was used in a call to a shard with {shard.shard_id}"
        )
