"""Sink that puts dead letters on another Kinesis stream, from the executors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import AwsConfig, StreamRef, nearest_name
from kinesis_spout.dead_letter.outgoing import envelopes, payload_records
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter
from kinesis_spout.service.surroundings import for_executors
from spark_job.dead_letter.spark_files import letter_of, with_plain_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from kinesis_spout.dead_letter.letter import Letter

# Data and key of a record that every stream takes (API reference of UpdateMaxRecordSize).
ANY_STREAM_BYTES = 1024 * 1024


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
                "DeadLetter.to_stream: the stream is not a string",
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
        with_plain_times(letters).foreachPartition(sink.put)

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
