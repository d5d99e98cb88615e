"""A page as an HTML parser reads it, with what may be in one of ours."""

from __future__ import annotations

from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlsplit

from kinesis_spout.html.element import NAMES, TAGS, VOID

# What the shell writes beside the tree.
_SHELL_TAGS = frozenset({"html", "head", "style", "script", "noscript"})
_SHELL_NAMES = frozenset({"lang", "src", "defer"})


class ParsedPage(HTMLParser):
    """`faults`: tags that are not closed in order, and what is not in the lists. `texts`: by tag,
    what stands in it, without what stands in elements in it. `tags`: in the order of the page.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]

    def text(self) -> str:
        """All that is read on the page, and its tooltips."""
        return "\n".join(
            text for tag, texts in self.texts.items() if tag != "style" for text in texts
        )

    def values(self, tag: str, name: str) -> list[str]:
        """Of the elements that have the attribute."""
        return [attrs[name] for each, attrs in self.tags if each == tag and name in attrs]

    def count(self, tag: str) -> int:
        return sum(each == tag for each, _ in self.tags)

    # what the parser calls ------------------------------------------------------------------------
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in TAGS | _SHELL_TAGS:
            self.faults.append(f"<{tag}> is not ours")
        lower = {name.lower() for name in NAMES} | _SHELL_NAMES  # as the parser has them
        self.faults += [f"{name}= is not ours" for name, _ in attrs if name not in lower]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.faults.append(f"<{tag}/> closes itself")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)
        elif data.strip():
            self.faults.append(f"{data[:20]!r} is outside")

    def handle_comment(self, data: str) -> None:
        self.faults.append("a comment")

    def handle_pi(self, data: str) -> None:
        self.faults.append("a processing instruction")

    def unknown_decl(self, data: str) -> None:
        self.faults.append("a declaration")


def get(url: str, target: str = "/") -> tuple[int, str]:
    """The status and the body of a page that is served."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
