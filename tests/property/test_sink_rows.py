"""The runs of rows that become requests, and the body of PutRecords has what was to be put."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from itertools import pairwise

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.record_putter import REQUEST_BYTES, REQUEST_RECORDS, Entry
from spark_job.sink.sink_rows import outgoing, runs

SIZES = st.one_of(
    st.lists(st.sampled_from([0, 1, 100, 2**20, REQUEST_BYTES, 2 * REQUEST_BYTES]), max_size=40),
    st.lists(st.just(1), min_size=480, max_size=1_100),
)
# Few keys, most of them in many rows; or many.
KEYS = st.lists(st.sampled_from("abcdef") | st.text(min_size=1, max_size=2), max_size=60)


def rows(keys: list[str], sizes: list[int]) -> pa.RecordBatch:
    """Rows of these sizes, whose data are their numbers."""
    data = pa.array([b"%d" % number for number in range(len(keys))], pa.large_binary())
    hash_keys = pa.array([None if n % 2 else str(n) for n in range(len(keys))], pa.string())
    columns = [data, pa.array(keys, pa.string()), hash_keys, pa.array(sizes, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["data", "key", "hashKey", "size"])


def bytes_of(run: pa.RecordBatch) -> int:
    return sum(run.column("size").to_pylist())


def numbers(run: pa.RecordBatch) -> list[int]:
    return [int(data) for data in outgoing(run).datas]


@given(SIZES)
def test_runs_keep_the_order_and_the_limits_of_a_request(sizes: list[int]) -> None:
    """A row that is too large by itself is alone; no run could take the next row too."""
    found = list(runs(rows(["k"] * len(sizes), sizes), by_key=False))
    assert [number for run in found for number in numbers(run)] == list(range(len(sizes)))
    for run in found:
        assert 1 <= len(run) <= REQUEST_RECORDS
        assert len(run) == 1 or bytes_of(run) <= REQUEST_BYTES
    for run, following in pairwise(found):
        next_bytes = bytes_of(following[:1])
        assert len(run) == REQUEST_RECORDS or bytes_of(run) + next_bytes > REQUEST_BYTES


@given(KEYS)
def test_by_key_a_run_has_a_key_once_and_a_keys_rows_are_in_their_order(keys: list[str]) -> None:
    """All rows are in a run, with their own keys and hash keys."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for run in runs(rows(keys, [1] * len(keys)), by_key=True):
        columns = outgoing(run)
        assert len(set(columns.partition_keys)) == len(run)
        for record in columns.records():
            number = int(record.data)
            by_key[record.partition_key].append(number)
            assert record.partition_key == keys[number]
            assert record.explicit_hash_key == (None if number % 2 else str(number))
    assert all(found == sorted(found) for found in by_key.values())
    assert sorted(number for found in by_key.values() for number in found) == list(range(len(keys)))


def test_by_key_the_first_rows_of_all_keys_share_their_requests() -> None:
    """A key that is there often costs requests of its own, and no other key."""
    found = runs(rows(["hot", *"abc", "hot", "hot"], [1] * 6), by_key=True)
    assert [numbers(run) for run in found] == [[0, 1, 2, 3], [4], [5]]


WIRE_KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
HASH_KEYS = st.none() | st.integers(0, 2**128 - 1).map(str)


@given(st.lists(st.tuples(st.binary(max_size=200), WIRE_KEYS, HASH_KEYS), max_size=20))
def test_the_body_gives_back_data_keys_and_hash_keys(
    records: list[tuple[bytes, str, str | None]],
) -> None:
    """Also keys with quotes, control characters and characters beyond ASCII."""
    entries = json.loads(msgspec.json.encode([Entry(*record) for record in records]))
    found = [
        (base64.b64decode(one["Data"]), one["PartitionKey"], one.get("ExplicitHashKey"))
        for one in entries
    ]
    assert found == records
    assert all("ExplicitHashKey" not in one or one["ExplicitHashKey"] for one in entries)
