"""A spout on a machine whose clock is set while it runs: by an operator, or by NTP."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.application.history_recorder import MARGIN_MS
from kinesis_spout.checkpoints.application_moves import read_history
from kinesis_spout.testing import ManualClock
from state.moves import past_at
from state.position import Position
from state.sequence_number import SequenceNumber
from tests.simulation.world import SkewedClock
from tests.support.spout.spout_world import SpoutUnderTest

if TYPE_CHECKING:
    from state.store.history import HistoryEntry

DAY_S = 86_400
SHARD = "shardId-000000000000"


SETTINGS = {
    "back": (-20,),
    "back by a day": (-DAY_S,),
    "forward": (DAY_S,),
    "forward and back": (DAY_S, 0),
    "back and forward": (-20, 20),
}


class MachineClock(SkewedClock):
    """`slept_s`: so long its monotonic clock has stood still."""

    slept_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() - self.slept_s


class Machine:
    """A spout on a machine of its own: `set` sets its clock, and not the service's."""

    def __init__(self) -> None:
        self.service = ManualClock()
        self.under_test = SpoutUnderTest(clock=self.service)
        self.clock = MachineClock(self.service)
        self.open()

    def open(self) -> None:
        self.spout = self.under_test.fresh(clock=self.clock)
        self.spout.open()

    def set(self, ahead_s: int) -> None:
        self.clock.ahead_ms = ahead_s * 1_000

    def history(self) -> list[HistoryEntry]:
        return read_history(self.under_test.store().history)

    def process(self) -> None:
        """Another record is put, emitted and acked, and the spout does what it does."""
        self.under_test.put(1)
        self.acked_ms = self.service.now_ms()
        self.work()

    def work(self) -> None:
        """`last`: the position after the last record that was acked."""
        for _ in range(5):
            self.under_test.loops.take()
            while (emission := self.spout.next_tuple()) is not None:
                emission.ack()
                self.last = Position.after(SequenceNumber(int(emission.sequence_number)))


@pytest.mark.parametrize("is_looked_at", [True, False], ids=["and steps", "and is closed"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_nobody_goes_back_behind_a_record_that_was_not_acked_then(
    settings: tuple[int, ...], *, is_looked_at: bool
) -> None:
    """Whatever the machine's clock says: the history is by the service's. It has each record as
    acked from a second after it was on.
    """
    machine = Machine()
    machine.process()
    for ahead_s in settings:
        machine.service.advance(15)
        machine.set(ahead_s)
        if is_looked_at:
            machine.work()
        machine.process()
    machine.spout.close()
    entries = machine.history()
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(entries))
    assert entries[-1].time_ms <= machine.service.now_ms() + MARGIN_MS
    then = past_at(entries, machine.acked_ms - 1)
    assert then is None or then.positions.get(SHARD) != machine.last
    if is_looked_at:
        now = past_at(entries, machine.service.now_ms() + MARGIN_MS)
        assert now is not None
        assert now.positions[SHARD] == machine.last


@pytest.mark.parametrize("is_listed", [True, False], ids=["and lists its shards", "and ends"])
def test_a_machine_that_has_slept_writes_no_history_before_it_has_asked_for_the_time(
    *, is_listed: bool
) -> None:
    """Its monotonic clock stood still meanwhile, so an entry would be too early. It asks as soon as
    it lists its shards, which is at once.
    """
    machine = Machine()
    machine.process()
    machine.service.advance(600)
    machine.clock.slept_s = 600
    machine.under_test.put(1)
    machine.acked_ms = machine.service.now_ms()
    machine.under_test.loops.take("fetch")
    emission = machine.spout.next_tuple()
    assert emission is not None
    emission.ack()
    machine.under_test.loops.take("commit")
    before = machine.history()
    if is_listed:
        machine.under_test.loops.take("coordinate")
    machine.spout.close()
    added = machine.history()[len(before) :]
    assert bool(added) is is_listed
    assert all(entry.time_ms >= machine.acked_ms for entry in added)
