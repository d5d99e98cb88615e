"""The demo's comparison finds every kind of difference, of rows and of dead letters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import FIELDS, INTEGERS, Flight, cancelled_reason, to_json
from spark_job.demo.kinesis import ShardPuts
from spark_job.demo.manifest import RETRY_LIMIT
from spark_job.demo.verdict import (
    Verdict,
    carrier_rows,
    compare,
    compare_letters,
    count_written,
    read_letters,
    read_written,
    shard_verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def flight(row: int, **changes: int | str | None) -> Flight:
    return {name: row if name in INTEGERS else f"{name}-{row}" for name in FIELDS} | changes


PUT = [flight(0), flight(1, dep_delay=None), flight(2)]


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist([dict(row) | {"shardId": "s"} for row in rows])
    pq.write_table(table, folder / "part-0.parquet")
    return folder / "part-0.parquet"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (PUT[::-1], {"processed": 3}),
        ([PUT[0], PUT[2]], {"processed": 2, "missing": (1,)}),
        ([*PUT, PUT[1], PUT[1]], {"processed": 3, "duplicates": 2, "twice": (1,)}),
        *(
            ([PUT[0], PUT[1], flight(2, **changes)], {"processed": 3, "altered": (2,)})
            for changes in ({"dep_delay": 7}, {"carrier": "XX"}, {"tailnum": None}, {"dest": ""})
        ),
        *(
            ([*PUT, {**flight(0), "row": number}], {"processed": 3, "unknown": (number,)})
            for number in (3, -1, None, "1")
        ),
    ],
)
def test_rows_are_missing_altered_unknown_or_there_twice(
    written: list[Flight], expected: dict[str, Any]
) -> None:
    """In any order. Duplicates are no loss: the guarantee is at least once."""
    found = compare(PUT, written)
    plain = {"duplicates": 0, "twice": (), "missing": (), "altered": (), "unknown": ()}
    all_of = {"put": 3, "written": len(written)} | plain | expected
    assert {name: getattr(found, name) for name in all_of} == all_of
    assert found.complete is (not found.missing and not found.altered and not found.unknown)


def test_a_checkpoint_must_be_exactly_at_the_shards_last_record() -> None:
    puts = {
        "shard-0": ShardPuts(2, "10"),
        "shard-1": ShardPuts(1, "9"),
        "shard-2": ShardPuts(1, "4"),
    }
    verdicts = shard_verdicts(puts, {"shard-0": "10", "shard-1": "8"})
    assert [verdicts[shard].at_last for shard in puts] == [True, False, False]
    verdict = Verdict(records=compare(PUT, PUT), shards=verdicts)
    assert not verdict.ok
    assert verdict.problems == [
        "the checkpoint of shard-1 is not at its last record",
        "the checkpoint of shard-2 is not at its last record",
    ]


def test_carriers_are_compared_on_both_figures() -> None:
    rows = carrier_rows(
        {"AA": (2, 1.5), "UA": (1, None), "ZZ": (1, 0.0)},
        {"AA": (2, 1.5), "UA": (1, 0.5), "WN": (3, 2.0)},
    )
    equal = {row.carrier: row.equal for row in rows}
    assert equal == {"WN": False, "AA": True, "UA": False, "ZZ": False}


def test_written_rows_are_read_back_equal_and_a_deleted_file_is_missed(tmp_path: Path) -> None:
    """Only finished writes count as progress."""
    write(tmp_path / "batch=0", PUT[:2]).with_name("_SUCCESS").touch()
    second = write(tmp_path / "batch=1", PUT[2:])
    assert count_written(tmp_path, {}) == 2
    assert compare(PUT, read_written(tmp_path)).complete
    second.unlink()
    assert compare(PUT, read_written(tmp_path)).missing == (2,)


def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "batch=0", PUT)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(CliError, match="cannot be read") as caught:
        list(read_written(tmp_path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# dead letters -------------------------------------------------------------------------------------
SOME_CANCELLED = [
    flight(0),
    flight(1, dep_time=None),
    flight(2),
    flight(3, dep_time=None),
]


def letter(of: Flight, **changes: Any) -> dict[str, Any]:
    return {
        "data": to_json(of),
        "attempts": RETRY_LIMIT + 1,
        "reason": f"ValueError: {cancelled_reason(of)}",
    } | changes


ONE = SOME_CANCELLED[1]
RIGHT = [letter(SOME_CANCELLED[3]), letter(ONE)]


def test_one_dead_letter_for_each_cancelled_flight_is_right(tmp_path: Path) -> None:
    """Those of all plans. One is missing, or there twice, or its flight was written too."""
    for plan, row in enumerate(RIGHT):
        write(tmp_path / f"plan={plan}-ab", [row])
    found = compare_letters(SOME_CANCELLED, read_letters(tmp_path), processed=2)
    assert found.right
    assert found.problems == []
    assert found.counts == {"cancelled": 2, "failed": 2, "dead_lettered": 2}
    fewer = compare_letters(SOME_CANCELLED, RIGHT[:1], processed=2)
    assert (fewer.missing, fewer.right) == ((1,), False)
    assert compare_letters(SOME_CANCELLED, [*RIGHT, RIGHT[0]], processed=2).wrong == (3,)
    written = compare_letters(SOME_CANCELLED, RIGHT, processed=3)
    assert not written.right
    assert written.problems == ["1 flights were not written, but 2 were cancelled"]


@pytest.mark.parametrize(
    "wrong",
    [
        letter(SOME_CANCELLED[0]),
        letter(ONE, attempts=1),
        letter(ONE, reason="something else"),
        letter(ONE, data=json.dumps({**ONE, "distance": 0}).encode()),
        letter(ONE, data=None),
        letter(ONE, data=b"no JSON"),
        letter(ONE, data=b"[]"),
    ],
    ids=["not cancelled", "attempts", "reason", "altered", "no payload", "no JSON", "no object"],
)
def test_a_dead_letter_with_wrong_content_is_wrong(wrong: dict[str, Any]) -> None:
    assert not compare_letters(SOME_CANCELLED, [*RIGHT, wrong], processed=2).right
    assert compare_letters(SOME_CANCELLED, [RIGHT[0], wrong], processed=2).wrong


def test_a_damaged_file_of_letters_is_named(tmp_path: Path) -> None:
    write(tmp_path / "plan=1-ab", RIGHT).write_bytes(b"no parquet")
    with pytest.raises(CliError, match=r"part-0\.parquet cannot be read as the demo's dead"):
        list(read_letters(tmp_path))
