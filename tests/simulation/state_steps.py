"""Steps on the state: outages of its store, damage, restored backups, and a recreated stream."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import KinesisError
from state.errors import StoredDataError, StoreUnavailableError, StreamMismatchError
from state.process import this_process
from tests.simulation.past import Past
from tests.simulation.world import base_settings

if TYPE_CHECKING:
    from state.znodes.tree import Znode

MOST_CALLS = 40
MOST_TRIES = 8
RECREATED = "recreated streams whose old state was refused"


class StateSteps(Past):
    def do_store_outage(self) -> None:
        """The store stops answering in the middle of a step; its last write is done or not. The
        query ends.
        """
        outage = self.world.outage
        outage.skipped, outage.left = (
            self.random.randrange(MOST_CALLS),
            self.random.choice((1, 1, 3, 20)),
        )
        outage.lands = self.random.random() < 0.5
        self.note((outage.skipped, outage.left, outage.lands))
        try:
            for _ in range(4):
                self.note(self.run_batch())
        finally:
            outage.left = 0

    def do_damage(self) -> None:
        """A shard's state cannot be read for a while: the query stops, and nobody overwrites the
        state.
        """
        states = self.world.states()
        if not states:
            return
        self.job.stop()
        path = self.world.paths.shard_state(self.random.choice(sorted(states)))
        (before,) = self.world.backend.read([path])
        assert before is not None
        damaged = replace(
            before, data=self.random.choice((b"", b"{", before.data[:-2], b'{"format": 99}'))
        )
        self.world.backend.restore({path: damaged})
        try:
            while isinstance(self.job.run_batch(), str):
                pass  # another stream's error came first
        except StoredDataError:
            self.count("damaged states that were refused")
        else:
            raise AssertionError("a query has gone on without a state that cannot be read")
        finally:
            assert self.world.backend.read([path]) == [damaged], (
                "a state that cannot be read was written over"
            )
            self.world.backend.restore({path: before})
            self.job.stop()

    def do_recreate(self) -> None:
        """The stream is deleted and created again. The old state is refused until it is reset,
        whether the job runs or not.
        """
        if self.world.look().identity.read() is None:
            return  # nothing was read yet
        if self.random.random() < 0.5:
            self.job.stop()
        self.note("while the job runs" if self.job.reader else "while the job is down")
        self.world.recreate()
        self.world.put(3)
        refused = 0
        for _ in range(MOST_TRIES):
            try:
                self.job.run_batch()
            except StreamMismatchError:
                refused += 1
            except (KinesisError, StoreUnavailableError) as error:
                self.note(f"ended by {type(error).__name__}")
            else:
                continue
            self.job.stop()
        assert refused >= 2, (
            "the state of a stream that was deleted is taken for that of its successor"
        )
        self.count(RECREATED)
        self._start_over()

    def _start_over(self) -> None:
        """The user resets the application and starts at the oldest record, with the old checkpoint
        location or a new one.
        """
        store = self.world.store()
        store.identity.reset(this_process(0), timeout_s=0)
        store.close()
        if self.random.random() < 0.5:
            self.job.forget_checkpoint_location()
        self.world.change(starting_position=base_settings().starting_position)
        self.job.start_over()
        self.start_over()
        if self.failing is not None:
            self.failing.start_over()
        self.job.start()
        view: Any = self.job.reader
        view.coordinator.open()

    # backups --------------------------------------------------------------------------------------
    def do_new_location(self) -> None:
        self.job.forget_checkpoint_location()
        self.job.sink = {}
        self.thrown_away = True
        self.count("new checkpoint locations")

    def do_back_up_location(self) -> None:
        self.location = copy.copy(self.job.offsets), self.job.committed, copy.copy(self.job.sink)

    def do_restore_location(self) -> None:
        if self.location is not None:
            self.job.stop()
            offsets, self.job.committed, sink = self.location
            self.job.offsets, self.job.sink = copy.copy(offsets), copy.copy(sink)
            self.thrown_away = True
            self.count("old checkpoint locations restored")

    def do_back_up_zookeeper(self) -> None:
        self.backup: dict[str, Znode] | None = self.world.znodes()

    def do_restore_zookeeper(self) -> None:
        if (
            self.backup and self.world.paths.start in self.backup
        ):  # else there is only a pause in it
            self.job.stop()
            self.world.restore(self.backup)
            self.thrown_away = True
            self.checkpoints = {}
            self.seen = {}
            self.count("old ZooKeepers restored")
