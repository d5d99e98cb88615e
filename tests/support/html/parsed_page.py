"""A page as an HTML parser reads it, its data, and what a server answers."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit


class ParsedPage(HTMLParser):
    """`tags`: in the order of the page. `texts`: by tag, what stands in it, up to the next tag."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._in = ""
        self.feed(page)
        self.close()

    @property
    def data(self) -> Any:
        """What the page shows."""
        return json.loads(self.texts["script"][0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.texts.setdefault(self._in, []).append(data)


def get(url: str, target: str = "/") -> tuple[int, str]:
    """The status and the body of a page that is served."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def page_json(url: str, **asked: str) -> Any:
    """The JSON that the page at this address is drawn from."""
    return json.loads(get(url, f"/page.json?{urlencode(asked)}")[1])
