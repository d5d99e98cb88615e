"""The source rows of one batch, on the driver.

The rows are read from Kinesis once, and persisted while the batch runs. Single records are found in
the rows by their message id.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import ConfigError
from spark_job.rows import COLUMNS
from spark_job.tracking.content_check import ShardContent, merge_content
from spark_job.tracking.outcomes import FailedRecord, Outcome, order_key
from spark_job.tracking.spark_sql import map_in_arrow, only, values, without
from spark_job.tracking.withholding import (
    WITHHELD_DDL,
    BatchRules,
    WithheldRowFinder,
    failure_rules,
    number_of,
)
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.tracker.inflight_record_tracker import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame

    from spark_job.tracking.withholding import ShardRules

INDEX = "_ks_index"
_WITHHOLDING_COLUMNS = ("messageId", "sequenceNumber", "subSequenceNumber", "partitionKey")
_WORD = 2**64
_LAST_RETRIES = pa.schema({"ofShard": pa.string(), "sequence": pa.string(), "sub": pa.int64()})
_NO_RULES = BatchRules()


def check_columns(frame: DataFrame) -> None:
    """Raise `ConfigError` for a frame that lacks a column of the source. Without these columns a
    record can be neither identified nor retried.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the frame passed to tracked(...) has no column {', '.join(missing)}, because the "
            "query selects, renames or aggregates columns before tracked(...)",
            "pass the frame of read_stream(...) to foreachBatch unchanged, and select and "
            "aggregate inside the function",
        )


class BatchFrame:
    """The rows of a batch, or of a part of a batch (under bisect).

    The rows of a shard are in the order of their sequence numbers. Shards have the names that
    `rules` uses. `is_part`: the rows are a filter over persisted rows. Use it from one thread at a
    time.
    """

    def __init__(
        self, frame: DataFrame, rules: BatchRules = _NO_RULES, *, is_part: bool = False
    ) -> None:
        self._frame = frame
        self.rules = rules
        self._is_part = is_part
        self._persisted = frame if is_part else None
        self._given: DataFrame | None = None
        self._withheld: list[FailedRecord] | None = None

    @property
    def is_persisted(self) -> bool:
        return self._persisted is not None

    @property
    def cheapest(self) -> DataFrame:
        """All rows: the persisted rows if there are any, otherwise rows to read from Kinesis."""
        return self._frame if self._persisted is None else self._persisted

    def rows(self) -> DataFrame:
        """Return all rows, which are persisted at their first evaluation (in memory or on disk)."""
        if self._persisted is None:
            self._persisted = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
        return self._persisted

    def given(self) -> DataFrame:
        """Return the rows that the user's function gets: all except those of withheld records."""
        if self._given is None:
            self._given = without(self.rows(), [record.message_id for record in self.withheld()])
        return self._given

    def withheld(self) -> list[FailedRecord]:
        """Return the withheld records. The first call runs a job if a rule withholds records."""
        if self._withheld is None:
            rules = self.rules.of_shards
            withholds = any(of_shard.withholds for of_shard in rules.values())
            self._withheld = self.withheld_by(rules) if withholds else []
        return self._withheld

    def blocked_by(self, failed: Collection[FailedRecord]) -> list[FailedRecord]:
        """Return the records that wait for these failed records. Runs a job if there may be one."""
        known = {record.message_id for record in failed}
        rules = failure_rules(failed, self.rules.on_failure)
        found = self.withheld_by(rules) if rules else []
        return [record for record in found if record.message_id not in known]

    def content(self) -> dict[str, ShardContent]:
        """Return the content of the frame by shard. Runs a job. The rules say up to which number
        the rows of a shard are retries.
        """
        retries = [
            {"ofShard": shard, "sequence": str(rules.last_retry[0]), "sub": rules.last_retry[1]}
            for shard, rules in self.rules.of_shards.items()
            if rules.last_retry is not None
        ]
        rows = self.rows().select(
            self._shard.alias("shardId"), "sequenceNumber", "subSequenceNumber"
        )
        known = rows.sparkSession.createDataFrame(pa.Table.from_pylist(retries, _LAST_RETRIES))
        joined = rows.join(F.broadcast(known), F.col("shardId") == F.col("ofShard"), "left")
        number = _number("sequenceNumber", "subSequenceNumber")
        is_new = F.col("ofShard").isNull() | (number > _number("sequence", "sub"))
        found = (
            joined.select("shardId", number.alias("number"), is_new.alias("isNew"))
            .groupBy("shardId", "isNew")
            .agg(
                F.count(F.lit(1)).alias("count"),
                F.min("number").alias("first"),
                F.max("number").alias("last"),
            )
        )
        return merge_content(_content(row) for row in found.toArrow().to_pylist())

    def count(self) -> int:
        """Return the number of rows. Runs a job over all partitions, and so persists them."""
        return self.rows().count()

    def withheld_by(self, rules: Mapping[str, ShardRules]) -> list[FailedRecord]:
        """Return the records that these rules withhold. Runs a job."""
        finder = WithheldRowFinder(rules, with_keys=self.rules.on_failure is OnFailure.BLOCK_KEY)
        found = (
            map_in_arrow(
                self.rows().select(self._shard.alias("shardId"), *_WITHHOLDING_COLUMNS),
                finder,
                WITHHELD_DDL,
            )
            .toArrow()
            .to_pylist()
        )
        return [
            FailedRecord.of(
                row["messageId"], Outcome(row["outcome"]), key=row["key"], ordinal=row["ordinal"]
            )
            for row in found
        ]

    def order_keys(self, ids: Collection[str]) -> dict[str, str]:
        """Return the order key of each of these ids that the function got. Runs a job."""
        found = only(self.given(), ids).select("messageId", "partitionKey").toArrow().to_pylist()
        keys = {}
        for row in found:
            shard_id, sequence, _ = parse_message_id(row["messageId"])
            keys[row["messageId"]] = order_key(row["partitionKey"], shard_id, number_of(sequence))
        return keys

    def ordinals(self) -> dict[str, int]:
        """Return the ordinal of each message id among the batch's records of its shard.

        Runs a job and collects all message ids, so it is for outages only.
        """
        by_shard: dict[str, list[tuple[SequenceNumber, str]]] = {}
        for message_id in values(self.rows(), "messageId"):
            shard_id, sequence, _ = parse_message_id(message_id)
            by_shard.setdefault(shard_id, []).append((sequence, message_id))
        return {
            message_id: ordinal
            for shard in by_shard.values()
            for ordinal, (_, message_id) in enumerate(sorted(shard))
        }  # fmt: skip

    def token(self) -> str:
        """Return 32 hexadecimal digits that identify the set of the function's records, regardless
        of their order and attempts. Runs a job.
        """
        number = [self._shard, F.col("sequenceNumber"), F.col("subSequenceNumber")]
        row = (
            self.given()
            .agg(
                F.count(F.lit(1)).alias("count"),
                # Two hashes, because two records may share one.
                F.bit_xor(F.xxhash64(*number)).alias("first"),
                F.bit_xor(F.xxhash64(F.lit("second"), *number)).alias("second"),
            )
            .collect()[0]
        )
        first, second = ((row[name] or 0) % _WORD for name in ("first", "second"))
        return hashlib.sha256(f"{row['count']}:{first:x}:{second:x}".encode()).hexdigest()[:32]

    def indexes(self) -> list[int]:
        """Return the indexes of the function's rows, ascending, for `part`. Runs a job."""
        return sorted(values(self._indexed(), INDEX))

    def part(self, first: int, last: int) -> BatchFrame:
        """Return a frame of the function's rows from index `first` to `last`, both inclusive."""
        rows = self._indexed().where((F.col(INDEX) >= first) & (F.col(INDEX) <= last)).drop(INDEX)
        return BatchFrame(rows, replace(self.rules, of_shards={}), is_part=True)

    def _indexed(self) -> DataFrame:
        # Persisted rows keep their partitions and their order, so each row keeps its index.
        numbered = self.rows().withColumn(INDEX, F.monotonically_increasing_id())
        return without(numbered, [record.message_id for record in self.withheld()])

    def message_ids(self) -> list[str]:
        """Return the message ids of the function's rows. Runs a job."""
        return values(self.given(), "messageId")

    @property
    def _shard(self) -> Column:
        return F.concat_ws("/", "streamName", "shardId") if self.rules.several else F.col("shardId")

    def close(self) -> None:
        """Unpersist the rows. Idempotent."""
        if self._persisted is not None and not self._is_part:
            self._persisted.unpersist()
        self._persisted = self._given = None


def _number(sequence: str, sub: str) -> Column:
    """Return a sequence number in a form that Spark can order. It is a text without leading zeros,
    so a longer text is a greater number.
    """
    return F.struct(
        F.length(sequence).alias("length"),
        F.col(sequence).alias("sequence"),
        F.col(sub).alias("sub"),
    )


def _content(row: Mapping[str, Any]) -> ShardContent:
    if not row["isNew"]:
        return ShardContent(shard_id=row["shardId"], retry_rows=row["count"])
    first, last = (
        SequenceNumber(int(row[name]["sequence"]), row[name]["sub"]) for name in ("first", "last")
    )
    return ShardContent(shard_id=row["shardId"], new_count=row["count"], first=first, last=last)
