"""The codec of the history."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from state.codec.history import decode_entry, encode_entry, mark_of, marks_in, node_names
from state.errors import StoredDataError
from state.position import SHARD_END, Position
from state.state_store import HistoryEntry, HistoryMark

ENTRY = HistoryEntry(
    time_ms=1_700_000_000_000,
    positions={"shardId-1": Position.parse("AFTER:5"), "shardId-2": SHARD_END},
    full=True,
    cause="rewind",
)
# As format 1 was written first: readers of all later versions take it.
SAMPLE = base64.b64decode(
    "eJyrVirIL84syczPK1ayqlYqzkgsSvFM0TVUslJydAtxDbIyVdKBixoBRYM9HINc4l39XJRqdZSSE0uLU4GCRanlmXkp"
    "QJVp+UW5iSVKVoa1APECG7c="
)


def test_an_entry_is_compressed_json() -> None:
    (data,) = encode_entry(ENTRY)
    assert json.loads(zlib.decompress(data)) == {
        "positions": {"shardId-1": "AFTER:5", "shardId-2": "SHARD_END"},
        "cause": "rewind",
        "format": 1,
    }


def test_a_stored_sample_is_read() -> None:
    mark = mark_of(3, ENTRY)
    assert node_names(mark) == ["0000000003-1700000000000-moved-0-of-1"]
    assert decode_entry(mark, [SAMPLE], "path") == ENTRY


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", "path holds .* not an entry of the history"),
        (SAMPLE[:-8], "it has no end"),
        (zlib.compress(b"{"), "path holds"),
        (zlib.compress(b'{"format": 2}'), "written by a newer version"),
    ],
)
def test_damaged_and_newer_entries_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(StoredDataError, match=said):
        decode_entry(mark_of(3, ENTRY), [data], "path")


def test_entries_are_found_by_the_names_of_their_nodes() -> None:
    """In the order of their numbers. Other names, and entries of which a part is missing, are told
    apart.
    """
    expected = [
        HistoryMark(number=2, time_ms=9, full=True, moved=False),
        HistoryMark(number=3, time_ms=7, full=False, moved=False, parts=2),
        HistoryMark(number=10**10, time_ms=8, full=True, moved=True),
    ]
    names = [name for mark in expected for name in node_names(mark)]
    half = node_names(HistoryMark(number=4, time_ms=1, full=False, moved=False, parts=2))[:1]
    assert marks_in([*reversed(names), *half, "notes"]) == (expected, [*half, "notes"])
