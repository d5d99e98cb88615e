"""What a picture of a stream over time shows: a lane for each shard, and bands for what happened.

The picture is of a fixed number of columns. Everything is counted by column, so its size depends on
the number of lanes, and not on the number of records. Above `MAX_ROWS` lanes, neighbours in the
range of hash keys share a row.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kinesis_spout.html.time_axis import SHORTEST_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

COLUMNS = 420
MAX_ROWS = 200
SHARED_ROWS = 64  # that many rows remain when there are more lanes than `MAX_ROWS`

Event: TypeAlias = tuple[float, int]  # seconds, and how many


class Series(StrEnum):
    """What is counted in a lane. `REPEATED`: those of `READ` that were delivered again.
    `CHECKPOINTED`: those of `PUT` that a checkpoint passed; negative where it moves back.
    """

    READ = "read"
    REPEATED = "repeated"
    FAILED = "failed"
    DEAD_LETTER = "dead letter"
    PUT = "put"
    CHECKPOINTED = "checkpointed"


class Tone(StrEnum):
    """How a lane is. In the order of severity."""

    PLAIN = ""
    UNSURE = "unsure"
    SLOW = "slow"
    BAD = "bad"


class Reach(NamedTuple):
    """How far a lane's consumer is: everything up to `read_s` was read, and up to `checkpoint_s`
    acked too (None: nothing is known to be). Where lanes share a row, `ahead_s` is that of the
    foremost.
    """

    read_s: float
    checkpoint_s: float | None = None
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One shard. Times are seconds of any clock, the same for all of a timeline.

    - `ended_s`: when it was closed; None while it is open.
    - `first_key`, `last_key`: its range of hash keys, inclusive. Lanes are in the order of the
      middles of these ranges, so a parent is between its children, and a child between its parents.
    - `parents`: names of lanes. Those that are not in the timeline are left out.
    - `note`: a few words below the name.
    - `address`: a path of the page's site that says more.
    """

    name: str
    began_s: float
    ended_s: float | None = None
    first_key: int = 0
    last_key: int = 0
    parents: tuple[str, ...] = ()
    note: str = ""
    events: Mapping[Series, Sequence[Event]] = field(default_factory=dict)
    reach: Reach | None = None
    tone: Tone = Tone.PLAIN
    address: str = ""

    @property
    def was_read(self) -> bool:
        """Whether it was read to its end."""
        return (
            self.ended_s is not None
            and self.reach is not None
            and self.reach.read_s >= self.ended_s
        )


class Band(NamedTuple):
    """A time in which something was wrong: from `began_s` to `ended_s`, and its consequences to
    `settled_s`. Bands are numbered from 1 in the order in which they are given.
    """

    name: str
    began_s: float
    ended_s: float
    settled_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`began_s` to `ended_s` is what is shown. What lies outside is shown at the edge. `is_now`:
    it ends now, and its axis counts back from there.
    """

    began_s: float
    ended_s: float
    lanes: Sequence[Lane] = ()
    bands: Sequence[Band] = ()
    is_now: bool = False

    def column(self, at_s: float) -> int:
        """The column of a time, 0 to `COLUMNS` - 1."""
        return min(max(int((at_s - self.began_s) * self.columns_per_s), 0), COLUMNS - 1)

    @property
    def columns_per_s(self) -> float:
        """0 where the timeline is shorter than a clock can tell."""
        span_s = self.ended_s - self.began_s
        return COLUMNS / span_s if span_s >= SHORTEST_S else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the picture: a lane, or neighbours that share it. `counts`: by series, a number
    for each column. `first`, `last`, `seen`: the columns of the beginning, of the end (None: open)
    and of the last event.
    """

    lanes: tuple[Lane, ...]
    first: int
    last: int | None
    seen: int
    counts: Mapping[Series, list[int]]

    @property
    def tone(self) -> Tone:
        """The worst one."""
        return max((lane.tone for lane in self.lanes), key=list(Tone).index)

    @property
    def reach(self) -> Reach | None:
        """That of the hindmost lane, without those that were read to their end if there are others;
        None where no lane has one.
        """
        there = [lane for lane in self.lanes if lane.reach is not None]
        left = [lane for lane in there if not lane.was_read]
        found = [lane.reach for lane in left or there if lane.reach is not None]
        if not found:
            return None
        checkpoints = [one.checkpoint_s for one in found if one.checkpoint_s is not None]
        read = [one.read_s for one in found]
        return Reach(
            min(read),
            min(checkpoints) if len(checkpoints) == len(found) else None,
            max(read) if len(found) > 1 else None,
        )

    def total(self, series: Series) -> int:
        return sum(self.counts[series])

    def running(self, series: Series) -> list[int]:
        """For each column, how many there were up to its end."""
        return list(accumulate(self.counts[series]))


class Joint(NamedTuple):
    """A parent's row and column, and a child's."""

    from_row: int
    from_column: int
    to_row: int
    to_column: int


class Picture(NamedTuple):
    """`joints`: those between two rows, without doubles. `inner`: by row, the columns in which
    lanes of it continue others of it.
    """

    rows: list[Row]
    joints: list[Joint]
    inner: dict[int, set[int]]


def picture(timeline: Timeline) -> Picture:
    """The rows of a timeline, and how they are connected."""
    lanes = sorted(
        timeline.lanes, key=lambda one: (one.first_key + one.last_key, one.began_s, one.name)
    )
    groups: list[tuple[Lane, ...]] = [(lane,) for lane in lanes]
    if len(lanes) > MAX_ROWS:
        groups = list(_shared(lanes, SHARED_ROWS))
    rows = [_row(timeline, group) for group in groups]
    return Picture(rows, *_joints(timeline, rows))


def _shared(lanes: Sequence[Lane], rows: int) -> Iterator[tuple[Lane, ...]]:
    """Neighbours, as many in each row, but for one."""
    rest = iter(lanes)
    for row in range(rows):
        upto = len(lanes) * (row + 1) // rows - len(lanes) * row // rows
        yield tuple(islice(rest, upto))


def _row(timeline: Timeline, lanes: tuple[Lane, ...]) -> Row:
    counts = {
        series: _counts(timeline, (lane.events.get(series, ()) for lane in lanes))
        for series in Series
    }
    first = min(timeline.column(lane.began_s) for lane in lanes)
    ends = [None if lane.ended_s is None else timeline.column(lane.ended_s) for lane in lanes]
    closed = [one for one in ends if one is not None]
    last = max(first, *closed) if len(closed) == len(ends) else None
    columns = range(COLUMNS - 1, -1, -1)
    return Row(
        lanes=lanes,
        first=first,
        last=last,
        seen=next((at for at in columns if any(each[at] for each in counts.values())), first),
        counts=counts,
    )


def _counts(timeline: Timeline, all_events: Iterable[Sequence[Event]]) -> list[int]:
    # This is `Timeline.column`, without a call for each event.
    began_s, scale, last = timeline.began_s, timeline.columns_per_s, COLUMNS - 1
    found = [0] * COLUMNS
    for events in all_events:
        for at_s, many in events:
            column = int((at_s - began_s) * scale)
            found[0 if column < 0 else min(column, last)] += many
    return found


def _joints(timeline: Timeline, rows: Sequence[Row]) -> tuple[list[Joint], dict[int, set[int]]]:
    places = {lane.name: (index, lane) for index, row in enumerate(rows) for lane in row.lanes}
    found: dict[Joint, None] = {}
    inner: dict[int, set[int]] = defaultdict(set)
    for to_row, child in places.values():
        to_column = timeline.column(child.began_s)
        for name in child.parents:
            from_row, parent = places.get(name, (-1, child))
            if from_row == to_row:
                inner[to_row].add(to_column)
            elif from_row >= 0:
                closed_s = child.began_s if parent.ended_s is None else parent.ended_s
                found[Joint(from_row, timeline.column(closed_s), to_row, to_column)] = None
    return list(found), inner
