"""Drills, and the verdicts on them, as text and as tables for a terminal."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kinesis_spout.drills.setting import ADDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.history.verdict import FaultFigures, Verdict

WIDTH = 80
STEP = "<step>"  # stands for the name of one


def verdict_text(verdict: Verdict) -> str:
    """The figures, a line for each fault, the notes; and, as the last lines, what was broken. At
    most 80 columns wide.
    """
    delays = verdict.delays
    figures: list[tuple[object, str]] = [
        (f"{verdict.records:,}", "records put"),
        (f"{verdict.deliveries:,}", "deliveries"),
        (f"{verdict.acked:,}", "records acked"),
        (f"{verdict.failed:,}", "failures"),
        (f"{verdict.letters:,}", "records dead-lettered"),
        (f"{verdict.lost:,}", "lost"),
        (f"{verdict.duplicates:,}", f"duplicates, {verdict.unexplained:,} unexplained"),
        (f"{verdict.out_of_order:,}", "first deliveries out of order"),
    ]
    if delays is not None:
        what = (
            "median time from the put of a record to its first delivery; 99 % within "
            f"{_seconds(delays.p99_s)}, at most {_seconds(delays.max_s)}"
        )
        figures.append((_seconds(delays.median_s), what))
    figures.append((_seconds(verdict.drained_s), "to process the remaining records at the end"))
    count = len(verdict.broken)
    end = "ok" if verdict.ok else f"{count} {'guarantee' if count == 1 else 'guarantees'} broken"
    return "\n".join(
        [
            verdict.drill,
            *(f"{figure:>12}  {what}" for figure, what in figures),
            *_faults(verdict.faults),
            *_wrapped("note: ", verdict.notes),
            *_wrapped("BROKEN: ", verdict.broken),
            f"{verdict.drill}: {end}",
        ]
    )


def overview(verdicts: Iterable[Verdict]) -> Table:
    """A row for each verdict. `recovered`: after the fault that took longest."""
    table = _table("drill", "verdict")
    columns = "records delivered acked letters lost duplicates unexplained recovered drained"
    for column in columns.split():
        table.add_column(column, justify="right")
    for one in verdicts:
        recovered = [each.recovered_s for each in one.faults if each.recovered_s is not None]
        counts = (one.records, one.deliveries, one.acked, one.letters, one.lost)
        table.add_row(
            one.drill,
            Text("ok", "green") if one.ok else Text("BROKEN", "bold red"),
            *(f"{number:,}" for number in (*counts, one.duplicates, one.unexplained)),
            _seconds(max(recovered, default=None), 1),
            _seconds(one.drained_s, 1),
        )
    return table


def listing(drills: Sequence[Drill]) -> Table:
    """A row for each drill, and one for all that are about a step."""
    table = _table("drill")
    table.add_column("needs", overflow="fold")
    table.add_column("disturbance", overflow="fold")
    steps = [one.step for one in drills if one.step]
    for one in drills:
        needs = ", ".join(sorted(one.needs - ADDED))
        if not one.step:
            table.add_row(one.name, needs, one.sentence)
        elif one.step == steps[0]:
            sentence = f"{one.sentence.replace(one.step, STEP)}: {', '.join(steps)}"
            table.add_row(one.name.replace(one.step, STEP), needs, sentence)
    return table


def _faults(faults: list[FaultFigures]) -> Iterator[str]:
    if not faults:
        return
    yield f"{'at':>10}{'lasted':>10}{'recovered':>11}{'repeated':>10}  fault"
    for one in faults:
        figures = (
            f"{_seconds(one.at_s):>10}{_seconds(one.lasted_s):>10}"
            f"{_seconds(one.recovered_s):>11}{one.repeated:>10,}  "
        )
        indent = " " * len(figures)
        yield from wrap(one.fault, WIDTH, initial_indent=figures, subsequent_indent=indent)


def _wrapped(title: str, texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield from wrap(text, WIDTH, initial_indent=title, subsequent_indent="    ")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="fold")
    return table


def _seconds(seconds: float | None, digits: int = 2) -> str:
    return "-" if seconds is None else f"{seconds:,.{digits}f} s"
