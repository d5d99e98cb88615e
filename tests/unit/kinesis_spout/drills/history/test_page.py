"""The page of a verdict says what the verdict says, of one shard as of ten thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.drills.history.page import verdict_page
from kinesis_spout.drills.history.verdict import Verdict
from tests.support.drills.made_up_history import MadeUp
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
