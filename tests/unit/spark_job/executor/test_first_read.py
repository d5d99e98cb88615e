"""The first read of a task: up to a limit, the tip or the end of each shard, and its result."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_spout.reading.kpl import AggregatedRecordError
from kinesis_spout.testing import error
from spark_job.executor.first_read import Held, collect
from spark_job.executor.replay import replay
from state.plan import (
    ChildShard,
    PlannedRetry,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
    TaskResult,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from tests.support.simulated.simulated_job import AGGREGATE, STREAM, SimulatedJob, shard, simulated


def task(*slices: ShardSlice, **limits: int) -> TaskPlan:
    return TaskPlan(
        shards=slices,
        **({"max_bytes": 2**20, "fetch_time_ms": 5_000, "fetch_cap_ms": 60_000} | limits),
    )


def whole(
    index: int = 0, *, max_records: int = 1_000, position: Position = TRIM_HORIZON, **rest: Any
) -> ShardSlice:
    return ShardSlice(shard_id=shard(index), position=position, max_records=max_records, **rest)


def read(job: SimulatedJob, plan: TaskPlan, **options: Any) -> list[Held]:
    settings = job.settings(**options)
    return collect(plan, job.services(settings), settings)


def sequences(held: Held) -> list[int]:
    return [int(text) for page in held.pages for text in page.columns.lists().numbers]


def test_a_shard_is_read_to_its_tip_and_the_result_has_first_last_count_and_the_tip(
    one: SimulatedJob,
) -> None:
    put = one.put(5)
    (held,) = read(one, task(whole()))
    assert sequences(held) == put
    assert (held.end.first, held.end.last, held.end.count) == (
        SequenceNumber(put[0]),
        SequenceNumber(put[-1]),
        5,
    )
    assert (held.end.at_tip, held.end.tip_ms, held.end.last_arrival_ms) == (
        True,
        one.clock.now_ms(),
        one.clock.now_ms(),
    )
    assert (held.end.at_shard_end, held.end.children) == (False, ())
    assert held.end.iterator is not None


def test_the_hinted_iterator_continues_after_the_last_record(one: SimulatedJob) -> None:
    put = one.put(3)
    (held,) = read(one, task(whole()))
    more = one.put(2)
    one.count_calls()
    (again,) = read(
        one,
        task(whole(position=Position.after(SequenceNumber(put[-1])), iterator=held.end.iterator)),
    )
    assert sequences(again) == more
    assert one.calls("GetShardIterator") == 0


def test_a_shard_without_records_is_at_its_tip_and_its_result_names_none(one: SimulatedJob) -> None:
    (held,) = read(one, task(whole()))
    assert (held.end.first, held.end.last, held.end.count, held.end.last_arrival_ms) == (
        None,
        None,
        0,
        None,
    )
    assert held.end.at_tip
    assert not held.pages


def test_no_more_records_are_read_than_the_plan_allows(one: SimulatedJob) -> None:
    put = one.put(10)
    (held,) = read(one, task(whole(max_records=7)))
    assert sequences(held) == put[:7]
    assert (held.end.at_tip, held.end.tip_ms) == (False, None)


def test_the_end_of_a_shard_is_reported_with_its_children_and_its_time(one: SimulatedJob) -> None:
    put = one.put(4)
    one.fake.split(STREAM, shard(0))
    (held,) = read(one, task(whole()))
    assert sequences(held) == put
    assert held.end.at_shard_end
    assert held.end.children == tuple(
        ChildShard(shard_id=shard(n), parents=(shard(0),)) for n in (1, 2)
    )
    assert (held.end.tip_ms, held.end.iterator) == (one.clock.now_ms(), None)


def test_the_end_may_come_on_a_page_of_its_own_without_records() -> None:
    with simulated(shards=1, end_with_last_records=False) as job:
        put = job.put(4)
        job.fake.split(STREAM, shard(0))
        (held,) = read(job, task(whole()))
        assert (sequences(held), held.end.at_shard_end) == (put, False)
        (rest,) = read(
            job,
            task(
                whole(position=Position.after(SequenceNumber(put[-1])), iterator=held.end.iterator)
            ),
        )
        assert (rest.end.count, rest.end.at_shard_end, len(rest.end.children)) == (0, True, 2)


def test_a_page_that_exceeds_the_bytes_is_cut_and_says_nothing_of_what_follows(
    one: SimulatedJob,
) -> None:
    """The page was at the shard's end, its head is not: the result has no tip, end, children or
    iterator.
    """
    put = one.put(10, data=b"x" * 300)
    one.fake.split(STREAM, shard(0))
    (held,) = read(one, task(whole(), max_bytes=1_000))
    assert sequences(held) == put[:3]
    assert (held.end.last, held.end.count) == (SequenceNumber(put[2]), 3)
    assert (held.end.at_tip, held.end.at_shard_end, held.end.iterator, held.end.tip_ms) == (
        False,
        False,
        None,
        None,
    )
    assert held.end.children == ()


def test_one_record_is_always_kept_however_large_it_is(one: SimulatedJob) -> None:
    put = one.put(2, data=b"x" * 300)
    (held,) = read(one, task(whole(), max_bytes=10))
    assert sequences(held) == put[:1]


def test_records_without_payload_need_no_bytes(one: SimulatedJob) -> None:
    one.put(5, data=b"")
    (held,) = read(one, task(whole(), max_bytes=1))
    assert (held.end.count, held.end.at_tip) == (5, True)


def test_the_tasks_shards_share_its_bytes_and_one_that_gets_none_is_not_at_its_tip(
    job: SimulatedJob,
) -> None:
    for index in (0, 1):
        job.put(10, key=job.key_of(index), data=b"x" * 100)
    first, second = read(job, task(whole(0), whole(1), max_bytes=1_000))
    assert (first.end.count, second.end.count) == (10, 0)
    assert (second.end.first, second.end.at_tip) == (None, False)


def test_a_shard_that_was_not_read_for_lack_of_bytes_keeps_its_hinted_iterator(
    job: SimulatedJob,
) -> None:
    """It may point far into a run of empty pages, which would have to be read again."""
    job.put(10, key=job.key_of(0), data=b"x" * 100)
    _, second = read(job, task(whole(0), whole(1, iterator="far inside"), max_bytes=1_000))
    assert (second.end.count, second.end.iterator) == (0, "far inside")


def test_results_are_in_the_plans_order_of_shards(job: SimulatedJob) -> None:
    ends = [held.end.shard_id for held in read(job, task(whole(1), whole(0)))]
    assert ends == [shard(1), shard(0)]


def test_a_shard_with_records_is_not_read_past_the_time_box(one: SimulatedJob) -> None:
    """One read a second, so that simulated time passes: records, then empty pages without end."""
    put = one.put(3)
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    (held,) = read(one, task(whole(), fetch_time_ms=4_000, fetch_cap_ms=60_000), reads_per_second=1)
    assert sequences(held) == put
    assert not held.end.at_tip
    assert one.clock.monotonic_s() < 10


def test_a_shard_behind_without_records_is_read_up_to_the_cap(
    one: SimulatedJob,
) -> None:
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    (held,) = read(one, task(whole(), fetch_time_ms=1_000, fetch_cap_ms=20_000), reads_per_second=1)
    assert (held.end.count, held.end.at_tip) == (0, False)
    assert 19 <= one.clock.monotonic_s() < 30


def test_records_after_the_time_box_and_within_the_cap_are_returned(
    one: SimulatedJob,
) -> None:
    one.fake.insert_empty_pages(STREAM, shard(0), 10)
    put = one.put(2)
    (held,) = read(one, task(whole(), fetch_time_ms=1_000, fetch_cap_ms=60_000), reads_per_second=1)
    assert sequences(held) == put


def test_a_run_of_empty_pages_longer_than_a_batch_is_read_over_several_batches(
    one: SimulatedJob,
) -> None:
    """The position does not move over empty pages; the hinted iterator does."""
    one.fake.insert_empty_pages(STREAM, shard(0), 30)
    put = one.put(1)
    iterator: str | None = None
    for _ in range(10):
        plan = task(whole(iterator=iterator), fetch_time_ms=1_000, fetch_cap_ms=8_000)
        (held,) = read(one, plan, reads_per_second=1)
        if held.end.count:
            break
        iterator = held.end.iterator
    assert sequences(held) == put


def test_an_aggregate_stops_the_task_and_is_data_with_the_raw_option(one: SimulatedJob) -> None:
    one.put(1)
    one.put(1, data=AGGREGATE)
    with pytest.raises(AggregatedRecordError, match=shard(0)):
        read(one, task(whole()))
    (held,) = read(one, task(whole()), aggregated_records="raw")
    assert held.end.count == 2


def test_the_listed_ending_sequence_is_the_end_once_it_was_read(
    one: SimulatedJob,
) -> None:
    """Some emulators list the end and never end the shard by a page."""
    put = one.put(2)
    ending = SequenceNumber(put[-1])
    (held,) = read(one, task(whole(position=Position.after(ending), ending_sequence=ending)))
    assert held.end.at_shard_end
    assert held.end.count == 0


# retries ------------------------------------------------------------------------------------------
def retry(sequence: int, attempts: int = 1) -> PlannedRetry:
    return PlannedRetry(first=SequenceNumber(sequence), attempts=attempts)


def again(held: Held) -> list[tuple[int, int]]:
    """Numbers and deliveries of the retries' records."""
    return [
        (int(number), attempt)
        for part in held.retries
        for number, attempt in zip(
            part.records.column("sequenceNumber").to_pylist(),
            part.attempts.to_pylist(),
            strict=True,
        )
    ]


def after(sequence: int) -> Position:
    return Position.after(SequenceNumber(sequence))


def test_retries_are_held_beside_new_records_and_counted_in_the_result(
    one: SimulatedJob,
) -> None:
    put = one.put(10)
    gone = retry(put[4] + 1)
    (held,) = read(
        one, task(whole(position=after(put[6]), retries=(retry(put[1]), retry(put[4], 3), gone)))
    )
    assert again(held) == [(put[1], 2), (put[4], 4)]
    assert sequences(held) == put[7:]
    assert (held.end.retries_done, held.end.retry_rows, held.end.retries_gone) == (
        3,
        2,
        (gone.first,),
    )
    assert (held.end.count, held.end.at_tip) == (3, True)


def test_a_slice_of_retries_alone_reads_no_new_record_and_says_nothing_of_the_tip(
    one: SimulatedJob,
) -> None:
    put = one.put(10)
    one.fake.split(STREAM, shard(0))
    (held,) = read(one, task(whole(max_records=0, position=SHARD_END, retries=(retry(put[2]),))))
    assert (again(held), sequences(held)) == ([(put[2], 2)], [])
    assert held.end == ShardReadResult(shard_id=shard(0), retries_done=1, retry_rows=1)


def test_retries_get_half_of_the_bytes_where_there_may_be_new_records_and_all_otherwise(
    one: SimulatedJob,
) -> None:
    put = one.put(20, data=b"x" * 100)
    retries = tuple(map(retry, put[:10]))
    (held,) = read(one, task(whole(position=after(put[9]), retries=retries), max_bytes=1_000))
    assert (held.end.retries_done, held.end.retry_rows, held.end.count) == (5, 5, 5)
    (held,) = read(
        one, task(whole(max_records=0, position=after(put[9]), retries=retries), max_bytes=1_000)
    )
    assert (held.end.retries_done, held.end.count) == (10, 0)


def test_a_retry_that_is_larger_than_the_task_is_returned_alone(one: SimulatedJob) -> None:
    put = one.put(4, data=b"x" * 500)
    (held,) = read(
        one,
        task(whole(position=after(put[1]), retries=(retry(put[0]), retry(put[1]))), max_bytes=100),
    )
    assert (held.end.retries_done, held.end.count, held.end.at_tip) == (1, 0, False)


def test_the_tasks_shards_share_the_bytes_for_retries_and_the_first_one_always_gets_some(
    job: SimulatedJob,
) -> None:
    put = [job.put(10, key=job.key_of(index), data=b"x" * 100) for index in (0, 1)]
    slices = [
        whole(n, max_records=0, position=after(put[n][9]), retries=tuple(map(retry, put[n])))
        for n in (1, 0)
    ]
    held = read(job, task(*slices, max_bytes=1_200))
    assert [one.end.shard_id for one in held] == [shard(1), shard(0)]
    assert sum(one.end.retry_rows for one in held) in (12, 13)
    assert read(job, task(*slices, max_bytes=10))[0].end.retry_rows == 1


def test_retries_of_several_shards_are_searched_for_concurrently() -> None:
    """Each shard has its own pacer: ten shards take no longer than one."""
    with simulated(shards=10) as job:
        slices = []
        for index in range(10):
            put = job.put(6, key=job.key_of(index), data=b"x")
            slices.append(
                whole(index, max_records=0, position=after(put[5]), retries=(retry(put[1]),))
            )
        held = read(job, task(*slices), reads_per_second=1)
        assert [one.end.retry_rows for one in held] == [1] * 10
        assert job.clock.monotonic_s() < 1


def test_an_aggregate_among_the_retries_stops_the_task(one: SimulatedJob) -> None:
    put = one.put(1, data=AGGREGATE)
    with pytest.raises(AggregatedRecordError, match=shard(0)):
        read(one, task(whole(max_records=0, position=after(put[0]), retries=(retry(put[0]),))))


HOUR_S = 3_600.0


def span(first: int, last: int, count: int, **fields: Any) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last), count=count, attempts=0, **fields
    )


def retries_only(*retries: PlannedRetry, last: int, **fields: Any) -> ShardSlice:
    return whole(max_records=0, position=after(last), retries=retries, **fields)


def assert_replayed(job: SimulatedJob, plan: TaskPlan, held: Held) -> None:
    """A replay reads the same records with the same attempts."""
    settings = job.settings()
    result = TaskResult(token="t", shards=(held.end,))
    batches = list(replay(result, plan, job.services(settings), settings))
    assert [
        (int(number), attempt)
        for batch in batches
        for number, attempt in zip(
            batch.column("sequenceNumber").to_pylist(),
            batch.column("attempt").to_pylist(),
            strict=True,
        )
    ] == again(held)


@pytest.mark.parametrize("limit", ["bytes", "records"])
def test_a_range_that_is_too_large_is_read_in_part_and_replayed_in_exactly_that_part(
    one: SimulatedJob, limit: str
) -> None:
    put = one.put(20, data=b"x" * 100)
    by_records = {} if limit == "bytes" else {"max_records": 7}
    slice_ = retries_only(
        retry(put[0]), span(put[2], put[18], 17, **by_records), retry(put[19]), last=put[19]
    )
    plan = task(slice_, max_bytes=800 if limit == "bytes" else 2**20)
    (held,) = read(one, plan)
    assert [number for number, _ in again(held)] == [put[0], *put[2:9]]
    assert held.end == ShardReadResult(
        shard_id=shard(0),
        retries_done=1,
        retry_rows=8,
        retry_part=RangePart(last=SequenceNumber(put[8]), rest=SequenceNumber(put[9]), count=7),
    )
    assert_replayed(one, plan, held)


def test_a_range_that_is_partly_past_the_retention_is_said_to_be_short(one: SimulatedJob) -> None:
    put = one.put(3)
    one.clock.advance(20 * HOUR_S)
    put += one.put(3)
    one.clock.advance(5 * HOUR_S)
    plan = task(retries_only(span(put[0], put[4], 5), retry(put[5]), last=put[5]))
    (held,) = read(one, plan)
    assert held.end.retries_short == (ShortRange(first=SequenceNumber(put[0]), missing=3),)
    assert (held.end.retries_done, held.end.retry_rows, held.end.retries_gone) == (2, 3, ())
    assert_replayed(one, plan, held)


def test_retries_of_a_shard_that_is_known_to_be_gone_are_gone_without_a_call(
    one: SimulatedJob,
) -> None:
    """Nobody is asked; the other shards of the task are read as ever."""
    put = one.put(3)
    gone = ShardSlice(
        shard_id="shardId-000000000099",
        position=SHARD_END,
        max_records=0,
        retries=(retry(7), span(8, 9, 2)),
        gone=True,
    )
    one.count_calls()
    first, second = read(one, task(gone, retries_only(retry(put[1]), last=put[2]), max_bytes=1))
    assert first.end == ShardReadResult(
        shard_id=gone.shard_id,
        retries_done=2,
        retries_gone=(SequenceNumber(7), SequenceNumber(8)),
    )
    assert again(second) == [(put[1], 2)]
    assert one.calls("GetShardIterator") == 1


def test_a_shard_that_is_not_known_to_the_service_leaves_its_retries_queued_and_is_said_to_be_gone(
    one: SimulatedJob,
) -> None:
    """Also where its new records are read, and found, in the same task."""
    put = one.put(3)
    answer = error("ResourceNotFoundException", f"Shard {shard(0)} does not exist")
    one.fake.faults.add(answer, operation="GetShardIterator", times=1)
    (held,) = read(one, task(whole(position=after(put[1]), retries=(retry(put[0]),))))
    assert sequences(held) == put[2:]
    assert (held.end.retries_done, held.end.retries_gone, held.end.gone) == (0, (), True)
