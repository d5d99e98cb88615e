"""A DeadLetter refuses bad settings at once, and shows neither secrets nor payloads."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.dead_letter.dead_letter import (
    LETTER_COLUMNS,
    LETTER_DDL,
    DeadLetter,
    DeadLetterError,
    Letter,
)
from spark_job.dead_letter.letter import CHUNK_LETTERS, in_chunks
from spark_job.dead_letter.stream_sink import PART_BYTES, StreamSink, envelopes
from spark_job.dead_letter.writer_sink import WriterSink
from tests.support.outcomes.letters import Story, gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from kinesis_spout.service.record_putter import OutgoingRecord

SECRET = "s3cr3t-of-the-test"
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/dead"
LETTER = Story().letter(7)
STREAM = StreamSink.of("dead", payload_only=False, aws={})
BARE = StreamSink.of("dead", payload_only=True, aws={})


def takes_all(_record: OutgoingRecord) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DeadLetter("parquet"), "format parquet needs a path"),
        (lambda: DeadLetter("JSON"), "format JSON needs a path"),
        (lambda: DeadLetter("json", path=" "), "path is empty"),
        (lambda: DeadLetter("csv", path="/dead"), "parquet, orc, avro and json"),
        (lambda: DeadLetter("text", path="/dead"), "format text cannot hold"),
        (lambda: DeadLetter("", path="/dead"), "not a format"),
        (lambda: DeadLetter(cast("Any", print), path="/dead"), "not a format"),
        (lambda: DeadLetter("jdbc", mode="overwrite"), "option mode cannot be given"),
        (lambda: DeadLetter("jdbc", url=None), "option url is of type NoneType"),
        (lambda: DeadLetter.to_stream("dead", regon="eu-central-1"), "did you mean region"),
        (lambda: DeadLetter.to_stream("dead", region="Frankfurt"), "option region"),
        (lambda: DeadLetter.to_stream("no such name"), "not a stream name"),
        (lambda: DeadLetter.to_stream(cast("Any", None)), "not named"),
        (lambda: DeadLetter.to_stream("dead", access_key_id="AK"), "secret_access_key"),
        (lambda: DeadLetter.to_stream(ARN, region="us-east-1"), "region"),
        (lambda: DeadLetter.to(cast("Any", "print")), "takes a function"),
    ],
)
def test_bad_settings_are_refused_at_once(make: Callable[[], DeadLetter], says: str) -> None:
    """And not by the first batch with a dead letter, perhaps weeks later."""
    with pytest.raises(ConfigError, match=says):
        make()


def test_no_secret_is_shown() -> None:
    """Any writer option may be a secret, and a path may contain a password."""
    places = [
        DeadLetter("jdbc", url=f"jdbc:x?password={SECRET}", password=SECRET, dbtable="dead"),
        DeadLetter("parquet", path=f"s3a://key:{SECRET}@bucket/dead"),
        DeadLetter.to_stream("dead", access_key_id="AK", secret_access_key=SECRET),
    ]
    for place in places:
        assert SECRET not in repr(place) + str(place) + repr(place.sink) + str(place.sink)


def test_it_is_equal_by_value_and_picklable() -> None:
    made = [
        DeadLetter("parquet", path="/dead", compression="zstd"),
        DeadLetter.to_stream(ARN),
        DeadLetter.to(print),
    ]
    for dead_letter in made:
        assert pickle.loads(pickle.dumps(dead_letter)) == dead_letter  # noqa: S301  # our own bytes
    assert made[0] != DeadLetter("parquet", path="/dead")
    assert repr(made[1]) == f"DeadLetter(stream {ARN})"
    sink = StreamSink.of("dead", payload_only=True, aws={"region": "eu-central-1"})
    aws = AwsConfig(region="eu-central-1")
    assert sink == StreamSink(StreamRef("dead"), aws, payload_only=True)
    assert WriterSink.of("parquet", "/dead", {}) != WriterSink.of("parquet", "/other", {})


def test_a_plan_has_a_directory_of_its_own() -> None:
    assert DeadLetter("parquet", path="/dead/").partition("12-ab") == "/dead/plan=12-ab"
    assert DeadLetter("jdbc", url="x").partition("12-ab") is None
    assert DeadLetter.to(print).partition("12-ab") is None
    with pytest.raises(ValueError, match="plan id"):
        DeadLetter("parquet", path="/dead").partition("../../etc")


class RecordedWriter:
    """A fake frame and its writer, which records the calls."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.calls: dict[str, Any] = {}
        self.fails = fails

    def __getattr__(self, name: str) -> Callable[..., RecordedWriter]:
        def called(*values: Any, **options: str) -> RecordedWriter:
            if name == "save" and self.fails is not None:
                raise self.fails
            known = self.calls.get(name, {})
            self.calls[name] = known | options if name == "options" else values
            return self

        return called

    @property
    def write(self) -> Self:
        return self


def written(dead_letter: DeadLetter) -> dict[str, Any]:
    frame = RecordedWriter()
    dead_letter.write(cast("DataFrame", frame), plan_id="12-ab")
    return frame.calls


def test_letters_are_appended_to_a_format_that_does_not_write_files() -> None:
    calls = written(DeadLetter("jdbc", url="jdbc:x", dbtable="dead", batchsize=100, truncate=True))
    assert calls == {
        "select": LETTER_COLUMNS,
        "format": ("jdbc",),
        "mode": ("append",),
        "options": {"url": "jdbc:x", "dbtable": "dead", "batchsize": "100", "truncate": "true"},
        "save": (None,),
    }


def test_files_are_overwritten_per_plan_and_the_users_options_win() -> None:
    calls = written(DeadLetter("json", path="/dead", timeZone="Asia/Tokyo", compression="gzip"))
    assert (calls["mode"], calls["save"]) == (("overwrite",), ("/dead/plan=12-ab",))
    assert calls["options"] | {"timestampFormat": ""} == {
        "timeZone": "Asia/Tokyo",
        "compression": "gzip",
        "timestampFormat": "",
    }


def test_a_failure_is_one_sentence_that_names_plan_and_sink_and_hides_the_password() -> None:
    frame = RecordedWriter(fails=RuntimeError(f"refused for sa:{SECRET}\n\tat a.b.C(D.java:1)"))
    dead_letter = DeadLetter("jdbc", url="jdbc:x", password=SECRET)
    with pytest.raises(DeadLetterError) as caught:
        dead_letter.write(cast("DataFrame", frame), plan_id="12-ab")
    assert str(caught.value) == (
        "the dead letters of plan 12-ab cannot be written to jdbc (RuntimeError: refused for "
        "sa:***), so nothing of the batch is acked; repair the sink, and start the query again"
    )


def test_a_letter_on_a_stream_is_json_with_the_payload_in_base64() -> None:
    (record,) = STREAM.records_of(LETTER, takes_all)
    assert record.partition_key == "key 7"
    found = json.loads(record.data)
    assert tuple(found) == LETTER_COLUMNS
    assert base64.b64decode(found["data"]) == LETTER.data
    assert (found["messageId"], found["attempts"]) == ("shardId-000000000000:1007:4", 4)
    assert found["lastFailure"] == "2026-01-02T04:11:05.678901Z"


@pytest.mark.parametrize("sink", [STREAM, BARE])
def test_a_letter_without_payload_is_json_with_its_message_id_as_key(sink: StreamSink) -> None:
    """The service requires a partition key. An empty value would look like an empty record to a
    reader of bare payloads.
    """
    (record,) = sink.records_of(gone(LETTER), takes_all)
    assert record.partition_key == LETTER.message_id
    assert json.loads(record.data)["data"] is None


@pytest.mark.parametrize("data", [LETTER.data, b""])
def test_a_bare_payload_is_the_record_as_it_was(data: bytes) -> None:
    """An empty payload is not a missing one."""
    (record,) = BARE.records_of(replace(LETTER, data=data), takes_all)
    assert (record.partition_key, record.data) == ("key 7", data)
    (envelope,) = envelopes(replace(LETTER, data=data))
    assert base64.b64decode(json.loads(envelope)["data"]) == data


@pytest.mark.parametrize(("mib", "count"), [(1, 2), (10, 15)])
def test_a_payload_of_the_maximum_size_is_put_in_parts_that_fit(mib: int, count: int) -> None:
    """In base64 such a record exceeds the limit of its own stream, and its batch would fail for
    ever.
    """
    letter = replace(
        LETTER, data=b"x" * mib * 1_048_576, partition_key='"' * 256, reason="\u20ac" * 300
    )
    values = envelopes(letter)
    assert all(len(value) + 256 <= 1_048_576 for value in values)
    found = [json.loads(value) for value in values]
    assert [(part["part"], part["parts"]) for part in found] == [
        (number, count) for number in range(1, count + 1)
    ]
    assert b"".join(base64.b64decode(part["data"]) for part in found) == letter.data
    assert len(envelopes(replace(LETTER, data=b"x" * PART_BYTES))) == 1


def test_a_bare_payload_that_the_stream_does_not_take_is_put_as_json_in_parts() -> None:
    """A batch with such a letter would fail for ever."""
    large = replace(LETTER, data=b"x" * 1_048_576)
    bare = BARE.records_of(large, takes_all)
    assert [record.data for record in bare] == [large.data]
    in_parts = BARE.records_of(large, lambda record: record.size_bytes < 1_048_576)
    assert [json.loads(record.data)["part"] for record in in_parts] == [1, 2]


def test_a_chunk_of_letters_has_bounded_bytes_or_one_letter() -> None:
    """Five hundred records of 10 MiB would fill the driver's memory."""
    sizes = [10, 10, 10, 10, 33, 1, *([0] * 600)]
    letters = [replace(LETTER, data=bytes(size * 1_048_576) or None) for size in sizes]
    chunks = list(in_chunks(letters, lambda letter: letter))
    assert [len(chunk) for chunk in chunks] == [3, 1, 1, CHUNK_LETTERS, 101]
    assert [letter for chunk in chunks for letter in chunk] == letters


def test_a_letter_shows_neither_payload_nor_key_and_has_the_columns_of_the_ddl() -> None:
    assert "order" not in repr(replace(LETTER, stream_name="s", reason="r", application="a"))
    assert "key 7" not in repr(LETTER)
    assert LETTER_DDL.startswith("messageId STRING, ")
    assert len(LETTER_COLUMNS) == 13 == len(Letter.__slots__)
