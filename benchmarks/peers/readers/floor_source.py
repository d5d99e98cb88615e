"""A data source in Python that reads nothing: each task hands over one prepared page again and
again. What it costs, Spark costs for any data source in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

TASKS = 2
PAGE_BYTES, MAX_PAGE_RECORDS = 8 * 1024 * 1024, 10_000  # as the pages of our source


@dataclass
class Task(InputPartition):
    rows: int
    record_bytes: int


class FloorReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows, self._record_bytes = int(options["rows"]), int(options["recordBytes"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802  # no limit
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Task]:
        rows = (end["rows"] - start["rows"]) // TASKS
        return [Task(rows, self._record_bytes) for _ in range(TASKS)] if rows else []

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # its own
        count = min(MAX_PAGE_RECORDS, PAGE_BYTES // task.record_bytes)
        page = pa.RecordBatch.from_arrays(
            [
                pa.array([bytes(task.record_bytes)] * count, pa.binary()),
                pa.array(["measured"] * count),
                pa.array([f"key-{row:08}" for row in range(count)]),
                pa.array([f"{row:056}" for row in range(count)]),
                pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", "UTC")),
            ],
            names=[
                "data",
                "streamName",
                "partitionKey",
                "sequenceNumber",
                "approximateArrivalTimestamp",
            ],
        )
        left = task.rows
        while left:
            yield page.slice(0, min(left, count))
            left -= min(left, count)


class FloorSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return (
            "data BINARY, streamName STRING, partitionKey STRING, sequenceNumber STRING, "
            "approximateArrivalTimestamp TIMESTAMP"
        )

    def streamReader(self, schema: StructType) -> FloorReader:  # noqa: ARG002, N802  # as Spark calls it
        return FloorReader(self.options)
