"""Asks the service whether rows that are missing from a batch are past the stream's retention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.reading.shard_getter import KinesisShardGetter
from spark_job.tracking.content_check import is_what_is_left, lowest_published
from state.plan import retries_with_rows
from state.position import Position

if TYPE_CHECKING:
    from spark_job.process_services import ProcessServices
    from spark_job.tracking.content_check import ShardContent
    from state.plan import Plan, ShardReadResult
    from state.sequence_number import SequenceNumber


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Decides for `check_content` whether the rows that a shard lacks have expired.

    Blocks on Kinesis, once for each shard that lacks rows. Raises `KinesisError`.
    """

    plan: Plan
    services: ProcessServices

    def __call__(self, found: ShardContent, end: ShardReadResult) -> bool:
        if self.services.settings.fail_on_data_loss:
            return False  # the task that read the rows again has found all of them
        planned = self.plan.slices.get(end.shard_id)
        read = [] if planned is None else retries_with_rows(planned.retries, end)
        lowest = lowest_published(end, read)
        return lowest is not None and is_what_is_left(
            found, end, read, self._oldest_from(end.shard_id, lowest)
        )

    def _oldest_from(self, shard_id: str, number: SequenceNumber) -> SequenceNumber | None:
        """The first number that the shard has from this one on; None if it has none."""
        getter = KinesisShardGetter(
            self.services.client,
            shard_id,
            Position.at(number),
            pacer=self.services.pacer(shard_id),
            clock=self.services.clock,
            random=self.services.random,
        )
        while True:
            page = getter.fetch(1)
            if page.count or page.ended or page.gone or page.at_tip:
                return page.first
