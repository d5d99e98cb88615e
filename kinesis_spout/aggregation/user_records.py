"""What is in aggregates: their user records, side by side, and by which rules.

`open_aggregate` opens one; `user_records` reads the records of several. A payload that cannot be
read as a whole is no aggregate, and stays the record that it is: nothing of it is lost, and nothing
is made up. So are

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

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from kinesis_spout.aggregation.hash_range import UserRecord, explicit_hash_key_in
from kinesis_spout.aggregation.message import Aggregate, Record, message_in
from kinesis_spout.aggregation.record_scan import NO_INDEX, ScannedUserRecords, scan_user_records
from scheme.record import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from kinesis_spout.aggregation.hash_range import HashRange
    from kinesis_spout.aggregation.record_scan import Numbers

_MAX_KEY_BYTES = 256 * 4  # API reference, PutRecordsRequestEntry: 256 characters


class OpenAggregate(NamedTuple):
    """The tables of an aggregate, and its user records as they are encoded."""

    partition_keys: list[bytes]
    explicit_hash_keys: list[bytes]
    records: list[bytes]


class UserRecords(NamedTuple):
    """User records of some aggregates, in their order: those that belong to the shard, or all.

    - `is_aggregate`: for each aggregate that was given, whether it was read: one that is False is a
      plain record.
    - `is_owned`: for each record, whether it belongs to the shard.
    - `parents`: for each record, the index of its aggregate; `subs`: its number in there, from 0.
      A record that is left out has its number too.
    - `data`: binary; record i has value `data_at[i]`. `keys`: text; record i has `keys_at[i]`.
    - `left_out`: how many records belong to another shard.
    """

    is_aggregate: NDArray[np.bool_]
    is_owned: NDArray[np.bool_]
    parents: Numbers
    subs: Numbers
    data: pa.Array
    data_at: Numbers
    keys: pa.Array
    keys_at: Numbers
    left_out: int


def open_aggregate(payload: memoryview) -> OpenAggregate | None:
    """The parts of a payload that begins with the magic number; None if it is no aggregate. Whether
    its parts are damaged is not known yet.
    """
    message = message_in(payload)
    if message is None:
        return None
    try:
        parsed = Aggregate.FromString(message)
    except DecodeError:
        return None
    return OpenAggregate(
        parsed.partition_key_table[:], parsed.explicit_hash_key_table[:], parsed.records[:]
    )


def user_records(
    aggregates: Sequence[OpenAggregate],
    hash_range: HashRange | None = None,
    *,
    keep_others: bool = False,
) -> UserRecords:
    """The records of these aggregates, without those whose hash key is not in the shard's range;
    all of them where the range is not known, or with `keep_others`.
    """
    mended: list[OpenAggregate | None] = list(aggregates)
    tables = _Tables.of(mended)
    scanned = scan_user_records(tables.records)
    keys = _key_array(tables.partition_keys)
    if damaged := range(len(mended)) if keys is None else tables.damaged(scanned):
        for one in damaged:
            mended[one] = _mended(aggregates[one])
        tables = _Tables.of(mended)
        scanned = scan_user_records(tables.records)
        keys = _key_array(tables.partition_keys)
    is_owned = tables.are_owned(scanned, hash_range)
    index = np.arange(len(scanned.begins), dtype=np.int64)
    keys_at = scanned.partition_keys + tables.first_key[tables.aggregate]
    subs = index - tables.first_record[tables.aggregate]
    aggregate = tables.aggregate
    left_out = 0
    if not keep_others and not is_owned.all():
        index = index[is_owned]
        keys_at, subs, aggregate = keys_at[is_owned], subs[is_owned], aggregate[is_owned]
        left_out, is_owned = len(is_owned) - len(index), is_owned[is_owned]
    return UserRecords(
        is_aggregate=np.array([one is not None for one in mended], np.bool_),
        is_owned=is_owned,
        parents=aggregate,
        subs=subs,
        data=_data(scanned),
        data_at=index * 2 + 1,
        keys=keys,
        keys_at=keys_at,
        left_out=left_out,
    )


def unpacked(payload: bytes) -> list[UserRecord] | None:
    """The user records of an aggregate, to be put again one by one; None for any other payload."""
    opened = open_aggregate(memoryview(payload)) if payload.startswith(KPL_MAGIC) else None
    records = None if opened is None else _checked(opened)
    if opened is None or records is None:
        return None
    users = []
    for record in records:
        explicit = None
        if record.HasField("explicit_hash_key_index"):
            explicit = opened.explicit_hash_keys[record.explicit_hash_key_index].decode()
        key = opened.partition_keys[record.partition_key_index].decode()
        users.append(UserRecord(key, record.data, explicit))
    return users


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

    def damaged(self, scanned: ScannedUserRecords) -> list[int]:
        """The aggregates with records that the scan did not read, or that name no key."""
        key_counts, explicit_counts = np.diff(self.first_key), np.diff(self.first_explicit)
        good = scanned.is_regular & (scanned.partition_keys < key_counts[self.aggregate])
        if len(self.explicit_hash_keys) or bool((scanned.explicit_hash_keys != NO_INDEX).any()):
            good &= scanned.explicit_hash_keys < explicit_counts[self.aggregate]
            named = np.flatnonzero(good & (scanned.explicit_hash_keys != NO_INDEX))
            is_number = np.array([one is not None for one in self.explicit_hash_keys], np.bool_)
            at = scanned.explicit_hash_keys[named] + self.first_explicit[self.aggregate[named]]
            good[named] = is_number[at]
        if bool(good.all()):
            return []
        damaged: list[int] = np.unique(self.aggregate[~good]).tolist()
        return damaged

    def are_owned(
        self, scanned: ScannedUserRecords, hash_range: HashRange | None
    ) -> NDArray[np.bool_]:
        """Whether each record belongs to the shard."""
        if hash_range is None or hash_range.is_whole:
            return np.ones(len(scanned.begins), np.bool_)
        with_explicit = np.flatnonzero(scanned.explicit_hash_keys != NO_INDEX)
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


def _mended(aggregate: OpenAggregate) -> OpenAggregate | None:
    """The aggregate with its records in the form that the scan reads; None if it is damaged."""
    records = _checked(aggregate)
    if records is None:
        return None
    regular = []
    for record in records:
        record.ClearField("tags")
        record.DiscardUnknownFields()
        regular.append(record.SerializeToString(deterministic=True))
    return aggregate._replace(records=regular)


def _checked(aggregate: OpenAggregate) -> list[Any] | None:
    """The messages `Record` of an aggregate; None if one of them, or a key, is damaged."""
    if _key_array(aggregate.partition_keys) is None:
        return None
    records = []
    for encoded in aggregate.records:
        try:
            record = Record.FromString(encoded)
        except DecodeError:
            return None
        if not record.IsInitialized() or record.partition_key_index >= len(
            aggregate.partition_keys
        ):
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


def _data(scanned: ScannedUserRecords) -> pa.Array:
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
