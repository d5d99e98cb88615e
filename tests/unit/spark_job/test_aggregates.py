"""Aggregates: the plans of the driver say what tasks do with them, and a task has rows of user
records by a log that counts Kinesis records. In simulated time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.errors import KinesisError
from kinesis_spout.reading.user_records import AggregatedRecordError
from kinesis_spout.testing.stream.hash_keys import hash_key
from spark_job.driver.retry_queue import RetryQueue
from spark_job.executor.task_reader import read_task
from state.codec.shard_states import encode_shard_state
from state.plan import PlannedRetry, PlanStatus, RangePart, ShardSlice, TaskPlan
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.ownership import OwnerInfo
from state.store.shard_states import StateChange
from tests.support.aggregates.wire import aggregate, aggregate_of, user
from tests.support.simulated.planned_task import PlannedTask, task, whole
from tests.support.simulated.played_outcomes import policy, tracked
from tests.support.simulated.simulated_driver import next_plan, pointer, rows_of, track_all
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from spark_job.driver.coordinator import Coordinator
    from state.plan import Plan, ShardReadResult
    from tests.support.simulated.played_outcomes import Row

THREE = aggregate_of([b"a", b"b", b"c"])


def plan_of(job: SimulatedJob, plan_id: str) -> Plan:
    plan = job.store().plans.read(plan_id)
    assert plan is not None
    return plan


def rows(job: SimulatedJob, driver: Coordinator, plan_id: str, mode: str) -> list[Row]:
    """The rows of a plan, as executors with this option read them. Their sequence numbers are those
    of message ids.
    """
    settings = job.settings(aggregated_records=mode)
    services = job.services(settings)
    return rows_named(
        row
        for task, plan in driver.tasks(plan_id).items()
        for batch in read_task(plan_id, task, plan, services=services)
        for row in batch.to_pylist()
    )


def rows_named(found: Iterable[Row]) -> list[Row]:
    """The rows with the sequence numbers of their message ids."""
    return [row | {"sequenceNumber": row["messageId"].split(":")[1]} for row in found]


def changed(job: SimulatedJob, driver: Coordinator, mode: str) -> Coordinator:
    """The driver of the next run of the query, with this option."""
    driver.close()
    return job.coordinator(aggregated_records=mode)


@pytest.mark.parametrize(("before", "after"), [("raw", "unpack"), ("unpack", "raw")])
def test_a_batch_is_replayed_with_its_rows_after_a_change_of_the_option(
    before: str, after: str, one: SimulatedJob
) -> None:
    """Its failures are queued as they were delivered. The next plan goes by the new option."""
    one.put(1, data=THREE)
    driver = one.coordinator(aggregated_records=before)
    plan = next_plan(driver)
    found = rows(one, driver, plan, before)
    driver = changed(one, driver, after)
    assert rows(one, driver, plan, after) == found
    outcomes = tracked(one, lambda row: row["attempt"] == 1, policy(retry_limit=3))
    outcomes.play(found)
    again = next_plan(driver, plan)
    assert [state.unresolved_count for state in one.states().values()] == [len(found)]
    one.put(1, data=THREE)
    retried = rows(one, driver, again, after)
    assert [row["data"] for row in retried if row["attempt"] == 2] == [row["data"] for row in found]
    outcomes.play(retried)
    last = next_plan(driver, again)
    assert len(rows(one, driver, last, after)) == (1 if after == "raw" else 3)


def test_a_plan_that_refused_aggregates_is_closed_where_they_are_no_longer_refused(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has published has none. All else comes with a plan that goes by one option."""
    caplog.set_level(logging.WARNING, logger="kinesis_spout")
    one.put(2, data=b"x")
    one.put(1, data=THREE)
    driver = one.coordinator(aggregated_records="fail", max_records_per_shard=2)
    plan = next_plan(driver)
    assert [row["data"] for row in rows(one, driver, plan, "fail")] == [b"x", b"x"]
    second = next_plan(driver, plan)
    with pytest.raises(KinesisError, match="is an aggregate of the Kinesis Producer Library"):
        rows(one, driver, second, "fail")
    driver = changed(one, driver, "fail")
    with pytest.raises(KinesisError, match="is an aggregate of the Kinesis Producer Library"):
        rows(one, driver, second, "fail")
    assert pointer(one).status is PlanStatus.OPEN
    driver = changed(one, driver, "unpack")
    assert rows(one, driver, second, "unpack") == []
    assert pointer(one).status is PlanStatus.CLOSED
    assert "planned while aggregatedRecords was fail" in caplog.text
    third = next_plan(driver, second)
    assert [row["data"] for row in rows(one, driver, third, "unpack")] == [b"a", b"b", b"c"]


def test_a_plan_has_the_hash_keys_of_its_shards_where_they_decide() -> None:
    """Not of a shard that has all, nor where the stream does not go by keys, or may not have."""
    for shards, strategy, known in (
        (2, None, True),
        (1, None, False),
        (2, "AUTO", False),
        (2, "USER_PARTITION_KEY", False),
    ):
        with simulated(shards=shards) as job:
            job.put(1, key=job.key_of(0))
            if strategy is not None:
                job.fake.stream(STREAM).distribution = strategy
            hash_keys = job.fake.stream(STREAM).shard(shard(0)).hash_keys
            expected = (str(hash_keys.start), str(hash_keys.end)) if known else None
            slices = plan_of(job, next_plan(job.coordinator())).slices
            assert slices[shard(0)].hash_keys == expected


def test_a_shard_is_read_on_where_the_rest_of_a_begun_aggregate_belongs_to_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A spout that did not know the shard's hash keys has delivered its first user record, and
    ended.
    """
    caplog.set_level(logging.WARNING, logger="kinesis_spout")
    with simulated(shards=2) as job:
        packed = aggregate_of([b"a", b"b"], [job.key_of(0), job.key_of(1)])
        number = int(job.fake.put(STREAM, job.key_of(0), packed).partition(":")[2])
        begin(job, Position.at(SequenceNumber(number, 1)))
        driver = job.coordinator()
        plan, found = track_all(job, driver, tracked(job, lambda _: False))
        assert found == []
        assert job.states()[shard(0)].read_position == Position.after(SequenceNumber(number))
        job.put(1, key=job.key_of(0))
        assert len(rows_of(job, driver, next_plan(driver, plan))) == 1
        assert "nothing of it is settled" not in caplog.text


def begin(job: SimulatedJob, position: Position, **fields: Any) -> None:
    """The first shard's state, as another process has left it."""
    store = job.store()
    store.ownership.acquire(OwnerInfo(host="host", pid=1, since_ms=0), timeout_s=1)
    state = ShardState(shard_id=shard(0), read_position=position, **fields)
    store.shard_states.save([StateChange(before=None, after=state)])
    store.close()


MIXED = aggregate([b"k", b"l"], [user(0, b"a"), user(1, b"b"), user(0, b"c")])


def owning(job: SimulatedJob, index: int) -> ShardSlice:
    """A slice of all of a shard, with its hash keys."""
    hash_keys = job.fake.stream(STREAM).shard(shard(index)).hash_keys
    return whole(index, hash_keys=(str(hash_keys.start), str(hash_keys.end)))


def unpacking(*slices: ShardSlice) -> TaskPlan:
    """A plan that says what was done with aggregates, as those of this version do."""
    return task(*slices, aggregated_records="unpack")


def fields_of(batches: Iterable[pa.RecordBatch], *names: str) -> list[tuple[Any, ...]]:
    names = names or ("messageId", "subSequenceNumber", "partitionKey", "data", "attempt")
    return [tuple(row[name] for name in names) for one in batches for row in one.to_pylist()]


def retry(first: int, sub: int = 0, **fields: Any) -> PlannedRetry:
    return PlannedRetry(first=SequenceNumber(first, sub), **({"attempts": 1} | fields))


def span(first: int, sub: int, last: int, last_sub: int, count: int, **fields: Any) -> PlannedRetry:
    return retry(first, sub, last=SequenceNumber(last, last_sub), count=count, **fields)


def retried(
    job: SimulatedJob,
    *retries: PlannedRetry,
    names: Sequence[str] = ("data",),
    mode: str = "unpack",
    of: ShardSlice | None = None,
) -> tuple[list[Any], ShardReadResult]:
    """What these fields of the rows of a plan of these retries are, and what its log says. Another
    attempt has the same rows.
    """
    slices = replace(of or whole(), max_records=0, retries=retries)
    planned = PlannedTask(job, unpacking(slices))
    found = fields_of(planned.attempt(aggregated_records=mode), *names)
    assert fields_of(planned.attempt(aggregated_records=mode), *names) == found
    return found if len(names) > 1 else [one for (one,) in found], planned.ends[shard(0)]


IDS = ("messageId", "data")


@pytest.mark.parametrize("mode", ["unpack", "raw", "fail"])
def test_a_user_record_is_retried_alone(one: SimulatedJob, mode: str) -> None:
    """Or with those that are queued as a range with it, over several Kinesis records. What was
    unpacked stays unpacked.
    """
    first, second, plain = one.put(2, data=MIXED) + one.put(1, data=b"x")
    retries = retry(first), span(first, 2, second, 1, 3, attempts=2), retry(plain, attempts=4)
    found, end = retried(one, *retries, names=IDS, mode=mode)
    assert found == [
        (f"{shard(0)}:{first}:2", b"a"),
        (f"{shard(0)}:{first}.2:3", b"c"),
        (f"{shard(0)}:{second}:3", b"a"),
        (f"{shard(0)}:{second}.1:3", b"b"),
        (f"{shard(0)}:{plain}:5", b"x"),
    ]
    assert (end.retries_done, end.retry_rows, end.retries_gone) == (3, 5, ())


@pytest.mark.parametrize("mode", ["unpack", "raw"])
def test_an_aggregate_that_failed_as_one_record_is_retried_as_one(
    one: SimulatedJob, mode: str
) -> None:
    """So are those of a range that begins with user records, which a spout had not delivered."""
    alone, begin, between, end, unpacked = one.put(5, data=MIXED)
    whole_range = span(begin, 1, end, 0, 4, attempts=2, whole=True)
    retries = retry(alone, whole=True), whole_range, retry(unpacked)
    assert retried(one, *retries, names=IDS, mode=mode)[0] == [
        (f"{shard(0)}:{alone}:2", MIXED),
        *((f"{shard(0)}:{begin}.{sub}:3", data) for sub, data in ((1, b"b"), (2, b"c"))),
        (f"{shard(0)}:{between}:3", MIXED),
        (f"{shard(0)}:{end}:3", MIXED),
        (f"{shard(0)}:{unpacked}:2", b"a"),
    ]


def test_a_range_of_whole_aggregates_is_retried_as_it_failed(one: SimulatedJob) -> None:
    """And in parts, of which each attempt reads the same; also where it begins with the user
    records of an aggregate.
    """
    first, second, third = one.put(3, data=MIXED)
    (last,) = one.put(1, data=b"x")
    kept = span(first, 0, last, 0, 4, whole=True)
    assert retried(one, kept)[0] == [MIXED, MIXED, MIXED, b"x"]
    found, end = retried(one, replace(kept, max_records=2))
    assert (found, end.retry_part and end.retry_part.last) == ([MIXED] * 2, SequenceNumber(second))
    begun = span(first, 1, third, 0, 4, max_records=3, whole=True)
    assert retried(one, begun)[0] == [b"b", b"c", MIXED]


def test_a_queue_that_was_merged_for_lack_of_room_is_read_as_it_was_delivered(
    one: SimulatedJob,
) -> None:
    """User records from a run with unpack, and whole aggregates from one with raw after it: none
    of them is taken to have expired.
    """
    unpacked, kept = (one.put(2, data=MIXED) for _ in range(2))
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
    queue = RetryQueue()
    queue.update({shard(0): stored}, None, 0)
    due = [retry for _, retry in queue.due(0)]
    assert len(due) == 2
    found, end = retried(one, *due)
    assert (found, end.retries_short) == ([b"a", b"b", b"c"] * 2 + [MIXED] * 2, ())


@pytest.mark.parametrize("mode", ["unpack", "raw"])
def test_a_plan_of_a_version_that_said_whole_of_nothing_has_whole_retries(
    one: SimulatedJob, mode: str
) -> None:
    """Each attempt reads them so, whatever the option is: as first user records of aggregates
    they would be acked for all of them.
    """
    single, first, last = one.put(3, data=MIXED)
    retries = retry(single), span(first, 0, last, 0, 2)
    planned = PlannedTask(one, task(whole(max_records=0, retries=retries)))
    for _ in range(2):
        assert fields_of(planned.attempt(aggregated_records=mode), "data") == [(MIXED,)] * 3
    assert planned.ends[shard(0)].retries_short == ()


@pytest.mark.parametrize("mode", [None, "fail"])
def test_a_plan_that_refused_aggregates_or_is_of_an_earlier_version_goes_by_the_option(
    mode: str | None, one: SimulatedJob
) -> None:
    one.put(1, data=MIXED)
    for option, count in (("unpack", 3), ("raw", 1)):
        planned = PlannedTask(one, task(whole(), aggregated_records=mode))
        assert len(fields_of(planned.attempt(aggregated_records=option))) == count
    refusing = PlannedTask(one, task(whole(), aggregated_records=mode))
    with pytest.raises(AggregatedRecordError):
        fields_of(refusing.attempt(aggregated_records="fail"))


def test_an_aggregate_that_a_spout_has_delivered_in_part_goes_on(one: SimulatedJob) -> None:
    """Also where its bytes are asked for now. The log begins with its next user record."""
    packed, after = one.put(2, data=MIXED)
    position = Position.at(SequenceNumber(packed, 1))
    for mode, rest in (("unpack", [b"a", b"b", b"c"]), ("raw", [MIXED])):
        planned = PlannedTask(one, task(replace(whole(), position=position)))
        found = fields_of(planned.attempt(aggregated_records=mode), "data")
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
        found = fields_of(planned.attempt(), "shardId", "data", "subSequenceNumber")
        assert sorted(found) == [(shard(0), b"a", 0), (shard(0), b"c", 2), (shard(1), b"b", 1)]
        assert fields_of(planned.attempt(), "shardId", "data", "subSequenceNumber") == found
        assert "(1 so far" in caplog.text


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
        sliced, kept = owning(job, 0), span(put[0], 0, put[3], 2, 8)
        assert retried(job, kept, of=sliced)[0] == [b"a", b"c"] * 4
        found, end = retried(job, replace(kept, max_records=5), of=sliced)
        assert found == ([b"a", b"c"] * 4)[:5]
        assert end.retry_part == RangePart(
            last=SequenceNumber(put[2]), rest=SequenceNumber(put[2], 2), count=5
        )
        job.clock.advance(5 * 3_600)
        found, end = retried(job, kept, of=sliced)
        assert len(found) == 4
        (short,) = end.retries_short
        assert (short.first, short.missing) == (kept.first, 4)
