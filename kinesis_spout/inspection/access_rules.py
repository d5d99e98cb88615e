"""The rules about who may write the application's nodes in ZooKeeper. Pure.

Under which identity an owner runs is not stored. So it is known that it is refused where nobody may
write. Where some may, and others that may write other nodes may not, it may have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import THE_NEXT_RULE, Act, Advice, Cause
from kinesis_spout.inspection.run_rules import ACCESS, printable
from kinesis_spout.inspection.wording import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.inspection.health import Look


def nobody_may_write(look: Look, shard_id: str) -> Cause | None:
    """Nodes that everybody may read at most: an owner ends with its next write."""
    locked = look.now.locked
    if not locked:
        return None
    keepers = frozenset[str]().union(*(look.now.access[one].keepers for one in locked))
    who = f"as {_named(keepers)}" if keepers else "as ZooKeeper's superuser: no other may"
    return Cause(
        kind="nobody may write",
        about=shard_id,
        says=f"nobody may write {_nodes(locked)}, by {_its_list(locked)}: an owner can store "
        "nothing there, and ends when it tries",
        advice=(
            Advice(
                Act.CHANGE,
                f"give the application's identity all rights to {_them(locked)} again (setAcl in "
                f"zkCli.sh, {who})",
                mends=ACCESS,
                is_urgent=True,
            ),
        ),
        leads_to=THE_NEXT_RULE,
    )


def reserved_nodes(look: Look, shard_id: str) -> Cause | None:
    """Nodes that are perhaps another identity's, where the last run was refused, or cannot have
    told how it ended.
    """
    log = look.now.last_log
    run = None if log is None else log.newest
    end = None if run is None else run.end
    was_refused = look.now.hides_runs if end is None else "denies access" in (end.says or "")
    if look.now.stored.owners or not look.now.reserved or not was_refused:
        return None
    writers, paths = max(look.now.reserved.items(), key=lambda pair: len(pair[1]))
    return Cause(
        kind="reserved nodes",
        about=shard_id,
        says=f"{_nodes(paths)} may be written by {_named(writers)} alone, and others of the "
        "application by others too: an owner of another identity can store nothing there, and ends "
        "when it tries",
        advice=(
            Advice(
                Act.LOOK,
                f"see whether the application is {_named(writers)} (zookeeperAuth, zookeeperUser); "
                f"if not, give its identity all rights to {_them(paths)} (setAcl in zkCli.sh)",
                mends=ACCESS,
                is_urgent=True,
            ),
        ),
        leads_to=THE_NEXT_RULE,
    )


def _nodes(paths: Sequence[str]) -> str:
    first = printable(paths[0])
    return (
        f"{first} in ZooKeeper"
        if len(paths) == 1
        else f"{len(paths):,} nodes in ZooKeeper (one is {first})"
    )


def _its_list(paths: Sequence[str]) -> str:
    return "its access control list" if len(paths) == 1 else "their access control lists"


def _them(paths: Sequence[str]) -> str:
    return "it" if len(paths) == 1 else "them"


def _named(identities: frozenset[str]) -> str:
    return printable(joined(sorted(identities)))
