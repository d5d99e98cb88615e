"""What is stored, which shards there are and what the processes use, sampled in a thread."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import Sample, ShardLife
from kinesis_spout.drills.world.use import UseSample, uses_of
from kinesis_spout.errors import KinesisError

if TYPE_CHECKING:
    from kinesis_spout.drills.world.job import Job
    from kinesis_spout.drills.world.kinesis import DrillStream, SeenShard
    from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServers

INTERVAL_S = 0.5
_BETWEEN_USES = 4  # samples; to look at all processes of a job costs more


class Samples:
    """Samples between `start` and `stop`. `states`, `use` and `shards` grow meanwhile."""

    def __init__(
        self, stream: DrillStream, stored: StoredStates, zookeeper: ZookeeperServers, job: Job
    ) -> None:
        self._stream = stream
        self._stored = stored
        self._zookeeper = zookeeper
        self._job = job
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self.states: list[Sample] = []
        self.use: list[UseSample] = []
        self.shards: dict[str, ShardLife] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def sample_shards(self) -> list[SeenShard]:
        """List the shards, and note which are new or closed since."""
        seen = self._stream.shards()
        now_ns = time.monotonic_ns()
        with self._lock:
            for one in seen:
                self.shards[one.shard_id] = life(self.shards.get(one.shard_id), one, now_ns)
        return seen

    def sample_states(self) -> None:
        """Nothing while ZooKeeper does not answer."""
        began_ns = time.monotonic_ns()
        states = self._stored.read()
        if states is not None:
            with self._lock:
                self.states.append(Sample(began_ns, time.monotonic_ns(), states))

    def sample_use(self) -> None:
        processes = uses_of(self._job.pids())
        at_s = time.monotonic() - self._began_s
        states = len(self.states[-1].states) if self.states else 0
        self.use.append(
            UseSample(at_s, processes, self._zookeeper.znodes(), len(self.shards), states)
        )

    def _run(self) -> None:
        turn = 0
        while not self._ending.wait(INTERVAL_S):
            self.sample_states()
            with suppress(KinesisError):  # the next sample lists them
                self.sample_shards()
            if turn % _BETWEEN_USES == 0:
                self.sample_use()
            turn += 1


def life(known: ShardLife | None, seen: SeenShard, now_ns: int) -> ShardLife:
    """What is known of a shard that was seen just now. `known`: what was known before."""
    created_ns = now_ns if known is None else known.created_ns
    closed_ns = None if known is None else known.closed_ns
    if closed_ns is None and not seen.is_open:
        closed_ns = now_ns
    return ShardLife(
        seen.shard_id, seen.parents, created_ns, closed_ns, seen.hash_start, seen.hash_end
    )
