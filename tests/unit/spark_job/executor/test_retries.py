"""A task's retries: found before its new records, and read again by other attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import DataLossError
from state.plan import PlannedRetry, RangePart, ShardReadResult, ShardSlice, TaskPlan
from state.sequence_number import SequenceNumber
from tests.support.simulated.planned_task import (
    FALSE_ANSWERS,
    PlannedTask,
    Row,
    after,
    entry_of,
    numbers_of,
    rows_of,
    task,
    whole,
)
from tests.support.simulated.simulated_job import SimulatedJob, shard

if TYPE_CHECKING:
    from kinesis_spout.testing import Fault

HOUR_S = 3_600.0


def retry(sequence: int, attempts: int = 1) -> PlannedRetry:
    return PlannedRetry(first=SequenceNumber(sequence), attempts=attempts)


def span(first: int, last: int, count: int, **fields: Any) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last), count=count, attempts=0, **fields
    )


def retries_only(*retries: PlannedRetry, last: int, **fields: Any) -> ShardSlice:
    return whole(max_records=0, position=after(last), retries=retries, **fields)


def read(
    job: SimulatedJob, plan: TaskPlan, **options: Any
) -> tuple[list[Row], dict[str, ShardReadResult]]:
    """The rows of a task, and what was read of each shard. A second attempt has the same rows."""
    planned = PlannedTask(job, plan)
    rows = rows_of(planned.attempt(**options))
    assert planned.log.sealed
    assert rows_of(planned.attempt(**options)) == rows
    return rows, planned.ends


def test_retries_come_before_new_records_and_are_counted_in_the_result(one: SimulatedJob) -> None:
    put = one.put(10)
    gone = retry(put[4] + 1)
    plan = task(whole(position=after(put[6]), retries=(retry(put[1]), retry(put[4], 3), gone)))
    rows, ends = read(one, plan)
    again = [(shard(0), put[1], 2), (shard(0), put[4], 4)]
    assert rows == [*again, *((shard(0), number, 1) for number in put[7:])]
    end = ends[shard(0)]
    assert (end.retries_done, end.retry_rows, end.retries_gone) == (3, 2, (gone.first,))
    assert (end.count, end.at_tip, end.position) == (3, True, after(put[6]))


@pytest.mark.parametrize("limit", ["bytes", "records"])
def test_a_range_that_is_too_large_is_read_in_part_and_read_again_in_exactly_that_part(
    one: SimulatedJob, limit: str
) -> None:
    put = one.put(20, data=b"x" * 100)
    by_records = {} if limit == "bytes" else {"max_records": 7}
    slice_ = retries_only(
        retry(put[0]), span(put[2], put[18], 17, **by_records), retry(put[19]), last=put[19]
    )
    rows, ends = read(one, task(slice_, max_bytes=800 if limit == "bytes" else 2**20))
    assert [number for _, number, _ in rows] == [put[0], *put[2:9]]
    assert ends[shard(0)] == ShardReadResult(
        shard_id=shard(0),
        retries_done=1,
        retry_rows=8,
        retry_part=RangePart(last=SequenceNumber(put[8]), rest=SequenceNumber(put[9]), count=7),
        payload_bytes=800,
    )


# other attempts -----------------------------------------------------------------------------------


def read_again(
    job: SimulatedJob, entry: ShardReadResult, *retries: PlannedRetry, **options: Any
) -> list[int]:
    """The numbers of the rows of a log with this entry. The plan allows one byte."""
    planned = PlannedTask(job, task(whole(max_records=1, retries=retries), max_bytes=1))
    planned.append(entry, sealed=True)
    return numbers_of(planned.attempt(**options))


def test_the_retries_that_were_searched_for_come_again_before_the_new_records(
    one: SimulatedJob,
) -> None:
    """Those that were not searched for, for lack of bytes, do not. No limit applies now."""
    put = one.put(20)
    retries = [retry(put[1]), span(put[3], put[5], 2), retry(put[8]), retry(put[9])]
    entry = entry_of(put[12:15], retries_done=3, retry_rows=5)
    assert read_again(one, entry, *retries) == [put[1], *put[3:6], put[8], *put[12:15]]


def test_a_retry_that_was_gone_then_is_not_searched_for_now(one: SimulatedJob) -> None:
    put = one.put(5)
    entry = ShardReadResult(
        shard_id=shard(0), retries_done=2, retry_rows=1, retries_gone=(SequenceNumber(put[1]),)
    )
    assert read_again(one, entry, retry(put[1]), retry(put[3])) == [put[3]]


def test_a_retry_that_was_found_then_and_is_gone_now_is_loss(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    put = one.put(1)
    one.clock.advance(20 * HOUR_S)
    put += one.put(1)
    one.clock.advance(5 * HOUR_S)
    entry = ShardReadResult(shard_id=shard(0), retries_done=2, retry_rows=2)
    retries = retry(put[0]), retry(put[1])
    with pytest.raises(
        DataLossError, match=rf"{shard(0)}.*of the 2 records.*1 are left.*failOnDataLoss to false"
    ):
        read_again(one, entry, *retries)
    assert read_again(one, entry, *retries, fail_on_data_loss=False) == [put[1]]
    assert "1 are left" in caplog.text


@FALSE_ANSWERS
def test_one_answer_that_the_retried_records_are_gone_is_no_loss(
    one: SimulatedJob, fault: Fault
) -> None:
    put = one.put(12)
    entry = ShardReadResult(shard_id=shard(0), retries_done=2, retry_rows=11)
    one.fake.faults.add(fault, operation="GetRecords", times=1)
    retries = retry(put[1]), span(put[2], put[-1], 2)
    assert read_again(one, entry, *retries) == put[1:]
    assert len(one.fake.faults.struck) == 1
