"""The page in a real browser: it is drawn, renewed in place and used; nothing is cut off on a
phone, and nothing hostile runs.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.explain import explained_json
from kinesis_spout.cli.page_server import Answer, PageServer
from kinesis_spout.cli.places import Place
from kinesis_spout.drills.history.checks import redeliveries
from kinesis_spout.drills.history.picture import drill_json
from kinesis_spout.drills.history.verdict import Drilled, judge
from kinesis_spout.inspection.explanation import grouped
from kinesis_spout.inspection.status import status_of
from kinesis_spout.page import page
from kinesis_spout.page.page_json import needy, observation_json, sample_json
from tests.support.drills.made_up_history import HOSTILE as HOSTILE_NAMES
from tests.support.drills.made_up_history import MadeUp
from tests.support.inspection.looks import HOUR_MS, NOW_MS, behind, failed, look, shard
from tests.support.inspection.streams import HOSTILE, read_to, timed, very_many
from tests.support.kinesis.stub_kinesis import serving
from tests.support.shell.tools import BROWSER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    # Time that passes at once, as far as the page's timers are concerned.
    "--virtual-time-budget=7000",
    "--dump-dom",
)
STALLED = look(
    timed(0),
    timed(1),
    read_to(0, NOW_MS - HOUR_MS),
    read_to(1, NOW_MS - 500, unresolved=(failed(3, reason=HOSTILE),)),
    tips={0: behind(HOUR_MS)},
)


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[str], str]:
    """A function of an address: the document when the page's script has run."""
    program = BROWSER.path()
    # Its sandbox does not run as root. The pages are our own.
    rights = ("--no-sandbox",) if os.geteuid() == 0 else ()

    def run(address: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        return subprocess.run(
            [program, *SWITCHES, *rights, profile, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=True,
        ).stdout

    return run


def application(seen: Look, **fields: Any) -> dict[str, Any]:
    """The page's data of a look."""
    status, place = status_of(seen), Place("etl", "orders", zookeeper="zk:2181")
    groups = grouped(seen, needy(status)[:50])[:8]
    explained = [explained_json(seen, one, place) for one in groups]
    samples = [sample_json(seen, None)]
    shown = {"letters": None, "samples": samples, "shard": None, "trouble": None}
    return {**observation_json(status, explained), **shown, **fields}


def drill(**fields: Any) -> dict[str, Any]:
    history = MadeUp(records=400, **fields).history()
    again = redeliveries(history)
    verdict = judge(Drilled(drill="driver-killed", history=history), again)
    return drill_json(history, verdict, again)


class CountedAnswers:
    """Each answer names its number. `extra`: markup that got into the page by mistake."""

    def __init__(self, extra: str = "") -> None:
        self.extra = extra
        self.count = 0
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def answer(self, target: str) -> Answer:
        with self._lock:
            self.asked.append(target)
            if target.startswith("/page.json"):
                self.count += 1
                data = application(STALLED, facts=[["owner", f"answer {self.count}"]])
                return Answer(HTTPStatus.OK, "application/json", json.dumps(data).encode())
            text = page().replace(b"</body>", f"{self.extra}</body>".encode())
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", text)


def test_the_page_is_renewed_in_place(browse: Callable[[str], str]) -> None:
    """By its own script, which asks for nothing but its data."""
    answers = CountedAnswers()
    with PageServer(answers.answer, 0) as server:
        document = browse(server.url)
    assert answers.count >= 3
    assert "answer 1<" not in document
    assert any(f"answer {number}<" in document for number in range(2, answers.count + 1))
    assert document.count('id="top"') == document.count('id="observed"') == 1
    assert set(answers.asked) == {"/", "/page.json?"}


def test_what_got_into_a_page_by_mistake_would_not_run(browse: Callable[[str], str]) -> None:
    """If a value became markup one day, the policy is the second wall: no inline script, no
    handler, no request to another place.
    """
    answers = CountedAnswers(
        "<script>document.title='pwned'</script>"
        "<img src='/x.png' onerror=\"document.title='pwned'\">"
        "<iframe src='/frame'></iframe><object data='/object'></object>"
        "<form action='http://127.0.0.2:9/'></form><style>body{color:red}</style>"
    )
    with PageServer(answers.answer, 0) as server:
        document = browse(server.url)
    assert "<title>pwned" not in document
    assert set(answers.asked) == {"/", "/page.json?"}


def test_a_drill_s_headline_has_the_three_figures(
    browse: Callable[[str], str], tmp_path: Path
) -> None:
    data = drill()
    data["verdict"] |= {"lost": 3, "out_of_order": 1, "unexplained": 2, "ok": False}
    data["verdict"]["broken"] = ["3 records were lost: ann 5; bob 7; carl 12"]
    (tmp_path / "verdict.html").write_bytes(page(data))
    document = browse((tmp_path / "verdict.html").as_uri())
    assert "<h1>Broken: 3 lost, 1 out of order, 2 unexplained</h1>" in document
    assert "<title>Broken: driver-killed</title>" in document
    assert document.count('<div class="bad">') == 3
    assert "3 records were lost: ann 5; bob 7; carl 12</li>" in document
    assert document.count('class="badge"') == 4  # a circle and a number for each of two faults


# A page that uses another one, in a frame of a phone's width, and writes down what it found.
USES = """<!doctype html><iframe src="page" style="width:%dpx;height:2000px"></iframe><pre></pre>
<script>
onload = async () => {
  const frame = document.querySelector("iframe").contentWindow, found = [];
  const rest = () => new Promise((done) => setTimeout(done, 200));
  const look = (one) => frame.document.querySelector(one), all = (one) =>
    [...frame.document.querySelectorAll(one)];
  await (%s)(frame, look, all, rest, found);
  document.querySelector("pre").textContent = JSON.stringify(found);
};
</script>"""


@pytest.fixture
def used(browse: Callable[[str], str]) -> Callable[..., Any]:
    """A function of the page's data, a width and steps in a browser: what these have found."""

    def run(data: dict[str, Any], width: int, steps: str) -> Any:
        texts = {"/page": page(data), "/": (USES % (width, steps)).encode()}
        with serving(handler_of(texts)) as address:
            found = re.search(r"<pre>(.*?)</pre>", browse(address))
        assert found is not None
        assert found[1], "the steps did not end"
        return json.loads(html.unescape(found[1]))

    return run


def handler_of(texts: dict[str, bytes]) -> type[BaseHTTPRequestHandler]:
    """Texts by their paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in texts else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(texts.get(self.path, b""))

        def log_message(self, *_: object) -> None: ...

    return Handler


SPANS = """(frame, look, all, rest, found) => {
  const page = frame.document.documentElement;
  const picture = look(".picture svg").getBoundingClientRect();
  const marks = all(".picture text").map((one) => one.getBoundingClientRect());
  found.push(page.scrollWidth, Math.max(...marks.map((one) => one.right)) - picture.right,
    Math.min(...marks.map((one) => one.left)) - picture.left);
}"""


def pages() -> Iterator[dict[str, Any]]:
    yield application(STALLED)
    yield application(very_many(300))
    yield drill()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_nothing_is_cut_off_on_a_phone(used: Callable[..., Any], at: int) -> None:
    wide, right, left = used(list(pages())[at], 390, SPANS)
    assert wide == 390
    assert right <= 0 <= left


def test_a_reader_copies_a_command_narrows_the_table_and_opens_a_shard(
    used: Callable[..., Any],
) -> None:
    """Each by the keyboard's elements: a button, a field and a link."""
    found = used(
        application(very_many(300)),
        1200,
        """async (frame, look, all, rest, found) => {
          found.push(look("h2").textContent);
          look(".causes button")?.click();
          await rest();
          found.push(look(".causes button")?.textContent ?? "none");
          const field = look("#q");
          field.focus();
          field.value = "stalled";
          field.dispatchEvent(new frame.Event("input"));
          found.push(look("caption").textContent, frame.document.activeElement.id, field.value);
          look("tbody a").click();
          await rest();
          found.push(look("h1 bdi").textContent, look("h2").textContent);
          look('a[href^="#"]').click();
          await rest();
          found.push(look("caption").textContent);
        }""",
    )
    assert found[0] == "Why, and what to do"
    assert found[1] in {"copied", "selected", "none"}
    assert found[2:5] == ["3 of 300 shards, the worst first", "q", "stalled"]
    assert found[5:7] == [shard(0), "Why, and what to do"]
    assert found[7] == "3 of 300 shards, the worst first"


ELEMENTS = """(frame, look, all, rest, found) => {
  const handled = all("*").filter((one) => [...one.attributes].some(({name}) => /^on/.test(name)));
  found.push(frame.document.title, all("img, object, iframe, base, link").length, handled.length,
    all("script").length, look("main").innerText);
}"""


def test_hostile_values_are_text(used: Callable[..., Any]) -> None:
    """In the page of an application and in that of a drill."""
    evil = "</script><img src=x onerror=\"document.title='pwned'\">"
    status = status_of(STALLED).as_json() | {"application": evil, "stream": evil}
    hostile = application(STALLED, status=status, facts=[[evil, evil]], sentence=evil)
    verdict = drill() | {"about": [evil]}
    verdict["verdict"] |= {"drill": evil, "broken": [*HOSTILE_NAMES], "notes": [evil]}
    for data in (hostile, verdict):
        title, elements, handled, scripts, text = used(data, 1200, ELEMENTS)
        assert (elements, handled, scripts) == (0, 0, 2)
        assert title != "pwned"
        assert evil in text


def test_ten_thousand_shards_are_drawn(used: Callable[..., Any]) -> None:
    rows, lanes = used(
        application(very_many(10_000)),
        1200,
        "(frame, look, all, rest, found) => "
        'found.push(all("tbody tr").length, all(".picture .lane").length)',
    )
    assert lanes == 64
    assert rows > 50
