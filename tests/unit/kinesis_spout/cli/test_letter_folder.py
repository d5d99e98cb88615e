"""Dead letters in files, as `consume` and Spark write them, counted by reason without Spark."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from kinesis_spout.cli.letter_folder import LetterFolder
from kinesis_spout.dead_letter.letter import Letter, LetterFile

if TYPE_CHECKING:
    from pathlib import Path


LETTER = Letter(
    message_id="s:0:2",
    stream_name="orders",
    shard_id="shardId-000000000001",
    sequence_number="0",
)


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
    assert found["reasons"][0]["shards"] == ["shardId-000000000001"]


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
        "2 dead letters of other applications or streams are not shown.",
        "3 lines are not dead letters.",
    ]
