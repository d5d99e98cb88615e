"""Cost of the acker: a word count with and without it, on the same lines, in one run.

    python benchmarks/acker.py [--records N] [--words W] [--rounds R] [--json]

It needs no Kinesis. Both jobs split each line into words, count the words, and write the counts to
parquet files. The records are cached in memory first, as those of a tracked batch are. The jobs
alternate, and the best round of each counts. In a third measurement one row is lost on the way.
Then the acker compares record by record, and in a word count nearly all records fail together.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker
from spark_job.rows import ARROW_SCHEMA
from spark_job.tracking.batch_frame import BatchFrame
from spark_job.tracking.tracked_batch import TrackedBatch, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

VOCABULARY = 20_000


def lines(spark: SparkSession, records: int, words: int) -> DataFrame:
    """Records in the source's columns. The data are words, some of which are frequent."""
    word = f"concat('w', cast(floor({VOCABULARY} * pow(rand(n), 3)) as string))"
    columns = {
        "streamName": "'benchmark'",
        "shardId": "concat('shardId-00000000000', cast(id % 4 as string))",
        "sequenceNumber": "cast(id + 1 as string)",
        "subSequenceNumber": "0L",
        "partitionKey": "cast(id as string)",
        "data": "encode(concat_ws(' ', "
        + ", ".join(word.replace("rand(n)", f"rand({n})") for n in range(words))
        + "), 'UTF-8')",
        "approximateArrivalTimestamp": "timestamp'2026-01-01 00:00:00'",
        "attempt": "1",
        "messageId": "concat('shardId-00000000000', cast(id % 4 as string), ':', "
        "cast(id + 1 as string), ':1')",
    }
    return spark.range(0, records, 1, 2).selectExpr(
        *(f"{columns[name]} AS {name}" for name in ARROW_SCHEMA.names)
    )


def with_words(frame: DataFrame) -> DataFrame:
    return frame.withColumn("words", F.split(F.col("data").cast("string"), " "))


def without_acker(batch: TrackedBatch, path: str) -> None:
    words = with_words(batch.df).select(F.explode("words").alias("word"))
    words.groupBy("word").agg(F.count("*").alias("n")).write.mode("overwrite").parquet(path)


def with_acker(batch: TrackedBatch, path: str) -> None:
    words = acker.split(with_words(acker.anchor(batch)), "words", "word")
    counts = acker.merge(words, "word", F.count("*").alias("n"))
    acker.settle((counts, lambda frame: frame.write.mode("overwrite").parquet(path)))


def with_a_lost_row(batch: TrackedBatch, path: str) -> None:
    anchored = acker.anchor(batch).where("NOT (sequenceNumber = '1')")
    counts = acker.merge(
        acker.split(with_words(anchored), "words", "word"), "word", F.count("*").alias("n")
    )
    acker.settle((counts, lambda frame: frame.write.mode("overwrite").parquet(path)))


def seconds(job: Callable[[TrackedBatch, str], None], frame: BatchFrame, path: str) -> float:
    batch = TrackedBatch(frame, batch_id=0)
    started = time.perf_counter()
    with running(batch):
        job(batch, path)
        batch.call_back(None)
    return time.perf_counter() - started


def measure(records: int, words: int, rounds: int, directory: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
    )
    builder = builder.config("spark.sql.shuffle.partitions", "2").config(
        "spark.driver.memory", "2g"
    )
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        frame = BatchFrame(lines(spark, records, words))
        frame.rows().count()
        times: dict[str, list[float]] = {"plain": [], "acker": []}
        for round_ in range(rounds + 1):
            for name, job in (("plain", without_acker), ("acker", with_acker)):
                took = seconds(job, frame, str(directory / name))
                if round_:  # the first round is a warm-up
                    times[name].append(took)
        lost_s = seconds(with_a_lost_row, frame, str(directory / "lost"))
        same = [
            spark.read.parquet(str(directory / name)).agg(F.count("*"), F.sum("n")).collect()
            for name in times
        ]
        assert same[0] == same[1], f"the two counted differently: {same}"
    finally:
        spark.stop()
    plain_s, acker_s = (min(times[name]) for name in ("plain", "acker"))
    return {
        "benchmark": "acker",
        "records": records,
        "words": records * words,
        "plain_s": round(plain_s, 2),
        "acker_s": round(acker_s, 2),
        "ratio": round(acker_s / plain_s, 2),
        "lost_row_s": round(lost_s, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--words", type=int, default=10, help="words a record (default 10)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        found = measure(options.records, options.words, max(1, options.rounds), Path(directory))
    if options.json:
        print(json.dumps(found))
        return
    print(f"word count of {found['records']:,} records, {found['words']:,} words")
    print(f"without the acker      {found['plain_s']:>8} s")
    print(f"with the acker         {found['acker_s']:>8} s   {found['ratio']} x")
    print(f"... and one row lost   {found['lost_row_s']:>8} s")


if __name__ == "__main__":
    main()
