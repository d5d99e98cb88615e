"""A page asks for nothing, runs nothing, and names the one style that it has."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from kinesis_spout.html.element import element
from kinesis_spout.html.shell import document
from tests.support.html.parsed_page import ParsedPage


def test_the_policy_allows_the_style_of_the_page_only() -> None:
    """The digest is that of the text which is in the page."""
    page = ParsedPage(document("Title", element("p", {}, "Text")))
    assert page.faults == []
    (style,) = page.texts["style"]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policies = [
        attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv", "").endswith("Policy")
    ]
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    ]
    assert "url(" not in style
    assert "@import" not in style


def test_a_page_has_what_readers_and_browsers_need() -> None:
    """Language, title, encoding, width of the screen, one main part."""
    text = document("A & B", element("p", {}, "Text"))
    assert text.startswith("<!doctype html>\n")
    page = ParsedPage(text)
    assert page.values("html", "lang") == ["en"]
    assert page.texts["title"] == ["A & B"]
    assert page.values("meta", "charset") == ["utf-8"]
    assert "viewport" in page.values("meta", "name")
    assert page.count("main") == 1
