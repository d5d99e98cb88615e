"""A tree can only become text that is escaped, with elements and attributes of the lists. Texts
have bounds, and hide nothing.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import Any, cast

import pytest

from kinesis_spout.html.element import Element, element, render
from kinesis_spout.html.text import cut, visible


def test_a_string_is_text_between_tags_and_in_attributes() -> None:
    """Also one that looks like an element, an entity or the end of an attribute."""
    hostile = "</p><script>alert(1)</script>&amp;\"'"
    assert render(element("p", {"aria-label": hostile}, hostile)) == (
        '<p aria-label="&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;&quot;&#x27;">'
        "&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;\"'</p>"
    )


@pytest.mark.parametrize(
    ("tag", "attributes", "children", "message"),
    [
        ("script", {}, (), "<script> is not in the list"),
        ("img", {}, (), "<img> is not in the list"),
        ("p><script", {}, (), "is not in the list"),
        ("p", {"onclick": "x"}, (), "onclick= is not in the list"),
        ("p", {"style": "x"}, (), "style= is not in the list"),
        ("p", {'class="" onclick': "x"}, (), "is not in the list"),
        ("rect", {"x": float("nan")}, (), "x= of <rect> is nan"),
        ("meta", {}, ("x",), "<meta> has no content"),
        ("a", {"href": "javascript:alert(1)"}, (), "href= leads to"),
        ("a", {"href": "//evil.example/"}, (), "href= leads to"),
        ("a", {"href": "/\\evil.example/"}, (), "href= leads to"),
        ("a", {"href": "https://evil.example/"}, (), "href= leads to"),
        ("a", {"href": "/x\ny"}, (), "href= leads to"),
        ("form", {"action": "http://evil.example/"}, (), "action= leads to"),
    ],
)
def test_what_is_not_in_the_lists_is_refused(
    tag: str, attributes: dict[str, Any], children: tuple[str, ...], message: str
) -> None:
    """Also when an `Element` is made without `element`, and whatever a type checker was told."""
    with pytest.raises(ValueError, match=message):
        Element(cast("Any", tag), cast("Any", attributes), children)


def test_no_character_is_unseen_and_what_is_seen_stays() -> None:
    """Controls, formats, surrogates and separators of lines get an escape, all that Unicode has."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(char) == char
    ]
    assert hidden == []
    seen = "Zürich 東京 שלום नमस्ते e\u0301 & <b> \"' 😀 → ✓"
    assert visible(seen) == seen


def test_a_cut_text_says_how_much_is_missing() -> None:
    assert cut("x" * 100) == "x" * 100
    assert cut("x" * 10_000, 3) == "xxx… (9,997 more characters)"
