"""For any user records: what one side packs the other one unpacks, here and in awslabs' package;
and any page is read as by a reader that takes one byte after the other.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.aggregation.packing import PackedRecord, Packer, users_of
from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.service.record_putter import OutgoingRecord
from kinesis_spout.service.shard_info import HASH_KEYS, HashRange, ShardInfo, hash_key_of
from state.sequence_number import SequenceNumber
from tests.support.aggregates.wire import MAGIC, aggregate, number, page, string, user

if TYPE_CHECKING:
    from collections.abc import Sequence

keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
explicit_keys = st.integers(0, HASH_KEYS - 1).map(str)
payloads = st.one_of(st.binary(max_size=40), st.just(b"x" * 300))
records = st.one_of(
    st.builds(OutgoingRecord, keys, payloads, st.one_of(st.none(), explicit_keys)),
    st.builds(OutgoingRecord, st.sampled_from("abc"), payloads, st.none()),
)
any_records = st.lists(records, max_size=30)


@st.composite
def shards_of_a_stream(draw: st.DrawFn) -> list[tuple[str, HashRange]]:
    """The open shards: every hash key belongs to one of them."""
    borders = sorted(draw(st.sets(st.integers(1, HASH_KEYS - 1), max_size=4)))
    ends = [*(border - 1 for border in borders), HASH_KEYS - 1]
    ranges = map(HashRange, [0, *borders], ends)
    return [(f"shard-{index}", one) for index, one in enumerate(ranges)]


def unpacked(
    payloads: Sequence[bytes], hash_range: HashRange | None = None
) -> list[tuple[str, int, str, bytes]]:
    """Sequence number, number in the aggregate, key and data."""
    names = ("sequenceNumber", "subSequenceNumber", "partitionKey", "data")
    batches = Unpacker(lambda: hash_range).unpack(page(payloads))
    return [tuple(row.get(name, 0) for name in names) for one in batches for row in one.to_pylist()]


def keys_and_data_by_their_package(packed: Sequence[OutgoingRecord]) -> list[tuple[str, bytes]]:
    found = []
    for one in packed:
        given_record = {
            "SequenceNumber": "1",
            "PartitionKey": one.partition_key,
            "ApproximateArrivalTimestamp": None,
            "Data": one.data,
        }
        for row in iter_deaggregate_records([given_record], data_format="Boto3"):
            theirs: dict[str, Any] = row["kinesis"]
            is_aggregated = theirs.get("aggregated", False)
            data = base64.b64decode(theirs["data"]) if is_aggregated else theirs["data"]
            found.append((theirs["partitionKey"], data))
    return found


def listed(shard_id: str, hash_range: HashRange) -> ShardInfo:
    """An open shard of a listing."""
    return ShardInfo(
        shard_id=shard_id,
        parents=(),
        hash_key_range=hash_range,
        starting_sequence=SequenceNumber(1),
        ending_sequence=None,
    )


def hash_key(record: OutgoingRecord) -> int:
    return hash_key_of(record.partition_key, record.explicit_hash_key)


@given(any_records)
def test_what_their_package_aggregates_is_unpacked(users: list[OutgoingRecord]) -> None:
    aggregator = RecordAggregator()
    for one in users:
        aggregator.add_user_record(one.partition_key, one.data, one.explicit_hash_key)
    full = aggregator.clear_and_get()
    if full is not None:
        _, _, payload = full.get_contents()
        assert unpacked([payload]) == [
            ("100", index, one.partition_key, one.data) for index, one in enumerate(users)
        ]


@given(any_records, shards_of_a_stream(), st.integers(60, 2_000))
def test_what_is_packed_is_unpacked_by_their_package(
    users: list[OutgoingRecord], shards: list[tuple[str, HashRange]], max_bytes: int
) -> None:
    """Each shard's records, in their order. Each Kinesis record is addressed to its shard, whose
    readers leave nothing out, and is no larger than the limit if it is an aggregate.
    """
    packer = Packer([listed(*shard) for shard in shards], max_bytes=max_bytes)
    packed = [record for one in users for record in packer.add(one)] + packer.flush()
    for shard_id, hash_range in shards:
        mine = [one for one in packed if hash_range.owns(hash_key(one))]
        for one in mine:
            assert all(hash_range.owns(hash_key(user)) for user in users_of(one))
            assert not isinstance(one, PackedRecord) or one.shard_id == shard_id
        expected = [
            (one.partition_key, one.data) for one in users if hash_range.owns(hash_key(one))
        ]
        assert [data for *_, data in unpacked([one.data for one in mine], hash_range)] == [
            data for _, data in expected
        ]
        if not any(one.data.startswith(MAGIC) for one in users):
            assert keys_and_data_by_their_package(mine) == expected
    for one in packed:
        size_bytes = len(one.data) + len(one.partition_key.encode())
        assert size_bytes <= max_bytes or len(users_of(one)) == 1
    assert packer.flush() == []


# A page of any records, and what a simple reader finds in it -------------------------------------
tables = st.lists(keys.map(str.encode), min_size=1, max_size=4)
explicit_tables = st.lists(
    st.one_of(explicit_keys.map(str.encode), st.just(b"-1")), min_size=1, max_size=2
)
fields = st.one_of(
    st.builds(number, st.sampled_from([1, 2, 9]), st.sampled_from([0, 1, 3, 200, 2**35])),
    st.builds(string, st.just(3), payloads),
)
encoded_records = st.one_of(
    st.builds(user, st.integers(0, 4), payloads),
    st.builds(user, st.just(0), payloads, st.integers(0, 2)),
    st.lists(fields, max_size=4).map(b"".join),
)
good_records = st.lists(st.builds(user, st.just(0), payloads), max_size=5)
any_aggregates = st.one_of(
    st.builds(aggregate, tables, good_records),
    st.builds(aggregate, tables, st.lists(encoded_records, max_size=4), explicit_tables),
)
nested = st.builds(lambda inner: aggregate([b"k"], [user(0, inner), user(0, b"")]), any_aggregates)
cut_off = st.builds(lambda whole, size: whole[:size], any_aggregates, st.integers(0, 60))
any_payloads = st.one_of(payloads, any_aggregates, nested, cut_off)
any_ranges = st.one_of(
    st.none(), shards_of_a_stream().flatmap(st.sampled_from).map(lambda shard: shard[1])
)


@given(st.lists(any_payloads, max_size=8), any_ranges)
def test_any_page_is_read_as_by_a_simple_reader(
    payloads: list[bytes], hash_range: HashRange | None
) -> None:
    """Plain, aggregated, damaged and nested records, in any order, of any shard."""
    expected: list[tuple[str, int, str, bytes]] = []
    for index, payload in enumerate(payloads):
        users = simple_reader(payload)
        if users is None:
            expected.append((str(100 + index), 0, "outer", payload))
            continue
        expected += [
            (str(100 + index), sub, one.partition_key, one.data)
            for sub, one in enumerate(users)
            if hash_range is None or hash_range.owns(hash_key(one))
        ]
    assert unpacked(payloads, hash_range) == expected


def simple_reader(payload: bytes) -> list[OutgoingRecord] | None:
    """The user records of a payload by the rules of `user_records`; None for a plain record."""
    message, checksum = payload[4:-16], payload[-16:]
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    if payload[:4] != MAGIC or not message or checksum != digest:
        return None
    found = fields_of(message)
    table = [value.decode() for field, value in found if field == 1 and isinstance(value, bytes)]
    explicit = [value.decode() for field, value in found if field == 2 and isinstance(value, bytes)]
    users = []
    for field, value in found:
        if field != 3 or not isinstance(value, bytes):
            continue
        last = dict(fields_of(value))
        key, data, index = last.get(1), last.get(3), last.get(2)
        if not isinstance(key, int) or not isinstance(data, bytes) or key >= len(table):
            return None
        if index is None:
            users.append(OutgoingRecord(table[key], data))
        elif isinstance(index, int) and index < len(explicit) and explicit[index].isdigit():
            users.append(OutgoingRecord(table[key], data, explicit[index]))
        else:
            return None
    return users


def fields_of(message: bytes) -> list[tuple[int, int | bytes]]:
    """Number and value of each field of a message that is not damaged."""
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            octet = message[at]
            at += 1
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value

    while at < len(message):
        tag = varint()
        value = varint()
        if tag & 7 == 2:
            found.append((tag >> 3, message[at : at + value]))
            at += value
        else:
            found.append((tag >> 3, value))
    return found
