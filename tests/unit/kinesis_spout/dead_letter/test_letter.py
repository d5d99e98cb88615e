"""One schema of dead letters, and the forms in which earlier versions stored them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.dead_letter.files import LetterFormat, LocalLetterFiles, RedriveError
from kinesis_spout.dead_letter.letter import (
    LETTER_COLUMNS,
    Letter,
    LetterFile,
    Piece,
    line_of,
    piece_of,
    piece_of_line,
)
from kinesis_spout.dead_letter.redrive import Redrive

if TYPE_CHECKING:
    from pathlib import Path

ARRIVAL, FIRST, LAST = (datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC) for second in (4, 5, 6))
LETTER = Letter(
    message_id="shardId-000000000000:5:2",
    stream_name="orders",
    shard_id="shardId-000000000000",
    sequence_number="5",
    sub_sequence_number=0,
    partition_key="k",
    data=b"\xff\x00",
    approximate_arrival=ARRIVAL,
    attempts=2,
    first_failure=FIRST,
    last_failure=LAST.replace(microsecond=678_901),
    reason="no rates",
    application="etl",
)
OF_VERSION_1 = replace(LETTER, sub_sequence_number=None, application=None, last_failure=LAST)
_SPARK = {
    "messageId": "shardId-000000000000:5:2",
    "streamName": "orders",
    "shardId": "shardId-000000000000",
    "sequenceNumber": "5",
    "subSequenceNumber": 0,
    "partitionKey": "k",
    "attempts": 2,
    "reason": "no rates",
    "application": "etl",
}
_CONSUME = {
    "id": "shardId-000000000000:5:2",
    "stream": "orders",
    "shard": "shardId-000000000000",
    "sequence": "5",
    "attempts": 2,
    "reason": "no rates",
    "firstFailure": "2026-01-02T03:04:05.000Z",
    "lastFailure": "2026-01-02T03:04:06.000Z",
    "key": "k",
    "arrival": "2026-01-02T03:04:04.000Z",
}
_TIMES = {
    "approximateArrivalTimestamp": "2026-01-02T03:04:04.000000Z",
    "firstFailure": "2026-01-02T03:04:05.000000Z",
    "lastFailure": "2026-01-02T03:04:06.678901Z",
}


def test_a_letter_is_one_line_of_json_and_comes_back_from_it() -> None:
    line = line_of(LETTER)
    assert json.loads(line) == _SPARK | _TIMES | {"data": "/wA="}
    assert list(json.loads(line)) == list(LETTER_COLUMNS)
    assert piece_of_line(line) == piece_of_line(LETTER.to_json()) == Piece(LETTER, 1, 1)
    assert LETTER.last_failure_ms == int(LAST.timestamp() * 1000) + 678
    assert "secret" not in repr(replace(LETTER, data=b"secret", partition_key="secret"))


@pytest.mark.parametrize(
    ("found", "letter", "parts"),
    [
        pytest.param(_SPARK | _TIMES | {"data": "/wA="}, LETTER, (1, 1), id="json of Spark"),
        pytest.param(
            _SPARK
            | {
                "data": bytearray(b"\xff\x00"),
                "approximateArrivalTimestamp": ARRIVAL.replace(tzinfo=None),
                "firstFailure": int(FIRST.timestamp()) * 1_000_000,
                "lastFailure": LETTER.last_failure,
            },
            LETTER,
            (1, 1),
            id="a row of a table",
        ),
        pytest.param(
            _SPARK | _TIMES | {"data": "/wA=", "part": 2, "parts": 3}, LETTER, (2, 3), id="a part"
        ),
        pytest.param(_CONSUME | {"dataBase64": "/wA="}, OF_VERSION_1, (1, 1), id="consume, base64"),
        pytest.param(
            _CONSUME | {"data": "ü"},
            replace(OF_VERSION_1, data="ü".encode()),
            (1, 1),
            id="consume, text",
        ),
        pytest.param(
            _CONSUME | {"id": "shardId-000000000000:5.3:2", "data": ""},
            replace(
                OF_VERSION_1,
                message_id="shardId-000000000000:5.3:2",
                sub_sequence_number=3,
                data=b"",
            ),
            (1, 1),
            id="consume, user record",
        ),
        pytest.param(
            {name: value for name, value in _CONSUME.items() if name not in {"key", "arrival"}}
            | {"count": 3, "lastSequence": "9", "reason": None},
            replace(
                OF_VERSION_1,
                partition_key=None,
                approximate_arrival=None,
                data=None,
                reason=None,
                count=3,
                last_sequence_number="9",
            ),
            (1, 1),
            id="consume, gone",
        ),
    ],
)
def test_letters_of_all_versions_are_read(
    found: dict[str, Any], letter: Letter, parts: tuple[int, int]
) -> None:
    assert piece_of(found) == Piece(letter, *parts)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"[]", b"not json", b"\xff", b"[" * 100_000, b'{"a": 1}', b'{"id": 7}'),
        *(b'{"id": "torn"}', json.dumps(_SPARK | {"streamName": None}).encode()),
        *(json.dumps(_SPARK | {"data": "no base64"}).encode(),),
        *(json.dumps(_SPARK | {"attempts": "two"}).encode(),),
    ],
)
def test_a_line_that_is_no_letter_is_none(line: bytes) -> None:
    assert piece_of_line(line) is None


def letters_in(path: Path) -> list[str]:
    return [json.loads(line)["messageId"] for line in path.read_bytes().splitlines()]


def test_a_letter_is_in_the_file_of_that_name_though_the_file_was_moved_or_removed(
    tmp_path: Path,
) -> None:
    """By logrotate, or by a clean-up. Nobody would find a letter in a file without a name."""
    folder, path = tmp_path / "letters", tmp_path / "letters" / "dead.jsonl"
    folder.mkdir()
    with LetterFile(path) as write:
        write(replace(LETTER, message_id="1"))
        path.rename(tmp_path / "dead.jsonl.1")
        write(replace(LETTER, message_id="2"))
        assert letters_in(path) == ["2"]
        path.unlink()
        write(replace(LETTER, message_id="3"))
        assert letters_in(path) == ["3"]
        path.rename(tmp_path / "dead.jsonl.3")
        folder.rmdir()
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                write(replace(LETTER, message_id="4"))
        folder.mkdir()
        path.write_bytes(b"torn")
        write(replace(LETTER, message_id="4"))
    assert path.read_bytes().startswith(b"torn\n{")
    assert letters_in(tmp_path / "dead.jsonl.1") == ["1"]
    assert letters_in(tmp_path / "dead.jsonl.3") == ["3"]


def test_lines_under_the_name_of_another_format_are_refused_with_the_way_to_read_them(
    tmp_path: Path,
) -> None:
    """`consume --dead-letter` writes lines of JSON into a file of any name."""
    path = tmp_path / "dead.parquet"
    with LetterFile(path) as file:
        file(LETTER)
    with Redrive(LocalLetterFiles(path)) as redrive:
        with pytest.raises(
            RedriveError, match=r"cannot read the file .* as parquet .*pass --format json"
        ):
            redrive.read(heads=True)
        redrive.read(LetterFormat.JSON, heads=True)
        assert redrive.find().to_put == 1
