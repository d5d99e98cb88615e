"""A random history from its seed: drawn, played, and checked as a whole."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from state.report import OnFailure
from tests.simulation.checks import Checks
from tests.simulation.edge_stories import EdgeStories
from tests.simulation.failing import Failing
from tests.simulation.job import SimulatedJob
from tests.simulation.pauses import Pauses
from tests.simulation.rewinds import Rewinds
from tests.simulation.state_steps import StateSteps
from tests.simulation.store_loss import StoreLoss
from tests.simulation.turns import Turns
from tests.simulation.world import LOGGER, World
from tests.support.simulated.played_outcomes import PlayedOutcomes, policy

if TYPE_CHECKING:
    from collections import Counter

STEPS = 30
MOST_BATCHES = 5_000
WIDE = {
    "max_records_per_trigger": None,
    "max_records_per_shard": 1000,
    "max_bytes_per_task": 64 << 20,
    "max_unresolved_per_shard": 100_000,
    "probe_max_shards": 100,
    "idle_wait_ms": 0,
}
SETTLES_S = 15.0  # by then a reshard under way is done and listed
WEIGHTS: dict[str, float] = {
    "put": 20,
    "batch": 20,
    "crash": 8,
    "crash_at_write": 7,
    "split": 5,
    "merge": 5,
    "update_shard_count": 3,
    "generations": 2,
    "restart": 3,
    "zombie": 4,
    "stale_driver": 3,
    "lose_session": 2,
    "lose_answers": 2,
    "store_outage": 4,
    "damage": 1,
    "recreate": 0.5,
    "children_named_late": 1,
    "keep_up": 3,
    "available_now": 2,
    "available_now_dies": 0.5,
    "empty_pages": 2,
    "iterators_expire": 1,
    "time": 3,
    "skew": 2,
    "fault": 8,
    "pause_application": 3,
    "resume_application": 4,
}
BACKUPS: dict[str, float] = {
    "new_location": 2,
    "back_up_location": 3,
    "restore_location": 2,
    "back_up_zookeeper": 3,
    "restore_zookeeper": 2,
    "lose_zookeeper": 1,
    "lose_start": 0.5,
    "lose_plans": 1,
    "lose_nodes": 3,
}
DAYS: dict[str, float] = {
    "retention": 4,
    "long_pause": 3,
    "late_replay": 2,
    "late_read": 3,
    "available_now_dies": 2,
}
REWINDS: dict[str, float] = {"rewind": 3}
TURNS: dict[str, float] = {"spout_turn": 6}
BREAKS: dict[str, float] = {"break_subscriptions": 4}
CHANGES: dict[str, float] = {"change_of_aggregates": 5}
OUTAGES: dict[str, float] = {"outage": 3, "reshard_while_records_wait": 3}
OUTAGES_OF_DAYS = {"partly_expired": 2}
# Not where days pass: what a false tip hides may expire unseen.
MISLED: dict[str, float] = {"false_answer": 5}


class BrokenPromiseError(AssertionError):
    """A history broke a promise. The message has the seed, the drawn settings and the log."""


class History(EdgeStories, StateSteps, StoreLoss, Turns, Pauses, Rewinds, Checks):
    def play(self, weights: dict[str, float]) -> None:
        for _ in range(STEPS):
            name = self.random.choices(list(weights), weights=list(weights.values()))[0]
            self.log.append(name)
            self.obeying(name, getattr(self, f"do_{name}"))
            self.check()
            self.remember()
        self.log.append("drain")
        self.drain()
        self.check()
        self.check_end()

    def drain(self) -> None:
        """Stop the faults and end a pause, then run until nothing is left to read and nothing
        waits.
        """
        self.world.fake.faults.clear()
        self.do_resume_application()
        self.job.stop()
        self.world.change(**WIDE)
        if self.failing is not None:
            self.failing.outage_until_s = 0.0
        self.world.clock.advance(SETTLES_S)
        self.world.note_shards()
        for _ in range(MOST_BATCHES):
            ran = self.run_batch()
            # A query that has ended leaves its batch in the sink, unfinished: it is replayed first.
            if not isinstance(ran, str) and not self.missing() and not self.stuck():
                return
            if not ran:
                self.world.clock.advance(10.0)


def drawn(seed: int) -> tuple[History, dict[str, float]]:
    """A history that has not begun, and the weight of each of its steps."""
    random = Random(seed)  # noqa: S311  # a history to repeat, not a secret
    world = World.drawn(random)
    world.aggregates = random.random() < 0.4
    if seed % 2:
        world.read_by_subscription()
    job = SimulatedJob(world.settings, world=world)
    history = History(world, random, job)
    weights = dict(WEIGHTS)
    kind = random.choice(("plain", "turns", "backups", "days"))
    history.days_pass = kind == "days"
    if seed % 2:
        weights |= BREAKS
    weights |= {"plain": MISLED, "turns": TURNS, "backups": BACKUPS, "days": DAYS}[kind]
    if random.random() < 0.4:
        weights |= REWINDS
    if world.aggregates and kind != "turns":  # a spout's books know user records of its shards only
        weights |= CHANGES
        world.strays = True
    if random.random() < 0.5:
        weights |= OUTAGES | (OUTAGES_OF_DAYS if history.days_pass else {})
        history.failing = Failing(
            world, random, random.choice(((20, 1, 1, 1), (8, 2, 2, 1), (3, 1, 1, 1)))
        )
        outcomes = policy(
            random.choice(list(OnFailure)),
            retry_limit=random.choice((0, 1, 2, 3)),
            first_delay_ms=random.choice((0, 500, 5_000)),
        )
        job.tracked = PlayedOutcomes(world.store, world.skewed.now_ms, history.failing, outcomes)
    history.log.append(
        f"{kind}, {'tracked ' + str(job.tracked.policy) if job.tracked else 'not tracked'}"
    )
    if (
        kind == "days" or "LATEST" in world.settings.starting_position.text
    ):  # expiry before the start is not a loss
        history.log.append("pin")
        job.start()
        assert job.reader is not None
        job.reader.coordinator.pin_start()
        world.clock.advance(10)  # records put from here on arrive after the pin, even a late one
    return history, weights


def play(seed: int) -> Counter[str]:
    """Play a history; returns the counts of its events. Raises `BrokenPromiseError`."""
    history, weights = drawn(seed)
    world = history.world
    propagates, LOGGER.propagate = LOGGER.propagate, False
    LOGGER.addHandler(world.warnings)
    try:
        history.play(weights)
    except Exception as exc:
        told = "\n".join(f"{number:3} {line}" for number, line in enumerate(history.log))
        raise BrokenPromiseError(
            f"seed {seed}\n{world.fake.settings}\n{world.settings}\n{told}\n{type(exc).__name__}: "
            f"{exc}"
        ) from exc
    finally:
        LOGGER.removeHandler(world.warnings)
        LOGGER.propagate = propagates
        history.job.stop()
    for operation, fault in world.fake.faults.struck:
        world.counts[f"fault: {operation} {fault.code or fault.kind.value}"] += 1
    if history.outcomes is not None:
        world.counts["outages"] += sum(report.outage for report in history.outcomes.done)
    world.counts["records put"] += world.count
    return world.counts
