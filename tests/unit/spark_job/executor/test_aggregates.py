"""Aggregates in a task: rows of user records, by a log that counts Kinesis records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.reading.kpl import AggregatedRecordError
from kinesis_spout.testing.stream.hash_keys import hash_key
from spark_job.driver.retry_planner import due_retries, queued_retries
from state.codec.shard_states import encode_shard_state
from state.plan import PlannedRetry, RangePart, ShardSlice, TaskPlan
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from tests.support.aggregates.wire import aggregate, user
from tests.support.simulated.planned_task import BY_TWOS, PlannedTask, entry_of, task, whole
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

THREE = aggregate([b"k", b"l"], [user(0, b"a"), user(1, b"b"), user(0, b"c")])
NONE = aggregate([b"k"], [])


def owning(job: SimulatedJob, index: int) -> ShardSlice:
    """A slice of all of a shard, with its hash keys."""
    hash_keys = job.fake.stream(STREAM).shard(shard(index)).hash_keys
    return whole(index, hash_keys=(str(hash_keys.start), str(hash_keys.end)))


def unpacking(*slices: ShardSlice) -> TaskPlan:
    """A plan that says what was done with aggregates, as those of this version do."""
    return task(*slices, aggregated_records="unpack")


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
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=retries)))
    expected = [
        (f"{shard(0)}:{first}:2", b"a"),
        (f"{shard(0)}:{first}.2:3", b"c"),
        (f"{shard(0)}:{second}:3", b"a"),
        (f"{shard(0)}:{second}.1:3", b"b"),
        (f"{shard(0)}:{plain}:5", b"x"),
    ]
    for mode in ("unpack", "raw", "fail"):  # what was unpacked stays unpacked
        attempt = planned.attempt(aggregated_records=mode)
        assert rows(attempt, "messageId", "data") == expected
    end = planned.ends[shard(0)]
    assert (end.retries_done, end.retry_rows, end.retries_gone) == (3, 5, ())


def test_an_aggregate_that_failed_as_one_record_is_retried_as_one(one: SimulatedJob) -> None:
    """So are those of a range that begins with user records, which a spout had not delivered."""
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
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=retries)))
    expected = [
        (f"{shard(0)}:{alone}:2", THREE),
        *((f"{shard(0)}:{begin}.{sub}:3", data) for sub, data in ((1, b"b"), (2, b"c"))),
        (f"{shard(0)}:{between}:3", THREE),
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
        planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(planned_retry,))))
        for _ in range(2):
            assert rows(planned.attempt(), "data") == [(data,) for data in found]
    part = planned.ends[shard(0)].retry_part
    assert part is not None
    assert part.last == SequenceNumber(second)


def test_an_aggregate_without_user_records_is_not_gone_from_a_range_of_whole_ones(
    one: SimulatedJob,
) -> None:
    """It was a row, also where the range begins with the user records of another one."""
    (begin,), _, (end,) = (one.put(1, data=data) for data in (THREE, NONE, THREE))
    retry = PlannedRetry(
        first=SequenceNumber(begin, 1), last=SequenceNumber(end), count=4, attempts=1, whole=True
    )
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(retry,))))
    assert rows(planned.attempt(), "data") == [(b"b",), (b"c",), (NONE,), (THREE,)]
    assert planned.ends[shard(0)].retries_short == ()


def test_a_queue_that_was_merged_for_lack_of_room_is_read_as_it_was_delivered(
    one: SimulatedJob,
) -> None:
    """User records from a run with unpack, and whole aggregates from one with raw after it: none
    of them is taken to have expired.
    """
    unpacked, kept = (one.put(2, data=THREE) for _ in range(2))
    users = [SequenceNumber(number, sub) for number in unpacked for sub in range(3)]
    failed = [(number, False) for number in users]
    failed += [(SequenceNumber(number), True) for number in kept]
    state = ShardState(
        shard_id=shard(0),
        read_position=Position.after(SequenceNumber(kept[-1])),
        unresolved=tuple(
            UnresolvedRecord(first=number, last=number, attempts=1, due_ms=0, whole=is_whole)
            for number, is_whole in failed
        ),
    )
    _, stored = encode_shard_state(state, "/state", max_bytes=550)
    due = due_retries(queued_retries(stored.unresolved, None), None, 0)
    assert len(due) == 2
    slices = whole(max_records=0, retries=tuple(each.retry for each in due))
    planned = PlannedTask(one, unpacking(slices))
    expected = [(b"a",), (b"b",), (b"c",)] * 2 + [(THREE,)] * 2
    assert rows(planned.attempt(), "data") == expected
    assert planned.ends[shard(0)].retries_short == ()


def test_a_plan_of_a_version_that_said_whole_of_nothing_has_whole_retries(
    one: SimulatedJob,
) -> None:
    """Each attempt reads them so, whatever the option is: as first user records of aggregates
    they would be acked for all of them.
    """
    single, first, last = one.put(3, data=THREE)
    retries = (
        PlannedRetry(first=SequenceNumber(single), attempts=1),
        PlannedRetry(first=SequenceNumber(first), last=SequenceNumber(last), count=2, attempts=1),
    )
    for mode in ("unpack", "raw"):
        planned = PlannedTask(one, task(whole(max_records=0, retries=retries)))
        for _ in range(2):
            assert rows(planned.attempt(aggregated_records=mode), "data") == [(THREE,)] * 3
        assert planned.ends[shard(0)].retries_short == ()


def test_a_part_of_a_range_that_begins_with_user_records_is_read_again_as_it_was(
    one: SimulatedJob,
) -> None:
    """The aggregate that it ends with is whole, in each attempt."""
    begin, middle, end = one.put(3, data=THREE)
    retry = PlannedRetry(
        first=SequenceNumber(begin, 1),
        last=SequenceNumber(end),
        count=4,
        attempts=1,
        max_records=3,
        whole=True,
    )
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(retry,))))
    expected = [(f"{shard(0)}:{begin}.1:2",), (f"{shard(0)}:{begin}.2:2",)]
    expected.append((f"{shard(0)}:{middle}:2",))
    for _ in range(2):
        attempt = list(planned.attempt())
        assert rows(attempt, "messageId") == expected
        assert rows(attempt, "data")[-1] == (THREE,)


def test_a_part_of_a_range_that_ends_with_a_first_user_record_is_read_again_as_it_was(
    one: SimulatedJob,
) -> None:
    """Where each number that the log has of it could be a whole record's, and raw is set now."""
    begin, end = one.put(2, data=THREE)
    retry = PlannedRetry(
        first=SequenceNumber(begin),
        last=SequenceNumber(end, 2),
        count=6,
        attempts=1,
        max_records=4,
    )
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(retry,))))
    expected = [(b"a",), (b"b",), (b"c",), (b"a",)]
    for _ in range(2):
        assert rows(planned.attempt(aggregated_records="raw"), "data") == expected
    part = planned.ends[shard(0)].retry_part
    assert part is not None
    assert (part.last, part.rest) == (SequenceNumber(end), SequenceNumber(end, 1))


def test_a_range_of_user_records_whose_ends_are_first_ones_is_retried_under_raw(
    one: SimulatedJob,
) -> None:
    """Nothing of it is taken to have expired, as where its aggregates count as one record each."""
    begin, end = one.put(2, data=THREE)
    retry = PlannedRetry(first=SequenceNumber(begin), last=SequenceNumber(end), count=4, attempts=1)
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(retry,))))
    found = rows(planned.attempt(aggregated_records="raw"), "data")
    assert found == [(b"a",), (b"b",), (b"c",), (b"a",)]
    assert planned.ends[shard(0)].retries_short == ()


@pytest.mark.parametrize("mode", ["unpack", "raw"])
def test_each_attempt_goes_by_the_option_as_it_was_when_the_plan_was_made(
    mode: str, one: SimulatedJob
) -> None:
    """So a batch that is replayed after a change of the option has the same rows."""
    one.put(1, data=b"x")
    one.put(2, data=THREE)
    planned = PlannedTask(one, task(whole(), aggregated_records=mode))
    first = rows(planned.attempt(aggregated_records=mode))
    assert len(first) == (7 if mode == "unpack" else 3)
    for changed in ("unpack", "raw", "fail"):
        assert rows(planned.attempt(aggregated_records=changed)) == first
        fresh = PlannedTask(one, task(whole(), aggregated_records=mode))
        assert rows(fresh.attempt(aggregated_records=changed)) == first


@pytest.mark.parametrize("mode", [None, "fail"])
def test_a_plan_that_refused_aggregates_or_is_of_an_earlier_version_goes_by_the_option(
    mode: str | None, one: SimulatedJob
) -> None:
    one.put(1, data=THREE)
    for option, count in (("unpack", 3), ("raw", 1)):
        planned = PlannedTask(one, task(whole(), aggregated_records=mode))
        assert len(rows(planned.attempt(aggregated_records=option))) == count
    refusing = PlannedTask(one, task(whole(), aggregated_records=mode))
    with pytest.raises(AggregatedRecordError):
        rows(refusing.attempt(aggregated_records="fail"))


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
        planned = PlannedTask(job, task(owning(job, 0), owning(job, 1)))
        found = rows(planned.attempt(), "shardId", "data", "subSequenceNumber")
        assert sorted(found) == [(shard(0), b"a", 0), (shard(0), b"c", 2), (shard(1), b"b", 1)]
        assert rows(planned.attempt(), "shardId", "data", "subSequenceNumber") == found
        assert "(1 so far" in caplog.text


def test_which_user_records_are_the_shards_own_is_the_plans_to_say() -> None:
    """No attempt asks the service, whose answers change: a shard may be listed late."""
    with simulated(shards=2, listing_delay_ms=60_000) as job:
        packed = aggregate([job.key_of(1).encode()], [user(0, b"a"), user(0, b"b")])
        job.fake.put(STREAM, job.key_of(0), packed)
        job.count_calls()
        known = PlannedTask(job, task(owning(job, 0)))
        unknown = PlannedTask(job, task(whole(0)))
        for _ in range(2):
            assert rows(known.attempt(), "data") == []
            assert rows(unknown.attempt(), "data") == [(b"a",), (b"b",)]  # rather twice than never
            job.clock.advance(120)
        assert job.calls("ListShards") == job.calls("DescribeStreamSummary") == 0


def test_what_was_delivered_while_the_hash_keys_were_not_known_is_retried() -> None:
    """It is not taken to have expired once they are: alone and in a range."""
    with simulated(shards=2) as job:
        packed = aggregate([job.key_of(1).encode()], [user(0, b"a"), user(0, b"b"), user(0, b"c")])
        answer = job.fake.put(STREAM, job.key_of(0), packed)
        number = int(answer.partition(":")[2])
        retries = (
            PlannedRetry(first=SequenceNumber(number), attempts=1),
            PlannedRetry(
                first=SequenceNumber(number, 1),
                last=SequenceNumber(number, 2),
                count=2,
                attempts=1,
            ),
        )
        planned = PlannedTask(job, unpacking(replace(owning(job, 0), retries=retries)))
        assert rows(planned.attempt(), "data") == [(b"a",), (b"b",), (b"c",)]
        assert planned.ends[shard(0)].retries_gone == ()


def test_a_range_that_is_retried_leaves_out_the_user_records_of_other_shards() -> None:
    """As its first delivery did; so do the attempts that read a part of it again. What has expired
    of it is counted without them.
    """
    with simulated(shards=2) as job:
        own, other = (job.key_of(index).encode() for index in (0, 1))
        packed = aggregate([own, other], [user(0, b"a"), user(1, b"b"), user(0, b"c")])
        put = [int(job.fake.put(STREAM, job.key_of(0), packed).partition(":")[2]) for _ in "12"]
        job.clock.advance(20 * 3_600)
        put += [int(job.fake.put(STREAM, job.key_of(0), packed).partition(":")[2]) for _ in "34"]
        retry = PlannedRetry(
            first=SequenceNumber(put[0]), last=SequenceNumber(put[3], 2), count=8, attempts=1
        )
        sliced = replace(owning(job, 0), max_records=0)
        for limit in (None, 5):
            limited = replace(retry, max_records=limit)
            planned = PlannedTask(job, unpacking(replace(sliced, retries=(limited,))))
            for _ in range(2):
                assert rows(planned.attempt(), "data") == ([(b"a",), (b"c",)] * 4)[:limit]
        end = planned.ends[shard(0)]
        assert end.retry_part == RangePart(
            last=SequenceNumber(put[2]), rest=SequenceNumber(put[2], 2), count=5
        )
        job.clock.advance(5 * 3_600)
        planned = PlannedTask(job, unpacking(replace(sliced, retries=(retry,))))
        assert len(rows(planned.attempt())) == 4
        (short,) = planned.ends[shard(0)].retries_short
        assert (short.first, short.missing) == (retry.first, 4)


def test_a_range_that_was_delivered_while_the_hash_keys_were_not_known_has_not_expired() -> None:
    """Its user records of other shards, which those deliver, are not taken to be missing."""
    with simulated(shards=2) as job:
        own, other = (job.key_of(index).encode() for index in (0, 1))
        packed = aggregate([own, other], [user(0, b"a"), user(1, b"b"), user(1, b"c")])
        number = int(job.fake.put(STREAM, job.key_of(0), packed).partition(":")[2])
        retry = PlannedRetry(
            first=SequenceNumber(number), last=SequenceNumber(number, 2), count=3, attempts=1
        )
        slices = replace(owning(job, 0), max_records=0, retries=(retry,))
        planned = PlannedTask(job, unpacking(slices))
        assert rows(planned.attempt(), "data") == [(b"a",), (b"c",)]
        assert planned.ends[shard(0)].retries_short == ()


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
    planned = PlannedTask(one, unpacking(whole(max_records=0, retries=(retry,))))
    assert len(rows(planned.attempt())) == 4
