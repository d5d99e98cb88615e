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
    merge,
    put,
    read,
    read_shard,
    refusal,
    shards_of,
)
from tests.support.kinesis.services import Service, create_stream, wait_until_active

HASH_KEYS = 2**128


class TestRecords:
    @pytest.mark.parametrize(
        ("data", "key"),
        [
            (b"", "empty data"),
            (bytes(range(256)), "binary data"),
            (b"x", "\u00e4\u00f6\u00fc \u65e5\u672c\u8a9e \U0001f600"),
            (b"x", '"quoted" \\ \u2028 key'),
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

    def test_records_come_in_the_order_of_their_growing_sequence_numbers(
        self, one_shard: Service
    ) -> None:
        """The sequence numbers of a shard grow with every put, have 56 digits, and order the
        records.
        """
        put_numbers = [put(one_shard, str(at).encode())["SequenceNumber"] for at in range(5)]
        got = read(one_shard, iterator(one_shard, shards_of(one_shard)[0]["ShardId"]), records=5)
        assert got.data == [b"0", b"1", b"2", b"3", b"4"]
        assert [record["SequenceNumber"] for record in got.records] == put_numbers
        assert sorted(set(map(int, put_numbers))) == list(map(int, put_numbers))
        assert {len(number) for number in put_numbers} == {56}

    def test_the_arrival_time_is_the_services_time_at_the_put(self, one_shard: Service) -> None:
        """`ApproximateArrivalTimestamp` lies between the moments before and after the put."""
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        put(one_shard, b"x")
        after = datetime.now(UTC)
        (record,) = read(
            one_shard, iterator(one_shard, shards_of(one_shard)[0]["ShardId"]), records=1
        ).records
        assert before <= record["ApproximateArrivalTimestamp"] <= after

    def test_put_records_answers_entry_by_entry_in_order(self, two_shards: Service) -> None:
        """Each entry's answer has the shard and the sequence number of the record."""
        entries = [{"Data": str(at).encode(), "PartitionKey": f"key {at}"} for at in range(20)]
        answer = two_shards.client.put_records(StreamName=two_shards.name, Records=entries)
        assert answer["FailedRecordCount"] == 0
        found = {
            (shard["ShardId"], record["SequenceNumber"]): record["Data"]
            for shard in shards_of(two_shards)
            for record in read_shard(two_shards, shard["ShardId"]).records
        }
        assert [
            found[entry["ShardId"], entry["SequenceNumber"]] for entry in answer["Records"]
        ] == [entry["Data"] for entry in entries]

    def test_the_md5_of_the_partition_key_chooses_the_shard(self, two_shards: Service) -> None:
        """MD5("a") = 0cc1... lies in the lower half of the hash keys, MD5("b") = 92eb... in the
        upper.
        """
        lower, upper = sorted(shards_of(two_shards), key=hash_keys)
        assert put(two_shards, b"x", "a")["ShardId"] == lower["ShardId"]
        assert put(two_shards, b"x", "b")["ShardId"] == upper["ShardId"]

    def test_an_explicit_hash_key_overrides_the_partition_key(self, two_shards: Service) -> None:
        """The same partition key goes where the explicit hash key says."""
        lower, upper = sorted(shards_of(two_shards), key=hash_keys)
        assert (
            put(two_shards, b"x", "a", ExplicitHashKey=str(HASH_KEYS - 1))["ShardId"]
            == upper["ShardId"]
        )
        assert put(two_shards, b"x", "b", ExplicitHashKey="0")["ShardId"] == lower["ShardId"]


class TestIterators:
    def test_the_first_number_of_a_new_stream_of_an_old_name_is_a_position(
        self, one_shard: Service
    ) -> None:
        """Of its shard, as the listing has it, and of its first record."""
        one_shard.client.delete_stream(StreamName=one_shard.name)
        wait_until_gone(one_shard)
        create_stream(one_shard.client, one_shard.name)
        where = put(one_shard, b"new")
        (shard,) = shards_of(one_shard)
        for number in (
            shard["SequenceNumberRange"]["StartingSequenceNumber"],
            where["SequenceNumber"],
        ):
            start = iterator(
                one_shard, shard["ShardId"], "AT_SEQUENCE_NUMBER", StartingSequenceNumber=number
            )
            assert read(one_shard, start, records=1).data == [b"new"]

    @pytest.fixture
    def numbers(self, one_shard: Service) -> list[str]:
        """Sequence numbers of the records b"0", b"1", b"2"."""
        return [put(one_shard, str(at).encode())["SequenceNumber"] for at in range(3)]

    @pytest.fixture
    def shard_id(self, one_shard: Service) -> str:
        return str(shards_of(one_shard)[0]["ShardId"])

    def test_trim_horizon_begins_with_the_oldest_record(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """TRIM_HORIZON reads every record that is retained."""
        assert read(one_shard, iterator(one_shard, shard_id, "TRIM_HORIZON")).data == [
            b"0",
            b"1",
            b"2",
        ]

    def test_latest_begins_after_the_newest_record(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """LATEST is the position at the time of the request: records put afterwards are read."""
        start = iterator(one_shard, shard_id, "LATEST")
        put(one_shard, b"new")
        assert read(one_shard, start, records=1).data == [b"new"]

    def test_at_sequence_number_begins_with_that_record(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """AT_SEQUENCE_NUMBER includes the record."""
        start = iterator(
            one_shard, shard_id, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1]
        )
        assert read(one_shard, start).data == [b"1", b"2"]

    def test_after_sequence_number_begins_after_that_record(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """AFTER_SEQUENCE_NUMBER excludes the record."""
        start = iterator(
            one_shard, shard_id, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[1]
        )
        assert read(one_shard, start).data == [b"2"]

    def test_after_the_newest_number_nothing_is_missed(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """An iterator after the newest record reads the next record that is put."""
        start = iterator(
            one_shard, shard_id, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers[2]
        )
        assert read(one_shard, start).data == []
        put(one_shard, b"new")
        assert read(one_shard, start, records=1).data == [b"new"]

    def test_a_time_before_the_first_record_reads_all(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """AT_TIMESTAMP in the past begins with the first record at that time or later."""
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        assert read(
            one_shard, iterator(one_shard, shard_id, "AT_TIMESTAMP", Timestamp=hour_ago)
        ).data == [b"0", b"1", b"2"]

    def test_a_page_holds_no_more_than_the_limit(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """`Limit` limits the page, and the next iterator continues after it."""
        page = one_shard.client.get_records(ShardIterator=iterator(one_shard, shard_id), Limit=2)
        assert [record["Data"] for record in page["Records"]] == [b"0", b"1"]
        assert read(one_shard, page["NextShardIterator"]).data == [b"2"]

    def test_an_iterator_can_be_used_twice(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """Reading does not invalidate an iterator."""
        start = iterator(one_shard, shard_id)
        assert read(one_shard, start).data == read(one_shard, start).data

    def test_millis_behind_latest_is_zero_at_the_tip_only(
        self, one_shard: Service, numbers: list[str], shard_id: str
    ) -> None:
        """A page after which records are left is behind; the last page is not."""
        wait_for_the_next_millisecond()
        first = one_shard.client.get_records(ShardIterator=iterator(one_shard, shard_id), Limit=1)
        assert first["MillisBehindLatest"] > 0
        assert read(one_shard, first["NextShardIterator"]).last_page["MillisBehindLatest"] == 0

    def test_an_empty_page_at_the_tip_has_a_next_iterator(
        self, one_shard: Service, shard_id: str
    ) -> None:
        """An open shard never ends, however often it is read."""
        page = one_shard.client.get_records(ShardIterator=iterator(one_shard, shard_id))
        assert page["Records"] == []
        assert page["MillisBehindLatest"] == 0
        assert page["NextShardIterator"]


class TestStreamLife:
    def test_retention_goes_up_and_down(self, one_shard: Service) -> None:
        """Increase and decrease change `RetentionPeriodHours`."""
        one_shard.client.increase_stream_retention_period(
            StreamName=one_shard.name, RetentionPeriodHours=48
        )
        assert retention_hours(one_shard) == 48
        one_shard.client.decrease_stream_retention_period(
            StreamName=one_shard.name, RetentionPeriodHours=24
        )
        assert retention_hours(one_shard) == 24

    def test_retention_is_not_decreased_by_increase(self, one_shard: Service) -> None:
        """Each direction has its operation."""
        one_shard.client.increase_stream_retention_period(
            StreamName=one_shard.name, RetentionPeriodHours=48
        )
        with pytest.raises(ClientError) as error:
            one_shard.client.increase_stream_retention_period(
                StreamName=one_shard.name, RetentionPeriodHours=24
            )
        assert refusal(error) == "InvalidArgumentException"

    def test_a_recreated_stream_has_a_later_creation_time(self, one_shard: Service) -> None:
        """`StreamCreationTimestamp` distinguishes a stream from an earlier one with its name. The
        records of the earlier one are gone.
        """
        put(one_shard, b"old")
        before = created_at(one_shard)
        one_shard.client.delete_stream(StreamName=one_shard.name)
        wait_until_gone(one_shard)
        create_stream(one_shard.client, one_shard.name)
        assert created_at(one_shard) > before
        assert read_shard(one_shard, shards_of(one_shard)[0]["ShardId"]).records == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("operation", "arguments"),
        [
            ("describe_stream_summary", {}),
            ("list_shards", {}),
            ("put_record", {"Data": b"x", "PartitionKey": "key"}),
            (
                "get_shard_iterator",
                {"ShardId": "shardId-000000000000", "ShardIteratorType": "LATEST"},
            ),
            ("delete_stream", {}),
        ],
    )
    def test_an_unknown_stream_is_not_found(
        self, service: Service, operation: str, arguments: dict[str, Any]
    ) -> None:
        """Every operation answers ResourceNotFoundException."""
        with pytest.raises(ClientError) as error:
            getattr(service.client, operation)(StreamName=service.name, **arguments)
        assert refusal(error) == "ResourceNotFoundException"

    def test_an_unknown_shard_is_not_found(self, one_shard: Service) -> None:
        """A missing shard has the same error code as a missing stream: only another request
        distinguishes them.
        """
        with pytest.raises(ClientError) as error:
            iterator(one_shard, "shardId-000000000099")
        assert refusal(error) == "ResourceNotFoundException"

    def test_a_stream_that_exists_is_not_created(self, one_shard: Service) -> None:
        """A name in use is ResourceInUseException."""
        with pytest.raises(ClientError) as error:
            one_shard.client.create_stream(StreamName=one_shard.name, ShardCount=1)
        assert refusal(error) == "ResourceInUseException"

    def test_a_made_up_iterator_is_refused(self, one_shard: Service) -> None:
        """It is not taken for a place. The service says InvalidArgumentException, the emulator
        fails with an HTTP 500.
        """
        with pytest.raises(ClientError) as error:
            one_shard.client.get_records(ShardIterator="bm90IGFuIGl0ZXJhdG9y")
        assert refusal(error) in ("InvalidArgumentException", "500")

    def test_shards_that_do_not_touch_are_not_merged(self, service: Service) -> None:
        """Only neighbours can be merged."""
        create_stream(service.client, service.name, shards=3)
        first, _, last = sorted(shards_of(service), key=hash_keys)
        with pytest.raises(ClientError) as error:
            merge(service, first, last)
        assert refusal(error) == "InvalidArgumentException"

    def test_a_limit_out_of_bounds_is_refused(self, one_shard: Service) -> None:
        """At most 10,000 records can be requested."""
        start = iterator(one_shard, shards_of(one_shard)[0]["ShardId"])
        with pytest.raises(ClientError) as error:
            one_shard.client.get_records(ShardIterator=start, Limit=10_001)
        assert refusal(error) in ("ValidationException", "InvalidArgumentException")


def wait_for_the_next_millisecond() -> None:
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        pass


def retention_hours(service: Service) -> int:
    wait_until_active(service.client, service.name)
    return int(
        service.client.describe_stream_summary(StreamName=service.name)["StreamDescriptionSummary"][
            "RetentionPeriodHours"
        ]
    )


def created_at(service: Service) -> datetime:
    moment: datetime = service.client.describe_stream_summary(StreamName=service.name)[
        "StreamDescriptionSummary"
    ]["StreamCreationTimestamp"]
    return moment


def wait_until_gone(service: Service) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            service.client.describe_stream_summary(StreamName=service.name)
        except service.client.exceptions.ResourceNotFoundException:
            return
    pytest.fail(f"stream {service.name} is still there after {LIMIT_S} s")
