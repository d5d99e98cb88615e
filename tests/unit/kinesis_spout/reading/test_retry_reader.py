"""Retries are found by their sequence numbers, with few calls, and records that are gone are
reported.
"""

from __future__ import annotations

import math
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.errors import RequestRefusedError
from kinesis_spout.reading.read_ahead import ByteBudget
from kinesis_spout.reading.retry_reader import RetryReader
from state.plan import PlannedRetry, RangePart
from state.sequence_number import SequenceNumber
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.process_services import ProcessServices

HOUR_S = 3_600.0


def single(sequence: int, attempts: int = 1) -> PlannedRetry:
    return PlannedRetry(first=SequenceNumber(sequence), attempts=attempts)


def span(
    first: int, last: int, count: int = 2, attempts: int = 0, max_records: int | None = None
) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first),
        last=SequenceNumber(last),
        count=count,
        attempts=attempts,
        max_records=max_records,
    )


def part(last: int, rest: int, count: int) -> RangePart:
    return RangePart(last=SequenceNumber(last), rest=SequenceNumber(rest), count=count)


class Found:
    """The records that one reader finds: sequence numbers with delivery numbers."""

    def __init__(
        self,
        job: SimulatedJob,
        retries: Sequence[PlannedRetry],
        *,
        max_bytes: int = sys.maxsize,
        budget: ByteBudget | None = None,
        time_s: float | None = None,
        at_least_one: bool = True,
        whole_ranges: bool = False,
        services: ProcessServices | None = None,
        **options: object,
    ) -> None:
        job.count_calls()
        services = services or job.services(job.settings(**options))
        reader = RetryReader(
            shard(0),
            retries,
            services,
            unpacker=Unpacker(lambda: None),
            budget=budget or ByteBudget(max_bytes),
            at_least_one=at_least_one,
            whole_ranges=whole_ranges,
        )
        until_s = math.inf if time_s is None else services.clock.monotonic_s() + time_s
        parts = list(reader.read(until_s=until_s))
        result = reader.result
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
        self.done, self.gone = result.done, [one.sequence for one in result.gone]
        self.short = [(one.first.sequence, one.missing) for one in result.short]
        self.part, self.shard_gone = result.part, result.shard_gone
        assert result.rows == len(self.rows)


@pytest.mark.parametrize(("step", "pages", "iterators"), [(4_999, 3, 3), (100, 4, 1)])
def test_few_calls_find_records_far_apart_and_close_together(
    step: int, pages: int, iterators: int, one: SimulatedJob
) -> None:
    wanted = one.put(9_999, data=b"")[::step]
    assert Found(one, [single(number) for number in wanted]).numbers == wanted
    assert one.calls("GetRecords") <= pages
    assert one.calls("GetShardIterator") == iterators


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


@pytest.mark.parametrize("newer", [4, 0])
def test_numbers_that_were_passed_and_not_found_are_gone(newer: int, one: SimulatedJob) -> None:
    """Records older than the oldest record left, and a range without any record left. Where none is
    left, two calls at the tip prove it: all were requested at the first of them.
    """
    old = one.put(5)
    one.clock.advance(25 * HOUR_S)
    new = one.put(newer)
    found = Found(one, [single(old[0]), span(old[1], old[3]), single(old[4]), *map(single, new)])
    assert (found.numbers, found.gone) == (new, [old[0], old[1], old[4]])
    assert found.done == 3 + newer
    if not new:
        assert (one.calls("GetRecords"), one.calls("GetShardIterator")) == (2, 2)


def test_a_number_that_the_stream_never_had_is_an_error(one: SimulatedJob) -> None:
    """The state of another stream was restored, for example: no record is assumed to be gone."""
    put = one.put(4)
    with pytest.raises(RequestRefusedError, match="did not come from this stream"):
        Found(one, [single(put[2]), single(put[3] + 5)])


def test_a_range_whose_first_records_have_expired_is_short_and_gives_what_is_left(
    one: SimulatedJob,
) -> None:
    """A collapsed one also covers records that were acked, so it may find more than it counts: it
    is short where its first record is gone, however many are left. So is a part of one.
    """
    put = one.put(3)
    one.clock.advance(20 * HOUR_S)
    put += one.put(5)
    one.clock.advance(5 * HOUR_S)
    found = Found(one, [span(put[0], put[4], 5)])
    assert (found.numbers, found.gone, found.done) == (put[3:5], [], 1)
    assert found.short == [(put[0], 3)]
    assert Found(one, [span(put[0], put[7], 3)]).short == [(put[0], 1)]
    assert Found(one, [span(put[3], put[7], 3)]).short == []
    assert Found(one, [span(put[3], put[7], 7)]).short == [(put[3], 2)]
    found = Found(one, [span(put[2], put[7], 6, max_records=2)])
    assert (found.numbers, found.part) == (put[3:5], part(put[4], put[5], 2))
    assert found.short == [(put[2], 1)]


def test_a_range_that_does_not_fit_is_read_in_part(one: SimulatedJob) -> None:
    """The first number that was not read is that of a record, so nothing lies between."""
    put = one.put(10, data=b"x" * 100)
    found = Found(one, [span(put[0], put[4], 5), single(put[9])], max_bytes=350)
    assert (found.numbers, found.done, found.part) == (put[:3], 0, part(put[2], put[3], 3))
    found = Found(one, [single(put[0]), span(put[1], put[4], 4), single(put[9])], max_bytes=250)
    assert (found.numbers, found.done, found.part) == (put[:2], 1, part(put[1], put[2], 1))


def test_a_range_is_read_up_to_the_records_that_its_plan_allows(one: SimulatedJob) -> None:
    """The rest may be pages away, and behind empty ones."""
    put = one.put(1_000, data=b"")
    one.fake.insert_empty_pages(STREAM, shard(0), 3)
    put += one.put(10, data=b"")
    found = Found(one, [span(put[0], put[-1], 1_010, max_records=1_000)])
    assert (found.numbers, found.part) == (put[:1_000], part(put[999], put[1_000], 1_000))
    found = Found(one, [span(put[0], put[999], 1_000, max_records=1_000), single(put[1_005])])
    assert (found.numbers, found.part, found.done) == ([*put[:1_000], put[1_005]], None, 2)


def test_on_request_a_range_is_returned_as_a_whole_or_not_at_all(one: SimulatedJob) -> None:
    """The first one is returned whatever its size; otherwise it would wait for ever. The bytes of
    one that is not returned are given back.
    """
    put = one.put(10, data=b"x" * 100)
    whole = span(put[0], put[4], 5)
    found = Found(one, [whole, single(put[9])], max_bytes=150, whole_ranges=True)
    assert (found.numbers, found.part) == (put[:5], None)
    budget = ByteBudget(450)
    retries = [single(put[0]), span(put[1], put[4], 4)]
    found = Found(one, retries, budget=budget, whole_ranges=True)
    assert (found.numbers, found.done, found.part) == (put[:1], 1, None)
    found = Found(one, [span(put[1], put[9], 9)], budget=budget)
    assert found.numbers == put[1:4]


def test_two_of_five_calls_a_second_are_for_retries(one: SimulatedJob) -> None:
    put = one.put(40_000, data=b"")
    services = one.services(one.settings(reads_per_second=5))
    begun_s = one.clock.monotonic_s()
    Found(one, [single(number) for number in put[::4_000]], services=services)
    assert one.clock.monotonic_s() - begun_s >= 4 - 0.1  # ten pages, two a second


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_is_found_exactly(seed: int, one: SimulatedJob) -> None:
    """Singles, ranges and empty pages, compared with what was put: records and their deliveries."""
    chance = Random(seed)  # noqa: S311  # of a test
    put: list[int] = []
    for _ in range(chance.randrange(1, 6)):
        put += one.put(chance.choice((1, 30, 1_500)), data=b"")
        one.fake.insert_empty_pages(STREAM, shard(0), chance.randrange(3))
    retries: list[PlannedRetry] = []
    place = chance.randrange(min(40, len(put)))
    while place < len(put):
        end = min(place + chance.choice((0, 0, 0, 1, 20, 900)), len(put) - 1)
        attempts = chance.choice((0, 1, 7))
        retries.append(
            single(put[place], attempts)
            if end == place
            else span(put[place], put[end], 2, attempts)
        )
        place = end + 1 + chance.choice((0, 0, 3, 50, 700))
    wanted = [
        (number, retry.attempts + 1)
        for retry in retries
        for number in put
        if retry.first.sequence <= number <= (retry.last or retry.first).sequence
    ]
    found = Found(one, retries)
    assert (found.rows, found.gone, found.done) == (wanted, [], len(retries))
