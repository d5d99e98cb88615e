"""The verdict on a drill: whether the promises were kept, and its figures. Pure.

`kinesis-spout drill --json` writes a `Verdict` (`verdict_json`) with these names.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.drills.history import measures
from kinesis_spout.drills.history.checks import Promise, breaches, sentences, unanswered_puts
from kinesis_spout.drills.history.events import Step
from kinesis_spout.drills.history.redeliveries import redeliveries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.history.events import History
    from kinesis_spout.drills.history.redeliveries import Redelivery

_S = 1_000_000_000


class FaultFigures(msgspec.Struct, frozen=True, kw_only=True):
    """- `fault`: its name.
    - `at_s`: when it began, from the first put on. `lasted_s`: until it was over.
    - `recovered_s`: from its end to the first new outcome of what was due then
      (`history.measures`); None if nothing was due.
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
    - `duplicates`: deliveries of records that had been processed. `unexplained`: deliveries, and
      letters, that came again without a reason.
    - `out_of_order`: first deliveries after that of a later record of the key.
    - `drained_s`: from the last put, or fault, until everything was done; None if it never was.
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


def judge(
    history: History,
    *,
    drill: str,
    drained_s: float | None = None,
    troubles: Sequence[str] = (),
    again: Sequence[Redelivery] | None = None,
    undone: str | None = None,
) -> Verdict:
    """`drained_s`: as the drill measured it; measured by the history if it is None. It does not
    count if something was never done. `troubles`: what went wrong beside the promises, in
    sentences; it is broken with any. `again`: the history's redeliveries, if they are known.
    `undone`: as in `Verdict`; what has no outcome is not lost then, and no promise is judged.
    """
    again = redeliveries(history) if again is None else again
    found = breaches(history, again)
    if found[Promise.PROCESSED] or found[Promise.DONE]:
        drained_s = None
    elif drained_s is None:
        drained_s = measures.drained_s(history)
    broken = [*troubles, *sentences(found)] if undone is None else []
    steps = Counter(told.step for told in history.told)
    return Verdict(
        drill=drill,
        ok=not broken and undone is None,
        broken=broken,
        records=len(history.puts),
        deliveries=steps[Step.GOT],
        acked=_records(history, Step.ACK),
        failed=steps[Step.FAIL] + steps[Step.REJECT],
        letters=_records(history, Step.LETTER),
        lost=len(found[Promise.PROCESSED]) if undone is None else 0,
        duplicates=sum(one.is_duplicate for one in again),
        unexplained=len(found[Promise.ONCE]),
        out_of_order=len(found[Promise.ORDER]),
        drained_s=drained_s,
        delays=_delays(history),
        faults=_fault_figures(history, again),
        notes=list(_notes(history, again)),
        undone=undone,
    )


def verdict_json(verdict: Verdict) -> bytes:
    """One JSON object, indented."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2)


def _records(history: History, step: Step) -> int:
    return len({told.record for told in history.told if told.step is step})


def _delays(history: History) -> Delays | None:
    took_s = measures.deliveries_s(history)
    if not took_s:
        return None
    return Delays(
        median_s=round(median(took_s), 3),
        p99_s=round(took_s[len(took_s) * 99 // 100], 3),
        max_s=round(took_s[-1], 3),
    )


def _fault_figures(history: History, again: Sequence[Redelivery]) -> list[FaultFigures]:
    recovered_s = measures.recoveries_s(history)
    began_ns = min((put.at_ns for put in history.puts), default=0)
    return [
        FaultFigures(
            fault=fault.name,
            at_s=round((fault.began_ns - began_ns) / _S, 3),
            lasted_s=round((fault.ended_ns - fault.began_ns) / _S, 3),
            recovered_s=round(recovered_s[fault], 3) if fault in recovered_s else None,
            repeated=records,
        )
        for fault, records in measures.repeats(history, again)
    ]


def _notes(history: History, again: Sequence[Redelivery]) -> Iterator[str]:
    if strangers := unanswered_puts(history):
        yield f"{strangers} delivered records are of puts without an answer"
    if letters := sum(one.told.step is Step.LETTER and one.explained for one in again):
        yield f"{letters} dead letters were written again because of a fault"
    if not history.fates_known:
        yield "the answers of the function are its own: each ack and each letter counts as right"
