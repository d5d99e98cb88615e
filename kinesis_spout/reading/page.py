"""A page: the records of one fetch of a shard, and what the service said beside them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.service.record_columns import PageRecords

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
    """

    shard_id: str
    millis_behind_latest: int
    child_shards: tuple[ChildShard, ...]
    next_iterator: str | None
    ended: bool
    at_tip: bool
    service_time_ms: int | None
