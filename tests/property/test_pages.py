"""Whatever a value holds, a page has its own elements, and its data come back as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.page import page
from tests.support.drills.made_up_history import HOSTILE
from tests.support.html.parsed_page import ParsedPage

# Surrogates too: a key that is not UTF-8 may be decoded to them.
CHARACTERS = st.characters(codec=None, categories=None)
MARKUP = st.sampled_from(
    [*HOSTILE, "<", ">", "&", '"', "'", "<!--", "-->", "]]>", "</script", "<script>", "@data@"]
)
VALUES = st.one_of(st.text(CHARACTERS, max_size=30), st.lists(MARKUP, max_size=4).map("".join))
PLAIN = ParsedPage(page({"kind": "drill"}).decode())


@given(value=VALUES, name=VALUES)
def test_no_value_becomes_an_element(value: str, name: str) -> None:
    data = {name: [value]}
    parsed = ParsedPage(page(data).decode())
    assert parsed.data == data
    assert parsed.tags == PLAIN.tags
    assert parsed.texts["script"][1:] == PLAIN.texts["script"][1:]
