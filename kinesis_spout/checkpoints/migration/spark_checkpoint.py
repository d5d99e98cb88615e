"""The checkpoint location of a Spark query: which batches were planned, and which were committed.
Blocks on files.

A location has `offsets/<n>` for each batch that was planned and `commits/<n>` for each one that
went through (Spark's `OffsetSeqLog` and `CommitLog`). An offsets file is

    v1
    {"batchWatermarkMs":..., "batchTimestampMs":..., "conf":...}
    <the offset of source 0>
    <the offset of source 1>, or - where the source has none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.checkpoints.migration.origin import COPY_AGAIN, MigrationError, decoded

if TYPE_CHECKING:
    from pathlib import Path

_NONE = "-"


class _Metadata(msgspec.Struct, rename="camel"):
    batch_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One offsets file. `planned_ms`: when it was planned, by the driver's clock (ms since 1970).
    `offsets`: the text of each source's offset; None for a source without one.
    """

    number: int
    planned_ms: int | None
    offsets: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """`committed`: the last batch that went through. `planned`: the batch after it, which was begun
    at most. Either is None if there is none.
    """

    committed: PlannedBatch | None
    planned: PlannedBatch | None


def local_folder(location: Path) -> Path:
    """The location, if it is a folder of this machine. Raises `MigrationError`."""
    text = str(location)
    if text.startswith("file:"):
        location = type(location)("/" + text.removeprefix("file:").lstrip("/"))
    if ":/" in text and not text.startswith("file:"):
        raise MigrationError(
            f"{text} is not a folder on this machine",
            ("copy it here first, for example with `aws s3 sync`"),
        )
    if not location.is_dir():
        raise MigrationError(f"{location} is not a folder", "give the query's checkpointLocation")
    return location


def read_checkpoint(location: Path) -> SparkCheckpoint:
    """The batches of a location. Raises `MigrationError`."""
    offsets, commits = numbered(location / "offsets"), numbered(location / "commits")
    if not offsets:
        raise MigrationError(
            f"{location} has no offsets/<batch>",
            "give the query's checkpointLocation, and not a folder above or below it",
        )
    last = max(commits, default=-1)
    if last >= 0 and last not in offsets:
        raise MigrationError(
            f"{location} has commits/{last} but not offsets/{last}, so it is not complete",
            COPY_AGAIN,
        )
    return SparkCheckpoint(
        _batch(location, last) if last >= 0 else None,
        _batch(location, last + 1) if last + 1 in offsets else None,
    )


def not_committed(number: int) -> str:
    """The note about a planned batch."""
    return f"batch {number} was planned and not committed, so it is read again"


def numbered(folder: Path) -> set[int]:
    """The numbers among the names in a folder; none if it is not there. Checksums, backups and
    files that are still being written have other names.
    """
    if not folder.is_dir():
        return set()
    return {
        int(each.name) for each in folder.iterdir() if each.name.isascii() and each.name.isdigit()
    }


def text_of(file: Path) -> str:
    """Raises `MigrationError`."""
    try:
        return file.read_text("utf-8")
    except OSError as exc:
        raise MigrationError(f"{file} cannot be read: {exc.strerror}", COPY_AGAIN) from exc
    except UnicodeDecodeError as exc:
        raise MigrationError(f"{file} is not UTF-8", COPY_AGAIN) from exc


def _batch(location: Path, number: int) -> PlannedBatch:
    file = location / "offsets" / str(number)
    lines = text_of(file).splitlines()
    if not lines or lines[0] != "v1":
        raise MigrationError(
            f"{file} does not begin with v1, so this version cannot read it",
            "give --at with a time before its last batch",
        )
    metadata = decoded("".join(lines[1:2]), _Metadata, f"the second line of {file}")
    offsets = tuple(None if line == _NONE else line for line in lines[2:])
    return PlannedBatch(number, metadata.batch_timestamp_ms, offsets)
