"""The service's contract, tested against FakeKinesis and LocalStack alike: records, iterators, the
lifecycle of a stream.

If the service leaves a choice, or one of the two is known to be wrong, the test asserts what the
service's contract allows, and says so.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.kinesis.calls import (
    LIMIT_S,
    hash_keys,
    iterator,
    put,
    read,
    read_shard,
    refusal,
    shards_of,
    summary_of,
)
from tests.support.kinesis.services import Service, create_stream, wait_until_active

HASH_KEYS = 2**128


class TestRecords:
    @pytest.mark.parametrize(
        ("data", "key"),
        [
            (b"", "empty data"),
            (bytes(range(256)), "binary data"),
            (b"x", '"quoted" \\ \u2028 \u00e4 \u65e5 \U0001f600'),
            (b"x", "k" * 256),
        ],
    )
    def test_data_and_key_come_back_as_they_were_put(
        self, one_shard: Service, data: bytes, key: str
    ) -> None:
        """Every byte of the data and every character of the key."""
        where = put(one_shard, data, key)
        (record,) = read(one_shard, iterator(one_shard, where["ShardId"]), records=1).records
        assert (record["Data"], record["PartitionKey"]) == (data, key)
        assert record["SequenceNumber"] == where["SequenceNumber"]

    def test_records_come_in_the_order_of_their_growing_sequence_numbers(
        self, one_shard: Service
    ) -> None:
        """They have 56 digits. `ApproximateArrivalTimestamp` is the service's time at the put."""
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        numbers = [put(one_shard, str(at).encode())["SequenceNumber"] for at in range(5)]
        got = read(one_shard, iterator(one_shard, shards_of(one_shard)[0]["ShardId"]), records=5)
        assert got.data == [b"0", b"1", b"2", b"3", b"4"]
        assert [record["SequenceNumber"] for record in got.records] == numbers
        assert sorted(set(map(int, numbers))) == list(map(int, numbers))
        assert {len(number) for number in numbers} == {56}
        for record in got.records:
            assert before <= record["ApproximateArrivalTimestamp"] <= datetime.now(UTC)

    def test_a_record_of_one_mebibyte_is_taken_and_a_larger_one_refused(
        self, one_shard: Service
    ) -> None:
        """Data and partition key together may have 1 MiB. Data above 1 MiB is refused."""
        data = b"\xff" * (1024 * 1024 - len("key"))
        put(one_shard, data)
        with pytest.raises(ClientError) as error:
            put(one_shard, b"x" * (1024 * 1024 + 1))
        assert refusal(error) in ("ValidationException", "InvalidArgumentException")
        assert read(
            one_shard, iterator(one_shard, shards_of(one_shard)[0]["ShardId"]), records=1
        ).data == [data]

    def test_a_key_chooses_the_shard_and_answers_come_entry_by_entry_in_order(
        self, two_shards: Service
    ) -> None:
        """MD5("a") = 0cc1... lies in the lower half of the hash keys, MD5("b") = 92eb... in the
        upper. An explicit hash key counts instead.
        """
        lower, upper = (shard["ShardId"] for shard in sorted(shards_of(two_shards), key=hash_keys))
        entries: list[dict[str, Any]] = [
            {"Data": b"0", "PartitionKey": "b"},
            {"Data": b"1", "PartitionKey": "a"},
            {"Data": b"2", "PartitionKey": "a", "ExplicitHashKey": str(HASH_KEYS - 1)},
            {"Data": b"3", "PartitionKey": "b", "ExplicitHashKey": "0"},
        ]
        answer = two_shards.client.put_records(StreamName=two_shards.name, Records=entries)
        assert answer["FailedRecordCount"] == 0
        assert [one["ShardId"] for one in answer["Records"]] == [upper, lower, upper, lower]
        found = {
            record["SequenceNumber"]: record["Data"]
            for shard in (lower, upper)
            for record in read_shard(two_shards, shard).records
        }
        assert [found[one["SequenceNumber"]] for one in answer["Records"]] == [
            one["Data"] for one in entries
        ]


class TestIterators:
    @pytest.fixture
    def numbers(self, one_shard: Service) -> list[str]:
        """Sequence numbers of the records b"0", b"1", b"2"."""
        return [put(one_shard, str(at).encode())["SequenceNumber"] for at in range(3)]

    @pytest.mark.parametrize(
        ("kind", "at", "first"),
        [
            ("TRIM_HORIZON", None, 0),
            ("AT_SEQUENCE_NUMBER", 1, 1),
            ("AFTER_SEQUENCE_NUMBER", 1, 2),
            ("AFTER_SEQUENCE_NUMBER", 2, 3),
            ("AT_TIMESTAMP", timedelta(hours=1), 0),
            ("LATEST", None, 3),
        ],
    )
    def test_a_position_is_before_or_after_a_record_and_misses_none_that_comes_later(
        self,
        one_shard: Service,
        numbers: list[str],
        kind: str,
        at: int | timedelta | None,
        first: int,
    ) -> None:
        """TRIM_HORIZON reads every record that is retained, AT includes the record, and AFTER
        excludes it. A time in the past begins with the first record at that time or later. LATEST
        is the position at the time of the request.
        """
        position: dict[str, Any] = {}
        if isinstance(at, int):
            position["StartingSequenceNumber"] = numbers[at]
        elif at is not None:
            position["Timestamp"] = datetime.now(UTC) - at
        start = iterator(one_shard, shards_of(one_shard)[0]["ShardId"], kind, **position)
        if kind != "LATEST":
            assert read(one_shard, start).data == [b"0", b"1", b"2"][first:]
        put(one_shard, b"new")
        expected = [b"0", b"1", b"2", b"new"][first:]
        assert read(one_shard, start, records=len(expected)).data == expected

    def test_a_page_holds_no_more_than_the_limit_and_is_behind_until_the_tip(
        self, one_shard: Service, numbers: list[str]
    ) -> None:
        """An iterator can be used twice. An open shard never ends, however often it is read."""
        time.sleep(0.002)  # noqa: TID251  # so that the tip is a millisecond away
        start = iterator(one_shard, shards_of(one_shard)[0]["ShardId"])
        for _ in range(2):
            page = one_shard.client.get_records(ShardIterator=start, Limit=2)
            assert [record["Data"] for record in page["Records"]] == [b"0", b"1"]
            assert page["MillisBehindLatest"] > 0
        rest = read(one_shard, page["NextShardIterator"])
        assert rest.data == [b"2"]
        assert (rest.last_page["Records"], rest.last_page["MillisBehindLatest"]) == ([], 0)
        assert rest.last_page["NextShardIterator"]


class TestStreamLife:
    def test_retention_goes_up_and_down_by_an_operation_each(self, one_shard: Service) -> None:
        """They change `RetentionPeriodHours`; what increases it does not decrease it."""
        client, named = one_shard.client, {"StreamName": one_shard.name}
        client.increase_stream_retention_period(RetentionPeriodHours=48, **named)
        assert retention_hours(one_shard) == 48
        with pytest.raises(ClientError) as error:
            client.increase_stream_retention_period(RetentionPeriodHours=24, **named)
        assert refusal(error) == "InvalidArgumentException"
        client.decrease_stream_retention_period(RetentionPeriodHours=24, **named)
        assert retention_hours(one_shard) == 24

    def test_a_recreated_stream_has_a_later_creation_time_and_positions_of_its_own(
        self, one_shard: Service
    ) -> None:
        """`StreamCreationTimestamp` distinguishes a stream from an earlier one with its name, whose
        records are gone. The first number of its shard, as the listing has it, is a position, and
        so is that of its first record.
        """
        put(one_shard, b"old")
        before = created_at(one_shard)
        one_shard.client.delete_stream(StreamName=one_shard.name)
        wait_until_gone(one_shard)
        create_stream(one_shard.client, one_shard.name)
        assert created_at(one_shard) > before
        (shard,) = shards_of(one_shard)
        assert read_shard(one_shard, shard["ShardId"]).records == []
        listed = shard["SequenceNumberRange"]["StartingSequenceNumber"]
        for number in (listed, put(one_shard, b"new")["SequenceNumber"]):
            start = iterator(
                one_shard, shard["ShardId"], "AT_SEQUENCE_NUMBER", StartingSequenceNumber=number
            )
            assert read(one_shard, start, records=1).data == [b"new"]


UNKNOWN = {"ShardId": "shardId-000000000099", "ShardIteratorType": "TRIM_HORIZON"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("operation", "arguments", "codes"),
        [
            ("get_shard_iterator", UNKNOWN, ["ResourceNotFoundException"]),
            ("create_stream", {"ShardCount": 1}, ["ResourceInUseException"]),
            # the emulator fails with an HTTP 500
            ("get_records", {"ShardIterator": "bm90"}, ["InvalidArgumentException", "500"]),
            (
                "get_records",
                {"Limit": 10_001},
                ["ValidationException", "InvalidArgumentException"],
            ),
            (
                "merge_shards",
                {
                    "ShardToMerge": "shardId-000000000000",
                    "AdjacentShardToMerge": "shardId-000000000002",
                },
                ["InvalidArgumentException"],
            ),
        ],
        ids=str,
    )
    def test_a_request_that_cannot_be_served_is_refused(
        self, service: Service, operation: str, arguments: dict[str, Any], codes: list[str]
    ) -> None:
        """A missing shard has the same error code as a missing stream: only another request
        distinguishes them. Only neighbours can be merged.
        """
        create_stream(service.client, service.name, shards=3)
        named = {"StreamName": service.name}
        if operation == "get_records":
            named = {"ShardIterator": iterator(service, "shardId-000000000000")}
        with pytest.raises(ClientError) as error:
            getattr(service.client, operation)(**named | arguments)
        assert refusal(error) in codes

    def test_an_unknown_stream_is_not_found(self, service: Service) -> None:
        for operation, arguments in (
            ("describe_stream_summary", {}),
            ("list_shards", {}),
            ("put_record", {"Data": b"x", "PartitionKey": "key"}),
            ("get_shard_iterator", UNKNOWN),
            ("delete_stream", {}),
        ):
            with pytest.raises(ClientError) as error:
                getattr(service.client, operation)(StreamName=service.name, **arguments)
            assert refusal(error) == "ResourceNotFoundException"


def retention_hours(service: Service) -> int:
    wait_until_active(service.client, service.name)
    return int(summary_of(service)["RetentionPeriodHours"])


def created_at(service: Service) -> datetime:
    moment: datetime = summary_of(service)["StreamCreationTimestamp"]
    return moment


def wait_until_gone(service: Service) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            service.client.describe_stream_summary(StreamName=service.name)
        except service.client.exceptions.ResourceNotFoundException:
            return
    pytest.fail(f"stream {service.name} is still there after {LIMIT_S} s")
