"""Which page an address has. Each is made once for a look, however many readers ask for it."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from kinesis_spout.cli.inspection.ui.page_server import Answer, text
from kinesis_spout.cli.shared_options import shard_id_of
from kinesis_spout.html.live_script import LIVE_SCRIPT
from kinesis_spout.html.shell import SCRIPT_PATH
from kinesis_spout.inspection.page.application_page import application_page
from kinesis_spout.inspection.page.shard_page import shard_page
from kinesis_spout.inspection.page.view import View, Wish
from kinesis_spout.inspection.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kinesis_spout.cli.inspection.ui.watcher import Seen

MAX_KEPT = 16  # pages
MAX_TEXT = 200  # characters of a filter
MAX_PAGE_DIGITS = 6
_HTML = "text/html; charset=utf-8"
_SHARD = "/shard/"


class ApplicationPages:
    """`Pages` of the newest look. Pages are made one at a time, so that readers share the work."""

    def __init__(
        self,
        newest: Callable[[], Seen],
        commands: Collection[str],
        whole_command: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        self._newest = newest
        self._commands = commands
        self._whole_command = whole_command
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int | None, str], Answer] = OrderedDict()

    def answer(self, target: str) -> Answer:
        if target == SCRIPT_PATH:
            return Answer(HTTPStatus.OK, "text/javascript; charset=utf-8", LIVE_SCRIPT.encode())
        seen = self._newest()
        # An age grows without a look: it is said in steps of 5 s.
        age = None if seen.trouble is None else seen.trouble.since_ms // 5_000
        key = seen.version, age, target
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._made(seen, target)
                while len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _made(self, seen: Seen, target: str) -> Answer:
        try:
            address = urlsplit(target)
            asked = parse_qs(address.query, max_num_fields=10)
        except ValueError:
            return text(HTTPStatus.BAD_REQUEST, "that is no address")
        if address.path == "/":
            page = application_page(self._view(seen, _wish(asked)))
            return Answer(HTTPStatus.OK, _HTML, page.encode())
        if address.path == "/status.json":
            return _status_json(seen)
        if address.path.startswith(_SHARD):
            shard_id = shard_id_of(unquote(address.path.removeprefix(_SHARD)))
            found = shard_page(self._view(seen, Wish()), shard_id)
            if found is not None:
                return Answer(HTTPStatus.OK, _HTML, found.encode())
            return text(HTTPStatus.NOT_FOUND, "nobody knows that shard; / shows those there are")
        return text(HTTPStatus.NOT_FOUND, "there is no such page; / is the first one")

    def _view(self, seen: Seen, wish: Wish) -> View:
        return View(
            look=seen.look,
            samples=seen.samples,
            trouble=seen.trouble,
            letters=seen.letters,
            commands=self._commands,
            whole_command=self._whole_command,
            wish=wish,
        )


def _wish(asked: dict[str, list[str]]) -> Wish:
    def one(name: str) -> str:
        return asked.get(name, [""])[-1]

    page = one("page")
    is_number = page.isascii() and page.isdigit() and len(page) <= MAX_PAGE_DIGITS
    return Wish(text=one("q")[:MAX_TEXT], page=int(page) if is_number else 1, span=one("span")[:8])


def _status_json(seen: Seen) -> Answer:
    """As `status --json`. While looks fail it is the last good one, and the status says so."""
    status = HTTPStatus.OK if seen.trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(status_of(seen.look).as_json(), indent=2)
    return Answer(status, "application/json", f"{body}\n".encode())
