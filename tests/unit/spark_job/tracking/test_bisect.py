"""The search for poison records, for all positions that they can have."""

from __future__ import annotations

from itertools import combinations
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


@given(count=st.integers(4, 300), data=st.data())
def test_every_record_is_processed_or_poison_or_unresolved_and_the_calls_are_bounded(
    count: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    found, batch = search(count, poison)
    assert found.calls <= max_calls(count) + len(found.poison)
    if found.failed:
        return
    left = {record for part in found.unresolved for record in range(*part)}
    assert set(found.poison) <= poison
    assert batch.done | set(found.poison) | left == set(range(count))
    assert not batch.done & poison
    assert not left & (batch.done | set(found.poison))


def test_a_batch_of_which_all_quarters_fail_counts_as_failed_after_six_calls() -> None:
    found, batch = search(1000, set(range(1000)))
    assert found.failed
    assert found.calls == 6
    assert batch.done == set()


def test_a_batch_with_three_bad_quarters_counts_as_failed_and_one_with_two_does_not() -> None:
    for bad in combinations(range(4), 3):
        assert search(40, {10 * quarter for quarter in bad})[0].failed
    for two in combinations(range(4), 2):
        assert not search(40, {10 * quarter for quarter in two})[0].failed


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_poison_where_nothing_succeeded(count: int) -> None:
    """A sink that is down is not poison, in a batch that is too small for quarters too."""
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
