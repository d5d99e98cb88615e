"""A position for each shard of a stream, from where another consumer stands. Pure.

    the other consumer                                     the shard is read
    names it, with a position                              from there
    names it, done                                         not any more; an open one without
                                                             children cannot be done: refused
    names it, but nothing was processed yet:
      a shard that it comes from was                       from its beginning
      else                                                 from the time that is asked for (`at`)
    does not name it, but a shard that it comes from       from its beginning
    does not name it, but one that comes from it, where
      it forgets shards that are done                      not any more
    knows nothing of it                                    from the time that is asked for

A shard that is not listed any more is left out: nothing of it can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.checkpoints.migration.origin import MigrationError
from state.position import SHARD_END, TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesis_spout.checkpoints.migration.origin import Origin
    from kinesis_spout.service.shard_info import ShardInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One listed shard, and where it will be read.

    - `says`: what the other consumer has of it.
    - `read_to`: how far that has read without committing.
    - `passed_over`: the records before the position were perhaps never read, so they are counted.
    """

    shard: ShardInfo
    says: str
    position: Position
    read_to: Position | None = None
    passed_over: bool = False
    note: str | None = None


def placed(origin: Origin, listed: Mapping[str, ShardInfo], at: Position | None) -> list[Placed]:
    """Each listed shard, in the order of the ids. `at`: for the shards of which the other consumer
    does not say where it is.

    Raises `MigrationError` if there are such shards, and no `at`; and for an open shard that is
    said to be done.
    """
    found, unknown = [], []
    families = _Families(listed)
    for shard_id in sorted(listed):
        one = _placed(origin, families, listed[shard_id], at)
        if one is None:
            unknown.append(shard_id)
        else:
            found.append(one)
    if unknown:
        raise MigrationError(
            f"{origin.name} does not say where it is in {_some(unknown)}; give --at with the time "
            "from which to read there, as --at -1h, or --at TRIM_HORIZON for all that is there"
        )
    return found


def unlisted(origin: Origin, listed: Mapping[str, ShardInfo]) -> list[str]:
    """Shards that were not done, and are not listed any more: the rest of them has expired."""
    return sorted(
        shard for shard, one in origin.shards.items() if shard not in listed and not one.is_done
    )


class _Families:
    """Which listed shards come from which shards; also from some that are not listed any more."""

    def __init__(self, listed: Mapping[str, ShardInfo]) -> None:
        self._parents = {shard: one.parents for shard, one in listed.items()}
        self._children: dict[str, list[str]] = {}
        for shard, parents in self._parents.items():
            for parent in parents:
                self._children.setdefault(parent, []).append(shard)

    def before(self, shard_id: str) -> set[str]:
        return _reached(shard_id, self._parents)

    def after(self, shard_id: str) -> set[str]:
        return _reached(shard_id, self._children)


def _placed(
    origin: Origin, families: _Families, shard: ShardInfo, at: Position | None
) -> Placed | None:
    """None if a time is needed, and none was given."""
    one = origin.shards.get(shard.shard_id)
    # A shard may be listed as open for a moment after its children are.
    if one is not None and one.is_done and not (shard.is_closed or families.after(shard.shard_id)):
        raise MigrationError(
            f"{origin.name} says that {shard.shard_id} is done, but it is open; this is the state "
            "of another stream, or of one that was created again"
        )
    if one is not None and one.position is not None:
        return Placed(
            shard=shard,
            says=one.says,
            position=one.position,
            read_to=one.read_to,
            note=one.note,
        )
    named = origin.shards.keys()
    if one is None and origin.drops_finished and families.after(shard.shard_id) & named:
        return Placed(
            shard=shard,
            says="not there, but shards that come from it",
            position=SHARD_END,
            passed_over=True,
            note=f"{origin.name} is past it, or has never read it",
        )
    begun = {name for name in named if origin.shards[name].position is not None}
    if families.before(shard.shard_id) & begun:
        says = "not there yet, but a shard that it comes from" if one is None else one.says
        return Placed(shard=shard, says=says, position=TRIM_HORIZON)
    if at is None:
        return None
    return Placed(
        shard=shard,
        says="not there" if one is None else one.says,
        position=at,
        passed_over=True,
        note="it is read from the time that --at says",
    )


def _reached(start: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for other in edges.get(pending.pop(), ()):
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _some(shard_ids: list[str]) -> str:
    more = len(shard_ids) - 5
    return ", ".join(shard_ids[:5]) + (f" and {more} more" if more > 0 else "")
