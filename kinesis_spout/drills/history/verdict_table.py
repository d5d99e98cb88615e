"""A verdict as plain text, at most 80 columns wide. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.drills.history.verdict import FaultFigures, Verdict

WIDTH = 80
_NUMBER = 12


def verdict_table(verdict: Verdict) -> str:
    """The figures, a line for each fault, the notes; and, as the last lines, what was broken."""
    return "\n".join(
        [
            verdict.drill,
            *_figures(verdict),
            *_faults(verdict.faults),
            *_wrapped("note: ", verdict.notes),
            *_wrapped("BROKEN: ", verdict.broken),
            _last_line(verdict),
        ]
    )


def _figures(verdict: Verdict) -> Iterator[str]:
    yield _row(verdict.records, "records put")
    yield _row(verdict.deliveries, "deliveries")
    yield _row(verdict.acked, "records acked")
    yield _row(verdict.failed, "failures")
    yield _row(verdict.letters, "records dead-lettered")
    yield _row(verdict.lost, "lost")
    yield _row(verdict.duplicates, f"duplicates, {verdict.unexplained:,} unexplained")
    yield _row(verdict.out_of_order, "first deliveries out of order")
    if verdict.delays is not None:
        yield _row(
            _seconds(verdict.delays.median_s),
            f"from a put to the first delivery; 99 % within {_seconds(verdict.delays.p99_s)}, "
            f"most {_seconds(verdict.delays.max_s)}",
        )
    yield _row(_seconds(verdict.drained_s), "to drain at the end")


def _faults(faults: list[FaultFigures]) -> Iterator[str]:
    if not faults:
        return
    yield f"{'at':>10}{'lasted':>10}{'recovered':>11}{'repeated':>10}  fault"
    for one in faults:
        figures = (
            f"{_seconds(one.at_s):>10}{_seconds(one.lasted_s):>10}"
            f"{_seconds(one.recovered_s):>11}{one.repeated:>10,}  "
        )
        first, *rest = wrap(one.fault, WIDTH - len(figures)) or [""]
        yield (figures + first).rstrip()
        yield from (" " * len(figures) + line for line in rest)


def _wrapped(title: str, texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield from wrap(text, WIDTH, initial_indent=title, subsequent_indent="    ")


def _last_line(verdict: Verdict) -> str:
    if verdict.ok:
        return f"{verdict.drill}: ok"
    count = len(verdict.broken)
    return f"{verdict.drill}: {count} {'promise' if count == 1 else 'promises'} broken"


def _row(number: object, what: str) -> str:
    text = f"{number:,}" if isinstance(number, int) else f"{number}"
    return f"{text:>{_NUMBER}}  {what}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.2f} s"
