"""Aggregates in a task: rows of user records, by a log that counts Kinesis records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kinesis_spout.testing.stream.hash_keys import hash_key
from state.plan import PlannedRetry
from state.position import Position
from state.sequence_number import SequenceNumber
from tests.support.aggregates.wire import aggregate, user
from tests.support.simulated.planned_task import BY_TWOS, PlannedTask, entry_of, task, whole
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    import pytest

THREE = aggregate([b"k", b"l"], [user(0, b"a"), user(1, b"b"), user(0, b"c")])
NONE = aggregate([b"k"], [])


def rows(batches: Iterable[pa.RecordBatch], *names: str) -> list[tuple[Any, ...]]:
    names = names or ("messageId", "subSequenceNumber", "partitionKey", "data", "attempt")
    return [tuple(row[name] for name in names) for one in batches for row in one.to_pylist()]


def test_each_user_record_is_a_row_with_an_id_of_its_own(one: SimulatedJob) -> None:
    (plain,) = one.put(1, data=b"x")
    (packed,) = one.put(1, data=THREE)
    planned = PlannedTask(one, task(whole()))
    expected = [
        (f"{shard(0)}:{plain}:1", 0, "key", b"x", 1),
        (f"{shard(0)}:{packed}:1", 0, "k", b"a", 1),
        (f"{shard(0)}:{packed}.1:1", 1, "l", b"b", 1),
        (f"{shard(0)}:{packed}.2:1", 2, "k", b"c", 1),
    ]
    assert rows(planned.attempt()) == expected
    assert rows(planned.attempt()) == expected
    (entry,), end = planned.log.entries, planned.ends[shard(0)]
    assert (entry.count, entry.last) == (2, SequenceNumber(packed))
    assert (end.count, end.first, end.last) == (
        4,
        SequenceNumber(plain),
        SequenceNumber(packed, 2),
    )
    assert end.payload_bytes == len(THREE) + 1


def test_an_aggregate_without_records_counts_as_read(one: SimulatedJob) -> None:
    """It has no rows, and the next read begins after it."""
    numbers = one.put(3, data=NONE)
    planned = PlannedTask(one, task(whole()))
    assert rows(planned.attempt()) == []
    assert planned.ends[shard(0)].last == SequenceNumber(numbers[-1])
    assert planned.ends[shard(0)].count == 0
    assert [entry.count for entry in planned.log.entries] == [3]


def test_a_limit_counts_kinesis_records(one: SimulatedJob) -> None:
    """So a batch ends between two aggregates, never inside one."""
    one.put(5, data=THREE)
    planned = PlannedTask(one, task(whole(max_records=2)))
    assert len(rows(planned.attempt())) == 6
    assert [entry.count for entry in planned.log.entries] == [2]


def test_an_attempt_that_follows_another_has_its_rows(one: SimulatedJob) -> None:
    """Whatever pages it gets: the log cuts between Kinesis records."""
    numbers = one.put(2, data=THREE) + one.put(1, data=b"x") + one.put(2, data=THREE)
    planned = PlannedTask(one, task(whole()))
    first = rows(planned.attempt(pace=BY_TWOS))
    assert len(first) == 13
    follower = PlannedTask(one, task(whole()))
    follower.append(entry_of(numbers[:3]), entry_of(numbers[3:]), sealed=True)
    assert rows(follower.attempt()) == first


def test_a_user_record_is_retried_alone(one: SimulatedJob) -> None:
    """Or with those that are queued as a range with it, over several Kinesis records."""
    first, second, plain = one.put(2, data=THREE) + one.put(1, data=b"x")
    retries = (
        PlannedRetry(first=SequenceNumber(first), attempts=1),
        PlannedRetry(
            first=SequenceNumber(first, 2), last=SequenceNumber(second, 1), count=3, attempts=2
        ),
        PlannedRetry(first=SequenceNumber(plain), attempts=4),
    )
    planned = PlannedTask(one, task(whole(max_records=0, retries=retries)))
    expected = [
        (f"{shard(0)}:{first}:2", b"a"),
        (f"{shard(0)}:{first}.2:3", b"c"),
        (f"{shard(0)}:{second}:3", b"a"),
        (f"{shard(0)}:{second}.1:3", b"b"),
        (f"{shard(0)}:{plain}:5", b"x"),
    ]
    for mode in ("unpack", "raw"):  # what was unpacked stays unpacked
        attempt = planned.attempt(aggregated_records=mode)
        assert rows(attempt, "messageId", "data")[1:] == expected[1:]
    assert rows(planned.attempt(), "messageId", "data") == expected
    end = planned.ends[shard(0)]
    assert (end.retries_done, end.retry_rows, end.retries_gone) == (3, 5, ())


def test_an_aggregate_that_failed_as_one_record_is_retried_as_one(one: SimulatedJob) -> None:
    """So is the last one of a range that begins with a user record; others may be in between."""
    alone, begin, between, end, unpacked = one.put(5, data=THREE)
    retries = (
        PlannedRetry(first=SequenceNumber(alone), attempts=1, whole=True),
        PlannedRetry(
            first=SequenceNumber(begin, 1),
            last=SequenceNumber(end),
            count=4,
            attempts=2,
            whole=True,
        ),
        PlannedRetry(first=SequenceNumber(unpacked), attempts=1),
    )
    planned = PlannedTask(one, task(whole(max_records=0, retries=retries)))
    expected = [
        (f"{shard(0)}:{alone}:2", THREE),
        *((f"{shard(0)}:{begin}.{sub}:3", data) for sub, data in ((1, b"b"), (2, b"c"))),
        (f"{shard(0)}:{between}:3", b"a"),
        *((f"{shard(0)}:{between}.{sub}:3", data) for sub, data in ((1, b"b"), (2, b"c"))),
        (f"{shard(0)}:{end}:3", THREE),
    ]
    assert rows(planned.attempt(aggregated_records="raw"), "messageId", "data")[:-1] == expected
    expected.append((f"{shard(0)}:{unpacked}:2", b"a"))
    assert rows(planned.attempt(), "messageId", "data") == expected


def test_a_range_of_whole_aggregates_is_retried_as_it_failed(one: SimulatedJob) -> None:
    """And in parts, of which each attempt reads the same."""
    first, second, _ = one.put(3, data=THREE)
    (last,) = one.put(1, data=b"x")
    retry = PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last), count=4, attempts=1, whole=True
    )
    limited = replace(retry, max_records=2)
    for planned_retry, found in ((retry, [THREE, THREE, THREE, b"x"]), (limited, [THREE, THREE])):
        planned = PlannedTask(one, task(whole(max_records=0, retries=(planned_retry,))))
        for _ in range(2):
            assert rows(planned.attempt(), "data") == [(data,) for data in found]
    part = planned.ends[shard(0)].retry_part
    assert part is not None
    assert part.last == SequenceNumber(second)


def test_a_part_of_a_mixed_range_is_read_again_as_it_was(one: SimulatedJob) -> None:
    """It ends in an aggregate that was unpacked, after the first user record."""
    begin, middle, end = one.put(3, data=THREE)
    retry = PlannedRetry(
        first=SequenceNumber(begin, 1),
        last=SequenceNumber(end),
        count=6,
        attempts=1,
        max_records=3,
        whole=True,
    )
    planned = PlannedTask(one, task(whole(max_records=0, retries=(retry,))))
    expected = [(f"{shard(0)}:{begin}.1:2",), (f"{shard(0)}:{begin}.2:2",)]
    expected.append((f"{shard(0)}:{middle}:2",))
    for _ in range(2):
        attempt = list(planned.attempt())
        assert rows(attempt, "messageId") == expected
        assert rows(attempt, "data")[-1] == (b"a",)


def test_an_aggregate_that_a_spout_has_delivered_in_part_goes_on(one: SimulatedJob) -> None:
    """Also where its bytes are asked for now. The log begins with its next user record."""
    packed, after = one.put(2, data=THREE)
    position = Position.at(SequenceNumber(packed, 1))
    for mode, rest in (("unpack", [b"a", b"b", b"c"]), ("raw", [THREE])):
        planned = PlannedTask(one, task(replace(whole(), position=position)))
        found = rows(planned.attempt(aggregated_records=mode), "data")
        assert [data for (data,) in found] == [b"b", b"c", *rest]
        end = planned.ends[shard(0)]
        assert (end.first, end.count) == (SequenceNumber(packed, 1), len(found))
        assert end.last is not None
        assert end.last.sequence == after


def test_a_user_record_is_delivered_by_the_shard_that_has_its_hash_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A producer that packed for the shard before its split puts what is outside again."""
    caplog.set_level("WARNING", logger="kinesis_spout")
    with simulated(shards=2) as job:
        left, right = job.key_of(0), job.key_of(1)
        assert hash_key(left) < hash_key(right)
        both = aggregate(
            [left.encode(), right.encode()],
            [user(0, b"a"), user(1, b"b"), user(1, b"c", 0)],
            [str(hash_key(left)).encode()],
        )
        for key in (left, right):
            job.fake.put(STREAM, key, both)
        planned = PlannedTask(job, task(whole(0), whole(1)))
        found = rows(planned.attempt(), "shardId", "data", "subSequenceNumber")
        assert sorted(found) == [(shard(0), b"a", 0), (shard(0), b"c", 2), (shard(1), b"b", 1)]
        assert rows(planned.attempt(), "shardId", "data", "subSequenceNumber") == found
        assert "(1 so far" in caplog.text


def test_shards_are_listed_only_where_an_aggregate_is_met() -> None:
    """Once for all shards of a task."""
    with simulated(shards=2) as job:
        for index in (0, 1):
            job.fake.put(STREAM, job.key_of(index), b"x")
        job.count_calls()
        rows(PlannedTask(job, task(whole(0), whole(1))).attempt())
        assert job.calls("ListShards") == 0
        for index in (0, 1):
            job.fake.put(STREAM, job.key_of(index), THREE)
        rows(PlannedTask(job, task(whole(0), whole(1))).attempt())
        assert job.calls("ListShards") == 1


def test_in_a_stream_that_ignores_keys_nothing_is_left_out() -> None:
    """Its shards have no hash keys of their own."""
    with simulated(shards=2) as job:
        key = job.key_of(0)
        packed = aggregate([job.key_of(1).encode()], [user(0, b"a"), user(0, b"b")])
        job.fake.put(STREAM, key, packed)
        assert rows(PlannedTask(job, task(whole(0))).attempt(), "data") == []
    with simulated(shards=2) as job:
        job.fake.put(STREAM, job.key_of(0), packed)
        for strategy in ("AUTO", "USER_PARTITION_KEY"):  # today's; it may have been the other one
            job.fake.stream(STREAM).distribution = strategy
            found = rows(PlannedTask(job, task(whole(0))).attempt(), "data")
            assert found == [(b"a",), (b"b",)]


def test_raw_delivers_the_bytes_of_an_aggregate(one: SimulatedJob) -> None:
    one.put(1, data=THREE)
    planned = PlannedTask(one, task(whole()))
    assert rows(planned.attempt(aggregated_records="raw"), "data") == [(THREE,)]


def test_a_range_with_only_empty_aggregates_in_a_page_is_read_on(one: SimulatedJob) -> None:
    """A page of them has no row at all."""
    first, *_, last = one.put(1, data=THREE) + one.put(3_500, data=NONE) + one.put(1, data=THREE)
    retry = PlannedRetry(
        first=SequenceNumber(first, 1), last=SequenceNumber(last, 1), count=4, attempts=1
    )
    planned = PlannedTask(one, task(whole(max_records=0, retries=(retry,))))
    assert len(rows(planned.attempt())) == 4
