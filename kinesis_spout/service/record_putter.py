"""Putting records on a stream with PutRecords, within its limits. Refused records are put again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesis_spout.errors import RequestRefusedError
from kinesis_spout.service.faults import meaning_of
from kinesis_spout.service.wire import RAW_BODY
from state.collections import in_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.service.client import KinesisClient

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


class Entry(msgspec.Struct, gc=False, rename="pascal", omit_defaults=True):
    """A record in a request."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class PutResult(msgspec.Struct, gc=False, rename="pascal"):
    """The outcome of one record of a request: the shard that took it and its sequence number, or
    the error code with which it was refused.
    """

    shard_id: str | None = None
    error_code: str | None = None
    sequence_number: str | None = None


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[PutResult]


_decode = msgspec.json.Decoder(_Answer).decode


class RecordPutter:
    """Puts records on the stream of a client. At least once: the records of a lost answer are
    put again. Not in order.

    All that puts blocks on the network, may be called from many threads, and raises `KinesisError`.
    Transient faults are retried for the client's `retry_for_s` seconds without any record being
    accepted. Closing it closes the client.
    """

    def __init__(self, client: KinesisClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"RecordPutter({self.where})"

    @property
    def where(self) -> str:
        """The stream and its endpoint or region, for messages."""
        return self._client.where

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones."""
        self._client.close()

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
                self._client.clock.sleep(self._client.random.uniform(*_REST_WAIT_S))
        return count

    def _put_some(self, waiting: list[OutgoingRecord], accepted: Accepted) -> list[OutgoingRecord]:
        """Put the records once, and return those that are refused, at least one fewer. When all
        are, the error of the first code is retried as that of a request, and raised in the end.
        """

        def any_accepted(results: list[PutResult]) -> None:
            if all(result.error_code is not None for result in results):
                raise refusal(str(results[0].error_code), self.where)

        results = self._request(list(map(_entry, waiting)), any_accepted)
        refused = []
        for record, result in zip(waiting, results, strict=True):
            if result.error_code is None:
                accepted(record, result.shard_id)
            else:
                refused.append(record)
        return refused

    def put_once(self, records: Sequence[OutgoingRecord]) -> list[PutResult]:
        """Put the records of one request, which the caller keeps within the limits, and return the
        outcome of each, in their order. A refused record is the caller's to put again.

        Only a request that fails as a whole is repeated. Raises the error of a refusal that a
        repetition does not mend, such as a missing permission for the stream's key.
        """
        return self._request(list(map(_entry, records)))

    def put_columns(self, columns: OutgoingColumns) -> dict[int, str]:
        """As `put_once`, with no result for each record. Returns the error codes of the refused
        records, by their index.
        """
        hash_keys = columns.explicit_hash_keys or repeat(None)
        entries = list(map(Entry, columns.datas, columns.partition_keys, hash_keys))
        return {
            index: result.error_code
            for index, result in enumerate(self._request(entries))
            if result.error_code is not None
        }

    def _request(
        self,
        entries: list[Entry],
        check: Callable[[list[PutResult]], None] = lambda _results: None,
    ) -> list[PutResult]:
        """`check` raises the error for which the whole request is repeated."""

        def understood(answer: dict[str, Any]) -> list[PutResult]:
            try:
                results = _decode(answer[RAW_BODY]).records
            except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                raise ValueError("the PutRecords response has no results for the records") from exc
            if len(results) != len(entries):
                raise ValueError(
                    "the number of results in the PutRecords response differs from the number of "
                    "records in the request"
                )
            check(results)
            return results

        arguments = self._client.stream_argument() | {"Records": entries}
        return self._client.call("put_records", arguments, understood)


def put_apart(
    put: Callable[[list[OutgoingRecord], Accepted], object],
    records: Sequence[OutgoingRecord],
    accepted: Accepted,
) -> Iterator[tuple[OutgoingRecord, RequestRefusedError]]:
    """Put the records with `put`, and yield those at fault: when the service refuses a request,
    the request is halved until only these are left. Raises any other `KinesisError` of `put`.
    """
    waiting = {id(record): record for record in records}

    def on_put(record: OutgoingRecord, shard_id: str | None) -> None:
        del waiting[id(record)]
        accepted(record, shard_id)

    try:
        put(list(records), on_put)
    except RequestRefusedError as exc:
        rest = list(waiting.values())
        if len(rest) == 1:
            yield rest[0], exc
            return
    else:
        return
    half = len(rest) // 2
    for part in filter(None, (rest[:half], rest[half:])):
        yield from put_apart(put, part, accepted)


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
    return in_batches(
        records, attrgetter("size_bytes"), most=REQUEST_RECORDS, most_bytes=REQUEST_BYTES
    )
