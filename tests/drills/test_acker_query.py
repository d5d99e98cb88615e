"""The acker in a tracked query on a real Spark, from the stream to sinks and dead letters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedQuery

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]
LINES = ["to be or not", "to be", "", "that is the question", "not"]


def words_of(batch: TrackedBatch) -> DataFrame:
    lines = acker.anchor(batch).withColumn("words", F.expr("split(CAST(data AS STRING), ' ')"))
    return acker.split(lines, "words", "word")


def test_a_record_of_which_an_operator_loses_a_row_ends_in_the_dead_letter(
    tracked_query: TrackedQuery,
) -> None:
    """All other records are written once, although this one is retried."""
    tracked_query.put_texts(LINES)
    written: list[str] = []

    def process(batch: TrackedBatch) -> None:
        # Not acker.filter, so the row is lost and not dropped on purpose.
        remaining = words_of(batch).where("word != 'question'")
        acker.settle((remaining, lambda frame: written.extend(row.word for row in frame.collect())))

    tracked_query.run(process, retry_limit=2)
    assert Counter(written) == Counter({"": 1, "not": 2, "to": 2, "be": 2, "or": 1})
    ((data, attempts, reason),) = [
        (letter.data, letter.attempts, letter.reason) for letter in tracked_query.letters
    ]
    assert (data, attempts) == (b"that is the question", 3)
    assert reason is not None
    assert "missing" in reason or "lost" in reason
    assert tracked_query.unresolved() == {}
