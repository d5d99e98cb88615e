"""The page around a content: head, style and policy. It holds all that a browser is told."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from kinesis_spout.html.element import element, render
from kinesis_spout.html.stylesheet import STYLESHEET

if TYPE_CHECKING:
    from kinesis_spout.html.element import Node

# The texts that are not escaped. They are ours, and no value gets into them.
_STYLE = f"<style>{STYLESHEET}</style>"
_HASH = b64encode(sha256(STYLESHEET.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
LIVE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'"
)
SCRIPT_PATH = "/live.js"  # where the server of a live page has `live_script.LIVE_SCRIPT`
_LIVE = (
    f'<script src="{SCRIPT_PATH}" defer></script>'
    '<noscript><meta http-equiv="refresh" content="10"></noscript>'
)


def document(title: str, *content: Node, is_live: bool = False) -> str:
    """The text of a page, to be stored or sent as UTF-8: no script, no request, this style only.

    `is_live`: it is sent by a server that has the script of live pages, which fetches the page
    again. Without scripts, the browser loads it again every 10 s.
    """
    policy = LIVE_POLICY if is_live else POLICY
    head = (
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("title", {}, title),
    )
    body = element("body", {}, element("main", {}, *content))
    return (
        f'<!doctype html>\n<html lang="en"><head>{"".join(map(render, head))}{_STYLE}'
        f"{_LIVE if is_live else ''}</head>\n"
        f"{render(body)}</html>\n"
    )
