"""Puts records on a stream: in requests of the size that the service takes, what was refused again
until it is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.service.connection import KinesisConnection
from kinesis_spout.service.faults import meaning_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.config import AwsConfig, StreamRef

# API reference, PutRecords: 500 records; the service takes 10 MiB by now, emulators and older
# endpoints 5.
REQUEST_RECORDS = 500
REQUEST_BYTES = 5 * 1024 * 1024
_REST_WAIT_S = (0.1, 1.0)
_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to be put. Its repr shows neither key nor data."""

    partition_key: str = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """As the service counts it: the data and the key."""
        return len(self.data) + len(self.partition_key.encode())


class RecordPutter:
    """Puts records on one stream. At least once: where an answer got lost, its records are put
    again. Not in order.

    `put` blocks on the network, may be called from many threads, and raises `KinesisError`.
    Transient faults are tried again, at most `max_attempts` times and for `retry_for_s` seconds
    without a single record being taken. The constructor does nothing but keep its arguments.
    """

    def __init__(
        self,
        aws: AwsConfig,
        stream: StreamRef,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        max_attempts: int = 8,
        retry_for_s: float = 60,
        random: Random | None = None,
    ) -> None:
        self._clock = clock
        self._random = random or Random()  # noqa: S311  # jitter, not a secret
        self._connection = KinesisConnection(
            aws,
            stream,
            clock=clock,
            max_attempts=max_attempts,
            retry_for_s=retry_for_s,
            random=self._random,
        )

    def __repr__(self) -> str:
        return f"RecordPutter({self._connection.where})"

    def put(self, records: Iterable[OutgoingRecord]) -> int:
        """Put all records; returns how many there were. When it raises, any of them may have been
        put.
        """
        count = 0
        for request in in_requests(records):
            self._put_request(request)
            count += len(request)
        return count

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones."""
        self._connection.close()

    def _put_request(self, waiting: Sequence[OutgoingRecord]) -> None:
        while waiting := self._put_some(waiting):
            self._clock.sleep(self._random.uniform(*_REST_WAIT_S))

    def _put_some(self, waiting: Sequence[OutgoingRecord]) -> list[OutgoingRecord]:
        """Put what the stream takes now, at least one record; returns the others."""
        entries = [
            {"Data": record.data, "PartitionKey": record.partition_key} for record in waiting
        ]
        arguments = self._connection.stream_argument() | {"Records": entries}
        return self._connection.call("put_records", arguments, partial(self._refused, waiting))

    def _refused(
        self, waiting: Sequence[OutgoingRecord], answer: dict[str, Any]
    ) -> list[OutgoingRecord]:
        """The records that were not taken; raises what their first code means when none was."""
        codes = [entry.get("ErrorCode") for entry in answer["Records"]]
        refused = [record for record, code in zip(waiting, codes, strict=True) if code is not None]
        if len(refused) < len(waiting):
            return refused
        kind, advice = meaning_of(codes[0], 400, putting=True)
        raise kind(f"no record is taken by {self._connection.where} ({codes[0]}); {advice}")


def in_requests(records: Iterable[OutgoingRecord]) -> Iterator[list[OutgoingRecord]]:
    """The records in lists that fit into one request each; a record that is too large by itself
    stands alone.
    """
    request: list[OutgoingRecord] = []
    size_bytes = 0
    for record in records:
        if request and (
            len(request) == REQUEST_RECORDS or size_bytes + record.size_bytes > REQUEST_BYTES
        ):
            yield request
            request, size_bytes = [], 0
        request.append(record)
        size_bytes += record.size_bytes
    if request:
        yield request
