"""Reads dead letters from files, without Spark, and counts them by their reason.

These formats: lines of JSON, as `consume --dead-letter` and `DeadLetter("json")` write them, also
with gzip; parquet and orc. Names that begin with `_` or `.` are Spark's own, and are left out.
"""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as pa_dataset

from kinesis_spout.cli.plain_text import plural
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_LETTERS, MAX_FILES, MAX_REASONS = 200_000, 20_000, 50
MAX_LINE_BYTES = 32 * 1024 * 1024
READ_EVERY = 15  # observations
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".parquet", ".orc")
_NOTES = {
    "no letter": ("line is not a dead letter.", "lines are not dead letters."),
    "others'": (
        "letter of another application or stream is left out.",
        "letters of other applications or streams are left out.",
    ),
}


class _Letter(msgspec.Struct, rename="camel"):
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


_COLUMNS = frozenset(_Letter.__struct_encode_fields__)
_DECODER = msgspec.json.Decoder(_Letter)


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
        paths = [self.path] if self.path.is_file() else sorted(self.path.rglob("*"))
        named = (one for one in paths if one == self.path or self._may_have_letters(one))
        for path in islice(named, MAX_FILES):
            try:
                found = path.stat()
            except OSError:
                continue  # a plan's folder is overwritten when its batch runs again
            yield path, found.st_size, found.st_mtime_ns

    def _may_have_letters(self, path: Path) -> bool:
        parts = path.relative_to(self.path).parts
        return path.name.endswith(_SUFFIXES) and not any(one[0] in "_." for one in parts)

    def _counted(self, files: list[Path]) -> dict[str, Any]:
        reasons: dict[str, dict[str, Any]] = {}
        # A whole aggregate has the message id of its first user record, and no number in itself.
        ids: set[tuple[str, bool]] = set()
        left_out: Counter[str] = Counter()
        unreadable: list[str] = []
        for path in files:
            try:
                for letter in _letters(path):
                    if len(ids) >= MAX_LETTERS:
                        break
                    message_id = None if letter is None else letter.message_id or letter.id
                    if letter is None or message_id is None:
                        left_out["no letter"] += 1
                    elif not self._is_ours(letter):
                        left_out["others'"] += 1
                    elif (identity := (message_id, letter.sub_sequence_number is None)) not in ids:
                        ids.add(identity)
                        _add(reasons, letter, message_id)
            except (OSError, EOFError, ValueError, pa.ArrowException) as exc:
                unreadable.append(f"{path.name}: {exc}")
        notes = [plural(many, *_NOTES[what]) for what, many in left_out.items()]
        if len(ids) >= MAX_LETTERS:
            notes.append(f"Only the first {MAX_LETTERS:,} letters are counted.")
        if len(files) >= MAX_FILES:
            notes.append(f"Only the first {MAX_FILES:,} files are read.")
        if unreadable:
            notes.append(f"{plural(len(unreadable), 'file')} cannot be read: {unreadable[0]}")
        worst = sorted(reasons.values(), key=lambda one: (-one["records"], one["reason"]))
        return {
            "place": str(self.path),
            "records": sum(one["records"] for one in worst),
            "reasons": [{**one, "shards": sorted(one["shards"])} for one in worst[:MAX_REASONS]],
            "notes": notes,
        }

    def _is_ours(self, letter: _Letter) -> bool:
        stream = letter.stream_name or letter.stream
        return letter.application in {None, self.application} and stream in {None, self.stream}


def _add(reasons: dict[str, dict[str, Any]], letter: _Letter, message_id: str) -> None:
    new = {"records": 0, "attempts": 0, "lastFailure": "", "shards": set(), "example": message_id}
    reason = letter.reason or ""
    one = reasons.setdefault(reason, {"reason": reason, **new})
    one["records"] += letter.count
    one["attempts"] = max(one["attempts"], letter.attempts or 0)
    one["lastFailure"] = max(one["lastFailure"], letter.last_failure or "")
    one["shards"].add(letter.shard_id or letter.shard or "")


def _letters(path: Path) -> Iterator[_Letter | None]:
    """None for a line that is not a letter. Payloads are not read, or not kept."""
    if path.name.endswith((".orc", ".parquet")):
        # Spark's INT96 has nanoseconds, which no datetime has.
        parquet = pa_dataset.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        found = pa_dataset.dataset(path, format="orc" if path.name.endswith("c") else parquet)
        batches = found.to_batches(columns=sorted(_COLUMNS & {*found.schema.names}))
        for row in (row for batch in batches for row in batch.to_pylist()):
            if isinstance(failed := row.get("lastFailure"), datetime):
                row["lastFailure"] = failed.isoformat()
            yield _decoded(partial(msgspec.convert, row, _Letter))
        return
    with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as lines:
        while line := lines.readline(MAX_LINE_BYTES):
            if line.strip():
                yield _decoded(partial(_DECODER.decode, line))


def _decoded(decode: Callable[[], _Letter]) -> _Letter | None:
    try:
        return decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
