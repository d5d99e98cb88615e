"""What `explain` says of the states that histories reach is true: doing it helps."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

from kinesis_spout.checkpoints.record import find_skip, write_skip
from kinesis_spout.inspection.cause import ActionKind, Kind
from kinesis_spout.inspection.explanation import explain
from state.process import this_process
from state.sequence_number import SequenceNumber
from tests.simulation.checks import check_look, look_of, possible, troubled
from tests.simulation.history import drawn
from tests.simulation.spout_history import drawn as drawn_spouts
from tests.simulation.streams_history import SETTLES_S, WIDE
from tests.simulation.world import LOGGER
from tests.support.simulated.played_outcomes import end_of
from tests.support.spout.spout_world import LOOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesis_spout.inspection.cause import Action, Explanation
    from tests.simulation.past import Past
    from tests.simulation.spout_history import SpoutHistory
    from tests.simulation.streams_history import StreamHistory

H = TypeVar("H", "StreamHistory", "SpoutHistory")
STEPS = 12
MOST_ROUNDS = 2_000
TRIES = 40  # batches after a due time; in order, each may bring one record
SEEDS = range(settings().max_examples // 2)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Histories are full of outages, which the product reports."""
    LOGGER.propagate = False
    yield
    LOGGER.propagate = True


def walk(history: StreamHistory | SpoutHistory, weights: Mapping[str, float]) -> None:
    """Some steps, and no fault after them."""
    for _ in range(STEPS):
        name = history.random.choices(list(weights), weights=list(weights.values()))[0]
        history.log.append(name)
        history.obeying(name, getattr(history, f"do_{name}"))
    history.log.append("calm")
    history.world.fake.faults.clear()


def reached(seed: int) -> StreamHistory | None:
    """A history somewhere in its middle, from which on no fault strikes. None where days pass, so
    that records may have expired, or where a false answer may have ended the job.
    """
    (history,) = drawn(seed, streams=1).parts
    history.weights.pop("false_answer", None)
    if history.days_pass:
        return None
    walk(history, history.weights)
    history.world.change(**WIDE)
    if history.failing is not None:
        history.failing.outage_until_s = 0.0
    history.world.clock.advance(SETTLES_S)
    history.world.note_shards()
    return history


def rounds(history: H, follow: Callable[[H, Explanation], None]) -> Iterator[list[Explanation]]:
    """The shards that are not well, explained, until all are. Between two rounds, the first one's
    first action is done.
    """
    early: list[str] = []
    for count in range(MOST_ROUNDS):
        look = look_of(history.world)
        check_look(look)
        wrong = troubled(look)
        if not wrong:
            return
        yield wrong
        follow(history, wrong[0])
        if count == MOST_ROUNDS // 2:
            early = history.missing()
    if early and set(early).isdisjoint(history.missing()):
        return  # it reads on, but records are put faster than one after the other is retried
    raise AssertionError([cause.text for cause in wrong[0].causes])


def first_action(explained: Explanation) -> Action:
    """The first that can be done here: nothing is corrected, as what fails draws lots."""
    there = possible(explained)
    return next((one for one in there if one.kind is not ActionKind.CHANGE), there[0])


def is_retry_wait(explained: Explanation) -> bool:
    return explained.root.facts.get("stage") == "waits"


def wait_until(history: Past, until_ms: int) -> None:
    """By the clock of the job's machine, which says when a retry is due."""
    left_ms = until_ms - history.world.skewed.now_ms()
    history.world.clock.advance(max(0, left_ms) / 1000 + 0.001)


def follow(history: StreamHistory, explained: Explanation) -> None:
    """Do what the first action says; the job runs meanwhile, where it is to run."""
    action = first_action(explained)
    if action.kind is ActionKind.RESUME:
        history.do_resume_application()
    elif action.kind is ActionKind.START:
        history.job.stop()
    elif action.until_ms is not None:
        wait_until(history, action.until_ms)
    else:
        history.world.clock.advance(1.0)
    history.run_batch()


def left(history: StreamHistory) -> list[str]:
    """Records that are not resolved. What is put at this very moment, while the last batch reads,
    is no lag yet.
    """
    now_ms = history.world.clock.now_ms()
    return [one for one in history.missing() if history.world.arrivals[one] < now_ms]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_does_what_it_says_ends_with_nothing_to_explain(seed: int) -> None:
    """Then every record is resolved, whatever the history had reached."""
    history = reached(seed)
    if history is None:
        return
    history.job.stop()
    for _ in rounds(history, follow):
        pass
    assert left(history) == []
    history.job.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_retry_that_is_said_to_be_due_is_tried_then(seed: int) -> None:
    """Its state is another one soon after that time, and not before."""
    history = reached(seed)
    if history is None or history.outcomes is None:
        return
    for wrong in rounds(history, follow):
        waits = next(filter(is_retry_wait, wrong), None)
        if waits is not None:
            break
    else:
        return
    about = waits.root.shard_id
    before = history.world.states()[about].unresolved
    until_ms = first_action(waits).until_ms
    assert until_ms is not None
    wait_until(history, until_ms)
    for _ in range(TRIES):
        history.run_batch()
        state = history.world.states().get(about)
        if state is None or state.unresolved != before:
            break
    else:
        raise AssertionError(explain(look_of(history.world), about).root.text)
    history.job.stop()


SKIP = ("checkpoint", "skip", "--shard")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_record_is_given_up_as_it_says(seed: int) -> None:
    """The record holds nothing any more, and nothing else is lost."""
    history = reached(seed)
    if history is None:
        return
    for wrong in rounds(history, follow):
        found = next(filter(None, map(_skip_of, wrong)), None)
        if found is not None:
            break
        if {cause.kind for one in wrong for cause in one.causes} == {
            Kind.CRASH_LOOP,
            Kind.CAUGHT_UP,
        }:
            return  # the ends are shown until a run gets further, and there is nothing to read
    else:
        return
    history.job.stop()
    shard_id, number = found[0], SequenceNumber.parse(found[1])
    with closing(history.world.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=0)
        skip = find_skip(store.shard_states.load(), shard_id, [number])
        write_skip(store.shard_states, store.plans, skip)
    given_up = {
        f"{shard_id}:{one}"
        for one in history.world.records.get(shard_id, [])
        if any(record.first <= one <= end_of(record) for record in skip.records)
    }
    assert given_up or history.world.foreign
    history.done |= given_up
    still = filter(None, map(_skip_of, troubled(look_of(history.world))))
    assert found not in set(still)
    history.check()
    for _ in rounds(history, follow):
        pass
    assert left(history) == []
    history.job.stop()


def _skip_of(explained: Explanation) -> tuple[str, ...] | None:
    """Shard and number of the record that a command gives up, where one is named."""
    commands = (one.command for one in explained.actions())
    return next((words[3:] for words in commands if words[:3] == SKIP), None)


def reached_by_spouts(seed: int) -> SpoutHistory | None:
    """The same of standalone spouts, whose processes have all ended."""
    history, weights = drawn_spouts(seed)
    if history.days_pass:
        return None
    walk(history, weights)
    history.world.outage.left = 0
    history.refusals = 0.0
    history.spouts.stop()
    history.spouts.options |= {"max_pending": 10_000, "max_unresolved_per_shard": 1_000}
    history.world.clock.advance(SETTLES_S)
    history.world.note_shards()
    return history


def follow_with_spouts(history: SpoutHistory, explained: Explanation) -> None:
    """Do what the first action says. The processes that run go on, and ack all that they get."""
    action = first_action(explained)
    if action.kind is ActionKind.RESUME:
        history.do_resume_application()
    elif action.kind in {ActionKind.START, ActionKind.LOOK}:  # what ended it is mended
        history.open_all()
        history.world.clock.advance(1.0)
    elif action.until_ms is not None:
        wait_until(history, action.until_ms)
    else:
        history.world.clock.advance(1.0)
    for process in list(history.spouts.processes.values()):
        for name in LOOPS:
            history.step(process, name)
        history.drain(process)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_does_what_it_says_of_spouts_ends_with_nothing_to_explain(seed: int) -> None:
    """A task that is missing is started, and the shards are read to their tips."""
    history = reached_by_spouts(seed)
    if history is None:
        return
    for _ in rounds(history, follow_with_spouts):
        pass
    history.spouts.stop()
    assert history.missing() == []
