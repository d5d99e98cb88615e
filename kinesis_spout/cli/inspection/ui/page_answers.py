"""Which answer an address has: the page, or JSON of what is observed."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from kinesis_spout.cli.inspection.ui.page_server import Answer, text
from kinesis_spout.cli.shared_options import shard_id_of
from kinesis_spout.page import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.cli.inspection.ui.watcher import Seen, Watcher

MAX_OPEN = 8  # applications that are observed at a time
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


@dataclass(slots=True)
class PageAnswers:
    """- `first`: what is shown where the address names no application.
    - `opened`: observes an application of a stream from now on; None for one that does not exist.
      Without it, `first` is all that is shown.
    """

    first: Watcher
    opened: Callable[[str, str], Watcher | None] | None = None
    _open: OrderedDict[tuple[str, str], Watcher] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _kept: tuple[object, Answer] | None = field(default=None, init=False)

    def answer(self, target: str) -> Answer:
        try:
            address = urlsplit(target)
            asked = parse_qs(address.query, max_num_fields=10)
        except ValueError:
            return text(HTTPStatus.BAD_REQUEST, "the address is not valid")
        if address.path == "/":
            return Answer(HTTPStatus.OK, _HTML, page())
        if address.path not in {"/page.json", "/status.json"}:
            return text(HTTPStatus.NOT_FOUND, "there is no such page; / is the first one")
        application, stream, shard = (
            asked.get(name, [""])[-1] for name in ("application", "stream", "shard")
        )
        with self._lock:  # readers share the work
            watcher = self._watcher(application, stream)
            if watcher is None:
                return Answer(HTTPStatus.NOT_FOUND, _JSON, b'{"kind": "missing"}\n')
            seen = watcher.newest()
            if address.path == "/status.json":
                return _status(seen)
            # An age grows without an observation: it is reported in steps of 5 s.
            key = watcher, seen.version, seen.since_ms // 5_000, shard
            if self._kept is None or self._kept[0] != key:
                detail = watcher.observed.shard(shard_id_of(shard)) if shard else None
                self._kept = key, _page_json(seen, detail, f'"{hash(key)}"')
            return self._kept[1]

    def close(self) -> None:
        for one in self._open.values():
            one.close()

    def _watcher(self, application: str, stream: str) -> Watcher | None:
        if not application or self.opened is None:
            return self.first
        name = application, stream
        if name not in self._open:
            watcher = self.opened(application, stream)
            if watcher is None:
                return None
            self._open[name] = watcher
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]


def _page_json(seen: Seen, shard: dict[str, Any] | None, tag: str) -> Answer:
    trouble = None
    if seen.trouble is not None:
        trouble = {"says": seen.trouble, "sinceMs": seen.since_ms}
    data = {**(seen.data or {"kind": "waiting"}), "shard": shard, "trouble": trouble}
    body = json.dumps(data, separators=(",", ":")).encode()
    return Answer(HTTPStatus.OK, _JSON, body, tag)


def _status(seen: Seen) -> Answer:
    """As `status --json`. While observations fail it is the last good one, with the status 503."""
    data = seen.data or {}
    shown = data.get("status", data.get("applications"))
    is_good = shown is not None and seen.trouble is None
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, _JSON, f"{json.dumps(shown, indent=2)}\n".encode())
