"""Files of dead letters on this machine, and the ledger beside them, read without Spark.

The files are lines of JSON (also with gzip or bzip2), parquet or orc, and may lie in folders. Names
that begin with `_` or `.` are Spark's own, and are left out.

The ledger says which letters were put back, in parquet files in `_redriven`. An entry names a
record by its stream, shard and sequence number, regardless of the attempt of its letter. It also
names the target stream, so a trial on another stream does not keep a record from its own stream.
`isWhole` tells an aggregate that was delivered whole from its first user record, which has the same
numbers. It is null in an entry of an earlier version, which may be of either.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from kinesis_spout.dead_letter.letter import ALL_MEMBERS, piece_of, piece_of_line, sync_folder
from kinesis_spout.errors import KinesisError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kinesis_spout.dead_letter.letter import Piece

# Spark's readers skip names that begin with an underscore, but warn if the path that they are given
# ends in one: hence the folder inside.
LEDGER_FOLDER = "_redriven/ledger"
LEDGER_DDL = (
    "target STRING, streamName STRING, shardId STRING, sequenceNumber STRING, "
    "subSequenceNumber BIGINT, messageId STRING, redrivenAt TIMESTAMP, isWhole BOOLEAN"
)
_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}
_TYPES["TIMESTAMP"] = pa.timestamp("us", tz="UTC")
LEDGER_SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in map(str.split, LEDGER_DDL.split(", "))]
)
LEDGER_IDENTITY = (*LEDGER_SCHEMA.names[:5], "isWhole")

MAX_LINE_BYTES = 64 * 1024 * 1024
_COLUMNS = frozenset(column.name for column in ALL_MEMBERS)
# Compressed files are named part-0.snappy.parquet and part-0.json.gz.
_SUFFIX = re.compile(r"\.(parquet|orc|json|jsonl|ndjson)(?:\.([a-z0-9]+))?$")
_OPENERS: dict[str | None, Callable[[Path], Any]] = {
    None: lambda path: path.open("rb"),
    "gz": gzip.GzipFile,
    "bz2": bz2.BZ2File,
}


class LetterFormat(StrEnum):
    """The formats of dead letter files."""

    PARQUET = "parquet"
    JSON = "json"
    ORC = "orc"


class RedriveError(KinesisError):
    """Files that cannot be put back: not dead letters, or of a format that must be given."""


class LetterFiles(Protocol):
    """Files of letters under a path, which `str()` returns, and their ledger. Methods block, and
    raise the errors of what reads the files.
    """

    def names(self) -> Iterable[str]: ...

    def pieces(self, kind: LetterFormat, *, heads: bool) -> Iterator[Piece | None]:
        """All letters of the files; None for a row that is none. `heads`: of a payload its first
        bytes are enough.
        """
        ...

    def ledger(self) -> Iterable[tuple[Any, ...]]:
        """The entries of the ledger, in the columns of `LEDGER_IDENTITY`."""
        ...

    def append(self, entries: Sequence[tuple[Any, ...]]) -> None:
        """Add entries in the columns of `LEDGER_DDL`. Without any, make sure that it is there."""
        ...


class FileName(NamedTuple):
    """What a file's name says: the format of its letters, and how it is compressed."""

    kind: LetterFormat | None
    compression: str | None

    @classmethod
    def of(cls, name: str) -> FileName:
        found = _SUFFIX.search(name)
        if found is None:
            return cls(None, None)
        kind = "json" if "json" in found[1] else found[1]
        return cls(LetterFormat(kind), found[2] if kind == "json" else None)


def ledger_in(folder: str) -> str:
    """The folder of the ledger: beside that of a plan, which the job overwrites as a whole."""
    folder = folder.rstrip("/")
    parent, slash, last = folder.rpartition("/")
    if last.startswith("plan="):
        folder = parent if slash else "."
    return f"{folder}/{LEDGER_FOLDER}"


def format_of(files: LetterFiles) -> LetterFormat | None:
    """The format of the letters, from the names of the files; None without files. Raises
    `RedriveError`.
    """
    kinds = {FileName.of(name).kind for name in files.names()}
    found = sorted(kind for kind in kinds if kind is not None)
    remedy = "pass the dead letters' format with --format"
    if len(found) > 1:
        raise RedriveError(f"{files} contains files of the formats {' and '.join(found)}", remedy)
    if kinds and not found:
        raise RedriveError(
            (f"{files} contains no file whose name ends in .{' or .'.join(LetterFormat)}"), remedy
        )
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class LocalLetterFiles:
    """A file or a folder of letters on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def at(cls, path: str) -> LocalLetterFiles | None:
        """None for a path that is not on this machine, or that only Spark reads: orc, whose times
        are in a zone that the file does not name to others, and Hadoop's own compressions.
        """
        found = cls(Path(path.removeprefix("file://")))
        kinds = map(FileName.of, found.names())
        is_read = found.path.exists() and all(
            one.kind is not LetterFormat.ORC and one.compression in _OPENERS for one in kinds
        )
        return found if is_read else None

    def files(self) -> Iterator[Path]:
        if self.path.is_file():
            yield self.path
            return
        for path in sorted(self.path.rglob("*")):
            hidden = any(part[0] in "_." for part in path.relative_to(self.path).parts)
            if not hidden and path.is_file():
                yield path

    def names(self) -> Iterator[str]:
        """A file of its own may have any name: `consume --dead-letter` names its file as asked."""
        alone = self.path.is_file() and FileName.of(self.path.name).kind is None
        return iter([f"{self.path.name}.json"] if alone else [path.name for path in self.files()])

    def pieces(self, kind: LetterFormat, *, heads: bool) -> Iterator[Piece | None]:
        """Files of the format by their names, or all files if none is named like it."""
        del heads  # a payload is read from the disk anyway
        files = list(self.files())
        for path in [one for one in files if FileName.of(one.name).kind is kind] or files:
            with _readable(path, kind):
                yield from pieces_of(path, kind)

    @property
    def _ledger_folder(self) -> Path:
        return Path(ledger_in(str(self.path if self.path.is_dir() else self.path.parent)))

    def ledger(self) -> Iterator[tuple[Any, ...]]:
        for path in sorted(self._ledger_folder.glob("*.parquet")):
            with _readable(path, "ledger"):
                rows = pa_parquet.ParquetFile(path).read().to_pylist()
            yield from (tuple(row.get(name) for name in LEDGER_IDENTITY) for row in rows)

    def append(self, entries: Sequence[tuple[Any, ...]]) -> None:
        """An entry is on the disk when it returns."""
        columns = zip(*entries, strict=True) if entries else ([] for _ in LEDGER_SCHEMA)
        arrays = map(pa.array, map(list, columns), LEDGER_SCHEMA.types)
        table = pa.Table.from_arrays(list(arrays), schema=LEDGER_SCHEMA)
        folder, name = self._ledger_folder, f"part-{uuid4()}.parquet"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f".{name}").open("wb") as file:
                pa_parquet.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            (folder / f".{name}").rename(folder / name)
            sync_folder(folder)
        except OSError as exc:
            raise RedriveError(
                f"redrive cannot write its list of put records to the directory {folder} "
                f"({exc.strerror})",
                f"make the directory {folder} writable",
            ) from exc


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, pa.ArrowException) as exc:
        remedy = ""
        if kind in {LetterFormat.PARQUET, LetterFormat.ORC}:
            remedy = (
                "if the file contains lines of JSON, as `consume` writes them, pass --format json"
            )
        raise RedriveError(f"cannot read the file {path} as {kind} ({exc})", remedy) from exc


def pieces_of(
    path: Path, kind: LetterFormat, columns: AbstractSet[str] = _COLUMNS
) -> Iterator[Piece | None]:
    """The letters of a file. `columns`: those that are needed of a table."""
    if kind is LetterFormat.JSON:
        if (compression := FileName.of(path.name).compression) not in _OPENERS:
            raise ValueError(f"the file is compressed as {compression}")
        with _OPENERS[compression](path) as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield piece_of_line(line)
        return
    batches: Iterable[pa.RecordBatch]
    if kind is LetterFormat.ORC:
        orc = pa_orc.ORCFile(path)
        needed = [*(columns & {*orc.schema.names})]
        batches = (orc.read_stripe(stripe, needed) for stripe in range(orc.nstripes))
    else:
        parquet = pa_parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
        needed = [*(columns & {*parquet.schema_arrow.names})]
        batches = parquet.iter_batches(columns=needed, batch_size=100)
    for batch in batches:
        yield from map(piece_of, batch.to_pylist())
