"""One stream's part of a batch, and the check that its rows are the rows its tasks published."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kinesis_spout.reading.shard_getter import KinesisShardGetter
from spark_job.process_services import ProcessServices
from spark_job.query_failure import naming
from spark_job.tracking.content_check import (
    BatchContentError,
    check_content,
    foreign_id,
    is_what_is_left,
    lowest_published,
    reads_of,
)
from state.plan import retries_with_rows
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_job.settings import SourceSettings
    from spark_job.tracking.content_check import ShardContent
    from spark_job.tracking.outcomes import FailedRecord
    from state.plan import Plan, ShardReadResult, TaskResult
    from state.report import OpenReport
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState
    from state.znodes.topics import StoreTopics


class RowsExpiredError(Exception):
    """Rows that the tasks had read have expired, so the batch ends without a report."""


@dataclass(slots=True, kw_only=True)
class StreamPart:
    """One stream's part of a batch whose report is open.

    - `states`: the shard states; empty if nothing depends on them.
    - `results`: the published results, by task. Empty before they are read, and if the function has
      read no row.
    """

    settings: SourceSettings
    store: StoreTopics
    plan: Plan
    opened: OpenReport
    states: Mapping[str, ShardState]
    results: Mapping[int, TaskResult] = field(default_factory=dict)

    @property
    def reads(self) -> dict[str, ShardReadResult]:
        return reads_of(self.results)

    @property
    def unread_shards(self) -> set[str]:
        """The shards of the tasks that have no results."""
        return {
            shard.shard_id
            for number, task in enumerate(self.plan.tasks)
            if number not in self.results
            for shard in task.shards
        }

    def in_batch(self, shard_id: str) -> str:
        """Return the shard's name in the rows of the batch."""
        return f"{self.settings.id_prefix}{shard_id}"

    def read_results(self) -> None:
        """Read the results that the tasks have published.

        Call it after the rows were read: a task publishes a row before it returns the row, so the
        logs then contain every row of the batch. Raises `BatchContentError` for a task whose log is
        not sealed.
        """
        self.results = self.store.plans.read_results(self.plan.plan_id)
        if unsealed := sorted(task for task, result in self.results.items() if not result.sealed):
            # Rows that are appended from now on would be acked, although no sink has them.
            with naming(self.settings):
                raise BatchContentError(
                    f"the rows of tasks {', '.join(map(str, unsealed))} of batch "
                    f"{self.plan.plan_id} were not all read, so no record of the batch is acked",
                    "read all rows of the batch in the function passed to tracked(...), and "
                    "start the query again",
                )

    def own_content(self, content: Mapping[str, ShardContent]) -> dict[str, ShardContent]:
        prefix = self.settings.id_prefix
        return {
            (shard := name.removeprefix(prefix)): replace(found, shard_id=shard)
            for name, found in content.items()
            if name.startswith(prefix)
        }

    def own_failures(self, failed: Sequence[FailedRecord]) -> Sequence[FailedRecord]:
        prefix = self.settings.id_prefix
        return [
            replace(record, shard_id=record.shard_id.removeprefix(prefix))
            for record in failed
            if record.shard_id.startswith(prefix)
        ]


def check_rows(content: Mapping[str, ShardContent], parts: Sequence[StreamPart]) -> None:
    """Raise `BatchContentError` unless the batch contains exactly the rows that the tasks of its
    parts have published; `RowsExpiredError` if the missing rows have expired.
    """
    foreign = sorted(
        name
        for name in content
        if not any(name.startswith(part.settings.id_prefix) for part in parts)
    )
    if foreign:
        raise BatchContentError(
            f"the frame of the batch contains rows of {foreign[0]}, but no batch of {foreign[0]} "
            "is open, so no record of the batch is acked",
            "call read_stream(...) and tracked(...) of the same KinesisSource in the query",
        )
    for part in parts:
        with naming(part.settings):
            check_content_of(part.plan, part.results, part.own_content(content), part.settings)


def check_failures(failed: Sequence[FailedRecord], parts: Sequence[StreamPart]) -> None:
    """Raise `BatchContentError` for a failed record of a shard that no part has read. No part would
    store its outcome, so it would be acked.
    """
    read = {part.in_batch(shard) for part in parts for shard in part.reads}
    for record in failed:
        if record.shard_id not in read:
            raise foreign_id(record.message_id)


def check_content_of(
    plan: Plan,
    results: Mapping[int, TaskResult],
    content: Mapping[str, ShardContent],
    settings: SourceSettings,
) -> None:
    """Check the rows of one stream, as `check_rows`. Blocks on Kinesis for each shard with missing
    rows.
    """

    def has_expired(found: ShardContent, read: ShardReadResult) -> bool:
        if settings.fail_on_data_loss:
            return False  # otherwise the task that read the rows again would have failed
        planned = plan.slices.get(read.shard_id)
        retries = [] if planned is None else retries_with_rows(planned.retries, read)
        lowest = lowest_published(read, retries)
        return lowest is not None and is_what_is_left(
            found, read, retries, _oldest_from(lowest, read.shard_id, settings)
        )

    if shards := check_content(content, results, plan.plan_id, has_expired=has_expired):
        raise RowsExpiredError(
            f"batch {plan.plan_id}: records that its tasks had read have expired from the stream "
            f"(shards {', '.join(shards)}), so no record of the batch is acked. The next batch "
            "reads the remaining records"
        )


def _oldest_from(
    number: SequenceNumber, shard_id: str, settings: SourceSettings
) -> SequenceNumber | None:
    """Return the shard's first sequence number from this one on; None if there is none."""
    services = ProcessServices.here(settings)
    getter = KinesisShardGetter(
        services.client,
        shard_id,
        Position.at(number),
        pacer=services.pacers.of(shard_id),
        clock=services.clock,
        random=services.random,
    )
    while True:
        page = getter.fetch(1)
        if page.count or page.ended or page.gone or page.at_tip:
            return page.first
