"""A page: the records of one fetch of a shard, and what the service said beside them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.service.record_columns import NO_RECORDS, PageRecords
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from state.plan import ChildShard


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(PageRecords):
    """The result of one fetch, its records in sequence order.

    - `at_tip`: nothing more was there when the service answered; `service_time_ms` is its clock
      then, to the second.
    - `ended`: the shard ends after these records (there may be some); `child_shards` continue it,
      as far as the service said.
    - `millis_behind_latest`: 0 when the service did not tell; then `at_tip` is false.
    - `gone`: the service does not know the shard any more. There are no records, and `ended` is
      false: nothing says how far the shard was read.
    """

    shard_id: str
    millis_behind_latest: int
    child_shards: tuple[ChildShard, ...]
    next_iterator: str | None
    ended: bool
    at_tip: bool
    service_time_ms: int | None
    gone: bool = False

    @classmethod
    def empty(cls, shard_id: str, *, gone: bool = False) -> Self:
        """A page without records that says nothing but whether the shard is gone."""
        return cls(
            shard_id=shard_id,
            columns=NO_RECORDS,
            count=0,
            first=None,
            last=None,
            last_arrival_ms=None,
            payload_bytes=0,
            millis_behind_latest=0,
            child_shards=(),
            next_iterator=None,
            ended=False,
            at_tip=False,
            service_time_ms=None,
            gone=gone,
        )


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
