"""Which shards may be read, which wait for which parents, and which are done: from the shard list
and the shard states. Pure.

A record's key may go on in a child shard, so a child is read only when its parents' ends were read
and settled (`ShardState.end_was_read`); a merged shard has two parents. What a parent still has to
retry does not hold its children.

    listed  state                 parents' ends        phase
    yes     none                  any                  NEW: it gets a state before it is read
    yes     end not read          one not read         WAITING, for the ones that `waits_for` names
    yes     end not read, open    read, or past        READABLE
    yes     end not read, closed  read, or past        DRAINING: readable too, until its end is read
    any     end read, unresolved  any                  DRAINED: it has retries queued
    any     end read, all acked   any                  FINISHED
    no      end not read          any                  VANISHED: what was unread is gone (or the list is late, so look again)
    no      none                  any                  PAST: only named as a parent; its retention is over

A parent that is PAST holds nobody. One that has VANISHED holds its children until it is listed
again, or given up by whoever decides about lost data: that turns it into DRAINED or FINISHED.

A shard closes only by a split or a merge, so one whose end was read always goes on in others. An
end that does not name them, and a list that does not show them yet, leave it `unfollowed`; were it
gone from the list too, it is `out_of_sight`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

HASH_KEYS = 2**128


class ShardPhase(StrEnum):
    """What a shard is to its reader; the module's table says when."""

    NEW = "new"
    READABLE = "readable"
    DRAINING = "draining"
    WAITING = "waiting"
    DRAINED = "drained"
    FINISHED = "finished"
    VANISHED = "vanished"
    PAST = "past"


@dataclass(frozen=True, slots=True)
class ShardLineage:
    """One complete listing beside the states, both by shard id. Looked at when asked, nothing is
    kept: cheap to make.
    """

    listed: Mapping[str, ShardInfo]
    states: Mapping[str, ShardState]

    @classmethod
    def of(cls, listing: Iterable[ShardInfo], states: Mapping[str, ShardState]) -> ShardLineage:
        """From a listing in any order. Of a shard that is listed twice, open and closed, the closed
        one is newer.
        """
        listed: dict[str, ShardInfo] = {}
        for shard in listing:
            if shard.shard_id not in listed or shard.is_closed:
                listed[shard.shard_id] = shard
        return cls(listed, states)

    def among(self, shard_ids: Collection[str]) -> ShardLineage:
        """The same as if there were only these shards: the others hold nobody. Of no ids: all
        shards.
        """
        if not shard_ids:
            return self
        listed = {
            shard_id: shard for shard_id, shard in self.listed.items() if shard_id in shard_ids
        }
        return ShardLineage(
            listed,
            {shard_id: state for shard_id, state in self.states.items() if shard_id in shard_ids},
        )

    # one shard
    # ------------------------------------------------------------------------------------------------
    def phase(self, shard_id: str) -> ShardPhase:
        """The phase of any shard; one that nobody knows is PAST."""
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
        """Its parents, the first one first, as the listing and its state name them."""
        shard, state = self.listed.get(shard_id), self.states.get(shard_id)
        named = (
            *(() if shard is None else shard.parents),
            *(() if state is None else state.parents),
        )
        return tuple(dict.fromkeys(named))

    def waits_for(self, shard_id: str) -> tuple[str, ...]:
        """The parents that hold it: those of which more is to be read first. Empty unless its own
        end is still to be read.
        """
        state = self.states.get(shard_id)
        if state is not None and state.end_was_read:
            return ()
        return tuple(parent for parent in self.parents(shard_id) if self._holds(parent))

    # all of them
    # ----------------------------------------------------------------------------------------------
    def readable(self) -> list[str]:
        """Shards to read now, READABLE and DRAINING, in the order of their ids, which is that of
        their making.
        """
        return sorted(
            shard_id
            for shard_id, state in self.states.items()
            if not state.end_was_read and shard_id in self.listed and not self._waits(shard_id)
        )

    def vanished(self) -> list[str]:
        """Shards that are not listed and whose ends were not read, in the order of their ids."""
        return sorted(
            shard
            for shard, state in self.states.items()
            if not state.end_was_read and shard not in self.listed
        )

    def unfollowed(self) -> list[str]:
        """Listed shards whose ends were read, and of whose hash keys nobody knows (all of) the
        shards that took them over.
        """
        ended = {
            shard
            for shard, state in self.states.items()
            if state.end_was_read and shard in self.listed
        }
        ranges: dict[str, list[tuple[int, int]]] = {shard: [] for shard in ended}
        for child in (*self.states, *self.listed):
            for parent in ended.intersection(self.parents(child)):
                # The end of the parent told of a child that is not listed, and such an end names
                # all children.
                known = self.listed.get(child, self.listed[parent])
                ranges[parent].append(known.hash_key_range)
        return sorted(
            shard
            for shard in ended
            if not _is_covered(self.listed[shard].hash_key_range, ranges[shard])
        )

    def out_of_sight(self, horizon_ms: int) -> list[str]:
        """Finished shards that are not listed any more and of which no child is known, all of it
        older than `horizon_ms`.

        Their children came and went while nobody looked: a shard is listed for as long as its
        parents at least.
        """
        named = {parent for shard in (*self.states, *self.listed) for parent in self.parents(shard)}
        over = (
            shard
            for shard, state in self.states.items()
            if _is_over(state, horizon_ms) and shard not in self.listed
        )
        return sorted(shard for shard in over if shard not in named)

    def removable(self, horizon_ms: int) -> list[str]:
        """Finished shards of which nobody needs the state any more, oldest first.

        They are not listed, each has children and all of these have states of their own, and
        nothing in them can be younger than `horizon_ms` (service time less retention): were they
        listed again by mistake, there would be nothing to deliver. None goes before its parents:
        these would look as if nobody had ever seen their children.
        """
        gone = {
            shard
            for shard, state in self.states.items()
            if _is_over(state, horizon_ms) and shard not in self.listed
        }
        if not gone:
            return []
        named = {parent for shard in (*self.states, *self.listed) for parent in self.parents(shard)}
        needed = {
            parent
            for shard in self.listed
            if shard not in self.states
            for parent in self.parents(shard)
        }
        gone &= named - needed
        removed: list[str] = []
        kept = set(self.states)
        for shard in self.oldest_first():
            if shard in gone and kept.isdisjoint(self.parents(shard)):
                removed.append(shard)
                kept.remove(shard)
        return removed

    def oldest_first(self) -> list[str]:
        """Every shard that is listed, has a state or is named as a parent: parents before children,
        else by id.
        """
        parents = {shard: self.parents(shard) for shard in (*self.listed, *self.states)}
        known = {*parents, *(parent for named in parents.values() for parent in named)}
        unplaced = {shard: len(parents.get(shard, ())) for shard in known}
        children: dict[str, list[str]] = {}
        for shard, named in parents.items():
            for parent in named:
                children.setdefault(parent, []).append(shard)
        free = [shard for shard, count in unplaced.items() if not count]
        heapq.heapify(free)
        order: list[str] = []
        while free:
            shard = heapq.heappop(free)
            order.append(shard)
            for child in children.get(shard, ()):
                unplaced[child] -= 1
                if not unplaced[child]:
                    heapq.heappush(free, child)
        return [
            *order,
            *sorted(known.difference(order)),
        ]  # a circle, which no service makes, must not hide shards

    def _waits(self, shard_id: str) -> bool:
        return any(self._holds(parent) for parent in self.parents(shard_id))

    def _holds(self, parent: str) -> bool:
        state = self.states.get(parent)
        return parent in self.listed if state is None else not state.end_was_read


def open_range_holes(listing: Iterable[ShardInfo]) -> list[tuple[int, int]]:
    """Hash keys that no open shard takes, as inclusive ranges in ascending order.

    A reshard under way, or a listing that is late, makes holes that pass: only what two complete
    listings of an ACTIVE stream both have is a hole that stays. Ranges that overlap are none: a
    parent may still look open beside its children.
    """
    ranges = sorted(
        shard.hash_key_range
        for shard in ShardLineage.of(listing, {}).listed.values()
        if not shard.is_closed
    )
    return _gaps(ranges)


def lapsed_shards(
    shards: Sequence[str], states: Mapping[str, ShardState], service_now_ms: int, retention_ms: int
) -> list[str]:
    """Shards whose records may have expired unread: they were last verified longer ago than the
    retention.
    """
    horizon_ms = service_now_ms - retention_ms
    return [
        shard
        for shard in shards
        if (verified_ms := states[shard].verified_until_ms) is not None and verified_ms < horizon_ms
    ]


def _gaps(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    holes = []
    free = 0
    for first, last in ranges:
        if first > free:
            holes.append((free, first - 1))
        free = max(free, last + 1)
    return [*holes, (free, HASH_KEYS - 1)] if free < HASH_KEYS else holes


def _is_covered(keys: tuple[int, int], ranges: Iterable[tuple[int, int]]) -> bool:
    first, last = keys
    for low, high in sorted(ranges):
        if low <= first <= high:
            first = high + 1
    return first > last


def _is_over(state: ShardState, horizon_ms: int) -> bool:
    return (
        state.finished
        and state.verified_until_ms is not None
        and state.verified_until_ms < horizon_ms
    )
