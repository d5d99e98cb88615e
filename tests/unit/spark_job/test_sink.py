"""How much a shard that refuses records is sent, which records go into a request, and which columns
of a frame, and which options, make them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from kinesis_spout.errors import ConfigError
from kinesis_spout.service.record_putter import REQUEST_BYTES, OutgoingRecord, PutResult
from kinesis_spout.service.shard_info import HashRange, ShardInfo
from spark_job.sink.put_queue import (
    BYTES_PER_SECOND,
    RECORDS_PER_SECOND,
    OpenShards,
    PutPacer,
    PutQueue,
    Waiting,
    is_elsewhere,
)
from spark_job.sink.sink_rows import SinkColumns, UnwritableRecordError, checked, outgoing
from spark_job.sink.sink_settings import SinkSettings
from state.sequence_number import SequenceNumber

RECORD_BYTES = 2_000
EVENTS = st.lists(
    st.tuples(st.floats(0, 0.7), st.booleans(), st.integers(1, RECORD_BYTES)), max_size=60
)


@given(EVENTS)
def test_no_more_is_sent_than_the_service_allows(events: list[tuple[float, bool, int]]) -> None:
    """Half a second's worth in a burst, and what is sent at the time that `ready_at_s` names."""
    pacer = PutPacer()
    pacer.on_refused(0.0)
    now_s, sent_records, sent_bytes = 0.0, 0, 0
    for pause_s, is_refused, size_bytes in events:
        now_s += pause_s
        if is_refused:
            pacer.on_refused(now_s)
        now_s = pacer.ready_at_s(now_s)
        records, may_bytes = pacer.may_send(now_s + 1e-6)
        assert records > 0.99
        assert may_bytes > 0
        count = math.floor(records + 0.01)
        count = min(count, math.ceil(may_bytes / size_bytes))
        pacer.on_sent(count, count * size_bytes)
        sent_records += count
        sent_bytes += count * size_bytes
        assert sent_records <= (now_s + 0.5) * RECORDS_PER_SECOND + 1
        assert sent_bytes <= (now_s + 0.5) * BYTES_PER_SECOND + RECORD_BYTES


END = 2**128
THROTTLED = "ProvisionedThroughputExceededException"


def open_shards(count: int) -> OpenShards:
    """Shards 0, 1, ... of equal hash key ranges."""
    size = END // count
    return OpenShards(
        ShardInfo(
            shard_id=str(index),
            parents=(),
            hash_key_range=HashRange(index * size, (index + 1) * size - 1),
            starting_sequence=SequenceNumber(1),
            ending_sequence=None,
        )
        for index in range(count)
    )


def record_for(shard: int, data: bytes = b"") -> OutgoingRecord:
    """A record whose explicit hash key is in this shard of four."""
    return OutgoingRecord("k", data, str(shard * (END // 4)))


def queue_of(*records: OutgoingRecord) -> PutQueue:
    queue = PutQueue(open_shards(4), by_key=False)
    for one in records:
        queue.add(one)
    return queue


def accepted(request: list[Waiting]) -> list[PutResult]:
    return [PutResult(one.shard_id, None) for one in request]


def datas(request: list[Waiting]) -> list[bytes]:
    return [one.record.data for one in request]


def test_a_record_goes_to_the_shard_of_its_hash_key() -> None:
    """The MD5 of the key as the API reference defines it: of `a` it begins with 0cc1, of `b` with
    92eb, which is in the upper half.
    """
    halves = open_shards(2)
    assert [halves.of(OutgoingRecord(key, b"")) for key in "ab"] == ["0", "1"]
    assert halves.of(OutgoingRecord("a", b"", str(END - 1))) == "1"
    assert OpenShards(()).of(OutgoingRecord("a", b"")) == ""


def test_a_request_has_at_most_500_records_and_5_mib() -> None:
    for count, size, taken in ((501, 0, [500, 1]), (3, REQUEST_BYTES // 2, [1, 1, 1])):
        queue = queue_of(*(record_for(index % 4, b"x" * size) for index in range(count)))
        assert [len(queue.take(0)) for _ in range(4)] == [*taken, 0, 0, 0][:4]


def test_a_refused_record_waits_in_its_place_and_holds_back_no_other_shard() -> None:
    queue = queue_of(record_for(0, data=b"a"), record_for(0, data=b"b"), record_for(1, data=b"c"))
    request = queue.take(0)
    assert queue.on_answer(request, [PutResult(None, THROTTLED), *accepted(request[1:])], 0.0) == 1
    queue.add(record_for(0, data=b"d"))
    queue.add(record_for(1, data=b"e"))
    assert datas(queue.take(0.01)) == [b"e"]
    assert queue.take(0.05) == []
    ready_s = queue.ready_at_s(0.05)
    assert ready_s is not None
    assert 0.1 <= ready_s < 0.2
    assert datas(queue.take(0.2)) == [b"a", b"d"]
    assert len(queue) == 3


@pytest.mark.parametrize("by_key", [False, True])
@given(seed=st.integers(0, 2**32), count=st.integers(0, 300))
def test_every_record_is_accepted_once_and_a_keys_in_their_order(
    by_key: bool,  # noqa: FBT001
    seed: int,
    count: int,
) -> None:
    """Whatever is refused, and in whatever order the requests are answered."""
    random = Random(seed)  # noqa: S311
    queue = PutQueue(open_shards(3), by_key=by_key)
    put = [OutgoingRecord(random.choice("abcdef"), b"%d" % number, None) for number in range(count)]
    taken: dict[str, list[int]] = defaultdict(list)
    in_flight: list[list[Waiting]] = []
    left, now_s = list(put), 0.0
    while left or len(queue):
        for _ in range(random.randrange(40)):
            if left:
                queue.add(left.pop(0))
        if request := queue.take(now_s):
            in_flight.append(request)
        now_s += random.random()
        if in_flight and random.random() < 0.7:
            request = in_flight.pop(random.randrange(len(in_flight)))
            results = [
                PutResult(None, THROTTLED) if random.random() < 0.3 else PutResult("0", None)
                for _ in request
            ]
            for waiting, result in zip(request, results, strict=True):
                if result.error_code is None:
                    taken[waiting.record.partition_key].append(int(waiting.record.data))
            queue.on_answer(request, results, now_s)
    assert sorted(number for numbers in taken.values() for number in numbers) == list(range(count))
    assert queue.waiting_bytes == 0
    if by_key:
        assert all(numbers == sorted(numbers) for numbers in taken.values())


def test_a_record_in_another_shard_than_expected_shows_a_reshard() -> None:
    queue = queue_of(record_for(0), record_for(1))
    request = queue.take(0)
    for shards_put, shown in (("01", False), (None, False), (["0", "17"], True)):
        results = [PutResult(one, None) for one in shards_put or (None, None)]
        assert is_elsewhere(request, results) is shown


ALL = "data binary, partitionKey string, explicitHashKey string, streamName string"
TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "bigint": LongType(),
    "struct": StructType([StructField("a", IntegerType())]),
}


def schema(ddl: str) -> StructType:
    """As `StructType.fromDDL`, which needs a Spark session."""
    fields = (field.split() for field in ddl.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def records(most_bytes: int = 1000, **columns: list[Any]) -> list[OutgoingRecord]:
    """The records of a batch with these columns, texts or bytes."""
    batch = pa.record_batch(columns)
    indexes = SinkColumns(
        *(
            list(columns).index(name) if name in columns else None
            for name in ("data", "partitionKey", "explicitHashKey", "streamName")
        )  # type: ignore[arg-type]
    )
    return [
        record
        for _, rows in checked(batch, indexes, most_bytes)
        for record in outgoing(rows).records()
    ]


def test_columns_are_found_by_name_in_any_case_and_others_are_ignored() -> None:
    found = SinkColumns.of(schema("id bigint, DATA string, partitionkey string"), has_stream=True)
    assert found == SinkColumns(1, 2, None, None)
    assert SinkColumns.of(schema(ALL), has_stream=False) == SinkColumns(0, 1, 2, 3)
    # A frame that was read from a stream has this column; its rows must not return there.
    assert SinkColumns.of(schema(ALL), has_stream=True).stream_name is None


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("body binary", "has no column data.*to_json"),
        ("data struct", "column data has the type struct<a:int>.*binary or string.*to_json"),
        ("data binary, partitionKey bigint", "column partitionKey has the type bigint.*string"),
        ("data binary, Data string", "has column data twice"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(ddl: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SinkColumns.of(schema(ddl), has_stream=True)
    with pytest.raises(ConfigError, match=r"no target stream is set.*streamName or streamArn"):
        SinkColumns.of(schema("data binary"), has_stream=False)


def test_text_is_put_as_utf_8_and_a_null_key_becomes_a_random_one() -> None:
    """Which counts in the size of its record, as for the service. An explicit hash key goes with
    the record.
    """
    last = str(2**128 - 1)
    hashes = ["0", last, *[None] * 998]
    keys = ["k", *[None] * 999]
    put = records(data=["\u20ac"] * 1000, partitionKey=keys, explicitHashKey=hashes)
    assert put[0] == OutgoingRecord("k", "\u20ac".encode(), "0")
    assert [one.explicit_hash_key for one in put] == hashes
    random = {one.partition_key for one in put[1:]}
    assert len(random) == 999
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in random)
    (binary,) = records(data=[b"\xff" * 984])
    assert binary.data == b"\xff" * 984
    with pytest.raises(UnwritableRecordError, match="more than 1000 bytes"):
        records(data=[b"x" * 985])
    assert records(data=pa.array([], pa.binary())) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": [b"a", None]}, "row 2 of a batch of 2 cannot be put: column data is null"),
        ({"data": [b"x" * 1001]}, "more than 1000 bytes.*maximum record size"),
        ({"data": [b"x" * 999], "partitionKey": ["\u20ac"]}, "more than 1000 bytes"),
        ({"data": [b"a"], "partitionKey": [""]}, "partitionKey is empty or longer than 256"),
        (
            {"data": [b"a"], "explicitHashKey": [str(2**128)]},
            "explicitHashKey does not contain a hash key",
        ),
        ({"data": [b"a"], "streamName": pa.array([None], pa.string())}, "streamName is null"),
        # Spark keeps any bytes that were cast to a string.
        (
            {"data": [b"1", b"2"], "partitionKey": pa.array([b"a", b"\xff"]).view(pa.string())},
            "row 2 .*column partitionKey is not UTF-8",
        ),
    ],
)
def test_a_row_that_cannot_be_put_stops_its_batch_before_anything_is_put(
    columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnwritableRecordError, match=message):
        records(**columns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPosition": "LATEST"}, "option startingPosition is not known"),
        ({"retry_for": "5m"}, "did you mean retryFor"),
        ({"streamName": "a", "streamArn": "arn:aws:kinesis:eu-west-1:1:stream/a"}, "both set"),
        ({"requestsInFlight": "0"}, "at least 1"),
        ({"awsAccessKeyId": "a"}, "awsSecretAccessKey"),
        (
            {"aggregate": "true", "ordering": "key"},
            "aggregate=true cannot be combined with ordering=key",
        ),
    ],
)
def test_a_bad_option_of_the_sink_is_refused(options: dict[str, str], message: str) -> None:
    """Those of a stream may be left out, and all are taken in any case."""
    with pytest.raises(ConfigError, match=message):
        SinkSettings.from_options(options)
    stream = SinkSettings.from_options({"STREAMNAME": "orders"}).stream
    assert (stream and stream.name, SinkSettings.from_options({}).stream) == ("orders", None)
