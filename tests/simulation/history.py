"""A random history from its seed: drawn, played, and checked as a whole."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.testing import ManualClock
from state.report import OnFailure
from tests.simulation.job import StreamJob
from tests.simulation.past import Failing
from tests.simulation.query import StreamsQuery
from tests.simulation.streams_history import COME_AND_GO, History, StreamHistory
from tests.simulation.world import LISTED_S, LOGGER, STREAM, World
from tests.support.simulated.played_outcomes import PlayedOutcomes, policy

if TYPE_CHECKING:
    import logging
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from state.report import OutcomePolicy
    from tests.simulation.past import Past

KINDS = ("plain", "turns", "backups", "days")
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
    "runs": 3,
    "change_of_retention": 0.5,
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


STREAMS = (STREAM, "clicks", "logins")


def drawn(seed: int, streams: int | None = None) -> History:
    """A history that has not begun, of so many streams, or of one mostly. One of several may be
    added later. Half of the services take their time to answer, so that the clock moves while the
    driver looks at one shard or stream after the other.
    """
    random = Random(seed)  # noqa: S311  # a history to repeat, not a secret
    count = random.choices((1, 2, 3), weights=(78, 15, 7))[0]
    clock = ManualClock()
    worlds = [World.drawn(random, stream, clock) for stream in STREAMS[: streams or count]]
    kind = random.choice(KINDS)
    query = StreamsQuery(
        worlds[0].settings, random=random, max_records=random.choice((None, None, 1, 3, 25))
    )
    clock.advance(LISTED_S)
    parts = []
    for world in worlds:
        world.note_shards()
        world.share(worlds[0])
        world.aggregates = random.random() < 0.4
        world.service.answer_s = random.choice((0.0, 0.0, 0.003, 0.03, 0.3, 3.0))
        subscribes = random.random() < 0.5
        if subscribes:
            world.read_by_subscription()
        part = StreamHistory(world, random, StreamJob(query, world))
        part.days_pass = kind == "days"
        part.weights = drawn_weights(part, kind, breaks=subscribes)
        if len(worlds) > 1:
            part.weights |= COME_AND_GO
        parts.append(part)
    history = History(parts, query, random)
    if random.random() < 0.5:
        outcomes = drawn_policy(random)
        for part in parts:
            track(part, drawn_failures(random), outcomes)
        query.track()
    late = random.choice((0, 0, 1)) if len(worlds) > 1 else 0
    query.active = [world.stream for world in worlds[: len(worlds) - late]]
    history.log.append(
        f"{kind}, {told_of(parts[0].job)}, {query.active} of {len(worlds)} streams, at most "
        f"{query.max_records} records"
    )
    begin(history)
    return history


def begin(history: History) -> None:
    """The query of one stream may begin on a backlog that expires, where days pass. A start is
    pinned at once where it matters: expiry before the start is not a loss.
    """
    for part in history.parts:
        if part.days_pass and len(history.parts) == 1 and history.random.random() < 0.5:
            history.log.append("backlog")
            part.begin_on_backlog()
        part.is_new = not part.is_read
        if part.is_read and (part.days_pass or part.starts_at_latest):
            history.log.append(f"{part.stream}: pin")
            part.pin()
        part.read_some_of_backlog(part.read_little)


def drawn_weights(history: StreamHistory, kind: str, *, breaks: bool) -> dict[str, float]:
    """The weights of the steps of a stream."""
    weights = dict(WEIGHTS)
    if breaks:
        weights |= BREAKS
    weights |= {"plain": MISLED, "turns": TURNS, "backups": BACKUPS, "days": DAYS}[kind]
    if history.random.random() < 0.4:
        weights |= REWINDS
    world = history.world
    if world.aggregates and kind != "turns":  # a spout's books know user records of its shards only
        weights |= CHANGES
        world.strays = True
    return weights


def track(history: StreamHistory, failures: tuple[int, ...], outcomes: OutcomePolicy) -> None:
    """The application tracks its records."""
    world = history.world
    history.weights |= OUTAGES | (OUTAGES_OF_DAYS if history.days_pass else {})
    history.failing = Failing(world, history.random, failures)
    history.job.tracked = PlayedOutcomes(
        world.store, world.skewed.now_ms, history.failing, outcomes
    )


def drawn_failures(random: Random) -> tuple[int, ...]:
    return random.choice(((20, 1, 1, 1), (8, 2, 2, 1), (3, 1, 1, 1)))


def drawn_policy(random: Random) -> OutcomePolicy:
    return policy(
        random.choice(list(OnFailure)),
        retry_limit=random.choice((0, 1, 2, 3)),
        first_delay_ms=random.choice((0, 500, 5_000)),
    )


def told_of(job: StreamJob) -> str:
    return f"tracked {job.tracked.policy}" if job.tracked else "not tracked"


def play(seed: int) -> Counter[str]:
    """Play a history; returns the counts of its events. Raises `BrokenPromiseError`."""
    history = drawn(seed)
    parts = history.parts
    with telling(seed, parts, history.log, history.handler):
        try:
            history.play()
        finally:
            history.query.stop()
    counts = parts[0].world.counts
    for part in parts:
        count_world(part.world, counts)
        if part.outcomes is not None:
            counts["outages"] += sum(report.outage for report in part.outcomes.done)
    return counts


@contextmanager
def telling(
    seed: int, parts: Sequence[Past], log: list[str], handler: logging.Handler
) -> Iterator[None]:
    """Within, `handler` alone hears the product's warnings, and an error becomes a
    `BrokenPromiseError` that tells the history.
    """
    propagates, LOGGER.propagate = LOGGER.propagate, False
    LOGGER.addHandler(handler)
    try:
        yield
    except Exception as exc:
        settings = "\n".join(f"{one.world.fake.settings}\n{one.world.settings}" for one in parts)
        told = "\n".join(f"{number:3} {line}" for number, line in enumerate(log))
        raise BrokenPromiseError(
            f"seed {seed}\n{settings}\n{told}\n{type(exc).__name__}: {exc}"
        ) from exc
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = propagates


def count_world(world: World, counts: Counter[str]) -> None:
    """Count the faults that struck, and the records."""
    for operation, fault in world.fake.faults.struck:
        counts[f"fault: {operation} {fault.code or fault.kind.value}"] += 1
    counts["records put"] += world.count
