"""Pages of a look, by their addresses. That looks go on after a fault, and the last good one stays:
`tests/integration/commands/test_ui.py`.
"""

from __future__ import annotations

from kinesis_spout.cli.inspection.ui.application_pages import ApplicationPages
from kinesis_spout.cli.inspection.ui.watcher import Seen
from tests.support.inspection.looks import look, shard, state
from tests.support.inspection.streams import timed


def test_pages_are_made_once_for_a_look() -> None:
    """Addresses of any kind have an answer, and hostile ones cost no more."""
    seen = Seen(1, look(timed(0), state(0)), (), None, None)
    pages = ApplicationPages(lambda: seen, ())
    assert pages.answer("/").body is pages.answer("/").body
    statuses = {
        target: int(pages.answer(target).status)
        for target in (
            "/?q=%00%ff&page=99999999999999999999&span=%22",
            f"/shard/{shard(0)}",
            "/shard/0",
            "/shard/%3Cscript%3E",
            "/shard/",
            "/status.json",
            "/live.js",
            "/../etc/passwd",
            "/?" + "&".join(["a=1"] * 99),
            "http://[",
            "*",
        )
    }
    assert sorted(status for status in statuses.values()) == [200] * 5 + [400] * 2 + [404] * 4
