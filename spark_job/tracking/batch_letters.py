"""The dead letters of a tracked batch, as a frame: what the driver knows of each failed record,
joined with the record itself, which stays on the executors.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from kinesis_spout.dead_letter.letter import COLUMNS, LETTER_DDL
from kinesis_spout.errors import KinesisError
from spark_job.tracking.options import OnExhausted
from spark_job.tracking.record_mapping import ORIGINAL
from spark_job.tracking.spark_sql import guarded, literal, only
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.settings import SourceSettings
    from spark_job.tracking.batch_run import BatchRun
    from spark_job.tracking.options import TrackOptions
    from spark_job.tracking.outcome_rules import LetterNote
    from spark_job.tracking.stream_part import StreamPart

log = logging.getLogger("kinesis_spout")
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
        ("goneSub", pa.int64()),
        ("isWhole", pa.bool_()),
    ]
)
_SUB = "coalesce(subSequenceNumber, goneSub, 0)"
NO_REASON = "not known"
LOST = (
    "a failed record is missing, so its dead letter cannot be written. Spark lost the persisted "
    "rows, and the function then returned a different result. No record of the batch is acked, "
    "and the batch is redelivered"
)


class ExhaustedRecordError(KinesisError):
    """A record's retries are used up, and `on_exhausted` is stop. Nothing of its batch is acked."""


def write_letters(
    part: StreamPart, letters: Sequence[LetterNote], run: BatchRun, options: TrackOptions
) -> None:
    """Write the dead letters of one stream, or log or raise as `on_exhausted` says.

    If the plan was reported before, this writes also if there are no letters: an earlier run of the
    batch may have written some, and they must be replaced. Blocks on a Spark job and on the place
    of the letters. Evaluating their frame raises if a record is not found that is not gone from the
    stream.
    """
    prefix, plan_id = part.settings.id_prefix, part.plan.plan_id
    # The letter of a record that is gone has no row, whose message id names the stream.
    letters = [
        one
        if one.message_id.startswith(prefix)
        else replace(one, message_id=prefix + one.message_id)
        for one in letters
    ]
    if letters and options.on_exhausted is OnExhausted.STOP:
        first = letters[0]
        raise ExhaustedRecordError(
            f"record {first.message_id} failed {first.attempts} times and has no retry left "
            f"({first.reason}). on_exhausted is stop, so no record of the batch is acked",
            "correct the function, or omit on_exhausted and pass a dead_letter to tracked(...)",
        )
    if letters and options.on_exhausted is OnExhausted.DROP:
        log.warning(
            "batch %s: %d records have no retry left, so they are dropped. The first dropped "
            "record is %s",
            plan_id,
            sum(letter.records for letter in letters),
            letters[0].message_id,
        )
    if options.dead_letter is not None and (letters or part.opened.reopened):
        options.dead_letter.write(_frame(part.settings, letters, run), plan_id=plan_id)


def _frame(stream: SourceSettings, letters: Sequence[LetterNote], run: BatchRun) -> DataFrame:
    """The letters in the columns of LETTER_DDL."""
    spark = run.frame.cheapest.sparkSession
    if not letters:
        return spark.createDataFrame([], LETTER_DDL)
    notes = spark.createDataFrame(_notes_table(letters))
    originals = _originals(letters, run)
    if originals is None:
        originals = spark.createDataFrame(ORIGINAL.empty_table())
    joined = notes.join(originals, notes["letterId"] == originals["messageId"], "left")
    found = "messageId IS NOT NULL OR goneShard IS NOT NULL"
    safe = guarded(
        joined, f"CASE WHEN {found} THEN true ELSE CAST(raise_error('{LOST}') AS BOOLEAN) END"
    )
    columns = {
        "messageId": "letterId",
        "streamName": literal(stream.label),
        "shardId": "coalesce(shardId, goneShard)",
        "sequenceNumber": "coalesce(sequenceNumber, goneSequence)",
        "subSequenceNumber": f"IF(isWhole AND {_SUB} = 0, NULL, {_SUB})",
        "application": literal(stream.application),
    }
    shown = ", ".join(
        f"CAST({columns.get(name, name)} AS {kind}) AS {name}" for name, kind, *_ in COLUMNS
    )
    return safe.selectExpr(f"struct({shown}) AS letter").select("letter.*")


def _originals(letters: Sequence[LetterNote], run: BatchRun) -> DataFrame | None:
    """The records of the letters; None if all of them are gone from the stream.

    They come from the evaluation in which they failed, which holds them, or else from the batch.
    """
    wanted = {letter.message_id for letter in letters if letter.gone is None}
    parts: list[DataFrame] = []
    for evaluation in run.evaluations:
        here = wanted & {record.message_id for record in evaluation.failures}
        if here == wanted and not parts:
            # May hold more records than are wanted: the join with the notes leaves them out.
            return evaluation.originals()
        if here:
            parts.append(only(evaluation.originals(), here))
            wanted -= here
    if wanted:
        parts.append(only(run.frame.rows().select(*ORIGINAL.names), wanted))
    return reduce(DataFrame.unionByName, parts) if parts else None


def _notes_table(letters: Sequence[LetterNote]) -> pa.Table:
    gone = [letter.gone and SequenceNumber.parse(letter.gone[1]) for letter in letters]
    columns = {
        "letterId": [letter.message_id for letter in letters],
        "attempts": [letter.attempts for letter in letters],
        "firstFailure": [_us(letter.first_failure_ms) for letter in letters],
        "lastFailure": [_us(letter.last_failure_ms) for letter in letters],
        "reason": [letter.reason or NO_REASON for letter in letters],
        "goneShard": [letter.gone[0] if letter.gone else None for letter in letters],
        "goneSequence": [number and str(number.sequence) for number in gone],
        "goneSub": [number and number.sub for number in gone],
        "isWhole": [letter.whole for letter in letters],
    }
    return pa.Table.from_pydict(columns, schema=_NOTES)


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000
