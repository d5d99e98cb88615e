"""The page of a verdict says what the verdict says, of one shard as of ten thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.drills.history.events import History, Step, Told
from kinesis_spout.drills.history.page import MAX_ROWS, verdict_page
from kinesis_spout.drills.history.redeliveries import Redelivery
from kinesis_spout.drills.history.verdict import FaultFigures, Verdict
from tests.support.drills.made_up_history import BEGAN_NS, HOSTILE, MadeUp, S
from tests.support.html.parsed_page import ParsedPage

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def parsed(
    verdict: Verdict,
    history: History,
    about: Sequence[str] = (),
    again: Sequence[Redelivery] | None = None,
) -> ParsedPage:
    page = ParsedPage(verdict_page(verdict, history, about, again).encode().decode())
    assert page.faults == []
    return page


def test_a_kept_verdict_says_so_in_words_and_by_a_sign() -> None:
    page = parsed(KEPT, MadeUp().history())
    assert page.texts["h1"] == ["All promises were kept"]
    assert page.texts["title"][0] == "Kept: driver-killed"
    assert "verdict kept" in page.values("header", "class")
    assert "Broken promises" not in page.texts["h2"]
    assert "bad" not in page.values("div", "class")


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


def test_a_drill_that_was_not_done_says_why_and_judges_nothing() -> None:
    why = "the outcome of 100 more records did not happen within 120 s: it was still starting"
    page = parsed(replace(KEPT, ok=False, undone=why, acked=0), MadeUp().history())
    assert page.texts["h1"] == ["The drill could not do its work"]
    assert page.texts["title"][0] == "Not done: driver-killed"
    assert f"{why}. No promise was tested." in page.texts["p"]
    assert "Broken promises" not in page.texts["h2"]
    assert {"records put", "acked"} <= {*page.texts["dt"]}
    assert {"lost", "out of order", "unexplained repeats"}.isdisjoint(page.texts["dt"])


def test_the_figures_are_those_of_the_verdict() -> None:
    page = parsed(KEPT, MadeUp().history())
    figures = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert figures["records put"] == "4,000"
    assert figures["delivered again"] == "75"
    assert figures["to drain at the end"] == "4.2 s"
    assert figures["from put to delivery, median"] == "not measured"


def test_each_fault_has_its_row_with_the_number_of_its_band() -> None:
    """And its time to recover, and what it repeated."""
    faults = [
        FaultFigures(fault="kill -9", at_s=8, lasted_s=2.5, recovered_s=1.25, repeated=30),
        FaultFigures(fault="ZooKeeper away", at_s=30, lasted_s=5, recovered_s=None, repeated=0),
    ]
    page = parsed(replace(KEPT, faults=faults), MadeUp(faults=0).history())
    assert page.values("span", "class") == ["tag", "tag"]
    assert page.texts["span"] == ["1", "2"]
    assert [text for text in page.texts["text"] if text in "12"] == ["1", "2"]
    assert page.texts["td"][:8] == [
        *("8.0 s", "2.5 s", "1.2 s", "30"),
        *("30.0 s", "5.0 s", "nothing was due", "0"),
    ]
    assert "1: kill -9, at 8.0 s for 2.5 s" in page.texts["title"]


def test_dead_letters_are_counted_by_reason() -> None:
    """A record that has two letters is one record."""
    letters = [
        Told(BEGAN_NS, Step.LETTER, "shard", "job-1", number, "ann", number, 3, reason)
        for number, reason in ((1, "bad"), (2, "bad"), (2, "bad"), (3, ""))
    ]
    page = parsed(KEPT, History(told=letters), again=[])
    assert "2 reasons" in page.texts["caption"]
    assert {"bad", "no reason given", "ann 1"} <= set(page.texts["bdi"])
    assert page.texts["td"][:2] == ["2", "3"]


def test_repeats_without_a_reason_are_listed_with_what_was_before() -> None:
    before = Told(BEGAN_NS, Step.ACK, "shard", "job-1", 7, "ann", 3, 1)
    told = before._replace(at_ns=BEGAN_NS + S, step=Step.GOT, run="job-2")
    again = [
        Redelivery(told, before, before, explained=False, fault=None),
        Redelivery(told._replace(number=9), before, before, explained=True, fault=None),
    ]
    page = parsed(KEPT, History(told=[before, told]), again=again)
    assert "1 repeat" in page.texts["caption"]
    assert {"ann 3", "job-1", "job-2"} <= set(page.texts["bdi"])
    assert "ann 9" not in page.texts["bdi"]
    explained = parsed(KEPT, History(told=[before, told]), again=again[1:])
    assert "Repeats without a reason" not in explained.texts["h2"]


def test_children_are_drawn_after_their_parents() -> None:
    history = MadeUp(reshards=3).history()
    page = parsed(KEPT, history)
    assert page.values("path", "class").count("joint dot") == 1
    assert set(history.shards) <= set(page.texts["text"])


@pytest.mark.parametrize(("shards", "records"), [(1, 2000), (200, 20_000), (10_000, 20_000)])
def test_the_page_stays_small(shards: int, records: int) -> None:
    """Below 2 MB, and without an element for each record or shard."""
    history = MadeUp(shards=shards, records=records, faults=40, samples=5).history()
    text = verdict_page(KEPT, history)
    assert len(text.encode()) < 1_000_000
    assert text.count("<") < 20_000


def test_of_many_shards_those_are_listed_that_have_the_most_to_tell() -> None:
    """And how many are left out."""
    history = MadeUp(shards=500, records=2000, reshards=0, faults=0).history()
    dead = Told(BEGAN_NS, Step.LETTER, "shardId-000000000377", "job-1", 1, "ann", 1, 3, "bad")
    page = parsed(KEPT, History(puts=history.puts, told=[dead], shards=history.shards))
    assert f"{MAX_ROWS} of 500 shards: those with the most to tell" in page.texts["caption"]
    assert any(text.startswith("Left out: 400 shards, in which") for text in page.texts["p"])


def test_a_history_of_nothing_has_a_page() -> None:
    page = parsed(replace(KEPT, records=0), History())
    assert "No shard was seen." in page.texts["p"]


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
