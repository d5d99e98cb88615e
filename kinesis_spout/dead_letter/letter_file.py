"""Dead letters as lines of JSON in a file."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING, BinaryIO

from kinesis_spout.dead_letter.letter import line_of
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from kinesis_spout.dead_letter.letter import Letter


def sync_folder(folder: Path) -> None:
    """Blocks until the names in it are on the disk. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class LetterFile:
    """Appends dead letters to a file. A context manager, and a `SpoutConfig.dead_letter`: several
    threads may call it.

    A letter is on the disk when the call returns. Entering raises `ConfigError` when the file
    cannot be opened. The call raises OSError when a letter cannot be written. A part of a letter
    that was written before an error or a crash stays in the file as a line of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._ends_torn = False
        self._is_on_disk = True
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open("ab", buffering=0)
            self._is_on_disk = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
            self._ends_torn = self._is_on_disk and self._ends_without_newline()
        except OSError as exc:
            self.__exit__()
            raise ConfigError.of(
                "dead_letter",
                f"cannot be written: {exc.strerror}",
                str(self._path),
                remedy="choose a file that can be written",
            ) from exc
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __call__(self, letter: Letter) -> None:
        with self._lock:
            if self._file is None:
                raise RuntimeError(
                    f"the dead letter file {self._path} is not open; use it in a with statement"
                )
            line = memoryview((b"\n" if self._ends_torn else b"") + line_of(letter) + b"\n")
            while line:
                written = self._file.write(line)
                self._ends_torn = True  # until the whole line is written
                line = line[written:]
            self._ends_torn = False
            if self._is_on_disk:
                os.fsync(self._file.fileno())

    def _ends_without_newline(self) -> bool:
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
