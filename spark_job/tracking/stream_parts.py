"""The parts of a batch: of each stream that it has records of, its plan, report and shard states.

Each part is reported and settled by itself, by the rules of a single stream. The user's function
gets the rows of all parts together, and a shard id alone does not tell the stream there. So what is
looked up in the rows of the batch goes by `stream/shardId` (`BatchFrame`), and what a stream's own
state says goes by shard id. This module leads from one to the other. In a query of one stream both
are the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.reading.shard_getter import KinesisShardGetter
from spark_job.tracking.content_check import (
    BatchContentError,
    is_what_is_left,
    lowest_published,
)
from spark_job.tracking.withholding import plan_rules
from state.plan import retries_with_rows
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from spark_job.tracking.content_check import ShardContent
    from spark_job.tracking.outcomes import FailedRecord
    from spark_job.tracking.unanswered import Given
    from spark_job.tracking.withholding import ShardRules
    from state.plan import Plan, ShardReadResult, TaskResult
    from state.report import OnFailure, OpenReport
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState
    from state.store.plans import PlanReader
    from state.store.reports import ReportStore

Ends = dict[int, "TaskResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """One stream's part of a batch that is reported.

    - `states`: the shard states, or none where nothing depends on them.
    - `first_task`: how many tasks of the batch come before those of this part.
    """

    settings: SourceSettings
    plans: PlanReader
    reports: ReportStore
    plan: Plan
    opened: OpenReport
    states: Mapping[str, ShardState]
    first_task: int = 0

    def read_ends(self) -> Ends:
        return dict(self.plans.read_ends(self.plan.plan_id))

    def own_content(self, content: Mapping[str, ShardContent]) -> dict[str, ShardContent]:
        return {
            shard: dataclasses.replace(content[name], shard_id=shard)
            for name, shard in self._own(content)
        }

    def own_failures(self, failed: Sequence[FailedRecord]) -> Sequence[FailedRecord]:
        prefix = self.settings.id_prefix
        if not prefix:
            return failed
        return [
            dataclasses.replace(record, shard_id=record.shard_id.removeprefix(prefix))
            for record in failed
            if record.shard_id.startswith(prefix)
        ]

    def own_given(self, given: Given) -> Given:
        return dataclasses.replace(
            given,
            ends={
                task: given.ends[self.first_task + task]
                if not self.settings.id_prefix
                else _renamed(given.ends[self.first_task + task], self.settings.id_prefix, "")
                for task in range(len(self.plan.tasks))
                if self.first_task + task in given.ends
            },
            withheld={shard: given.withheld[name] for name, shard in self._own(given.withheld)},
        )

    def _own(self, names: Iterable[str]) -> list[tuple[str, str]]:
        prefix = self.settings.id_prefix
        return [(name, name.removeprefix(prefix)) for name in names if name.startswith(prefix)]


def joined_ends(parts: Sequence[StreamPart], ends: Sequence[Ends]) -> Ends:
    """The results of the tasks of all parts, by the number of the task in the batch."""
    return {
        part.first_task + task: _renamed(result, "", part.settings.id_prefix)
        for part, own in zip(parts, ends, strict=True)
        for task, result in own.items()
    }


def joined_rules(parts: Sequence[StreamPart], on_failure: OnFailure) -> dict[str, ShardRules]:
    return {
        f"{part.settings.id_prefix}{shard}": rules
        for part in parts
        for shard, rules in plan_rules(part.plan, part.states, on_failure).items()
    }


def joined_plan(parts: Sequence[StreamPart]) -> Plan:
    """One plan of all tasks, of which only the slices are used."""
    if len(parts) == 1 and not parts[0].settings.id_prefix:
        return parts[0].plan
    tasks = (
        replace(
            task,
            shards=tuple(
                replace(one, shard_id=f"{part.settings.id_prefix}{one.shard_id}")
                for one in task.shards
            ),
        )
        for part in parts
        for task in part.plan.tasks
    )
    return replace(parts[0].plan, tasks=tuple(tasks))


def joined_states(parts: Sequence[StreamPart]) -> dict[str, ShardState]:
    return {
        f"{part.settings.id_prefix}{shard}": state
        for part in parts
        for shard, state in part.states.items()
    }


def refuse_foreign(content: Mapping[str, ShardContent], parts: Sequence[StreamPart]) -> None:
    """Raise `BatchContentError` for rows of a stream that the batch has no plan of."""
    foreign = sorted(
        name
        for name in content
        if not any(name.startswith(part.settings.id_prefix) for part in parts)
    )
    if foreign:
        raise BatchContentError(
            f"the batch's frame holds rows of {foreign[0]}, of which no plan is open, so nothing "
            "is acked; give read_stream and tracked(...) of one source to the query"
        )


def _renamed(result: TaskResult, old: str, new: str) -> TaskResult:
    if old == new:
        return result
    return replace(
        result,
        shards=tuple(
            replace(end, shard_id=f"{new}{end.shard_id.removeprefix(old)}") for end in result.shards
        ),
    )


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
