"""Records and dead letters as lines of JSON, in both directions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.letter_file import LetterFile
from kinesis_spout.cli.record_lines import (
    LineError,
    key_of_json,
    letter_line,
    outgoing_of_json,
    record_line,
)
from kinesis_spout.errors import ConfigError
from kinesis_spout.spout.emission import DeadLetter, SpoutEmission
from kinesis_spout.spout.record_run import RecordRun

if TYPE_CHECKING:
    from pathlib import Path


def letter(**changes: object) -> DeadLetter:
    known: dict[str, object] = {
        "stream_name": "orders",
        "shard_id": "shardId-000000000000",
        "sequence_number": "5",
        "last_sequence_number": "5",
        "attempts": 2,
        "reason": "no rates",
        "first_failure_ms": 1_000,
        "last_failure_ms": 2_500,
        "data": b"\xff",
        "partition_key": "k",
        "approximate_arrival_ms": 0,
    }
    return DeadLetter(**(known | changes))  # type: ignore[arg-type]  # the mapping's values have the types of their fields


def test_a_letter_has_all_that_is_known() -> None:
    assert json.loads(letter_line(letter())) == {
        "id": "shardId-000000000000:5:2",
        "stream": "orders",
        "shard": "shardId-000000000000",
        "sequence": "5",
        "attempts": 2,
        "reason": "no rates",
        "firstFailure": "1970-01-01T00:00:01.000Z",
        "lastFailure": "1970-01-01T00:00:02.500Z",
        "key": "k",
        "arrival": "1970-01-01T00:00:00.000Z",
        "dataBase64": "/w==",
    }


def test_a_record_without_a_partition_key_has_no_key_and_is_put_back_with_a_random_one() -> None:
    """As in a stream with record distribution AUTO."""
    run, assigned = RecordRun(["5"], [None], [b"text"], [0]), SimpleNamespace(shard=letter())
    emission = SpoutEmission(run, 0, 1, assigned, b"text")  # type: ignore[arg-type]  # only its shard's id is used
    assert emission.partition_key is None
    line = record_line(emission)
    assert "key" not in json.loads(line)
    assert outgoing_of_json(line, lambda: "random").partition_key == "random"


def test_a_letter_of_records_that_are_gone_has_no_payload() -> None:
    gone = letter(
        data=None,
        partition_key=None,
        approximate_arrival_ms=None,
        count=3,
        last_sequence_number="9",
    )
    line = json.loads(letter_line(gone))
    assert (line["count"], line["lastSequence"]) == (3, "9")
    assert {"key", "data", "dataBase64", "arrival"}.isdisjoint(line)
    with pytest.raises(LineError, match="exactly one of data and dataBase64"):
        outgoing_of_json(letter_line(gone), str)


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'"text"', b'{"data": 7}', b"\xff", b'{"data": "a", "dataBase64": "YQ=="}']
)
def test_a_line_that_is_not_a_record_is_refused_without_being_shown(line: bytes) -> None:
    with pytest.raises(LineError):
        outgoing_of_json(line, str)


@pytest.mark.parametrize(
    "line", [b"", b"7", b"{}", b'{"id": null}', b'{"id": true}', b'{"id": []}', b"\xff"]
)
def test_any_other_key_is_refused(line: bytes) -> None:
    with pytest.raises(LineError, match="id"):
        key_of_json(line, "id")


@pytest.mark.parametrize(
    ("numbers", "key"),
    [
        (["7", "7.0", "70e-1", "0.7E1", "7.000"], "7"),
        (["0", "-0", "0.0", "0e9"], "0"),
        (["-1.50", "-15e-1"], "-1.5"),
        (["9007199254740993", "9007199254740993.0"], "9007199254740993"),
        (["1e400", "10e399", "1.0E+400"], "1E+400"),
    ],
)
def test_equal_numbers_are_one_key(numbers: list[str], key: str) -> None:
    """As texts they differ, and a float has no place for some, and takes others for equal."""
    assert {key_of_json(f'{{"id": {text}}}'.encode(), "id") for text in numbers} == {key}


STRANGE_VALUES = (
    b"1e400",
    b"-1e-999999",
    b'"\\ud800"',
    b'["\\udc00 \\ud800", {"\\ud83d": "\\ud83d"}]',
    b"1" * 5_000,
    b"[1e9999999999999999999999]",
)


@pytest.mark.parametrize("other", STRANGE_VALUES)
def test_other_fields_may_hold_whatever_the_grammar_allows(other: bytes) -> None:
    """Also what neither a float nor a text of UTF-8 can hold: nothing is done with it."""
    line = b'{"other": %b, "key": "a", "data": "d", "number": 7.0}' % other
    assert (key_of_json(line, "key"), key_of_json(line, "number")) == ("a", "7")
    found = outgoing_of_json(line, str)
    assert (found.partition_key, found.data) == ("a", b"d")


@pytest.mark.parametrize(
    "line",
    [
        b'{"x": NaN, "id": "a"}',
        b'{"x": "\\ud800", "y": Infinity, "id": "a"}',
        b'{"id": "a", "x": 01}',
        b'{"id": "a"} x',
        b'{"x": "\\ud800"',
        b'{"id": "a", "x": "\xff"}',
        b'{"x": "\\ud800", "y": ' + b"[" * 100_000 + b"]" * 100_000 + b', "id": "a"}',
    ],
)
def test_what_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(LineError, match="is not JSON"):
        key_of_json(line, "id")


def test_letters_are_appended_to_a_file_as_lines(tmp_path: Path) -> None:
    """A line that a crash has torn stays a line of its own."""
    path = tmp_path / "dead"
    for _ in range(2):
        with LetterFile(path) as write:
            write(letter())
    assert path.read_bytes() == letter_line(letter()) * 2
    path.write_bytes(b'{"torn')
    with LetterFile(path) as write:
        write(letter())
    assert path.read_bytes() == b'{"torn\n' + letter_line(letter())


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        LetterFile(tmp_path / "no" / "dead").__enter__()
