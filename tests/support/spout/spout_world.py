"""A standalone spout on a FakeKinesis in this process and a store in memory. Tests take the steps
of its threads: of a spout that they open themselves (`SpoutUnderTest`), or of one that is open on
the stream of a `SimulatedJob` (`SteppedSpout`).
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import InterruptibleClock
from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.reading.pacing import ShardPacers
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.kinesis_spout import KinesisSpout
from kinesis_spout.spout.services import SpoutServices
from kinesis_spout.testing import FakeKinesis, FakeKinesisSettings, ManualClock
from state.memory_store import MemoryBackend, MemoryStateStore
from state.retry_policy import RetryPolicy
from state.store.ownership import TaskShare
from tests.simulation.in_process import InlineFeed, InlinePool, InProcessClient, Service, wait_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.threads import Step
    from state.shard_state import ShardState
    from state.store.runs import RunLog
    from state.znodes.topics import StoreTopics
    from tests.support.simulated.simulated_job import SimulatedJob

STREAM, APPLICATION = "orders", "etl"  # as of a `SimulatedJob`
PLACE = "in-memory:2181"  # the store is given, so nothing connects to this address
AWS = AwsConfig(region="us-east-1")
EXACT = RetryPolicy(retry_limit=2, first_delay_ms=1_000, jitter=0)
LOOPS = ("fetch", "timeouts", "retries", "letters", "commit", "coordinate")


class PassingClock(InterruptibleClock):
    """The machine's clock: time passes by itself. Its sleeps end when the spout is closed."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        super().__init__(self.interrupted)

    def advance(self, seconds: float) -> None:
        """Does nothing: no test waits on this clock for a later time."""


@dataclass
class StepLoop:
    """A `kinesis_spout.threads.Loop` whose steps a test takes. An error ends it, as it
    ends a thread.
    """

    step: Step
    on_error: Callable[[Exception], None]
    wakes: int = 0
    ended: bool = False

    def wake(self) -> None:
        self.wakes += 1

    def stop(self) -> None:
        self.ended = True

    def join(self, _timeout_s: float | None) -> bool:
        return True

    def take(self) -> None:
        if self.ended:
            return
        try:
            self.step()
        except Exception as exc:  # noqa: BLE001  # as in a thread's loop: whatever it is, the spout's user gets it
            self.ended = True
            self.on_error(exc)


class StepLoops:
    """The loops of a spout, by name: a `kinesis_spout.threads.StartLoop`."""

    def __init__(self) -> None:
        self.by_name: dict[str, StepLoop] = {}

    def __call__(self, name: str, step: Step, on_error: Callable[[Exception], None]) -> StepLoop:
        loop = self.by_name[name] = StepLoop(step, on_error)
        return loop

    def take(self, *names: str) -> None:
        for name in names or LOOPS:
            self.by_name[name].take()


def spout_config(**options: Any) -> SpoutConfig:
    given: dict[str, Any] = {
        "stream": STREAM,
        "aws": AWS,
        "zookeeper": PLACE,
        "application": APPLICATION,
        "starting_position": "TRIM_HORIZON",
        "owner_wait_s": 0.0,
    }
    return SpoutConfig(**(given | options))


def services_on(
    service: Service, service_clock: ManualClock | PassingClock, **given: Any
) -> SpoutServices:
    """Whose calls, pools and subscriptions run in the thread of the test, unless it gives others.
    `store` and `start_loop` have to be given.
    """
    random = Random(0)  # noqa: S311  # a test to repeat, not a secret
    # of the source's settings, the client takes these two
    terms: Any = SimpleNamespace(aws=AWS, stream=StreamRef.parse(name=STREAM))
    chosen: dict[str, Any] = {
        "clock": service_clock,
        "new_pool": InlinePool,
        "new_feed": InlineFeed,
        "wait_for": wait_in(service_clock),
        "pacers": ShardPacers(ReadRate(reads_per_second=1000)),
    } | given
    client = InProcessClient(service, terms, service_clock, random)
    return SpoutServices(client=client, random=random, **chosen)


@dataclass
class SpoutUnderTest:
    """A spout of a test. `fresh()` is a new process on the same stream and store."""

    clock: ManualClock | PassingClock = field(default_factory=ManualClock)
    fake: FakeKinesis = field(init=False)
    service: Service = field(init=False)  # of the newest spout
    backend: MemoryBackend = field(default_factory=MemoryBackend)
    loops: StepLoops = field(default_factory=StepLoops)
    shards: int = 1
    settings: FakeKinesisSettings = field(default_factory=FakeKinesisSettings)
    new_service: Callable[[FakeKinesis], Service] = Service

    def __post_init__(self) -> None:
        self.fake = FakeKinesis(settings=self.settings, clock=self.clock)
        self.fake.create(STREAM, shards=self.shards)
        self.clock.advance(10)

    def put(self, count: int, *, data: bytes = b"record") -> list[str]:
        """`shardId:sequence` of each."""
        return [self.fake.put(STREAM, f"key {number}", data) for number in range(count)]

    def store(self) -> MemoryStateStore:
        return MemoryStateStore(self.backend, application=APPLICATION, stream=STREAM)

    def services(self, **given: Any) -> SpoutServices:
        self.service = self.new_service(self.fake)
        chosen = {"store": self.store(), "start_loop": self.loops} | given
        if isinstance(self.clock, PassingClock):
            chosen["closing"] = self.clock.interrupted
        return services_on(self.service, self.clock, **chosen)

    def fresh(self, **options: Any) -> KinesisSpout:
        """Another spout on the same stream and store, not opened yet."""
        services = {
            name: options.pop(name)
            for name in ("store", "new_pool", "start_loop", "clock")
            if name in options
        }
        return KinesisSpout(spout_config(**options), services=self.services(**services))

    def run(self) -> RunLog:
        """What the only task tells of its run, for somebody who only looks."""
        with closing(self.store()) as store:
            return store.runs.read()[TaskShare(0, 1)]

    def states(self) -> dict[str, ShardState]:
        return {shard: stored.state for shard, stored in self.store().shard_states.load().items()}


def taken(spout: KinesisSpout, *, acks: bool = False) -> list[SpoutEmission]:
    """What can be emitted now, acked at once with `acks`."""
    came = []
    for emission in iter(spout.next_tuple, None):
        came.append(emission)
        if acks:
            emission.ack()
    return came


def pass_time(
    under_test: SpoutUnderTest,
    spout: KinesisSpout,
    seconds: float,
    *,
    step_s: float = 1.0,
    acks: bool = False,
) -> list[SpoutEmission]:
    """Let the threads run for so long, and return what was emitted, acked at once with `acks`."""
    came: list[SpoutEmission] = []
    ends_s = under_test.clock.monotonic_s() + seconds
    while under_test.clock.monotonic_s() < ends_s:
        under_test.loops.take()
        came += taken(spout, acks=acks)
        under_test.clock.advance(step_s)
    return came


def drain(spout: KinesisSpout, loops: StepLoops, *, rounds: int = 20) -> list[SpoutEmission]:
    """Emissions until there are none, with the background steps in between."""
    came: list[SpoutEmission] = []
    for _ in range(rounds):
        loops.take("fetch", "retries")
        came += taken(spout)
    return came


class SteppedSpout:
    """An open spout. `letters`: the dead letters that its sink took."""

    def __init__(
        self, job: SimulatedJob, *, store: StoreTopics | None = None, **changes: Any
    ) -> None:
        self.job = job
        self.letters: list[Any] = []
        self._loops = StepLoops()
        rate = ReadRate(reads_per_second=1000, bytes_per_second=1e9)
        given: dict[str, Any] = {
            "retry": EXACT,
            "idle_poll_s": 0.01,
            "dead_letter": self.letters.append,
        }
        self.services = services_on(
            Service(job.fake),
            job.clock,
            store=store or job.store(),
            start_loop=self._loops,
            pacers=ShardPacers(rate),
        )
        self.spout = KinesisSpout(spout_config(**(given | changes)), services=self.services)
        self.spout.open()

    def step(self, name: str, times: int = 1) -> None:
        """Take a background step. An error that it raises stops the spout, as in its thread."""
        self._loops.take(*[name] * times)

    def fetch(self) -> None:
        """Read what there is."""
        self.step("fetch", times=4)

    def coordinate(self) -> None:
        """Commit, and assign shards."""
        self.step("commit")
        self.step("coordinate")

    def drain(self, *, ack: bool = True) -> list[SpoutEmission]:
        """Everything that can be emitted now, acked unless `ack` is false."""
        return taken(self.spout, acks=ack)

    def pump(self, rounds: int = 6) -> list[SpoutEmission]:
        """Read, emit, ack and commit several times, beyond the ends of shards too."""
        found: list[SpoutEmission] = []
        for _ in range(rounds):
            self.fetch()
            found += self.drain()
            self.coordinate()
        return found

    def after(self, seconds: float) -> SteppedSpout:
        """Advance the clock."""
        self.job.clock.advance(seconds)
        return self

    def crash(self) -> None:
        """Stop without closing: the session lapses, nothing is committed."""
        self.services.store.close()


def reading(job: SimulatedJob, **changes: Any) -> SteppedSpout:
    """A spout that has read what there is."""
    spout = SteppedSpout(job, **changes)
    spout.fetch()
    return spout


def emitted(
    job: SimulatedJob, count: int = 1, **changes: Any
) -> tuple[SteppedSpout, list[SpoutEmission]]:
    """A spout, and what it has emitted of so many new records, without an outcome."""
    job.put(count)
    spout = reading(job, **changes)
    return spout, spout.drain(ack=False)


def payloads(emissions: list[SpoutEmission]) -> list[str]:
    return [emission.data.decode() for emission in emissions]
