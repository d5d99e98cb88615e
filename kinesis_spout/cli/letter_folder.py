"""Reads dead letters from local files, and counts them by their reason."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from kinesis_spout.dead_letter.files import FileName, LetterFormat, LocalLetterFiles, pieces_of
from kinesis_spout.dead_letter.letter import Letter, iso
from kinesis_spout.errors import ConfigError
from kinesis_spout.inspection.wording import counted

MAX_LETTERS, MAX_FILES, MAX_REASONS = 200_000, 20_000, 50
READ_EVERY = 15  # observations
_COLUMNS = frozenset(  # without the payloads
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
    _known: list[tuple[Path, int, int]] | None = field(default=None, init=False)
    _found: dict[str, Any] = field(default_factory=dict, init=False)
    _asked: int = field(default=0, init=False)

    def check(self) -> None:
        """Raise `ConfigError` for a path that holds no letters that can be read."""
        problem, remedy = "does not exist", "pass a local file or directory with dead letters"
        if (self.path / "_delta_log").exists():
            problem = "is a Delta table, which cannot be read without Spark"
            remedy = "query the table with Spark"
        elif self.path.exists():
            return
        raise ConfigError.of("--dead-letters", problem, str(self.path), remedy=remedy)

    def read(self) -> dict[str, Any]:
        """The page's JSON of the letters: `place`, `records`, `reasons` (the most records first)
        and `notes`, sentences on what was left out. Most calls answer from memory. Blocks on the
        disk; never raises for a file that cannot be read, which a note names.
        """
        if self._asked % READ_EVERY == 0:
            files = list(self._files())
            if files != self._known:
                self._known, self._found = files, self._counted([path for path, *_ in files])
        self._asked += 1
        return self._found

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        paths = LocalLetterFiles(self.path).files()
        named = (one for one in paths if one == self.path or FileName.of(one.name).kind)
        for path in islice(named, MAX_FILES):
            try:
                found = path.stat()
            except OSError:
                continue  # a plan's folder is overwritten when its batch runs again
            yield path, found.st_size, found.st_mtime_ns

    def _counted(self, files: list[Path]) -> dict[str, Any]:
        reasons: dict[str, dict[str, Any]] = {}
        # A whole aggregate has the message id of its first user record, and no number in itself.
        ids: set[tuple[str, bool]] = set()
        no_letters = others = 0
        unreadable: list[str] = []
        for path in files:
            kind = FileName.of(path.name).kind or LetterFormat.JSON
            try:
                for piece in pieces_of(path, kind, _COLUMNS):
                    if len(ids) >= MAX_LETTERS:
                        break
                    if piece is None:
                        no_letters += 1
                        continue
                    letter = piece.letter
                    identity = letter.message_id, letter.sub_sequence_number is None
                    if (
                        letter.application not in {None, self.application}
                        or letter.stream_name != self.stream
                    ):
                        others += 1
                    elif identity not in ids:
                        ids.add(identity)
                        _add(reasons, letter)
            except (OSError, EOFError, ValueError, pa.ArrowException) as exc:
                unreadable.append(f"{path.name}: {exc}")
        notes = []
        if no_letters:
            notes.append(f"Lines that are not dead letters: {no_letters:,}.")
        if others:
            notes.append(f"Dead letters of other applications or streams, not shown: {others:,}.")
        if len(ids) >= MAX_LETTERS:
            notes.append(f"Only the first {MAX_LETTERS:,} dead letters are counted.")
        if len(files) >= MAX_FILES:
            notes.append(f"Only the first {MAX_FILES:,} files are read.")
        if unreadable:
            notes.append(
                f"Cannot read {counted(len(unreadable), 'file')}, for example {unreadable[0]}"
            )
        worst = sorted(reasons.values(), key=lambda one: (-one["records"], one["reason"]))
        return {
            "place": str(self.path),
            "records": sum(one["records"] for one in worst),
            "reasons": [{**one, "shards": sorted(one["shards"])} for one in worst[:MAX_REASONS]],
            "notes": notes,
        }


def _add(reasons: dict[str, dict[str, Any]], letter: Letter) -> None:
    name, last_failure = letter.reason or "", iso(letter.last_failure, "milliseconds") or ""
    new = {"records": 0, "attempts": 0, "lastFailure": "", "shards": set()}
    one = reasons.setdefault(name, {"reason": name, **new, "example": letter.message_id})
    one["records"] += letter.count
    one["attempts"] = max(one["attempts"], letter.attempts)
    one["lastFailure"] = max(one["lastFailure"], last_failure)
    one["shards"].add(letter.shard_id)
