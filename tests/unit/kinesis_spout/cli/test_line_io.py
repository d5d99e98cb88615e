"""A line above the limit. Lines through pipes, with readers that are slow or gone, are in
`tests/integration/commands` (`test_consume.py`, `test_produce.py`).
"""

from __future__ import annotations

from kinesis_spout.cli.line_io import HEAD_BYTES, LineSplitter, LongLine

MEGABYTE = 1024 * 1024


def test_of_a_line_above_the_limit_only_the_head_is_held() -> None:
    """The lines around it come as they are."""
    splitter = LineSplitter(MEGABYTE)
    lines = splitter.feed(b"before\n" + b"y" * MEGABYTE + b"z")
    for _ in range(100):
        lines += splitter.feed(b"w" * MEGABYTE)
    held = sum(len(part) for part in splitter._parts)
    lines += splitter.feed(b"\nafter\r\n")
    assert held == HEAD_BYTES
    assert lines == [b"before", LongLine(b"y" * HEAD_BYTES, 101 * MEGABYTE + 1), b"after"]
    assert splitter.rest() is None
