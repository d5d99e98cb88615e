"""The source rows of one batch, on the driver.

They are read from Kinesis once and persisted while the batch runs. Single records are looked up in
them by message id.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import ConfigError
from spark_job.rows import COLUMNS
from spark_job.tracking.content_check import ShardContent, counted, merge_content
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
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from spark_job.tracking.withholding import ShardRules

INDEX = "_ks_index"
_WITHHOLDING_COLUMNS = ("messageId", "sequenceNumber", "subSequenceNumber", "partitionKey")
_WORD = 2**64
_FIRSTS = pa.schema({"ofShard": pa.string(), "sequence": pa.string(), "sub": pa.int64()})
_NO_RULES = BatchRules()


def check_columns(frame: DataFrame) -> None:
    """Raise `ConfigError` for a frame that lacks a column of the source.

    Without these columns a record can be neither identified nor retried.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ConfigError(
            f"the frame passed to tracked(...) has no column {', '.join(missing)}, because it was "
            "selected, renamed or aggregated",
            "write the frame of read_stream(...) unchanged, and "
            "select and aggregate inside the function",
        )


class BatchFrame:
    """Rows of the source, of a whole batch or of a part of one (under bisect).

    The rows of a shard are in the order of their sequence numbers. Shards are named as `rules` name
    them. `is_part`: the rows are a filter over persisted ones. Use it from one thread at a time.
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
        """All rows: the persisted ones if there are any, else rows that are read from Kinesis."""
        return self._frame if self._persisted is None else self._persisted

    def rows(self) -> DataFrame:
        """All rows, persisted at their first evaluation (in memory, else on disk)."""
        if self._persisted is None:
            self._persisted = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
        return self._persisted

    def given(self) -> DataFrame:
        """The rows that the user's function gets: all but those that the rules withhold."""
        if self._given is None:
            self._given = without(self.rows(), [record.message_id for record in self.withheld()])
        return self._given

    def withheld(self) -> list[FailedRecord]:
        """Records that the rules withhold. The first call runs a job if a rule withholds."""
        if self._withheld is None:
            rules = self.rules.of_shards
            withholds = any(of_shard.withholds for of_shard in rules.values())
            self._withheld = self.withheld_by(rules) if withholds else []
        return self._withheld

    def blocked_by(self, failed: Collection[FailedRecord]) -> list[FailedRecord]:
        """Records that wait for these, which are not among them. Runs a job if any may."""
        known = {record.message_id for record in failed}
        rules = failure_rules(failed, self.rules.on_failure)
        found = self.withheld_by(rules) if rules else []
        return [record for record in found if record.message_id not in known]

    def content(self, firsts: Mapping[str, SequenceNumber | None]) -> dict[str, ShardContent]:
        """The content of the frame by shard. Runs a job.

        `firsts`: the first new number that was published of each shard, None if there were only
        retries. A row below it is a retry.
        """
        published = [
            {"ofShard": shard, "sequence": str(first.sequence), "sub": first.sub}
            if first
            else {"ofShard": shard}
            for shard, first in firsts.items()
        ]
        rows = self.rows().select(
            self._shard.alias("shardId"), "sequenceNumber", "subSequenceNumber"
        )
        known = rows.sparkSession.createDataFrame(pa.Table.from_pylist(published, _FIRSTS))
        joined = rows.join(F.broadcast(known), F.col("shardId") == F.col("ofShard"), "left")
        number = _number("sequenceNumber", "subSequenceNumber")
        is_new = F.col("ofShard").isNull() | (
            F.col("sequence").isNotNull() & (number >= _number("sequence", "sub"))
        )
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

    def content_of(
        self, partitions: Sequence[int], firsts: Mapping[str, SequenceNumber | None]
    ) -> dict[str, ShardContent]:
        """The content of some partitions, by shard. Runs a job on them.

        A function that takes a part of its frame leaves the other partitions unread. A job over all
        partitions would read and publish their records, though the function has not seen them.
        """
        rdd = self.rows().select("messageId").rdd
        context = self.rows().sparkSession.sparkContext
        return merge_content(context.runJob(rdd, partial(counted, firsts), list(partitions)))

    def count(self) -> int:
        """The number of rows. Runs a job over all partitions, which persists them."""
        return self.rows().count()

    def first_numbers(self, shard_id: str, count: int) -> list[SequenceNumber]:
        """The numbers of the first `count` rows of a shard, ascending. Runs a job."""
        number = _number("sequenceNumber", "subSequenceNumber")
        rows = self.rows().where(self._shard == shard_id).select(number.alias("number"))
        found = values(rows.orderBy("number").limit(count), "number")
        return [SequenceNumber(int(one["sequence"]), one["sub"]) for one in found]

    def first_rows(
        self, shards: Sequence[str], last: tuple[str, SequenceNumber] | None
    ) -> BatchFrame:
        """A frame of all rows of `shards`, and of those of one `last` shard up to this number.

        Its rows come from this frame, which must be closed after it.
        """
        wanted = self._shard.isin(*shards)
        if last is not None:
            shard, until = last
            text = str(until.sequence)
            most = F.struct(
                F.lit(len(text)).alias("length"),
                F.lit(text).alias("sequence"),
                F.lit(until.sub).cast("bigint").alias("sub"),
            )
            number = _number("sequenceNumber", "subSequenceNumber")
            wanted |= (self._shard == shard) & (number <= most)
        return BatchFrame(self.rows().where(wanted), self.rules)

    def withheld_by(self, rules: Mapping[str, ShardRules]) -> list[FailedRecord]:
        """The records that these rules withhold. Runs a job."""
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
        """`order_key` by message id, of those ids that the function got. Runs a job."""
        found = only(self.given(), ids).select("messageId", "partitionKey").toArrow().to_pylist()
        keys = {}
        for row in found:
            shard_id, sequence, _ = parse_message_id(row["messageId"])
            keys[row["messageId"]] = order_key(row["partitionKey"], shard_id, number_of(sequence))
        return keys

    def ordinals(self) -> dict[str, int]:
        """The ordinal of each message id among the batch's records of its shard.

        Runs a job and holds all message ids in memory, so it is for outages only.
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
        """32 hexadecimal digits that identify the set of the given records. Order and attempt do
        not change it. Runs a job.
        """
        number = [self._shard, F.col("sequenceNumber"), F.col("subSequenceNumber")]
        row = (
            self.given()
            .agg(
                F.count(F.lit(1)).alias("count"),
                # Two hashes, as two records may have one in common.
                F.bit_xor(F.xxhash64(*number)).alias("first"),
                F.bit_xor(F.xxhash64(F.lit("second"), *number)).alias("second"),
            )
            .collect()[0]
        )
        first, second = ((row[name] or 0) % _WORD for name in ("first", "second"))
        return hashlib.sha256(f"{row['count']}:{first:x}:{second:x}".encode()).hexdigest()[:32]

    def indexes(self) -> list[int]:
        """The indexes of the given rows, ascending, for `part`. Runs a job."""
        return sorted(values(self._indexed(), INDEX))

    def part(self, first: int, last: int) -> BatchFrame:
        """The given rows from index `first` to `last`, both inclusive, as a frame of its own."""
        rows = self._indexed().where((F.col(INDEX) >= first) & (F.col(INDEX) <= last)).drop(INDEX)
        return BatchFrame(rows, replace(self.rules, of_shards={}), is_part=True)

    def _indexed(self) -> DataFrame:
        # Of the persisted rows, whose partitions and order stay: so each row keeps its number.
        numbered = self.rows().withColumn(INDEX, F.monotonically_increasing_id())
        return without(numbered, [record.message_id for record in self.withheld()])

    def message_ids(self) -> list[str]:
        """The message ids of the given rows. Runs a job."""
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
    """A sequence number in an order that Spark can compare.

    It is a text without leading zeros, so the longer text is the greater number.
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
