"""The page as a file: its policy, and what its script may not do; what its JSON has of an
application beside `status --json`.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from kinesis_spout.inspection.status import status_of
from kinesis_spout.page import page
from kinesis_spout.page.page_json import (
    needy,
    observation_json,
    sample_json,
    shard_json,
)
from state.plan import PlanStatus
from state.report import PlanReport, ReportStatus
from state.task_log import TaskLog
from tests.support.html.parsed_page import ParsedPage
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
    behind,
    failed,
    look,
    plan,
    read_of,
    shard,
    slice_of,
    snapshot,
    state,
    task,
)
from tests.support.inspection.streams import CREATED_MS, read_to, timed, very_many


def digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("data", [None, {"kind": "drill"}])
def test_the_policy_lets_the_page_s_own_style_and_script_be_and_nothing_else(
    data: dict[str, str] | None,
) -> None:
    """A page that a server has may ask that server, too."""
    parsed = ParsedPage(page(data).decode())
    (policy,) = (
        attrs["content"]
        for _, attrs in parsed.tags
        if attrs.get("http-equiv", "").endswith("Policy")
    )
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts == {
        "default-src": "'none'",
        "style-src": digest(parsed.texts["style"][0]),
        "script-src": digest(parsed.texts["script"][-1]),
        "base-uri": "'none'",
        "form-action": "'none'",
    } | ({"connect-src": "'self'"} if data is None else {})


def test_the_script_has_no_way_to_make_markup_or_code_of_a_value() -> None:
    script = ParsedPage(page().decode()).texts["script"][-1]
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    )
    assert re.findall(forbidden, script) == []
    assert "@" not in page({}).decode().replace("@media", ""), "a mark that was to be replaced"
    outside = r"https?://(?!www\.w3\.org/2000/svg\")|url\(|@import|src="
    assert re.findall(outside, page().decode().replace("script-src", "")) == []


MANY = 10_000
MAX_BYTES = 10_000_000
MAX_CPU_S = 8.0
STALLED = look(
    timed(0),
    timed(1),
    read_to(0, NOW_MS - HOUR_MS),
    read_to(1, NOW_MS - 500, unresolved=(failed(3, attempts=2), failed(4, attempts=1))),
    tips={0: behind(HOUR_MS), 1: AT_TIP},
)


def test_lanes_and_records_stand_beside_the_status() -> None:
    """Sequence numbers tell when a shard began, and up to when it is acked."""
    found = observation_json(status_of(STALLED), [])
    first, second = found["lanes"]
    assert (first["beganMs"], first["endedMs"]) == (CREATED_MS, None)
    assert (first["readMs"], first["ackedMs"]) == (NOW_MS - HOUR_MS, NOW_MS - HOUR_MS)
    assert second["events"]["failed"] == [(NOW_MS - 120_000, 2)]
    assert second["mattersMs"] == NOW_MS - 120_000
    assert [one["first"] for one in found["records"]["list"]] == ["3", "4"]
    assert found["records"]["reasons"][0] == {
        "reason": "no rates",
        "records": 2,
        "attempts": 2,
        "firstMs": NOW_MS - 120_000,
        "dueMs": NOW_MS + 60_000,
        "shards": [shard(1)],
    }
    assert needy(status_of(STALLED)) == [shard(0), shard(1)]
    assert shard_json(STALLED, shard(0), {})["records"]["entries"] == 0


def test_ten_thousand_shards_are_bounded_in_size_and_time() -> None:
    seen = very_many(MANY)
    began_s = time.process_time()
    found = observation_json(status_of(seen), [])
    text = json.dumps(found)
    assert time.process_time() - began_s < MAX_CPU_S
    assert len(text) < MAX_BYTES
    assert (len(found["lanes"]), len(found["records"]["list"])) == (MANY, 500)
    assert (len(found["records"]["reasons"]), found["records"]["reasonsInAll"]) == (50, 80)


@pytest.mark.parametrize(
    ("sealed", "fields", "stage"),
    [
        (False, {}, "reading"),
        (True, {"report": ReportStatus.OPEN}, "function"),
        (True, {"report": ReportStatus.DONE}, "writing"),
        (True, {"status": PlanStatus.SETTLED}, "planning"),
    ],
)
def test_a_sample_names_the_stage_of_the_batch(
    *, sealed: bool, fields: dict[str, Any], stage: str
) -> None:
    one = state(0)
    log = TaskLog(entries=(read_of(0, 4),), sealed=sealed)
    seen = look(timed(0), one, plan=plan(task(slice_of(one), log=log), **fields))
    assert sample_json(seen, None)["stage"] == stage


def test_a_sample_counts_outcomes_once_for_each_batch() -> None:
    """Over the time from the batch before it: 8 s."""
    one = state(0)
    log = TaskLog(entries=(read_of(0, 80),), sealed=True)
    outcomes = PlanReport(failed=16, dead_lettered=8)
    made = plan(task(slice_of(one), log=log), report=ReportStatus.DONE, outcomes=outcomes)
    seen = look(timed(0), one, plan=made)
    rates = {"acked": 8.0, "failed": 2.0, "deadLettered": 1.0}
    assert rates.items() <= sample_json(seen, None).items()
    again = sample_json(seen, snapshot(timed(0), one, now_ms=NOW_MS - 2_000, plan=made))
    assert "acked" not in again
    assert again["rowsPerS"] == 0
