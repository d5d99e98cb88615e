"""The page in a real browser: it is renewed in place, and nothing hostile runs."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.inspection.ui.page_server import Answer, PageServer
from kinesis_spout.errors import KinesisError
from kinesis_spout.html.live_script import LIVE_SCRIPT
from kinesis_spout.inspection.page.application_page import application_page
from kinesis_spout.inspection.page.view import View, Wish
from tests.support.inspection.looks import failed, look
from tests.support.inspection.streams import HOSTILE, read_to, timed
from tests.support.shell.tools import BROWSER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_spout.inspection.health import Look

TIME_LIMIT_S = 180.0
# Nothing but the page is asked for, by an empty profile.
SWITCHES = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# Time that passes at once, as far as the page's timers are concerned.
SEVEN_SECONDS = "--virtual-time-budget=7000"


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., str]:
    """A function of an address and of further switches: what the browser writes to stdout."""
    program = BROWSER.path()
    # Its sandbox does not run as root. The pages are our own.
    rights = ("--no-sandbox",) if os.geteuid() == 0 else ()

    def run(address: str, *switches: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        return subprocess.run(
            [program, *SWITCHES, *rights, profile, *switches, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=True,
        ).stdout

    return run


class CountedPages:
    """A page whose paused state changes from one answer to the next; `away` answers with 503."""

    def __init__(self, seen: Look, *, fails_after: int = 1_000, extra: str = "") -> None:
        self.seen = seen
        self.fails_after = fails_after
        self.extra = extra
        self.count = 0
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def answer(self, target: str) -> Answer:
        with self._lock:
            self.asked.append(target)
            if target == "/live.js":
                return Answer(HTTPStatus.OK, "text/javascript", LIVE_SCRIPT.encode())
            self.count += 1
            if self.count > self.fails_after:
                return Answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"away")
            view = View(
                look=replace(self.seen, refusal=KinesisError(f"answer {self.count}")),
                wish=Wish(text="what was typed"),
            )
            page = application_page(view).replace("</body>", f"{self.extra}</body>")
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", page.encode())


ONE = look(timed(0), read_to(0, 1_800_000_000_000, unresolved=(failed(3, reason=HOSTILE),)))


def test_the_page_is_renewed_in_place(browse: Callable[..., str]) -> None:
    """By its own script; the form and what is in it stay the first ones."""
    pages = CountedPages(ONE)
    with PageServer(pages, 0) as server:
        dom = browse(server.url, "--dump-dom", SEVEN_SECONDS)
    assert pages.count >= 3
    assert "answer 1<" not in dom
    assert any(f"answer {number}<" in dom for number in range(2, pages.count + 1))
    assert dom.count('id="top"') == dom.count('id="tables"') == dom.count('id="away"') == 1
    assert 'value="what was typed"' in dom
    assert 'id="away" hidden=""' in dom
    assert set(pages.asked) == {"/", "/live.js"}  # no picture, no font, nothing else


def test_what_got_into_a_page_by_mistake_would_not_run(browse: Callable[..., str]) -> None:
    """If escaping failed one day, the policy is the second wall: no inline script, no handler, no
    request to another place.
    """
    extra = (
        "<script>document.title='pwned'</script>"
        "<img src='/x.png' onerror=\"document.title='pwned'\">"
        "<iframe src='/frame'></iframe><object data='/object'></object>"
        "<form action='http://127.0.0.2:9/'></form><style>body{color:red}</style>"
    )
    pages = CountedPages(ONE, extra=extra)
    with PageServer(pages, 0) as server:
        dom = browse(server.url, "--dump-dom", SEVEN_SECONDS)
    assert "<title>pwned" not in dom
    assert set(pages.asked) == {"/", "/live.js"}
