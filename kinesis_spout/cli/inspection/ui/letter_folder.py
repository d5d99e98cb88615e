"""Reads dead letters from local files, and counts them by their reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_spout.dead_letter.files import FileName, LetterFormat, LocalLetterFiles, pieces_of
from kinesis_spout.dead_letter.letter import iso
from kinesis_spout.errors import ConfigError
from kinesis_spout.html.text import count, plural
from kinesis_spout.inspection.page.letter_reasons import Letter, Letters, ReasonCount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LETTERS = 200_000
MAX_FILES = 20_000
READ_EVERY = 15  # looks
# Without the payloads.
_COLUMNS = frozenset(
    {
        *("messageId", "streamName", "shardId", "sequenceNumber", "subSequenceNumber"),
        *("attempts", "lastFailure", "reason", "application"),
    }
)


@dataclass(slots=True)
class LetterFolder:
    """A file of letters, or a folder of them. Letters of another application or stream are left
    out. The constructor does no I/O. For one thread.
    """

    path: Path
    application: str
    stream: str
    _known: tuple[tuple[Path, int, int], ...] | None = field(default=None, init=False)
    _found: Letters | None = field(default=None, init=False)
    _asked: int = field(default=0, init=False)

    def check(self) -> None:
        """Raise `ConfigError` for a path that holds no letters that can be read."""
        if not self.path.exists():
            raise ConfigError.of(
                "--dead-letters",
                "does not exist",
                str(self.path),
                remedy="give a local file or folder",
            )
        if (self.path / "_delta_log").exists():
            raise ConfigError.of(
                "--dead-letters",
                "is a Delta table, which cannot be read without Spark",
                str(self.path),
                remedy="query it there",
            )

    def read(self) -> Letters:
        """The letters of the files. Most calls answer from memory; others block on the disk. A file
        that cannot be read is in `Letters.notes`.
        """
        self._asked += 1
        if self._found is None or self._asked % READ_EVERY == 0:
            files = tuple(self._files())
            if files != self._known or self._found is None:
                self._known, self._found = files, self._counted([path for path, *_ in files])
        return self._found

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        for number, path in enumerate(LocalLetterFiles(self.path).files()):
            if number >= MAX_FILES:
                break
            if FileName.of(path.name).kind is None and path != self.path:
                continue
            try:
                found = path.stat()
            except OSError:
                continue  # a plan's folder is overwritten when its batch runs again
            yield path, found.st_size, found.st_mtime_ns

    def _counted(self, files: list[Path]) -> Letters:
        reasons: dict[str, ReasonCount] = {}
        # A whole aggregate has the message id of its first user record, and no number in itself.
        ids: set[tuple[str, bool]] = set()
        left_out: Counter[str] = Counter()
        unreadable: list[str] = []
        for path in files:
            kind = FileName.of(path.name).kind or LetterFormat.JSON
            try:
                for piece in pieces_of(path, kind, _COLUMNS):
                    if len(ids) >= MAX_LETTERS:
                        break
                    if piece is None:
                        left_out["no letter"] += 1
                        continue
                    letter = piece.letter
                    identity = letter.message_id, letter.sub_sequence_number is None
                    application = letter.application or self.application
                    if (letter.stream_name, application) != (self.stream, self.application):
                        left_out["others'"] += 1
                    elif identity not in ids:
                        ids.add(identity)
                        reason = reasons.setdefault(letter.reason or "", ReasonCount())
                        reason.add(
                            Letter(
                                message_id=letter.message_id,
                                shard_id=letter.shard_id,
                                reason=letter.reason or "",
                                count=letter.count,
                                attempts=letter.attempts,
                                last_failure=iso(letter.last_failure, "milliseconds") or "",
                            )
                        )
            except (OSError, EOFError, ValueError, pa.ArrowException) as exc:
                unreadable.append(f"{path.name}: {exc}")
        notes = [plural(many, *_NOTES[what]) for what, many in left_out.items()]
        if len(ids) >= MAX_LETTERS:
            notes.append(f"Only the first {count(MAX_LETTERS)} letters are counted.")
        if len(files) >= MAX_FILES:
            notes.append(f"Only the first {count(MAX_FILES)} files are read.")
        if unreadable:
            notes.append(f"{plural(len(unreadable), 'file')} cannot be read: {unreadable[0]}")
        return Letters(place=str(self.path), reasons=reasons, letters=len(ids), notes=tuple(notes))


_NOTES = {
    "no letter": ("line is not a dead letter.", "lines are not dead letters."),
    "others'": (
        "letter of another application or stream is left out.",
        "letters of other applications or streams are left out.",
    ),
}
