"""What must hold of a drill's history. Pure: it gets a history and returns what is wrong with it.

The promises are those of the page on guarantees (`docs/concepts/guarantees.md`), for a standalone
spout, which answers record by record, and for a Spark job, which repeats a batch as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import ACK, FAIL, GOT, LETTER, REJECT, Fate, Fault, fate
from kinesis_spout.drills.history.redeliveries import redeliveries
from kinesis_spout.drills.history.states import (
    BEGIN,
    StateView,
    first_sample_after,
    states_by_shard,
)
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesis_spout.drills.history.events import History, Put, RecordId, Sample, Told
    from kinesis_spout.drills.history.redeliveries import Redelivery
    from kinesis_spout.drills.history.states import Place, ShardStates
    from state.shard_state import ShardState

_NEVER_NS = 1 << 63


class Promise(StrEnum):
    """What is said when one is broken."""

    PROCESSED = "records were lost"
    PUT = "delivered records were never put"
    OUTCOME = "records had a wrong outcome"
    LETTERS = "dead letters are wrong"
    ORDER = "records of a key were first delivered out of order"
    ONCE = "records were redelivered without a reason"
    FORWARD = "checkpoints moved back"
    NOT_PASSED = "states passed records without an outcome"
    DONE = "states are unfinished at the end"


def broken_promises(history: History) -> list[str]:
    """A sentence for each promise that was broken, with examples; empty when all were kept."""
    return sentences(breaches(history, redeliveries(history)))


def breaches(history: History, again: Sequence[Redelivery]) -> dict[Promise, list[str]]:
    """What was found against each promise, one text for each record, letter or state. `again`: the
    history's redeliveries.
    """
    states = states_by_shard(history.samples)
    puts = {put.record: put for put in history.puts}
    # Each line with the put of its record, which has its number. Lines of others are left out.
    lines = [(puts[told.record], told) for told in history.told if told.record in puts]
    found = {
        Promise.PROCESSED: _lost(history),
        Promise.PUT: (_name(told) for told, is_known in _strangers(history) if not is_known),
        Promise.OUTCOME: _wrong_outcomes(history, lines),
        Promise.LETTERS: _wrong_letters(history, lines),
        Promise.ORDER: _out_of_order(history, lines),
        Promise.ONCE: _unexplained(again),
        Promise.FORWARD: _moved_back(states, history.faults),
        Promise.NOT_PASSED: _passed(states, history),
        Promise.DONE: left(history),
    }
    return {promise: list(texts) for promise, texts in found.items()}


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
    for told, since, *_ in (one for one in again if not one.explained):
        what = "dead-lettered" if told.step is LETTER else "delivered"
        yield (
            f"{_name(told)} of {told.shard_id} was {what} again by {told.run}, after the "
            f"{since.step} of {since.run}"
        )


def _wrong_outcomes(history: History, lines: Sequence[tuple[Put, Told]]) -> Iterator[str]:
    """A dead letter of a record that need not die, an ack of one that must. A record may die of the
    ends of processes while it was delivered: that is what the product takes it for.
    """
    for put, told in lines if history.fates_known else ():
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


def _wrong_letters(history: History, lines: Sequence[tuple[Put, Told]]) -> Iterator[str]:
    """A letter has a reason, and the attempts that its record had."""
    failed: dict[RecordId, set[int]] = defaultdict(set)
    for told in history.told:
        if told.step in (FAIL, REJECT):
            failed[told.record].add(told.attempt)
    for put, told in lines:
        if told.step is not LETTER:
            continue
        if not told.reason:
            yield f"the letter of {put.key} {put.number} has no reason"
        its = fate(put.number)
        if not history.fates_known or not its.is_dead or UNANSWERED in told.reason:
            continue  # nobody can know the number of its attempts
        due = failed[told.record] or {1}
        if its is Fate.FAILS_ALWAYS and history.retry_limit is not None:
            due = {history.retry_limit + 1}
        if told.attempt not in due:
            yield (
                f"the letter of {put.key} {put.number} has {told.attempt} attempts instead of "
                f"{' or '.join(map(str, sorted(due)))}"
            )


# order ----------------------------------------------------------------------------------------
def _out_of_order(history: History, lines: Sequence[tuple[Put, Told]]) -> Iterator[str]:
    """The first deliveries of a key, by the numbers of its records."""
    newest: dict[str, list[tuple[int, int]]] = defaultdict(list)  # number, time: both ascending
    seen: set[RecordId] = set()
    kills = [fault for fault in history.faults if fault.run]
    for put, told in lines:
        if told.step is not GOT or told.record in seen:
            continue
        seen.add(told.record)
        of_key = newest[put.key]
        if not of_key or put.number > of_key[-1][0]:
            of_key.append((put.number, told.at_ns))
            continue
        overtaken_ns = of_key[bisect_right(of_key, (put.number, _NEVER_NS))][1]
        excuse = next(
            (one for one in kills if _excuses(one, put, told, overtaken_ns, history)), None
        )
        if excuse is None:
            yield f"{put.key} {put.number} after {of_key[-1][0]}"
        else:
            kills.remove(excuse)


def _excuses(kill: Fault, put: Put, told: Told, overtaken_ns: int, history: History) -> bool:
    """Whether the kill excuses this late first delivery. It excuses only one.

    A kill may come between a delivery and its line. Such a record was the last that its process had
    delivered, so it was in its order then: its successors were delivered after the kill. It was
    stored as unresolved, or else its shard would have been read from it on, in order.
    `overtaken_ns`: when a later record of the key was first delivered.
    """
    if put.at_ns > kill.ended_ns or kill.began_ns >= overtaken_ns:
        return False
    if history.tasks.get(kill.run) != history.tasks.get(told.run):
        return False
    sample = first_sample_after(history.samples, kill.ended_ns)
    if sample is None or sample.ended_ns > told.at_ns:
        return True
    state = sample.states.get(told.shard_id)
    return state is not None and StateView(state).is_unresolved(told.record[1:])


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
                    yield f"{shard} from {before.text} to {view.text}"
                else:
                    excuses.remove(excuse)
            excuses = [one for one in excuses if one.ended_ns > sample.began_ns]
            before = view


def _passed(states: Mapping[str, ShardStates], history: History) -> Iterator[str]:
    """A state says that a record is resolved, and no process has reported an outcome of it by then;
    or its checkpoint is beyond a record that it has as unresolved.
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
            yield f"{shard} has the {view.text} but lists {passed[0]} as unresolved"
        end = bisect_right(places, view.covers_to, lo=covered)
        still = []
        for place in (*unresolved, *places[covered:end]):
            if view.is_unresolved(place) or place > view.covers_to:
                still.append(place)
            elif outcome_ns.get((shard, *place), _NEVER_NS) > sample.ended_ns:
                yield f"{shard} with the {view.text} has passed {place[0]}"
        unresolved, covered = still, end


def left(history: History) -> Iterator[str]:
    """Of the last states: closed shards that are not finished, unresolved records, unread ones. If
    there is nothing, no process has a record, and none will be delivered again: an outcome that a
    killed process reported may not have been stored.
    """
    if not history.samples:
        yield "no state was ever read"
        return
    states = history.samples[-1].states
    for shard, one in states.items():
        if one.unresolved_count:
            yield f"{shard} has {one.unresolved_count} unresolved records"
    last: dict[str, Place] = {}
    for put in history.puts:
        last[put.shard_id] = max(put.record[1:], last.get(put.shard_id, BEGIN))
    ever = _last_states(history.samples)
    for shard in sorted({*last, *history.shards, *ever}):
        life = history.shards.get(shard)
        is_closed = life is not None and life.closed_ns is not None
        if (state := states.get(shard)) is None:
            # That of a finished shard may be removed when the service does not list it any more.
            is_needed = shard in ever or shard in last or is_closed
            if is_needed and not (shard in ever and ever[shard].finished):
                yield f"{shard} has no state"
        elif StateView(state).read_to < last.get(shard, BEGIN):
            yield f"{shard} was read only to {state.read_position}"
        elif is_closed and not state.finished:
            yield f"{shard} is closed, but its state is {state.lifecycle}"


def _last_states(samples: Sequence[Sample]) -> dict[str, ShardState]:
    """The last state that each shard ever had."""
    found: dict[str, ShardState] = {}
    for sample in samples:
        found |= sample.states
    return found


def _name(told: Told) -> str:
    if told.number < 0:
        return ":".join(map(str, told.record[:2]))
    return f"{told.key} {told.number}"
