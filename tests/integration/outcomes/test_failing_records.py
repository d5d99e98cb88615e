"""Failing records of a tracked batch on a real Spark: by id, row, frame and condition.

Also the order of the records that a failed record blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from scheme import JsonScheme
from spark_job import Reject
from spark_job.tracking.tracked_batch import current_batch
from tests.support.outcomes.tracked import TrackedQuery, number
from tests.support.spark.source import STREAM

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from scheme.record import Record
    from spark_job import TrackedBatch

pytestmark = pytest.mark.spark


def test_the_issues_second_sample_runs_as_written(
    tracked_query: TrackedQuery, tmp_path: Path
) -> None:
    """Negative totals are rejected. So are totals that are NULL."""
    out = tmp_path / "out"
    tracked_query.put_texts(
        [
            '{"id": "a", "total": 1}',
            '{"id": "b", "total": -1}',
            '{"id": "c"}',
            "no json",
            '{"id": "d", "total": 4}',
        ]
    )

    def parsed(df: DataFrame) -> DataFrame:
        return df.withColumn(
            "o", F.from_json(F.col("data").cast("string"), "id string, total double")
        )

    def process(batch: TrackedBatch) -> None:
        rows = batch.fail_where(
            parsed(batch.df), "o.total < 0", reason="negative total", retry=False
        )
        rows.select("o.*").write.mode("append").parquet(str(out))

    tracked_query.run(process)
    assert {row.id: row.total for row in tracked_query.spark.read.parquet(str(out)).collect()} == {
        "a": 1.0,
        "d": 4.0,
    }
    null = "negative total (the condition is NULL)"
    reasons = {letter.data: letter.reason for letter in tracked_query.letters}
    assert reasons == {
        b'{"id": "b", "total": -1}': "negative total",
        b'{"id": "c"}': null,
        b"no json": null,
    }
    assert tracked_query.unresolved() == {}


def test_a_record_of_several_rows_fails_as_a_whole(tracked_query: TrackedQuery) -> None:
    tracked_query.stream.put(10)
    seen: list[tuple[int, int]] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.df.withColumn("n", number()).withColumn(
            "part", F.explode(F.array(*map(F.lit, range(3))))
        )
        rest = batch.fail_where(
            rows, (F.col("n") == 4) & (F.col("part") == 1), "half bad", retry=False
        )
        assert rest.columns == rows.columns
        seen.extend((row.n, row.part) for row in rest.collect())

    tracked_query.run(process)
    assert sorted(seen) == [(n, part) for n in range(10) if n != 4 for part in range(3)]
    assert [(letter.data, letter.reason) for letter in tracked_query.letters] == [
        (b"record 4", "half bad")
    ]


def test_records_that_a_scheme_finds_malformed_are_rejected(tracked_query: TrackedQuery) -> None:
    """By `batch.parsed`, and by `fail_where` on a frame with a column of the scheme."""
    tracked_query.put_texts(['{"id": "a"}', "no json", '{"id": 5}'])
    ids: list[list[str]] = []
    scheme = JsonScheme("id string")

    def process(batch: TrackedBatch) -> None:
        ids.append([row.id for row in batch.parsed(scheme).select("parsed.id").collect()])
        column = batch.df.withColumn("o", scheme.column(batch.df["data"]))
        ids.append(
            [
                row.id
                for row in batch.fail_where(column, "o.value.id = 'z'", "z")
                .select("o.value.id")
                .collect()
            ]
        )

    tracked_query.run(process)
    assert ids[:2] == [["a"], ["a"]]
    assert {letter.data: letter.attempts for letter in tracked_query.letters} == {
        b"no json": 1,
        b'{"id": 5}': 1,
    }


def test_records_fail_by_id_row_and_frame_and_are_retried(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(20)
    done: list[int] = []

    def process(batch: TrackedBatch) -> None:
        frame = batch.df.withColumn("n", number())
        first = frame.where("attempt = 1 and n < 6")
        rows = {row.n: row for row in first.collect()}
        if rows:
            batch.fail(rows[0].messageId, "an id")
            batch.fail([rows[1], rows[2].messageId], "a row and an id", after_s=0.1)
            batch.fail(first.where("n in (3, 4)"), "a frame")
            batch.fail(rows[5], "rejected", retry=False)
            batch.fail(rows[5], "and to be retried")
        done.extend(row.n for row in frame.collect() if row.messageId not in batch.failures)

    tracked_query.run(process)
    assert sorted(done) == [0, 1, 2, 3, 4, *range(6, 20)]
    assert [(letter.data, letter.reason) for letter in tracked_query.letters] == [
        (b"record 5", "rejected")
    ]
    assert tracked_query.unresolved() == {}


def test_a_record_of_another_batch_cannot_be_failed(tracked_query: TrackedQuery) -> None:
    """Then the call fails no record at all."""
    tracked_query.stream.put(5)
    errors: list[str] = []

    def process(batch: TrackedBatch) -> None:
        row = batch.df.first()
        assert row is not None
        with pytest.raises(ValueError, match="is not of this batch") as caught:
            batch.fail([row, "shardId-000000000009:5:1"], "mixed")
        errors.append(str(caught.value))
        assert not batch.failures

    tracked_query.run(process)
    assert "shardId-000000000009:5:1" in errors[0]


def test_the_batch_is_read_once_for_any_number_of_actions(tracked_query: TrackedQuery) -> None:
    """The stream is deleted after the first action, so a second read would fail."""
    tracked_query.stream.put(20)
    counts: list[int] = []

    def process(batch: TrackedBatch) -> None:
        counts.append(batch.df.count())
        tracked_query.stream.client.delete_stream(StreamName=STREAM)
        counts.extend(batch.df.where("length(data) > 0").count() for _ in range(2))
        tracked_query.stream.client.create_stream(StreamName=STREAM, ShardCount=4)
        raise KeyError("enough seen")

    with pytest.raises(Exception, match="enough seen"):
        tracked_query.run(process)
    assert counts == [20, 20, 20]


def test_a_token_is_the_same_for_the_same_records_in_any_delivery(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(12)
    tokens: list[str] = []

    def process(batch: TrackedBatch) -> None:
        assert current_batch() is batch
        tokens.append(batch.token)
        if len(tokens) == 1:
            raise KeyError("once more")
        if len(tokens) == 2:
            batch.fail(batch.df, "all of them")

    with pytest.raises(Exception, match="once more"):
        tracked_query.run(process)
    tracked_query.run(process)
    tracked_query.stream.put(1)
    tracked_query.run(process)
    assert len(set(tokens[:3])) == 1
    assert len(set(tokens)) == 2
    assert len(tokens[0]) == 32
    with pytest.raises(RuntimeError, match="no tracked batch runs"):
        current_batch()


@pytest.mark.parametrize("on_failure", ["block_key", "block_shard"])
def test_records_that_a_failed_record_blocks_keep_their_order(
    tracked_query: TrackedQuery, on_failure: str, tmp_path: Path
) -> None:
    """The records of each key (or shard) are processed in the order in which they were put, in
    spite of failures and retries.
    """
    tracked_query.put_texts([f"record {n}" for n in range(40)], keys=lambda n: f"key {n % 7}")
    failing = {4, 9, 21}
    done: list[tuple[str, str, int]] = []

    def change(record: Record) -> dict[str, Any]:
        n = int(record.data.split()[1])
        marker = tmp_path / f"failed {n}"
        if n in failing and not marker.exists():
            marker.touch()
            raise ConnectionError("not now")
        return {"key": record.partition_key, "shard": record.shard_id, "n": n}

    def process(batch: TrackedBatch) -> None:
        done.extend(
            (row.key, row.shard, row.n)
            for row in batch.map_records(change, "key string, shard string, n int").collect()
        )

    tracked_query.run(process, on_failure=on_failure)
    assert sorted(n for _, _, n in done) == list(range(40))
    column = 0 if on_failure == "block_key" else 1
    for name in {row[column] for row in done}:
        order = [n for *_, n in (row for row in done if row[column] == name)]
        assert order == sorted(order)
    assert tracked_query.unresolved() == {}


@pytest.mark.parametrize("on_failure", ["block_key", "block_shard"])
def test_block_key_and_block_shard_keep_the_order_of_a_key_over_a_split(
    tracked_query: TrackedQuery, on_failure: str, tmp_path: Path
) -> None:
    """The children are read while the failed records of their parents wait for their retries."""
    for first in (0, 20):
        tracked_query.put_texts(
            [f"record {n}" for n in range(first, first + 20)], keys=lambda n: f"key {n % 5}"
        )
        if not first:
            for _ in range(4):
                tracked_query.stream.split()
    done: list[tuple[str, int]] = []

    def change(record: Record) -> dict[str, Any]:
        n = int(record.data.split()[1])
        if n in (5, 11, 18) and record.attempt < 3:
            raise ConnectionError("not now")
        return {"key": record.partition_key, "n": n}

    def process(batch: TrackedBatch) -> None:
        rows = batch.map_records(change, "key string, n int").collect()
        done.extend((row.key, row.n) for row in rows)

    tracked_query.run(process, on_failure=on_failure, retry_first_delay="2s", retry_max_delay="2s")
    assert sorted(n for _, n in done) == list(range(40))
    for key in {key for key, _ in done}:
        order = [n for its, n in done if its == key]
        assert order == sorted(order)
    assert tracked_query.unresolved() == {}


def test_fail_where_keeps_the_order_of_a_failed_key_too(tracked_query: TrackedQuery) -> None:
    tracked_query.put_texts([f"record {n}" for n in range(21)], keys=lambda n: f"key {n % 3}")
    batches: list[list[int]] = []

    def process(batch: TrackedBatch) -> None:
        rest = batch.fail_where(
            batch.df.withColumn("n", number()), "n = 4 and attempt = 1", "not now"
        )
        batches.append(sorted(row.n for row in rest.collect()))

    tracked_query.run(process, on_failure="block_key", source={"idle_wait": "100ms"})
    waited = [4, 7, 10, 13, 16, 19]
    assert batches[0] == [n for n in range(21) if n not in waited]
    assert sorted(n for later in batches[1:] for n in later) == waited


def test_a_record_that_one_map_records_retries_and_another_rejects_is_rejected(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(6)

    def retry(record: Record) -> object:
        if record.data == b"record 1":
            raise ConnectionError("later")
        return (1,)

    def reject(record: Record) -> object:
        if record.data == b"record 1":
            raise Reject("never")
        return (2,)

    def process(batch: TrackedBatch) -> None:
        assert batch.map_records(retry, "n int").count() == 5
        assert batch.map_records(reject, "n int").count() == 5

    tracked_query.run(process)
    assert [(letter.data, letter.reason, letter.attempts) for letter in tracked_query.letters] == [
        (b"record 1", "never", 1)
    ]
