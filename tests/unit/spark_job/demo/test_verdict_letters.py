"""The demo's comparison finds every kind of wrong dead letter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import FIELDS, INTEGERS, Flight, cancelled_reason, to_json
from spark_job.demo.manifest import RETRY_LIMIT
from spark_job.demo.verdict import compare_letters, read_letters

if TYPE_CHECKING:
    from pathlib import Path


def flight(row: int, *, cancelled: bool = False) -> Flight:
    fields: dict[str, int | str | None] = {
        name: row if name in INTEGERS else f"{name}-{row}" for name in FIELDS
    }
    return fields | ({"dep_time": None} if cancelled else {})


PUT = [flight(0), flight(1, cancelled=True), flight(2), flight(3, cancelled=True)]


def letter(of: Flight, **changes: Any) -> dict[str, Any]:
    return {
        "data": to_json(of),
        "attempts": RETRY_LIMIT + 1,
        "reason": f"ValueError: {cancelled_reason(of)}",
    } | changes


RIGHT = [letter(PUT[3]), letter(PUT[1])]


def test_one_dead_letter_for_each_cancelled_flight_is_right() -> None:
    found = compare_letters(PUT, RIGHT, processed=2)
    assert found.right
    assert found.problems == []
    assert found.counts == {"cancelled": 2, "failed": 2, "dead_lettered": 2}


def test_a_cancelled_flight_without_a_dead_letter_is_missing() -> None:
    found = compare_letters(PUT, RIGHT[:1], processed=2)
    assert found.missing == (1,)
    assert not found.right


@pytest.mark.parametrize(
    "wrong",
    [
        letter(PUT[0]),
        letter(PUT[1], attempts=1),
        letter(PUT[1], reason="something else"),
        letter(PUT[1], data=json.dumps({**PUT[1], "distance": 0}).encode()),
        letter(PUT[1], data=None),
        letter(PUT[1], data=b"no JSON"),
        letter(PUT[1], data=b"[]"),
    ],
    ids=["not cancelled", "attempts", "reason", "altered", "no payload", "no JSON", "no object"],
)
def test_a_dead_letter_with_wrong_content_is_wrong(wrong: dict[str, Any]) -> None:
    assert not compare_letters(PUT, [*RIGHT, wrong], processed=2).right
    assert compare_letters(PUT, [RIGHT[0], wrong], processed=2).wrong


def test_a_second_dead_letter_of_a_flight_is_wrong() -> None:
    assert compare_letters(PUT, [*RIGHT, RIGHT[0]], processed=2).wrong == (3,)


def test_a_cancelled_flight_that_was_written_is_a_problem() -> None:
    found = compare_letters(PUT, RIGHT, processed=3)
    assert not found.right
    assert found.problems == ["1 flights were not written, but 2 were cancelled"]


def test_letters_of_all_plans_are_read(tmp_path: Path) -> None:
    for plan, row in enumerate(RIGHT):
        folder = tmp_path / f"plan={plan}-ab"
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist([row | {"shardId": "s"}]), folder / "part-0.parquet")
    assert list(read_letters(tmp_path)) == RIGHT


def test_a_damaged_file_of_letters_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "plan=1-ab"
    folder.mkdir()
    (folder / "part-0.parquet").write_bytes(b"no parquet")
    with pytest.raises(
        CliError, match=r"part-0\.parquet cannot be read as the demo's dead letters"
    ):
        list(read_letters(tmp_path))
