"""The topics of one application's state over a tree of znodes, in memory or in ZooKeeper alike; and
all that is stored of it, read in one pass by somebody who only looks.

No transaction covers the pass. Where a plan was made or settled meanwhile, the pass is repeated a
few times, so that the plan and the shard states belong together. What is half written or removed
meanwhile is left out: a look from outside must not fail while the job continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.errors import StateError, StoredDataError
from state.moves import held_since_ms, newest_move, worth_reading
from state.plan import plan_number
from state.store.ownership import OwnerView
from state.store.view import NodeAccess, PlanView, StoredApplication, TaskView
from state.znodes.fence import Fence, Nodes
from state.znodes.history import HistoryZnodes
from state.znodes.identity import IdentityZnodes, PauseZnodes
from state.znodes.ownership import OwnershipZnodes
from state.znodes.plans import PlanZnodes
from state.znodes.reports import ReportZnodes
from state.znodes.runs import RunZnodes
from state.znodes.shard_states import ShardListZnodes, ShardStateZnodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.plan import PlanStatus
    from state.store.history import HistoryEntry
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree


_MAX_PASSES = 3
_MAX_OTHERS = 1_000
_MAX_STATES = 100  # a list that was changed by hand was changed for many nodes


class StoreTopics:
    """What is stored of one application on one stream, topic by topic (`state.store`).

    Whoever opens it hands out the topics that others may touch. `reset_command`: the command, named
    in errors, that drops the application's state; None if the state ends with this process. The
    constructor does no I/O.
    """

    def __init__(
        self, tree: ZnodeTree, paths: ZookeeperPaths, *, reset_command: str | None
    ) -> None:
        self._tree, self.paths = tree, paths
        self._fence = fence = Fence(tree, paths)
        self.ownership = OwnershipZnodes(fence)
        self.identity = IdentityZnodes(fence, self.ownership, reset_command)
        self.shard_states = ShardStateZnodes(fence)
        self.shard_list = ShardListZnodes(fence, self.ownership)
        self.plans = PlanZnodes(fence)
        self.reports = ReportZnodes(fence)
        self.history = HistoryZnodes(fence)
        self.runs = RunZnodes(fence)
        self.pause = PauseZnodes(fence)
        self.view = ViewZnodes(fence, self)

    def close(self) -> None:
        """Close the connection, and give up the ownership if this process holds it. Idempotent."""
        self._fence.forget()  # its node ends with the session
        self._tree.close()


class ViewZnodes(Nodes):
    """All topics, read together. Writes nothing, and needs no ownership."""

    def __init__(self, fence: Fence, topics: StoreTopics) -> None:
        super().__init__(fence)
        self._topics = topics

    def read(self) -> StoredApplication:
        """All that is stored, in one pass, without what is half written or removed meanwhile."""
        topics = self._topics
        identity, pin = topics.identity.read(), topics.identity.read_start(also_unfinished=True)
        if identity is None and pin is None and (others := self._others()) is not None:
            return others
        for _ in range(_MAX_PASSES):
            before = topics.plans.pointer()
            states = {shard: stored.state for shard, stored in topics.shard_states.load().items()}
            plan = None if before is None else self._plan(before.id, before.status)
            if topics.plans.pointer() == before:
                break
        owners = topics.ownership.holders()
        entries = self._newest_history(len(states))
        return StoredApplication(
            identity=identity,
            pin=pin,
            states=states,
            owners=tuple(OwnerView(task, info) for task, info in owners.items()),
            total_tasks=topics.ownership.total_tasks(),
            plan=plan,
            policy=topics.reports.read_policy(),
            shard_list=topics.shard_list.read(),
            pause=topics.pause.read(),
            move=newest_move(entries),
            held_since_ms=held_since_ms(entries, states),
            runs=topics.runs.read(),
            reset=topics.identity.read_reset(),
        )

    def read_access(self, shard_ids: Iterable[str]) -> Mapping[str, NodeAccess]:
        """By path, who may write what an owner writes: of the shards, the states of the first 100.
        Without what is not there; empty where it cannot be read.
        """
        paths = self._paths
        parents = [paths.base, paths.epoch, paths.batches, paths.history, paths.runs]
        try:
            states = [paths.shard_state(shard_id) for shard_id in sorted(shard_ids)[:_MAX_STATES]]
            below = [
                f"{parent}/{name}"
                for parent in (paths.epoch, paths.runs)
                for name in self._names(parent)
            ]
            every = [*parents, paths.plan, paths.shard_list, *below, *states]
            granted = self._tree.grants(every)
        except StateError:
            return {}
        return {
            path: NodeAccess(
                frozenset(
                    grant.identity
                    for grant in grants
                    if (grant.may_create if path in parents else grant.may_write)
                ),
                frozenset(grant.identity for grant in grants if grant.may_administer),
            )
            for path, grants in zip(every, granted, strict=True)
            if grants is not None
        }

    def _others(self) -> StoredApplication | None:
        """What is there beside an application of which nothing is; None where something is."""
        if self._names(self._paths.base):
            return None
        application, _, stream = self._paths.base.rpartition("/")
        root = application.rpartition("/")[0]
        named = self._names(root)[:_MAX_OTHERS]
        found = self._tree.read([f"{root}/{name}/{stream}/stream" for name in named])
        return StoredApplication(
            of_the_stream=tuple(
                name for name, node in zip(named, found, strict=True) if node is not None
            ),
            of_the_application=tuple(self._names(application)[:_MAX_OTHERS]),
        )

    def _newest_history(self, shards: int) -> list[HistoryEntry]:
        """Without what was removed meanwhile; nothing where an entry is damaged."""
        try:
            history = self._topics.history
            marks = worth_reading(history.index().marks, shards)
            return [entry for entry in history.read(marks) if entry is not None]
        except StoredDataError:
            return []

    def _plan(self, plan_id: str, status: PlanStatus) -> PlanView | None:
        plans = self._topics.plans
        header = plans.header(plan_id)
        if header is None:
            return None
        tasks, logs = plans.tasks(plan_id, header), plans.logs(plan_id, header)
        report = self._topics.reports.header(plan_id)
        number = plan_number(plan_id)
        earlier = [known for known in plans.known() if plan_number(known) < number]
        before = plans.header(earlier[-1]) if earlier else None
        return PlanView(
            plan_id=plan_id,
            status=status,
            created_ms=header.created_ms,
            until_ms=header.until_ms,
            outages=header.outages,
            delivery_limit=header.delivery_limit,
            tasks=tuple(TaskView(task, plan, logs.get(task)) for task, plan in tasks.items()),
            report=None if report is None else report.status,
            openings=0 if report is None else report.openings,
            outcomes=None if report is None else report.report,
            previous_ms=None if before is None else before.created_ms,
        )
