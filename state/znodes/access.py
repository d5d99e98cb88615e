"""Who may write the nodes of an application, for somebody who only looks: access control lists can
be changed by hand, or by another identity that created the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree

MAX_STATES = 100  # a list that was changed by hand was changed for many nodes


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Identities: `anyone`, `digest ann`, `ip 10.0.0.1`.

    - `writers`: may write the node, or create nodes below it where that is what its owner does.
    - `keepers`: may change its access control list.
    """

    writers: frozenset[str]
    keepers: frozenset[str]


class AccessZnodes:
    """Reads access control lists. Writes nothing, and needs no ownership."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self._tree = tree
        self._paths = paths

    def read(self, shard_ids: Iterable[str]) -> Mapping[str, NodeAccess]:
        """By path, of the nodes that an owner writes: of the shards, the states of the first
        `MAX_STATES`. Without nodes that are not there; empty where the lists cannot be read.
        """
        paths = self._paths
        parents = [paths.base, paths.epoch, paths.batches, paths.history, paths.runs]
        try:
            below = [
                f"{parent}/{name}"
                for parent, names in zip(
                    (paths.epoch, paths.runs),
                    self._tree.children([paths.epoch, paths.runs]),
                    strict=True,
                )
                for name in sorted(names or ())
            ]
            states = [paths.shard_state(one) for one in sorted(shard_ids)[:MAX_STATES]]
            leaves = [paths.plan, paths.shard_list, *below, *states]
            granted = self._tree.grants([*parents, *leaves])
        except StateError:
            return {}
        return {
            path: NodeAccess(
                frozenset(
                    one.identity
                    for one in grants
                    if (one.may_create if path in parents else one.may_write)
                ),
                frozenset(one.identity for one in grants if one.may_administer),
            )
            for path, grants in zip([*parents, *leaves], granted, strict=True)
            if grants is not None
        }
