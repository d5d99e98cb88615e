"""The report of redrive, for people and for programs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

from rich.console import Console

from spark_job.commands.redrive_report import Report, show_found
from spark_job.dead_letter.redrive import Found
from spark_job.dead_letter.redrive_letters import ReasonCount

FIRST, LAST = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
REASON = ReasonCount(
    target="orders",
    reason="ValueError: [red]no such order",
    letters=1234,
    first_failure=FIRST,
    last_failure=LAST,
)
FOUND = Found(
    to_put=1240,
    put_before=7,
    without_payload=1,
    incomplete=4,
    unreadable=2,
    reasons=(REASON,),
    more_reasons=3,
)


def shown(found: Found) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    show_found(console, found)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_people_see_a_line_per_reason_and_the_letters_left_out() -> None:
    """Markup in a reason is printed as text."""
    lines = shown(FOUND)
    assert lines[1].split(maxsplit=2) == [
        "1,234",
        "orders",
        "ValueError: [red]no such order  2026-01-02 03:04Z  2026-01-03 00:00Z",
    ]
    assert lines[2:] == [
        "and 3 more reasons",
        "1,240 dead letters to put",
        "7 were put before",
        "1 have no payload (their records were past the stream's retention) and cannot be put",
        "4 are in parts of which some are missing, and cannot be put",
        "2 rows in the files are not dead letters",
    ]


def test_nothing_to_put_is_one_line() -> None:
    assert shown(Found()) == ["no dead letters to put"]
    assert shown(Found(to_put=1))[-1] == "1 dead letter to put"
    assert shown(Found(put_before=7)) == ["no dead letters to put", "7 were put before"]


def test_programs_get_the_whole_report_as_json() -> None:
    found = json.loads(json.dumps(Report(path="/dead", found=FOUND, put=1240).as_json()))
    assert found == {
        "path": "/dead",
        "dryRun": False,
        "toPut": 1240,
        "put": 1240,
        "putBefore": 7,
        "withoutPayload": 1,
        "incomplete": 4,
        "unreadable": 2,
        "reasons": [
            {
                "stream": "orders",
                "reason": "ValueError: [red]no such order",
                "letters": 1234,
                "firstFailure": "2026-01-02T03:04:05.678Z",
                "lastFailure": "2026-01-03T00:00:00.000Z",
            }
        ],
        "moreReasons": 3,
    }
    dry = Report(path="/dead", found=FOUND, put=None).as_json()
    assert (dry["dryRun"], dry["put"]) == (True, 0)
