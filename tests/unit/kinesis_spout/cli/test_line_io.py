"""Lines through pipes: readers that are slow, gone or stopped, and writers that continue."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.line_io import (
    HEAD_BYTES,
    LineReader,
    LineSplitter,
    LineWriter,
    LongLine,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MEGABYTE = 1024 * 1024


class Pipe:
    """Both ends of a pipe. The test closes what is still open."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self._open = {self.read_end, self.write_end}

    def close(self, end: int) -> None:
        if end in self._open:
            self._open.remove(end)
            os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close(made.read_end)
    made.close(made.write_end)


def never() -> bool:
    return False


@contextmanager
def drained(pipe: Pipe) -> Iterator[list[bytes]]:
    """Collects the output of the pipe, until the end of the block closes the other end."""
    got: list[bytes] = []

    def drain() -> None:
        with os.fdopen(os.dup(pipe.read_end), "rb") as source:
            got.append(source.read())

    thread = threading.Thread(target=drain)
    thread.start()
    yield got
    pipe.close(pipe.write_end)
    thread.join(10)


# writing ------------------------------------------------------------------------------------------
def test_all_of_it_is_written_to_a_reader_that_reads(pipe: Pipe) -> None:
    data = os.urandom(MEGABYTE)
    with drained(pipe) as got:
        assert LineWriter(pipe.write_end, never).write(data) == MEGABYTE
    assert got == [data]


def test_a_reader_that_is_gone_is_detected_without_writing(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_end, never)
    assert not writer.reader_is_gone
    pipe.close(pipe.read_end)
    assert writer.reader_is_gone
    with pytest.raises(BrokenPipeError):
        writer.write(b"line\n")


# reading ------------------------------------------------------------------------------------------
def test_lines_are_returned_before_more_arrive(pipe: Pipe) -> None:
    """Also complete lines in front of an incomplete one."""
    reader = LineReader(
        pipe.read_end, never, max_lines=500, max_bytes=MEGABYTE, max_line_bytes=MEGABYTE
    )
    batches = reader.batches()
    os.write(pipe.write_end, b"one\ntwo\r\nthr")
    assert next(batches) == [b"one", b"two"]
    os.write(pipe.write_end, b"ee\n\nlast")
    assert next(batches) == [b"three", b""]
    pipe.close(pipe.write_end)
    assert list(batches) == [[b"last"]]


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
