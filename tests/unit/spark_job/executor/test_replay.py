"""Published records are read again exactly, or their loss is reported."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.kpl import AggregatedRecordError
from kinesis_spout.testing import alter, error
from spark_job.executor.replay import replay
from state.plan import PlannedRetry, ShardReadResult, ShardSlice, TaskPlan, TaskResult
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from tests.support.simulated.simulated_job import AGGREGATE, STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.testing import Fault

HOUR_S = 3_600.0


def end_of(
    sequences: Sequence[int], *, count: int | None = None, index: int = 0
) -> ShardReadResult:
    return ShardReadResult(
        shard_id=shard(index),
        first=SequenceNumber(sequences[0]),
        last=SequenceNumber(sequences[-1]),
        count=len(sequences) if count is None else count,
    )


def replayed(
    job: SimulatedJob,
    *ends: ShardReadResult,
    retries: Mapping[str, Sequence[PlannedRetry]] | None = None,
    **options: Any,
) -> list[int]:
    """The sequence numbers of the rows. `retries` are what the plan had, by shard."""
    settings = job.settings(**options)
    slices = [
        ShardSlice(shard_id=one, position=TRIM_HORIZON, max_records=1, retries=tuple(planned))
        for one, planned in (retries or {}).items()
    ]
    plan = TaskPlan(shards=tuple(slices), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    batches = replay(TaskResult(token="t", shards=ends), plan, job.services(settings), settings)
    return [int(text) for batch in batches for text in batch.column("sequenceNumber").to_pylist()]


def test_exactly_the_published_records_are_read_whatever_is_before_and_after_them(
    one: SimulatedJob,
) -> None:
    one.put(3)
    published = one.put(5)
    one.put(4)
    one.fake.split(STREAM, shard(0))
    assert replayed(one, end_of(published)) == published


def test_published_records_may_span_many_pages(one: SimulatedJob) -> None:
    """A page holds at most 10,000 records; the last one is limited to those that are left."""
    published = one.put(10_050, data=b"")
    one.put(5)
    assert replayed(one, end_of(published)) == published


def test_empty_pages_in_the_middle_are_skipped(one: SimulatedJob) -> None:
    published = one.put(3)
    one.fake.insert_empty_pages(STREAM, shard(0), 4)
    published += one.put(3)
    assert replayed(one, end_of(published)) == published


def test_shards_are_read_in_the_published_order_and_those_without_records_are_not_read(
    job: SimulatedJob,
) -> None:
    first, second = (job.put(2, key=job.key_of(index)) for index in (0, 1))
    job.count_calls()
    assert (
        replayed(job, end_of(second, index=1), ShardReadResult(shard_id=shard(5)), end_of(first))
        == second + first
    )
    assert job.calls("GetShardIterator") == 2


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
        replayed(one, end_of(published))


def test_with_fail_on_data_loss_off_the_rest_is_read_and_the_loss_is_logged(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest ends with the published last record: newer ones belong to a later batch."""
    published = lost_first_half(one)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        assert replayed(one, end_of(published), fail_on_data_loss=False) == published[3:]
    assert "3 are left" in caplog.text


def test_when_all_are_gone_no_newer_record_takes_their_place(one: SimulatedJob) -> None:
    published = one.put(3)
    one.clock.advance(25 * HOUR_S)
    one.put(3)
    assert replayed(one, end_of(published), fail_on_data_loss=False) == []


def test_a_tip_before_the_last_published_record_is_loss_too(one: SimulatedJob) -> None:
    published = one.put(3)
    one.clock.advance(25 * HOUR_S)
    with pytest.raises(DataLossError, match="0 are left"):
        replayed(one, end_of(published))


def test_a_shard_that_is_gone_with_its_records_is_loss(one: SimulatedJob) -> None:
    """The service does not know a closed shard any more once its records have expired."""
    published = one.put(3)
    one.fake.split(STREAM, shard(0))
    one.clock.advance(25 * HOUR_S)
    with pytest.raises(DataLossError, match="0 are left"):
        replayed(one, end_of(published))
    assert replayed(one, end_of(published), fail_on_data_loss=False) == []


def test_a_count_that_does_not_match_is_loss(one: SimulatedJob) -> None:
    published = one.put(4)
    with pytest.raises(DataLossError, match="of the 9 records"):
        replayed(one, end_of(published, count=9))


def test_a_first_record_that_is_gone_is_loss_even_if_the_count_matches(one: SimulatedJob) -> None:
    published = one.put(1)
    one.clock.advance(20 * HOUR_S)
    published += one.put(3)
    one.clock.advance(5 * HOUR_S)
    with pytest.raises(DataLossError):
        replayed(one, end_of(published, count=3))


def test_a_result_that_counts_records_and_names_none_is_damaged(one: SimulatedJob) -> None:
    with pytest.raises(DataLossError, match="damaged"):
        replayed(one, ShardReadResult(shard_id=shard(0), count=3))


def test_an_aggregate_is_refused_as_in_the_first_read(one: SimulatedJob) -> None:
    published = one.put(1, data=AGGREGATE)
    with pytest.raises(AggregatedRecordError):
        replayed(one, end_of(published))
    assert replayed(one, end_of(published), aggregated_records="raw") == published


def test_a_replay_keeps_to_the_pace(one: SimulatedJob) -> None:
    published = one.put(3)
    for _ in range(4):
        one.fake.insert_empty_pages(STREAM, shard(0), 1)
        published += one.put(1)
    replayed(one, end_of(published), reads_per_second=1)
    assert one.clock.monotonic_s() >= 8


# retries ------------------------------------------------------------------------------------------
def planned(sequence: int, last: int | None = None) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(sequence),
        last=None if last is None else SequenceNumber(last),
        count=1 if last is None else 2,
        attempts=1,
    )


def test_the_retries_that_were_searched_for_come_again_before_the_new_records(
    one: SimulatedJob,
) -> None:
    """Those that were not searched for, for lack of bytes, do not. No limit applies now."""
    put = one.put(20)
    retries = [planned(put[1]), planned(put[3], put[5]), planned(put[8]), planned(put[9])]
    end = msgspec.structs.replace(end_of(put[12:15]), retries_done=3, retry_rows=5)
    assert replayed(one, end, retries={shard(0): retries}) == [
        put[1],
        *put[3:6],
        put[8],
        *put[12:15],
    ]


def test_a_retry_that_was_gone_then_is_not_searched_for_now(one: SimulatedJob) -> None:
    put = one.put(5)
    end = ShardReadResult(
        shard_id=shard(0), retries_done=2, retry_rows=1, retries_gone=(SequenceNumber(put[1]),)
    )
    assert replayed(one, end, retries={shard(0): [planned(put[1]), planned(put[3])]}) == [put[3]]


def test_a_retry_that_was_found_then_and_is_gone_now_is_loss(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    put = one.put(1)
    one.clock.advance(20 * HOUR_S)
    put += one.put(1)
    one.clock.advance(5 * HOUR_S)
    end = ShardReadResult(shard_id=shard(0), retries_done=2, retry_rows=2)
    retries = {shard(0): [planned(put[0]), planned(put[1])]}
    with pytest.raises(
        DataLossError, match=rf"{shard(0)}.*of the 2 records.*1 are left.*failOnDataLoss to false"
    ):
        replayed(one, end, retries=retries)
    assert replayed(one, end, retries=retries, fail_on_data_loss=False) == [put[1]]
    assert "1 are left" in caplog.text


# answers that are false once ----------------------------------------------------------------------
def unknown() -> Fault:
    return error("ResourceNotFoundException", f"Shard {shard(0)} does not exist")


def without_records() -> Fault:
    return alter(lambda page: msgspec.structs.replace(page, records=[], millis_behind_latest=0))


@pytest.mark.parametrize("fault", [unknown(), without_records()], ids=["no-shard", "no-records"])
@pytest.mark.parametrize("skip", [0, 1])
def test_one_answer_that_the_records_are_gone_is_no_loss(
    one: SimulatedJob, fault: Fault, skip: int
) -> None:
    put = one.put(12_000, data=b"")
    one.fake.faults.add(fault, operation="GetRecords", skip=skip, times=1)
    assert replayed(one, end_of(put)) == put
    retries = {shard(0): [planned(put[1]), planned(put[2], put[-1])]}
    end = ShardReadResult(shard_id=shard(0), retries_done=2, retry_rows=11_999)
    one.fake.faults.add(fault, operation="GetRecords", skip=skip, times=1)
    assert replayed(one, end, retries=retries) == put[1:]


@pytest.mark.parametrize("fault", [unknown(), without_records()], ids=["no-shard", "no-records"])
def test_two_answers_that_the_records_are_gone_are_loss(one: SimulatedJob, fault: Fault) -> None:
    put = one.put(5)
    one.fake.faults.add(fault, operation="GetRecords", times=2)
    with pytest.raises(DataLossError, match="0 are left"):
        replayed(one, end_of(put))
