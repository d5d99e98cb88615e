"""Where a query of awslabs' connector for Spark, or of Databricks' Kinesis source, has stopped: its
checkpoint location. Blocks on files.

A location has `offsets/<n>` for each batch that was planned and `commits/<n>` for each one that
went through (Spark's `OffsetSeqLog` and `CommitLog`). An offsets file is

    v1
    {"batchWatermarkMs":..., "batchTimestampMs":..., "conf":...}
    <the offset of source 0>
    <the offset of source 1>, or - where the source has none

awslabs: its formats, from `KinesisV2SourceOffset`, `KinesisV2PartitionReader`,
`HDFSMetadataCommitter` and `DynamodbMetadataCommitter` of awslabs/spark-sql-kinesis-connector
(Apache 2.0):

    offsets/<n>                              where batch n *begins* in each shard, and the
                                             connector's own number of it, `metadata.batchId`
    sources/<i>/shard-source/<b>/<shard id>  where its batch b *ended* in the shard, written by the
                                             task; or the same in a table of DynamoDB

So the connector has stopped where its last committed batch ended. A batch that was planned and not
committed is read again. What its tasks wrote tells how much that is.

A position is `iteratorType`, `iteratorPosition`, `subSequenceNumber` (-1: no aggregate) and
`isLast` (the last user record of its aggregate).

The connector leaves a shard where it is as soon as that is closed (`ShardSyncer.updateShard`). The
rest of such a shard was never read. Batches that are still there tell where it was left.

Databricks does not document its checkpoint. It documents the offsets that a query's progress shows
(docs.databricks.com, "Monitoring Structured Streaming queries": the metrics of the Kinesis source),
as a list with an entry for each shard:

    {"shard": {"stream": ..., "shardId": ...}, "firstSeqNum": ..., "lastSeqNum": ...,
     "closed": ..., "msBehindLatest": ..., "lastRecordSeqNum": ...}

`lastRecordSeqNum` is the last record that was consumed; `lastSeqNum` may be beyond it. Spark writes
the same text of an offset into `offsets/<n>` that it shows as `endOffset`, so a location whose
offsets are such lists is read. Of any other the error says from which time to continue (`--at`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kinesis_spout.checkpoints.migration.import_plan import (
    COPY_AGAIN,
    GIVE_UNCHANGED,
    Item,
    MigrationError,
    Origin,
    OriginShard,
    after_user_record,
    decoded,
    in_item,
    number_in,
)
from kinesis_spout.shards.start_position import LATEST_MARGIN_MS
from state.errors import InvalidPositionError
from state.position import SHARD_END, TRIM_HORIZON, Position

_FIXED = {"SHARD_END": SHARD_END, "TRIM_HORIZON": TRIM_HORIZON, "LATEST": None}
_NOT_COMMITTED = "batch {} was planned but not committed, so the batch is read again"


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


def read_checkpoint(location: Path) -> tuple[PlannedBatch | None, PlannedBatch | None]:
    """Of a folder of this machine, the last batch that was committed, and the batch after it, which
    was begun at most. Either is None if there is none. Raises `MigrationError`.
    """
    if str(location).partition("/")[0].endswith(":"):
        raise MigrationError(
            f"{location} is not a directory on this machine",
            "copy the directory to this machine, for example with `aws s3 sync`",
        )
    if not location.is_dir():
        raise MigrationError(
            f"{location} is not a directory", "pass the query's checkpointLocation"
        )
    offsets, commits = numbered(location / "offsets"), numbered(location / "commits")
    if not offsets:
        raise MigrationError(
            f"{location} has no offsets/<batch>",
            "pass the query's checkpointLocation, not its parent directory or a subdirectory",
        )
    last = max(commits, default=-1)
    if last >= 0 and last not in offsets:
        raise MigrationError(
            f"{location} contains commits/{last} but not offsets/{last}, so the "
            "checkpointLocation is incomplete",
            COPY_AGAIN,
        )
    return (
        _batch(location, last) if last >= 0 else None,
        _batch(location, last + 1) if last + 1 in offsets else None,
    )


def without_scheme(location: Path) -> Path:
    """The path of `file:/path`; any other as it is."""
    text = str(location)
    is_url = text.startswith("file:")
    return Path("/" + text.removeprefix("file:").lstrip("/")) if is_url else location


def numbered(folder: Path) -> set[int]:
    """The numbers among the names in a folder; none if it is not there. Checksums, backups and
    files that are still being written have other names.
    """
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return {int(name) for name in names if name.isascii() and name.isdigit()}


def text_of(file: Path) -> str:
    """Raises `MigrationError`."""
    try:
        return file.read_text("utf-8")
    except OSError as exc:
        raise MigrationError(f"cannot read {file}: {exc.strerror}", COPY_AGAIN) from exc
    except UnicodeDecodeError as exc:
        raise MigrationError(f"{file} is not UTF-8", COPY_AGAIN) from exc


def _batch(location: Path, number: int) -> PlannedBatch:
    file = location / "offsets" / str(number)
    lines = text_of(file).splitlines()
    if not lines or lines[0] != "v1":
        raise MigrationError(
            f"{file} does not start with v1, so this version of kinesis-spout cannot read it",
            "pass --at with a time before the query's last batch",
        )
    metadata = decoded("".join(lines[1:2]), _Metadata, f"the second line of {file}")
    offsets = tuple(None if line == "-" else line for line in lines[2:])
    return PlannedBatch(number, metadata.batch_timestamp_ms, offsets)


class _End(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A position in a shard, as the connector stores it."""

    iterator_type: str
    iterator_position: str = ""
    sub_sequence_number: int = -1
    is_last: bool = True

    def __str__(self) -> str:
        words = f"{self.iterator_type} {self.iterator_position}".strip()
        sub = self.sub_sequence_number
        return words if sub < 0 else f"{words}, user record {sub}"

    def position(self, shard: str) -> Position | None:
        """None for LATEST. Raises `MigrationError`."""
        kind, where = self.iterator_type.upper(), f"the position of {shard}"
        if kind in _FIXED:
            return _FIXED[kind]
        if kind == "AT_TIMESTAMP":
            try:
                return Position.at_timestamp(int(self.iterator_position))
            except (ValueError, InvalidPositionError) as exc:
                raise MigrationError(
                    f"{where} has the time {self.iterator_position[:40]!r}, which is not a number "
                    "of milliseconds",
                    COPY_AGAIN,
                ) from exc
        if kind not in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}:
            raise MigrationError(
                f"{where} has the iterator type {self.iterator_type!r}, which this version of "
                "kinesis-spout does not support",
                GIVE_UNCHANGED,
            )
        number = number_in(self.iterator_position, where)
        if kind == "AT_SEQUENCE_NUMBER":
            return Position.at(number)
        if self.is_last or self.sub_sequence_number < 0:
            return Position.after(number)
        return after_user_record(number, self.sub_sequence_number)


class _SourceMetadata(msgspec.Struct, rename="camel"):
    batch_id: int
    stream_name: str


class _TableItem(msgspec.Struct, rename="camel"):
    metadata_key: int
    metadata_sort_key: str
    metadata_value: str


def awslabs_origin(
    location: Path,
    stream: str,
    *,
    metadata_path: Path | None = None,
    table_items: Iterable[Item] | None = None,
) -> Origin:
    """Where the query has stopped on the stream.

    `metadata_path`: its option `kinesis.metadataPath`. `table_items`: all items of its table, where
    its metadata is in DynamoDB. Raises `MigrationError`.
    """
    location = without_scheme(location)
    committed, planned = read_checkpoint(location)
    current = committed or planned
    if current is None:
        raise MigrationError(
            f"{location} has neither commits/0 nor offsets/0, so the checkpointLocation is "
            "incomplete",
            COPY_AGAIN,
        )
    source, last, starts = _of_stream(current, stream, location)
    if table_items is not None:
        ends = _ends_in_table(table_items)
    else:
        folder = (metadata_path or location / "sources" / str(source)) / "shard-source"
        ends = {
            batch: {
                file.name: decoded(text_of(file), _End, str(file))
                for file in sorted((folder / str(batch)).iterdir())
                if not file.name.startswith(".")
            }
            for batch in numbered(folder)
        }
    is_committed = committed is not None
    latest = None if current.planned_ms is None else current.planned_ms - LATEST_MARGIN_MS
    ended = ends.get(last, {}) if is_committed else {}
    begun = ends.get(last + is_committed, {})
    notes = []
    if is_committed and starts and not ended:
        notes.append(
            "the connector's metadata does not contain the end of the last batch "
            f"({current.number}), so the whole batch is read again. If the metadata is stored "
            "elsewhere, pass --metadata-path or --metadata-table"
        )
    if begun or (is_committed and planned is not None):
        notes.append(_NOT_COMMITTED.format(current.number + is_committed))
    shards = {
        shard: _awslabs_shard(shard, ended.get(shard, start), begun.get(shard), latest)
        for shard, start in starts.items()
    }
    left = (
        "the connector stopped reading the shard when the shard was closed, so the shard's "
        "remaining records are unread"
    )
    for batch in sorted((one for one in ends if one <= last), reverse=True):
        for shard, end in ends[batch].items():
            position = end.position(shard)
            shards.setdefault(
                shard,
                OriginShard(
                    stored=f"{end}, in an earlier batch",
                    position=position,
                    note=None if position == SHARD_END else left,
                ),
            )
    return Origin(name="awslabs", shards=shards, drops_finished=True, notes=tuple(notes))


def _ends_in_table(items: Iterable[Item]) -> dict[int, dict[str, _End]]:
    ends: dict[int, dict[str, _End]] = {}
    wrong = "the metadata table contains an item without the end position of a batch"
    remedy = "pass the table that the connector's option kinesis.dynamodb.tableName names"
    for item in items:
        found = in_item(item, _TableItem, wrong, remedy)
        batch, shard = found.metadata_key, found.metadata_sort_key
        end = decoded(found.metadata_value, _End, f"batch {batch}, {shard}")
        ends.setdefault(batch, {})[shard] = end
    return ends


def _of_stream(
    batch: PlannedBatch, stream: str, location: Path
) -> tuple[int, int, dict[str, _End]]:
    """The source of the query that reads the stream, by its index; the connector's number of the
    batch, and where that begins in each shard.
    """
    where, found = f"{location}/offsets/{batch.number}", []
    for source, text in enumerate(batch.offsets):
        try:
            parts = msgspec.json.decode(text or "null", type=dict[str, msgspec.Raw])
            raw = parts.pop("metadata", b"null")
            metadata = msgspec.json.decode(raw, type=_SourceMetadata, strict=False)
        except msgspec.ValidationError:
            continue  # another kind of source
        except (msgspec.DecodeError, UnicodeError) as exc:
            raise MigrationError(f"{where} is damaged ({exc})", COPY_AGAIN) from exc
        if metadata.stream_name == stream:
            ends = {one: decoded(part, _End, f"{where}, {one}") for one, part in parts.items()}
            found.append((source, metadata.batch_id, ends))
    if len(found) != 1:
        query = f"batch {batch.number} of the query of {location}"
        several = f"{query} reads stream {stream} through several sources"
        raise MigrationError(
            several if found else f"{query} does not read stream {stream}",
            "pass the checkpointLocation of a query in which exactly one source reads the stream",
        )
    return found[0]


def _awslabs_shard(shard: str, end: _End, begun: _End | None, latest_ms: int | None) -> OriginShard:
    position, note = end.position(shard), None
    if position is None and end.iterator_type == "LATEST" and latest_ms is not None:
        # It has found no record in this shard yet, and looked up to its last batch at least.
        position = Position.at_timestamp(latest_ms)
        note = (
            "the query has read no record of the shard, so reading starts at the time of its last "
            "batch"
        )
    read_to = None if begun is None else begun.position(shard)
    return OriginShard(stored=str(end), position=position, read_to=read_to, note=note)


class _Shard(msgspec.Struct, rename="camel"):
    stream: str
    shard_id: str


class _ShardOffset(msgspec.Struct, rename="camel"):
    shard: _Shard
    last_seq_num: str | None = None
    last_record_seq_num: str | None = None


class _Source(msgspec.Struct, rename="camel"):
    end_offset: msgspec.Raw


class _Progress(msgspec.Struct, rename="camel"):
    sources: list[_Source]


def databricks_origin(stream: str, *, progress: Path | None, location: Path | None) -> Origin:
    """Where a query has stopped by its last progress, as `query.lastProgress` prints it, or by its
    checkpoint location; without either nothing is known. Raises `MigrationError`.
    """
    shards: dict[str, OriginShard] = {}
    notes: tuple[str, ...] = ()
    if progress is not None:
        remedy = "save `query.lastProgress` as JSON"
        last = decoded(text_of(progress), _Progress, f"the progress in {progress}", remedy)
        shards = _shards([bytes(each.end_offset).decode() for each in last.sources], stream)
        if not shards:
            raise MigrationError(
                f"{progress} has no endOffset of a Kinesis source on stream {stream}",
                "pass --at with a time before the last batch",
            )
    elif location is not None:
        location = without_scheme(location)
        committed, planned = read_checkpoint(location)
        if committed is None:
            raise MigrationError(
                f"{location} does not contain commits/0, so the query has committed no batch",
                "omit --checkpoint-location, and pass the query's start time with --at",
            )
        shards = _shards([text for text in committed.offsets if text is not None], stream)
        if not shards:
            time = committed.planned_ms and Position.at_timestamp(committed.planned_ms)
            raise MigrationError(
                f"{location}/offsets/{committed.number} has no offset of stream {stream} in the "
                "format that Databricks documents",
                f"the last committed batch was planned at {time}; pass --at with a time that is "
                "earlier by at least the query's lag"
                if time
                else "pass --at with a time before the query's last batch",
            )
        notes = () if planned is None else (_NOT_COMMITTED.format(planned.number),)
    return Origin(name="databricks", shards=shards, notes=notes)


def _shards(texts: Iterable[str], stream: str) -> dict[str, OriginShard]:
    """Raises `MigrationError` for a shard that is there twice."""
    found: dict[str, OriginShard] = {}
    for text in texts:
        try:
            offsets = msgspec.json.decode(text, type=list[_ShardOffset])
        except msgspec.MsgspecError:
            continue
        for one in offsets:
            if one.shard.stream != stream:
                continue
            if one.shard.shard_id in found:
                raise MigrationError(
                    f"the query reads shard {one.shard.shard_id} of stream {stream} in several "
                    "sources. These sources may have stopped at different records",
                    "omit --checkpoint-location and --progress, and pass --at with a time before "
                    "each source's last record",
                )
            found[one.shard.shard_id] = _databricks_shard(one)
    return found


def _databricks_shard(one: _ShardOffset) -> OriginShard:
    last = one.last_record_seq_num or one.last_seq_num
    if not last:
        return OriginShard(stored="the query has read no record yet", position=None)
    return OriginShard(
        stored=f"last record {last}",
        position=Position.after(number_in(last, f"the offset of {one.shard.shard_id}")),
    )
