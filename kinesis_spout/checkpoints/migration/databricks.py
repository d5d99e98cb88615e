"""Where a query of Databricks' Kinesis source has stopped. Blocks on files.

Databricks does not document its checkpoint. It documents the offsets that a query's progress shows
(docs.databricks.com, "Monitoring Structured Streaming queries": the metrics of the Kinesis source),
as a list with an entry for each shard:

    {"shard": {"stream": ..., "shardId": ...}, "firstSeqNum": ..., "lastSeqNum": ...,
     "closed": ..., "msBehindLatest": ..., "lastRecordSeqNum": ...}

`lastRecordSeqNum` is the last record that was consumed; `lastSeqNum` may be beyond it. Spark writes
the same text of an offset into `offsets/<n>` that it shows as `endOffset`, so a location whose
offsets are such lists is read. Of any other the error says from which time to continue (`--at`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.checkpoints.migration.origin import (
    MigrationError,
    Origin,
    OriginShard,
    decoded,
    number_in,
)
from kinesis_spout.checkpoints.migration.spark_checkpoint import (
    PlannedBatch,
    local_folder,
    not_committed,
    read_checkpoint,
    text_of,
)
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class _Shard(msgspec.Struct, rename="camel"):
    stream: str
    shard_id: str


class _ShardOffset(msgspec.Struct, rename="camel"):
    shard: _Shard
    last_seq_num: str | None = None
    last_record_seq_num: str | None = None
    closed: bool = False


class _Source(msgspec.Struct, rename="camel"):
    end_offset: msgspec.Raw


class _Progress(msgspec.Struct, rename="camel"):
    sources: list[_Source]


_OFFSETS = msgspec.json.Decoder(list[_ShardOffset])


def origin_of(stream: str, *, progress: Path | None, location: Path | None) -> Origin:
    """Where a query has stopped by its last progress, as `query.lastProgress` prints it, or by its
    checkpoint location; without either nothing is known. Raises `MigrationError`.
    """
    shards: dict[str, OriginShard] = {}
    notes: list[str] = []
    if progress is not None:
        shards = _of_progress(progress, stream)
    elif location is not None:
        shards = _of_location(local_folder(location), stream, notes)
    return Origin(name="databricks", shards=shards, notes=tuple(notes))


def _of_location(location: Path, stream: str, notes: list[str]) -> dict[str, OriginShard]:
    """Adds to `notes`."""
    checkpoint = read_checkpoint(location)
    committed = checkpoint.committed
    if committed is None:
        raise MigrationError(
            f"{location} has no commits/0, so no batch was committed",
            "give the start of the query with --at, and leave --checkpoint-location out",
        )
    shards = _shards([text for text in committed.offsets if text is not None], stream)
    if not shards:
        raise MigrationError(
            f"{location}/offsets/{committed.number} has no offset of stream {stream} in the form "
            "that Databricks documents",
            _advice(committed),
        )
    if checkpoint.planned is not None:
        notes.append(not_committed(checkpoint.planned.number))
    return shards


def _of_progress(file: Path, stream: str) -> dict[str, OriginShard]:
    remedy = "save `query.lastProgress` as JSON"
    progress = decoded(text_of(file), _Progress, f"the progress in {file}", remedy)
    shards = _shards([bytes(each.end_offset).decode() for each in progress.sources], stream)
    if not shards:
        raise MigrationError(
            f"{file} has no endOffset of a Kinesis source on stream {stream}",
            "give --at with a time before the last batch",
        )
    return shards


def _advice(batch: PlannedBatch) -> str:
    if batch.planned_ms is None:
        return "give --at with a time before its last batch"
    time = Position.at_timestamp(batch.planned_ms)
    return (
        f"give --at with a time before {time}, when its last committed batch was planned, minus "
        "the time by which the query was behind"
    )


def _shards(texts: Iterable[str], stream: str) -> dict[str, OriginShard]:
    """Raises `MigrationError` for a shard that is there twice."""
    found: dict[str, OriginShard] = {}
    for text in texts:
        try:
            offsets = _OFFSETS.decode(text)
        except msgspec.MsgspecError:
            continue
        for one in offsets:
            if one.shard.stream != stream:
                continue
            if one.shard.shard_id in found:
                raise MigrationError(
                    f"the query reads shard {one.shard.shard_id} of stream {stream} in several "
                    "sources, which may have stopped at different records",
                    "give --at with a time before all of them, without --checkpoint-location and "
                    "--progress",
                )
            found[one.shard.shard_id] = _shard(one)
    return found


def _shard(one: _ShardOffset) -> OriginShard:
    last = one.last_record_seq_num or one.last_seq_num
    if not last:
        return OriginShard(stored="no record read yet", position=None)
    return OriginShard(
        stored=f"last record {last}",
        position=Position.after(number_in(last, f"the offset of {one.shard.shard_id}")),
    )
