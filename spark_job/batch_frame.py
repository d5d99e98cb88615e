"""The source frame of one batch on the driver: read once from Kinesis, kept while the batch runs, asked for single records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import ConfigError
from spark_job.failed_record import FailedRecord, Outcome, key_hash, parse_message_id
from spark_job.row_sorting import SORTED_DDL, RowSorter
from spark_job.rows import ARROW_SCHEMA
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from spark_job.batch_rules import ShardRules

INDEX = "_ks_index"
SOURCE_COLUMNS = tuple(ARROW_SCHEMA.names)
_SORTED_BY = ("messageId", "shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "attempt")
_WORD = 2**64


class Given(NamedTuple):
    """What a token is made of: how many records, and two XORs over hashes of their numbers."""

    count: int
    first_xor: int
    second_xor: int


def check_columns(frame: DataFrame) -> None:
    """Raise `ConfigError` for a frame that has lost a column of the source: without it a record cannot be told, or retried."""
    missing = [name for name in SOURCE_COLUMNS if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the frame given to tracked(...) has no column {', '.join(missing)}: it was selected, renamed or aggregated before; "
            "write the frame of read_stream(...) as it is, and select and aggregate inside the function"
        )


class BatchFrame:
    """Rows of the source, in the order of their shards, of a whole batch or of a part of one. For one thread at a time."""

    def __init__(
        self, frame: DataFrame, *, rules: Mapping[str, ShardRules] | None = None, on_failure: OnFailure = OnFailure.CONTINUE
    ) -> None:
        self._frame = frame
        self.rules = dict(rules or {})
        self.on_failure = on_failure
        self._persisted: DataFrame | None = None
        self._given: DataFrame | None = None
        self._withheld: list[FailedRecord] | None = None
        self._parent: BatchFrame | None = None

    @property
    def is_persisted(self) -> bool:
        return self._persisted is not None

    @property
    def cheapest(self) -> DataFrame:
        """All rows: the kept ones where they are kept, else straight from Kinesis."""
        return self._frame if self._persisted is None else self._persisted

    def rows(self) -> DataFrame:
        """All rows, kept from their first evaluation on (in memory, else on disk)."""
        if self._persisted is None:
            self._persisted = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
        return self._persisted

    def given(self) -> DataFrame:
        """The rows that are given to the user's function: without those that the rules withhold."""
        if self._given is None:
            self._given = without(self.rows(), [record.message_id for record in self.withheld()])
        return self._given

    def withheld(self) -> list[FailedRecord]:
        """Records that the rules withhold. Runs a job the first time, if there are rules that do."""
        if self._withheld is None:
            withholds = any(rules.withholds for rules in self.rules.values())
            self._withheld = self.sorted_by(self.rules) if withholds else []
        return self._withheld

    def waiting_for(self, failed: Collection[FailedRecord], rules: Mapping[str, ShardRules]) -> list[FailedRecord]:
        """Records that must wait as `failed` did, by `rules`; without these themselves."""
        known = {record.message_id for record in failed}
        return [record for record in self.sorted_by(rules) if record.message_id not in known] if rules else []

    def sorted_by(self, rules: Mapping[str, ShardRules]) -> list[FailedRecord]:
        """The records to which some rule applies. Runs a job."""
        sorter = RowSorter(rules, with_keys=self.on_failure is OnFailure.BLOCK_KEY)
        found = self.rows().select(*_SORTED_BY).mapInArrow(sorter, SORTED_DDL).toArrow().to_pylist()
        records = []
        for row in found:
            shard_id, sequence, attempt = parse_message_id(row["messageId"])
            records.append(
                FailedRecord(
                    message_id=row["messageId"],
                    shard_id=shard_id,
                    sequence=sequence,
                    attempt=attempt,
                    outcome=Outcome(row["outcome"]),
                    key=row["key"],
                    ordinal=row["ordinal"],
                )
            )
        return records

    def partition_keys(self, ids: Collection[str]) -> dict[str, str]:
        """Those of the message ids that the function was given, with their partition keys (hashed). Runs a job."""
        found = only(self.given(), ids).select("messageId", "partitionKey").toArrow().to_pylist()
        return {row["messageId"]: key_hash(row["partitionKey"]) for row in found}

    def ordinals(self) -> dict[str, int]:
        """Each message id's place in its shard within the batch. Runs a job and holds all ids: for storms only."""
        table = self.rows().select("messageId").toArrow()
        by_shard: dict[str, list[tuple[int, int, str]]] = {}
        for message_id in table.column("messageId").to_pylist():
            shard_id, sequence, _ = parse_message_id(message_id)
            by_shard.setdefault(shard_id, []).append((sequence.sequence, sequence.sub, message_id))
        return {
            message_id: ordinal
            for shard in by_shard.values()
            for ordinal, (_, _, message_id) in enumerate(sorted(shard))
        }  # fmt: skip

    def fingerprint(self) -> Given:
        """What the given records are, whatever their order and attempt. Runs a job."""
        number = [F.col("shardId"), F.col("sequenceNumber"), F.col("subSequenceNumber")]
        row = (
            self.given()
            .agg(
                F.count(F.lit(1)).alias("count"),
                F.bit_xor(F.xxhash64(*number)).alias("first"),
                F.bit_xor(F.xxhash64(F.lit("second"), *number)).alias("second"),
            )
            .collect()[0]
        )
        return Given(row["count"], (row["first"] or 0) % _WORD, (row["second"] or 0) % _WORD)

    def close(self) -> None:
        """Let go of what is kept. Idempotent."""
        if self._persisted is not None and self._parent is None:
            self._persisted.unpersist()
        self._persisted = self._given = None


def id_frame(like: DataFrame, ids: Collection[str]) -> DataFrame:
    """A small frame of message ids, made without touching them one by one."""
    return like.sparkSession.createDataFrame(pa.table({"messageId": pa.array(sorted(ids), pa.string())}))


def without(frame: DataFrame, ids: Sequence[str] | Collection[str]) -> DataFrame:
    """The frame without rows of these message ids, in the same order."""
    if not ids:
        return frame
    return frame.join(F.broadcast(id_frame(frame, ids)), "messageId", "left_anti")


def only(frame: DataFrame, ids: Collection[str]) -> DataFrame:
    """The frame's rows of these message ids."""
    return frame.join(F.broadcast(id_frame(frame, ids)), "messageId", "left_semi")
