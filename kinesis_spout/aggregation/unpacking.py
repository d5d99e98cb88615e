"""Pages with aggregates as rows of their user records, in Arrow columns: nothing runs per user
record in Python.

The records of many aggregates are read side by side by numpy; protobuf parses only those that are
written in an unusual way. A payload that cannot be read as a whole is no aggregate, and stays the
record that it is: nothing of it is lost, and nothing is made up. So are

- a payload without a message, or with another checksum than its message's,
- a message that protobuf does not parse, or that lacks a required field,
- a user record whose key index is outside the table, or whose explicit hash key is no number below
  2^128,
- a partition key that Kinesis would refuse: not UTF-8, or longer than 256 characters can be.

The data of a user record is handed over as it is, also where it is an aggregate itself. An
aggregate may be without user records.

The KCL has these rules too (`AggregatorUtil.deaggregate` of awslabs/amazon-kinesis-client), but for
the last two of the list: there it logs an error, and drops this user record and those after it.
"""

from __future__ import annotations

import logging
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.service.get_records_decoder import array_of
from kinesis_spout.service.shard_info import IS_OWNED, explicit_hash_key_in
from scheme.record import KPL_MAGIC, SUB_SEQUENCE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from kinesis_spout.service.shard_info import HashRange

    Numbers = NDArray[np.int64]

log = logging.getLogger("kinesis_spout")
# What is unpacked at a time. A key of 1 KiB may be that of each row, so this bounds memory.
MAX_ROWS = 65_536
_SUB_FIELD = pa.field(SUB_SEQUENCE_NUMBER, pa.int64(), nullable=False)
_OWNED_FIELD = pa.field(IS_OWNED, pa.bool_(), nullable=False)
_FROM_AGGREGATE = ("data", "partitionKey")
_MAX_KEY_BYTES = 256 * 4  # API reference, PutRecordsRequestEntry: 256 characters
_NO_INDEX = -1
_PARTITION_KEY, _EXPLICIT_HASH_KEY, _DATA = 0x08, 0x10, 0x1A  # tags: field number and wire type
_MORE = 0x80  # in each byte of a varint but the last one
_MAX_VARINT = 5  # bytes that are read; an index or a length in an aggregate needs four
_PADDING = b"\0" * 32  # more than all that is before the data, so that no read is out of bounds


def has_candidates(records: pa.RecordBatch) -> bool:
    """Whether any record begins with the magic number. All others are certainly plain."""
    return bool(pc.starts_with(records.column("data"), KPL_MAGIC).true_count)


class Unpacker:
    """Unpacks the aggregates of one shard. For one thread.

    `hash_range` is called once, when the first aggregate is met. It may block on the service, and
    returns None where it does not know. A user record whose hash key is not in the range was packed
    for another shard, and a reshard has put its aggregate here. Its producer has put it again, so
    it is left out. `left_out` counts these, and the first of them are logged, as those of `place`;
    without a `place` nothing is logged.

    The KCL leaves all user records of such an aggregate out (`AggregatorUtil.deaggregate`), and the
    KPL puts those again that are outside the range (`Retrier::succeed_if_correct_shard`). So this
    leaves out what is put again, and no more.
    """

    def __init__(self, hash_range: Callable[[], HashRange | None], place: str = "") -> None:
        self._hash_range = cache(hash_range)
        self._place = place
        self.left_out = 0

    def unpack(
        self, records: pa.RecordBatch, *, keep_others: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The records with user records in the place of aggregates, in their order.

        `records` has the binary column `data` and the text column `partitionKey`. What an aggregate
        has in other columns, each of its user records has. The batches have the column
        `subSequenceNumber` in addition: counted from 0 in an aggregate, 0 for a plain record. They
        have bounded numbers of rows, and none is empty. Raises what `hash_range` raises.

        With `keep_others` no user record is left out. The batches have the column `IS_OWNED` in
        addition, with it false for those that are left out otherwise.

        Without a record that begins with the magic number, `records` itself is the only batch, and
        has no column in addition.
        """
        if not has_candidates(records):
            yield records
            return
        before = self.left_out
        for part, rows in _unpacked_rows(records, self._hash_range):
            kept = rows if keep_others else rows.owned()
            self.left_out += len(rows.parents) - len(kept.parents)
            yield from _batches(part, kept, with_owned=keep_others)
        if self._place and self.left_out and not before:
            log.warning(
                "%s: user records of aggregates are not delivered, because their hash keys "
                "belong to other shards (%d so far). The KPL puts these user records on the "
                "other shards again. This warning is logged once",
                self._place,
                self.left_out,
            )


class OpenAggregate(NamedTuple):
    """The tables of an aggregate, and its user records as they are encoded."""

    partition_keys: list[bytes]
    explicit_hash_keys: list[bytes]
    records: list[bytes]


class UserRecords(NamedTuple):
    """User records of some aggregates, in their order, also those that belong to other shards.

    - `is_aggregate`: for each aggregate that was given, whether it was read: one that is False is a
      plain record.
    - `is_owned`: for each record, whether it belongs to the shard.
    - `parents`: for each record, the index of its aggregate; `subs`: its number in there, from 0.
    - `data`: binary; record i has value `data_at[i]`. `keys`: text; record i has `keys_at[i]`.
    """

    is_aggregate: NDArray[np.bool_]
    is_owned: NDArray[np.bool_]
    parents: Numbers
    subs: Numbers
    data: pa.Array
    data_at: Numbers
    keys: pa.Array
    keys_at: Numbers

    def owned(self) -> UserRecords:
        """Those that belong to the shard."""
        if self.is_owned.all():
            return self
        return self._replace(
            is_owned=self.is_owned[self.is_owned],
            parents=self.parents[self.is_owned],
            subs=self.subs[self.is_owned],
            data_at=self.data_at[self.is_owned],
            keys_at=self.keys_at[self.is_owned],
        )


def _unpacked_rows(
    records: pa.RecordBatch, hash_range: Callable[[], HashRange | None]
) -> Iterator[tuple[pa.RecordBatch, UserRecords]]:
    """The parts of a page, and the rows of each: its user records, and its plain records as they
    are. `parents` are indices in the part. A part ends when its aggregates have `MAX_ROWS` records.
    """
    first = 0
    at: list[int] = []
    opened: list[OpenAggregate] = []
    rows = 0
    data = records.column("data")
    _, offsets, values = data.buffers()
    edges = memoryview(offsets).cast("i")[data.offset : data.offset + len(data) + 1]
    payloads = memoryview(values).cast("B")  # not copied
    for index in pc.indices_nonzero(pc.starts_with(data, KPL_MAGIC)).to_pylist():
        aggregate = open_aggregate(payloads[edges[index] : edges[index + 1]])
        if aggregate is None:
            continue
        at.append(index - first)
        opened.append(aggregate)
        rows += len(aggregate.records)
        if rows >= MAX_ROWS:
            part = records.slice(first, index + 1 - first)
            yield part, _with_plain_rows(part, at, _user_records(opened, hash_range()))
            first, at, opened, rows = index + 1, [], [], 0
    if first < records.num_rows:
        users = _user_records(opened, hash_range() if opened else None)
        part = records.slice(first)
        yield part, _with_plain_rows(part, at, users)


def _batches(
    part: pa.RecordBatch, rows: UserRecords, *, with_owned: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a part, `MAX_ROWS` at a time. Columns that are not of a user record have what the
    row's parent has.
    """
    for first in range(0, len(rows.parents), MAX_ROWS):
        at = slice(first, first + MAX_ROWS)
        parents = array_of(rows.parents[at], pa.int64())
        columns = {
            name: part.column(name).take(parents)
            for name in part.schema.names
            if name not in _FROM_AGGREGATE
        }
        columns["data"] = rows.data.take(array_of(rows.data_at[at], pa.int64()))
        columns["partitionKey"] = rows.keys.take(array_of(rows.keys_at[at], pa.int64()))
        schema = part.schema.append(_SUB_FIELD)
        arrays = [
            *(columns[name] for name in part.schema.names),
            array_of(rows.subs[at], pa.int64()),
        ]
        if with_owned:
            schema = schema.append(_OWNED_FIELD)
            flags = rows.is_owned[at]
            bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
            arrays.append(pa.Array.from_buffers(pa.bool_(), len(flags), [None, bits]))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_plain_rows(part: pa.RecordBatch, at: list[int], users: UserRecords) -> UserRecords:
    """The rows of a part in which the records with the indices `at` were given as aggregates."""
    rows_at = np.array(at, np.int64)
    is_plain = np.ones(part.num_rows, np.bool_)
    is_plain[rows_at[users.is_aggregate]] = False
    rows = users._replace(parents=rows_at[users.parents])
    if not is_plain.any():
        return rows
    plain = np.flatnonzero(is_plain)
    parents = np.concatenate((plain, rows.parents))
    order = np.argsort(parents, kind="stable")
    # The values of plain records come first, so those of user records begin after them.
    count = part.num_rows
    return rows._replace(
        is_owned=np.concatenate((np.ones(len(plain), np.bool_), rows.is_owned))[order],
        parents=parents[order],
        subs=np.concatenate((np.zeros_like(plain), rows.subs))[order],
        data=pa.concat_arrays([part.column("data"), rows.data]),
        data_at=np.concatenate((plain, rows.data_at + count))[order],
        keys=pa.concat_arrays([part.column("partitionKey"), rows.keys]),
        keys_at=np.concatenate((plain, rows.keys_at + count))[order],
    )


def open_aggregate(payload: memoryview) -> OpenAggregate | None:
    """The parts of a payload that begins with the magic number; None if it is no aggregate. Whether
    its parts are damaged is not known yet.
    """
    # protobuf is loaded where the first aggregate is met.
    from kinesis_spout.aggregation.message import Aggregate, message_in, parsed  # noqa: PLC0415

    message = message_in(payload)
    found = None if message is None else parsed(Aggregate, message)
    if found is None:
        return None
    return OpenAggregate(
        found.partition_key_table[:], found.explicit_hash_key_table[:], found.records[:]
    )


def _user_records(
    aggregates: Sequence[OpenAggregate | None], hash_range: HashRange | None
) -> UserRecords:
    """The records of these aggregates; None is a damaged one. Where the range is not known, all
    belong to the shard.
    """
    tables = _Tables.of(aggregates)
    scanned = _scan(tables.records)
    keys = _key_array(tables.partition_keys)
    if damaged := range(len(aggregates)) if keys is None else tables.damaged(scanned):
        mended = list(aggregates)
        for one in damaged:
            mended[one] = _mended(mended[one])
        return _user_records(mended, hash_range)  # all are regular now
    index = np.arange(len(scanned.begins), dtype=np.int64)
    return UserRecords(
        is_aggregate=np.array([one is not None for one in aggregates], np.bool_),
        is_owned=tables.are_owned(scanned, hash_range),
        parents=tables.aggregate,
        subs=index - tables.first_record[tables.aggregate],
        data=_data(scanned),
        data_at=index * 2 + 1,
        keys=keys,
        keys_at=scanned.partition_keys + tables.first_key[tables.aggregate],
    )


class _Tables(NamedTuple):
    """The records and keys of all aggregates one after the other, and where each one's begin.

    `aggregate`: for each record, the index of its aggregate.
    """

    records: list[bytes]
    partition_keys: list[bytes]
    explicit_hash_keys: list[int | None]
    first_record: Numbers
    first_key: Numbers
    first_explicit: Numbers
    aggregate: Numbers

    @classmethod
    def of(cls, aggregates: Sequence[OpenAggregate | None]) -> _Tables:
        opened = [OpenAggregate([], [], []) if one is None else one for one in aggregates]
        counts = np.fromiter((len(one.records) for one in opened), np.int64, len(opened))
        explicit = chain.from_iterable(one.explicit_hash_keys for one in opened)
        return cls(
            records=list(chain.from_iterable(one.records for one in opened)),
            partition_keys=list(chain.from_iterable(one.partition_keys for one in opened)),
            explicit_hash_keys=list(map(explicit_hash_key_in, explicit)),
            first_record=_firsts(len(one.records) for one in opened),
            first_key=_firsts(len(one.partition_keys) for one in opened),
            first_explicit=_firsts(len(one.explicit_hash_keys) for one in opened),
            aggregate=np.repeat(np.arange(len(opened), dtype=np.int64), counts),
        )

    def damaged(self, scanned: _Scanned) -> list[int]:
        """The aggregates with records that the scan did not read, or that name no key."""
        key_counts, explicit_counts = np.diff(self.first_key), np.diff(self.first_explicit)
        good = scanned.is_regular & (scanned.partition_keys < key_counts[self.aggregate])
        if len(self.explicit_hash_keys) or bool((scanned.explicit_hash_keys != _NO_INDEX).any()):
            good &= scanned.explicit_hash_keys < explicit_counts[self.aggregate]
            named = np.flatnonzero(good & (scanned.explicit_hash_keys != _NO_INDEX))
            is_number = np.array([one is not None for one in self.explicit_hash_keys], np.bool_)
            at = scanned.explicit_hash_keys[named] + self.first_explicit[self.aggregate[named]]
            good[named] = is_number[at]
        if bool(good.all()):
            return []
        damaged: list[int] = np.unique(self.aggregate[~good]).tolist()
        return damaged

    def are_owned(self, scanned: _Scanned, hash_range: HashRange | None) -> NDArray[np.bool_]:
        """Whether each record belongs to the shard."""
        if hash_range is None or hash_range.is_whole:
            return np.ones(len(scanned.begins), np.bool_)
        with_explicit = np.flatnonzero(scanned.explicit_hash_keys != _NO_INDEX)
        if len(with_explicit) == len(scanned.begins):
            is_owned = np.empty(len(scanned.begins), np.bool_)
        else:
            keys = np.array(hash_range.owns_keys(self.partition_keys), np.bool_)
            is_owned = keys[scanned.partition_keys + self.first_key[self.aggregate]]
        if len(with_explicit):
            explicit = [one is not None and hash_range.owns(one) for one in self.explicit_hash_keys]
            at = self.first_explicit[self.aggregate[with_explicit]]
            is_owned[with_explicit] = np.array(explicit, np.bool_)[
                at + scanned.explicit_hash_keys[with_explicit]
            ]
        return is_owned


def _mended(aggregate: OpenAggregate | None) -> OpenAggregate | None:
    """The aggregate with its records in the form that the scan reads; None if it is damaged."""
    records = None if aggregate is None else checked_records(aggregate)
    if aggregate is None or records is None:
        return None
    regular = []
    for record in records:
        record.ClearField("tags")
        record.DiscardUnknownFields()
        regular.append(record.SerializeToString(deterministic=True))
    return aggregate._replace(records=regular)


def checked_records(aggregate: OpenAggregate) -> list[Any] | None:
    """The messages `Record` of an aggregate; None if one of them, or a key, is damaged."""
    from kinesis_spout.aggregation.message import Record, parsed  # noqa: PLC0415

    if _key_array(aggregate.partition_keys) is None:
        return None
    records = []
    for encoded in aggregate.records:
        record = parsed(Record, encoded)
        if record is None or not record.IsInitialized():
            return None
        if record.partition_key_index >= len(aggregate.partition_keys):
            return None
        if record.HasField("explicit_hash_key_index"):
            index = record.explicit_hash_key_index
            texts = aggregate.explicit_hash_keys[index : index + 1]
            if not texts or explicit_hash_key_in(texts[0]) is None:
                return None
        records.append(record)
    return records


def _key_array(keys: list[bytes]) -> pa.Array | None:
    """The partition keys as texts; None if Kinesis would refuse one of them."""
    sizes = np.fromiter(map(len, keys), np.int64, len(keys))
    if sizes.max(initial=0) > _MAX_KEY_BYTES:
        return None
    edges = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(sizes, out=edges[1:])
    # Not by `pa.array`, which imports pandas.
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join(keys))]
    try:
        return pa.Array.from_buffers(pa.binary(), len(keys), buffers).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return None


def _data(scanned: _Scanned) -> pa.Array:
    """An array in which every second value is a record's data, without a copy. The values between
    them are what the encoding has before the data.
    """
    edges = np.zeros(2 * len(scanned.begins) + 1, np.int32)
    edges[1::2], edges[2::2] = scanned.begins, scanned.ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(scanned.octets)]
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)


def _firsts(counts: Iterable[int]) -> Numbers:
    """Where each one's begin, and the end of the last."""
    return np.array(list(accumulate(counts, initial=0)), np.int64)


# the records of aggregates, side by side --------------------------------------------------------
class _Scanned(NamedTuple):
    """An entry for each record: where its data begins and ends in `octets`, and the indices of its
    keys in the tables of its aggregate (`_NO_INDEX`: it has no explicit hash key).

    Where `is_regular` is false, the others mean nothing.
    """

    octets: bytes
    begins: Numbers
    ends: Numbers
    partition_keys: Numbers
    explicit_hash_keys: Numbers
    is_regular: NDArray[np.bool_]


def _scan(records: Sequence[bytes]) -> _Scanned:
    """Read encoded `Record` messages, of 2 GiB at most together.

    On the wire a `Record` (see `message`) is a sequence of fields, each a tag and a value. Most
    producers write each field once, in the order of their numbers: `08 <index> [10 <index>] 1a
    <length> <data>`. This form is read, and others are marked: protobuf parses them one by one.
    """
    octets = b"".join((*records, _PADDING))
    view = np.frombuffer(octets, np.uint8)
    ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1]
    is_regular = view[starts] == _PARTITION_KEY
    keys, at = _varints(view, starts + 1)
    explicit = np.full(len(records), _NO_INDEX, np.int64)
    with_explicit = np.flatnonzero(view[at] == _EXPLICIT_HASH_KEY)
    if len(with_explicit):
        explicit[with_explicit], at[with_explicit] = _varints(view, at[with_explicit] + 1)
    is_regular &= view[at] == _DATA
    sizes, begins = _varints(view, at + 1)
    # What follows the last byte of a varint that was too long to read is no end of a record.
    is_regular &= (begins + sizes == ends) & (sizes >= 0) & (keys >= 0) & (explicit >= _NO_INDEX)
    return _Scanned(octets, begins, ends, keys, explicit, is_regular)


def _varints(view: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers that begin at these places, and where they end. A number that is longer than the
    scan reads is far below 0.
    """
    octets = view[at]
    values = (octets & 0x7F).astype(np.int64)
    ends = at + 1
    longer = np.flatnonzero(octets >= _MORE)
    for shift in range(7, 7 * _MAX_VARINT, 7):
        if not len(longer):
            return values, ends
        octets = view[ends[longer]]
        values[longer] |= (octets & 0x7F).astype(np.int64) << shift
        ends[longer] += 1
        longer = longer[octets >= _MORE]
    values[longer] = np.iinfo(np.int64).min // 2
    return values, ends
