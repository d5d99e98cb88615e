"""The acker over a source of aggregates, as a program for the shared cluster: words of records,
split, filtered and branched to two sinks. By mistake it loses rows on the way.

The job has `source`, `folder` (a new one) and `retryLimit`. The word `lost` is lost in the first
attempt, `never` in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import DeadLetter, KinesisSource, acker
from tests.support.spark.spark_job_under_test import caught_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_job import TrackedBatch

MISTAKE = "(word = 'lost' AND attempt = 1) OR word = 'never'"


def run(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """`delivered`: message ids; `kept` and `short`: message id and word of the rows that each sink
    got; `letters`: message id, attempts and payload.
    """
    answer: dict[str, list[Any]] = {"delivered": [], "kept": [], "short": [], "letters": []}

    def sink(name: str) -> Any:
        def write(frame: DataFrame) -> None:
            answer[name].extend((row.messageId, row.word) for row in frame.collect())

        return write

    def process(batch: TrackedBatch) -> None:
        answer["delivered"].extend(row.messageId for row in batch.df.select("messageId").collect())
        lines = acker.anchor(batch).withColumn("words", F.expr("split(CAST(data AS STRING), ' ')"))
        words = acker.split(lines, "words", "word").select(
            "messageId", "attempt", "word", "_anchor"
        )
        remaining = words.where(f"NOT ({MISTAKE})")  # not acker.filter: the rows are lost
        to_keep, to_filter = acker.branch(remaining, 2)
        short = acker.filter(to_filter, "length(word) < 3")
        acker.settle((to_keep, sink("kept")), (short, sink("short")))

    source = KinesisSource(**job["source"])
    letters = DeadLetter.to(
        lambda found: answer["letters"].extend(
            (one.message_id, one.attempts, (one.data or b"").decode()) for one in found
        )
    )
    tracked = source.tracked(
        process,
        dead_letter=letters,
        retry_limit=job["retryLimit"],
        retry_first_delay="10ms",
        retry_max_delay="20ms",
    )
    writer = source.read_stream(spark).writeStream.foreachBatch(tracked)
    caught_up(writer, f"{job['folder']}/checkpoint")
    return answer
