"""Putting records on a stream with PutRecords, within its limits. Refused records are put again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kinesis_spout.service.faults import meaning_of
from kinesis_spout.service.wire import Entry, PutResult, refusals, results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.service.botocore_connection import KinesisConnection

_T = TypeVar("_T")

# API reference, PutRecords: 500 records. The service accepts 10 MiB today, emulators and older
# endpoints 5 MiB.
REQUEST_RECORDS = 500
REQUEST_BYTES = 5 * 1024 * 1024
_REST_WAIT_S = (0.1, 1.0)


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to put. Its repr shows neither key nor data."""

    partition_key: str = field(repr=False)
    data: bytes = field(repr=False)
    explicit_hash_key: str | None = field(default=None, repr=False)

    @property
    def size_bytes(self) -> int:
        """The size that the service counts: data and key."""
        key = self.partition_key
        return len(self.data) + (len(key) if key.isascii() else len(key.encode()))


class OutgoingColumns(NamedTuple):
    """Records to put, in columns of one length. `explicit_hash_keys`: None if no record has one."""

    partition_keys: list[str]
    datas: list[bytes]
    explicit_hash_keys: list[str | None] | None

    def record(self, index: int) -> OutgoingRecord:
        hash_keys = self.explicit_hash_keys
        return OutgoingRecord(
            self.partition_keys[index],
            self.datas[index],
            None if hash_keys is None else hash_keys[index],
        )

    def records(self) -> Iterator[OutgoingRecord]:
        return map(self.record, range(len(self.datas)))


Accepted = Callable[[OutgoingRecord, str | None], object]


class RecordPutter:
    """Puts records on the stream of a connection. At least once: the records of a lost answer are
    put again. Not in order.

    `put` and `put_once` block on the network, may be called from many threads, and raise
    `KinesisError`. Transient faults are retried for the connection's `retry_for_s` seconds without
    any record being accepted. A `KinesisClient` may share the connection; who closes either, closes
    both.
    """

    def __init__(self, connection: KinesisConnection) -> None:
        self._connection = connection

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
            count += len(request)
            waiting = request
            while waiting := self._put_some(waiting, accepted):
                self._connection.clock.sleep(self._connection.random.uniform(*_REST_WAIT_S))
        return count

    def put_once(self, records: Sequence[OutgoingRecord]) -> list[PutResult]:
        """Put the records of one request, which the caller keeps within the limits, and return the
        outcome of each, in their order. A refused record is the caller's to put again.

        Only a request that fails as a whole is repeated. Raises the error of a refusal that a
        repetition does not mend, such as a missing permission for the stream's key.
        """
        return self._request([_entry(record) for record in records], results)

    def put_columns(self, columns: OutgoingColumns) -> dict[int, str]:
        """As `put_once`, with no object for each record. Returns the error codes of the refused
        records, by their index.
        """
        hash_keys = columns.explicit_hash_keys or repeat(None)
        entries = list(map(Entry, columns.datas, columns.partition_keys, hash_keys))
        return self._request(entries, refusals)

    @property
    def where(self) -> str:
        """The stream and its endpoint or region, for messages."""
        return self._connection.where

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones."""
        self._connection.close()

    def _put_some(self, waiting: list[OutgoingRecord], accepted: Accepted) -> list[OutgoingRecord]:
        """Put the records once, and return those that are refused, at least one fewer. When all
        are, the error of the first code is retried as that of a request, and raised in the end.
        """

        def understand(answer: dict[str, Any], count: int) -> list[PutResult]:
            outcomes = results(answer, count)
            if any(result.error_code is None for result in outcomes):
                return outcomes
            raise refusal(str(outcomes[0].error_code), self.where)

        outcomes = self._request([_entry(record) for record in waiting], understand)
        refused = []
        for record, result in zip(waiting, outcomes, strict=True):
            if result.error_code is None:
                accepted(record, result.shard_id)
            else:
                refused.append(record)
        return refused

    def _request(self, entries: list[Entry], understand: Callable[[dict[str, Any], int], _T]) -> _T:
        arguments = self._connection.stream_argument() | {"Records": entries}
        return self._connection.call(
            "put_records", arguments, lambda answer: understand(answer, len(entries))
        )


def refusal(code: str, where: str) -> KinesisError:
    """The error of a record that was not accepted, by its code."""
    kind, advice = meaning_of(code, 400, operation="PutRecords")
    return kind(f"{where} refuses a record ({code})", advice)


def _entry(record: OutgoingRecord) -> Entry:
    return Entry(record.data, record.partition_key, record.explicit_hash_key)


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
