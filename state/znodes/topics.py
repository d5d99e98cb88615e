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
from state.znodes.shard_states import ShardListZnodes, ShardStateZnodes
from state.znodes.view import ViewZnodes

if TYPE_CHECKING:
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree


class StoreTopics:
    """What is stored of one application on one stream, topic by topic (`state.store`).

    Whoever opens it hands out the topics that others may touch. `reset_command`: the command, named
    in errors, that drops the application's state. The constructor does no I/O.
    """

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, *, reset_command: str) -> None:
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
        self.view = ViewZnodes(fence, self.ownership, self.identity)

    def close(self) -> None:
        """Close the connection, and give up the ownership if this process holds it. Idempotent."""
        self._fence.forget()  # its node ends with the session
        self._tree.close()
