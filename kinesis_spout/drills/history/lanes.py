"""A history as a timeline of shards, for its picture and its table."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from math import ceil
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import ShardLife, Step
from kinesis_spout.html.text import count
from kinesis_spout.html.timeline import Band, Lane, Series, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesis_spout.drills.history.events import History, Sample
    from kinesis_spout.drills.history.redeliveries import Redelivery
    from kinesis_spout.drills.history.verdict import FaultFigures
    from kinesis_spout.html.timeline import Event
    from state.shard_state import ShardState

# Samples times shards. Of more, as many samples are left out: a picture has some hundred columns.
_MAX_STATES = 200_000
_NS = 1e9


def timeline(
    history: History, faults: Sequence[FaultFigures], again: Iterable[Redelivery]
) -> Timeline:
    """A lane for each shard in the order of their creation, a band for each fault. Times are
    seconds from the first put, as those of the faults are. `again`: the history's redeliveries.
    """
    began_ns = first_put_ns(history)
    events = _events(history, again, began_ns)
    lives = [*history.shards.values(), *_unknown(history, events, began_ns)]
    lanes = [
        Lane(
            name=life.shard_id,
            began_s=(life.created_ns - began_ns) / _NS,
            ended_s=None if life.closed_ns is None else (life.closed_ns - began_ns) / _NS,
            first_key=life.hash_start,
            last_key=life.hash_end,
            parents=life.parents,
            note=_note(events[life.shard_id]),
            events=events[life.shard_id],
        )
        for life in sorted(lives, key=lambda life: (life.created_ns, life.shard_id))
    ]
    bands = [_band(one) for one in faults]
    ended_s = max((_ended_ns(history) - began_ns) / _NS, *(one.ended_s for one in bands), 0.0)
    return Timeline(began_s=0.0, ended_s=ended_s, lanes=lanes, bands=bands)


def first_put_ns(history: History) -> int:
    """What the times of a verdict count from."""
    return min((put.at_ns for put in history.puts), default=0)


def _ended_ns(history: History) -> int:
    return max(
        max((put.at_ns for put in history.puts), default=0),
        history.told[-1].at_ns if history.told else 0,
        history.samples[-1].ended_ns if history.samples else 0,
    )


def _unknown(history: History, named: Iterable[str], began_ns: int) -> list[ShardLife]:
    """Shards of which only records are known: they count as open all the time."""
    return [
        ShardLife(name, (), began_ns, None, 0, 0) for name in named if name not in history.shards
    ]


def _band(one: FaultFigures) -> Band:
    ended_s = one.at_s + one.lasted_s
    settled_s = None if one.recovered_s is None else ended_s + one.recovered_s
    return Band(one.fault, one.at_s, ended_s, settled_s)


def _events(
    history: History, again: Iterable[Redelivery], began_ns: int
) -> dict[str, dict[Series, list[Event]]]:
    found: dict[str, dict[Series, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for put in history.puts:
        found[put.shard_id][Series.PUT].append(((put.at_ns - began_ns) / _NS, 1))
    for told in history.told:
        if (series := _SERIES.get(told.step)) is not None:
            found[told.shard_id][series].append(((told.at_ns - began_ns) / _NS, 1))
    for told in (one.told for one in again if one.is_duplicate):
        found[told.shard_id][Series.REPEATED].append(((told.at_ns - began_ns) / _NS, 1))
    for shard_id, events in _checkpoints(history, began_ns).items():
        found[shard_id][Series.CHECKPOINTED] = events
    return found


_SERIES = {
    Step.GOT: Series.READ,
    Step.FAIL: Series.FAILED,
    Step.REJECT: Series.FAILED,
    Step.LETTER: Series.DEAD_LETTER,
}


def _checkpoints(history: History, began_ns: int) -> dict[str, list[Event]]:
    """For each shard, how many of its records each move of its checkpoint passed."""
    sequences: dict[str, list[int]] = defaultdict(list)
    for put in history.puts:
        sequences[put.shard_id].append(put.sequence)
    for of_shard in sequences.values():
        of_shard.sort()
    passed: dict[str, int] = {}
    known: dict[str, ShardState] = {}
    found: dict[str, list[Event]] = defaultdict(list)
    for sample in _thinned(history.samples):
        for shard_id, state in sample.states.items():
            if known.get(shard_id) is state:
                continue
            known[shard_id] = state
            now = _passed(state, sequences[shard_id])
            if moved := now - passed.get(shard_id, 0):
                found[shard_id].append(((sample.ended_ns - began_ns) / _NS, moved))
                passed[shard_id] = now
    return found


def _passed(state: ShardState, sequences: Sequence[int]) -> int:
    if state.finished:
        return len(sequences)
    return 0 if state.checkpoint is None else bisect_right(sequences, state.checkpoint.sequence)


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Every n-th sample, and the last one."""
    states = sum(len(sample.states) for sample in samples)
    each = ceil(states / _MAX_STATES)
    return samples if each <= 1 else [*samples[:-1:each], samples[-1]]


def _note(events: Mapping[Series, Sequence[Event]]) -> str:
    again = len(events.get(Series.REPEATED, ()))
    return f"{count(len(events.get(Series.PUT, ())))} put" + (
        f", {count(again)} again" if again else ""
    )
