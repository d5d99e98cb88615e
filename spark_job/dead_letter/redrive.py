"""`Redrive`: puts dead letters back on the stream that they came from, each record once.

    spark = SparkSession.builder.getOrCreate()
    work = Redrive.open(spark, "s3a://bucket/dead/orders", aws=AwsConfig(region="eu-central-1"))
    print(work.find())
    work.put()

A ledger beside the letters (`_redriven`) records the letters that were put, after every 500 of
them. So a second run puts nothing twice, and after a kill at most the last 500 are put again. Do
not start two runs on one path at a time: each would put all letters.

The letters are read from the files that a `DeadLetter` has written, and filtered. Of several
letters of one record one is chosen, and records in the ledger are left out. An aggregate that was
delivered whole and its user record 0 have the same numbers, and are two records. A record that is
no aggregate is one, however it was delivered. The files may also come from a stream of letters. A
stream takes a large payload only in several records, so such a letter is in parts, which are joined
here.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from itertools import islice
from operator import and_, itemgetter, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import KinesisError
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.record_putter import RecordPutter
from scheme.record import KPL_MAGIC
from spark_job.dead_letter.letter import (
    LETTER_COLUMNS,
    LETTER_DDL,
    Letter,
    in_chunks,
    letter_of,
    letters_with_plain_times,
    moment,
)
from spark_job.dead_letter.redrive_ledger import IDENTITY, NUMBERS, RedriveLedger
from spark_job.dead_letter.stream_sink import payload_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

    from kinesis_spout.service.record_putter import OutgoingRecord

REASONS_SHOWN = 20
TO_PUT, PUT_BEFORE = "to put", "put before"
WITHOUT_PAYLOAD, INCOMPLETE = "without payload", "incomplete"
_ROWS_DDL = f"{LETTER_DDL}, part INT, parts INT"
IS_INCOMPLETE = "isIncomplete"
# Whose rows are the parts of one letter. A whole aggregate has the message id of its first user
# record, and no sub-sequence number.
_LETTER_OF_PART = ("streamName", "messageId", "subSequenceNumber", "parts")
_DEFAULT_AWS = AwsConfig()
_SYSTEM_CLOCK = SystemClock()


class LetterFormat(StrEnum):
    """The formats of dead letter files."""

    PARQUET = "parquet"
    JSON = "json"
    ORC = "orc"


class RedriveError(KinesisError):
    """Files that cannot be put back: not dead letters, or of a format that must be given.

    A sentence for the user. Nothing was put.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters to put, and where.

    - `reasons`: texts, one of which the letter's reason must contain, ignoring case. None given
      means any reason.
    - `since`, `until`: the last failure must be at or after `since`, and before `until`.
    - `target`: the stream to put the letters on. None: the stream that each letter came from.
    """

    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    target: StreamRef | None = None

    def condition(self) -> Column:
        wanted = _true()
        if self.reasons:
            reason = F.lower(F.coalesce("reason", F.lit("")))
            wanted = reduce(or_, (reason.contains(text.lower()) for text in self.reasons))
        failed = F.coalesce("lastFailure", "firstFailure")
        if self.since is not None:
            wanted = wanted & F.coalesce(failed >= F.lit(self.since), ~_true())
        if self.until is not None:
            wanted = wanted & F.coalesce(failed < F.lit(self.until), ~_true())
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """The number of letters with one reason for one target stream, and their range in time."""

    target: str
    reason: str
    letters: int
    first_failure: datetime | None
    last_failure: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The counts of a selection. Each record is counted once.

    - `to_put`: records to put. `reasons` counts the most frequent reasons among them, and
      `more_reasons` is the number of the others.
    - `put_before`: records in the ledger.
    - `without_payload`: records that were gone from the stream, so nothing is left to put.
    - `incomplete`: records whose letter is in parts, of which some are not in the files.
    - `unreadable`: rows in the files that are not dead letters.
    """

    to_put: int = 0
    put_before: int = 0
    without_payload: int = 0
    incomplete: int = 0
    unreadable: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    more_reasons: int = 0


_EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters under a path, to be put back on their stream.

    - `place`: names the files, for messages. `rows`: all that they hold.
    - `letters`: one letter for each selected record, with its target and its state.

    Methods block on Spark and on Kinesis. Call them from one thread at a time. They raise
    `kinesis_spout.errors.KinesisError`, of which `RedriveError` is about the files, and Spark's
    errors.
    """

    place: str
    rows: DataFrame
    letters: DataFrame
    ledger: RedriveLedger
    aws: AwsConfig
    target: StreamRef | None

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        path: str,
        *,
        format: str | None = None,  # noqa: A002  # Spark's name for it
        selection: Selection = _EVERYTHING,
        aws: AwsConfig = _DEFAULT_AWS,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> Redrive:
        """Find the files. Without `format` (parquet, json or orc), their names decide."""
        ledger = RedriveLedger(spark, path, clock)
        found = format or format_of(spark, path)
        # With this schema, a row of a file that is no letter reads as all NULL.
        rows = (
            spark.createDataFrame([], _ROWS_DDL)
            if found is None
            else spark.read.schema(_ROWS_DDL).format(found).load(path)
        ).select(*LETTER_COLUMNS, "part", "parts")
        place = f"the {found or 'missing'} files in {path}"
        letters = _chosen(rows, selection, ledger.read())
        return cls(place, rows, letters, ledger, aws, selection.target)

    def find(self) -> Found:
        """Count the letters that are to be put, and those that are not. Changes nothing. Raises
        `RedriveError` if the files hold no dead letters.
        """
        unreadable = self.rows.where(~_is_letter()).count()
        if unreadable and self.rows.where(_is_letter()).isEmpty():
            raise RedriveError(
                f"{self.place} hold no dead letters",
                "give the path of a DeadLetter, and its format",
            )
        states = {
            row["state"]: row["count"] for row in self.letters.groupBy("state").count().collect()
        }
        by_reason = self._to_put.groupBy("target", "reason").agg(
            F.count("*").alias("letters"),
            F.unix_micros(F.min("firstFailure")).alias("first"),
            F.unix_micros(F.max("lastFailure")).alias("last"),
        )
        most = (
            by_reason.orderBy(F.desc("letters"), "target", "reason").limit(REASONS_SHOWN).collect()
        )
        return Found(
            to_put=states.get(TO_PUT, 0),
            put_before=states.get(PUT_BEFORE, 0),
            without_payload=states.get(WITHOUT_PAYLOAD, 0),
            incomplete=states.get(INCOMPLETE, 0),
            unreadable=unreadable,
            reasons=tuple(
                ReasonCount(
                    target=row["target"],
                    reason=row["reason"] or "",
                    letters=row["letters"],
                    first_failure=moment(row["first"]),
                    last_failure=moment(row["last"]),
                )
                for row in most
            ),
            more_reasons=by_reason.count() - len(most) if len(most) == REASONS_SHOWN else 0,
        )

    def put(
        self,
        *,
        limit: int | None = None,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int], object] = lambda _put: None,
    ) -> int:
        """Put the letters back, at most `limit` of them. Returns how many were put.

        At least once, see the module docstring. Letters are put in chunks of at most 500, with at
        most 32 MiB of payload unless one letter alone has more. `stopping` is
        called before each chunk, and True ends the run. `progress` is called after each chunk, with
        the number of letters put so far.
        """
        count = 0
        self.ledger.create()  # fails now if the ledger cannot be written, before anything is put
        with ExitStack() as stack:
            putters: dict[str, RecordPutter] = {}
            for chunk in in_chunks(islice(self._ordered(), limit), itemgetter(1)):
                if stopping():
                    break
                for target in {name for name, _ in chunk} - putters.keys():
                    putters[target] = stack.enter_context(closing(self._putter(target)))
                pending = _PendingChunk(chunk)
                try:
                    for target in sorted({name for name, _ in chunk}):
                        putters[target].put(pending.records(target), pending.on_accepted)
                finally:
                    # Also when the service refuses one for good: a later run puts the others again
                    # otherwise, and so does every run after it.
                    if put := pending.put_letters():
                        self.ledger.append(put)
                        count += len(put)
                        progress(count)
        return count

    def _ordered(self) -> Iterator[tuple[str, Letter]]:
        """The letters to put, each with the name of its target stream, by target, stream, shard and
        sequence number. Holds one Spark partition of them in memory at a time.
        """
        sequence = F.length("sequenceNumber"), "sequenceNumber", "subSequenceNumber", "isWhole"
        ordered = self._to_put.orderBy("target", "streamName", "shardId", *sequence).withColumn(
            "subSequenceNumber", F.when(~F.col("isWhole"), F.col("subSequenceNumber"))
        )
        for row in letters_with_plain_times(ordered, "target").toLocalIterator():
            yield row["target"], letter_of(row)

    def _putter(self, target: str) -> RecordPutter:
        return RecordPutter(KinesisConnection(self.aws, self.target or StreamRef.parse(target)))

    @property
    def _to_put(self) -> DataFrame:
        return self.letters.where(F.col("state") == TO_PUT)


class _PendingChunk:
    """The letters of a chunk, and which of their records were not put yet."""

    def __init__(self, chunk: Sequence[tuple[str, Letter]]) -> None:
        self._letters = [
            (target, letter, [] if letter.data is None else payload_records(letter))
            for target, letter in chunk
        ]
        # By identity: two letters may become equal records, and each of them must be put.
        self._unput = {id(record) for _, _, records in self._letters for record in records}

    def records(self, target: str) -> list[OutgoingRecord]:
        return [
            record for name, _, records in self._letters if name == target for record in records
        ]

    def on_accepted(self, record: OutgoingRecord, _shard_id: str | None) -> None:
        self._unput.discard(id(record))

    def put_letters(self) -> list[tuple[str, Letter]]:
        """The letters of which every record was put."""
        return [
            (target, letter)
            for target, letter, records in self._letters
            if self._unput.isdisjoint(map(id, records))
        ]


def format_of(spark: SparkSession, path: str) -> str | None:
    """The format of the letters under a path, from the names of the files; None without files.

    Blocks. Raises `RedriveError`, and Spark's errors.
    """
    # As binary files, but only their names are read: Spark does not read columns that are not
    # selected.
    names = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select(F.col("path").alias("name"))
    )
    # Compressed files are named part-0.snappy.parquet and part-0.json.gz.
    suffix = F.regexp_extract(
        F.substring_index("name", "/", -1), rf"\.({'|'.join(LetterFormat)})(?:\.[a-z0-9]+)?$", 1
    )
    found = {row["suffix"] for row in names.select(suffix.alias("suffix")).distinct().collect()}
    formats = sorted(found - {""})
    if len(formats) > 1:
        raise RedriveError(
            f"{path} holds files of the formats {' and '.join(formats)}",
            "give the format of the dead letters with --format",
        )
    if not formats and found:
        raise RedriveError(
            f"{path} holds no file named .{', .'.join(LetterFormat)}",
            "give the format of the dead letters with --format",
        )
    return formats[0] if formats else None


def _is_letter() -> Column:
    return reduce(
        and_,
        (F.col(name).isNotNull() for name in ("messageId", "sequenceNumber", "streamName")),
    )


def _chosen(rows: DataFrame, selection: Selection, entries: DataFrame) -> DataFrame:
    """One letter for each selected record, with its `target` and its `state`."""
    target = F.col("streamName") if selection.target is None else F.lit(selection.target.name)
    letters = _joined(rows.where(_is_letter()))
    wanted = _identified(letters.where(selection.condition()))
    # Of all letters, not of the selected ones: what an old entry of the ledger means must not
    # depend on the selection.
    known = _known(entries, _identified(letters))
    once = _each_record_once(wanted.withColumn("target", target))
    return once.join(known, list(IDENTITY), "left").withColumn("state", _state())


def _joined(rows: DataFrame) -> DataFrame:
    """The letters of `rows`, with the columns of `LETTER_DDL` and `isIncomplete`.

    `rows` has the columns of `_ROWS_DDL`, with `part` and `parts` null for a letter in one piece. A
    part that is there twice counts once. A letter of which a part is missing has null `data`, and
    is incomplete.
    """
    is_part = F.coalesce(F.col("parts") > 1, ~_true())
    unparted = rows.where(~is_part).select(*LETTER_COLUMNS, (~_true()).alias(IS_INCOMPLETE))
    others = [name for name in LETTER_COLUMNS if name not in (*_LETTER_OF_PART, "data")]
    pieces = (
        rows.where(is_part)
        .dropDuplicates([*_LETTER_OF_PART, "part"])
        .groupBy(*_LETTER_OF_PART)
        .agg(
            F.array_sort(F.collect_list(F.struct("part", "data"))).alias("pieces"),
            F.first(F.struct(*others)).alias("others"),
        )
        .withColumn(IS_INCOMPLETE, F.size("pieces") < F.col("parts"))
    )
    payload = F.aggregate(
        "pieces", F.lit(b""), lambda before, piece: F.concat(before, piece["data"])
    )
    return unparted.unionByName(
        pieces.select(
            "streamName",
            "messageId",
            "subSequenceNumber",
            "others.*",
            F.when(~F.col(IS_INCOMPLETE), payload).alias("data"),
            IS_INCOMPLETE,
        )
    )


def _true() -> Column:
    return F.lit(True)  # noqa: FBT003  # Spark's literal


def _state() -> Column:
    return (
        F.when(F.col(IS_INCOMPLETE) & F.col("known").isNull(), INCOMPLETE)
        .when(F.col("data").isNull() & ~F.col(IS_INCOMPLETE), WITHOUT_PAYLOAD)
        .when(F.col("known").isNotNull(), PUT_BEFORE)
        .otherwise(TO_PUT)
    )


def _identified(letters: DataFrame) -> DataFrame:
    """With the columns of `IDENTITY`, without the target, as `is_whole` says. A null sub-sequence
    number is no number to join by.
    """
    may_be_whole = F.coalesce(F.startswith("data", F.lit(KPL_MAGIC)), _true())
    is_whole = F.col("subSequenceNumber").isNull() & may_be_whole
    return letters.withColumn("isWhole", is_whole).fillna(0, ["subSequenceNumber"])


def _known(entries: DataFrame, letters: DataFrame) -> DataFrame:
    """The records in the ledger, each once, with `known`.

    An entry that does not say whether its record is whole counts for the letter of these numbers.
    Where `letters` has both kinds it counts for none of them: a record is put twice rather than
    never.
    """
    kinds = letters.groupBy(*NUMBERS).agg(F.count_distinct("isWhole").alias("kinds"))
    is_decided = F.col("isWhole").isNotNull()
    either = (
        entries.where(~is_decided)
        .join(kinds.where("kinds > 1"), list(NUMBERS), "left_anti")
        .withColumn("isWhole", F.explode(F.array(_true(), ~_true())))
    )
    known = entries.where(is_decided).select(*IDENTITY).union(either.select(*IDENTITY)).distinct()
    return known.withColumn("known", _true())


def _each_record_once(letters: DataFrame) -> DataFrame:
    """One letter per record: the last one, but one with a payload if there is any.

    A record has several letters if its plan was repeated, or if the shard states were restored.
    """
    best = F.struct(F.col("data").isNotNull(), F.col("lastFailure"), F.col("attempts"))
    others = [name for name in (*LETTER_COLUMNS, IS_INCOMPLETE) if name not in IDENTITY]
    chosen = letters.groupBy(*IDENTITY).agg(F.max_by(F.struct(*others), best).alias("chosen"))
    return chosen.select(*IDENTITY, "chosen.*")
