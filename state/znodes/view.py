"""All that is stored of an application, read in one pass by somebody who only looks.

No transaction covers the pass. Where a plan was made or settled meanwhile, the pass is repeated a
few times, so that the plan and the shard states belong together. What is half written or removed
meanwhile is left out: a look from outside must not fail because the job goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.errors import StateError, StoredDataError
from state.moves import held_since_ms, newest_move, worth_reading
from state.plan import PlanPointer, plan_number
from state.store.ownership import OwnerView
from state.store.view import NodeAccess, PlanView, StoredApplication, TaskView, ViewStore
from state.znodes.reports import decode_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.store.history import HistoryEntry, HistoryStore
    from state.store.identity import IdentityStore, PauseStore
    from state.store.reports import ReportStore
    from state.store.runs import RunStore
    from state.store.shard_states import ShardListStore, ShardStateStore
    from state.znodes.ownership import OwnershipZnodes
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.plans import PlanZnodes
    from state.znodes.tree import ZnodeTree

_MAX_PASSES = 3
_MAX_OTHERS = 1_000
_MAX_STATES = 100  # a list that was changed by hand was changed for many nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewZnodes(ViewStore):
    """A `ViewStore`, which asks the other topics."""

    tree: ZnodeTree
    paths: ZookeeperPaths
    ownership: OwnershipZnodes
    identity: IdentityStore
    shard_states: ShardStateStore
    shard_list: ShardListStore
    plans: PlanZnodes
    reports: ReportStore
    history: HistoryStore
    runs: RunStore
    pause: PauseStore

    def read(self) -> StoredApplication:
        identity, pin = self.identity.read(), self.identity.read_start(also_unfinished=True)
        if identity is None and pin is None and (others := self._others()) is not None:
            return others
        for _ in range(_MAX_PASSES):
            before = self.plans.pointer()
            states = {shard: stored.state for shard, stored in self.shard_states.load().items()}
            plan = None if before is None else self._plan(before)
            if self.plans.pointer() == before:
                break
        owners = self.ownership.holders()
        entries = self._newest_history(len(states))
        return StoredApplication(
            identity=identity,
            pin=pin,
            states=states,
            owners=tuple(OwnerView(task, info) for task, info in owners.items()),
            total_tasks=self.ownership.total_tasks(),
            plan=plan,
            policy=self.reports.read_policy(),
            shard_list=self.shard_list.read(),
            pause=self.pause.read(),
            move=newest_move(entries),
            held_since_ms=held_since_ms(entries, states),
            runs=self.runs.read(),
            reset=self.identity.read_reset(),
        )

    def read_access(self, shard_ids: Iterable[str]) -> Mapping[str, NodeAccess]:
        paths = self.paths
        parents = [paths.base, paths.epoch, paths.batches, paths.history, paths.runs]
        try:
            below = [
                f"{parent}/{name}"
                for parent, names in zip(
                    (paths.epoch, paths.runs),
                    self.tree.children([paths.epoch, paths.runs]),
                    strict=True,
                )
                for name in sorted(names or ())
            ]
            states = [paths.shard_state(shard_id) for shard_id in sorted(shard_ids)[:_MAX_STATES]]
            leaves = [paths.plan, paths.shard_list, *below, *states]
            granted = self.tree.grants([*parents, *leaves])
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
            for path, grants in zip([*parents, *leaves], granted, strict=True)
            if grants is not None
        }

    def _others(self) -> StoredApplication | None:
        """What is there beside an application of which nothing is; None where something is."""
        if self.tree.children([self.paths.base])[0]:
            return None
        application, _, stream = self.paths.base.rpartition("/")
        root = application.rpartition("/")[0]
        streams, names = self.tree.children([application, root])
        named = sorted(names or ())[:_MAX_OTHERS]
        found = self.tree.read([f"{root}/{name}/{stream}/stream" for name in named])
        return StoredApplication(
            of_the_stream=tuple(
                name for name, node in zip(named, found, strict=True) if node is not None
            ),
            of_the_application=tuple(sorted(streams or ())[:_MAX_OTHERS]),
        )

    def _newest_history(self, shards: int) -> list[HistoryEntry]:
        """Without what was removed meanwhile; nothing where an entry is damaged."""
        try:
            marks = worth_reading(self.history.index().marks, shards)
            return [entry for entry in self.history.read(marks) if entry is not None]
        except StoredDataError:
            return []

    def _plan(self, pointer: PlanPointer) -> PlanView | None:
        header = self.plans.header(pointer.id)
        if header is None:
            return None
        plans = self.plans.tasks(pointer.id, header)
        logs = self.plans.logs(pointer.id, header)
        path = self.paths.report(pointer.id)
        (node,) = self.tree.read([path])
        report = None if node is None else decode_header(node.data, path)
        number = plan_number(pointer.id)
        earlier = [known for known in self.plans.known() if plan_number(known) < number]
        before = self.plans.header(earlier[-1]) if earlier else None
        return PlanView(
            plan_id=pointer.id,
            status=pointer.status,
            created_ms=header.created_ms,
            until_ms=header.until_ms,
            outages=header.outages,
            delivery_limit=header.delivery_limit,
            tasks=tuple(TaskView(task, plan, logs.get(task)) for task, plan in plans.items()),
            report=None if report is None else report.status,
            openings=0 if report is None else report.openings,
            outcomes=None if report is None else report.report,
            previous_ms=None if before is None else before.created_ms,
        )
