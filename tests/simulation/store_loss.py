"""Steps that take nodes from the store while Spark's checkpoint location survives: all of the
application's, or some of them by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.past import Past

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_RESTARTS = 6


class StoreLoss(Past):
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
