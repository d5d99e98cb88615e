"""The search for poison records, for all positions that they can have."""

from __future__ import annotations

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
    assert not (found.alone and batch.done), "others succeeded, so it is poison"
    if found.failed:
        assert count >= 16
        assert len(poison) > 4
        assert not single
        return
    assert single, "so the next batch has less poison"
    left = {record for part in found.unresolved for record in range(*part)}
    assert batch.done | single | left == set(range(count))
    assert not left & (batch.done | single)
    # With fewer calls than that no part was ever left over. Each poison record adds one, but a part
    # that was left over before it was found stays so.
    if (count < 16 and found.calls < max_calls(count)) or len(poison) == 1:
        assert single == poison, "a small batch is searched to single records"
        assert not left


@pytest.mark.parametrize("count", [16, 17, 1000, 1_000_000])
def test_an_outage_ends_the_search_after_fourteen_calls_however_large_the_batch_is(
    count: int,
) -> None:
    found = bisect(count, lambda _: False)
    assert found.failed
    assert found.calls == 14


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_nothing_is_poison_where_nothing_succeeded(count: int) -> None:
    """A sink that is down is not poison, in a batch that is too small for eighths too."""
    found, _ = search(count, set(range(count)))
    assert (found.poison, found.alone) == ([], list(range(count)))
