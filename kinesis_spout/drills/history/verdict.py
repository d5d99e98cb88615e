"""The verdict on a drill: whether the promises were kept, and its figures. Pure.

`kinesis-spout drill --json` writes a `Verdict` (`verdict_json`) with these names.

A fault is **recovered from** at the first new outcome after its end that was due at its end. A new
outcome is the first one of its record. A record is due that was put, and that does not wait for its
retry. Of a fault of one process, only records count that a process of the same task resolves: the
other tasks never stopped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.drills.history.checks import (
    Promise,
    breaches,
    redeliveries,
    sentences,
    unanswered_puts,
)
from kinesis_spout.drills.history.events import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.history.checks import Redelivery
    from kinesis_spout.drills.history.events import Fault, History, RecordId, Told

_S = 1_000_000_000


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """- `fault`: its name.
    - `at_s`: when it began, from the first put on. `lasted_s`: until it was over.
    - `recovered_s`: from its end to the first new outcome of what was due then; None if nothing
      was due.
    - `repeated`: records that had been processed, and were delivered again because of it.
    """

    fault: str
    at_s: float
    lasted_s: float
    recovered_s: float | None
    repeated: int


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the put of a record to its first delivery: half of the records have theirs
    within `median_s`, 99 in 100 within `p99_s`, all within `max_s`.
    """

    median_s: float
    p99_s: float
    max_s: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """- `ok`: nothing is `broken`. `broken`: sentences.
    - `records`: that were put. `deliveries`: of them, all attempts counted.
    - `acked`, `letters`: records that have one. `failed`: deliveries that were answered so, or
      rejected.
    - `lost`: records without an ack or a letter.
    - `duplicates`: deliveries of records that had been processed. `unexplained`: deliveries and
      letters that were repeated without a reason.
    - `out_of_order`: first deliveries after that of a later record of the key.
    - `drained_s`: from the end of the disturbance until everything was done; None if it never was.
    - `delays`: None if nothing was delivered.
    - `faults`: in the order of their begin. `notes`: sentences about what is no breach.
    - `undone`: why the drill could not do its work; then nothing says whether a promise was kept.
    """

    drill: str
    ok: bool
    broken: list[str]
    records: int
    deliveries: int
    acked: int
    failed: int
    letters: int
    lost: int
    duplicates: int
    unexplained: int
    out_of_order: int
    drained_s: float | None
    delays: Delays | None
    faults: list[FaultFigures]
    notes: list[str]
    undone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """What a drill was, to be judged. `drained_s`: as the drill measured it; it does not count if
    something was never done. `troubles`: what went wrong beside the promises, in sentences; it is
    broken with any. `undone`: why it could not do its work, if it could not. `log`: the file of the
    process that was started last; "" if none was.
    """

    drill: str
    history: History
    drained_s: float | None = None
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    undone: str | None = None
    log: str = ""


def judge(drilled: Drilled, again: Sequence[Redelivery] | None = None) -> Verdict:
    """`again`: the history's redeliveries, if they are known. Of a drill that could not do its
    work, what has no outcome is not lost, and no promise is judged.
    """
    history, undone = drilled.history, drilled.undone
    again = redeliveries(history) if again is None else again
    found = breaches(history, again)
    is_done = not (found[Promise.PROCESSED] or found[Promise.DONE])
    broken = [*drilled.troubles, *sentences(found)] if undone is None else []
    steps = Counter(told.step for told in history.told)
    acked, letters = (
        len({told.record for told in history.told if told.step is step})
        for step in (Step.ACK, Step.LETTER)
    )
    return Verdict(
        drill=drilled.drill,
        ok=not broken and undone is None,
        broken=broken,
        records=len(history.puts),
        deliveries=steps[Step.GOT],
        acked=acked,
        failed=steps[Step.FAIL] + steps[Step.REJECT],
        letters=letters,
        lost=len(found[Promise.PROCESSED]) if undone is None else 0,
        duplicates=sum(one.is_duplicate for one in again),
        unexplained=len(found[Promise.ONCE]),
        out_of_order=len(found[Promise.ORDER]),
        drained_s=drilled.drained_s if is_done else None,
        delays=_delays(history),
        faults=_fault_figures(history, again),
        notes=[*drilled.notes, *_notes(history, again)],
        undone=undone,
    )


def verdict_json(verdict: Verdict) -> bytes:
    """One JSON object, indented."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2)


def _delays(history: History) -> Delays | None:
    put_ns = {put.record: put.at_ns for put in history.puts}
    first_ns = {told.record: told.at_ns for told in reversed(history.told) if told.step is Step.GOT}
    took_s = sorted(
        (first_ns[one] - at_ns) / _S for one, at_ns in put_ns.items() if one in first_ns
    )
    if not took_s:
        return None
    return Delays(
        median_s=round(median(took_s), 3),
        p99_s=round(took_s[len(took_s) * 99 // 100], 3),
        max_s=round(took_s[-1], 3),
    )


def _fault_figures(history: History, again: Sequence[Redelivery]) -> list[FaultFigures]:
    recovered_s = _recoveries_s(history)
    began_ns = min((put.at_ns for put in history.puts), default=0)
    repeated: dict[Fault, set[RecordId]] = defaultdict(set)
    for one in again:
        if one.is_duplicate and one.fault is not None:
            repeated[one.fault].add(one.told.record)
    return [
        FaultFigures(
            fault=fault.name,
            at_s=round((fault.began_ns - began_ns) / _S, 3),
            lasted_s=round((fault.ended_ns - fault.began_ns) / _S, 3),
            recovered_s=recovered_s.get(fault),
            repeated=len(repeated[fault]),
        )
        for fault in history.faults
    ]


def _recoveries_s(history: History) -> dict[Fault, float]:
    """Seconds from the end of each fault to its recovery, which is defined above. Faults are left
    out after which nothing was due.
    """
    put_ns = {put.record: put.at_ns for put in history.puts}
    failed = {told.record for told in history.told if told.step is Step.FAIL}
    first: dict[RecordId, Told] = {}
    waits: dict[RecordId, list[tuple[int, bool]]] = defaultdict(list)  # from a time on
    for told in history.told:
        if told.is_outcome and told.record in put_ns:
            first.setdefault(told.record, told)
        elif told.step in (Step.FAIL, Step.GOT) and told.record in failed:
            waits[told.record].append((told.at_ns, told.step is Step.FAIL))
    outcomes = list(first.values())
    times_ns = [told.at_ns for told in outcomes]
    # The earliest put from here on: nothing that comes was due before it.
    earliest_ns = list(accumulate((put_ns[one.record] for one in reversed(outcomes)), min))[::-1]
    found = {}
    for fault in history.faults:
        task, ended_ns = history.tasks.get(fault.run), fault.ended_ns
        for at in range(bisect_right(times_ns, ended_ns), len(outcomes)):
            told = outcomes[at]
            if earliest_ns[at] > ended_ns:
                break
            if (
                put_ns[told.record] <= ended_ns
                and (task is None or history.tasks.get(told.run) == task)
                and not [False, *(w for since, w in waits[told.record] if since <= ended_ns)][-1]
            ):
                found[fault] = round((told.at_ns - ended_ns) / _S, 3)
                break
    return found


def _notes(history: History, again: Sequence[Redelivery]) -> Iterator[str]:
    if strangers := unanswered_puts(history):
        yield f"delivered records whose put request got no response: {strangers}"
    if letters := sum(one.told.step is Step.LETTER and one.explained for one in again):
        yield f"dead letters that were written again because of a fault: {letters}"
    if not history.fates_known:
        yield (
            "your own function decides which records it acks, so each ack and each dead letter "
            "counts as correct"
        )
