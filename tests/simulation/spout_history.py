"""A random history of standalone spouts from its seed: drawn, played, and checked as a whole."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kinesis_spout.spout.config import DEFAULT_MAX_PENDING
from state.retry_policy import RetryPolicy
from state.tracker.inflight_record_tracker import UNANSWERED
from tests.simulation.history import begins_on_backlog, count_world, telling
from tests.simulation.source_history import SETTLES_S
from tests.simulation.spout_process import letter_id
from tests.simulation.spout_steps import SpoutJob, SpoutSteps
from tests.simulation.state_steps import Pauses
from tests.simulation.stream_steps import StreamSteps
from tests.simulation.world import World
from tests.support.spout.spout_world import LOOPS

if TYPE_CHECKING:
    from collections import Counter

    from tests.simulation.spout_process import SpoutProcess

STEPS = 60
MOST_ROUNDS = 600
WEIGHTS: dict[str, int] = {
    "put": 20,
    "turn": 40,
    "step": 15,
    "emit": 10,
    "answer": 20,
    "answer_all": 10,
    "pause": 2,
    "crash": 5,
    "deadly": 2,
    "close": 4,
    "zombie": 3,
    "lose_session": 2,
    "lose_answers": 2,
    "store_outage": 2,
    "split": 5,
    "merge": 4,
    "update_shard_count": 2,
    "generations": 2,
    "empty_pages": 2,
    "iterators_expire": 1,
    "time": 6,
    "skew": 2,
    "fault": 6,
    "pause_application": 3,
    "resume_application": 5,
}
DAYS = {"retention": 3, "long_pause": 3}


class SpoutHistory(StreamSteps, SpoutSteps, Pauses):
    def turn(self) -> None:
        self.do_turn()

    def read_little(self) -> None:
        for _ in range(self.random.choice((2, 4))):
            self.do_turn()
            self.do_answer_all()

    def play(self, weights: dict[str, int]) -> None:
        for _ in range(STEPS):
            name = self.random.choices(list(weights), weights=list(weights.values()))[0]
            self.log.append(name)
            self.obeying(name, getattr(self, f"do_{name}"))
            self.check()
        self.log.append("finish")
        self.finish()
        self.check()
        self.check_end()

    def check(self) -> None:
        super().check()
        for process in self.spouts.processes.values():
            process.check()

    def finish(self) -> None:
        """Stop the faults and end a pause, then run until nothing is left to read and nothing
        waits.
        """
        self.world.fake.faults.clear()
        self.do_resume_application()
        self.world.outage.left = 0
        self.refusals = 0.0
        self.spouts.stop()
        self.spouts.options |= {
            "max_pending": DEFAULT_MAX_PENDING,
            "max_unresolved_per_shard": 1000,
            "prefetch_records": 1000,
        }
        self.world.clock.advance(SETTLES_S)
        self.world.note_shards()
        for _ in range(MOST_ROUNDS):
            self.open_all()
            came = 0
            for process in list(self.spouts.processes.values()):
                for name in LOOPS:
                    self.step(process, name)
                came += self.drain(process)
            if not came and not self.missing() and not self.stuck():
                break
            self.world.clock.advance(0.0 if came else 1.0)
        self.spouts.orderly = True
        self.spouts.stop()

    def drain(self, process: SpoutProcess) -> int:
        """Ack all that comes now, one record at a time if need be. Returns how many."""
        came = 0
        while True:
            emissions = self.emit(process, 10_000)
            for emission in emissions:
                assert emission.ack() == process.config.tracking
            came += len(emissions)
            if process not in self.spouts.processes.values():
                return came
            if process.waits_for_commit:
                self.step(process, "commit")
            elif not emissions:
                return came

    def check_end(self) -> None:
        self.check_all_was_read()
        alive = self.deadly - self.letters() - self.done
        assert not alive & self.world.kept(), f"records that end their process live on: {alive}"
        limit = self.spouts.options["retry"].retry_limit
        for letter in self.dead:
            name = letter_id(letter)
            if letter.reason == UNANSWERED:
                assert name in self.deadly | self.spouts.charged, f"{name} is innocent"
            if letter.data is None:
                assert self.days_passed, f"{name} is said to be gone"
            elif name not in self.rejected:
                assert letter.attempts == limit + 1, (
                    f"{name} was dead-lettered after {letter.attempts} attempts"
                )
            else:
                assert letter.attempts <= limit + 1


def drawn_options(random: Random) -> dict[str, Any]:
    """Options of a spout, drawn so that pages, limits and times are small or large."""
    return {
        "total_tasks": random.choice((1, 1, 2, 3)),
        "max_pending": random.choice((1, 5, 50, DEFAULT_MAX_PENDING)),
        "max_unresolved_per_shard": random.choice((1, 4, 1000)),
        "message_timeout_s": random.choice((None, 0.5, 5.0, 30.0)),
        "tracking": random.random() < 0.95,
        "retry": RetryPolicy(
            retry_limit=random.choice((0, 1, 3)),
            first_delay_ms=random.choice((0, 500, 5_000)),
            jitter=random.choice((0, 0.5)),
        ),
        "prefetch_records": random.choice((1, 10, 1000)),
        "prefetch_bytes": random.choice((30, 64 << 20, 64 << 20)),
        "idle_poll_s": random.choice((0.01, 0.25)),
        "shard_refresh_interval_s": random.choice((0.1, 0.1, 5.0)),
        "fetch_concurrency": random.choice((1, 8)),
    }


def drawn(seed: int) -> tuple[SpoutHistory, dict[str, int]]:
    """A history that has not begun, and the weight of each of its steps."""
    random = Random(seed)  # noqa: S311  # a history to repeat, not a secret
    world = World.drawn(random)
    world.aggregates = random.random() < 0.4
    pushed = {"read_mode": "efo", "consumer_name": "reader"} if seed % 2 else {}
    job: Any = SpoutJob(drawn_options(random) | pushed, orderly=random.random() < 0.5)
    history = SpoutHistory(world, random, job, refusals=random.choice((0.0, 0.2)))
    history.days_pass = random.random() < 0.25
    history.log.append(f"{'days pass, ' if history.days_pass else ''}{history.spouts.options}")
    if history.days_pass and begins_on_backlog(seed):
        history.log.append("backlog")
        history.begin_on_backlog()
    history.open_all()  # records put from here on arrive after the pin, even a late one
    world.clock.advance(10)
    history.read_some_of_backlog(history.read_little)
    weights = WEIGHTS | (DAYS if history.days_pass else {})
    return history, weights | ({"break": 2} if pushed else {})


def play_spout(seed: int) -> Counter[str]:
    """Play a history; returns the counts of its events. Raises `BrokenPromiseError`."""
    history, weights = drawn(seed)
    world = history.world
    with telling(seed, [history], history.log, world.warnings):
        history.play(weights)
    count_world(world, world.counts)
    return world.counts
