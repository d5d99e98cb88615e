"""What the demo's Spark job does with a batch: write the flights as Parquet files, as a user's own
function would. `spark_job.commands.drill_job` calls one of these functions for each batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation writes it

from spark_job.demo.flights import SCHEMA, cancelled_reason, is_cancelled

if TYPE_CHECKING:
    from scheme import Record
    from spark_job import TrackedBatch


def write_all(batch: TrackedBatch, scratch: str) -> None:
    """Write every flight of the batch to `scratch`."""
    flight = F.from_json(F.col("data").cast("string"), SCHEMA)
    rows = batch.df.select(flight.alias("flight")).select("flight.*")
    rows.write.mode("overwrite").parquet(f"{scratch}/flights/batch={batch.id}")


def write_departed(batch: TrackedBatch, scratch: str) -> None:
    """The same, one record at a time. A cancelled flight fails, and the others do not."""
    rows = batch.map_records(departed, SCHEMA)
    rows.write.mode("overwrite").parquet(f"{scratch}/flights/batch={batch.id}")


def departed(record: Record) -> dict[str, Any]:
    """The flight as a row. Raises on a cancelled one, as any function may on unexpected input."""
    flight: dict[str, Any] = json.loads(record.data)
    if is_cancelled(flight):
        raise ValueError(cancelled_reason(flight))
    return flight
