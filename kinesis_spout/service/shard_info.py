"""A stream and its shards, as the service describes and lists them; its limits of a call; which
shard a record belongs to by its hash key. Pure.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from state.sequence_number import SequenceNumber
from state.store.identity import StreamIdentity

# API reference, GetRecords and GetShardIterator.
MAX_RECORDS_PER_CALL = 10_000
MAX_BYTES_PER_CALL = 10 * 1024 * 1024
ITERATOR_LIFE_S = 240.0  # less than the service's 5 minutes
HOUR_MS = 3_600_000
_SUMMARY = "StreamDescriptionSummary"
_SUMMARY_BODY = "KinesisSpoutSummaryBody"


def service_time_ms(answer: dict[str, Any]) -> int | None:
    """The service's clock, from the `Date` header: ms since 1970, to the second. None without a
    readable header.
    """
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return None if date is None else milliseconds(parsedate_to_datetime(date))
    except ValueError:
        return None


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970; a moment without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """The identity, status and retention of a stream.

    - `created_ms` (ms since 1970) and `arn` identify it: a stream that was deleted and created
      again has another creation time.
    - `service_time_ms`: the service's clock when it answered, to the second; None if the answer has
      no date.
    - `max_record_bytes`: the largest record that may be put, with its key; None if the answer does
      not say.
    - `ignores_keys`: its record distribution strategy is AUTO, so a record may have no partition
      key, and one that it has decides nothing.
    - `may_have_ignored_keys`: it has a record distribution strategy, as streams on demand have.
      That may be AUTO today, or may have been when a record was put, so no record is in a shard
      because of its key.
    - `mode`: `PROVISIONED` or `ON_DEMAND`; None if the answer does not say. So are the next two.
    - `open_shards`: how many shards are open.
    - `encryption_key`: the key that its records are encrypted with, None for a stream that is not
      encrypted.
    """

    arn: str
    name: str
    created_ms: int
    status: str
    retention_ms: int
    service_time_ms: int | None
    max_record_bytes: int | None = None
    ignores_keys: bool = False
    may_have_ignored_keys: bool = False
    mode: str | None = None
    open_shards: int | None = None
    encryption_key: str | None = None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> StreamSummary:
        """From an answer to DescribeStreamSummary: its times as botocore parses them, and all that
        the service has written (`keep_summary_body`). Raises KeyError, TypeError or ValueError for
        an incomplete one.
        """
        summary: dict[str, Any] = answer[_SUMMARY]
        body = answer.get(_SUMMARY_BODY)
        if body is not None:
            summary = msgspec.json.decode(body)[_SUMMARY] | summary
        largest_kib = summary.get("MaxRecordSizeInKiB")
        mode = summary.get("StreamModeDetails", {}).get("StreamMode")
        return cls(
            arn=summary["StreamARN"],
            name=summary["StreamName"],
            created_ms=milliseconds(summary["StreamCreationTimestamp"]),
            status=summary["StreamStatus"],
            retention_ms=summary["RetentionPeriodHours"] * HOUR_MS,
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

    @property
    def identity(self) -> StreamIdentity:
        return StreamIdentity(
            arn=self.arn,
            name=self.name,
            created_ms=self.created_ms,
            retention_ms=self.retention_ms,
        )

    def now_ms(self, local_ms: int) -> int:
        """The service's time when it answered; `local_ms`, the caller's, if the answer has no
        date.
        """
        return local_ms if self.service_time_ms is None else self.service_time_ms


def keep_summary_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """A hook of botocore before it parses DescribeStreamSummary. Its parser drops what its own
    description of the service does not have: of one from before 2026 the record distribution
    strategy, and before October 2025 the maximum record size.
    """
    if response_dict["status_code"] < 300:
        customized_response_dict[_SUMMARY_BODY] = response_dict["body"]


HASH_KEYS = 2**128
IS_OWNED = "isOwned"
"""The column of unpacked records that says whether they belong to their shard."""
_HASH_BYTES = 16
_DECIMAL = re.compile(rb"[0-9]{1,39}")


class HashRange(NamedTuple):
    """The hash keys of a shard, inclusive at both ends."""

    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether it has every hash key: of a stream with one shard."""
        return self.first <= 0 and self.last >= HASH_KEYS - 1

    def owns(self, hash_key: int) -> bool:
        return self.first <= hash_key <= self.last

    def owns_keys(self, partition_keys: list[bytes]) -> list[bool]:
        """For each partition key, in UTF-8, whether its records belong to the shard."""
        # Digests compare as the numbers do: they have one length, the highest byte first.
        first = max(self.first, 0).to_bytes(_HASH_BYTES, "big")
        last = min(self.last, HASH_KEYS - 1).to_bytes(_HASH_BYTES, "big")
        is_owned = {  # keys are often those of several records
            key: first <= hashlib.md5(key, usedforsecurity=False).digest() <= last
            for key in set(partition_keys)
        }
        return [is_owned[key] for key in partition_keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard of a listing.

    - `ending_sequence`: of a closed shard, at or above its last record; None for an open shard.
      Emulators list odd values. `last_sequence` is the one to read up to.
    """

    shard_id: str
    parents: tuple[str, ...]
    hash_key_range: HashRange
    starting_sequence: SequenceNumber
    ending_sequence: SequenceNumber | None

    @classmethod
    def of(cls, listed: dict[str, Any]) -> ShardInfo:
        """From an entry of an answer to ListShards. Raises KeyError or ValueError for an incomplete
        one.
        """
        hash_keys, sequences = listed["HashKeyRange"], listed["SequenceNumberRange"]
        parents = (listed.get(name) for name in ("ParentShardId", "AdjacentParentShardId"))
        ending = sequences.get("EndingSequenceNumber")
        return cls(
            shard_id=listed["ShardId"],
            parents=tuple(filter(None, parents)),
            hash_key_range=HashRange(
                int(hash_keys["StartingHashKey"]), int(hash_keys["EndingHashKey"])
            ),
            starting_sequence=SequenceNumber.parse(sequences["StartingSequenceNumber"]),
            ending_sequence=None if ending is None else SequenceNumber.parse(ending),
        )

    @property
    def is_closed(self) -> bool:
        return self.ending_sequence is not None

    @property
    def last_sequence(self) -> SequenceNumber | None:
        """The number at which a closed shard was read to its end; None if there is none. A number
        below the shard's start would take the first page for the last one.
        """
        ending = self.ending_sequence
        return None if ending is None or ending < self.starting_sequence else ending


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """The hash key of a record, 0 to 2^128 - 1: the explicit one, or the MD5 of its partition key.
    Raises `ValueError` for an explicit one that is no such number.
    """
    if explicit_hash_key is None:
        digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest, "big")
    hash_key = explicit_hash_key_in(explicit_hash_key.encode())
    if hash_key is None:
        raise ValueError("use a decimal number below 2^128 as the explicit hash key")
    return hash_key


def explicit_hash_key_in(text: bytes) -> int | None:
    """The number in an aggregate's table of explicit hash keys; None where the text is none."""
    hash_key = int(text) if _DECIMAL.fullmatch(text) else HASH_KEYS
    return hash_key if hash_key < HASH_KEYS else None
