"""A DeadLetter refuses bad settings at once, and shows neither secrets nor payloads."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast
from unittest.mock import MagicMock, patch

import pytest

from kinesis_spout.dead_letter.letter import CHUNK_LETTERS, in_chunks
from kinesis_spout.dead_letter.outgoing import envelopes
from kinesis_spout.errors import ConfigError
from spark_job.dead_letter import LETTER_COLUMNS, DeadLetter, DeadLetterError
from spark_job.dead_letter import dead_letter as module
from spark_job.dead_letter.dead_letter import StreamSink
from tests.support.outcomes.letters import Story, gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.service.record_putter import OutgoingRecord

SECRET = "s3cr3t-of-the-test"
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/dead"
LETTER = Story().letter(7)
STREAM = StreamSink.of("dead", payload_only=False, aws={})
BARE = StreamSink.of("dead", payload_only=True, aws={})


def takes_all(_record: OutgoingRecord) -> bool:
    return True


async def send_later(letters: list[Letter]) -> None:
    """The letters of each call would be lost, and their records acked."""


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DeadLetter("parquet"), "format parquet needs a path"),
        (lambda: DeadLetter("json", path=" "), "path is empty"),
        (lambda: DeadLetter("text", path="/dead"), "format text cannot contain"),
        (lambda: DeadLetter(cast("Any", print), path="/dead"), "not a Spark writer's format"),
        (lambda: DeadLetter("jdbc", mode="overwrite"), "option mode cannot be set"),
        (lambda: DeadLetter("jdbc", url=None), "option url is of type NoneType"),
        (lambda: DeadLetter.to_stream("dead", regon="eu-central-1"), "did you mean region"),
        (lambda: DeadLetter.to_stream("no such name"), "not a valid Kinesis stream name"),
        (lambda: DeadLetter.to_stream("dead", access_key_id="AK"), "secret_access_key"),
        (lambda: DeadLetter.to_stream(ARN, region="us-east-1"), "region"),
        (lambda: DeadLetter.to(cast("Any", "print")), "function of .* is of type str"),
        (lambda: DeadLetter.to(send_later), "with async or yield, so a call does not run its code"),
    ],
)
def test_bad_settings_are_refused_at_once(make: Callable[[], DeadLetter], says: str) -> None:
    """And not by the first batch with a dead letter, perhaps weeks later."""
    with pytest.raises(ConfigError, match=says):
        make()


def test_no_secret_and_no_payload_is_shown() -> None:
    """Any writer option may be a secret, and a path may contain a password."""
    places = [
        DeadLetter("jdbc", url=f"jdbc:x?password={SECRET}", password=SECRET, dbtable="dead"),
        DeadLetter("parquet", path=f"s3a://key:{SECRET}@bucket/dead"),
        DeadLetter.to_stream("dead", access_key_id="AK", secret_access_key=SECRET),
    ]
    for place in places:
        assert SECRET not in repr(place) + str(place) + repr(place.sink) + str(place.sink)
        assert pickle.loads(pickle.dumps(place)) == place  # noqa: S301  # our own bytes
    assert "order 7" not in repr(LETTER)
    assert "key 7" not in repr(LETTER)


class RecordedWriter:
    """A fake frame and its writer, which records the calls and fails to save."""

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., RecordedWriter]:
        def called(*values: Any, **options: str) -> RecordedWriter:
            if name == "save":
                raise RuntimeError(f"refused for sa:{SECRET}\n\tat a.b.C(D.java:1)")
            self.calls[name] = options or values
            return self

        return called

    @property
    def write(self) -> Self:
        return self


@pytest.mark.parametrize("url", ["jdbc:x?user=sa&password=%s&ssl=true", "jdbc:y;PASSWORD=%s"])
def test_an_error_hides_the_password_in_the_url_of_a_table(url: str) -> None:
    with pytest.raises(DeadLetterError, match=r"refused for sa:\*\*\*") as caught:
        DeadLetter("jdbc", url=url % SECRET).write(RecordedWriter(), plan_id="12-ab")  # type: ignore[arg-type]  # a fake
    assert SECRET not in str(caught.value)


def test_letters_are_appended_to_a_table_and_its_error_hides_the_password() -> None:
    frame: Any = RecordedWriter()
    dead_letter = DeadLetter("jdbc", url="jdbc:x", password=SECRET, truncate=True)
    with pytest.raises(DeadLetterError) as caught:
        dead_letter.write(frame, plan_id="12-ab")
    assert frame.calls == {
        "select": LETTER_COLUMNS,
        "format": ("jdbc",),
        "mode": ("append",),
        "options": {"url": "jdbc:x", "password": SECRET, "truncate": "true"},
    }
    assert str(caught.value) == (
        "cannot write the dead letters of batch 12-ab to jdbc (RuntimeError: refused for "
        "sa:***), so no record of the batch is acked; repair the dead-letter sink, and "
        "start the query again"
    )


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_function_raises_is_an_error_that_spark_can_take(error: BaseException) -> None:
    """Spark waits for ever for the answer of a thread that anything else has ended."""

    def refuses(letters: object) -> None:
        raise error

    with (
        patch.multiple(module, with_plain_times=MagicMock(), in_chunks=lambda *_: [[LETTER]]),
        pytest.raises(DeadLetterError, match=f"function refuses raised {type(error).__name__}"),
    ):
        DeadLetter.to(refuses).write(MagicMock(), plan_id="12-ab")


@pytest.mark.parametrize("sink", [STREAM, BARE])
def test_a_letter_without_payload_is_json_with_its_message_id_as_key(sink: StreamSink) -> None:
    """The service requires a partition key. An empty value would look like an empty record to a
    reader of bare payloads.
    """
    (record,) = sink.records_of(gone(LETTER), takes_all)
    assert record.partition_key == LETTER.message_id
    assert json.loads(record.data)["data"] is None


@pytest.mark.parametrize("data", [LETTER.data, b""])
def test_a_letter_on_a_stream_is_json_or_the_bare_payload(data: bytes) -> None:
    """An empty payload is not a missing one."""
    letter = replace(LETTER, data=data)
    (record,) = BARE.records_of(letter, takes_all)
    assert (record.partition_key, record.data) == ("key 7", data)
    (record,) = STREAM.records_of(letter, takes_all)
    found = json.loads(record.data)
    assert (record.partition_key, tuple(found)) == ("key 7", LETTER_COLUMNS)
    assert base64.b64decode(found["data"]) == data
    assert (found["messageId"], found["attempts"]) == (LETTER.message_id, 4)
    assert found["lastFailure"] == "2026-01-02T04:11:05.678901Z"


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
    in_parts = BARE.records_of(letter, lambda record: record.size_bytes < mib * 1_048_576)
    assert [record.data for record in in_parts] == values


def test_a_chunk_of_letters_has_bounded_bytes_or_one_letter() -> None:
    """Five hundred records of 10 MiB would fill the driver's memory."""
    sizes = [10, 10, 10, 10, 33, 1, *([0] * 600)]
    letters = [replace(LETTER, data=bytes(size * 1_048_576) or None) for size in sizes]
    chunks = list(in_chunks(letters))
    assert [len(chunk) for chunk in chunks] == [3, 1, 1, CHUNK_LETTERS, 101]
    assert [letter for chunk in chunks for letter in chunk] == letters
