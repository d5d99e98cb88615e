"""Steps on the state: outages of its store, damage, a recreated stream, restored backups, and nodes
that are gone while Spark's checkpoint location survives: all of the application's, or some.
"""

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
    from collections.abc import Iterable

    from state.znodes.tree import Znode

MOST_CALLS = 40
MOST_TRIES = 8
MOST_RESTARTS = 6
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

    # losses ---------------------------------------------------------------------------------------
    def do_lose_zookeeper(self) -> None:
        """The store is empty when the job is back. Spark's log names a plan, so records may be
        lost: the user decides whether to go on, and then everything is read again.
        """
        if not self.job.offsets or (self.starts_at_latest and not self.is_known_to_spark()):
            return  # as for a new application: nothing says that there was a start
        self.job.stop()
        self._remove(self.world.backend.nodes(self.world.paths.base))
        self.count("stores that were lost")
        self._go_on_without_start()

    def do_lose_start(self) -> None:
        """Somebody removes the pinned start. Where it was LATEST and a shard has no state yet, the
        new start is a later one, and nobody wants what was put before it.
        """
        if not self.job.offsets or self.world.paths.start not in self.world.znodes():
            return
        known = self.world.states()
        shards = self.world.fake.shards(self.world.stream)
        if self.starts_at_latest and any(shard.shard_id not in known for shard in shards):
            return
        self._remove([self.world.paths.start])
        self.count("starts that were removed")
        self._go_on_without_start()

    def do_lose_plans(self) -> None:
        """The states are moved to another ZooKeeper without the plans; Spark's log may be lost as
        well.
        """
        self._remove(
            path
            for path in self.world.znodes()
            if path == self.world.paths.plan or path.startswith(self.world.paths.batches)
        )
        if self.random.random() < 0.5:
            self.job.forget_checkpoint_location()
            self.job.sink = {}
            self.note("with Spark's log")
        self.count("states that were moved without their plans")

    def do_lose_nodes(self) -> None:
        """Somebody removes `/plan`, a shard's state, or a batch, an end or a report of it."""
        there = self.world.znodes()
        folders = sorted(
            path
            for path in there
            if path == self.world.paths.plan
            or path.endswith(("/state", "/end", "/report"))
            or path.rpartition("/")[0] == self.world.paths.batches
        )
        if not folders:
            return
        kind = self.random.choice(sorted({self._kind(path) for path in folders}))
        lost = self.random.choice([path for path in folders if self._kind(path) == kind])
        self.note(lost.removeprefix(self.world.paths.base))
        self._remove(path for path in there if path == lost or path.startswith(f"{lost}/"))
        self.count(f"nodes that were removed: {kind}")

    def _remove(self, paths: Iterable[str]) -> None:
        self.job.stop()
        self.world.backend.remove(list(paths))
        self.thrown_away = True
        self.checkpoints, self.seen = {}, {}

    def _go_on_without_start(self) -> None:
        self.world.fake.faults.clear()
        self.world.foreign |= self.world.forgotten  # the new start may be the oldest record
        self.loss_is_possible = True
        ended = 0
        try:
            for _ in range(MOST_RESTARTS):
                ran = self.run_batch()
                self.note(ran)
                ended += ran == "ended by a loss"
        finally:
            self.loss_is_possible = False
        assert ended <= 1, "the query ends with a data loss, though failOnDataLoss is false"

    def _kind(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return "batch" if folder == self.world.paths.batches else name
