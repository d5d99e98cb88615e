"""Sink that puts dead letters on another Kinesis stream, from the executors; and what is put of a
letter: its payload alone, so that readers which unpack aggregates get all of it, or all as JSON.
"""

from __future__ import annotations

import base64
import json
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import AwsConfig, StreamRef, nearest_name
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter
from kinesis_spout.service.surroundings import for_executors
from scheme.record import is_kpl_aggregate
from spark_job.dead_letter.letter import Letter, letter_of, letters_with_plain_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame

# Data and key of a record that every stream takes (API reference of UpdateMaxRecordSize).
ANY_STREAM_BYTES = 1024 * 1024
# Payload bytes in one JSON object. In base64 and with the other members it stays below that.
PART_BYTES = 700_000


@dataclass(frozen=True, slots=True)
class StreamSink:
    """The stream, the connection, and whether the value is the bare payload."""

    stream: StreamRef
    aws: AwsConfig
    payload_only: bool

    @classmethod
    def of(cls, stream: str, *, payload_only: bool, aws: Mapping[str, Any]) -> StreamSink:
        """Check the arguments. Raises `ConfigError`."""
        known = [field.name for field in fields(AwsConfig)]
        for name in aws:
            if name not in known:
                nearest = nearest_name(name, known)
                hint = (
                    f"did you mean {nearest}?" if nearest else f"the options are {', '.join(known)}"
                )
                raise ConfigError(f"DeadLetter.to_stream: option {name} is not known", hint)
        if not isinstance(stream, str):
            raise ConfigError(
                "DeadLetter.to_stream: the stream is not named by a text",
                "give its name or its ARN",
            )
        ref = StreamRef.of(stream)
        config = AwsConfig(**aws)
        ref.region_or(config.region)
        return cls(ref, config, payload_only)

    def __str__(self) -> str:
        return f"stream {self.stream}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # message ids identify repetitions
        # The executors have neither the driver's files nor its environment.
        sink = replace(self, aws=for_executors(self.aws, self.stream))
        letters_with_plain_times(letters).foreachPartition(sink.put)

    def put(self, rows: Iterable[Any]) -> None:
        """Put rows of letters. Runs on an executor.

        Blocks until the stream has accepted all of them. Raises `KinesisError`.
        """
        with closing(KinesisConnection(self.aws, self.stream, answered_before=True)) as connection:
            putter = RecordPutter(connection)
            letters = map(letter_of, rows)
            putter.put(
                record for letter in letters for record in self.records_of(letter, self._takes)
            )

    def records_of(
        self, letter: Letter, takes: Callable[[OutgoingRecord], bool]
    ) -> Iterator[OutgoingRecord]:
        """The records that a letter becomes on the stream. `takes`: whether the stream takes a
        record of this size. The key of an envelope is as in `payload_records`.
        """
        if self.payload_only and letter.data is not None:
            bare = payload_records(letter)
            if all(map(takes, bare)):
                yield from bare
                return
        for value in envelopes(letter):
            yield OutgoingRecord(letter.partition_key or letter.message_id, value)

    def _takes(self, record: OutgoingRecord) -> bool:
        """Calls the service for a record that not every stream takes."""
        if record.size_bytes <= ANY_STREAM_BYTES:
            return True
        with closing(KinesisClient(self.aws, self.stream)) as client:
            most_bytes = client.describe().max_record_bytes or ANY_STREAM_BYTES
        return record.size_bytes <= most_bytes

    def without_secrets(self, text: str) -> str:
        return text  # the errors of the client hold no secrets


def payload_records(letter: Letter) -> list[OutgoingRecord]:
    """The records to put of a letter that has a payload: one, or the user records of an aggregate.

    The service requires a partition key, unless the stream's record distribution strategy is AUTO.
    A letter without one is put under its message id.

    An aggregate under the letter's key would come to a shard that owns few of its user records, and
    readers leave out the others. So it is put as its user records, unless the letter says that it
    was one itself, in another aggregate: then it is put as that.
    """
    key, data = letter.partition_key or letter.message_id, letter.data
    if data is None:
        raise ValueError(f"the letter of {letter.message_id} has no payload to put")
    if not is_kpl_aggregate(data):
        return [OutgoingRecord(key, data)]
    # protobuf and numpy are loaded where the first aggregate is met.
    from kinesis_spout.aggregation.hash_range import UserRecord  # noqa: PLC0415
    from kinesis_spout.aggregation.packing import alone  # noqa: PLC0415
    from kinesis_spout.aggregation.user_records import unpacked  # noqa: PLC0415

    users = unpacked(data) if letter.sub_sequence_number is None else None
    if users is None:
        users = [UserRecord(key, data)]
    packed = (alone(user._replace(partition_key=user.partition_key or key)) for user in users)
    return [
        OutgoingRecord(user.partition_key, user.data, user.explicit_hash_key) for user in packed
    ]


def envelopes(letter: Letter) -> list[bytes]:
    """The letter as JSON objects, several if its payload needs that.

    Several objects are numbered by their members `part` (from 1) and `parts`.
    """
    members: dict[str, object] = {
        "messageId": letter.message_id,
        "streamName": letter.stream_name,
        "shardId": letter.shard_id,
        "sequenceNumber": letter.sequence_number,
        "subSequenceNumber": letter.sub_sequence_number,
        "partitionKey": letter.partition_key,
        "data": None,
        "approximateArrivalTimestamp": _iso(letter.approximate_arrival),
        "attempts": letter.attempts,
        "firstFailure": _iso(letter.first_failure),
        "lastFailure": _iso(letter.last_failure),
        "reason": letter.reason,
        "application": letter.application,
    }
    if letter.data is None:
        return [_json(members)]
    # An empty payload is one empty part, and not a letter without a payload.
    starts = range(0, len(letter.data), PART_BYTES) or range(1)
    values = []
    for number, start in enumerate(starts, start=1):
        part = letter.data[start : start + PART_BYTES]
        value = members | {"data": base64.b64encode(part).decode("ascii")}
        if len(starts) > 1:
            value |= {"part": number, "parts": len(starts)}
        values.append(_json(value))
    return values


def _json(members: dict[str, object]) -> bytes:
    # A reason may hold half of a surrogate pair, which UTF-8 cannot encode: hence `replace`.
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", errors="replace"
    )


def _iso(moment: datetime | None) -> str | None:
    return (
        None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
