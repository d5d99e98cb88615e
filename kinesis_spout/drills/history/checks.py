"""What must hold of a soak's history. Pure: it gets a history and returns what is wrong with it.

A record is named by its shard and its sequence number. The promises are those of the page on
guarantees (`docs/concepts/guarantees.md`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.history.events import Fate, Step, fate
from state.position import PositionKind
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.history.events import Fault, History, RecordId, Sample, Told
    from state.shard_state import ShardState

END = 1 << 500  # above all sequence numbers
_OF_THE_LOOP = frozenset({Step.GOT, Step.ACK, Step.FAIL, Step.REJECT})


def broken_promises(history: History) -> list[str]:
    """A sentence for each promise that was broken, with an example; empty when all were kept."""
    checks = {
        "records were lost": _lost,
        "records had another outcome than theirs": _wrong_outcomes,
        "records of a key were first delivered out of order": _out_of_order,
        "checkpoints moved back": _moved_back,
        "states passed records without an outcome": _passed,
        "records came again that were stored as resolved": _again_though_stored,
        "records came again that were acked before the last commit began": _again_though_committed,
        "states are left with something to do": _left,
    }
    found = {what: list(check(history)) for what, check in checks.items()}
    return [
        f"{len(examples)} {what}: {'; '.join(examples[:3])}"
        for what, examples in found.items()
        if examples
    ]


class Repeats(NamedTuple):
    """Records that came again because of a kill, and how long before it the oldest was resolved."""

    fault: Fault
    records: int
    oldest_s: float


def repeats(history: History) -> list[Repeats]:
    """For each kill, the records that its process had resolved and that were delivered again."""
    resolved: dict[str, dict[RecordId, int]] = defaultdict(dict)
    last_got: dict[RecordId, int] = {}
    for told in history.told:
        if told.is_outcome:
            resolved[told.run].setdefault(told.record, told.at_ns)
        elif told.step is Step.GOT:
            last_got[told.record] = told.at_ns
    found = []
    for fault in history.faults:
        again = [
            at_ns
            for record, at_ns in resolved[fault.run].items()
            if last_got.get(record, 0) > fault.ended_ns
        ]
        oldest_s = (fault.began_ns - min(again)) / 1e9 if again else 0.0
        found.append(Repeats(fault, len(again), oldest_s))
    return found


def handovers_s(history: History) -> dict[Fault, float]:
    """Seconds from when each killed process could have a successor to that one's first record; from
    when that record was put, if there was none before.
    """
    put_ns = {put.record: put.at_ns for put in history.puts}
    found = {}
    for fault in history.faults:
        first = next(
            (
                told
                for told in history.told
                if told.step is Step.GOT
                and told.at_ns > fault.ended_ns
                and history.tasks[told.run] == history.tasks.get(fault.run)
            ),
            None,
        )
        if first is not None and fault.free_ns:
            could_ns = max(fault.free_ns, put_ns.get(first.record, 0))
            found[fault] = (first.at_ns - could_ns) / 1e9
    return found


def deliveries_s(history: History) -> list[float]:
    """Seconds from each put to the first delivery, the shortest first."""
    put_ns = {put.record: put.at_ns for put in history.puts}
    first_ns: dict[RecordId, int] = {}
    for told in history.told:
        if told.step is Step.GOT:
            first_ns.setdefault(told.record, told.at_ns)
    return sorted((at_ns - put_ns[record]) / 1e9 for record, at_ns in first_ns.items())


def commit_delays(history: History) -> list[tuple[int, int]]:
    """For each commit of a shard, the time of the oldest outcome since the commit before it, and
    its own, in ns.
    """
    oldest_ns: dict[tuple[str, str], int] = {}
    found = []
    for told in history.told:
        of = told.run, told.shard_id
        if told.is_outcome:
            oldest_ns.setdefault(of, told.at_ns)
        elif told.step is Step.COMMIT and of in oldest_ns:
            found.append((oldest_ns.pop(of), told.at_ns))
    return found


# the checks -----------------------------------------------------------------------------------
def _lost(history: History) -> Iterator[str]:
    resolved = {told.record for told in history.told if told.is_outcome}
    return (f"{put.key} {put.number}" for put in history.puts if put.record not in resolved)


def _wrong_outcomes(history: History) -> Iterator[str]:
    """A dead letter of a record that need not die, or an ack of one that must. A record may die of
    the kills while it was delivered alone: that is what the product takes it for.
    """
    for told in history.told:
        must_die = fate(told.number).is_dead
        if told.step is Step.LETTER and not must_die and told.reason != UNANSWERED:
            yield f"{told.key} {told.number} was dead-lettered: {told.reason}"
        if told.step is Step.ACK and must_die:
            yield f"{told.key} {told.number} was acked"
        if told.step is Step.REJECT and fate(told.number) is not Fate.REJECTED:
            yield f"{told.key} {told.number} was rejected"


def _out_of_order(history: History) -> Iterator[str]:
    """A kill may come between a delivery and its line: so one late record for each kill of the
    record's task is no first delivery.
    """
    newest: dict[str, int] = {}
    seen: set[RecordId] = set()
    excuses = sorted(
        (fault.began_ns, history.tasks[fault.run]) for fault in history.faults if fault.run
    )
    for told in history.told:
        if told.step is not Step.GOT or told.record in seen:
            continue
        seen.add(told.record)
        if told.number > newest.get(told.key, -1):
            newest[told.key] = told.number
            continue
        task = history.tasks[told.run]
        excuse = next((one for one in excuses if one[1] == task and one[0] < told.at_ns), None)
        if excuse is None:
            yield f"{told.key} {told.number} after {newest[told.key]}"
        else:
            excuses.remove(excuse)


def _moved_back(history: History) -> Iterator[str]:
    checkpoints: dict[str, int] = {}
    read_to: dict[str, int] = {}
    for sample in history.samples:
        for shard, state in sample.states.items():
            checkpoint = _checkpoint(state)
            if checkpoint < checkpoints.get(shard, -1):
                yield f"{shard} from {checkpoints[shard]} to {state.checkpoint_text}"
            if _read_to(state) < read_to.get(shard, -1):
                yield f"{shard}: the read position is {state.read_position}, it was further on"
            checkpoints[shard], read_to[shard] = checkpoint, _read_to(state)


def _passed(history: History) -> Iterator[str]:
    """A state says that a record is resolved, and no spout has told an outcome of it by then."""
    outcome_ns: dict[RecordId, int] = {}
    for told in history.told:
        if told.is_outcome:
            outcome_ns.setdefault(told.record, told.at_ns)
    of_shard: dict[str, list[int]] = defaultdict(list)
    for put in history.puts:
        of_shard[put.shard_id].append(put.sequence)
    known: dict[str, ShardState] = {}
    for sample in history.samples:
        for shard, state in sample.states.items():
            if known.get(shard) == state:
                continue
            known[shard] = state
            for sequence in of_shard[shard]:
                told_ns = outcome_ns.get((shard, sequence, 0), END)
                if told_ns > sample.ended_ns and is_resolved(state, sequence):
                    yield f"{shard} at {state.read_position} has passed {sequence}"


def _again_though_stored(history: History) -> Iterator[str]:
    """The last state that was read before a delivery says that the record is resolved."""
    samples: dict[str, list[tuple[int, ShardState]]] = defaultdict(list)
    for sample in history.samples:
        for shard, state in sample.states.items():
            samples[shard].append((sample.ended_ns, state))
    for told in history.told:
        of_shard = samples[told.shard_id]
        if told.step is not Step.GOT or not of_shard:
            continue
        at = bisect_right(of_shard, told.at_ns, key=lambda one: one[0])
        if at and is_resolved(of_shard[at - 1][1], told.sequence):
            yield f"{told.key} {told.number} of {told.shard_id} by {told.run}"


def _again_though_committed(history: History) -> Iterator[str]:
    """A commit of a shard begins after the one before it was told. So what a process had acked when
    it told of the last commit but one is in the last one.
    """
    last_got = {told.record: told for told in history.told if told.step is Step.GOT}
    runs: dict[str, list[Told]] = defaultdict(list)
    for told in history.told:
        runs[told.run].append(told)
    for run, lines in runs.items():
        commits: dict[str, list[int]] = defaultdict(list)
        for told in lines:
            if told.step is Step.COMMIT:
                commits[told.shard_id].append(told.at_ns)
        for told, applied_ns in _acks(lines):
            began_ns = commits[told.shard_id][-2:-1]
            again = last_got[told.record]
            if began_ns and applied_ns < began_ns[0] and again.at_ns > commits[told.shard_id][-1]:
                yield f"{told.key} {told.number}, acked by {run}, by {again.run}"


def _acks(lines: list[Told]) -> Iterator[tuple[Told, int]]:
    """The acks of one process, each with the time at which it had been applied: that of the next
    line of the loop.
    """
    last: Told | None = None
    for told in lines:
        if told.step in _OF_THE_LOOP:
            if last is not None and last.step is Step.ACK:
                yield last, told.at_ns
            last = told


def _left(history: History) -> Iterator[str]:
    """Of the last states: closed shards that are not finished, unresolved records, unread ones."""
    if not history.samples:
        yield "no state was ever read"
        return
    states = history.samples[-1].states
    for shard, state in states.items():
        if state.unresolved_count:
            yield f"{shard} has {state.unresolved_count} unresolved records"
    last: dict[str, int] = {}
    for put in history.puts:
        last[put.shard_id] = max(put.sequence, last.get(put.shard_id, -1))
    for shard, sequence in last.items():
        if shard not in states:
            before = _last_state(history.samples, shard)
            if before is None or not before.finished:
                yield f"{shard} has no state"
        elif _read_to(states[shard]) < sequence:
            yield f"{shard} is read to {states[shard].read_position} only"


def _last_state(samples: Sequence[Sample], shard: str) -> ShardState | None:
    found: ShardState | None = None
    for sample in samples:
        found = sample.states.get(shard, found)
    return found


def is_resolved(state: ShardState, sequence: int) -> bool:
    """Whether the state says that the record is acked or dead-lettered."""
    return sequence <= _read_to(state) and not any(
        one.first.sequence <= sequence <= one.last.sequence for one in state.unresolved
    )


def _read_to(state: ShardState) -> int:
    """The sequence number up to which the state says that the shard was read."""
    if state.end_was_read:
        return END
    position = state.read_position
    if position.sequence is None:
        return -1
    return position.sequence.sequence - (position.kind is PositionKind.AT)


def _checkpoint(state: ShardState) -> int:
    if state.finished:
        return END
    return -1 if state.checkpoint is None else state.checkpoint.sequence
