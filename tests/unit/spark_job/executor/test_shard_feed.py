"""One shard's new records in a task: how far they are read, what the log says of it, and that other
attempts get exactly the records of the log, or report their loss.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.kpl import AggregatedRecordError
from kinesis_spout.testing import alter, early_end, error
from state.codec.values import encode_unchecked
from state.errors import TaskLogError
from state.plan import ChildShard, ShardReadResult, TaskPlan
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.simulated.planned_task import (
    BY_TWOS,
    PlannedTask,
    after,
    entry_of,
    numbers_of,
    task,
    whole,
)
from tests.support.simulated.simulated_job import AGGREGATE, STREAM, SimulatedJob, shard, simulated

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


def test_the_hinted_iterator_continues_after_the_last_record(one: SimulatedJob) -> None:
    put = one.put(3)
    _, ends = read(one, task(whole()))
    more = one.put(2)
    planned = PlannedTask(
        one, task(whole(position=after(put[-1]), iterator=ends[shard(0)].iterator))
    )
    one.count_calls()
    assert numbers_of(planned.attempt()) == more
    assert one.calls("GetShardIterator") == 0


def test_a_shard_without_records_is_at_its_tip_and_the_log_names_none(one: SimulatedJob) -> None:
    numbers, ends = read(one, task(whole()))
    end = ends[shard(0)]
    assert numbers == []
    assert (end.first, end.last, end.count, end.last_arrival_ms) == (None, None, 0, None)
    assert (end.at_tip, end.position) == (True, TRIM_HORIZON)


def test_no_more_records_are_read_than_the_plan_allows(one: SimulatedJob) -> None:
    put = one.put(10)
    for pace in ({}, {"pace": BY_TWOS}):
        numbers, ends = read(one, task(whole(max_records=7)), **pace)
        assert numbers == put[:7]
        assert (ends[shard(0)].at_tip, ends[shard(0)].tip_ms) == (False, None)


def test_the_end_of_a_shard_is_reported_with_its_children_and_its_time(one: SimulatedJob) -> None:
    put = one.put(4)
    one.fake.split(STREAM, shard(0))
    numbers, ends = read(one, task(whole()))
    end = ends[shard(0)]
    assert numbers == put
    assert end.at_shard_end
    assert end.children == tuple(ChildShard(shard_id=shard(n), parents=(shard(0),)) for n in (1, 2))
    assert (end.tip_ms, end.iterator) == (one.clock.now_ms(), None)


def test_the_end_may_come_on_a_page_of_its_own_without_records() -> None:
    """Its plan has no records; its log has an entry that says so."""
    with simulated(shards=1, end_with_last_records=False) as job:
        put = job.put(4)
        job.fake.split(STREAM, shard(0))
        numbers, ends = read(job, task(whole()))
        assert (numbers, ends[shard(0)].at_shard_end) == (put, False)
        plan = task(whole(position=after(put[-1]), iterator=ends[shard(0)].iterator))
        numbers, ends = read(job, plan)
        end = ends[shard(0)]
        assert (numbers, end.at_shard_end, len(end.children)) == ([], True, 2)


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_end_that_is_named_too_early_is_not_in_the_log(
    one: SimulatedJob, *, is_closed: bool
) -> None:
    """The page that names it has some of the shard's records; those after it are read."""
    put = one.put(4_000, data=b"")
    if is_closed:
        one.fake.split(STREAM, shard(0))
    one.fake.faults.add(early_end(), operation="GetRecords", times=1)
    numbers, ends = read(one, task(whole(max_records=5_000)))
    end = ends[shard(0)]
    assert numbers == put
    assert (end.count, end.at_shard_end, end.at_tip) == (4_000, is_closed, True)


@pytest.mark.parametrize("skip", range(4))
def test_another_attempt_hands_over_the_log_past_an_end_that_is_named_too_early(
    one: SimulatedJob, *, skip: int
) -> None:
    """It reads the published range to its last record and reports no loss."""
    one.fake.insert_empty_pages(STREAM, shard(0), 2)
    put = one.put(4_000, data=b"")
    planned = PlannedTask(one, task(whole(max_records=5_000)))
    assert numbers_of(planned.attempt()) == put
    one.fake.faults.add(early_end(), operation="GetRecords", skip=skip, times=2)
    assert numbers_of(planned.attempt()) == put


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


def test_the_bytes_of_a_task_are_those_of_all_its_rounds(one: SimulatedJob) -> None:
    put = one.put(10, data=b"x" * 300)
    numbers, _ = read(one, task(whole(), max_bytes=1_600), pace=BY_TWOS)
    assert numbers == put[:5]


def test_one_record_is_always_kept_however_large_it_is(one: SimulatedJob) -> None:
    put = one.put(2, data=b"x" * 300)
    numbers, _ = read(one, task(whole(), max_bytes=10))
    assert numbers == put[:1]


def test_records_without_payload_need_no_bytes(one: SimulatedJob) -> None:
    one.put(5, data=b"")
    _, ends = read(one, task(whole(), max_bytes=1))
    assert (ends[shard(0)].count, ends[shard(0)].at_tip) == (5, True)


def test_the_tasks_shards_share_its_bytes_and_one_that_gets_none_is_not_at_its_tip(
    job: SimulatedJob,
) -> None:
    for index in (0, 1):
        job.put(10, key=job.key_of(index), data=b"x" * 100)
    _, ends = read(job, task(whole(0), whole(1), max_bytes=1_000))
    first, second = ends[shard(0)], ends[shard(1)]
    assert (first.count, second.count) == (10, 0)
    assert (second.first, second.at_tip) == (None, False)


def test_a_shard_that_was_not_read_for_lack_of_bytes_keeps_its_hinted_iterator(
    job: SimulatedJob,
) -> None:
    """It may point far into a run of empty pages, which would have to be read again."""
    job.put(10, key=job.key_of(0), data=b"x" * 100)
    _, ends = read(job, task(whole(0), whole(1, iterator="far inside"), max_bytes=1_000))
    assert (ends[shard(1)].count, ends[shard(1)].iterator) == (0, "far inside")


def test_entries_are_in_the_plans_order_of_shards(job: SimulatedJob) -> None:
    put = [job.put(2, key=job.key_of(index)) for index in (0, 1)]
    numbers, ends = read(job, task(whole(1), whole(0)))
    assert list(ends) == [shard(1), shard(0)]
    assert numbers == put[1] + put[0]


def test_a_shard_with_records_is_not_read_past_the_time_box(one: SimulatedJob) -> None:
    """One read a second, so that simulated time passes: records, then empty pages without end."""
    put = one.put(3)
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=4_000, fetch_cap_ms=60_000))
    assert numbers_of(planned.attempt(reads_per_second=1)) == put
    assert planned.log.sealed
    assert not planned.ends[shard(0)].at_tip
    assert one.clock.monotonic_s() < 10


def test_the_time_that_the_consumer_takes_is_not_counted(one: SimulatedJob) -> None:
    """A slow batch would end after its first page otherwise."""
    put = one.put(6)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=1_000, fetch_cap_ms=1_000))
    rows: list[int] = []
    for batch in planned.attempt(pace=BY_TWOS):
        one.clock.advance(60)
        rows += numbers_of([batch])
    assert rows == put


def test_a_shard_behind_without_records_is_read_up_to_the_cap(one: SimulatedJob) -> None:
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=1_000, fetch_cap_ms=20_000))
    assert numbers_of(planned.attempt(reads_per_second=1)) == []
    assert (planned.ends[shard(0)].count, planned.ends[shard(0)].at_tip) == (0, False)
    assert 19 <= one.clock.monotonic_s() < 30


def test_records_after_the_time_box_and_within_the_cap_are_returned(one: SimulatedJob) -> None:
    one.fake.insert_empty_pages(STREAM, shard(0), 10)
    put = one.put(2)
    plan = task(whole(), fetch_time_ms=1_000, fetch_cap_ms=60_000)
    numbers, _ = read(one, plan, reads_per_second=1)
    assert numbers == put


def test_a_shard_that_has_records_in_the_log_is_not_searched_up_to_the_cap(
    one: SimulatedJob,
) -> None:
    """They were appended, and so are not held any more."""
    put = one.put(2)
    one.fake.insert_empty_pages(STREAM, shard(0), 100)
    one.put(1)
    planned = PlannedTask(one, task(whole(), fetch_time_ms=4_000, fetch_cap_ms=60_000))
    assert numbers_of(planned.attempt(reads_per_second=1, pace=BY_TWOS)) == put
    assert one.clock.monotonic_s() < 10


def test_a_run_of_empty_pages_longer_than_a_batch_is_read_over_several_batches(
    one: SimulatedJob,
) -> None:
    """The position does not move over empty pages; the hinted iterator does."""
    one.fake.insert_empty_pages(STREAM, shard(0), 30)
    put = one.put(1)
    iterator: str | None = None
    numbers: list[int] = []
    for _ in range(10):
        plan = task(whole(iterator=iterator), fetch_time_ms=1_000, fetch_cap_ms=8_000)
        numbers, ends = read(one, plan, reads_per_second=1)
        if numbers:
            break
        iterator = ends[shard(0)].iterator
    assert numbers == put


def test_an_aggregate_stops_the_task_and_is_data_with_the_raw_option(one: SimulatedJob) -> None:
    one.put(1)
    one.put(1, data=AGGREGATE)
    planned = PlannedTask(one, task(whole()))
    with pytest.raises(AggregatedRecordError, match=shard(0)):
        numbers_of(planned.attempt(aggregated_records="fail"))
    assert planned.log == TaskLog()
    _, ends = read(one, task(whole()), aggregated_records="raw")
    assert ends[shard(0)].count == 2


def test_the_listed_ending_sequence_is_the_end_once_it_was_read(one: SimulatedJob) -> None:
    """Some emulators list the end and never end the shard by a page."""
    put = one.put(2)
    plan = task(whole(position=after(put[-1]), ending_sequence=SequenceNumber(put[-1])))
    _, ends = read(one, plan)
    assert (ends[shard(0)].at_shard_end, ends[shard(0)].count) == (True, 0)


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


def test_each_page_verifies_the_shard_up_to_its_last_record(one: SimulatedJob) -> None:
    """A read that begins in time may take longer than what is left of the retention."""
    plan = lapsing(one)
    one.clock.advance(20 * HOUR_S)
    put = one.put(6)
    planned = PlannedTask(one, plan)
    rows: list[int] = []
    for batch in planned.attempt(pace=BY_TWOS):
        one.clock.advance(6 * HOUR_S)
        rows += numbers_of([batch])
    assert rows == put
    assert planned.ends[shard(0)].lapsed_ms is None


def test_a_lapse_between_two_rounds_is_said_by_the_later_one(one: SimulatedJob) -> None:
    plan = lapsing(one)
    one.put(4)
    planned = PlannedTask(one, plan)
    rows = planned.attempt(pace=BY_TWOS)
    next(rows)
    one.clock.advance(25 * HOUR_S)
    one.put(1)
    numbers_of(rows)
    first, *later = planned.log.entries
    assert first.lapsed_ms is None
    assert [entry.lapsed_ms for entry in later] == [one.clock.now_ms()]
    assert planned.ends[shard(0)].lapsed_ms == one.clock.now_ms()


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


def test_entries_of_one_shard_are_handed_over_one_after_the_other(one: SimulatedJob) -> None:
    """One page has the records of several entries, and more."""
    put = one.put(9)
    entries = [entry_of(put[1:3]), entry_of(put[3:4]), entry_of(put[4:8])]
    assert followed(one, *entries) == put[1:8]


def test_records_of_the_log_may_span_many_pages(one: SimulatedJob) -> None:
    """A page holds at most 10,000 records; the last one is limited to those that are left."""
    published = one.put(10_050, data=b"")
    one.put(5)
    assert followed(one, entry_of(published)) == published


def test_empty_pages_in_the_middle_are_skipped(one: SimulatedJob) -> None:
    published = one.put(3)
    one.fake.insert_empty_pages(STREAM, shard(0), 4)
    published += one.put(3)
    assert followed(one, entry_of(published)) == published


def test_shards_are_read_in_the_order_of_the_log_and_those_without_records_are_not_read(
    job: SimulatedJob,
) -> None:
    first, second = (job.put(2, key=job.key_of(index)) for index in (0, 1))
    job.count_calls()
    entries = entry_of(second, index=1), ShardReadResult(shard_id=shard(5)), entry_of(first)
    assert followed(job, *entries) == second + first
    assert job.calls("GetShardIterator") == 2


def test_shards_may_alternate_in_the_log(job: SimulatedJob) -> None:
    put = [job.put(4, key=job.key_of(index)) for index in (0, 1)]
    entries = [entry_of(put[n][k : k + 2], index=n) for k in (0, 2) for n in (1, 0)]
    assert followed(job, *entries) == put[1][:2] + put[0][:2] + put[1][2:] + put[0][2:]


def lost_first_half(job: SimulatedJob) -> list[int]:
    """Six records, the older three of them expired, and three more after them."""
    published = job.put(3)
    job.clock.advance(20 * HOUR_S)
    published += job.put(3)
    job.clock.advance(5 * HOUR_S)
    job.put(3)
    return published


def test_records_that_are_gone_stop_the_query_and_are_counted(one: SimulatedJob) -> None:
    published = lost_first_half(one)
    with pytest.raises(
        DataLossError, match=rf"{shard(0)}.*of the 6 records.*3 are left.*failOnDataLoss to false"
    ):
        followed(one, entry_of(published))


def test_with_fail_on_data_loss_off_the_rest_is_read_and_the_loss_is_logged(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest ends with the log's last record: newer ones belong to a later batch."""
    published = lost_first_half(one)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        assert followed(one, entry_of(published), fail_on_data_loss=False) == published[3:]
    assert "3 are left" in caplog.text


def test_the_entries_after_a_lost_one_are_handed_over(one: SimulatedJob) -> None:
    """The first page begins behind the first entry."""
    published = lost_first_half(one)
    entries = entry_of(published[:3]), entry_of(published[3:])
    assert followed(one, *entries, fail_on_data_loss=False) == published[3:]


def test_when_all_are_gone_no_newer_record_takes_their_place(one: SimulatedJob) -> None:
    published = one.put(3)
    one.clock.advance(25 * HOUR_S)
    one.put(3)
    assert followed(one, entry_of(published), fail_on_data_loss=False) == []


def test_a_tip_before_the_last_record_of_the_log_is_loss_too(one: SimulatedJob) -> None:
    published = one.put(3)
    one.clock.advance(25 * HOUR_S)
    with pytest.raises(DataLossError, match="0 are left"):
        followed(one, entry_of(published))


def test_a_shard_that_is_gone_with_its_records_is_loss(one: SimulatedJob) -> None:
    """The service does not know a closed shard any more once its records have expired."""
    published = one.put(3)
    one.fake.split(STREAM, shard(0))
    one.clock.advance(25 * HOUR_S)
    with pytest.raises(DataLossError, match="0 are left"):
        followed(one, entry_of(published))
    assert followed(one, entry_of(published), fail_on_data_loss=False) == []


def test_a_count_that_does_not_match_is_loss(one: SimulatedJob) -> None:
    published = one.put(4)
    with pytest.raises(DataLossError, match="of the 9 records"):
        followed(one, entry_of(published, count=9))


def test_a_first_record_that_is_gone_is_loss_even_if_the_count_matches(one: SimulatedJob) -> None:
    published = one.put(1)
    one.clock.advance(20 * HOUR_S)
    published += one.put(3)
    one.clock.advance(5 * HOUR_S)
    with pytest.raises(DataLossError):
        followed(one, entry_of(published, count=3))


def test_a_log_that_counts_records_and_names_none_is_damaged(one: SimulatedJob) -> None:
    planned = PlannedTask(one, task(whole()))
    damaged = TaskLog(entries=(ShardReadResult(shard_id=shard(0), count=3),), sealed=True)
    planned.backend.put(planned.path, encode_unchecked(damaged))
    with pytest.raises(TaskLogError, match=rf"{shard(0)}.*damaged"):
        numbers_of(planned.attempt())


def test_an_aggregate_is_refused_as_in_the_first_read(one: SimulatedJob) -> None:
    published = one.put(1, data=AGGREGATE)
    with pytest.raises(AggregatedRecordError):
        followed(one, entry_of(published), aggregated_records="fail")
    assert followed(one, entry_of(published), aggregated_records="raw") == published


def test_an_attempt_that_follows_keeps_to_the_pace(one: SimulatedJob) -> None:
    published = one.put(3)
    for _ in range(4):
        one.fake.insert_empty_pages(STREAM, shard(0), 1)
        published += one.put(1)
    followed(one, entry_of(published), reads_per_second=1)
    assert one.clock.monotonic_s() >= 8


# answers that are false once ----------------------------------------------------------------------
def unknown() -> Fault:
    return error("ResourceNotFoundException", f"Shard {shard(0)} does not exist")


def without_records() -> Fault:
    return alter(lambda page: msgspec.structs.replace(page, records=[], millis_behind_latest=0))


FALSE = pytest.mark.parametrize(
    "fault", [unknown(), without_records()], ids=["no-shard", "no-records"]
)


@FALSE
@pytest.mark.parametrize("skip", [0, 1])
def test_one_answer_that_the_records_are_gone_is_no_loss(
    one: SimulatedJob, fault: Fault, skip: int
) -> None:
    put = one.put(12_000, data=b"")
    one.fake.faults.add(fault, operation="GetRecords", skip=skip, times=1)
    assert followed(one, entry_of(put)) == put
    assert len(one.fake.faults.struck) == 1


@FALSE
def test_two_answers_that_the_records_are_gone_are_loss(one: SimulatedJob, fault: Fault) -> None:
    put = one.put(5)
    one.fake.faults.add(fault, operation="GetRecords", times=2)
    with pytest.raises(DataLossError, match="0 are left"):
        followed(one, entry_of(put))


@FALSE
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
