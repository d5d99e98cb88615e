"""How many bytes of payload a page holds, and how many of its first records fit into so many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable


def payload_bytes(pages: Iterable[pa.RecordBatch]) -> int:
    return sum(_lengths_sum(page) for page in pages)


def fitting_records(records: pa.RecordBatch, room_bytes: int, *, at_least: int) -> int:
    """How many of the page's first records have no more than `room_bytes` of payload."""
    if _lengths_sum(records) <= room_bytes:
        return int(records.num_rows)
    running = pc.cumulative_sum(pc.cast(pc.binary_length(records.column("data")), pa.int64()))
    return max(
        at_least, int(pc.sum(pc.cast(pc.less_equal(running, room_bytes), pa.int64())).as_py() or 0)
    )


def _lengths_sum(records: pa.RecordBatch) -> int:
    return int(pc.sum(pc.cast(pc.binary_length(records.column("data")), pa.int64())).as_py() or 0)
