"""The page as a file: its policy, and what its script may not do."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from kinesis_spout.page import page
from tests.support.html.parsed_page import ParsedPage


def digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("data", [None, {"kind": "drill"}])
def test_the_policy_lets_the_page_s_own_style_and_script_be_and_nothing_else(
    data: dict[str, str] | None,
) -> None:
    """A page that a server has may ask that server, too."""
    parsed = ParsedPage(page(data).decode())
    (policy,) = (
        attrs["content"]
        for _, attrs in parsed.tags
        if attrs.get("http-equiv", "").endswith("Policy")
    )
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts == {
        "default-src": "'none'",
        "style-src": digest(parsed.texts["style"][0]),
        "script-src": digest(parsed.texts["script"][-1]),
        "base-uri": "'none'",
        "form-action": "'none'",
    } | ({"connect-src": "'self'"} if data is None else {})


def test_the_script_has_no_way_to_make_markup_or_code_of_a_value() -> None:
    script = ParsedPage(page().decode()).texts["script"][-1]
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    )
    assert re.findall(forbidden, script) == []
    assert "@" not in page({}).decode().replace("@media", ""), "a mark that was to be replaced"
    outside = r"https?://(?!www\.w3\.org/2000/svg\")|url\(|@import|src="
    assert re.findall(outside, page().decode().replace("script-src", "")) == []
