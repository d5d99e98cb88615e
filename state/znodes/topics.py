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
        self._tree, self.paths = tree, paths
        self._fence = fence = Fence(tree, paths)
        self.ownership = OwnershipZnodes(fence)
        self.identity = IdentityZnodes(fence, self.ownership, reset_command)
        self.shard_states = ShardStateZnodes(fence, states_per_write)
        self.shard_list = ShardListZnodes(fence, self.ownership)
        self.plans = PlanZnodes(fence)
        self.reports = ReportZnodes(fence)
        self.history = HistoryZnodes(fence)
        self.runs = RunZnodes(fence)
        self.pause = PauseZnodes(fence)
        self.view = ViewZnodes(
            tree=tree,
            paths=paths,
            ownership=self.ownership,
            identity=self.identity,
            shard_states=self.shard_states,
            shard_list=self.shard_list,
            plans=self.plans,
            reports=self.reports,
            history=self.history,
            runs=self.runs,
            pause=self.pause,
        )

    def close(self) -> None:
        """Close the connection, and give up the ownership if this process holds it. Idempotent."""
        self._fence.forget()
        self._tree.close()
