"""What must hold of a drill's history. Pure: it gets a history and returns what is wrong with it.

The promises are those of the page on guarantees (`docs/concepts/guarantees.md`), for a standalone
spout, which answers record by record, and for a Spark job, whose batches come again as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import ACK, FAIL, GOT, LETTER, REJECT, Fate, fate
from kinesis_spout.drills.history.redeliveries import redeliveries
from kinesis_spout.drills.history.states import (
    BEGIN,
    StateView,
    first_sample_after,
    states_by_shard,
)
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kinesis_spout.drills.history.events import Fault, History, Put, RecordId, Sample, Told
    from kinesis_spout.drills.history.redeliveries import Redelivery
    from kinesis_spout.drills.history.states import Place, ShardStates
    from state.shard_state import ShardState

_NEVER_NS = 1 << 63


class Promise(StrEnum):
    """What is said when one is broken."""

    PROCESSED = "records were lost"
    PUT = "records were delivered that nobody put"
    OUTCOME = "records had another outcome than theirs"
    LETTERS = "dead letters are not as they must be"
    ORDER = "records of a key were first delivered out of order"
    ONCE = "records came again without a reason"
    FORWARD = "checkpoints moved back"
    NOT_PASSED = "states passed records without an outcome"
    DONE = "states are left with something to do"


def broken_promises(history: History) -> list[str]:
    """A sentence for each promise that was broken, with examples; empty when all were kept."""
    return sentences(breaches(history, redeliveries(history)))


def breaches(history: History, again: Sequence[Redelivery]) -> dict[Promise, list[str]]:
    """What was found against each promise, one text for each record, letter or state. `again`: the
    history's redeliveries.
    """
    states = states_by_shard(history.samples)
    checks: dict[Promise, Callable[[History], Iterator[str]]] = {
        Promise.PROCESSED: _lost,
        Promise.PUT: _never_put,
        Promise.OUTCOME: _wrong_outcomes,
        Promise.LETTERS: _wrong_letters,
        Promise.ORDER: _out_of_order,
        Promise.ONCE: lambda _: _unexplained(again),
        Promise.FORWARD: lambda history: _moved_back(states, history.faults),
        Promise.NOT_PASSED: lambda history: _passed(states, history),
        Promise.DONE: left,
    }
    return {promise: list(check(history)) for promise, check in checks.items()}


def sentences(found: Mapping[Promise, Sequence[str]]) -> list[str]:
    """One for each promise that something was found against, with up to three examples."""
    return [
        f"{len(examples)} {promise}: {'; '.join(examples[:3])}"
        for promise, examples in found.items()
        if examples
    ]


def unanswered_puts(history: History) -> int:
    """How many delivered records are not among the puts, and may be so: the answer to a put can be
    lost, so that the record was put again.
    """
    return len({told.record for told, is_known in _strangers(history) if is_known})


# records --------------------------------------------------------------------------------------
def _lost(history: History) -> Iterator[str]:
    resolved = {told.record for told in history.told if told.is_outcome}
    return (f"{put.key} {put.number}" for put in history.puts if put.record not in resolved)


def _never_put(history: History) -> Iterator[str]:
    return (_name(told) for told, is_known in _strangers(history) if not is_known)


def _strangers(history: History) -> Iterator[tuple[Told, bool]]:
    """Deliveries of records that are not among the puts; and whether the same content is, as far as
    one can know.
    """
    records = {put.record for put in history.puts}
    strangers = [one for one in history.told if one.step is GOT and one.record not in records]
    contents = {(put.key, put.number) for put in history.puts} if strangers else set()
    for told in strangers:
        yield told, not history.fates_known or (told.key, told.number) in contents


def _unexplained(again: Sequence[Redelivery]) -> Iterator[str]:
    for one in again:
        if not one.explained:
            what = "a letter" if one.told.step is LETTER else "delivered"
            yield (
                f"{_name(one.told)} of {one.told.shard_id}, {what} by {one.told.run} after "
                f"{one.since.step} by {one.since.run}"
            )


def _wrong_outcomes(history: History) -> Iterator[str]:
    """A dead letter of a record that need not die, an ack of one that must. A record may die of the
    ends of processes while it was delivered: that is what the product takes it for.
    """
    if not history.fates_known:
        return
    for put, told in _of_puts(history):
        its = fate(put.number)
        if told.step is LETTER and not its.is_dead and not _may_be_unanswered(told, history):
            yield f"{put.key} {put.number} was dead-lettered: {told.reason}"
        if told.step is ACK and its.is_dead:
            yield f"{put.key} {put.number} was acked"
        if told.step is REJECT and its is not Fate.REJECTED:
            yield f"{put.key} {put.number} was rejected"


def _may_be_unanswered(letter: Told, history: History) -> bool:
    """Whether so many processes ended before the letter as it says, so that the record may be what
    killed them. Its failures are attempts, too, and were answered.
    """
    if UNANSWERED not in letter.reason:
        return False
    ends = sum(bool(fault.run) and fault.began_ns < letter.at_ns for fault in history.faults)
    failures = sum(told.record == letter.record and told.step is FAIL for told in history.told)
    return letter.attempt <= ends + failures


def _wrong_letters(history: History) -> Iterator[str]:
    """A letter has a reason, and the attempts that its record had."""
    failed: dict[RecordId, set[int]] = defaultdict(set)
    for told in history.told:
        if told.step in (FAIL, REJECT):
            failed[told.record].add(told.attempt)
    for put, told in _of_puts(history):
        if told.step is not LETTER:
            continue
        if not told.reason:
            yield f"the letter of {put.key} {put.number} has no reason"
        due = _due_attempts(put, failed[told.record], history)
        if due is not None and UNANSWERED not in told.reason and told.attempt not in due:
            yield (
                f"the letter of {put.key} {put.number} has {told.attempt} attempts instead of "
                f"{' or '.join(map(str, sorted(due)))}"
            )


def _due_attempts(put: Put, failed: set[int], history: History) -> set[int] | None:
    """The numbers of attempts that its letter may have; None if nobody can know. `failed`: the
    attempts that it has failed at.
    """
    if not history.fates_known or not fate(put.number).is_dead:
        return None
    if fate(put.number) is Fate.FAILS_ALWAYS and history.retry_limit is not None:
        return {history.retry_limit + 1}
    return failed or {1}


# order ----------------------------------------------------------------------------------------
def _out_of_order(history: History) -> Iterator[str]:
    """The first deliveries of a key, by the numbers of its records."""
    puts = {put.record: put for put in history.puts}
    newest: dict[str, list[tuple[int, int]]] = defaultdict(list)  # number, time: both ascending
    seen: set[RecordId] = set()
    excuses = _Excuses(history)
    for told in history.told:
        if told.step is not GOT or told.record in seen or told.record not in puts:
            continue
        seen.add(told.record)
        put = puts[told.record]
        of_key = newest[put.key]
        if not of_key or put.number > of_key[-1][0]:
            of_key.append((put.number, told.at_ns))
            continue
        overtaken_ns = of_key[bisect_right(of_key, (put.number, _NEVER_NS))][1]
        if not excuses.take(told, put, overtaken_ns):
            yield f"{put.key} {put.number} after {of_key[-1][0]}"


class _Excuses:
    """A kill may come between a delivery and its line. Such a record was the last that its process
    had delivered, so it was in its order then: its successors came after the kill. It was stored as
    unresolved, or else its shard would have been read from it on, in order. Each kill excuses one.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._left = [fault for fault in history.faults if fault.run]

    def take(self, told: Told, put: Put, overtaken_ns: int) -> bool:
        """Whether there is a kill that excuses this late first delivery; it does so only once.
        `overtaken_ns`: when a later record of the key was first delivered.
        """
        for fault in self._left:
            if (
                put.at_ns <= fault.ended_ns
                and fault.began_ns < overtaken_ns
                and self._is_of_the_task(fault, told)
                and not self._was_unread(fault, told)
            ):
                self._left.remove(fault)
                return True
        return False

    def _is_of_the_task(self, fault: Fault, told: Told) -> bool:
        tasks = self._history.tasks
        return tasks.get(fault.run) == tasks.get(told.run)

    def _was_unread(self, fault: Fault, told: Told) -> bool:
        """Whether a state says, after the kill, that nobody had read the record yet."""
        sample = first_sample_after(self._history.samples, fault.ended_ns)
        if sample is None or sample.ended_ns > told.at_ns:
            return False
        state = sample.states.get(told.shard_id)
        return state is None or not StateView(state).is_unresolved(told.record[1:])


# states ---------------------------------------------------------------------------------------
def _moved_back(states: Mapping[str, ShardStates], faults: Sequence[Fault]) -> Iterator[str]:
    """A state of a shard that is behind the one before it. A fault that rewinds excuses that of the
    first sample after it.
    """
    for shard, of_shard in states.items():
        before: StateView | None = None
        excuses = [fault for fault in faults if fault.rewinds]
        for sample, view in zip(of_shard.samples, of_shard.views, strict=True):
            if view is None:
                continue
            if before is not None and view.is_behind(before):
                excuse = next((one for one in excuses if one.began_ns <= sample.ended_ns), None)
                if excuse is None:
                    yield (f"{shard} from {_place(before)} to {_place(view)}")
                else:
                    excuses.remove(excuse)
            excuses = [one for one in excuses if one.ended_ns > sample.began_ns]
            before = view


def _place(view: StateView) -> str:
    return f"checkpoint {view.state.checkpoint_text}, read position {view.state.read_position}"


def _passed(states: Mapping[str, ShardStates], history: History) -> Iterator[str]:
    """A state says that a record is resolved, and no process has told an outcome of it by then; or
    its checkpoint is beyond a record that it has as unresolved.
    """
    outcome_ns: dict[RecordId, int] = {}
    for told in history.told:
        if told.is_outcome:
            outcome_ns.setdefault(told.record, told.at_ns)
    places: dict[str, list[Place]] = defaultdict(list)
    for put in history.puts:
        places[put.shard_id].append(put.record[1:])
    for shard, of_shard in states.items():
        yield from _passed_in(shard, of_shard, sorted(places[shard]), outcome_ns)


def _passed_in(
    shard: str, states: ShardStates, places: Sequence[Place], outcome_ns: Mapping[RecordId, int]
) -> Iterator[str]:
    """Each record is looked at when a state first covers it; again only while it is unresolved."""
    covered = 0
    unresolved: list[Place] = []
    for sample, view in zip(states.samples, states.views, strict=True):
        if view is None:
            continue
        if (passed := view.passed_place) is not None:
            yield (
                f"{shard} has the checkpoint {view.state.checkpoint_text} and {passed[0]} as "
                "unresolved"
            )
        end = bisect_right(places, view.covers_to, lo=covered)
        still = []
        for place in (*unresolved, *places[covered:end]):
            if view.is_unresolved(place) or place > view.covers_to:
                still.append(place)
            elif outcome_ns.get((shard, *place), _NEVER_NS) > sample.ended_ns:
                yield f"{shard} at {view.state.read_position} has passed {place[0]}"
        unresolved, covered = still, end


def left(history: History) -> Iterator[str]:
    """Of the last states: closed shards that are not finished, unresolved records, unread ones. If
    there is nothing, no process holds a record, and none will be delivered again: an outcome that a
    killed process told of may not have been stored.
    """
    if not history.samples:
        yield "no state was ever read"
        return
    states = history.samples[-1].states
    for shard, state in states.items():
        if state.unresolved_count:
            yield f"{shard} has {state.unresolved_count} unresolved records"
    last: dict[str, Place] = {}
    for put in history.puts:
        last[put.shard_id] = max(put.record[1:], last.get(put.shard_id, BEGIN))
    final = _final_states(history.samples)
    for shard in sorted({*last, *history.shards, *final}):
        yield from _left_in(shard, states.get(shard), final.get(shard), last, history)


def _left_in(
    shard: str,
    state: ShardState | None,
    final: ShardState | None,
    last: Mapping[str, Place],
    history: History,
) -> Iterator[str]:
    """`final`: the last state that the shard ever had. That of a finished shard may be removed when
    the service does not list the shard any more.
    """
    life = history.shards.get(shard)
    is_closed = life is not None and life.closed_ns is not None
    if state is None:
        is_needed = final is not None or shard in last or is_closed
        if is_needed and not (final is not None and final.finished):
            yield f"{shard} has no state"
    elif StateView(state).read_to < last.get(shard, BEGIN):
        yield f"{shard} is read to {state.read_position} only"
    elif is_closed and not state.finished:
        yield f"{shard} is closed and not finished, but {state.lifecycle}"


def _final_states(samples: Sequence[Sample]) -> dict[str, ShardState]:
    found: dict[str, ShardState] = {}
    for sample in samples:
        found |= sample.states
    return found


# names ----------------------------------------------------------------------------------------
def _of_puts(history: History) -> Iterator[tuple[Put, Told]]:
    """Each line with the put of its record, which has its number. Lines of others are left out."""
    puts = {put.record: put for put in history.puts}
    for told in history.told:
        put = puts.get(told.record)
        if put is not None:
            yield put, told


def _name(told: Told) -> str:
    if told.number < 0:
        return ":".join(map(str, told.record[:2]))
    return f"{told.key} {told.number}"
