"""How many records a shard is asked for, by the size of its records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.reading.buffered_getter import (
    FIRST_LIMIT,
    RESERVED_PAGE_BYTES,
    ByteBudget,
    PageLimits,
)
from kinesis_spout.reading.page import Page
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL
from tests.support.spout import spout_pages

MB = 1024 * 1024


def page_of(count: int, size: int, *, shard_id: str = "a") -> Page:
    """Records of `size` base64 characters."""
    return spout_pages.page_of(range(count), shard_id=shard_id, size=size // 4 * 3)


@pytest.mark.parametrize("size", [4, 400, 4_000, 40_000, 400_000])
def test_the_next_page_has_about_the_bytes_that_are_wanted(size: int) -> None:
    """But no more records than the service gives, and at least one."""
    limits = PageLimits(MB)
    limits.note(page_of(5, size))
    limit = limits.limit("a")
    bytes_wanted = page_of(1, size).columns.nbytes * limit
    assert limit in (1, MAX_RECORDS_PER_CALL) or 0.8 * MB <= bytes_wanted <= 1.2 * MB


def test_records_larger_than_a_page_are_read_one_by_one() -> None:
    limits = PageLimits(1_000)
    limits.note(page_of(2, 4_000))
    assert limits.limit("a") == 1


def test_each_shard_has_its_own_limit_and_the_newest_page_counts() -> None:
    limits = PageLimits(MB)
    limits.note(page_of(2, 40_000))
    limits.note(page_of(2, 4_000, shard_id="b"))
    assert limits.limit("a") < limits.limit("b") < limits.limit("c") == FIRST_LIMIT
    limits.note(page_of(2, 4_000))
    assert limits.limit("a") == limits.limit("b")


def test_an_empty_page_says_nothing_of_sizes() -> None:
    limits = PageLimits(MB)
    limits.note(page_of(2, 4_000))
    before = limits.limit("a")
    limits.note(Page.empty("a"))
    assert limits.limit("a") == before


def test_a_fetch_reserves_the_size_of_a_record_once_that_is_known() -> None:
    """Eight shards of large records would otherwise fetch ten times the budget at first."""
    limits = PageLimits(MB)
    assert limits.reserve("a", at_least=MB) == MB
    limits.note(page_of(1, 40_000))
    assert limits.reserve("a", at_least=MB) == MB
    limits.note(page_of(1, 6 * MB))
    assert 4 * MB < limits.reserve("a", at_least=MB) < 5 * MB
    limits.note(page_of(1, 16 * MB))
    assert limits.reserve("a", at_least=MB) == RESERVED_PAGE_BYTES


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300), st.booleans())),
)
def test_a_budget_never_blocks_for_ever_and_is_exceeded_by_one_page_at_most(
    max_bytes: int, fetches: list[tuple[int, int, bool]]
) -> None:
    """Pages may be larger than the budget, and larger than what was reserved for them. Some fetches
    are in flight together. A page that is larger than its reservation counts beyond the budget.
    """
    budget = ByteBudget(max_bytes)
    in_flight: list[tuple[int, int]] = []
    held: list[int] = []
    for reserved, found, lands_later in fetches:
        granted = budget.try_reserve(reserved)
        if not in_flight and sum(held) < max_bytes:
            assert granted  # however large
        if granted:
            in_flight.append((reserved, found))
        else:
            assert in_flight or budget.spent  # something will make room
        if not lands_later:
            for each, size in in_flight:
                budget.settle(size, each)
                held.append(size)
            in_flight = []
            assert budget.held_bytes == sum(held)
        if budget.spent:
            budget.release(held.pop(0))
    largest = max((reserved for reserved, _, _ in fetches), default=0)
    beyond = sum(max(0, found - reserved) for reserved, found, _ in fetches)
    assert sum(held) <= max_bytes + largest + beyond
