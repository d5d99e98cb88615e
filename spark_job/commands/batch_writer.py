"""Writes each batch to a directory of its own, so that a replayed batch replaces its first writing.

The source replays a batch row for row under the same batch id of the same query. So overwriting
`batch=<query>-<id>` gives exactly-once files as long as the query's checkpoint location is kept.
Files directly in `path` could not be matched with their batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_job.query_failure import for_spark
from state.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY = "sql.streaming.queryId"
FILE_FORMATS = ("parquet", "json")
CONSOLE_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """A function for `foreachBatch` that applies `process` and writes the result.

    - `format`: parquet, json, console or noop.
    - `path`: the directory of parquet or json files.
    """

    process: Callable[[DataFrame], DataFrame]
    format: str
    path: str | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch. Blocks until it is written; Spark calls this on the driver."""
        try:
            result = self.process(batch)
        except BaseException as exc:
            error = for_spark(exc, "the function applied to each batch")
            if error is exc:
                raise
            raise error from None
        if not isinstance(result, type(batch)):
            raise TypeError(
                f"the function applied to each batch returned a {type(result).__name__}, not a "
                "DataFrame; let it return a DataFrame"
            )
        if self.format in FILE_FORMATS:
            result.write.mode("overwrite").format(self.format).save(
                f"{self.path}/{batch_directory(_query_id(batch), batch_id)}"
            )
        elif self.format == "console":
            result.show(CONSOLE_ROWS, truncate=False)
        else:
            result.write.mode("overwrite").format("noop").save()
        failpoint("sink-written")


def batch_directory(query_id: str, batch_id: int) -> str:
    """`batch=<first 8 characters of the query id>-<batch id>`.

    Spark reads this name as a partition column `batch`.
    """
    return f"batch={query_id[:8]}-{batch_id}"


def _query_id(batch: DataFrame) -> str:
    """The streaming query's id. Its checkpoint location keeps it, so it survives restarts."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise RuntimeError("the batch has no query id; use a BatchWriter in foreachBatch only")
    return str(query_id)
