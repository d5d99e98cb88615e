"""A spout whose background steps a test takes, on a stream of FakeKinesis in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.config import ReadRate
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutEmission
from state.retry_policy import RetryPolicy
from tests.simulation.in_process import Service
from tests.support.simulated.simulated_job import APPLICATION, STREAM
from tests.support.spout.spout_world import StepLoops, services_on, spout_config

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics
    from tests.support.simulated.simulated_job import SimulatedJob

EXACT = RetryPolicy(retry_limit=2, first_delay_ms=1_000, jitter=0)


class SteppedSpout:
    """An open spout. `letters`: the dead letters that its sink took; `refuse_letters` makes the
    sink fail.
    """

    def __init__(
        self, job: SimulatedJob, *, store: StoreTopics | None = None, **changes: Any
    ) -> None:
        self.job = job
        self.letters: list[Any] = []
        self.refuse_letters = False
        self._loops = StepLoops()
        rate = ReadRate(reads_per_second=1000, bytes_per_second=1e9)
        given: dict[str, Any] = {
            "stream": STREAM,
            "application": APPLICATION,
            "retry": EXACT,
            "idle_poll_s": 0.01,
            "dead_letter": self._take_letter,
        }
        self.services = services_on(
            Service(job.fake),
            job.clock,
            store=store or job.store(),
            start_loop=self._loops,
            rate=rate,
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
        found = []
        while (emission := self.spout.next_tuple()) is not None:
            found.append(emission)
            if ack:
                emission.ack()
        return found

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

    def _take_letter(self, letter: Any) -> None:
        if self.refuse_letters:
            raise OSError("the dead letters are full")
        self.letters.append(letter)


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
