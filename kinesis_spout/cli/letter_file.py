"""Dead letters as lines of JSON in a file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from kinesis_spout.cli.record_lines import letter_line
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from kinesis_spout.spout.dead_letter import DeadLetter


class LetterFile:
    """Appends letters to a file: `SpoutConfig.dead_letter`, and a context manager. A letter is on
    the disk when the call returns.

    Entering raises `ConfigError` when the file cannot be opened; the call raises OSError for a
    letter that could not be written. What was written of it then, or before a crash, stays as a
    line of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._is_torn = False
        self._is_on_disk = True

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open("ab", buffering=0)
            self._is_on_disk = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
            self._is_torn = self._is_on_disk and self._ends_within_a_line()
        except OSError as exc:
            self.__exit__(None, None, None)
            raise ConfigError.of(
                "dead_letter",
                f"cannot be written: {exc.strerror}; name a file that can",
                str(self._path),
            ) from exc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __call__(self, letter: DeadLetter) -> None:
        if self._file is None:
            raise RuntimeError(
                f"the file of dead letters, {self._path}, is not open; use it in a with statement"
            )
        line = memoryview((b"\n" if self._is_torn else b"") + letter_line(letter))
        while line:
            written = self._file.write(line)
            self._is_torn = True  # until all of it is there
            line = line[written:]
        self._is_torn = False
        if self._is_on_disk:
            os.fsync(self._file.fileno())

    def _ends_within_a_line(self) -> bool:
        with self._path.open("rb") as written:
            if not written.seek(0, os.SEEK_END):
                return False
            written.seek(-1, os.SEEK_END)
            return written.read(1) != b"\n"
