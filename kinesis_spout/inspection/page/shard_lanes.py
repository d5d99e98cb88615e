"""A look as a timeline of shards: when each was there, how far it was read and is acked. Pure.

The service does not say when a shard was created or closed, nor when a record of a checkpoint was
put. `SequenceTimes` estimates it. Where it cannot, a shard is drawn from halfway between the
beginning of its parents and now, and its checkpoint is left out unless it is at the read position.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.html.text import count, plural
from kinesis_spout.html.timeline import Lane, Reach, Series, Timeline
from kinesis_spout.inspection.health import OVER, READ_PHASES
from kinesis_spout.inspection.page.cells import TONES, address_of, lag
from kinesis_spout.inspection.page.sequence_times import SequenceTimes
from kinesis_spout.inspection.page.view import SPANS_MS
from kinesis_spout.shards.lineage import ShardPhase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.html.timeline import Event
    from kinesis_spout.inspection.page.view import View

_LEAST_SPAN_MS = 60_000
_MARGIN = 0.08  # of the span, before the oldest thing that matters


@dataclass(frozen=True, slots=True)
class _Life:
    began_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class Lanes:
    """`notes`: sentences on what is not drawn, or not to scale."""

    timeline: Timeline
    notes: tuple[str, ...]


def lanes_of(view: View) -> Lanes:
    """The shards that are not expired, and of those that are over the ones in the time shown."""
    drawing = _Drawing(view)
    lives = drawing.lives()
    now_ms = view.now_ms
    began_ms = drawing.began_ms(lives)
    shown = {
        shard_id: life
        for shard_id, life in lives.items()
        if life.ended_ms is None
        or life.ended_ms >= began_ms
        or view.look.phase(shard_id) not in OVER
    }
    timeline = Timeline(
        began_s=0.0,
        ended_s=max(now_ms - began_ms, 1) / 1000,
        lanes=[drawing.lane(shard_id, life, began_ms) for shard_id, life in shown.items()],
        is_now=True,
    )
    return Lanes(timeline, tuple(drawing.notes(len(lives) - len(shown))))


@dataclass(slots=True)
class _Drawing:
    view: View
    times: SequenceTimes = field(init=False)
    guessed: int = 0

    def __post_init__(self) -> None:
        self.times = SequenceTimes(self.view.look.now.stream.created_ms, self.view.now_ms)

    def lives(self) -> dict[str, _Life]:
        """Parents before their children. Shards that are not listed are drawn while they matter."""
        now = self.view.look.now
        found: dict[str, _Life] = {}
        ends: dict[str, int] = {}  # where no number tells: when the first child began
        for shard_id in now.shard_ids:
            listed = now.lineage.listed.get(shard_id)
            if listed is None and self.view.look.phase(shard_id) in OVER:
                continue
            parents = [one for one in now.lineage.parents(shard_id) if one in found]
            began_ms = self._began_ms(shard_id, [found[one].began_ms for one in parents])
            for one in parents:
                ends[one] = min(ends.get(one, began_ms), began_ms)
            if listed is None:
                ended_ms: int | None = self.view.now_ms
            else:
                ended_ms = self.times.put_ms(listed.ending_sequence)
                ended_ms = self.view.now_ms if ended_ms is None and listed.is_closed else ended_ms
            found[shard_id] = _Life(began_ms, None if ended_ms is None else max(ended_ms, began_ms))
        return {shard_id: self._ended(life, ends.get(shard_id)) for shard_id, life in found.items()}

    def _ended(self, life: _Life, first_child_ms: int | None) -> _Life:
        if life.ended_ms != self.view.now_ms or first_child_ms is None:
            return life
        return _Life(life.began_ms, max(life.began_ms, first_child_ms))

    def _began_ms(self, shard_id: str, parents_ms: list[int]) -> int:
        listed = self.view.look.now.lineage.listed.get(shard_id)
        number = None if listed is None else listed.starting_sequence
        created_ms = self.times.shard_created_ms(number)
        earliest_ms = max(parents_ms, default=self.times.first_ms)
        if created_ms is not None:
            return max(created_ms, earliest_ms)
        if not parents_ms:
            return self.times.first_ms
        self.guessed += 1
        return (max(earliest_ms, self.view.look.horizon_ms) + self.view.now_ms) // 2

    def began_ms(self, lives: dict[str, _Life]) -> int:
        """The left edge: what the reader asked for, or a little before the oldest thing that
        matters: an unread record, a failure, a reshard.
        """
        view, look = self.view, self.view.look
        most_ms = min(look.now.stream.retention_ms, view.now_ms - self.times.first_ms)
        asked = view.wish.span if view.wish.span in SPANS_MS else None
        if asked:
            span_ms = SPANS_MS[asked] or most_ms
            return view.now_ms - max(min(span_ms, most_ms), _LEAST_SPAN_MS)
        oldest_ms = min(self._matter(lives), default=view.now_ms)
        span_ms = int((view.now_ms - max(oldest_ms, look.horizon_ms)) * (1 + _MARGIN))
        return view.now_ms - max(span_ms, _LEAST_SPAN_MS)

    def _matter(self, lives: dict[str, _Life]) -> Iterator[int]:
        look = self.view.look
        for shard_id, life in lives.items():
            if look.now.lineage.parents(shard_id) and life.began_ms > look.horizon_ms:
                yield life.began_ms
            if look.phase(shard_id) in OVER:
                continue
            for time_ms in (look.frontier_ms(shard_id), look.now.oldest_failure_ms(shard_id)):
                if time_ms is not None:
                    yield time_ms

    # one lane -------------------------------------------------------------------------------------
    def lane(self, shard_id: str, life: _Life, began_ms: int) -> Lane:
        look = self.view.look
        listed = look.now.lineage.listed.get(shard_id)
        first_key, last_key = (0, 0) if listed is None else listed.hash_key_range

        def seconds(time_ms: float) -> float:
            return (time_ms - began_ms) / 1000

        read_ms = self._read_ms(shard_id, life)
        acked_ms = self._acked_ms(shard_id, read_ms)
        return Lane(
            name=shard_id,
            began_s=seconds(life.began_ms),
            ended_s=None if life.ended_ms is None else seconds(life.ended_ms),
            first_key=first_key,
            last_key=last_key,
            parents=look.now.lineage.parents(shard_id),
            note=self._note(shard_id),
            events={Series.FAILED: [(seconds(at), many) for at, many in self._failures(shard_id)]},
            reach=Reach(seconds(read_ms), None if acked_ms is None else seconds(acked_ms))
            if look.now.is_readable
            else None,
            tone=TONES[look.health(shard_id)],
            address=address_of(shard_id) if self.view.is_live else "",
        )

    def _read_ms(self, shard_id: str, life: _Life) -> int:
        look, progress = self.view.look, self.view.look.now.progress(shard_id)
        if progress is None or look.phase(shard_id) is ShardPhase.WAITING:
            return life.began_ms
        ended_ms = self.view.now_ms if life.ended_ms is None else life.ended_ms
        frontier_ms = look.frontier_ms(shard_id)
        if progress.position.is_end or (frontier_ms is None and shard_id in look.tips):
            return ended_ms
        return min(max(frontier_ms or life.began_ms, life.began_ms), ended_ms)

    def _acked_ms(self, shard_id: str, read_ms: int) -> int | None:
        look, state = self.view.look, self.view.look.now.states.get(shard_id)
        progress = look.now.progress(shard_id)
        if state is None or progress is None:
            return None
        # What was read is acked or unresolved, but for what the plan under way has read.
        if not state.unresolved and progress.position == state.read_position:
            return read_ms
        checkpoint_ms = self.times.put_ms(state.checkpoint)
        return None if checkpoint_ms is None else min(checkpoint_ms, read_ms)

    def _failures(self, shard_id: str) -> list[Event]:
        state = self.view.look.now.states.get(shard_id)
        found: Counter[float] = Counter()
        for one in () if state is None else state.unresolved:
            if one.first_failure_ms is not None:
                found[one.first_failure_ms] += one.count
        return list(found.items())

    def _note(self, shard_id: str) -> str:
        look, state = self.view.look, self.view.look.now.states.get(shard_id)
        phase, lag_ms = look.phase(shard_id), look.lag_ms(shard_id)
        said = phase.value
        if phase in READ_PHASES and lag_ms is not None:
            measured = look.is_measured(shard_id)
            said = f"lag {lag(lag_ms, measured=measured)}" if lag_ms else "at its tip"
        if state is not None and state.unresolved:
            said += f", {count(state.unresolved_count)} unacked"
        return said

    def notes(self, left_out: int) -> Iterator[str]:
        if left_out:
            yield f"{plural(left_out, 'shard')} ended before the time that is shown."
        if self.guessed:
            yield (
                f"Nothing says when {plural(self.guessed, 'shard')} began: drawn from halfway "
                "between the beginning of the parents and now."
            )
