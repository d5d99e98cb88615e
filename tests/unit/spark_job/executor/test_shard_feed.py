"""One shard's new records in a task: how far they are read, what the log says of it, and that other
attempts get exactly the records of the log, or report their loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import DataLossError
from spark_job.executor.task_reader import Pace
from state.codec.values import encode_unchecked
from state.errors import TaskLogError
from state.plan import ShardReadResult, TaskPlan
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.simulated.planned_task import (
    BY_TWOS,
    FALSE_ANSWERS,
    PlannedTask,
    entry_of,
    numbers_of,
    task,
    whole,
)
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from kinesis_spout.testing import Fault

HOUR_S = 3_600.0
HOUR_MS = 3_600_000


def read(
    job: SimulatedJob, plan: TaskPlan, **options: Any
) -> tuple[list[int], dict[str, ShardReadResult]]:
    """The numbers of a task's rows, and what was read of each shard. A second attempt has the same
    rows.
    """
    planned = PlannedTask(job, plan)
    numbers = numbers_of(planned.attempt(**options))
    assert planned.log.sealed
    ends = planned.ends
    assert len(numbers) == sum(end.count for end in ends.values())
    assert numbers_of(planned.attempt(**options)) == numbers
    return numbers, ends


# how far a shard is read --------------------------------------------------------------------------
def test_a_shard_is_read_to_its_tip_and_the_log_has_first_last_count_and_the_tip(
    one: SimulatedJob,
) -> None:
    put = one.put(5)
    numbers, ends = read(one, task(whole()))
    end = ends[shard(0)]
    assert numbers == put
    assert (end.first, end.last, end.count) == (SequenceNumber(put[0]), SequenceNumber(put[-1]), 5)
    assert (end.at_tip, end.at_shard_end, end.children) == (True, False, ())
    assert end.last_arrival_ms == one.clock.now_ms() == end.tip_ms
    assert (end.payload_bytes, end.position) == (5 * len("record 0"), TRIM_HORIZON)
    assert end.iterator is not None


@pytest.mark.parametrize(
    ("plan", "pace", "sizes", "found"),
    [
        (task(whole(max_records=7)), BY_TWOS, [8] * 10, 7),
        (task(whole(), max_bytes=1_600), BY_TWOS, [300] * 10, 5),
        (task(whole(), max_bytes=10), Pace(), [300] * 2, 1),
        (task(whole(), max_bytes=1), Pace(), [0] * 5, 5),
    ],
    ids=["records", "bytes", "one at least", "without payload"],
)
def test_no_more_is_read_than_the_plan_allows(
    one: SimulatedJob, plan: TaskPlan, pace: Pace, sizes: list[int], found: int
) -> None:
    """One record is always kept, however large it is."""
    put = [number for size in sizes for number in one.put(1, data=b"x" * size)]
    numbers, ends = read(one, plan, pace=pace)
    assert numbers == put[:found]
    assert ends[shard(0)].at_tip is (found == len(put))


def test_a_page_that_exceeds_the_bytes_is_cut_and_says_nothing_of_what_follows(
    one: SimulatedJob,
) -> None:
    """The page was at the shard's end, its head is not: the log has no tip, end, children or
    iterator.
    """
    put = one.put(10, data=b"x" * 300)
    one.fake.split(STREAM, shard(0))
    numbers, ends = read(one, task(whole(), max_bytes=1_000))
    end = ends[shard(0)]
    assert numbers == put[:3]
    assert (end.last, end.count) == (SequenceNumber(put[2]), 3)
    assert (end.at_tip, end.at_shard_end, end.iterator, end.tip_ms) == (False, False, None, None)
    assert end.children == ()


def test_a_shard_with_records_is_not_read_past_the_time_box(one: SimulatedJob) -> None:
    """One read a second, so that simulated time passes: records, then empty pages without end."""
    put = one.put(2)
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=4_000, fetch_cap_ms=60_000))
    assert numbers_of(planned.attempt(reads_per_second=1, pace=BY_TWOS)) == put
    assert planned.log.sealed
    assert not planned.ends[shard(0)].at_tip
    assert one.clock.monotonic_s() < 10


# lapses -------------------------------------------------------------------------------------------
def lapsing(job: SimulatedJob) -> TaskPlan:
    """A plan whose shard was verified now, on a stream that keeps records for a day."""
    return task(whole(verified_until_ms=job.clock.now_ms()), retention_ms=24 * HOUR_MS)


def test_a_page_that_comes_a_retention_after_the_last_one_is_said_to_have_lapsed(
    one: SimulatedJob,
) -> None:
    plan = lapsing(one)
    one.clock.advance(24 * HOUR_S)
    numbers, ends = read(one, plan)
    assert (numbers, ends[shard(0)].lapsed_ms) == ([], None)
    one.clock.advance(1)
    one.put(1)
    _, ends = read(one, plan)
    assert ends[shard(0)].lapsed_ms == one.clock.now_ms()


def test_records_of_the_log_that_are_read_again_much_later_have_not_lapsed(
    one: SimulatedJob,
) -> None:
    """They were read in time by the attempt that appended them, and what follows them is not
    missed.
    """
    plan = lapsing(one)
    one.clock.advance(22 * HOUR_S)
    put = one.put(6)
    planned = PlannedTask(one, plan)
    cut_off = planned.attempt(pace=BY_TWOS)
    next(cut_off)
    one.clock.advance(3 * HOUR_S)
    assert numbers_of(planned.attempt()) == put
    assert [entry.lapsed_ms for entry in planned.log.entries] == [None, None]


# the records of the log ---------------------------------------------------------------------------
def followed(job: SimulatedJob, *entries: ShardReadResult, **options: Any) -> list[int]:
    """The numbers of the rows of a log of these entries. The plan allows one record of a byte and
    no time.
    """
    shards = dict.fromkeys(entry.shard_id for entry in entries)
    slices = [whole(int(one.rpartition("-")[2]), max_records=1) for one in shards]
    plan = task(*slices, max_bytes=1, fetch_time_ms=0, fetch_cap_ms=0)
    planned = PlannedTask(job, plan)
    planned.append(*entries, sealed=True)
    return numbers_of(planned.attempt(**options))


def test_exactly_the_records_of_the_log_are_read_whatever_is_before_and_after_them(
    one: SimulatedJob,
) -> None:
    one.put(3)
    published = one.put(5)
    one.put(4)
    one.fake.split(STREAM, shard(0))
    assert followed(one, entry_of(published)) == published


@pytest.mark.parametrize(
    ("older", "newer", "is_closed", "count", "left"),
    [(3, 3, False, 6, 3), (1, 3, False, 3, 3), (3, 0, False, 3, 0), (3, 0, True, 3, 0)],
    ids=["half", "the first, and the count matches", "all", "with their shard"],
)
def test_records_of_the_log_that_are_gone_stop_the_query_or_are_logged(
    one: SimulatedJob,
    caplog: pytest.LogCaptureFixture,
    *,
    older: int,
    newer: int,
    is_closed: bool,
    count: int,
    left: int,
) -> None:
    """The rest ends with the log's last record, and no newer one takes the place of those that
    expired: it belongs to a later batch.
    """
    published = one.put(older)
    if is_closed:
        one.fake.split(STREAM, shard(0))
    one.clock.advance(20 * HOUR_S)
    published += one.put(newer)
    one.clock.advance(5 * HOUR_S)
    if not is_closed:
        one.put(3)
    entry = entry_of(published, count=count)
    said = rf"{shard(0)}.*of the {count} records.*{left} are left"
    with pytest.raises(DataLossError, match=f"{said}.*failOnDataLoss to false"):
        followed(one, entry)
    assert followed(one, entry, fail_on_data_loss=False) == published[len(published) - left :]
    assert f"{left} are left" in caplog.text


def test_the_entries_after_a_lost_one_are_handed_over(one: SimulatedJob) -> None:
    """The first page begins behind the first entry."""
    published = one.put(3)
    one.clock.advance(20 * HOUR_S)
    published += one.put(3)
    one.clock.advance(5 * HOUR_S)
    one.put(3)
    entries = entry_of(published[:3]), entry_of(published[3:])
    assert followed(one, *entries, fail_on_data_loss=False) == published[3:]


def test_a_log_that_counts_records_and_names_none_is_damaged(one: SimulatedJob) -> None:
    planned = PlannedTask(one, task(whole()))
    damaged = TaskLog(entries=(ShardReadResult(shard_id=shard(0), count=3),), sealed=True)
    planned.backend.put(planned.path, encode_unchecked(damaged))
    with pytest.raises(TaskLogError, match=rf"{shard(0)}.*damaged"):
        numbers_of(planned.attempt())


# answers that are false once ----------------------------------------------------------------------
@FALSE_ANSWERS
def test_one_answer_that_the_records_are_gone_is_no_loss_and_two_are(
    one: SimulatedJob, fault: Fault
) -> None:
    put = one.put(5)
    one.fake.faults.add(fault, operation="GetRecords", times=1)
    assert followed(one, entry_of(put)) == put
    assert len(one.fake.faults.struck) == 1
    one.fake.faults.add(fault, operation="GetRecords", times=2)
    with pytest.raises(DataLossError, match="0 are left"):
        followed(one, entry_of(put))


@FALSE_ANSWERS
def test_a_tip_that_is_older_than_the_entry_is_no_answer(one: SimulatedJob, fault: Fault) -> None:
    """It was reached before the records came. A false answer beside it proves nothing."""
    planned = PlannedTask(one, task(whole()))
    put: list[int] = []

    def overtake() -> None:
        put.extend(one.put(4))
        planned.append(entry_of(put), sealed=True)
        one.fake.faults.add(fault, operation="GetRecords", times=1)

    assert numbers_of(planned.attempt(store=planned.overtaken_store(overtake))) == put
    assert len(one.fake.faults.struck) == 1
