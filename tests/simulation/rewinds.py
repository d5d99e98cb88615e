"""The step of an operator: the application goes back to where it was at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from unittest.mock import patch

from kinesis_spout.application.history_recorder import INTERVAL_S
from kinesis_spout.checkpoints import located
from kinesis_spout.checkpoints.application_moves import write_moves
from kinesis_spout.checkpoints.moves import MoveRefusedError
from kinesis_spout.checkpoints.recorded_move import service_time
from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.checkpoints.rewind import find_rewind
from kinesis_spout.errors import KinesisError
from state.errors import StoredDataError
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from tests.simulation.in_process import InlinePool, InProcessClient
from tests.simulation.past import Past
from tests.support.simulated.micro_batch_engine import Crash

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics

MOST_WRITES = 6
MOST_COUNTED = 20


class Rewinds(Past):
    def remember(self) -> None:
        """What is resolved now. An operator may want to go back to this time."""
        now_ms = self.world.clock.now_ms()
        if self.moments and self.moments[-1][0] == now_ms:
            self.moments.pop()  # what came later in the same millisecond was so by then, too
        self.moments.append((now_ms, self.resolved()))

    def do_rewind(self) -> None:
        """All that was not resolved at the time must be resolved once more. A command that dies is
        given again.
        """
        if self.random.random() < 0.5:
            self._go_on_for_a_while()
        if not self.moments:
            return
        self.job.stop()
        wanted_ms, resolved = self.random.choice(self.moments)
        self.note(f"to {wanted_ms}")
        died = False
        if self.random.random() < 0.3:
            writes, after = self.random.randrange(MOST_WRITES), self.random.random() < 0.5
            died = self._rewind(wanted_ms, self.world.dying_store(writes, after=after)) is None
            self.note(f"dies at {writes}" if died else "does not die")
        if self._rewind(wanted_ms, self.world.store()) or died:
            self.thrown_away = True
            self.checkpoints, self.seen = {}, {}
        if self._is_there:
            self.done = set(resolved)
            self._begin_again()
            self.count("rewinds")

    def _begin_again(self) -> None:
        """A shard that goes back to its oldest record starts with what is there when it is read
        first, as at the application's start (`checkpoints.moves`).
        """
        self.begun_ms = self.world.clock.now_ms()
        for shard, state in self.world.states().items():
            if state.read_position == TRIM_HORIZON:
                self.touched_ms.pop(shard, None)
            else:
                self.touched_ms.setdefault(shard, 0)

    def _go_on_for_a_while(self) -> None:
        """So long that the history has a time to go back to, and that something comes after it."""
        for _ in range(3):
            self.world.put(self.random.choice((1, 3)))
            self.run_batch()
            self.world.clock.advance(INTERVAL_S)
            self.remember()
        self.run_batch()

    def _rewind(self, wanted_ms: int, store: StoreTopics) -> bool | None:
        """Whether the application was moved. None: the command died, which may be in the midst."""
        self._is_there = False
        world = self.world
        begun_at_fault = len(world.fake.faults.struck)
        client = InProcessClient(world.service, world.settings, world.skewed, self.random)
        wanted = RequestedPosition.parse(str(Position.at_timestamp(wanted_ms)))
        with (
            closing(store),
            # The calls of a history come one after the other, so that its seed repeats it.
            patch.object(located, "ThreadPoolExecutor", InlinePool),
        ):
            try:
                store.ownership.acquire(this_process(0), timeout_s=0)
                found = find_rewind(
                    client, store, wanted, clock=world.skewed, max_counted=MOST_COUNTED
                )
                if self.was_misled(begun_at_fault):  # the operator reads of a shard that is gone
                    self.note("misled")
                    return False
                write_moves(store, found, service_time(client, world.skewed))
            except Crash:
                return None
            except (KinesisError, MoveRefusedError, StoredDataError) as error:
                self.note(f"refused: {type(error).__name__} {str(error)[:90]}")
                self.count("rewinds that were refused")
                return False
        # The command says so, and a job has no reason to say it again.
        expired = {move.after.shard_id for move in found.moves if move.lost_until_ms is not None}
        self.lost_in |= expired | found.lost.keys()
        self._is_there = True
        return True
