"""`batch.map_records` in a real Spark: output and failures of one evaluation, whatever a function returns or raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.tracked import TrackedQuery

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.source import StreamUnderTest

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark: SparkSession, stream: StreamUnderTest, tmp_path: Path) -> TrackedQuery:
    return TrackedQuery(spark, stream, tmp_path / "checkpoint")


def test_one_bad_record_among_thousands_ends_in_the_dead_letter(query: TrackedQuery) -> None:
    """It is retried, dead-lettered with payload, attempts and reason, and passed by the checkpoints; the others come once."""
    query.stream.put(2000)
    seen: list[str] = []

    def enrich(record: Record) -> dict[str, Any]:
        if record.data == b"record 1234":
            raise ValueError("always bad")
        return {"text": record.data.decode(), "attempt": record.attempt}

    def process(batch: TrackedBatch) -> None:
        seen.extend(row.text for row in batch.map_records(enrich, "text string, attempt int").collect())

    query.run(process, retry_limit=2)
    assert sorted(seen) == sorted(f"record {n}" for n in range(2000) if n != 1234)
    (letter,) = query.letters
    assert (letter.data, letter.attempts, letter.reason) == (b"record 1234", 3, "ValueError: always bad")
    assert query.unresolved() == {}
    assert query.stream.checkpoints() == query.stream.tips()
