"""Which records were redelivered, and because of which fault. Pure.

Theory of operation. A record is delivered (GOT), then answered (ACK, FAIL, REJECT) or not; after
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

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.history.events import ACK, COMMIT, FAIL, GOT, LETTER, REJECT
from kinesis_spout.drills.history.states import states_by_shard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.drills.history.events import Fault, History, RecordId, Told


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
        return self.outcome is not None and self.told.step is GOT


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
        if told.step is COMMIT:
            continue
        record = records.get(told.record)
        if record is None:
            records[told.record] = _Record(told, told.at_ns, told if told.is_outcome else None)
            continue
        is_got = told.step is GOT
        is_again = record.last.step is not FAIL if is_got else record.last.is_outcome
        if is_again and (is_got or told.step is LETTER):
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
            if told.step is COMMIT:
                self._commits_ns[told.run, told.shard_id].append(told.at_ns)
            elif told.step is not LETTER:
                self._loop_ns[told.run].append(told.at_ns)

    def judge(self, told: Told, record: _Record) -> Redelivery:
        since, outcome = record.last, record.outcome
        fault = max(self._faults_of(told, record), key=lambda one: one[0], default=None)
        # The process of the line before is another one, and never spoke again.
        is_over = since.run != told.run and self._last_ns[since.run] < told.at_ns
        is_left = not since.is_outcome and since.step is not REJECT and is_over
        explained = fault is not None or (is_left and not self._is_stored(told, record, told.at_ns))
        return Redelivery(told, since, outcome, explained, None if fault is None else fault[1])

    def _faults_of(self, told: Told, record: _Record) -> Iterator[tuple[tuple[bool, int], Fault]]:
        """The faults that explain it, with their rank: those of a process, and then later ones,
        come first.
        """
        since = record.last
        is_stored: bool | None = None
        for at in reversed(range(bisect_right(self._faults_began_ns, told.at_ns))):
            if self._ended_by_ns[at] < record.got_ns:
                return  # and so was each fault before it
            fault = self._faults[at]
            if fault.ended_ns < (record.got_ns if fault.rewinds else since.at_ns):
                continue
            if is_stored is None:
                is_stored = self._is_stored(told, record, told.at_ns)
            # The process that delivers was held up, and could not see the outcome of another one.
            held_up = fault.run == told.run != since.run and since.at_ns >= fault.began_ns
            if (
                fault.rewinds
                or held_up
                or (
                    not is_stored
                    and fault.run in ("", since.run)
                    and not self._is_stored(told, record, fault.began_ns)
                )
            ):
                yield (bool(fault.run), fault.began_ns), fault

    def _is_stored(self, told: Told, record: _Record, at_ns: int) -> bool:
        """Whether the record is known to be stored as resolved by then."""
        if record.outcome is None or record.outcome.at_ns > at_ns:
            return False
        states = self._states.get(told.shard_id)
        view = None if states is None else states.known_at(at_ns)
        if view is not None and view.is_resolved(told.record[1:]):
            return True
        stored_ns = self._stored_ns(record.outcome)
        return stored_ns is not None and stored_ns <= at_ns

    def _stored_ns(self, outcome: Told) -> int | None:
        """When the ack is known to be stored; None if it is not. A letter is written beside the
        loop, so nothing is known of it.
        """
        if outcome.step is not ACK:
            return None
        loop_ns = self._loop_ns[outcome.run]
        applied = bisect_right(loop_ns, outcome.at_ns)
        if applied == len(loop_ns):
            return None
        commits_ns = self._commits_ns.get((outcome.run, outcome.shard_id), [])
        at = bisect_right(commits_ns, loop_ns[applied]) + 1
        return commits_ns[at] if at < len(commits_ns) else None
