"""Reads dead letters from files, without Spark, and counts them by their reason.

These formats: lines of JSON, as `consume --dead-letter` and `DeadLetter("json")` write them, also
with gzip; parquet and orc. Names that begin with `_` or `.` are Spark's own, and are left out.
"""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from kinesis_spout.errors import ConfigError
from kinesis_spout.html.text import count, plural
from kinesis_spout.inspection.page.letter_reasons import Letter, Letters, ReasonCount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LETTERS = 200_000
MAX_FILES = 20_000
MAX_LINE_BYTES = 32 * 1024 * 1024
READ_EVERY = 15  # looks
_COLUMNS = frozenset(
    {
        "messageId",
        "shardId",
        "subSequenceNumber",
        "reason",
        "attempts",
        "lastFailure",
        "streamName",
        "application",
    }
)
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".parquet", ".orc")


class _Line(msgspec.Struct, rename="camel"):
    """A letter of either writer: `consume` names the first four, Spark's the next four."""

    id: str | None = None
    stream: str | None = None
    shard: str | None = None
    count: int = 1
    message_id: str | None = None
    stream_name: str | None = None
    shard_id: str | None = None
    sub_sequence_number: int | None = None
    application: str | None = None
    attempts: int | None = None
    reason: str | None = None
    last_failure: str | None = None


class _File(NamedTuple):
    path: Path
    size: int
    changed_ns: int


@dataclass(slots=True)
class LetterFolder:
    """A file of letters, or a folder of them. Letters of another application or stream are left
    out. The constructor does no I/O. For one thread.
    """

    path: Path
    application: str
    stream: str
    _decoder: msgspec.json.Decoder[_Line] = field(
        default_factory=lambda: msgspec.json.Decoder(_Line), init=False
    )
    _known: tuple[_File, ...] | None = field(default=None, init=False)
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
        """What the files hold. Most calls answer from memory. Blocks on the disk; never raises for
        a file that cannot be read, which `Letters.notes` names.
        """
        self._asked += 1
        if self._found is None or self._asked % READ_EVERY == 0:
            files = tuple(self._files())
            if files != self._known:
                self._known, self._found = files, self._counted(files)
        if self._found is None:
            raise RuntimeError("the dead letters were not counted")
        return self._found

    def _files(self) -> Iterator[_File]:
        paths = [self.path] if self.path.is_file() else sorted(self._below())
        for path in paths[:MAX_FILES]:
            try:
                found = path.stat()
            except OSError:
                continue  # a plan's folder is overwritten when its batch runs again
            yield _File(path, found.st_size, found.st_mtime_ns)

    def _below(self) -> Iterator[Path]:
        for path in self.path.rglob("*"):
            parts = path.relative_to(self.path).parts
            if path.name.endswith(_SUFFIXES) and not any(one[0] in "_." for one in parts):
                yield path

    def _counted(self, files: tuple[_File, ...]) -> Letters:
        reasons: dict[str, ReasonCount] = {}
        # A whole aggregate has the message id of its first user record, and no number in itself.
        ids: set[tuple[str, bool]] = set()
        left_out: Counter[str] = Counter()
        unreadable: list[str] = []
        for one in files:
            try:
                for line in self._lines(one.path):
                    if len(ids) >= MAX_LETTERS:
                        break
                    letter = self._letter(line, left_out)
                    if line is None or letter is None:
                        continue
                    identity = letter.message_id, line.sub_sequence_number is None
                    if identity in ids:
                        continue
                    ids.add(identity)
                    reasons.setdefault(letter.reason, ReasonCount()).add(letter)
            except (OSError, EOFError, ValueError, pa.ArrowException) as exc:
                unreadable.append(f"{one.path.name}: {exc}")
        notes = [plural(many, *_NOTES[what]) for what, many in left_out.items()]
        if len(ids) >= MAX_LETTERS:
            notes.append(f"Only the first {count(MAX_LETTERS)} letters are counted.")
        if len(files) >= MAX_FILES:
            notes.append(f"Only the first {count(MAX_FILES)} files are read.")
        if unreadable:
            notes.append(f"{plural(len(unreadable), 'file')} cannot be read: {unreadable[0]}")
        return Letters(place=str(self.path), reasons=reasons, letters=len(ids), notes=tuple(notes))

    def _lines(self, path: Path) -> Iterator[_Line | None]:
        """None for a line that is not a letter."""
        if path.name.endswith((".parquet", ".orc")):
            yield from self._rows(path)
            return
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield self._decoded(line)

    def _decoded(self, line: bytes) -> _Line | None:
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    @staticmethod
    def _rows(path: Path) -> Iterator[_Line | None]:
        """A batch at a time, without the payloads."""
        if path.name.endswith(".orc"):
            orc = pa_orc.ORCFile(path)
            columns = sorted(_COLUMNS & {*orc.schema.names})
            batches = (orc.read_stripe(at, columns) for at in range(orc.nstripes))
        else:
            parquet = pa_parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
            columns = sorted(_COLUMNS & {*parquet.schema_arrow.names})
            batches = parquet.iter_batches(columns=columns)
        for batch in batches:
            for row in batch.to_pylist():
                yield _of_row(row)

    def _letter(self, line: _Line | None, left_out: Counter[str]) -> Letter | None:
        message_id = None if line is None else line.message_id or line.id
        if line is None or message_id is None:
            left_out["no letter"] += 1
            return None
        stream = line.stream_name or line.stream
        if line.application not in {None, self.application} or stream not in {None, self.stream}:
            left_out["others'"] += 1
            return None
        return Letter(
            message_id=message_id,
            shard_id=line.shard_id or line.shard or "",
            reason=line.reason or "",
            count=line.count,
            attempts=line.attempts or 0,
            last_failure=line.last_failure or "",
        )


_NOTES = {
    "no letter": ("line is not a dead letter.", "lines are not dead letters."),
    "others'": (
        "letter of another application or stream is left out.",
        "letters of other applications or streams are left out.",
    ),
}


def _of_row(row: dict[str, Any]) -> _Line | None:
    failed = row.get("lastFailure")
    if isinstance(failed, datetime):
        row["lastFailure"] = failed.isoformat()
    try:
        return msgspec.convert(row, _Line)
    except msgspec.ValidationError:
        return None
