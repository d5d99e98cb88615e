"""The demo's comparison finds every kind of difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import FIELDS, INTEGERS, Flight
from spark_job.demo.kinesis import ShardPuts
from spark_job.demo.verdict import (
    Verdict,
    carrier_rows,
    compare,
    count_written,
    read_written,
    shard_verdicts,
)

if TYPE_CHECKING:
    from pathlib import Path


def flight(row: int, **changes: int | str | None) -> Flight:
    return {name: row if name in INTEGERS else f"{name}-{row}" for name in FIELDS} | changes


PUT = [flight(0), flight(1, dep_delay=None), flight(2)]


def write_batch(output: Path, batch: str, flights: list[Flight], *, finished: bool = True) -> Path:
    folder = output / f"batch={batch}"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist([dict(f) | {"shardId": "s"} for f in flights]),
        folder / "part-0.parquet",
    )
    if finished:
        (folder / "_SUCCESS").touch()
    return folder / "part-0.parquet"


def test_the_same_rows_in_another_order_are_complete() -> None:
    found = compare(PUT, reversed(PUT))
    assert found.complete
    assert (found.put, found.processed, found.duplicates, found.written) == (3, 3, 0, 3)


def test_a_row_that_was_not_written_is_missing() -> None:
    found = compare(PUT, [PUT[0], PUT[2]])
    assert found.missing == (1,)
    assert not found.complete
    assert found.processed == 2


def test_a_row_written_three_times_counts_as_two_duplicates_and_not_as_loss() -> None:
    found = compare(PUT, [*PUT, PUT[1], PUT[1]])
    assert (found.duplicates, found.twice, found.processed, found.written) == (2, (1,), 3, 5)
    assert found.complete


@pytest.mark.parametrize(
    "changes", [{"dep_delay": 7}, {"carrier": "XX"}, {"tailnum": None}, {"dest": ""}]
)
def test_a_row_with_other_content_is_altered(changes: dict[str, int | str | None]) -> None:
    found = compare(PUT, [PUT[0], PUT[1], flight(2, **changes)])
    assert found.altered == (2,)
    assert not found.complete


@pytest.mark.parametrize("number", [3, -1, None, "1"])
def test_a_row_that_was_never_put_is_unknown(number: int | str | None) -> None:
    found = compare(PUT, [*PUT, {**flight(0), "row": number}])
    assert found.unknown == (number,)
    assert not found.complete


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
    assert [(row.carrier, row.equal) for row in rows] == [
        ("WN", False),
        ("AA", True),
        ("UA", False),
        ("ZZ", False),
    ]


def test_only_finished_writes_count_as_progress(tmp_path: Path) -> None:
    write_batch(tmp_path, "0", PUT[:2])
    write_batch(tmp_path, "1", PUT[2:], finished=False)
    assert count_written(tmp_path, {}) == 2


def test_written_rows_are_read_back_equal_and_a_deleted_file_is_missed(tmp_path: Path) -> None:
    write_batch(tmp_path, "0", PUT[:2])
    second = write_batch(tmp_path, "1", PUT[2:])
    assert compare(PUT, read_written(tmp_path)).complete
    second.unlink()
    assert compare(PUT, read_written(tmp_path)).missing == (2,)


def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = write_batch(tmp_path, "0", PUT)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(CliError, match="cannot be read") as caught:
        list(read_written(tmp_path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
