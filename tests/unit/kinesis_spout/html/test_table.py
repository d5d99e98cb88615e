"""A table says which of its cells are headers, and of what."""

from __future__ import annotations

import pytest

from kinesis_spout.html.element import render
from kinesis_spout.html.table import Column, table
from tests.support.html.parsed_page import ParsedPage

COLUMNS = [Column("Shard"), Column("Records", number=True)]


def test_columns_and_rows_have_headers() -> None:
    """Screen readers read them with each cell."""
    page = ParsedPage(render(table("Two shards", COLUMNS, [("a", "1"), ("b", "2")])))
    assert page.faults == []
    assert page.values("th", "scope") == ["col", "col", "row", "row"]
    assert page.texts["td"] == ["1", "2"]
    assert page.texts["caption"] == ["Two shards"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table("Two shards", COLUMNS, [("a", "1", "2")])
