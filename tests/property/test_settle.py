"""Random plans of one shard, settled one after the other, against lists of numbers: exactly the
failed records come again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.errors import PlanMismatchError
from state.plan import PlannedRetry, RangePart, ShardReadResult, ShardSlice, ShortRange
from state.position import SHARD_END, Position
from state.settle import settle_shard
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from tests.support.state.tracker import SHARD, fresh_state, seq

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber


@dataclass
class Naive:
    """Every number of the shard stays in a list. `waiting`: attempts by number; `together`: the
    ranges that are stored as one.
    """

    numbers: list[int] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=dict)
    together: list[list[int]] = field(default_factory=list)
    ended: bool = False

    def grow(self, count: int, step: int) -> list[int]:
        start = self.numbers[-1] + step if self.numbers else step
        new = [start + step * n for n in range(count)]
        self.numbers += new
        return new

    def settle(self, read: list[list[int]], left: list[tuple[list[int], int]]) -> None:
        done = [number for unit in read for number in unit]
        self.waiting = {
            number: attempts for number, attempts in self.waiting.items() if number not in done
        }
        self.together = [unit for unit in self.together if unit not in read]
        for run, attempts in left:
            self.together.append(run)
            self.waiting |= dict.fromkeys(run, attempts)
        self.together.sort()

    def check(self, state: ShardState, before: ShardState) -> None:
        """The state agrees exactly, and its checkpoint is a true lower bound that has not moved
        back.
        """
        for number in self.numbers:
            ranges = [each for each in state.unresolved if each.first <= seq(number) <= each.last]
            assert [each.attempts for each in ranges] == (
                [self.waiting[number]] if number in self.waiting else []
            )
        assert sum(each.count for each in state.unresolved) == len(self.waiting)
        if self.ended:
            assert state.read_position == SHARD_END
            assert state.lifecycle is (Lifecycle.DRAINED if self.waiting else Lifecycle.FINISHED)
        elif self.numbers:
            assert state.read_position == Position.after(seq(self.numbers[-1]))
        checkpoint = -1 if state.checkpoint is None else state.checkpoint.sequence
        assert before.checkpoint is None or before.checkpoint.sequence <= checkpoint
        assert all(checkpoint < number for number in self.waiting)
        assert checkpoint in {-1, *self.numbers}
        if (
            not self.waiting and self.numbers and not self.ended
        ):  # the number of the last record is not kept at the shard's end
            assert checkpoint == self.numbers[-1]


def choose_runs(data: Any, unit: list[int], *, outage: bool) -> list[list[int]]:
    """Which records of a unit fail, in runs of successive records; long runs in an outage."""
    fails = [data.draw(st.booleans()) or (outage and data.draw(st.booleans())) for _ in unit]
    runs: list[list[int]] = []
    for index, number in enumerate(unit):
        if not fails[index]:
            continue
        joins = (
            runs
            and index > 0
            and runs[-1][-1] == unit[index - 1]
            and (outage or data.draw(st.booleans()))
        )
        if joins:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def record_of(run: list[int], attempts: int, due_ms: int) -> UnresolvedRecord:
    return UnresolvedRecord(
        first=seq(run[0]), last=seq(run[-1]), count=len(run), attempts=attempts, due_ms=due_ms
    )


def planned(unit: list[int], attempts: int) -> PlannedRetry:
    last = seq(unit[-1]) if len(unit) > 1 else None
    return PlannedRetry(first=seq(unit[0]), last=last, count=len(unit), attempts=attempts)


@dataclass
class Part:
    """The part of a unit that was read: `read` may lack the first record, which is gone."""

    unit: list[int]
    read: list[int]
    rest: list[int]

    def of_result(self) -> dict[str, Any]:
        lost = self.unit[0] != self.read[0]
        return {
            "retry_part": RangePart(
                last=seq(self.read[-1]), rest=seq(self.rest[0]), count=len(self.read)
            ),
            "retries_short": (ShortRange(first=seq(self.unit[0]), missing=1),) if lost else (),
        }

    def rest_of(self, stored: UnresolvedRecord) -> UnresolvedRecord:
        return msgspec.structs.replace(stored, first=seq(self.rest[0]), count=len(self.rest))


def choose_part(data: Any, unit: list[int]) -> Part | None:
    """A part of a unit that has several records, or nothing of it."""
    if len(unit) < 2 or data.draw(st.booleans()):
        return None
    start = data.draw(st.integers(0, 1)) if len(unit) > 2 else 0
    stop = data.draw(st.integers(start + 1, len(unit) - 1))
    return Part(unit, unit[start:stop], unit[stop:])


def one_plan(data: Any, naive: Naive, state: ShardState, plan_id: str) -> ShardState:
    """Plan, read, fail some records, settle; returns the new state, checked against the naive."""
    chosen = [unit for unit in naive.together if data.draw(st.booleans())]
    done = data.draw(st.integers(0, len(chosen)))
    retries = tuple(planned(unit, naive.waiting[unit[0]]) for unit in chosen)
    count = 0 if naive.ended else data.draw(st.integers(0, 6))
    slice_ = ShardSlice(
        shard_id=SHARD, position=state.read_position, max_records=count, retries=retries
    )
    part = choose_part(data, chosen[done]) if done < len(chosen) else None
    new = naive.grow(count, data.draw(st.integers(1, 3)))
    naive.ended = naive.ended or data.draw(st.integers(0, 5)) == 0
    end = ShardReadResult(
        shard_id=SHARD,
        first=seq(new[0]) if new else None,
        last=seq(new[-1]) if new else None,
        count=count,
        at_shard_end=naive.ended,
        retries_done=done,
        **({} if part is None else part.of_result()),
    )
    read = chosen[:done] + ([part.read] if part else []) + ([new] if new else [])
    done_units = read if part is None else [*read, part.unit]
    kept = [] if part is None else [(part.rest, naive.waiting[part.rest[0]])]
    if data.draw(st.integers(0, 4)) == 0:
        naive.settle(done_units, kept)
        return settle_shard(state, end, plan_id, slice_)
    outage = data.draw(st.booleans())
    left = [
        (run, naive.waiting.get(run[0], 0) + (not outage))
        for unit in read
        for run in choose_runs(data, unit, outage=outage)
    ]
    records = tuple(
        record_of(run, attempts, data.draw(st.integers(0, 9))) for run, attempts in left
    )
    lost = [] if part is None else [part.unit[:1]]
    refuse_what_was_not_read(data, naive, (state, slice_, end, plan_id), [*read, *lost])
    naive.settle(done_units, [*left, *kept])
    after = settle_shard(state, end, plan_id, slice_, records)
    rest = () if part is None else (part.rest_of(stored(state, part.unit)),)
    assert {record for record in after.unresolved if record.first not in firsts(state)} <= {
        *records,
        *rest,
    }
    assert {*records, *rest} <= set(after.unresolved)
    assert settle_shard(after, end, plan_id, slice_) is after
    return after


def refuse_what_was_not_read(
    data: Any,
    naive: Naive,
    plan: tuple[ShardState, ShardSlice, ShardReadResult, str],
    read: list[list[int]],
) -> None:
    """A report of another plan is never settled, neither in part nor as a whole."""
    # A number between two that were read is within the read.
    others = [
        number
        for number in naive.numbers
        if not any(unit[0] <= number <= unit[-1] for unit in read)
    ]
    if others:
        state, slice_, end, plan_id = plan
        number = data.draw(st.sampled_from(others))
        with pytest.raises(PlanMismatchError):
            settle_shard(state, end, plan_id, slice_, [record_of([number], 1, 0)])


def stored(state: ShardState, unit: list[int]) -> UnresolvedRecord:
    return next(each for each in state.unresolved if each.first == seq(unit[0]))


def firsts(state: ShardState) -> set[SequenceNumber]:
    return {record.first for record in state.unresolved}


@given(data=st.data(), plans=st.integers(1, 8))
def test_exactly_the_unresolved_records_come_again(data: Any, plans: int) -> None:
    """Over any plans with retries, ranges, parts of ranges, failures, outages and whole acks, with
    an encoding and a decoding between them.
    """
    naive, state = Naive(), fresh_state()
    for number in range(1, plans + 1):
        after = one_plan(data, naive, state, f"{number}-a")
        naive.check(after, state)
        encoded, _ = encode_shard_state(after, "state")
        assert decode_shard_state(encoded, SHARD, "state") == after
        state = after
