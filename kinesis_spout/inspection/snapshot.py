"""A snapshot of an application: what ZooKeeper has, one listing of the shards, the time. Pure.

A job's batch is settled into the shard states only when Spark asks for the next one. So the
progress of a shard is its state, and on top of it what the tasks of the open plan have published.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from kinesis_spout.shards.lineage import ShardLineage, task_of, unresolved_ancestors
from state.plan import PlanStatus
from state.position import SHARD_END, Position
from state.report import OnFailure
from state.store.runs import DONE, SPARK, SPOUT, RunLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.plan import ShardReadResult, ShardSlice
    from state.shard_state import ShardState
    from state.store.ownership import OwnerInfo, OwnerView, ProcessState
    from state.store.runs import Loss, RunEnd
    from state.store.view import NodeAccess, PlanView, StoredApplication, TaskView

ANYONE = "anyone"
NOTHING_REPORTED = RunLog()


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What the open plan reads of a shard. `result`: what the task has published so far."""

    task: TaskView
    slice: ShardSlice
    result: ShardReadResult | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One look at an application.

    - `now_ms`: the service's time. `stored` is empty where the look is at a stream alone.
    - `process_states`: the processes of owners, now and before, as far as this machine sees them.
    - `access`: by path, who may write the nodes that an owner writes, as far as that was read.
    - `stopped_jvms`: by owner, the pid of its Spark JVM, where that is stopped.
    """

    application: str
    stored: StoredApplication
    stream: StreamSummary
    listing: Sequence[ShardInfo]
    now_ms: int
    process_states: Mapping[OwnerInfo, ProcessState] = field(default_factory=dict)
    access: Mapping[str, NodeAccess] = field(default_factory=dict)
    stopped_jvms: Mapping[OwnerInfo, int] = field(default_factory=dict)

    @property
    def states(self) -> Mapping[str, ShardState]:
        return self.stored.states

    @property
    def is_known(self) -> bool:
        """Whether the application has ever begun on this stream."""
        return bool(self.stored.pin or self.stored.states or self.stored.plan)

    @property
    def is_of_another_stream(self) -> bool:
        """Whether the state belongs to a stream that had the name before."""
        known = self.stored.identity
        return known is not None and not known.is_same(self.stream.identity)

    @property
    def is_readable(self) -> bool:
        """Whether there is a state, and it is of the stream that is looked at."""
        return self.is_known and not self.is_of_another_stream

    @property
    def is_spout(self) -> bool:
        """Whether standalone spouts own the application now. A Spark job owns all of it at once."""
        return self.stored.total_tasks is not None

    @property
    def was_spout(self) -> bool:
        """The same, also of an application that nobody owns: only Spark jobs make plans."""
        return self.is_spout or (not self.stored.owners and self.stored.plan is None)

    @property
    def consumer(self) -> str:
        """The kind of consumer that owns the application, or has owned it last."""
        return SPOUT if self.was_spout else SPARK

    @cached_property
    def lineage(self) -> ShardLineage:
        return ShardLineage.of(self.listing, self.states)

    @cached_property
    def shard_ids(self) -> tuple[str, ...]:
        """All shards that are listed, have a state or are named as a parent, oldest first."""
        return tuple(self.lineage.oldest_first())

    @cached_property
    def known_shards(self) -> frozenset[str]:
        return frozenset(self.shard_ids)

    @cached_property
    def unresolved_ancestors(self) -> dict[str, tuple[str, ...]]:
        """By shard, its ancestors that have unresolved records."""
        return unresolved_ancestors(self.states)

    @cached_property
    def held_by(self) -> dict[str, str]:
        """By shard that is not read to its end, the ancestor whose unresolved records hold it."""
        policy = self.stored.policy
        if policy is None or policy.on_failure is OnFailure.CONTINUE:
            return {}
        found: dict[str, str] = {}
        for shard_id, ancestors in self.unresolved_ancestors.items():
            for ancestor in () if self.states[shard_id].end_was_read else ancestors:
                keys = {one.key for one in self.states[ancestor].unresolved}
                if policy.on_failure is OnFailure.BLOCK_SHARD or None in keys:
                    found[shard_id] = ancestor
                    break
        return found

    @cached_property
    def held_up(self) -> dict[str, tuple[str, ...]]:
        """By shard, those that wait for it: its children, and what its unresolved records hold."""
        found: dict[str, list[str]] = {}
        for shard_id in self.shard_ids:
            for holder in (*self.lineage.waits_for(shard_id), self.held_by.get(shard_id)):
                if holder is not None and shard_id not in found.setdefault(holder, []):
                    found[holder].append(shard_id)
        return {holder: tuple(waiting) for holder, waiting in found.items()}

    @cached_property
    def locked(self) -> tuple[str, ...]:
        """The nodes that nobody may write."""
        return tuple(path for path, one in self.access.items() if not one.writers)

    @cached_property
    def reserved(self) -> Mapping[frozenset[str], tuple[str, ...]]:
        """By those who alone may write them, the nodes closed to some who may write others."""
        found: dict[frozenset[str], list[str]] = {}
        for path, one in self.access.items():
            if one.writers:
                found.setdefault(one.writers, []).append(path)
        everybody = frozenset[str]().union(*found)
        return {
            writers: tuple(paths)
            for writers, paths in found.items()
            if ANYONE not in writers and not writers >= everybody
        }

    @property
    def hides_runs(self) -> bool:
        """Whether ZooKeeper may have refused to store how its last run ended."""
        closed = (*self.locked, *(path for paths in self.reserved.values() for path in paths))
        return any("/runs/" in path for path in closed)

    @property
    def open_plan(self) -> PlanView | None:
        """The newest plan while it is not settled; None while spouts own the application."""
        plan = self.stored.plan
        is_over = plan is None or plan.status is PlanStatus.SETTLED or self.is_spout
        return None if is_over else plan

    @cached_property
    def planned(self) -> dict[str, PlannedRead]:
        """By shard, what the open plan reads. Leaves out shards into whose state it cannot be
        settled: that state moved since, or has the plan already.
        """
        plan = self.open_plan
        found: dict[str, PlannedRead] = {}
        if plan is None:
            return found
        for task in plan.tasks:
            folded = () if task.log is None else task.log.folded().shards
            results = {one.shard_id: one for one in folded}
            for one in task.plan.shards:
                state = self.states.get(one.shard_id)
                is_unmoved = state is not None and state.read_position == one.position
                if state is not None and is_unmoved and state.settled_plan != plan.plan_id:
                    found[one.shard_id] = PlannedRead(task, one, results.get(one.shard_id))
        return found

    def position(self, shard_id: str) -> Position | None:
        """Where the shard's next record is read; None for a shard without a state."""
        return self._progress.get(shard_id, (None, None))[0]

    def verified_ms(self, shard_id: str) -> int | None:
        """The service time before which no record can have been missed; None if it is not known."""
        return self._progress.get(shard_id, (None, None))[1]

    @cached_property
    def _progress(self) -> dict[str, tuple[Position, int | None]]:
        found: dict[str, tuple[Position, int | None]] = {}
        for shard_id, state in self.states.items():
            planned, position = self.planned.get(shard_id), state.read_position
            read = None if planned is None or not planned.slice.max_records else planned.result
            times = [state.verified_until_ms]
            if read is not None:
                times += [read.last_arrival_ms, read.tip_ms if read.at_tip else None]
                if read.at_shard_end:
                    position = SHARD_END
                elif read.count and read.last is not None:
                    position = Position.after(read.last.whole)
            known = (one for one in times if one is not None)
            found[shard_id] = position, max(known, default=None)
        return found

    def owner_of(self, shard_id: str) -> OwnerView | None:
        """The process that is to read the shard; None if none runs. It may be one of several."""
        total = self.stored.total_tasks
        for owner in self.stored.owners:
            task = owner.task
            if task is None or total is None or task_of(shard_id, total) == task.index:
                return owner
        return None

    def log_of(self, owner: OwnerView) -> RunLog:
        """What an owner reports of its run; empty of an earlier version, which reports nothing."""
        log = self.stored.runs.get(owner.task, NOTHING_REPORTED)
        is_its = log.newest is not None and log.newest.owner == owner.info
        return log if is_its else NOTHING_REPORTED

    @cached_property
    def last_log(self) -> RunLog:
        """What the process reported that took the application, or a share of it, last."""
        logs = [log for log in self.stored.runs.values() if log.runs]
        return max(logs, key=lambda log: log.runs[-1].owner.since_ms, default=NOTHING_REPORTED)

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """The losses of records after which a process continued, the newest first, as far as they
        are younger than the stream's retention.
        """
        known = [loss for log in self.stored.runs.values() for loss in reversed(log.losses)]
        horizon_ms = self.now_ms - self.stream.retention_ms
        young = (one for one in known if one.time_ms >= horizon_ms)
        return tuple(sorted(young, key=lambda one: -one.time_ms))

    @cached_property
    def ended_in_order(self) -> RunEnd | None:
        """How the last run ended, where it was to end by itself and did (AvailableNow, `--until`).
        None while a process runs, and where one of several that share the application did not.
        """
        newest = [log.newest for log in self.stored.runs.values() if log.newest is not None]
        ends = [run.end for run in newest if run.end is not None and run.end.kind == DONE]
        # A session may last for a moment longer than its run.
        is_over = all(one.info in {run.owner for run in newest} for one in self.stored.owners)
        if not ends or len(ends) < len(newest) or not is_over:
            return None
        return max(ends, key=lambda end: end.time_ms)

    @cached_property
    def run_interval_ms(self) -> int | None:
        """The longest time between the starts of runs that ended as they should; None where fewer
        than three in a row are known.
        """
        starts: list[int] = []
        for run in reversed(self.last_log.runs):
            if run.end is None or run.end.kind != DONE:
                break
            starts.append(run.owner.since_ms)
        between = [later - earlier for later, earlier in pairwise(starts)]
        return max(between) if len(between) > 1 else None

    @property
    def trigger_ms(self) -> int | None:
        """The trigger's interval of the Spark query that runs; None if none is known."""
        owner = next(iter(self.stored.owners), None)
        return None if owner is None or self.is_spout else self.log_of(owner).trigger_ms

    @property
    def next_trigger_ms(self) -> int | None:
        """When it is due next, at a multiple of its interval, as Spark has it."""
        trigger_ms = self.trigger_ms
        return (self.now_ms // trigger_ms + 1) * trigger_ms if trigger_ms else None
