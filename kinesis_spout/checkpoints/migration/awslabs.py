"""Where a query of awslabs' Spark connector has stopped: its checkpoint location. Blocks on files.

Its formats, from `KinesisV2SourceOffset`, `KinesisV2PartitionReader`, `HDFSMetadataCommitter` and
`DynamodbMetadataCommitter` of awslabs/spark-sql-kinesis-connector (Apache 2.0):

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.checkpoints.migration.origin import (
    COPY_AGAIN,
    GIVE_UNCHANGED,
    MigrationError,
    Origin,
    OriginShard,
    after_user_record,
    decoded,
    in_item,
    number_in,
)
from kinesis_spout.checkpoints.migration.spark_checkpoint import (
    PlannedBatch,
    local_folder,
    not_committed,
    numbered,
    read_checkpoint,
    text_of,
)
from kinesis_spout.shards.start_position import LATEST_MARGIN_MS
from state.errors import InvalidPositionError
from state.position import SHARD_END, TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesis_spout.checkpoints.migration.origin import Item


_FIXED = {"SHARD_END": SHARD_END, "TRIM_HORIZON": TRIM_HORIZON, "LATEST": None}


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
                    f"{where} is at time {self.iterator_position[:40]!r}, which is not a number "
                    "of milliseconds",
                    COPY_AGAIN,
                ) from exc
        if kind not in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}:
            raise MigrationError(
                f"{where} is a {self.iterator_type!r}, which this version does not know",
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


class _Item(msgspec.Struct, rename="camel"):
    metadata_key: int
    metadata_sort_key: str
    metadata_value: str


@dataclass(frozen=True, slots=True)
class _SourceOffset:
    batch: int
    shards: dict[str, _End]


def origin_of(
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
    location = local_folder(location)
    checkpoint = read_checkpoint(location)
    current = checkpoint.committed or checkpoint.planned
    if current is None:
        raise MigrationError(
            f"{location} has neither commits/0 nor offsets/0, so it is not complete",
            "copy it again",
        )
    source, offset = _of_stream(current, stream, location)
    ends = (
        _ends_in_table(table_items)
        if table_items is not None
        else _ends_in_files(metadata_path or location / "sources" / str(source))
    )
    is_committed = checkpoint.committed is not None
    latest = None if current.planned_ms is None else current.planned_ms - LATEST_MARGIN_MS
    ended = ends.get(offset.batch, {}) if is_committed else {}
    begun = ends.get(offset.batch + 1 if is_committed else offset.batch, {})
    notes = []
    if is_committed and offset.shards and not ended:
        notes.append(
            f"the connector's metadata does not say where the last batch, {current.number}, ended, "
            "so all of it is read again. If the metadata is in another place, give "
            "--metadata-path or --metadata-table"
        )
    if begun or (is_committed and checkpoint.planned is not None):
        notes.append(not_committed(current.number + is_committed))
    shards = {
        shard: _shard(shard, ended.get(shard, start), begun.get(shard), latest)
        for shard, start in offset.shards.items()
    }
    for batch in sorted((one for one in ends if one <= offset.batch), reverse=True):
        for shard, end in ends[batch].items():
            shards.setdefault(shard, _left_shard(shard, end))
    return Origin(name="awslabs", shards=shards, drops_finished=True, notes=tuple(notes))


def _ends_in_table(items: Iterable[Item]) -> dict[int, dict[str, _End]]:
    """The ends of batches, from the items of the connector's table."""
    ends: dict[int, dict[str, _End]] = {}
    wrong = "the table has an item that does not record where a batch ended"
    for item in items:
        found = in_item(
            item,
            _Item,
            wrong,
            ("give the table that the connector's option kinesis.dynamodb.tableName names"),
        )
        batch, shard = found.metadata_key, found.metadata_sort_key
        end = decoded(found.metadata_value, _End, f"batch {batch}, {shard}")
        ends.setdefault(batch, {})[shard] = end
    return ends


def _ends_in_files(source: Path) -> dict[int, dict[str, _End]]:
    folder = source / "shard-source"
    return {
        batch: {
            file.name: decoded(text_of(file), _End, str(file))
            for file in sorted((folder / str(batch)).iterdir())
            if not file.name.startswith(".")
        }
        for batch in numbered(folder)
    }


def _of_stream(batch: PlannedBatch, stream: str, location: Path) -> tuple[int, _SourceOffset]:
    """The source of the query that reads the stream, by its index, and its offset."""
    found = []
    for source, text in enumerate(batch.offsets):
        where = f"{location}/offsets/{batch.number}"
        offset = None if text is None else _source_offset(text, stream, where)
        if offset is not None:
            found.append((source, offset))
    if len(found) != 1:
        problem = (
            f"reads stream {stream} in several sources"
            if found
            else f"does not read stream {stream}"
        )
        raise MigrationError(
            f"the query of {location} {problem} (batch {batch.number})",
            "give the checkpointLocation of a query that reads the stream in one source",
        )
    return found[0]


def _source_offset(text: str, stream: str, where: str) -> _SourceOffset | None:
    """An offset of the connector on the stream; None for another source's."""
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(
            parts.pop("metadata", b"null"), type=_SourceMetadata, strict=False
        )
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise MigrationError(f"{where} is damaged ({exc})", COPY_AGAIN) from exc
    if metadata.stream_name != stream:
        return None
    shards = {shard: decoded(part, _End, f"{where}, {shard}") for shard, part in parts.items()}
    return _SourceOffset(metadata.batch_id, shards)


def _shard(shard: str, end: _End, begun: _End | None, latest_ms: int | None) -> OriginShard:
    note = None
    position = end.position(shard)
    if position is None and end.iterator_type == "LATEST" and latest_ms is not None:
        # It has found no record in this shard yet, and looked up to its last batch at least.
        position = Position.at_timestamp(latest_ms)
        note = (
            "no record of the shard was read yet, so the shard is read from the time of the last "
            "batch"
        )
    return OriginShard(
        stored=str(end),
        position=position,
        read_to=None if begun is None else begun.position(shard),
        note=note,
    )


def _left_shard(shard: str, end: _End) -> OriginShard:
    position = end.position(shard)
    is_done = position == SHARD_END
    return OriginShard(
        stored=f"{end}, in an earlier batch",
        position=position,
        note=None
        if is_done
        else (
            "the connector stopped reading the shard when it was closed; its remaining records "
            "are unread"
        ),
    )
