"""What one fetch of a shard has brought: its records, and what the service said beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_spout.service.record_columns import RecordColumns
    from state.plan import ChildShard
    from state.sequence_number import SequenceNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecords:
    """`columns` are the records, in the service's order; `records` are these as Arrow.

    - `first`, `last`: of the records; None when there are none. `last_arrival_ms`: arrival of the
      last record, ms since 1970.
    - `payload_bytes`: the records' data, decoded.
    """

    columns: RecordColumns
    count: int
    first: SequenceNumber | None
    last: SequenceNumber | None
    last_arrival_ms: int | None
    payload_bytes: int

    @property
    def records(self) -> pa.RecordBatch:
        """See `RecordColumns.to_arrow`."""
        return self.columns.to_arrow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(PageRecords):
    """What one fetch brought, its records in sequence order.

    - `at_tip`: nothing more was there when the service answered; `service_time_ms` is its clock
      then, to the second.
    - `ended`: the shard ends after these records (there may be some); `child_shards` continue it,
      as far as the service said.
    - `millis_behind_latest`: 0 when the service did not tell; then `at_tip` is false.
    """

    shard_id: str
    millis_behind_latest: int
    child_shards: tuple[ChildShard, ...]
    next_iterator: str | None
    ended: bool
    at_tip: bool
    service_time_ms: int | None
