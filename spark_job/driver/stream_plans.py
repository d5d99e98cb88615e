"""The plans of one stream: what number the next one gets, and which tasks of one run, or run again.

Spark repeats a batch after a restart. Its tasks replay what the plan's tasks have published. What
they had not read yet they read now, while the plan is open; nobody publishes under a closed one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_job.settings import FAIL
from state.plan import PlanStatus, TaskPlan, plan_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.shards.catalog import ShardCatalog
    from state.plan import Plan
    from state.store.plans import PlanStore
    from state.store.shard_states import ShardStateStore

log = logging.getLogger("kinesis_spout")


class StreamPlans:
    """One per stream of a query. Blocks on ZooKeeper. For the driver's thread.

    `newest`: the newest plan that this run has made; None before the first one.
    """

    def __init__(
        self,
        plans: PlanStore,
        shard_states: ShardStateStore,
        catalog: ShardCatalog,
        aggregated_records: str,
    ) -> None:
        self.newest: Plan | None = None
        self._plans = plans
        self._shard_states = shard_states
        self._catalog = catalog
        self._aggregated_records = aggregated_records

    # making ---------------------------------------------------------------------------------------
    def create(self, plan: Plan) -> None:
        self._plans.create(plan)
        self.newest = plan

    def made(self, plan_id: str) -> Plan | None:
        """The plan, if this run has made it and no later one: plans never change."""
        plan = self.newest
        return plan if plan is not None and plan.plan_id == plan_id else None

    def next_number(self, start: str) -> int:
        """A plan number above all in Spark's log and in ZooKeeper, since either may have been
        restored from a backup, and the states may have been moved to another ZooKeeper.
        """
        if self.newest is not None:
            # The owner alone makes plans, and this process has read them all.
            return 1 + max(map(plan_number, filter(None, (start, self.newest.plan_id))))
        pointer = self._plans.pointer()
        seen = [
            start,
            pointer.id if pointer else "",
            *self._plans.known(),
            *self._settled(),
        ]
        return 1 + max((plan_number(plan_id) for plan_id in seen if plan_id), default=0)

    # settling -------------------------------------------------------------------------------------
    def is_unsettled(self, plan_id: str) -> bool:
        """Whether this is the newest plan, and is not settled yet.

        When ZooKeeper points to another plan than Spark (new checkpoint location, restored backup),
        nothing is settled, and the records of that other plan are delivered again.
        """
        pointer = self._plans.pointer()
        return (
            pointer is not None
            and pointer.id == plan_id
            and pointer.status is not PlanStatus.SETTLED
        )

    def remove_before(self, plan_id: str) -> None:
        for old in self._plans.known():
            if plan_number(old) < plan_number(plan_id):
                self._plans.remove(old)

    def newest_settled(self) -> str:
        """The newest plan that a shard state names as settled; empty for none."""
        return max(self._settled(), key=plan_number, default="")

    def _settled(self) -> list[str]:
        plans = (stored.state.settled_plan for stored in self._catalog.states.values())
        return [plan for plan in plans if plan is not None]

    # running --------------------------------------------------------------------------------------
    def open_plan(self) -> str | None:
        """The newest plan, if it is open."""
        pointer = self._plans.pointer()
        return pointer.id if pointer is not None and pointer.status is PlanStatus.OPEN else None

    def close_open(self) -> None:
        """Close the newest plan if it is open: the batch that runs next has nothing of it, and a
        tracked batch takes an open plan for its own.
        """
        if (plan_id := self.open_plan()) is not None:
            self._plans.close(plan_id)

    def knows(self, plan_id: str) -> bool:
        """Whether the stream has or had this plan, as far as ZooKeeper can still tell. Needs no
        loaded states.
        """
        pointer = self._plans.pointer()
        if pointer is not None and pointer.id == plan_id:
            return True
        if plan_id in self._plans.known():
            return True
        stored = self._shard_states.load().values()
        return any(shard.state.settled_plan == plan_id for shard in stored)

    def tasks(self, plan_id: str) -> dict[int, TaskPlan]:
        """The tasks of a plan to run now, by number.

        Leaves out the tasks of a closed plan that published no end: they may not publish any more,
        and later batches read their records. A plan of an earlier run is closed when a published
        end of it was removed, or when it refused aggregates and the option no longer does. A plan
        that ZooKeeper no longer has gives no tasks, with a warning.
        """
        open_plan = self.open_plan()
        if open_plan is not None and open_plan != plan_id:
            # Spark replays an older batch. A tracked batch takes the open plan for its own, so no
            # other plan may be open.
            self._plans.close(open_plan)
        is_open, is_own = open_plan == plan_id, self.made(plan_id) is not None
        plan = self.made(plan_id) or self._plans.read(plan_id)
        if plan is None:
            log.warning(
                "plan %s is no longer in ZooKeeper, so its batch is empty; later batches "
                "redeliver its unacked records",
                plan_id,
            )
            return {}
        tasks = dict(enumerate(plan.tasks))
        if not is_own:  # a replay, which polls
            tasks = {number: replace(task, consumer_arn=None) for number, task in tasks.items()}
        if is_open and is_own:
            return tasks
        if is_open and not self._may_go_on(plan):
            self._plans.close(plan_id)
            is_open = False
        ends = self._plans.read_ends(plan_id)
        if is_open:
            self._check_replayed(
                tasks[task] for task in tasks if task not in ends or not ends[task].sealed
            )
            return tasks
        log.warning(
            "plan %s is closed, so its batch replays only %d of its %d tasks: those that "
            "published an end. Later batches read the records of the other tasks",
            plan_id,
            len(ends),
            len(tasks),
        )
        return {task: tasks[task] for task in tasks if task in ends}

    def _may_go_on(self, plan: Plan) -> bool:
        """Whether the tasks of an open plan of an earlier run may read what they have not read yet.
        Warns where they may not.
        """
        if removed := self._plans.removed_logs(plan.plan_id):
            # Rows of these logs may have been handed over, in a range that nobody knows any more.
            log.warning(
                "the logs of tasks %s of plan %s were removed from ZooKeeper, so the plan is "
                "closed and their records are redelivered",
                ", ".join(map(str, removed)),
                plan.plan_id,
            )
            return False
        if plan.aggregated_records == FAIL != self._aggregated_records:
            # What its tasks published has no aggregate. With one option or another, what they did
            # not read would be read in two ways if the option changed again.
            log.warning(
                "plan %s was made while aggregatedRecords was %s, so it is closed. The next plan "
                "reads the records that this plan had not read",
                plan.plan_id,
                FAIL,
            )
            return False
        return True

    def _check_replayed(self, unread: Iterable[TaskPlan]) -> None:
        """Report data loss for shards of an old plan whose records may have expired since it was
        made. Once the plan is settled, the loss could no longer be detected.
        """
        shards = [shard.shard_id for task in unread for shard in task.shards if shard.max_records]
        self._catalog.check_retention([shard for shard in shards if shard in self._catalog.states])
