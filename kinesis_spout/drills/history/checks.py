"""What must hold of a drill's history, and which records were redelivered because of what. Pure.

The promises are those of the page on guarantees (`docs/concepts/guarantees.md`), for a standalone
spout, which answers record by record, and for a Spark job, which repeats a batch as a whole.

A place in a shard is a sequence number and a sub-sequence number, which compare in this order. A
Kinesis record that is not an aggregate has the sub-sequence number 0.

Theory of redeliveries. A record is delivered (GOT), then answered (ACK, FAIL, REJECT) or not; after
FAIL its retry is due. LETTER resolves it, as ACK does. Another delivery, or another letter, of a
record that is not failed is a redelivery. It needs a reason:

    the record was       a reason is
    resolved             a fault between the outcome and the redelivery, that took the outcome away
                         before it was stored; or one since its delivery that rewinds what was
                         stored: a batch under way is not settled into what was removed
    rejected             the same: it waits for its letter only
    pending              a fault since its delivery; or its process is over, and has left it to
                         another one

A fault of one process is a reason for what that process had delivered. It is one, too, for what the
process delivers itself when it was held up and could not see that others continued.

What is known to be stored: a sample says so; or a spout reported two commits of the shard after it
had applied the ack. A commit begins after the one before it was reported, so the second one has it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kinesis_spout.drills.history.events import NO_NUMBER, Fate, Fault, Sample, Step, fate
from state.position import PositionKind
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesis_spout.drills.history.events import History, Put, RecordId, Told
    from state.shard_state import ShardState

Place: TypeAlias = tuple[int, int]
_NEVER_NS = 1 << 63
BEGIN: Place = (-1, 0)
END: Place = (1 << 500, 0)  # above all sequence numbers
_ALL = 1 << 62  # above all sub-sequence numbers


class StateView:
    """A state, prepared for many questions about records.

    - `read_to`: the place up to which it says that the shard was read, inclusive.
    - `acked_to`: its checkpoint, inclusive. It counts whole Kinesis records.
    """

    def __init__(self, state: ShardState) -> None:
        self.state = state
        position, checkpoint = state.read_position, state.checkpoint
        self.read_to = BEGIN
        if state.end_was_read:
            self.read_to = END
        elif (read := position.sequence) is not None:
            is_at = position.kind is PositionKind.AT
            self.read_to = read.sequence, read.sub - 1 if is_at else _ALL
        self.acked_to = BEGIN if checkpoint is None else (checkpoint.sequence, _ALL)
        if state.finished:
            self.acked_to = END

    @cached_property
    def _ranges(self) -> tuple[list[Place], list[Place]]:
        """The first and the last places of what is unresolved, both ascending."""
        ranges = sorted(
            (
                (one.first.sequence, one.first.sub),
                (one.last.sequence, _ALL if one.whole else one.last.sub),
            )
            for one in self.state.unresolved
        )
        return [first for first, _ in ranges], list(accumulate((last for _, last in ranges), max))

    @property
    def text(self) -> str:
        return (
            f"checkpoint {self.state.checkpoint_text} and read position {self.state.read_position}"
        )

    @property
    def covers_to(self) -> Place:
        """The state claims all records up to here: they are resolved, or it has them as unresolved.
        A checkpoint beyond the read position would be such a claim, too.
        """
        return max(self.read_to, self.acked_to)

    @property
    def passed_place(self) -> Place | None:
        """An unresolved record that the checkpoint has passed, if there is one."""
        firsts, _ = self._ranges
        return next((first for first in firsts[:1] if first <= self.acked_to), None)

    def is_behind(self, before: StateView) -> bool:
        """Whether it has moved back from the state before it."""
        return self.acked_to < before.acked_to or self.read_to < before.read_to

    def is_unresolved(self, place: Place) -> bool:
        """Whether the state names the record as unresolved."""
        firsts, lasts = self._ranges
        at = bisect_right(firsts, place)
        return at > 0 and place <= lasts[at - 1]

    def is_resolved(self, place: Place) -> bool:
        """Whether the state says that the record is acked or dead-lettered."""
        return place <= self.read_to and not self.is_unresolved(place)


ShardStates: TypeAlias = "list[tuple[Sample, StateView | None]]"
"""The states of one shard in the order of their samples, each where it differs from the one before;
None where the shard had none any more.
"""


def states_by_shard(samples: Sequence[Sample]) -> dict[str, ShardStates]:
    """Of all shards that ever had a state."""
    found: dict[str, ShardStates] = {}
    for sample in samples:
        for shard in sample.states.keys() | found.keys():
            of_shard, state = found.setdefault(shard, []), sample.states.get(shard)
            before = of_shard[-1][1] if of_shard else None
            if state != (None if before is None else before.state):
                of_shard.append((sample, None if state is None else StateView(state)))
    return found


# redeliveries -------------------------------------------------------------------------------------
class Redelivery(NamedTuple):
    """A delivery, or a letter, that was not due.

    - `told`: its line. `since`: the line of the record before it.
    - `outcome`: the last outcome of the record before it; None if the record was never resolved, so
      that it is no duplicate.
    - `explained`: whether there is a reason. `fault`: the reason; None for a process that is over.
    """

    told: Told
    since: Told
    outcome: Told | None
    explained: bool
    fault: Fault | None

    @property
    def is_duplicate(self) -> bool:
        """Whether the record was delivered though it had been processed."""
        return self.outcome is not None and self.told.step is Step.GOT


@dataclass(slots=True)
class _Record:
    """The last line of a record, the time of its last delivery, its last outcome, and the fault
    that it was redelivered for.
    """

    last: Told
    got_ns: int
    outcome: Told | None
    fault: Fault | None = None


def redeliveries(history: History) -> list[Redelivery]:
    """In the order of their times. A retry of a redelivery is one, too."""
    reasons = _Reasons(history)
    records: dict[RecordId, _Record] = {}
    found = []
    for told in history.told:
        if told.step is Step.COMMIT:
            continue
        record = records.get(told.record)
        if record is None:
            records[told.record] = _Record(told, told.at_ns, told if told.is_outcome else None)
            continue
        is_got = told.step is Step.GOT
        is_again = record.last.step is not Step.FAIL if is_got else record.last.is_outcome
        if is_again and (is_got or told.step is Step.LETTER):
            found.append(reasons.judge(told, record))
            record.fault = found[-1].fault
        elif is_got and record.outcome is not None:
            found.append(
                Redelivery(told, record.last, record.outcome, explained=True, fault=record.fault)
            )
        # An answer to what is resolved already is late: it changes nothing.
        if told.is_outcome or is_got or not record.last.is_outcome:
            record.last = told
        if is_got:
            record.got_ns = told.at_ns
        if told.is_outcome:
            record.outcome = told
    return found


class _Reasons:
    """Finds the reason of one redelivery after the other."""

    def __init__(self, history: History) -> None:
        self._faults = history.faults
        self._faults_began_ns = [fault.began_ns for fault in history.faults]
        self._ended_by_ns = list(accumulate((fault.ended_ns for fault in history.faults), max))
        self._states = states_by_shard(history.samples)
        self._last_ns = {told.run: told.at_ns for told in history.told}
        # When spouts reported that they had stored a shard, and when they had applied an answer.
        self._commits_ns: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._loop_ns: dict[str, list[int]] = defaultdict(list)
        for told in history.told:
            if told.step is Step.COMMIT:
                self._commits_ns[told.run, told.shard_id].append(told.at_ns)
            elif told.step is not Step.LETTER:
                self._loop_ns[told.run].append(told.at_ns)

    def judge(self, told: Told, record: _Record) -> Redelivery:
        """The reason is a fault of a process rather than another one, and the latest of them."""
        since, best = record.last, None
        is_stored = self._is_stored(told, record, told.at_ns)
        for at in reversed(range(bisect_right(self._faults_began_ns, told.at_ns))):
            if self._ended_by_ns[at] < record.got_ns or (best is not None and best.run):
                break  # so was each fault before it
            fault = self._faults[at]
            if fault.ended_ns < (record.got_ns if fault.rewinds else since.at_ns):
                continue
            # The process that delivers was held up, and could not see the outcome of another one.
            held_up = fault.run == told.run != since.run and since.at_ns >= fault.began_ns
            took_away = (
                not is_stored
                and fault.run in ("", since.run)
                and not self._is_stored(told, record, fault.began_ns)
            )
            if (fault.rewinds or held_up or took_away) and (best is None or fault.run):
                best = fault
        # The process of the line before is another one, and never spoke again.
        is_over = since.run != told.run and self._last_ns[since.run] < told.at_ns
        is_left = (
            not since.is_outcome and since.step is not Step.REJECT and is_over and not is_stored
        )
        return Redelivery(told, since, record.outcome, best is not None or is_left, best)

    def _is_stored(self, told: Told, record: _Record, at_ns: int) -> bool:
        """Whether the record is known to be stored as resolved by then."""
        outcome = record.outcome
        if outcome is None or outcome.at_ns > at_ns:
            return False
        states = self._states.get(told.shard_id, [])
        known = bisect_right(states, at_ns, key=lambda one: one[0].ended_ns)
        view = states[known - 1][1] if known else None
        if view is not None and view.is_resolved((told.sequence, 0)):
            return True
        # A letter is written beside the loop, so nothing is known of it.
        loop_ns = self._loop_ns[outcome.run] if outcome.step is Step.ACK else []
        applied = bisect_right(loop_ns, outcome.at_ns)
        if applied == len(loop_ns):
            return False
        commits_ns = self._commits_ns.get((outcome.run, outcome.shard_id), [])
        at = bisect_right(commits_ns, loop_ns[applied]) + 1
        return at < len(commits_ns) and commits_ns[at] <= at_ns


# promises -----------------------------------------------------------------------------------------
class Promise(StrEnum):
    """What is said when one is broken."""

    PROCESSED = "records were lost"
    PUT = "delivered records were never put"
    OUTCOME = "records were wrongly acked or dead-lettered"
    LETTERS = "dead letters are wrong"
    ORDER = "first deliveries of a key's records were out of order"
    ONCE = "records were redelivered without a reason"
    FORWARD = "checkpoints moved back"
    NOT_PASSED = "shard states passed records that were neither acked nor dead-lettered"
    DONE = "shard states are unfinished at the end"


def broken_promises(history: History) -> list[str]:
    """A sentence for each promise that was broken, with examples; empty when all were kept."""
    return sentences(breaches(history, redeliveries(history)))


def breaches(history: History, again: Sequence[Redelivery]) -> dict[Promise, list[str]]:
    """What was found against each promise, one text for each record, letter or state. `again`: the
    history's redeliveries.
    """
    states = states_by_shard(history.samples)
    resolved = {told.record for told in history.told if told.is_outcome}
    puts = {put.record: put for put in history.puts}
    # Each line with the put of its record, which has its number. Lines of others are left out.
    lines = [(puts[told.record], told) for told in history.told if told.record in puts]
    found = {
        Promise.PROCESSED: (
            f"{put.key} {put.number}" for put in history.puts if put.record not in resolved
        ),
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
def _strangers(history: History) -> Iterator[tuple[Told, bool]]:
    """Deliveries of records that are not among the puts; and whether the same content is, as far as
    one can know.
    """
    records = {put.record for put in history.puts}
    strangers = [one for one in history.told if one.step is Step.GOT and one.record not in records]
    contents = {(put.key, put.number) for put in history.puts} if strangers else set()
    for told in strangers:
        yield told, not history.fates_known or (told.key, told.number) in contents


def _unexplained(again: Sequence[Redelivery]) -> Iterator[str]:
    for told, since, *_ in (one for one in again if not one.explained):
        what = "dead-lettered" if told.step is Step.LETTER else "delivered"
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
        if told.step is Step.LETTER and not its.is_dead and not _may_be_unanswered(told, history):
            yield f"record {put.key} {put.number} was dead-lettered: {told.reason}"
        if told.step is Step.ACK and its.is_dead:
            yield f"record {put.key} {put.number} was acked"
        if told.step is Step.REJECT and its is not Fate.REJECTED:
            yield f"record {put.key} {put.number} was rejected"


def _may_be_unanswered(letter: Told, history: History) -> bool:
    """Whether so many processes ended before the letter as it says, so that the record may be what
    killed them. Its failures are attempts, too, and were answered.
    """
    if UNANSWERED not in letter.reason:
        return False
    ends = sum(bool(fault.run) and fault.began_ns < letter.at_ns for fault in history.faults)
    failures = sum(told.record == letter.record and told.step is Step.FAIL for told in history.told)
    return letter.attempt <= ends + failures


def _wrong_letters(history: History, lines: Sequence[tuple[Put, Told]]) -> Iterator[str]:
    """A letter has a reason, and the attempts that its record had."""
    failed: dict[RecordId, set[int]] = defaultdict(set)
    for told in history.told:
        if told.step in (Step.FAIL, Step.REJECT):
            failed[told.record].add(told.attempt)
    for put, told in lines:
        if told.step is not Step.LETTER:
            continue
        if not told.reason:
            yield f"the dead letter of record {put.key} {put.number} has no reason"
        its = fate(put.number)
        if not history.fates_known or not its.is_dead or UNANSWERED in told.reason:
            continue  # nobody can know the number of its attempts
        due = failed[told.record] or {1}
        if its is Fate.FAILS_ALWAYS and history.retry_limit is not None:
            due = {history.retry_limit + 1}
        if told.attempt not in due:
            yield (
                f"the dead letter of record {put.key} {put.number} has {told.attempt} attempts "
                f"instead of {' or '.join(map(str, sorted(due)))}"
            )


# order ----------------------------------------------------------------------------------------
def _out_of_order(history: History, lines: Sequence[tuple[Put, Told]]) -> Iterator[str]:
    """The first deliveries of a key, by the numbers of its records."""
    newest: dict[str, list[tuple[int, int]]] = defaultdict(list)  # number, time: both ascending
    seen: set[RecordId] = set()
    kills = [fault for fault in history.faults if fault.run]
    for put, told in lines:
        if told.step is not Step.GOT or told.record in seen:
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
    samples = history.samples
    after = bisect_left(samples, kill.ended_ns, key=lambda sample: sample.began_ns)
    if after == len(samples) or samples[after].ended_ns > told.at_ns:
        return True
    state = samples[after].states.get(told.shard_id)
    return state is not None and StateView(state).is_unresolved((told.sequence, 0))


# states ---------------------------------------------------------------------------------------
def _moved_back(states: Mapping[str, ShardStates], faults: Sequence[Fault]) -> Iterator[str]:
    """A state of a shard that is behind the one before it. A fault that rewinds excuses that of the
    first sample after it.
    """
    for shard, of_shard in states.items():
        before: StateView | None = None
        excuses = [fault for fault in faults if fault.rewinds]
        for sample, view in of_shard:
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
    or its checkpoint is beyond a record that it has as unresolved. Each record is looked at when a
    state first covers it; again only while it is unresolved.
    """
    outcome_ns = {told.record: told.at_ns for told in reversed(history.told) if told.is_outcome}
    places: dict[str, list[Place]] = defaultdict(list)
    for put in history.puts:
        places[put.shard_id].append((put.sequence, 0))
    for shard, of_shard in states.items():
        of_puts, covered, unresolved = sorted(places[shard]), 0, list[Place]()
        for sample, view in of_shard:
            if view is None:
                continue
            if (passed := view.passed_place) is not None:
                yield f"{shard} has passed the unresolved record {passed[0]} ({view.text})"
            end, still = bisect_right(of_puts, view.covers_to, lo=covered), []
            for place in (*unresolved, *of_puts[covered:end]):
                if view.is_unresolved(place) or place > view.covers_to:
                    still.append(place)
                elif outcome_ns.get((shard, place[0]), _NEVER_NS) > sample.ended_ns:
                    yield f"{shard} has passed record {place[0]} ({view.text})"
            unresolved, covered = still, end


def left(history: History) -> Iterator[str]:
    """Of the last states: closed shards that are not finished, unresolved records, unread ones. If
    there is nothing, no process has a record, and none will be delivered again: an outcome that a
    killed process reported may not have been stored.
    """
    if not history.samples:
        yield "the drill has read no shard state"
        return
    states = history.samples[-1].states
    for shard, one in states.items():
        if one.unresolved_count:
            yield f"{shard} has {one.unresolved_count} unresolved records"
    last: dict[str, Place] = {}
    for put in history.puts:
        last[put.shard_id] = max((put.sequence, 0), last.get(put.shard_id, BEGIN))
    ever: dict[str, ShardState] = {}  # the last state that each shard ever had
    for sample in history.samples:
        ever |= sample.states
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


def _name(told: Told) -> str:
    if told.number == NO_NUMBER:
        return ":".join(map(str, told.record))
    return f"{told.key} {told.number}"
