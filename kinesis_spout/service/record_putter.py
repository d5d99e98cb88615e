"""Putting records on a stream with PutRecords, within its limits. Refused records are put again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.faults import meaning_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.config import AwsConfig, StreamRef
    from kinesis_spout.errors import KinesisError

_T = TypeVar("_T")

# API reference, PutRecords: 500 records. The service accepts 10 MiB today, emulators and older
# endpoints 5 MiB.
REQUEST_RECORDS = 500
REQUEST_BYTES = 5 * 1024 * 1024
_REST_WAIT_S = (0.1, 1.0)
_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to put. Its repr shows neither key nor data."""

    partition_key: str = field(repr=False)
    data: bytes = field(repr=False)
    explicit_hash_key: str | None = field(default=None, repr=False)

    @property
    def size_bytes(self) -> int:
        """The size that the service counts: data and key."""
        return len(self.data) + len(self.partition_key.encode())


class PutResult(NamedTuple):
    """The outcome of one record of a request: the shard that took it, or the error code with which
    it was refused.
    """

    shard_id: str | None
    error_code: str | None


Accepted = Callable[[OutgoingRecord, str | None], object]


class RecordPutter:
    """Puts records on one stream. At least once: the records of a lost answer are put again. Not in
    order.

    `put` and `put_once` block on the network, may be called from many threads, and raise
    `KinesisError`. Transient faults are retried, at most `max_attempts` times and for `retry_for_s`
    seconds without any record being accepted. The constructor only keeps its arguments.
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

    def put(
        self, records: Iterable[OutgoingRecord], accepted: Accepted = lambda _record, _shard: None
    ) -> int:
        """Put all records, and return how many there were. When this raises, any of them may have
        been put. `accepted` gets each record that was put, and the id of its shard.
        """
        count = 0
        for request in in_requests(records):
            self._put_request(request, accepted)
            count += len(request)
        return count

    def put_once(self, records: Sequence[OutgoingRecord]) -> list[PutResult]:
        """Put the records of one request, which the caller keeps within the limits, and return the
        outcome of each, in their order. A refused record is the caller's to put again.

        Only a request that fails as a whole is repeated. Raises the error of a refusal that a
        repetition does not mend, such as a missing permission for the stream's key.
        """
        return self._request(records, _results)

    @property
    def where(self) -> str:
        """The stream and its endpoint or region, for messages."""
        return self._connection.where

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones."""
        self._connection.close()

    def _put_request(self, waiting: Sequence[OutgoingRecord], accepted: Accepted) -> None:
        while waiting := self._put_some(waiting, accepted):
            self._clock.sleep(self._random.uniform(*_REST_WAIT_S))

    def _put_some(
        self, waiting: Sequence[OutgoingRecord], accepted: Accepted
    ) -> list[OutgoingRecord]:
        """Put the records once. The stream accepts at least one of them; returns the others."""
        refused = []
        for record, result in self._request(waiting, partial(self._some_accepted, waiting)):
            if result.error_code is None:
                accepted(record, result.shard_id)
            else:
                refused.append(record)
        return refused

    def _request(
        self, records: Sequence[OutgoingRecord], understand: Callable[[dict[str, Any]], _T]
    ) -> _T:
        arguments = self._connection.stream_argument() | {
            "Records": [_entry(record) for record in records]
        }
        return self._connection.call("put_records", arguments, understand)

    def _some_accepted(
        self, waiting: Sequence[OutgoingRecord], answer: dict[str, Any]
    ) -> list[tuple[OutgoingRecord, PutResult]]:
        """The records with their outcomes. Raises the error of the first code when all are
        refused.
        """
        outcomes = list(zip(waiting, _results(answer), strict=True))
        if any(result.error_code is None for _, result in outcomes):
            return outcomes
        raise refusal(str(outcomes[0][1].error_code), self.where)


def refusal(code: str, where: str) -> KinesisError:
    """The error of a request of which no record was accepted, by the code of one of them."""
    kind, advice = meaning_of(code, 400, operation="PutRecords")
    return kind(f"no record was accepted by {where} ({code}); {advice}")


def _entry(record: OutgoingRecord) -> dict[str, Any]:
    entry: dict[str, Any] = {"Data": record.data, "PartitionKey": record.partition_key}
    if record.explicit_hash_key is not None:
        entry["ExplicitHashKey"] = record.explicit_hash_key
    return entry


def _results(answer: dict[str, Any]) -> list[PutResult]:
    return [PutResult(entry.get("ShardId"), entry.get("ErrorCode")) for entry in answer["Records"]]


def in_requests(records: Iterable[OutgoingRecord]) -> Iterator[list[OutgoingRecord]]:
    """The records in lists that fit into one request each. A record that is too large by itself is
    alone in its list.
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
