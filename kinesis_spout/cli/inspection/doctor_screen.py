"""The screen of `kinesis-spout doctor`: a table of findings by area, and how many are bad."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kinesis_spout.doctor.findings import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinesis_spout.doctor.examination import AreaFinding

COLOURS = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.NOT_TRIED: "dim",
}
_THING_COLUMNS = 24  # as wide as the longest name of an action; other things are folded


def doctor_screen(found: Sequence[AreaFinding]) -> RenderableType:
    """All areas in one table, so that their columns agree."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=_THING_COLUMNS, overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for area, of_area in groupby(found, key=lambda one: one.area):
        if table.row_count:
            table.add_row()
        table.add_row(Text(area, "bold"))
        for _, one in of_area:
            # The area's title says the rest.
            about = one.about.removeprefix("kinesis:").removeprefix("ZooKeeper ")
            colour = "dim" if one.verdict is Verdict.NOT_TRIED else ""
            verdict = Text(one.verdict.value, COLOURS[one.verdict])
            table.add_row(Text(about), verdict, Text(one.sentence, colour))
    counts = Counter(one.finding.verdict for one in found)
    total = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    return Group(table, "", Text(total, "bold red" if counts[Verdict.FAILED] else "bold green"))
