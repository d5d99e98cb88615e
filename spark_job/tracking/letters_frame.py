"""The dead letters of a batch as a DataFrame: each failed record joined with its failures.

The payloads stay on the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_job.dead_letter.letter import LETTER_DDL
from spark_job.tracking.record_note import ORIGINAL
from spark_job.tracking.spark_sql import guarded, literal, only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_job.tracking.batch_frame import BatchFrame
    from spark_job.tracking.evaluation import Evaluation
    from spark_job.tracking.outcome_rules import LetterNote

_TIME = pa.timestamp("us", tz="UTC")
_NOTES = pa.schema(
    [
        ("letterId", pa.string()),
        ("attempts", pa.int32()),
        ("firstFailure", _TIME),
        ("lastFailure", _TIME),
        ("reason", pa.string()),
        ("goneShard", pa.string()),
        ("goneSequence", pa.string()),
        ("isWhole", pa.bool_()),
    ]
)
_GONE_SUB = (
    "IF(contains(goneSequence, '.'), CAST(substring_index(goneSequence, '.', -1) AS BIGINT), NULL)"
)
_SUB = f"coalesce(subSequenceNumber, {_GONE_SUB}, 0)"
NO_REASON = "not known"
LOST = (
    "a failed record cannot be found again for its dead letter: the persisted rows were lost, and "
    "the function gives another result now; nothing is acked, and the batch is delivered again"
)


def letters_frame(
    spark: SparkSession,
    letters: Sequence[LetterNote],
    *,
    frame: BatchFrame,
    evaluations: Sequence[Evaluation],
    stream: str,
    application: str,
) -> DataFrame:
    """The letters in the columns of LETTER_DDL.

    Evaluating the frame raises if a record is not found that is not gone from the stream.
    """
    if not letters:
        return spark.createDataFrame([], LETTER_DDL)
    notes = spark.createDataFrame(_notes_table(letters))
    originals = _originals(letters, frame, evaluations)
    if originals is None:
        originals = spark.createDataFrame(
            [], ", ".join(f"{name} {ddl}" for name, (_, ddl) in ORIGINAL.items())
        )
    joined = notes.join(originals, notes["letterId"] == originals["messageId"], "left")
    found = "messageId IS NOT NULL OR goneShard IS NOT NULL"
    safe = guarded(
        joined, f"CASE WHEN {found} THEN true ELSE CAST(raise_error('{LOST}') AS BOOLEAN) END"
    )
    columns = {
        "messageId": "letterId",
        "streamName": literal(stream),
        "shardId": "coalesce(shardId, goneShard)",
        "sequenceNumber": "coalesce(sequenceNumber, substring_index(goneSequence, '.', 1))",
        "subSequenceNumber": f"IF(isWhole AND {_SUB} = 0, NULL, {_SUB})",
        "application": literal(application),
    }
    typed = (column.split() for column in LETTER_DDL.split(", "))
    shown = ", ".join(f"CAST({columns.get(name, name)} AS {ddl}) AS {name}" for name, ddl in typed)
    return safe.selectExpr(f"struct({shown}) AS letter").select("letter.*")


def _originals(
    letters: Sequence[LetterNote], frame: BatchFrame, evaluations: Sequence[Evaluation]
) -> DataFrame | None:
    """The records of the letters; None if all of them are gone from the stream.

    They come from the evaluation in which they failed, which holds them, or else from the batch.
    """
    wanted = {letter.message_id for letter in letters if letter.gone is None}
    parts: list[DataFrame] = []
    for evaluation in evaluations:
        here = wanted & {record.message_id for record in evaluation.failures}
        if here == wanted and not parts:
            # May hold more records than are wanted: the join with the notes leaves them out.
            return evaluation.originals()
        if here:
            parts.append(only(evaluation.originals(), here))
            wanted -= here
    if wanted:
        parts.append(only(frame.rows().select(*ORIGINAL), wanted))
    if not parts:
        return None
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part)
    return united


def _notes_table(letters: Sequence[LetterNote]) -> pa.Table:
    columns = {
        "letterId": [letter.message_id for letter in letters],
        "attempts": [letter.attempts for letter in letters],
        "firstFailure": [_us(letter.first_failure_ms) for letter in letters],
        "lastFailure": [_us(letter.last_failure_ms) for letter in letters],
        "reason": [letter.reason or NO_REASON for letter in letters],
        "goneShard": [letter.gone[0] if letter.gone else None for letter in letters],
        "goneSequence": [letter.gone[1] if letter.gone else None for letter in letters],
        "isWhole": [letter.whole for letter in letters],
    }
    return pa.Table.from_pydict(columns, schema=_NOTES)


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000
