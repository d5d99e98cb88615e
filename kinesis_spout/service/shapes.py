"""Arguments and answers of the service's operations, from and to our types. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import msgspec

from kinesis_spout.errors import RequestRefusedError
from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
from state.position import Position, PositionKind
from state.sequence_number import SequenceNumber

_HOUR_MS = 3_600_000
_SUMMARY = "StreamDescriptionSummary"
_SUMMARY_BODY = "KinesisSpoutSummaryBody"


def service_time_ms(answer: dict[str, Any]) -> int | None:
    """The service's clock, from the `Date` header: ms since 1970, to the second. None without a
    readable header.
    """
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return None if date is None else _date_ms(date)
    except ValueError:
        return None


@lru_cache(maxsize=16)  # the answers of one second have the same date
def _date_ms(date: str) -> int:
    return milliseconds(parsedate_to_datetime(date))


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970; a moment without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


def iterator_arguments(position: Position) -> dict[str, Any]:
    """The arguments of GetShardIterator for a position. Raises `RequestRefusedError` for
    SHARD_END.
    """
    sequence = position.sequence
    if position.timestamp_ms is not None:
        return {
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": datetime.fromtimestamp(position.timestamp_ms / 1_000, UTC),
        }
    if sequence is not None:
        # Within a KPL aggregate the whole record must be read again: the service knows only whole
        # records.
        past = position.kind is PositionKind.AFTER and not sequence.sub
        kind = "AFTER_SEQUENCE_NUMBER" if past else "AT_SEQUENCE_NUMBER"
        return {"ShardIteratorType": kind, "StartingSequenceNumber": str(sequence.sequence)}
    if position.is_end:
        raise RequestRefusedError(
            "position SHARD_END has no iterator: there is nothing more to read there"
        )
    return {"ShardIteratorType": "TRIM_HORIZON"}


def iterator_in(answer: dict[str, Any]) -> str:
    """The iterator in an answer to GetShardIterator."""
    iterator: str = answer["ShardIterator"]
    return iterator


def keep_summary_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """A hook of botocore before it parses DescribeStreamSummary. Its parser drops what its own
    description of the service does not have: of one from before 2026 the record distribution
    strategy, and before October 2025 the maximum record size.
    """
    if response_dict["status_code"] < 300:
        customized_response_dict[_SUMMARY_BODY] = response_dict["body"]


def stream_summary(answer: dict[str, Any]) -> StreamSummary:
    """The summary in an answer to DescribeStreamSummary: its times as botocore parses them, and all
    that the service has written. Raises KeyError, TypeError or ValueError for an incomplete one.
    """
    summary: dict[str, Any] = answer[_SUMMARY]
    body = answer.get(_SUMMARY_BODY)
    if body is not None:
        summary = msgspec.json.decode(body)[_SUMMARY] | summary
    largest_kib = summary.get("MaxRecordSizeInKiB")
    mode = summary.get("StreamModeDetails", {}).get("StreamMode")
    return StreamSummary(
        arn=summary["StreamARN"],
        name=summary["StreamName"],
        created_ms=milliseconds(summary["StreamCreationTimestamp"]),
        status=summary["StreamStatus"],
        retention_ms=summary["RetentionPeriodHours"] * _HOUR_MS,
        service_time_ms=service_time_ms(answer),
        max_record_bytes=None if largest_kib is None else largest_kib * 1024,
        ignores_keys=summary.get("RecordDistributionStrategy") == "AUTO",
        # Streams on demand alone have a strategy, and an emulator may not say which.
        may_have_ignored_keys="RecordDistributionStrategy" in summary or mode == "ON_DEMAND",
        mode=mode,
        open_shards=summary.get("OpenShardCount"),
        encryption_key=summary.get("KeyId", "its key")
        if summary.get("EncryptionType") == "KMS"
        else None,
    )


def shard_page(answer: dict[str, Any]) -> tuple[list[ShardInfo], str | None]:
    """One page of ListShards, and the token of the next page. Raises KeyError for an answer without
    a list of shards.
    """
    return [_shard_info(listed) for listed in answer["Shards"]], answer.get("NextToken") or None


def _shard_info(listed: dict[str, Any]) -> ShardInfo:
    """One entry of a ListShards answer."""
    hash_keys, sequences = listed["HashKeyRange"], listed["SequenceNumberRange"]
    ending = sequences.get("EndingSequenceNumber")
    return ShardInfo(
        shard_id=listed["ShardId"],
        parents=tuple(
            listed[name] for name in ("ParentShardId", "AdjacentParentShardId") if listed.get(name)
        ),
        hash_key_range=(int(hash_keys["StartingHashKey"]), int(hash_keys["EndingHashKey"])),
        starting_sequence=SequenceNumber.parse(sequences["StartingSequenceNumber"]),
        ending_sequence=None if ending is None else SequenceNumber.parse(ending),
    )
