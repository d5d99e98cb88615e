"""Figures of a drill's history: how long things took, and how much came again. Pure.

A fault is **recovered from** at the first new outcome after its end that was due at its end. A new
outcome is the first one of its record. A record is due that was put, and that does not wait for its
retry. Of a fault of one process, only records count that a process of the same task resolves: the
other tasks never stopped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.history.events import COMMIT, FAIL, GOT
from kinesis_spout.drills.history.redeliveries import redeliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.history.events import Fault, History, RecordId, Told
    from kinesis_spout.drills.history.redeliveries import Redelivery

_S = 1_000_000_000


class Repeats(NamedTuple):
    """Duplicates because of a fault: how many records."""

    fault: Fault
    records: int


def repeats(history: History, again: Sequence[Redelivery] | None = None) -> list[Repeats]:
    """For each fault, the records that had been resolved and were delivered again because of it.
    `again`: the history's redeliveries, if they are known already.
    """
    repeated: dict[Fault, set[RecordId]] = defaultdict(set)
    for one in redeliveries(history) if again is None else again:
        if one.is_duplicate and one.fault is not None:
            repeated[one.fault].add(one.told.record)
    return [Repeats(fault, len(repeated[fault])) for fault in history.faults]


def recoveries_s(history: History) -> dict[Fault, float]:
    """Seconds from the end of each fault to its recovery, which is defined above. Faults are left
    out after which nothing was due.
    """
    put_ns = {put.record: put.at_ns for put in history.puts}
    failed = {told.record for told in history.told if told.step is FAIL}
    first: dict[RecordId, Told] = {}
    failed_ns: dict[RecordId, list[int]] = defaultdict(list)
    for told in history.told:
        if told.is_outcome:
            first.setdefault(told.record, told)
        elif told.step in (FAIL, GOT) and told.record in failed:
            failed_ns[told.record].append(told.at_ns if told.step is FAIL else -told.at_ns)
    outcomes = [told for record, told in first.items() if record in put_ns]
    times_ns = [told.at_ns for told in outcomes]
    # The earliest put from here on: nothing that comes was due before it.
    earliest_ns = list(accumulate((put_ns[one.record] for one in reversed(outcomes)), min))[::-1]
    found = {}
    for fault in history.faults:
        task = history.tasks.get(fault.run)
        for at in range(bisect_right(times_ns, fault.ended_ns), len(outcomes)):
            if earliest_ns[at] > fault.ended_ns:
                break
            told = outcomes[at]
            if (
                put_ns[told.record] <= fault.ended_ns
                and (task is None or history.tasks.get(told.run) == task)
                and not _waits(failed_ns.get(told.record, ()), fault.ended_ns)
            ):
                found[fault] = (told.at_ns - fault.ended_ns) / _S
                break
    return found


def _waits(steps_ns: Sequence[int], at_ns: int) -> bool:
    """Whether the record had failed, and was not delivered again by then. `steps_ns`: its failures,
    and its deliveries as negative numbers, in their order.
    """
    before = [step_ns for step_ns in steps_ns if abs(step_ns) <= at_ns]
    return bool(before) and before[-1] > 0


def deliveries_s(history: History) -> list[float]:
    """Seconds from each put to the first delivery, the shortest first."""
    put_ns = {put.record: put.at_ns for put in history.puts}
    first_ns: dict[RecordId, int] = {}
    for told in history.told:
        if told.step is GOT and told.record in put_ns:
            first_ns.setdefault(told.record, told.at_ns)
    return sorted((at_ns - put_ns[record]) / _S for record, at_ns in first_ns.items())


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
        elif told.step is COMMIT and of in oldest_ns:
            found.append((oldest_ns.pop(of), told.at_ns))
    return found


def drained_s(history: History) -> float | None:
    """Seconds from the last put, or from the end of the last fault if that was later, to the last
    first outcome of a record; 0 if that was before. None if there was no outcome.
    """
    first_ns: dict[RecordId, int] = {}
    for told in history.told:
        if told.is_outcome:
            first_ns.setdefault(told.record, told.at_ns)
    began_ns = max(
        [0, *(put.at_ns for put in history.puts), *(fault.ended_ns for fault in history.faults)]
    )
    return max(0, max(first_ns.values()) - began_ns) / _S if first_ns else None
