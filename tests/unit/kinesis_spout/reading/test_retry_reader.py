"""Retries are found by their sequence numbers, with few calls, and records that are gone are
reported.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import RequestRefusedError
from kinesis_spout.reading.retry_reader import BOUNDLESS, RetryByteBudget, RetryReader
from kinesis_spout.testing import expired_iterator, internal_failure, throttle
from state.plan import PlannedRetry
from state.sequence_number import SequenceNumber
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.process_services import ProcessServices

HOUR_S = 3_600.0


def single(sequence: int, attempts: int = 1) -> PlannedRetry:
    return PlannedRetry(first=SequenceNumber(sequence), attempts=attempts)


def span(first: int, last: int, count: int = 2, attempts: int = 0) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last), count=count, attempts=attempts
    )


class Found:
    """The records that one reader finds: sequence numbers with delivery numbers."""

    def __init__(
        self,
        job: SimulatedJob,
        retries: Sequence[PlannedRetry],
        *,
        max_bytes: int = BOUNDLESS,
        time_s: float | None = None,
        at_least_one: bool = True,
        services: ProcessServices | None = None,
        **options: object,
    ) -> None:
        job.count_calls()
        services = services or job.services(job.settings(**options))
        reader = RetryReader(shard(0), retries, services)
        until_s = None if time_s is None else services.clock.monotonic_s() + time_s
        parts = list(
            reader.read(RetryByteBudget(max_bytes), until_s=until_s, at_least_one=at_least_one)
        )
        self.rows = [
            (int(number), attempt)
            for part in parts
            for number, attempt in zip(
                part.records.column("sequenceNumber").to_pylist(),
                part.attempts.to_pylist(),
                strict=True,
            )
        ]
        self.numbers = [number for number, _ in self.rows]
        self.done, self.gone = reader.done, [one.sequence for one in reader.gone]
        assert reader.rows == len(self.rows)


def test_single_records_come_in_order_each_with_the_number_of_its_delivery(
    one: SimulatedJob,
) -> None:
    put = one.put(50)
    found = Found(one, [single(put[3], 1), single(put[4], 2), single(put[40], 7)])
    assert found.rows == [(put[3], 2), (put[4], 3), (put[40], 8)]
    assert (found.done, found.gone) == (3, [])


def test_neighbours_are_found_in_one_call(one: SimulatedJob) -> None:
    put = one.put(500)
    found = Found(one, [single(number) for number in put[10:400:7]])
    assert found.numbers == put[10:400:7]
    assert (one.calls("GetRecords"), one.calls("GetShardIterator")) == (1, 1)


def test_records_far_apart_cost_one_page_each(
    one: SimulatedJob,
) -> None:
    put = one.put(10_000, data=b"")
    found = Found(one, [single(put[0]), single(put[5_000]), single(put[9_999])])
    assert found.numbers == [put[0], put[5_000], put[9_999]]
    assert (one.calls("GetRecords"), one.calls("GetShardIterator")) == (3, 3)


def test_pages_with_wanted_records_are_followed_by_larger_pages(one: SimulatedJob) -> None:
    put = one.put(10_000, data=b"")
    found = Found(one, [single(number) for number in put[::100]])
    assert found.numbers == put[::100]
    assert one.calls("GetShardIterator") == 1
    assert one.calls("GetRecords") <= 4


def test_a_range_between_single_records_contains_all_records_between_its_ends(
    one: SimulatedJob,
) -> None:
    put = one.put(60)
    found = Found(
        one,
        [single(put[1]), span(put[5], put[9], 2), single(put[20]), span(put[30], put[31])],
    )
    assert found.rows == [
        (put[1], 2),
        *((number, 1) for number in put[5:10]),
        (put[20], 2),
        (put[30], 1),
        (put[31], 1),
    ]
    assert found.done == 4


def test_a_range_may_span_many_pages(one: SimulatedJob) -> None:
    put = one.put(12_000, data=b"")
    found = Found(one, [span(put[100], put[11_500], 50, 4)])
    assert found.numbers == put[100:11_501]
    assert found.done == 1


def test_a_run_of_empty_pages_longer_than_the_time_is_read_by_several_readers(
    one: SimulatedJob,
) -> None:
    """If each started again at the retry, none would reach the end of the run, and the retry would
    stay queued for ever.
    """
    gone = one.put(1)[0]
    one.clock.advance(13 * HOUR_S)
    one.fake.insert_empty_pages(STREAM, shard(0), 12)
    left = one.put(1)[0]
    one.clock.advance(13 * HOUR_S)
    services = one.services(one.settings(reads_per_second=5))
    for _ in range(2):
        found = Found(one, [single(gone), single(left)], time_s=2.5, services=services)
        assert (found.done, found.rows) == (0, [])
    found = Found(one, [single(gone), single(left)], time_s=2.5, services=services)
    assert (found.done, found.gone, found.numbers) == (2, [gone], [left])
    assert not services.searches


def test_a_retry_that_did_not_fit_is_searched_for_from_its_number_by_the_next_reader(
    one: SimulatedJob,
) -> None:
    """The page that contained it was read: continuing after that page would count it as gone."""
    put = one.put(2, data=b"0123456789")
    services = one.services()
    assert (
        Found(one, [single(put[0])], max_bytes=1, at_least_one=False, services=services).done == 0
    )
    assert Found(one, [single(put[0])], services=services).numbers == put[:1]


def test_empty_pages_in_between_are_skipped(one: SimulatedJob) -> None:
    put = one.put(3)
    one.fake.insert_empty_pages(STREAM, shard(0), 5)
    put += one.put(3)
    assert Found(one, [single(put[2]), span(put[3], put[4])]).numbers == put[2:5]


def test_numbers_that_were_passed_and_not_found_are_gone(one: SimulatedJob) -> None:
    """Records older than the oldest record left, and a range without any record left."""
    old = one.put(4)
    one.clock.advance(25 * HOUR_S)
    new = one.put(4)
    found = Found(one, [single(old[0]), span(old[1], old[2]), single(new[1])])
    assert found.numbers == [new[1]]
    assert found.gone == [old[0], old[1]]
    assert found.done == 3


def test_at_a_tip_without_a_record_all_are_gone(one: SimulatedJob) -> None:
    """One call proves it: it was requested at the first of them."""
    old = one.put(5)
    one.clock.advance(25 * HOUR_S)
    found = Found(one, [single(old[0]), span(old[1], old[3]), single(old[4])])
    assert (found.numbers, found.gone, found.done) == ([], [old[0], old[1], old[4]], 3)
    assert one.calls("GetRecords") == 1


def test_a_number_that_the_stream_never_had_is_an_error(one: SimulatedJob) -> None:
    """The state of another stream was restored, for example: no record is assumed to be gone."""
    put = one.put(4)
    with pytest.raises(RequestRefusedError, match="did not come from this stream"):
        Found(one, [single(put[2]), single(put[3] + 5)])


def test_a_range_that_has_partly_expired_gives_the_records_that_are_left(one: SimulatedJob) -> None:
    put = one.put(3)
    one.clock.advance(20 * HOUR_S)
    put += one.put(3)
    one.clock.advance(5 * HOUR_S)
    found = Found(one, [span(put[0], put[4], 5)])
    assert (found.numbers, found.gone, found.done) == (put[3:5], [], 1)


def test_records_not_found_in_a_closed_or_expired_shard_are_gone(
    one: SimulatedJob,
) -> None:
    put = one.put(3)
    one.fake.split(STREAM, shard(0))
    assert Found(one, [single(put[2]), single(put[2] + 1)]).gone == [put[2] + 1]
    one.clock.advance(25 * HOUR_S)
    found = Found(one, [single(put[0]), span(put[1], put[2])])
    assert (found.numbers, found.gone, found.done) == ([], [put[0], put[1]], 2)


# budget and time ----------------------------------------------------------------------------------
def test_retries_before_the_first_that_does_not_fit_are_done(
    one: SimulatedJob,
) -> None:
    put = one.put(10, data=b"x" * 100)
    found = Found(
        one,
        [single(put[0]), single(put[0] + 1), single(put[2]), single(put[3] + 1), single(put[5])],
        max_bytes=250,
    )
    assert (found.numbers, found.gone, found.done) == (
        [put[0], put[2]],
        [put[0] + 1, put[3] + 1],
        4,
    )


def test_at_least_one_record_is_returned_on_request(one: SimulatedJob) -> None:
    put = one.put(10, data=b"x" * 100)
    retries = [single(put[0]), single(put[2])]
    assert Found(one, retries, max_bytes=1).numbers == [put[0]]
    assert Found(one, retries, max_bytes=1, at_least_one=False).done == 0


def test_a_range_is_returned_as_a_whole_or_not_at_all(one: SimulatedJob) -> None:
    """The first one is returned whatever its size; otherwise it would wait for ever."""
    put = one.put(10, data=b"x" * 100)
    whole = span(put[0], put[4], 5)
    assert Found(one, [whole, single(put[9])], max_bytes=150).numbers == put[:5]
    found = Found(one, [single(put[0]), span(put[1], put[4], 4), single(put[9])], max_bytes=450)
    assert (found.numbers, found.done) == ([put[0]], 1)


def test_the_time_ends_the_search_after_the_first_retry_was_found(
    one: SimulatedJob,
) -> None:
    """At one call every two and a half seconds."""
    put = one.put(16_000, data=b"")
    wanted = put[::4_000]
    retries = [single(number) for number in wanted]
    assert Found(one, retries, time_s=0.0, reads_per_second=1).done == 1
    found = Found(one, retries, time_s=6.0, reads_per_second=1)
    assert found.numbers == wanted[:3]


def test_a_first_range_is_read_to_its_end_whatever_the_time(
    one: SimulatedJob,
) -> None:
    put = one.put(5_000, data=b"")
    assert Found(one, [span(put[0], put[4_500], 2)], time_s=0.0, reads_per_second=1).done == 1


# the service --------------------------------------------------------------------------------------
def test_two_of_five_calls_a_second_are_for_retries_and_count_for_the_shard(
    one: SimulatedJob,
) -> None:
    put = one.put(40_000, data=b"")
    settings = one.settings(reads_per_second=5)
    services = one.services(settings)
    begun_s = one.clock.monotonic_s()
    list(
        RetryReader(shard(0), [single(number) for number in put[::4_000]], services).read(
            RetryByteBudget()
        )
    )
    assert one.clock.monotonic_s() - begun_s >= 4 - 0.1  # ten pages, two a second
    services.retry_pacer(shard(0)).on_throttled(one.clock.monotonic_s(), Random(0))  # noqa: S311  # of a test
    assert services.pacer(shard(0)).ready_at_s(one.clock.monotonic_s()) > one.clock.monotonic_s()


@pytest.mark.parametrize("fault", [throttle(), expired_iterator(), internal_failure()])
def test_transient_faults_are_waited_out(fault: object, one: SimulatedJob) -> None:
    put = one.put(5_000, data=b"")
    one.fake.faults.add(fault, operation="GetRecords", times=2)  # type: ignore[arg-type]  # pytest passes faults as objects
    assert Found(one, [single(put[0]), single(put[4_999])]).numbers == [put[0], put[4_999]]


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_is_found_exactly(seed: int, one: SimulatedJob) -> None:
    """Singles, ranges and empty pages, compared with the records that were put."""
    chance = Random(seed)  # noqa: S311  # of a test
    put: list[int] = []
    for _ in range(chance.randrange(1, 6)):
        put += one.put(chance.choice((1, 30, 1_500)), data=b"")
        one.fake.insert_empty_pages(STREAM, shard(0), chance.randrange(3))
    retries: list[PlannedRetry] = []
    place = chance.randrange(min(40, len(put)))
    while place < len(put):
        end = min(place + chance.choice((0, 0, 0, 1, 20, 900)), len(put) - 1)
        retries.append(single(put[place]) if end == place else span(put[place], put[end], 2))
        place = end + 1 + chance.choice((0, 0, 3, 50, 700))
    wanted = [
        number
        for number in put
        if any(r.first.sequence <= number <= (r.last or r.first).sequence for r in retries)
    ]
    found = Found(one, retries)
    assert (found.numbers, found.gone, found.done) == (wanted, [], len(retries))
