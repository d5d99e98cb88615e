"""The pass that reads all of an application while its job goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import PlanStatus
from state.state_store import StateChange
from state.znodes.store import ZnodeStateStore
from tests.support.state.forwarding_tree import ForwardingTree
from tests.support.state.state_stores import OWNER, plan, state_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.tree import Znode, ZnodeTree


class BusyTree(ForwardingTree):
    """Another process acts once, just before the node at the end of `path` is read."""

    def __init__(self, tree: ZnodeTree, path: str, act: Callable[[], object]) -> None:
        super().__init__(tree)
        self._path = path
        self._act: Callable[[], object] | None = act

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        if self._act is not None and any(path.endswith(self._path) for path in paths):
            act, self._act = self._act, None
            act()
        return super().read(paths)


def test_a_plan_that_is_settled_during_the_pass_is_read_with_its_states() -> None:
    """The states are read again, so that they are not those from before the plan."""
    backend = MemoryBackend()
    owner = MemoryStateStore(backend, application="etl", stream="orders")
    owner.acquire(OWNER, timeout_s=1)
    (before,) = owner.save_states([StateChange(None, state_at(1))])
    owner.create_plan(plan(1))

    def settle() -> None:
        owner.close_plan("1-aa")
        owner.save_states([StateChange(before, state_at(2))])
        owner.mark_settled("1-aa")

    looking = MemoryStateStore(backend, application="etl", stream="orders")
    tree = BusyTree(looking._tree, "batches/1-aa", settle)
    seen = ZnodeStateStore(tree, looking._paths, reset_command="").read_application()
    assert seen.plan is not None
    assert seen.plan.status is PlanStatus.SETTLED
    assert seen.states["shardId-000000000000"] == state_at(2)
