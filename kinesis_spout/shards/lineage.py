"""The lineage of shards: which may be read, which wait for parents, which are done; and which task
of several reads a shard. Pure.

It is derived from a shard listing and the shard states. The records of a key continue in a child
shard, so a child is read only after the ends of its parents were read and settled
(`ShardState.end_was_read`). A merged shard has two parents. Queued retries of a parent do not hold
its children.

    listed  state                 parents' ends   phase
    yes     none                  any             NEW: it gets a state before it is read
    yes     end not read          one not read    WAITING for the parents that `waits_for` names
    yes     end not read, open    read, or past   READABLE
    yes     end not read, closed  read, or past   DRAINING: readable too, until its end is read
    any     end read, unresolved  any             DRAINED: it has retries queued
    any     end read, all acked   any             FINISHED
    no      end not read          any             VANISHED: expired unread, or the list is late
    no      none                  any             PAST: expired, only named as a parent

A PAST parent holds no child. A VANISHED parent holds its children until it is listed again, or is
given up (`kinesis_spout.shards.data_loss`), which makes it DRAINED or FINISHED.

A shard closes only by a split or a merge, so a shard whose end was read has children. It is
`unfollowed` while neither its last page nor the list has named them. If the shard is not listed
any more either, it is `out_of_sight`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from zlib import crc32

from kinesis_spout.service.shard_info import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

_NUMBER = re.compile(r"[0-9]+\Z")


class ShardPhase(StrEnum):
    """The phase of a shard, as the module's table defines it."""

    NEW = "new"
    READABLE = "readable"
    DRAINING = "draining"
    WAITING = "waiting"
    DRAINED = "drained"
    FINISHED = "finished"
    VANISHED = "vanished"
    PAST = "past"


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """One listing, at `listed_s` of the monotonic clock: the shards by id. `is_active`: whether it
    is complete: while a stream is UPDATING, shards may be missing.
    """

    shards: Mapping[str, ShardInfo] = field(default_factory=dict)
    is_active: bool = False
    listed_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class ShardLineage:
    """One complete listing and the states, both by shard id. Cheap to create: each method computes
    its answer.
    """

    listed: Mapping[str, ShardInfo]
    states: Mapping[str, ShardState]

    @classmethod
    def of(cls, listing: Iterable[ShardInfo], states: Mapping[str, ShardState]) -> ShardLineage:
        """From a listing in any order."""
        return cls({shard.shard_id: shard for shard in listing}, states)

    def among(self, shard_ids: Collection[str]) -> ShardLineage:
        """The lineage restricted to these shards: the others hold no child. No ids: all shards."""
        if not shard_ids:
            return self
        return ShardLineage(
            {shard: found for shard, found in self.listed.items() if shard in shard_ids},
            {shard: state for shard, state in self.states.items() if shard in shard_ids},
        )

    # one shard ------------------------------------------------------------------------------------
    def phase(self, shard_id: str) -> ShardPhase:
        """The phase of any shard; PAST for an unknown one."""
        state, shard = self.states.get(shard_id), self.listed.get(shard_id)
        if state is None:
            return ShardPhase.PAST if shard is None else ShardPhase.NEW
        if state.end_was_read:
            return ShardPhase.FINISHED if state.finished else ShardPhase.DRAINED
        if shard is None:
            return ShardPhase.VANISHED
        if self._waits(shard_id):
            return ShardPhase.WAITING
        return ShardPhase.DRAINING if shard.is_closed else ShardPhase.READABLE

    def parents(self, shard_id: str) -> tuple[str, ...]:
        """Its parents, in the order in which the listing and its state name them."""
        shard, state = self.listed.get(shard_id), self.states.get(shard_id)
        listed = () if shard is None else shard.parents
        stored = () if state is None else state.parents
        if stored == listed or not stored:
            return listed
        return tuple(dict.fromkeys((*listed, *stored)))

    def waits_for(self, shard_id: str) -> tuple[str, ...]:
        """The parents that hold it: those whose ends were not read. Empty when its own end was
        read.
        """
        state = self.states.get(shard_id)
        if state is not None and state.end_was_read:
            return ()
        return tuple(parent for parent in self.parents(shard_id) if self._holds(parent))

    # all shards -----------------------------------------------------------------------------------
    def readable(self) -> list[str]:
        """The shards to read now, READABLE and DRAINING, in the order of their ids, that is, of
        their creation.
        """
        return sorted(
            shard_id
            for shard_id, state in self.states.items()
            if not state.end_was_read and shard_id in self.listed and not self._waits(shard_id)
        )

    def vanished(self) -> list[str]:
        """Shards that are not listed and whose ends were not read, in the order of their ids."""
        return self._unlisted(lambda state: not state.end_was_read)

    def unlisted_with_retries(self) -> list[str]:
        """Shards that are not listed and have unresolved records, in the order of their ids."""
        return self._unlisted(lambda state: bool(state.unresolved))

    def unfollowed(self) -> list[str]:
        """Listed shards whose ends were read, and whose known children do not cover all of their
        hash keys.
        """
        ranges: dict[str, list[tuple[int, int]]] = {
            shard: []
            for shard, state in self.states.items()
            if shard in self.listed and state.end_was_read
        }
        for child in {**self.states, **self.listed}:
            for parent in ranges.keys() & self.parents(child):
                # A child that is not listed was named by the parent's last page, which names all of
                # them: it counts as covering the parent's whole range.
                known = self.listed.get(child, self.listed[parent])
                ranges[parent].append(known.hash_key_range)
        return sorted(
            shard for shard in ranges if _holes(ranges[shard], *self.listed[shard].hash_key_range)
        )

    def out_of_sight(self, horizon_ms: int) -> list[str]:
        """Finished shards that are not listed any more, have no known child, and were last verified
        before `horizon_ms`.

        A shard is listed at least as long as its parents. So their children existed and expired
        between two listings.
        """
        return sorted(self._over(horizon_ms) - self._named())

    def removable(self, horizon_ms: int) -> list[str]:
        """Finished shards whose states are not needed any more, oldest first.

        Such a shard is not listed, has children, and all of these have states. It has no record
        younger than `horizon_ms` (service time less retention): if it were listed again by mistake,
        there would be nothing to deliver. Or it was given up. A child is removed after its parents;
        otherwise these would look as if their children had never been observed.
        """
        given_up = self._unlisted(lambda state: state.finished and state.verified_until_ms is None)
        gone = self._over(horizon_ms).union(given_up)
        if not gone:
            return []
        needed = {
            parent
            for shard in self.listed
            if shard not in self.states
            for parent in self.parents(shard)
        }
        gone &= self._named().union(given_up) - needed
        removed: list[str] = []
        kept = set(self.states)
        for shard in sorted(gone):
            if kept.isdisjoint(self.parents(shard)):
                removed.append(shard)
                kept.remove(shard)
        return removed

    def oldest_first(self) -> list[str]:
        """Every shard that is listed, has a state or is named as a parent, in the order of their
        ids, that is, of their creation.
        """
        return sorted({*self.listed, *self.states} | self._named())

    def _over(self, horizon_ms: int) -> set[str]:
        """Finished shards that are not listed and were last verified before `horizon_ms`."""
        return set(
            self._unlisted(
                lambda state: (
                    state.finished
                    and state.verified_until_ms is not None
                    and state.verified_until_ms < horizon_ms
                )
            )
        )

    def _unlisted(self, counts: Callable[[ShardState], bool]) -> list[str]:
        return sorted(
            shard
            for shard, state in self.states.items()
            if shard not in self.listed and counts(state)
        )

    def _named(self) -> set[str]:
        """The shards that others name as their parents."""
        return {parent for shard in (*self.states, *self.listed) for parent in self.parents(shard)}

    def _waits(self, shard_id: str) -> bool:
        return any(self._holds(parent) for parent in self.parents(shard_id))

    def _holds(self, parent: str) -> bool:
        state = self.states.get(parent)
        return parent in self.listed if state is None else not state.end_was_read


def open_range_holes(listing: Iterable[ShardInfo]) -> list[tuple[int, int]]:
    """Hash keys that no open shard covers, as inclusive ranges in ascending order.

    A running reshard or a late listing shows holes that pass: only a hole in two complete listings
    of an ACTIVE stream is a lasting one. Overlapping ranges are not an error: a parent may still be
    listed as open together with its children.
    """
    ranges = (shard.hash_key_range for shard in listing if not shard.is_closed)
    return _holes(ranges, 0, HASH_KEYS - 1)


def _holes(ranges: Iterable[tuple[int, int]], first_free: int, last: int) -> list[tuple[int, int]]:
    """What the ranges leave of the hash keys from `first_free` to `last`."""
    holes = []
    for low, high in sorted(ranges):
        if low > last:
            break
        if low > first_free:
            holes.append((first_free, low - 1))
        first_free = max(first_free, high + 1)
    return [*holes, (first_free, last)] if first_free <= last else holes


def unresolved_ancestors(states: Mapping[str, ShardState]) -> dict[str, tuple[str, ...]]:
    """By shard, its ancestors of any generation that have unresolved records. Their states are kept
    while they have any. Where later records of a key or shard wait for an earlier one that failed
    (`state.report.OnFailure`), they wait for those records too.

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


def task_of(shard_id: str, total_tasks: int) -> int:
    """The index of the task that a shard is assigned to, of `total_tasks` that run concurrently: by
    the shard's number modulo the number of tasks.

    The service numbers shards in the order of their creation, so in a fresh stream each task gets
    as many, and the children of one split get different tasks. When shards come and go, no other
    shard changes its task. An id that does not end with a number is assigned by its checksum.
    """
    number = _NUMBER.search(shard_id)
    place = int(number[0]) if number else crc32(shard_id.encode())
    return place % total_tasks
