"""A process with a standalone spout in a simulated world. Its threads are steps that the history
takes in any order.

It keeps the books of one opening: emissions, outcomes, and the failures of each record. The spout's
own counts are checked against them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_spout.reading.pacing import ShardPacers
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.kinesis_spout import KinesisSpout
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.spout.rotation import Phase
from kinesis_spout.spout.services import SpoutServices
from state.memory_store import MemoryTree
from state.znodes.topics import StoreTopics
from tests.simulation.in_process import InlineFeed, InlinePool, InProcessClient, wait_in
from tests.simulation.world import APPLICATION, OutageTree
from tests.support.spout.spout_world import StepLoops

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.rotation import Isolation
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState
    from tests.simulation.world import World


def record_id(emission: SpoutEmission) -> str:
    return f"{emission.shard_id}:{emission.number}"


def letter_id(letter: Letter) -> str:
    return letter.message_id.rpartition(":")[0]


def stored_attempts(state: ShardState) -> dict[str, int]:
    """The stored attempts by record, which an opening starts from. Ranges do not occur in states as
    small as these.
    """
    assert all(one.count == 1 for one in state.unresolved)
    return {f"{state.shard_id}:{one.first}": one.attempts for one in state.unresolved}


def config_of(
    world: World, books: Books, dead_letter: Callable[[Letter], None], **options: Any
) -> SpoutConfig:
    """Of a spout on the world's stream and ZooKeeper, with these options besides."""
    return SpoutConfig(
        stream=world.stream,
        application=APPLICATION,
        zookeeper="in-memory:2181",
        aws=world.settings.aws,
        starting_position=world.settings.starting_position.text,
        fail_on_data_loss=world.settings.fail_on_data_loss,
        dead_letter=dead_letter,
        breaker_failures=None,
        owner_wait_s=0.0,
        listeners=(books,),
        **options,
    )


@dataclass
class Books(SpoutListener):
    """The books of one opening.

    `attempts`: failures so far, with those that were stored before. `done` and `answered` belong to
    the whole history: records that were acked, and records that ever had an outcome.
    """

    done: set[str]
    answered: set[str]
    handed: list[SpoutEmission] = field(default_factory=list)
    pending: dict[str, SpoutEmission] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    resolved: set[str] = field(default_factory=set)
    newest: dict[str, SequenceNumber] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def on_emission(self, emission: SpoutEmission) -> None:
        name = record_id(emission)
        assert name not in self.pending, f"{name} was emitted again while it was pending"
        assert name not in self.resolved, f"{name} was emitted after it was resolved"
        assert emission.attempt == self.attempts[name] + 1, (
            f"{name} came with attempt {emission.attempt} after {self.attempts[name]} failures"
        )
        number = emission.sequence
        if name not in self.attempts:
            newest = self.newest.get(emission.shard_id)
            assert newest is None or number > newest, (
                f"{name} came for the first time after {self.newest}"
            )
            self.newest[emission.shard_id] = number
        self.handed.append(emission)
        self.pending[name] = emission
        self.counts["emitted"] += 1
        self.counts["retried"] += emission.attempt > 1

    def acked(self, emission: SpoutEmission) -> None:
        self.resolve(record_id(emission))
        self.counts["acked"] += 1

    def resolve(self, name: str) -> None:
        assert name not in self.resolved, f"{name} was resolved twice"
        self.pending.pop(name, None)
        self.resolved.add(name)
        self.answered.add(name)
        self.done.add(name)

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        del reason
        name = record_id(emission)
        pending = self.pending.pop(name, None)
        assert pending is not None, f"a failure of {emission} counted though it was not pending"
        assert pending.attempt == emission.attempt, (
            f"a failure of {emission} counted though {pending} was pending"
        )
        self.attempts[name] += 1
        self.answered.add(name)
        self.counts["failed"] += 1

    def exhausted(self, letter: Letter) -> None:
        name = letter_id(letter)
        self.resolved.add(name)
        self.answered.add(name)

    def timed_out(self, emission: SpoutEmission) -> None:
        del emission
        self.counts["timed_out"] += 1  # `failed` is called as well

    def error(self, error: Exception) -> None:
        self.errors.append(error)


class SpoutProcess:
    """It opens the spout at once. `crash` closes nothing; the session at the store lapses."""

    def __init__(self, world: World, books: Books, config: SpoutConfig) -> None:
        self.books = books
        self.config = config
        self.loops = StepLoops()
        self.tree = MemoryTree(world.backend)
        self._world = world
        for state in world.states().values():
            self.books.attempts.update(stored_attempts(state))
        services = SpoutServices(
            client=InProcessClient(world.service, world.settings, world.skewed, world.random),
            store=StoreTopics(
                OutageTree(self.tree, world.outage),
                world.paths,
                reset_command="kinesis-spout reset",
            ),
            clock=world.skewed,
            new_pool=InlinePool,
            start_loop=self.loops,
            new_feed=InlineFeed,
            wait_for=wait_in(world.skewed),
            random=world.random,
            pacers=ShardPacers(world.settings.rate),
        )
        self.spout = KinesisSpout(self.config, services=services)
        self.spout.open()

    @property
    def error(self) -> Exception | None:
        """The error that stopped the spout, if any."""
        session = self.spout._session
        return None if session is None else session.scheduler.error

    def emit(self) -> SpoutEmission | None:
        emission = self.spout.next_tuple()
        if emission is not None:
            self.books.on_emission(emission)
            if not self.config.tracking:
                self.books.acked(emission)
        return emission

    @property
    def isolated(self) -> str | None:
        """The name of the record that is announced or delivered alone, if its outcome is not
        stored.
        """
        isolation = self._isolation()
        if isolation is None or isolation.emission is None or isolation.phase is Phase.SETTLED:
            return None
        return record_id(isolation.emission)

    @property
    def announced(self) -> str | None:
        """The same, if it was not emitted."""
        isolation = self._isolation()
        if isolation is None or isolation.phase >= Phase.OUT or not isolation.waits_for_outcome:
            return None
        return self.isolated

    @property
    def touched(self) -> set[str]:
        """Records that it has emitted or announced."""
        names = {record_id(emission) for emission in self.books.handed}
        return names if self.isolated is None else {*names, self.isolated}

    @property
    def waits_for_commit(self) -> bool:
        """Whether its next record comes after a commit at the earliest."""
        return self.isolated is not None and not self.books.pending

    def _isolation(self) -> Isolation | None:
        session = self.spout._session
        return None if session is None else session.scheduler.rotation.isolation

    def crash(self) -> None:
        for loop in self.loops.by_name.values():
            loop.ended = True
        self._world.backend.expire(self.tree.session_id())

    def close(self) -> None:
        self.spout.close()

    def check(self) -> None:
        """The spout's counts equal what happened."""
        if self.error is not None:
            return
        metrics = self.spout.metrics()
        counts = metrics.total.counts
        told = {
            name: getattr(counts, name)
            for name in ("emitted", "acked", "failed", "retried", "timed_out")
        }
        assert told == {name: self.books.counts[name] for name in told}, (
            f"{told} was counted, of {self.books.counts}"
        )
        announced = [] if self.announced is None else [self.announced]
        pending = Counter(name.partition(":")[0] for name in [*self.books.pending, *announced])
        for shard_id, shard in metrics.shards.items():
            is_given_up = not self._world.lists(shard_id)
            assert is_given_up or shard.pending == pending[shard_id], (
                f"{shard_id} has {shard.pending} pending, not {pending[shard_id]}"
            )
        assert self.spout._open_session().scheduler.rotation.pending == metrics.total.pending
