"""Writes each batch to a directory of its own, so that a batch that comes again replaces itself.

The source replays a batch row for row under the same batch id of the same query, so overwriting
`batch=<query>-<id>` makes the files exactly-once as long as the query's checkpoint location is
kept. Files directly in `path` could not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY = "sql.streaming.queryId"
FILE_FORMATS = ("parquet", "json")
CONSOLE_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """A function for `foreachBatch`: applies `process` and writes its result in `format` (parquet,
    json, console or noop).
    """

    process: Callable[[DataFrame], DataFrame]
    format: str
    path: str | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Blocks until the batch is written. Runs in a thread of Spark's on the driver."""
        result = self.process(batch)
        if not isinstance(result, type(batch)):
            raise TypeError(
                f"the function applied to each batch returned a {type(result).__name__}, not a "
                "DataFrame; let it return one"
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
    """`batch=<first 8 of the query's id>-<batch id>`: Spark reads it as a partition
    column `batch`.
    """
    return f"batch={query_id[:8]}-{batch_id}"


def _query_id(batch: DataFrame) -> str:
    """The streaming query's id: kept in its checkpoint location, so it survives restarts."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise RuntimeError(
            "a batch came without the id of its query; call this from foreachBatch only"
        )
    return str(query_id)
