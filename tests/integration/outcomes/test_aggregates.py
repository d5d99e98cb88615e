"""Aggregates in a tracked query on a real Spark: outcomes are of user records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.aggregates.wire import aggregate_of

if TYPE_CHECKING:
    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery

pytestmark = pytest.mark.spark
USERS = 500


def put_aggregates(query: TrackedQuery, *sizes: int) -> None:
    """Put aggregates of so many user records, numbered on."""
    first = 0
    for size in sizes:
        data = [b"record %d" % each for each in range(first, first + size)]
        query.stream.put_record("k", aggregate_of(data, ["k"]))
        first += size


def fails(wanted: int, seen: list[int]) -> Any:
    """A function for `map_records` that fails one record, and notes those that it gets."""

    def enrich(record: Record) -> dict[str, Any]:
        n = int(record.data.split()[1])
        if n == wanted:
            raise ValueError("always bad")
        return {"n": n}

    def process(batch: TrackedBatch) -> None:
        seen.extend(row.n for row in batch.map_records(enrich, "n int").collect())

    return process


def test_one_of_five_hundred_is_retried_alone_and_dead_lettered_alone(
    tracked_query: TrackedQuery,
) -> None:
    put_aggregates(tracked_query, USERS, 3)
    seen: list[int] = []
    tracked_query.run(fails(77, seen), retry_limit=2)
    assert sorted(seen) == [n for n in range(USERS + 3) if n != 77]
    (letter,) = tracked_query.letters
    assert (letter.data, letter.attempts, letter.sub_sequence_number) == (b"record 77", 3, 77)
    assert letter.message_id == f"{letter.shard_id}:{letter.sequence_number}.77:3"
    assert tracked_query.unresolved() == {}
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


@pytest.mark.parametrize("before", ["raw", "unpack"])
def test_a_batch_that_failed_is_replayed_as_it_was_after_a_change_of_the_option(
    before: str, tracked_batches: TrackedBatches
) -> None:
    """And what fails in it then is retried as it was delivered."""
    put_aggregates(tracked_batches, 3, 3)

    def source(mode: str) -> dict[str, Any]:
        return {"available_now_retry_wait": "0s", "aggregated_records": mode}

    def breaks(batch: TrackedBatch) -> None:
        batch.df.count()
        raise ValueError("a bug")

    with pytest.raises(Exception, match="a bug"):
        tracked_batches.run(breaks, source=source(before))
    seen: list[bytes] = []
    failed: list[bytes] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.df.collect()
        seen.extend(bytes(row.data) for row in rows)
        again = [row for row in rows if bytes(row.data) not in failed]
        failed.extend(bytes(row.data) for row in again)
        batch.fail(again, "not yet", after_s=0)

    tracked_batches.run(process, source=source("unpack" if before == "raw" else "raw"))
    packed = [aggregate_of([b"record %d" % n for n in range(f, f + 3)], ("k",)) for f in (0, 3)]
    delivered = packed if before == "raw" else [b"record %d" % n for n in range(6)]
    assert sorted(seen) == sorted(2 * delivered)
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()
