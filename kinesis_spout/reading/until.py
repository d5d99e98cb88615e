"""Ending at a time: which of a shard's records had arrived by then, and whether that
was all. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page


def cut_page(page: Page, until_ms: int) -> Page | None:
    """The page's records before the first that arrived after `until_ms` (ms since 1970 UTC); None
    where none did.
    """
    micros = page.columns.arrivals.cast(pa.int64())
    at = pc.index(pc.greater_equal(micros, (until_ms + 1) * 1000), pa.scalar(value=True)).as_py()
    if at < 0:
        return None
    columns = page.columns.up_to(at)
    return replace(
        page,
        columns=columns,
        count=at,
        first=page.first if at else None,
        last=SequenceNumber.parse(columns.lists().numbers[-1]) if at else None,
        last_arrival_ms=micros[at - 1].as_py() // 1000 if at else None,
        payload_bytes=columns.payload_bytes,
        child_shards=(),
        next_iterator=None,
        ended=False,
        at_tip=False,
    )
