"""What stored states say of records, and when they were seen to say it. Pure.

A place in a shard is a sequence number and a sub-sequence number, which compare in this order. A
Kinesis record that is not an aggregate has the sub-sequence number 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from state.position import PositionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.history.events import Sample
    from state.shard_state import ShardState

Place: TypeAlias = tuple[int, int]

BEGIN: Place = (-1, 0)
END: Place = (1 << 500, 0)  # above all sequence numbers
_ALL = 1 << 62  # above all sub-sequence numbers


class StateView:
    """A state, prepared for many questions about records.

    - `read_to`: the place up to which it says that the shard was read, inclusive.
    - `acked_to`: its checkpoint, inclusive. It counts whole Kinesis records.
    """

    def __init__(self, state: ShardState) -> None:
        self.state = state
        position, checkpoint = state.read_position, state.checkpoint
        self.read_to = BEGIN
        if state.end_was_read:
            self.read_to = END
        elif (read := position.sequence) is not None:
            is_at = position.kind is PositionKind.AT
            self.read_to = read.sequence, read.sub - 1 if is_at else _ALL
        self.acked_to = BEGIN if checkpoint is None else (checkpoint.sequence, _ALL)
        if state.finished:
            self.acked_to = END

    @cached_property
    def _ranges(self) -> tuple[list[Place], list[Place]]:
        """The first and the last places of what is unresolved, both ascending."""
        ranges = sorted(
            (
                (one.first.sequence, one.first.sub),
                (one.last.sequence, _ALL if one.whole else one.last.sub),
            )
            for one in self.state.unresolved
        )
        return [first for first, _ in ranges], list(accumulate((last for _, last in ranges), max))

    @property
    def text(self) -> str:
        return (
            f"checkpoint {self.state.checkpoint_text} and read position {self.state.read_position}"
        )

    @property
    def covers_to(self) -> Place:
        """The state claims all records up to here: they are resolved, or it has them as unresolved.
        A checkpoint beyond the read position would be such a claim, too.
        """
        return max(self.read_to, self.acked_to)

    @property
    def passed_place(self) -> Place | None:
        """An unresolved record that the checkpoint has passed, if there is one."""
        firsts, _ = self._ranges
        return next((first for first in firsts[:1] if first <= self.acked_to), None)

    def is_behind(self, before: StateView) -> bool:
        """Whether it has moved back from the state before it."""
        return self.acked_to < before.acked_to or self.read_to < before.read_to

    def is_unresolved(self, place: Place) -> bool:
        """Whether the state names the record as unresolved."""
        firsts, lasts = self._ranges
        at = bisect_right(firsts, place)
        return at > 0 and place <= lasts[at - 1]

    def is_resolved(self, place: Place) -> bool:
        """Whether the state says that the record is acked or dead-lettered."""
        return place <= self.read_to and not self.is_unresolved(place)


class ShardStates:
    """The states of one shard in the order of their samples, each where it differs from the one
    before; None where the shard had none any more.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.views: list[StateView | None] = []
        self._ended_ns: list[int] = []

    def add(self, sample: Sample, state: ShardState | None) -> None:
        before = self.views[-1].state if self.views and self.views[-1] is not None else None
        if state is before or state == before:
            return
        self.samples.append(sample)
        self.views.append(None if state is None else StateView(state))
        self._ended_ns.append(sample.ended_ns)

    def known_at(self, at_ns: int) -> StateView | None:
        """The last state that was read by then; None if there was none."""
        at = bisect_right(self._ended_ns, at_ns)
        return self.views[at - 1] if at else None


def states_by_shard(samples: Sequence[Sample]) -> dict[str, ShardStates]:
    """Of all shards that ever had a state."""
    found: dict[str, ShardStates] = {}
    for sample in samples:
        for shard in sample.states.keys() - found.keys():
            found[shard] = ShardStates()
        for shard, of_shard in found.items():
            of_shard.add(sample, sample.states.get(shard))
    return found


def first_sample_after(samples: Sequence[Sample], at_ns: int) -> Sample | None:
    """The first one that began then or later."""
    at = bisect_left(samples, at_ns, key=lambda sample: sample.began_ns)
    return samples[at] if at < len(samples) else None
