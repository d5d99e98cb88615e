"""What becomes of each record that `kinesis-spout consume` reads: a line on stdout, or a command's
answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.cli.exec_process import AnsweringCommand
    from kinesis_spout.cli.line_writer import LineWriter
    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.kinesis_spout import KinesisSpout

_BATCH_RECORDS = 500
_BATCH_BYTES = 1024 * 1024


def write_records(
    spout: KinesisSpout,
    writer: LineWriter,
    line_of: Callable[[SpoutEmission], bytes],
    *,
    stopped: Callable[[], bool],
    max_records: int | None,
) -> None:
    """A line for each record; a record is acked once all of its line was taken. Returns at the end,
    or when it is to stop.

    Raises BrokenPipeError when nobody reads any more, and OSError; nothing of what could not be
    written is acked.
    """
    written = 0

    def is_over() -> bool:
        return stopped() or written == max_records or writer.reader_is_gone

    for first in spout.emissions(is_over):
        left = _BATCH_RECORDS if max_records is None else min(_BATCH_RECORDS, max_records - written)
        batch = [(emission, line_of(emission)) for emission in _batch(spout, first, left)]
        taken = writer.write(b"".join(line for _, line in batch))
        for emission, line in batch:
            taken -= len(line)
            if taken < 0:
                return
            emission.ack()
        written += len(batch)
    if writer.reader_is_gone:
        raise BrokenPipeError


def run_command(
    spout: KinesisSpout, command: AnsweringCommand, *, stopped: Callable[[], bool]
) -> bool:
    """Hand each record to the command, which answers by itself. Returns at the end, or when it is
    to stop; False when the command has ended by itself.
    """
    for emission in spout.emissions(lambda: stopped() or command.has_ended):
        if not command.send(emission):
            break
    return not command.has_ended


def _batch(spout: KinesisSpout, first: SpoutEmission, most: int) -> Iterator[SpoutEmission]:
    """What is there now, so that one write does for many records."""
    yield first
    size_bytes = len(first.data)
    for _ in range(most - 1):
        more = spout.next_tuple() if size_bytes < _BATCH_BYTES else None
        if more is None:
            return
        size_bytes += len(more.data)
        yield more
