"""Records and dead letters as lines of JSON, in both directions, and dead letters in files, counted
by reason without Spark.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet
import pytest

from kinesis_spout.cli.letter_folder import LetterFolder
from kinesis_spout.cli.record_lines import (
    LineError,
    decoded_by,
    json_text,
    key_of_json,
    outgoing_of_json,
)
from kinesis_spout.dead_letter.letter import Letter, LetterFile, line_of
from kinesis_spout.dead_letter.outgoing import PART_BYTES, envelopes
from kinesis_spout.service.record_putter import OutgoingRecord

if TYPE_CHECKING:
    from pathlib import Path


LETTER = Letter(
    message_id="shardId-000000000000:5:2",
    stream_name="orders",
    shard_id="shardId-000000000000",
    sequence_number="5",
    data=b"\xff",
    partition_key="k",
)


def test_a_dead_letter_is_put_back_under_its_key() -> None:
    """One without a key gets a random one. One whose record was gone has nothing to put."""
    assert outgoing_of_json(line_of(LETTER), str) == OutgoingRecord("k", b"\xff")
    keyless = line_of(replace(LETTER, partition_key=None))
    assert outgoing_of_json(keyless, lambda: "random").partition_key == "random"
    with pytest.raises(LineError, match="without a payload"):
        outgoing_of_json(line_of(replace(LETTER, data=None)), str)


def test_a_part_of_a_dead_letter_is_not_put_as_if_it_were_the_whole_payload() -> None:
    """As `consume orders-dead --raw` reads it from a stream of dead letters."""
    for line in envelopes(replace(LETTER, data=bytes(2 * PART_BYTES))):
        with pytest.raises(LineError, match="is one of several lines of a dead letter"):
            outgoing_of_json(line, str)


def test_the_keys_of_maps_are_texts_whatever_their_type() -> None:
    """As a map of Protobuf may have them: an unsigned number of 64 bits is a Decimal."""
    ddl = "flags MAP<BOOLEAN, STRING>, totals ARRAY<MAP<DECIMAL(38, 7), MAP<BIGINT, STRING>>>"
    scheme = SimpleNamespace(fields=("flags", "totals"), schema_ddl=ddl)
    maps = {True: "on", False: "off"}, [{Decimal(2**64 - 1): {7: "seven"}}, {Decimal("1E-7"): 1}]
    found = json.loads(json_text(decoded_by(scheme)(maps)))
    assert found["value"] == {
        "flags": {"true": "on", "false": "off"},
        "totals": [{"18446744073709551615": {"7": "seven"}}, {"0.0000001": 1}],
    }


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


def folder(path: Path) -> LetterFolder:
    return LetterFolder(path, "etl", "orders")


def counts(letters: dict[str, Any]) -> dict[str, int]:
    return {one["reason"]: one["records"] for one in letters["reasons"]}


def spark_letter(number: int, **fields: Any) -> dict[str, Any]:
    """A row as `DeadLetter("json")` writes it."""
    given = {
        "messageId": f"shardId-000000000000:{number}",
        "streamName": "orders",
        "shardId": "shardId-000000000000",
        "sequenceNumber": str(number),
        "data": "eA==",
        "attempts": 4,
        "lastFailure": "2027-01-15T07:00:00.000Z",
        "reason": "no rates",
        "application": "etl",
    }
    return given | fields


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_lines_of_consume_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    with LetterFile(path) as write:
        for number in range(3):
            reason = "late" if number else "odd"
            write(replace(LETTER, message_id=f"s:{number}:2", reason=reason, count=number + 1))
    found = folder(path).read()
    assert counts(found) == {"late": 5, "odd": 1}
    assert found["reasons"][0]["reason"] == "late"
    assert found["reasons"][0]["shards"] == ["shardId-000000000000"]


def test_folders_of_plans_in_all_formats_are_read_together(tmp_path: Path) -> None:
    """Also compressed. Spark's own files and files of other names are not shown."""
    for plan in ("plan=1-a", "plan=2-b", "plan=3-c", "plan=4-d"):
        (tmp_path / plan).mkdir()
    (tmp_path / "plan=1-a" / "part-0.json").write_bytes(lines(spark_letter(1), spark_letter(2)))
    (tmp_path / "plan=2-b" / "part-0.json.gz").write_bytes(gzip.compress(lines(spark_letter(3))))
    failed = datetime(2027, 1, 15, tzinfo=UTC)
    rows = pa.Table.from_pylist(
        [spark_letter(4, lastFailure=failed), spark_letter(5, lastFailure=failed)]
    )
    pa_parquet.write_table(rows, tmp_path / "plan=3-c" / "part-0.snappy.parquet")
    other = pa.Table.from_pylist([spark_letter(6, reason="orc")])
    pa_orc.write_table(other, tmp_path / "plan=4-d" / "part-0.orc")
    (tmp_path / "plan=1-a" / "_SUCCESS.json").write_bytes(lines(spark_letter(7)))
    (tmp_path / "plan=1-a" / ".part-0.json.crc").write_bytes(b"crc")
    found = folder(tmp_path).read()
    assert counts(found) == {"no rates": 5, "orc": 1}
    assert found["notes"] == []


def test_what_is_there_twice_counts_once_and_others_letters_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(
        lines(
            spark_letter(1),
            spark_letter(1),
            spark_letter(2, application="another"),
            spark_letter(3, streamName="another"),
        )
        + b'{"x": 1}\nnot json\n\xff\n'
    )
    found = folder(tmp_path).read()
    assert counts(found) == {"no rates": 1}
    assert sorted(found["notes"]) == [
        "Dead letters of other applications or streams, not shown: 2.",
        "Lines that are not dead letters: 3.",
    ]
