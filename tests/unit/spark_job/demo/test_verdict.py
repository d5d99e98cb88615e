"""The demo's comparison of what was put with what was written and dead-lettered. That it runs is
shown by the drill of its command.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import cancelled_reason, find_flights, read_flights, to_json
from spark_job.demo.kinesis import ShardPuts
from spark_job.demo.manifest import RETRY_LIMIT
from spark_job.demo.verdict import Verdict, compare, compare_letters, read_written, shard_verdicts

if TYPE_CHECKING:
    from pathlib import Path

    from spark_job.demo.flights import Flight

ALL = read_flights(find_flights(), 900)
PUT = ALL[:3]
CANCELLED = [one for one in ALL if one["dep_time"] is None][:2]
ALTERED: Flight = {**PUT[2], "dep_delay": 700}
UNKNOWN: Flight = {**PUT[0], "row": 3}


@pytest.mark.parametrize(
    ("written", "missing", "altered", "unknown", "duplicates"),
    [
        (PUT[::-1], (), (), (), 0),
        ([PUT[0], PUT[2]], (1,), (), (), 0),
        ([*PUT, PUT[1], PUT[1]], (), (), (), 2),
        ([PUT[0], PUT[1], ALTERED], (), (2,), (), 0),
        ([*PUT, UNKNOWN], (), (), (3,), 0),
    ],
)
def test_rows_are_missing_altered_unknown_or_there_twice(
    written: list[Flight],
    missing: tuple[int, ...],
    altered: tuple[int, ...],
    unknown: tuple[int, ...],
    duplicates: int,
) -> None:
    """Duplicates are no loss: the guarantee is at least once."""
    found = compare(PUT, written)
    assert (found.missing, found.altered, found.unknown) == (missing, altered, unknown)
    assert found.duplicates == duplicates
    assert found.complete is (not (missing or altered or unknown))


def test_a_checkpoint_must_be_exactly_at_the_shards_last_record() -> None:
    shards = shard_verdicts(
        {"a": ShardPuts(2, "10"), "b": ShardPuts(1, "9"), "c": ShardPuts(1, "4")},
        {"a": "10", "b": "8"},
    )
    assert [shards[name].at_last for name in "abc"] == [True, False, False]
    assert not Verdict(records=compare(PUT, PUT), shards=shards).ok


def test_what_was_written_is_read_back_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    rows = [{**row, "shardId": "s"} for row in PUT]
    file = tmp_path / "batch=0" / "part-0.parquet"
    file.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), file)
    assert compare(PUT, read_written(tmp_path)).complete
    file.write_bytes(b"PAR1 no")
    with pytest.raises(CliError, match=r"part-0\.parquet.*cannot be read"):
        list(read_written(tmp_path))


def letter(of: Flight, **changes: Any) -> dict[str, Any]:
    reason = f"ValueError: {cancelled_reason(of)}"
    return {"data": to_json(of), "attempts": RETRY_LIMIT + 1, "reason": reason} | changes


def test_each_cancelled_flight_has_one_dead_letter_of_its_own_content() -> None:
    put, right = [*PUT, *CANCELLED], [letter(one) for one in CANCELLED]
    assert compare_letters(put, right, processed=3).right
    altered = json.dumps({**CANCELLED[1], "distance": 0}).encode()
    for wrong in (
        right[:1],
        [*right, right[0]],
        [*right, letter(PUT[0])],
        [right[0], letter(CANCELLED[1], attempts=1)],
        [right[0], letter(CANCELLED[1], data=altered)],
        [right[0], letter(CANCELLED[1], data=b"no JSON")],
    ):
        assert not compare_letters(put, wrong, processed=3).right
    assert not compare_letters(put, right, processed=4).right
