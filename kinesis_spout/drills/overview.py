"""Drills, and the verdicts on several of them, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kinesis_spout.drills.world.setting import ADDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.history.verdict import Verdict

STEP = "<step>"  # stands for the name of one
_LEFT = ("drill", "verdict")
_FIGURES = (
    "records",
    "delivered",
    "acked",
    "letters",
    "lost",
    "again",
    "unexplained",
    "recovered",
    "drained",
)


def overview(verdicts: Iterable[Verdict]) -> Table:
    """A row for each verdict. `recovered`: after the fault that took longest."""
    table = _table(_LEFT)
    for column in _FIGURES:
        table.add_column(column, justify="right")
    for one in verdicts:
        recovered = [f.recovered_s for f in one.faults if f.recovered_s is not None]
        table.add_row(
            one.drill,
            Text("ok", "green") if one.ok else Text("BROKEN", "bold red"),
            *(
                f"{number:,}"
                for number in (
                    one.records,
                    one.deliveries,
                    one.acked,
                    one.letters,
                    one.lost,
                    one.duplicates,
                    one.unexplained,
                )
            ),
            _seconds(max(recovered, default=None)),
            _seconds(one.drained_s),
        )
    return table


def listing(drills: Sequence[Drill]) -> Table:
    """A row for each drill, and one for all that are about a step."""
    table = _table(("drill",))
    table.add_column("needs")
    table.add_column("what it does")
    steps = [one.step for one in drills if one.step]
    for one in drills:
        needs = ", ".join(sorted(one.needs - ADDED))
        if not one.step:
            table.add_row(one.name, needs, one.sentence)
        elif one.step == steps[0]:
            table.add_row(
                one.name.replace(one.step, STEP),
                needs,
                f"{one.sentence.replace(one.step, STEP)}: {', '.join(steps)}",
            )
    return table


def _table(columns: Iterable[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="fold")
    return table


def _seconds(s: float | None) -> str:
    return "-" if s is None else f"{s:.1f} s"
