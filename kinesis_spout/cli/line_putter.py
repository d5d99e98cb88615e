"""Putting lines on a stream as records, and telling which of them could not be put."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.cli.record_lines import LineError
from kinesis_spout.errors import KinesisError, RequestRefusedError
from kinesis_spout.service.record_putter import OutgoingRecord, in_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kinesis_spout.service.record_putter import RecordPutter

LONGEST_KEY = 256  # characters: API reference, PutRecordsRequestEntry


class _Numbered(NamedTuple):
    line: int
    record: OutgoingRecord


class LinePutter:
    """`record_of` makes a record of a line, or None of one to skip, and raises `LineError`. Lines
    are counted from 1.

    `complain` gets a sentence for each line that is not put. `put` blocks on the network; after it
    has raised, `unsure` has the first and the last line of which nobody knows whether they were
    put.
    """

    def __init__(
        self,
        putter: RecordPutter,
        record_of: Callable[[bytes], OutgoingRecord | None],
        complain: Callable[[str], None],
    ) -> None:
        self.put_count = 0
        self.refused_count = 0
        self.unsure: tuple[int, int] | None = None
        self._putter = putter
        self._record_of = record_of
        self._complain = complain
        self._line = 0

    def put(self, lines: Iterable[bytes]) -> None:
        """Put what can be put: of a request that is refused, all but the records to blame. Raises
        any other `KinesisError`.
        """
        numbered = [one for line in lines if (one := self._numbered(line)) is not None]
        at = 0
        for request in in_requests(one.record for one in numbered):
            self._put(numbered[at : at + len(request)])
            at += len(request)

    def _numbered(self, line: bytes) -> _Numbered | None:
        self._line += 1
        try:
            record = self._record_of(line)
        except LineError as exc:
            self._refuse(self._line, str(exc))
            return None
        if record is not None and not 0 < len(record.partition_key) <= LONGEST_KEY:
            self._refuse(
                self._line,
                f"has a partition key that is empty or longer than {LONGEST_KEY} characters",
            )
            return None
        return None if record is None else _Numbered(self._line, record)

    def _put(self, numbered: Sequence[_Numbered]) -> None:
        try:
            self.put_count += self._putter.put([one.record for one in numbered])
        except RequestRefusedError as exc:
            if len(numbered) == 1:
                self._refuse(numbered[0].line, f"is refused: {exc}")
                return
            half = len(numbered) // 2
            self._put(numbered[:half])
            self._put(numbered[half:])
        except KinesisError:
            self.unsure = (numbered[0].line, numbered[-1].line)
            raise

    def _refuse(self, line: int, why: str) -> None:
        self.refused_count += 1
        self._complain(f"line {line} {why}")
