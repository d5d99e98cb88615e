"""Random histories of one application, and their invariants: puts, resharding, batches, crashes,
zombies. Faults and backups are steps of `tests/simulation`, which has no real parts.

They use the product's own reader, over FakeKinesis by HTTP and a real ZooKeeper. Their randomness
is plain and seeded: kazoo's threads draw from `random` too, which Hypothesis would report as a test
that is not deterministic.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_job.driver.coordinator import Coordinator
from spark_job.process_services import ProcessServices, open_store
from state.errors import PlanClosedError
from state.shard_state import Lifecycle
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine, Row
from tests.support.spark.source import APPLICATION, STREAM, StreamUnderTest, ids_of
from tests.support.state.dying_store import dying_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from kinesis_spout.testing import FakeKinesis

MOST_SHARDS = 7
STEPS: dict[str, int] = {
    "put": 10,
    "batch": 10,
    "crash": 6,
    "crash_at_write": 5,
    "split": 2,
    "merge": 2,
    "restart": 2,
    "zombie": 3,
    "available_now": 2,
}


@dataclass
class RandomReads(MicroBatchEngine):
    """An engine whose sinks read a batch in part, or twice, and whose driver may die at a write to
    ZooKeeper.
    """

    random: Random | None = None
    dies_at: tuple[int, bool] | None = None
    kept: list[Any] = field(default_factory=list)
    choices: dict[tuple[str, int], bool] = field(default_factory=dict)

    def start(self) -> None:
        super().start()
        assert self.reader is not None
        if self.dies_at is None:
            return
        writes, after = self.dies_at
        services = ProcessServices.connect(self.settings)
        services.store.close()
        services.store = dying_store(
            self.settings.zookeeper, APPLICATION, STREAM, writes, after=after
        )
        self.reader._coordinator = Coordinator(self.settings, services)  # the driver's services

    def read(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows that this batch's sink reads: the same in each replay. A sink that already has
        the batch may skip its reads.
        """
        assert self.random is not None
        if self.tracked is None and self.committed + 1 in self.sink and self.random.random() < 0.3:
            return self.sink[self.committed + 1]
        wanted = [one for one in partitions if self._wants(one)]
        self.kept.extend(wanted)
        rows = {one.task: super(RandomReads, self).read([one]) for one in wanted}
        if self.random.random() < 0.2:  # a second action
            for one in wanted:
                assert super().read([one]) == rows[one.task], (
                    "a second action has read other rows than the first"
                )
        return [row for one in wanted for row in rows[one.task]]

    def _wants(self, partition: Any) -> bool:
        assert self.random is not None
        return self.choices.setdefault(
            (partition.plan_id, partition.task), self.random.random() < 0.85
        )


@dataclass
class History:
    """`step` draws steps and notes them in `log`; each raises AssertionError where a promise is
    broken.
    """

    stream: StreamUnderTest
    fake: FakeKinesis
    random: Random
    engine: RandomReads
    log: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    checkpoints: dict[str, int] = field(default_factory=dict)
    crashes: Sequence[str] = CRASHES

    def step(self) -> None:
        name = self.random.choices(list(STEPS), weights=list(STEPS.values()))[0]
        self.log.append(name)
        getattr(self, f"do_{name}")()
        self.check()

    def note(self, text: object) -> None:
        self.log[-1] += f" {text}"

    # the stream -----------------------------------------------------------------------------------
    def do_put(self) -> None:
        count = self.random.choice((1, 7, 40))
        self.note(count)
        self.stream.put(count)

    def do_split(self) -> None:
        count = len(self.stream.open_shards())
        if 0 < count < MOST_SHARDS:
            self.note(self.stream.split(self.random.randrange(count)))

    def do_merge(self) -> None:
        if len(self.stream.open_shards()) > 1:
            self.note(self.stream.merge())

    # the query ------------------------------------------------------------------------------------
    def do_batch(self) -> None:
        self.note(self.run_batch())

    def do_crash(self) -> None:
        where = self.random.choice(self.crashes)
        self.note(where)
        self.note(self.run_batch(where))

    def do_crash_at_write(self) -> None:
        self.engine.stop()
        self.engine.dies_at = (self.random.randrange(14), self.random.random() < 0.5)
        self.note(self.engine.dies_at)
        try:
            for _ in range(3):
                self.note(self.run_batch())
        finally:
            self.engine.dies_at = None
            self.engine.stop()

    def do_restart(self) -> None:
        self.engine.stop()

    def do_available_now(self) -> None:
        """An AvailableNow run that ends after reading at least all that was there at its start."""
        self.engine.stop()
        there = self.stream.ids()
        self.engine.available_now = True
        try:
            for _ in range(500):
                if not self.run_batch():
                    break
            else:
                raise AssertionError("an AvailableNow run has not ended after 500 batches")
        finally:
            self.engine.available_now = False
            self.engine.stop()
        missing = there - self.resolved()
        assert not missing, (
            f"an AvailableNow run ended early: {sorted(missing)[:5]} and {len(missing)} in all"
        )

    def do_zombie(self) -> None:
        if not self.engine.kept:
            return
        partition = self.random.choice(self.engine.kept)
        self.note((partition.plan_id, partition.task))
        reader = self.engine.reader
        if reader is None:
            self.engine.start()
            reader = self.engine.reader
        assert reader is not None
        try:
            rows = [row for page in reader.read(partition) for row in page.to_pylist()]
        except PlanClosedError:
            self.note("closed")
            return
        self.note(len(rows))
        assert set(ids_of(rows)) <= self.stream.ids()

    # invariants -----------------------------------------------------------------------------------
    def resolved(self) -> set[str]:
        """Records that need not come again: a finished batch has them."""
        return set(self.committed)

    def check(self) -> None:
        """No checkpoint moves back, or past a record that no finished batch has delivered."""
        with closing(open_store(self.engine.settings)) as store:
            states = {shard: stored.state for shard, stored in store.load_states().items()}
        delivered = self.resolved()
        for shard, state in states.items():
            put = self.stream.records.get(shard, [])
            checkpoint = -1 if state.checkpoint is None else state.checkpoint.sequence
            assert checkpoint >= self.checkpoints.get(shard, -1), (
                f"the checkpoint of {shard} has moved back"
            )
            self.checkpoints[shard] = checkpoint
            passed = put if state.end_was_read else [one for one in put if int(one) <= checkpoint]
            queued = {
                one
                for one in put
                for each in state.unresolved
                if each.first.sequence <= int(one) <= each.last.sequence
            }
            assert checkpoint < min(map(int, queued), default=checkpoint + 1), (
                f"the checkpoint of {shard} has passed a queued one"
            )
            unread = [
                one for one in passed if f"{shard}:{one}" not in delivered and one not in queued
            ]
            assert not unread, (
                f"{shard} at {state.read_position} has passed {len(unread)} records that nobody "
                "has read"
            )

    def finish(self) -> None:
        """Drain, and check the whole history."""
        self.log.append("drain")
        self.engine.stop()
        for _ in range(500):
            # Above `probeMaxShards` a poll may find nothing before the end of `idleInterval`.
            if not self.run_batch() and self.is_at_the_end():
                break
        self.check()
        missing = self.stream.ids() - self.resolved()
        assert not missing, f"{len(missing)} records were lost: {sorted(missing)[:5]}"
        assert self.is_at_the_end(), f"after the last batch the states are {self.stream.states()}"
        self.check_order(self.committed)
        rows = [one for batch in self.engine.sink.values() for one in ids_of(batch)]
        assert len(rows) == len(set(rows)), "an idempotent sink has records twice"
        self.check_sink(set(rows))

    def check_sink(self, found: set[str]) -> None:
        assert found == self.stream.ids()

    def check_order(self, delivered: Sequence[str]) -> None:
        """The first delivery of a child's records comes after the last first delivery of its
        parents' records.
        """
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, one in enumerate(dict.fromkeys(delivered)):
            shard = one.partition(":")[0]
            first.setdefault(shard, place)
            last[shard] = place
        listed = self.listed()
        for child, place in first.items():
            for parent in (
                listed[child].get("ParentShardId"),
                listed[child].get("AdjacentParentShardId"),
            ):
                assert last.get(parent, -1) < place, (
                    f"{child} was delivered before the end of {parent}"
                )

    def listed(self) -> dict[str, Any]:
        return {
            shard["ShardId"]: shard
            for shard in self.stream.client.list_shards(StreamName=STREAM)["Shards"]
        }

    def is_at_the_end(self) -> bool:
        """Every checkpoint is at its shard's last record, and exactly the closed shards are
        finished.
        """
        closed = {
            shard
            for shard, one in self.listed().items()
            if "EndingSequenceNumber" in one["SequenceNumberRange"]
        }
        finished = {
            shard
            for shard, state in self.stream.states().items()
            if state.lifecycle is Lifecycle.FINISHED
        }
        return self.stream.checkpoints() == self.stream.tips() and finished == closed

    # private --------------------------------------------------------------------------------------
    def run_batch(self, crash_at: str | None = None) -> bool | str:
        before = self.engine.committed
        try:
            return self.engine.run_batch(crash_at)
        except Crash as crash:
            self.engine.stop()
            return f"died {crash}"
        finally:
            if self.engine.committed > before:
                self.committed.extend(ids_of(self.engine.sink[self.engine.committed]))
