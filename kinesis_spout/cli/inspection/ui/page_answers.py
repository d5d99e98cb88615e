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
from kinesis_spout.page.document import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.cli.inspection.ui.observed import ObservedApplication
    from kinesis_spout.cli.inspection.ui.watcher import Seen, Watcher

MAX_OPEN = 8  # applications that are observed at a time
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


@dataclass(frozen=True, slots=True)
class Shown:
    """An application that is observed."""

    watcher: Watcher
    observed: ObservedApplication


@dataclass(slots=True)
class PageAnswers:
    """- `first`: what is shown where the address names no application.
    - `opened`: observes an application of a stream; None for one that does not exist.
    """

    first: Watcher
    application: ObservedApplication | None
    opened: Callable[[str, str], Shown | None]
    _open: OrderedDict[tuple[str, str], Shown] = field(default_factory=OrderedDict, init=False)
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
            watcher, observed = self._shown(application, stream)
            if watcher is None:
                return text(HTTPStatus.NOT_FOUND, "no such application has state there")
            seen = watcher.newest()
            if address.path == "/status.json":
                return _status(seen)
            # An age grows without an observation: it is reported in steps of 5 s.
            key = watcher, seen.version, seen.since_ms // 5_000, shard
            if self._kept is None or self._kept[0] != key:
                detail = observed.shard(shard_id_of(shard)) if observed and shard else None
                self._kept = key, _page_json(seen, detail, f'"{hash(key)}"')
            return self._kept[1]

    def close(self) -> None:
        for one in self._open.values():
            one.watcher.close()

    def _shown(
        self, application: str, stream: str
    ) -> tuple[Watcher | None, ObservedApplication | None]:
        if not application or self.application is not None:
            return self.first, self.application
        name = application, stream
        if name not in self._open:
            shown = self.opened(application, stream)
            if shown is None:
                return None, None
            self._open[name] = shown
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)[1].watcher.close()
        self._open.move_to_end(name)
        return self._open[name].watcher, self._open[name].observed


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
