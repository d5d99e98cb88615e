"""The page around a content: head, style and policy. It holds all that a browser is told."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from kinesis_spout.html.element import element, render
from kinesis_spout.html.stylesheet import STYLESHEET

if TYPE_CHECKING:
    from kinesis_spout.html.element import Node

# The one text that is not escaped. It is ours, and no value gets into it.
_STYLE = f"<style>{STYLESHEET}</style>"
_HASH = b64encode(sha256(STYLESHEET.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"


def document(title: str, *content: Node) -> str:
    """The text of a page, to be stored or sent as UTF-8: no script, no request, this style only."""
    head = (
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("title", {}, title),
    )
    body = element("body", {}, element("main", {}, *content))
    return (
        f'<!doctype html>\n<html lang="en"><head>{"".join(map(render, head))}{_STYLE}</head>\n'
        f"{render(body)}</html>\n"
    )
