"""Which shards wait for the unresolved records of their ancestors, where order matters. Pure.

The records of a key continue in a child shard, after a split or a merge. So where later records of
a key or shard wait for an earlier one that failed (`state.report.OnFailure`), they also wait for
the unresolved records of every ancestor. The state of an ancestor is kept while it has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state.shard_state import ShardState


def unresolved_ancestors(states: Mapping[str, ShardState]) -> dict[str, tuple[str, ...]]:
    """By shard, its ancestors of any generation that have unresolved records.

    Leaves out the shards that have no such ancestor. A shard is not its own ancestor, also in a
    circle, which no service creates.
    """
    unresolved = [shard for shard, state in states.items() if state.unresolved]
    if not unresolved:
        return {}
    children: dict[str, list[str]] = {}
    for shard, state in states.items():
        for parent in state.parents:
            children.setdefault(parent, []).append(shard)
    found: dict[str, tuple[str, ...]] = {}
    for ancestor in unresolved:
        seen, todo = {ancestor}, list(children.get(ancestor, ()))
        while todo:
            shard = todo.pop()
            if shard not in seen:
                seen.add(shard)
                found[shard] = (*found.get(shard, ()), ancestor)
                todo += children.get(shard, ())
    return found
