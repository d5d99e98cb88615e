"""Dead letters arrive unchanged in files, on a stream and at a function. A failing sink raises."""

from __future__ import annotations

import base64
import json
import traceback
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.dead_letter.letter import CHUNK_LETTERS
from spark_job.dead_letter import LETTER_DDL, DeadLetter, DeadLetterError, Letter
from spark_job.dead_letter.spark_files import letter_of, with_plain_times
from tests.support.outcomes.letters import FIRST_FAILURE, Story, frame_of, gone
from tests.support.outcomes.odd_errors import Unprintable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kinesis.services import ServedFake

pytestmark = pytest.mark.spark
LETTERS = [*Story().letters(5), gone(Story().letter(5))]


def read(spark: SparkSession, path: str, format: str) -> list[Letter]:  # noqa: A002  # Spark's name for it
    frame = spark.read.schema(LETTER_DDL).format(format).load(path)
    return sorted(
        map(letter_of, with_plain_times(frame).collect()),
        key=lambda letter: letter.message_id,
    )


@pytest.mark.parametrize("format", ["parquet", "json", "orc"])
def test_a_repeated_plan_replaces_only_its_own_letters(
    spark: SparkSession,
    tmp_path: Path,
    format: str,  # noqa: A002  # Spark's name for it
) -> None:
    """Also by fewer letters, and by none. Letters are read back as they were written, with times to
    the microsecond. Other columns are left out.
    """
    path = str(tmp_path / "dead")
    dead_letter = DeadLetter(format, path=path)
    more = frame_of(spark, LETTERS[:2]).selectExpr("*", "1 AS mine")
    dead_letter.write(more, plan_id="1-a")
    assert "mine" not in spark.read.format(format).load(path).columns
    dead_letter.write(frame_of(spark, LETTERS[2:]), plan_id="2-b")
    assert read(spark, path, format) == LETTERS
    dead_letter.write(frame_of(spark, LETTERS[:1]), plan_id="1-a")
    assert read(spark, path, format) == [LETTERS[0], *LETTERS[2:]]
    dead_letter.write(frame_of(spark, []), plan_id="2-b")
    assert read(spark, path, format) == LETTERS[:1]
    assert read(spark, f"{path}/plan=2-b", format) == []


def test_the_time_zone_of_the_session_changes_no_time(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        DeadLetter("json", path=str(tmp_path)).write(frame_of(spark, LETTERS), plan_id="1-a")
        got: list[Letter] = []
        DeadLetter.to(got.extend).write(frame_of(spark, LETTERS), plan_id="1-a")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert read(spark, str(tmp_path), "json") == LETTERS
    assert {letter.first_failure for letter in got} >= {FIRST_FAILURE}


def test_a_directory_that_cannot_be_written_is_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has the plan, the place and the cause, and no stack, task number or payload."""
    (tmp_path / "file").write_text("")
    dead_letter = DeadLetter("parquet", path=f"file://{tmp_path}/file/dead")
    with pytest.raises(
        DeadLetterError, match="the dead letters of plan 1-a cannot be written to parquet at file"
    ) as caught:
        dead_letter.write(frame_of(spark, LETTERS), plan_id="1-a")
    with pytest.raises(DeadLetterError, match="nope"):
        DeadLetter("nope").write(frame_of(spark, LETTERS), plan_id="1-a")
    text = str(caught.value)
    assert "nothing of the batch is acked" in text
    assert len(text.splitlines()) == 1
    assert not any(word in text for word in ("TID", "\tat ", "order 1", "key 1"))


def test_a_stream_gets_each_letter_as_json(spark: SparkSession, fake_kinesis: ServedFake) -> None:
    fake_kinesis.model.create("dead", shards=2)
    dead_letter = DeadLetter.to_stream("dead", **fake_kinesis.aws)
    dead_letter.write(frame_of(spark, LETTERS), plan_id="1-a")
    records = [
        json.loads(record.data)
        for shard in fake_kinesis.model.shards("dead")
        for record in fake_kinesis.model.records("dead", shard.shard_id)
    ]
    found = {record["messageId"]: record for record in records}
    assert {name: one["data"] and base64.b64decode(one["data"]) for name, one in found.items()} == {
        letter.message_id: letter.data for letter in LETTERS
    }
    assert {one["reason"] for one in found.values()} == {letter.reason for letter in LETTERS}


def test_a_function_gets_the_letters_in_lists_of_bounded_length(spark: SparkSession) -> None:
    """It is not called without letters."""
    got: list[list[Letter]] = []
    dead_letter = DeadLetter.to(got.append)
    dead_letter.write(frame_of(spark, []), plan_id="1-a")
    assert got == []
    letters = Story().letters(CHUNK_LETTERS + 1)
    dead_letter.write(frame_of(spark, letters), plan_id="1-a")
    assert sorted(map(len, got)) == [1, CHUNK_LETTERS]
    assert (
        sorted(
            (one for chunk in got for one in chunk), key=lambda letter: int(letter.sequence_number)
        )
        == letters
    )


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionError("no answer"), r"function page_somebody (ConnectionError: no answer)"),
        (SystemExit(1), "SystemExit: 1"),
        (ValueError("half \ud83d"), r"ValueError: half \ud83d"),
        (Unprintable(), "Unprintable: its text cannot be made: RuntimeError"),
    ],
    ids=["error", "exit", "half", "no text"],
)
def test_whatever_a_function_raises_fails_the_write(
    error: BaseException, says: str, spark: SparkSession
) -> None:
    """And the error can be sent to Java."""

    def page_somebody(_: list[Letter]) -> None:
        raise error

    with pytest.raises(DeadLetterError) as caught:
        DeadLetter.to(page_somebody).write(frame_of(spark, LETTERS, partitions=1), plan_id="1-a")
    assert says in str(caught.value)
    assert "".join(traceback.format_exception(caught.value)).encode()
