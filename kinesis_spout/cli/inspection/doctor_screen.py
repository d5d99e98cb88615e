"""The screen of `kinesis-spout doctor`: a table of findings by area, and how many are bad."""

from __future__ import annotations

from collections import Counter
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
    area = None
    for one in found:
        if one.area != area:
            if area is not None:
                table.add_row()
            area = one.area
            table.add_row(Text(area, "bold"))
        verdict = one.finding.verdict
        table.add_row(
            Text(_short(one.finding.about)),
            Text(verdict.value, COLOURS[verdict]),
            Text(one.finding.sentence, "dim" if verdict is Verdict.NOT_TRIED else ""),
        )
    return Group(table, "", _total(found))


def _short(about: str) -> str:
    """The area's title says the rest."""
    for prefix in ("kinesis:", "ZooKeeper "):
        about = about.removeprefix(prefix)
    return about


def _total(found: Sequence[AreaFinding]) -> Text:
    counts = Counter(one.finding.verdict for one in found)
    total = Text(" ".join(f"{counts[verdict]} {verdict.value}," for verdict in Verdict)[:-1])
    total.stylize("bold red" if counts[Verdict.FAILED] else "bold green")
    return total
