"""The page of a verdict says what the verdict says, of one shard as of ten thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.drills.history.page import verdict_page
from kinesis_spout.drills.history.verdict import FaultFigures, Verdict
from tests.support.drills.made_up_history import HOSTILE, MadeUp
from tests.support.html.parsed_page import ParsedPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.history.events import History

KEPT = Verdict(
    drill="driver-killed",
    ok=True,
    broken=[],
    records=4000,
    deliveries=4300,
    acked=3960,
    failed=226,
    letters=40,
    lost=0,
    duplicates=75,
    unexplained=0,
    out_of_order=0,
    drained_s=4.2,
    delays=None,
    faults=[],
    notes=[],
)


def parsed(verdict: Verdict, history: History, about: Sequence[str] = ()) -> ParsedPage:
    page = ParsedPage(verdict_page(verdict, history, about).encode().decode())
    assert page.faults == []
    return page


def test_a_broken_one_names_the_promises_with_their_examples() -> None:
    """And marks the figures that are not as they must be."""
    broken = [
        "3 records were lost: ann 5; bob 7; carl 12",
        "1 checkpoint moved back: s from 4 to 2",
    ]
    page = parsed(
        replace(KEPT, ok=False, broken=broken, lost=3, unexplained=2, out_of_order=1),
        MadeUp().history(),
    )
    assert page.texts["h1"] == ["2 promises were broken"]
    assert page.texts["title"][0] == "Broken: driver-killed"
    assert "verdict broken" in page.values("header", "class")
    assert set(broken) <= set(page.texts["li"])
    assert page.values("div", "class").count("bad") == 3


def test_hostile_names_stay_text() -> None:
    """Keys, reasons, runs, faults, notes, the drill's name: none makes an element or a request."""
    made = MadeUp(names=HOSTILE)
    verdict = replace(
        KEPT,
        ok=False,
        drill=HOSTILE[0],
        broken=list(HOSTILE),
        notes=list(HOSTILE),
        faults=[
            FaultFigures(fault=name, at_s=5, lasted_s=1, recovered_s=1, repeated=1)
            for name in HOSTILE
        ],
    )
    plain = parsed(replace(verdict, drill="x"), made.history(), about=["x"])
    page = parsed(verdict, made.history(), about=[HOSTILE[0]])
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    values = [value for _, attrs in page.tags for value in attrs.values()]
    assert not any("http" in value for value in values)
    assert HOSTILE[0] in page.texts["p"]
    assert "(9,400 more characters)" in page.text()
