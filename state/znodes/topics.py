"""The topics of one application's state over a tree of znodes, in memory or in ZooKeeper alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.znodes.fence import Fence
from state.znodes.history import HistoryZnodes
from state.znodes.identity import IdentityZnodes, PauseZnodes
from state.znodes.ownership import OwnershipZnodes
from state.znodes.plans import PlanZnodes
from state.znodes.reports import ReportZnodes
from state.znodes.runs import RunZnodes
from state.znodes.shard_states import MAX_STATES_PER_WRITE, ShardListZnodes, ShardStateZnodes
from state.znodes.view import ViewZnodes

if TYPE_CHECKING:
    from state.store.history import HistoryStore
    from state.store.identity import IdentityStore, PauseStore
    from state.store.ownership import OwnershipStore
    from state.store.plans import PlanStore
    from state.store.reports import ReportStore
    from state.store.runs import RunStore
    from state.store.shard_states import ShardListStore, ShardStateStore
    from state.store.view import ViewStore
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree


class StoreTopics:
    """What is stored of one application on one stream, topic by topic (`state.store`).

    Whoever opens it hands out the topics that others may touch. `reset_command`: the command, named
    in errors, that drops the application's state. `states_per_write`: the maximum shard states of a
    transaction. The constructor does no I/O.
    """

    def __init__(
        self,
        tree: ZnodeTree,
        paths: ZookeeperPaths,
        *,
        reset_command: str,
        states_per_write: int = MAX_STATES_PER_WRITE,
    ) -> None:
        self._tree, self.paths, self._fence = tree, paths, Fence(tree, paths)
        nodes = (tree, paths, self._fence)
        ownership, plans = OwnershipZnodes(*nodes), PlanZnodes(*nodes)
        self.ownership: OwnershipStore = ownership
        self.identity: IdentityStore = IdentityZnodes(*nodes, ownership, reset_command)
        self.shard_states: ShardStateStore = ShardStateZnodes(*nodes, states_per_write)
        self.shard_list: ShardListStore = ShardListZnodes(*nodes, ownership)
        self.plans: PlanStore = plans
        self.reports: ReportStore = ReportZnodes(*nodes)
        self.history: HistoryStore = HistoryZnodes(*nodes)
        self.runs: RunStore = RunZnodes(*nodes)
        self.pause: PauseStore = PauseZnodes(*nodes)
        self.view: ViewStore = ViewZnodes(
            tree=tree,
            paths=paths,
            ownership=ownership,
            identity=self.identity,
            shard_states=self.shard_states,
            shard_list=self.shard_list,
            plans=plans,
            reports=self.reports,
            history=self.history,
            runs=self.runs,
            pause=self.pause,
        )

    def close(self) -> None:
        """Close the connection, and give up the ownership if this process holds it. Idempotent."""
        self._fence.forget()
        self._tree.close()
