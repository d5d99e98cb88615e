"""Random histories of a stream's shards and of their reader, with listings that are late, doubled
or cut off by retention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.shard_info import ShardInfo
from kinesis_spout.shards.lineage import HASH_KEYS, ShardLineage, ShardPhase, open_range_holes
from state.position import SHARD_END, TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from random import Random

MAX_STEPS, MAX_GENERATIONS, MANY_SHARDS = 40, 4, 12
READ_NOW = frozenset({ShardPhase.READABLE, ShardPhase.DRAINING})
QUEUED = UnresolvedRecord(first=SequenceNumber(5), last=SequenceNumber(5), attempts=1, due_ms=0)


class History:
    """A stream that is split, merged and scaled, and a reader that reads only the shards that
    `ShardLineage` allows.
    """

    def __init__(self, random: Random, shards: int) -> None:
        self._random = random
        self.shards: dict[str, ShardInfo] = {}
        self.forgotten: set[str] = set()
        self.states: dict[str, ShardState] = {}
        for index in range(shards):
            self._open((HASH_KEYS * index // shards, HASH_KEYS * (index + 1) // shards - 1))

    # the stream -----------------------------------------------------------------------------------
    def open_shards(self) -> list[ShardInfo]:
        return sorted(
            (one for one in self.shards.values() if not one.is_closed),
            key=lambda one: one.hash_key_range,
        )

    def split(self) -> None:
        parent = self._random.choice(self.open_shards())
        first, last = parent.hash_key_range
        if first == last:
            return
        middle = self._random.randint(first, last - 1)
        self._close(parent)
        self._open((first, middle), parent.shard_id)
        self._open((middle + 1, last), parent.shard_id)

    def merge(self) -> None:
        shards = self.open_shards()
        if len(shards) < 2:
            return
        at = self._random.randrange(len(shards) - 1)
        pair = shards[at : at + 2]
        self._random.shuffle(pair)  # the service may name either one first
        for parent in pair:
            self._close(parent)
        self._open(
            (shards[at].hash_key_range[0], shards[at + 1].hash_key_range[1]),
            *(one.shard_id for one in pair),
        )

    def update_shard_count(self) -> None:
        """As the service does it: with intermediate shards that close at once."""
        for _ in range(self._random.randint(1, MAX_GENERATIONS)):
            for _ in self.open_shards():
                self._random.choice((self.split, self.merge))()
            if len(self.open_shards()) > MANY_SHARDS:
                return

    def expire(self) -> None:
        """The oldest closed shards pass retention, read or not."""
        for shard_id in sorted(self.shards)[: self._random.randint(0, 3)]:
            if self.shards[shard_id].is_closed:
                self.forgotten.add(shard_id)

    def listing(self) -> list[ShardInfo]:
        """All shards within retention, in any order, some twice."""
        listed = [one for one in self.shards.values() if one.shard_id not in self.forgotten]
        listed += self._random.sample(listed, self._random.randint(0, len(listed)))
        self._random.shuffle(listed)
        return listed

    def late_listing(self) -> list[ShardInfo]:
        """Without the newest shards; their parents may show as closed or as still open."""
        newest = sorted(self.shards)[-self._random.randint(1, 4) :]
        parents = {
            parent
            for one in newest
            for parent in self.shards[one].parents
            if self._random.random() < 0.5
        }
        return [
            replace(one, ending_sequence=None) if one.shard_id in parents else one
            for one in self.listing()
            if one.shard_id not in newest
        ]

    # the reader -----------------------------------------------------------------------------------
    def lineage(self, listing: list[ShardInfo] | None = None) -> ShardLineage:
        return ShardLineage.of(self.listing() if listing is None else listing, self.states)

    def discover(self, listing: list[ShardInfo]) -> None:
        for one in listing:
            self.states.setdefault(
                one.shard_id,
                ShardState(shard_id=one.shard_id, parents=one.parents, read_position=TRIM_HORIZON),
            )

    def read(self, listing: list[ShardInfo] | None = None) -> None:
        """Read one of the readable shards, to its end if it is closed, with failing records or
        without.
        """
        readable = self.lineage(listing).readable()
        if readable:
            self._read_end(self._random.choice(readable), queued=self._random.random() < 0.3)

    def resolve(self) -> None:
        """The retries of a drained shard succeed."""
        for shard_id, state in self.states.items():
            if state.lifecycle is Lifecycle.DRAINED:
                self.states[shard_id] = msgspec.structs.replace(
                    state, unresolved=(), lifecycle=Lifecycle.FINISHED
                )
                return

    def give_up(self) -> None:
        """A shard that two complete listings did not show is reported as lost."""
        for shard_id in self.lineage().vanished():
            self._end(shard_id, queued=False)

    def step(self) -> None:
        others = (
            self.split,
            self.merge,
            self.update_shard_count,
            self.expire,
            self.refresh,
            self.late,
            self.resolve,
            self.give_up,
        )
        self._random.choice([*others, *[self.read] * len(others)])()

    def refresh(self) -> None:
        self.discover(self.listing())

    def late(self) -> None:
        listing = self.late_listing()
        self.discover(listing)
        self.read(listing)

    def drain(self) -> set[str]:
        """Read all closed shards to their ends, in the order that the lineage allows; returns the
        shards that are readable then.
        """
        self.refresh()
        self.give_up()
        open_shards = {one.shard_id for one in self.open_shards()}
        while closed := set(self.lineage().readable()) - open_shards:
            for shard_id in closed:
                self._read_end(shard_id, queued=False)
        return set(self.lineage().readable())

    def _check_parents(self, shard_id: str) -> None:
        """A child is read after the end of each parent that its reader has known or that the
        service still has.
        """
        for parent in self.shards[shard_id].parents:
            if parent in self.states:
                assert self.states[parent].end_was_read, (shard_id, parent)
            else:
                assert parent in self.forgotten, (shard_id, parent)

    def _read_end(self, shard_id: str, *, queued: bool) -> None:
        """Checks that the shard may be read. The end of a shard names its children before a listing
        does.
        """
        self._check_parents(shard_id)
        if self.shards[shard_id].is_closed:
            self._end(shard_id, queued=queued)
            self.discover(
                [
                    one
                    for one in self.shards.values()
                    if shard_id in one.parents and one.shard_id not in self.forgotten
                ]
            )

    def _end(self, shard_id: str, *, queued: bool) -> None:
        self.states[shard_id] = msgspec.structs.replace(
            self.states[shard_id],
            read_position=SHARD_END,
            unresolved=(QUEUED,) if queued else (),
            lifecycle=Lifecycle.DRAINED if queued else Lifecycle.FINISHED,
        )

    def _open(self, keys: tuple[int, int], *parents: str) -> None:
        shard_id = f"shardId-{len(self.shards):012}"
        self.shards[shard_id] = ShardInfo(
            shard_id=shard_id,
            parents=parents,
            hash_key_range=keys,
            starting_sequence=SequenceNumber(1),
            ending_sequence=None,
        )

    def _close(self, shard: ShardInfo) -> None:
        self.shards[shard.shard_id] = replace(shard, ending_sequence=SequenceNumber(9))


histories = st.builds(History, st.randoms(use_true_random=False), st.integers(1, 4))


@given(history=histories, steps=st.integers(1, MAX_STEPS))
def test_no_child_is_read_before_its_parents_and_nothing_is_stuck(
    history: History, steps: int
) -> None:
    """After any history, every unread shard becomes readable in time, or has vanished and is
    reported.
    """
    for _ in range(steps):
        history.step()
        check_one_listing(history)
    assert history.drain() == {one.shard_id for one in history.open_shards()}
    assert all(
        state.end_was_read or shard in history.lineage().readable()
        for shard, state in history.states.items()
    )


def check_one_listing(history: History) -> None:
    """Each waiting shard waits for an event that will come; a complete listing has no hole; its
    order does not matter.
    """
    seen, again = history.lineage(), history.lineage()
    assert told_by(seen) == told_by(again)
    assert open_range_holes(history.listing()) == []
    phases = {shard: seen.phase(shard) for shard in seen.oldest_first()}
    assert seen.readable() == sorted(one for one, phase in phases.items() if phase in READ_NOW)
    for shard, phase in phases.items():
        held_by = seen.waits_for(shard)
        assert bool(held_by) or phase is not ShardPhase.WAITING
        assert all(
            phases[parent] not in {ShardPhase.PAST, ShardPhase.DRAINED, ShardPhase.FINISHED}
            for parent in held_by
        )
    if ShardPhase.WAITING in phases.values():
        assert not {*READ_NOW, ShardPhase.VANISHED, ShardPhase.NEW}.isdisjoint(phases.values())


def told_by(lineage: ShardLineage) -> list[tuple[str, ShardPhase, tuple[str, ...]]]:
    return [
        (shard, lineage.phase(shard), lineage.waits_for(shard)) for shard in lineage.oldest_first()
    ]
