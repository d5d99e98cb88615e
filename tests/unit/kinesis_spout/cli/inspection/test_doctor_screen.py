"""The doctor's table on a terminal of 80 columns."""

from __future__ import annotations

import pytest
from rich.console import Console

from kinesis_spout.cli.inspection.doctor_screen import doctor_screen
from kinesis_spout.doctor.examination import KINESIS, AreaFinding
from kinesis_spout.doctor.finding import not_tried
from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of

NAMES = {
    action_of(name) for use in set(Use) - {Use.DRILL} for name in PERMISSIONS[use].all_operations
}


def lines(names: set[str], *, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    found = [AreaFinding(KINESIS, not_tried(name, "it would write " * 8)) for name in sorted(names)]
    with console.capture() as said:
        console.print(doctor_screen(found))
    return said.get().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_name_of_an_action_is_on_one_line(width: int) -> None:
    """And no line is wider than the terminal."""
    shown = lines(NAMES, width=width)
    first = {line.split()[0] for line in shown if "not tried" in line}
    assert {name.removeprefix("kinesis:") for name in NAMES} <= first
    assert max(map(len, shown)) <= width
