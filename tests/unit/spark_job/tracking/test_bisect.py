"""The search for poison records, for all positions that they can have."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.tracking.bisect import Bisection, bisect, max_calls

if TYPE_CHECKING:
    from spark_job.tracking.bisect import Part


class Batch:
    """A batch with poison: a part that has one of these records fails. `done` was processed."""

    def __init__(self, poison: set[int]) -> None:
        self.poison = poison
        self.done: set[int] = set()

    def succeeds(self, part: Part) -> bool:
        records = set(range(*part))
        if records & self.poison:
            return False
        self.done |= records
        return True


def search(count: int, poison: set[int]) -> tuple[Bisection, Batch]:
    batch = Batch(poison)
    return bisect(count, batch.succeeds), batch


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 100, 1000])
def test_one_poison_record_is_found_anywhere_and_all_others_are_processed(
    count: int,
) -> None:
    for place in {0, 1, count // 2, count - 1}:
        found, batch = search(count, {place})
        assert (found.poison, found.unresolved, found.failed) == ([place], [], False)
        assert batch.done == set(range(count)) - {place}
        assert found.calls <= max_calls(count) + 1


@given(count=st.integers(1, 300), data=st.data())
def test_every_record_is_processed_or_poison_or_unresolved_and_the_calls_are_bounded(
    count: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    found, batch = search(count, poison)
    single = set(found.poison) | set(found.alone)
    assert found.calls <= max_calls(count) + len(single)
    assert single <= poison
    assert not batch.done & poison
    if found.failed:
        assert count >= 16
        assert len(poison) > 4
        assert not single
        return
    assert single, "so the next batch has less poison"
    left = {record for part in found.unresolved for record in range(*part)}
    assert batch.done | single | left == set(range(count))
    assert not left & (batch.done | single)


@pytest.mark.parametrize("count", [16, 17, 1000, 1_000_000])
def test_an_outage_ends_the_search_after_fourteen_calls_however_large_the_batch_is(
    count: int,
) -> None:
    found = bisect(count, lambda _: False)
    assert found.failed
    assert found.calls == 14


@given(st.integers(16, 400), st.data())
def test_a_batch_counts_as_failed_exactly_when_more_than_half_of_its_eighths_fail(
    count: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=12))
    bounds = [0, count]
    for _ in range(3):
        middles = [(first + last + 1) // 2 for first, last in pairwise(bounds)]
        bounds = sorted([*bounds, *middles])
    bad = sum(bool(poison & set(range(*eighth))) for eighth in pairwise(bounds))
    assert search(count, poison)[0].failed is (bad > 4)


@pytest.mark.parametrize("count", range(4, 16))
def test_a_batch_of_fewer_than_sixteen_records_is_searched_to_single_records(count: int) -> None:
    """Whatever the share of the poison is."""
    for good in range(count):
        found, batch = search(count, set(range(count)) - {good})
        assert batch.done == {good}
        assert set(found.poison) == set(range(count)) - {good}


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_nothing_is_poison_where_nothing_succeeded(count: int) -> None:
    """A sink that is down is not poison, in a batch that is too small for eighths too."""
    found, _ = search(count, set(range(count)))
    assert (found.poison, found.failed) == ([], False)
    assert (found.alone, found.unresolved) == (list(range(count)), [])


def test_a_batch_whose_halves_succeed_has_no_poison() -> None:
    """It failed because of its size, or the outage is over."""
    found = bisect(100, lambda _: True)
    assert (found.poison, found.unresolved, found.failed, found.calls) == ([], [], False, 2)


def test_more_poison_than_calls_leaves_parts_unresolved() -> None:
    found, _ = search(1024, set(range(512)))
    assert not found.failed
    assert found.unresolved
    assert found.calls <= max_calls(1024) + len(found.poison)
    assert search(1024, {100, 300})[0].poison == [100, 300]
