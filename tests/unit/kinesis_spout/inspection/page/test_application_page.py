"""The page of an application: what is on it, that no value can be more than text, how large."""

from __future__ import annotations

import time
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kinesis_spout.inspection.page.application_page import application_page
from kinesis_spout.inspection.page.shard_page import shard_page
from kinesis_spout.inspection.page.view import ROWS, View
from tests.support.html.parsed_page import ParsedPage
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
    behind,
    failed,
    look,
    shard,
)
from tests.support.inspection.streams import read_to, timed, very_many

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look

MANY = 10_000
MAX_BYTES = 1_500_000
MAX_CPU_S = 8.0  # 1.4 s on a machine with nothing else to do, and without counting lines
STALLED = look(
    timed(0),
    timed(1),
    read_to(0, NOW_MS - HOUR_MS),
    read_to(1, NOW_MS - 500, unresolved=(failed(3, attempts=2), failed(4, attempts=1))),
    tips={0: behind(HOUR_MS), 1: AT_TIP},
)


def parsed(seen: Look, **fields: Any) -> ParsedPage:
    page = ParsedPage(application_page(View(look=seen, **fields)))
    assert page.faults == []
    return page


def test_the_policy_lets_the_page_s_own_style_and_script_be_and_nothing_else() -> None:
    page = parsed(STALLED)
    (style,) = page.texts["style"]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    (policy,) = (
        attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv", "").endswith("Policy")
    )
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts == {
        "style-src": f"'sha256-{digest}'",
        "default-src": "'none'",
        "script-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'",
    }


def test_ten_thousand_shards_are_a_page_of_bounded_size_in_bounded_time() -> None:
    view = View(look=very_many(MANY))
    began_s = time.process_time()
    text = application_page(view)
    assert time.process_time() - began_s < MAX_CPU_S
    assert len(text.encode()) < MAX_BYTES
    page = ParsedPage(text)
    assert page.faults == []
    assert f"10,000 shards, the worst first, 1 to {ROWS}" in page.texts["caption"]
    assert "80 reasons, the first 50 by number of records" in page.texts["caption"]


def test_a_pause_and_an_end_are_verdicts_of_their_own() -> None:
    idle = (timed(0), read_to(0, NOW_MS - 500))
    for verdict, stored in (("paused", {"paused": True}), ("not running", {"owners": ()})):
        assert parsed(look(*idle, tips={0: AT_TIP}, **stored)).texts["h1"] == [verdict]


def test_a_page_in_a_file_needs_no_server() -> None:
    """No script, no link, no form."""
    page = parsed(STALLED, is_live=False)
    assert (page.count("script"), page.count("a"), page.count("form")) == (0, 0, 0)


def test_the_page_of_a_shard_explains_it_and_lists_its_records() -> None:
    view = View(look=STALLED)
    text = shard_page(view, shard(1))
    assert text is not None
    page = ParsedPage(text)
    assert page.faults == []
    assert "2 records and ranges" in page.texts["caption"]
    assert "It fails with 'no rates'" in page.text()
    assert shard_page(view, "nobody") is None
