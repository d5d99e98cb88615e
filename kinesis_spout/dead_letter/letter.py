"""The one schema of dead letters: a record that could not be processed, and why.

`COLUMNS` is the schema, for `consume --dead-letter`, the spout and Spark alike. From it come the
fields of `Letter`, the lines of JSON, Spark's columns, and the table of the reference. In JSON a
time is ISO 8601 in UTC, and bytes are base64. What a writer does not know is null.

Version 1 was what `consume` wrote before: other names, and a payload as text where it was UTF-8.
It is read, and written no more.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kinesis_spout.errors import ConfigError
from scheme.record import KPL_MAGIC
from state.collections import in_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord


CHUNK_LETTERS = 500
CHUNK_BYTES = 32 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Column(NamedTuple):
    """A column of a letter: its name, Spark SQL type and meaning, and its field in `Letter`."""

    name: str
    type: str
    meaning: str
    field: str


def _columns(table: str) -> tuple[Column, ...]:
    columns = []
    for line in table.strip().splitlines():
        name, kind, meaning = line.split(maxsplit=2)
        snake = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
        columns.append(Column(name, kind, meaning, snake.removesuffix("_timestamp")))
    return tuple(columns)


SCHEMA_VERSION = 2
COLUMNS = _columns("""
messageId           STRING    the id of the last delivery: `shardId:sequenceNumber:attempt`
streamName          STRING    the stream that the record was read from. `redrive` puts the record \
on this stream again
shardId             STRING    the shard that the record was read from
sequenceNumber      STRING    the sequence number of the dead-lettered record
subSequenceNumber   BIGINT    the index of a user record in its aggregate, counted from 0. The \
index is 0 for a record that was not part of an aggregate, and null if aggregates were not unpacked
partitionKey        STRING    the record's partition key. `redrive` puts the record with this key
data                BINARY    the record's payload; null if the record had expired before its retry
approximateArrivalTimestamp   TIMESTAMP   when Kinesis accepted the record
attempts            INT       the number of times that the record was delivered
firstFailure        TIMESTAMP the time of the record's first failure that counted as an attempt
lastFailure         TIMESTAMP when the record last failed. `redrive --since` and `--until` compare \
this time
reason              STRING    the reason why the record failed: the exception, or the reason that \
the job gave
application         STRING    the application that failed the record; null if the consumer has no \
application
""")
# Members of a line of JSON that are no columns of a table, since only some letters have them.
LINE_MEMBERS = _columns("""
count               BIGINT    the number of expired records that the dead letter represents
lastSequenceNumber  STRING    the sequence number of the last of these expired records
part                INT       the index of the part of a large payload in this line, from 1
parts               INT       the number of parts of a large payload. All parts have the same \
`messageId`
""")
ALL_MEMBERS = (*COLUMNS, *LINE_MEMBERS)
LETTER_COLUMNS = tuple(column.name for column in COLUMNS)
LETTER_DDL = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
_NAMES_OF_VERSION_1 = {
    "id": "messageId",
    "stream": "streamName",
    "shard": "shardId",
    "sequence": "sequenceNumber",
    "key": "partitionKey",
    "arrival": "approximateArrivalTimestamp",
    "lastSequence": "lastSequenceNumber",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter: a record that is no longer retried.

    - Times are in UTC. `attempts` counts the deliveries that failed.
    - `data` is None if the record was gone from the stream before its retry. `count` may then be
      above 1: the letter stands for the `count` records from `sequence_number` to
      `last_sequence_number`.
    - `sub_sequence_number` is None for a record that was delivered while aggregates were not
      unpacked. If the record is an aggregate, `data` is the whole aggregate.

    The repr shows neither the payload nor the partition key.
    """

    message_id: str
    stream_name: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None = None
    partition_key: str | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)
    approximate_arrival: datetime | None = None
    attempts: int = 0
    first_failure: datetime | None = None
    last_failure: datetime | None = None
    reason: str | None = None
    application: str | None = None
    count: int = 1
    last_sequence_number: str | None = None

    @classmethod
    def of_record(
        cls,
        record: UnresolvedRecord,
        number: SequenceNumber | None = None,
        *,
        stream_name: str,
        shard_id: str,
        application: str | None,
        **found: Any,
    ) -> Self:
        """The letter of one record of `record`, or of all of them, which are gone from the stream,
        if `number` is None. `found`: the fields that come from the stream.
        """
        first = number or record.first
        return cls(
            message_id=f"{shard_id}:{first}:{record.attempts}",
            stream_name=stream_name,
            shard_id=shard_id,
            sequence_number=str(first.sequence),
            sub_sequence_number=None if record.whole and not first.sub else first.sub,
            attempts=record.attempts,
            first_failure=moment(record.first_failure_ms, per_second=1_000),
            last_failure=moment(record.last_failure_ms, per_second=1_000),
            reason=record.reason,
            application=application,
            count=1 if number else record.count,
            last_sequence_number=str((number or record.last).sequence),
            **found,
        )

    @property
    def is_whole(self) -> bool:
        """Whether the letter is for an aggregate that was delivered whole. Without the payload, any
        record that was delivered without unpacking aggregates may be an aggregate.
        """
        if self.sub_sequence_number is not None:
            return False
        return self.data is None or self.data.startswith(KPL_MAGIC)

    def to_json(self) -> str:
        """The letter as a JSON object in one line. `redrive` reads files of such lines."""
        return line_of(self).decode()

    @property
    def first_failure_ms(self) -> int | None:
        """In milliseconds since 1970 UTC, as are the next two."""
        return _ms(self.first_failure)

    @property
    def last_failure_ms(self) -> int | None:
        return _ms(self.last_failure)

    @property
    def approximate_arrival_ms(self) -> int | None:
        return _ms(self.approximate_arrival)


class Piece(NamedTuple):
    """A letter as it lies in a file: whole, or one of several parts of its payload."""

    letter: Letter
    part: int
    parts: int


def line_of(letter: Letter, **more: object) -> bytes:
    """The letter as a JSON object, without a line end. `more`: further members."""
    members = {column.name: _to_json(getattr(letter, column.field)) for column in COLUMNS}
    if letter.count > 1:
        members |= {"count": letter.count, "lastSequenceNumber": letter.last_sequence_number}
    text = json.dumps(members | more, ensure_ascii=False, separators=(",", ":"))
    # A reason may hold half of a surrogate pair, which UTF-8 cannot encode: hence `replace`.
    return text.encode("utf-8", errors="replace")


def piece_of_line(line: bytes | str) -> Piece | None:
    """The letter of a line, of any version; None for a line that is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return piece_of(found) if isinstance(found, dict) else None


def piece_of(found: Mapping[str, Any]) -> Piece | None:
    """The letter of a row or a JSON object, of any version; None if it is none.

    A time may be a datetime (UTC without a zone), an ISO text, or microseconds since 1970 UTC.
    """
    try:
        if "id" in found and found.get("messageId") is None:
            found = _of_version_1(found)
        if any(found.get(name) is None for name in ("messageId", "streamName", "sequenceNumber")):
            return None
        whole = {
            column.field: _value(column.type, found[column.name])
            for column in ALL_MEMBERS
            if found.get(column.name) is not None
        }
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError):
        return None
    part, parts = whole.pop("part", 1), whole.pop("parts", 1)
    return Piece(Letter(**({"shard_id": ""} | whole)), part, parts)


def moment(value: Any, per_second: int = 1_000_000) -> datetime | None:
    """The time in UTC of a datetime, an ISO text, or a number since 1970; None for None."""
    if isinstance(value, int):
        return _EPOCH + timedelta(microseconds=value * (1_000_000 // per_second))
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if value is None:
        return None
    time: datetime = value
    return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)


def iso(time: datetime | None, timespec: str = "microseconds") -> str | None:
    """As `2026-01-31T12:00:00.000000Z`; None for None."""
    return None if time is None else time.isoformat(timespec=timespec).replace("+00:00", "Z")


def in_chunks(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    """The letters in lists of at most 500, with at most 32 MiB of payload unless one letter alone
    has more. No list is empty.
    """
    return in_batches(
        letters,
        lambda letter: len(letter.data or b""),
        most=CHUNK_LETTERS,
        most_bytes=CHUNK_BYTES,
    )


def _of_version_1(found: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {_NAMES_OF_VERSION_1.get(name, name): value for name, value in found.items()}
    text = found.get("data")
    renamed["data"] = found.get("dataBase64") if text is None else text.encode()
    # It did not say whether a record without such a number was delivered unpacked.
    sub = found["id"].split(":")[-2].partition(".")[2]
    return renamed | {"subSequenceNumber": int(sub) if sub else None}


def _value(kind: str, value: Any) -> Any:
    """A value of a column of this type. Raises ValueError or TypeError."""
    if kind == "TIMESTAMP":
        return moment(value)
    if kind == "BINARY":
        return b64decode(value, validate=True) if isinstance(value, str) else bytes(value)
    if not isinstance(value, str if kind == "STRING" else int):
        raise TypeError(f"{type(value).__name__} is not {kind}")
    return value


def _to_json(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _ms(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(milliseconds=1)


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

    A letter is on the disk, in the file that has this name, when the call returns. So a file that
    was removed or renamed (logrotate) is created again. Entering raises `ConfigError` when the file
    cannot be opened. The call raises OSError when a letter cannot be written. A part of a letter
    that was written before an error or a crash stays in the file as a line of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None  # its descriptor
        self._ends_torn = False
        self._is_on_disk = True
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self._file = self._open()
        except OSError as exc:
            self.__exit__()
            raise ConfigError.of(
                "dead_letter",
                f"cannot be written: {exc.strerror}",
                str(self._path),
                remedy="choose a writable dead letter file",
            ) from exc
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __call__(self, letter: Letter) -> None:
        with self._lock:
            if self._file is None:
                raise RuntimeError(
                    f"the dead letter file {self._path} is not open; use this object in a "
                    "with statement"
                )
            line, is_written = line_of(letter) + b"\n", False
            while not is_written:
                if not self._has_its_name(self._file):
                    self._file = self._open()
                self._append(self._file, line)
                # Asked again: rather two copies of a letter than none.
                is_written = self._has_its_name(self._file)

    def _open(self) -> int:
        """Returns the descriptor. Keeps the open file where this one cannot be opened."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            found = os.fstat(file)
            is_on_disk = stat.S_ISREG(found.st_mode)
            ends_torn = is_on_disk and self._ends_without_newline()
            if is_on_disk and not found.st_size:
                sync_folder(self._path.absolute().parent)
        except OSError:
            os.close(file)
            raise
        self.__exit__()
        self._is_on_disk, self._ends_torn = is_on_disk, ends_torn
        return file

    def _has_its_name(self, file: int) -> bool:
        with suppress(OSError):
            return not self._is_on_disk or os.path.samestat(self._path.stat(), os.fstat(file))
        return False

    def _append(self, file: int, letter: bytes) -> None:
        line = memoryview((b"\n" if self._ends_torn else b"") + letter)
        while line:
            written = os.write(file, line)
            self._ends_torn = True  # until the whole line is written
            line = line[written:]
        self._ends_torn = False
        if self._is_on_disk:
            os.fsync(file)

    def _ends_without_newline(self) -> bool:
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
