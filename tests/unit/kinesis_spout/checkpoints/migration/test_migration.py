"""What each reader makes of hand-made state, and of damaged state, and where each listed shard is
read, by where another consumer has stopped. Captured state is read by
`tests/integration/commands/test_import.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.checkpoints.migration import kcl, spark_queries
from kinesis_spout.checkpoints.migration.import_plan import (
    MigrationError,
    Origin,
    OriginShard,
    positions,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.store.identity import StreamIdentity
from tests.support.migration.captured import databricks_offset, write_files
from tests.support.state.shard_values import shard

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.checkpoints.migration.import_plan import Item
    from kinesis_spout.service.shard_info import ShardInfo


ORDERS = StreamIdentity(
    arn="arn:aws:kinesis:us-east-1:111111111111:stream/orders", name="orders", created_ms=5_123
)
A, B, C = (f"shardId-00000000000{index}" for index in range(3))


def lease(key: str, checkpoint: str, sub: int = 0, **more: dict[str, Any]) -> Item:
    return {
        "leaseKey": {"S": key},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        **more,
    }


# KCL


def test_a_lease_that_says_when_it_began_says_not_where() -> None:
    """Also, a pending checkpoint does not count."""
    pending = lease(C, "5", pendingCheckpoint={"S": "9"})
    found = kcl.origin_of([lease(A, "LATEST"), lease(B, "AT_TIMESTAMP"), pending], "t", ORDERS)
    assert [found.shards[shard].position for shard in (A, B)] == [None, None]
    assert str(found.shards[C].position) == "AT:5.1"


def test_of_a_table_of_several_streams_the_streams_own_leases_are_read() -> None:
    """One table has the leases of all streams that a KCL application reads, also of those that have
    the same name in other accounts.
    """
    items = [
        lease(f"{key}:{A}", number)
        for key, number in (
            ("111111111111:orders:5", "6"),
            ("222222222222:orders:7", "8"),
            ("111111111111:other:5", "9"),
        )
    ]
    found = kcl.origin_of(items, "t", ORDERS)
    assert {shard: str(one.position) for shard, one in found.shards.items()} == {A: "AT:6.1"}
    with pytest.raises(MigrationError, match="was created at 1970-01-01T00:00:05"):
        kcl.origin_of(items, "t", replace(ORDERS, created_ms=1_800_000_000_000))


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "table t has no lease for stream orders"),
        ([{"id": {"S": "x"}}], "item without leaseKey of table t is not a lease"),
        ([{"leaseKey": {"S": A}}], f"item {A} of table t is not a lease .*`checkpoint`"),
        (
            [lease(A, "SHARD_START")],
            "contains 'SHARD_START', which is not a Kinesis sequence",
        ),
        ([{**lease(A, "5"), "checkpointSubSequenceNumber": {"N": "x"}}], "is not a lease .*`int`"),
        ([lease(A, "5", 10**17)], "record 5 has no user record 1"),
    ],
)
def test_what_is_no_lease_is_a_sentence(items: list[Item], said: str) -> None:
    with pytest.raises(MigrationError, match=said):
        kcl.origin_of(items, "t", ORDERS)


# awslabs


def place(kind: str, at: str = "", sub: int = -1, *, last: bool = True) -> dict[str, str]:
    return {
        "iteratorType": kind,
        "iteratorPosition": at,
        "subSequenceNumber": str(sub),
        "isLast": str(last).lower(),
    }


def offsets(batch: int, shards: dict[str, dict[str, str]], *, stream: str = "orders") -> str:
    source = {"metadata": {"batchId": str(batch), "streamName": stream}, **shards}
    return f'v1\n{{"batchTimestampMs":1700000000000}}\n{json.dumps(source)}\n'


def of_awslabs(folder: Path, files: dict[str, str]) -> dict[str, str]:
    found = spark_queries.awslabs_origin(write_files(folder, files), "orders")
    return {shard: str(one.position) for shard, one in found.shards.items()}


def test_before_its_first_commit_it_stands_at_its_start(tmp_path: Path) -> None:
    start = {A: place("AT_TIMESTAMP", "1700000000000"), B: place("TRIM_HORIZON")}
    assert of_awslabs(tmp_path, {"offsets/0": offsets(0, start)}) == {
        A: "2023-11-14T22:13:20.000Z",
        B: str(TRIM_HORIZON),
    }


def test_an_idle_shard_is_read_from_the_time_of_its_last_batch(tmp_path: Path) -> None:
    """It stored LATEST, and has not found a record since. Backups and checksums are no batches."""
    idle, later = (offsets(0, {A: place(kind)}) for kind in ("LATEST", "TRIM_HORIZON"))
    files = {"offsets/0": idle, "offsets/.1.crc": "", "offsets/2.tmp": later, "commits/0": "v1\n{}"}
    assert of_awslabs(tmp_path, files) == {A: "2023-11-14T22:13:18.000Z"}


def test_a_shard_that_it_left_when_it_was_closed_is_read_on(tmp_path: Path) -> None:
    """Its last end is in an earlier batch. One that ended there is done."""
    end = "sources/0/shard-source"
    found = of_awslabs(
        tmp_path,
        {
            "offsets/4": offsets(7, {C: place("AFTER_SEQUENCE_NUMBER", "9")}),
            "commits/4": "v1\n{}",
            f"{end}/6/{A}": json.dumps({"shardId": A, **place("AFTER_SEQUENCE_NUMBER", "5")}),
            f"{end}/6/{B}": json.dumps({"shardId": B, **place("SHARD_END")}),
            f"{end}/7/{C}": json.dumps({"shardId": C, **place("AT_SEQUENCE_NUMBER", "11")}),
            f"{end}/7/.{C}.crc": "checksum",
        },
    )
    assert found == {A: "AFTER:5", B: str(SHARD_END), C: "AT:11"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a": ""}, "has no offsets/<batch>"),
        ({"offsets/0": ""}, "does not start with v1"),
        ({"offsets/0": "v1"}, "the second line of .* is damaged"),
        ({"offsets/0": "v1\n{}\n-"}, "does not read stream orders"),
        ({"offsets/0": "v1\n{}\n{"}, "is damaged"),
        ({"offsets/0": offsets(0, {}, stream="other")}, "does not read stream orders"),
        ({"offsets/0": offsets(0, {A: {}})}, "is damaged"),
        ({"offsets/0": offsets(0, {A: place("MIDDLE")})}, "does not support"),
        (
            {"offsets/0": offsets(0, {A: place("AT_TIMESTAMP", "soon")})},
            "is not a number of milliseconds",
        ),
        (
            {"offsets/0": offsets(0, {A: place("AT_SEQUENCE_NUMBER", "x")})},
            "not a Kinesis sequence",
        ),
        ({"offsets/1": offsets(1, {}), "commits/2": ""}, "not offsets/2"),
    ],
)
def test_what_is_no_checkpoint_of_awslabs_is_a_sentence(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(MigrationError, match=said):
        spark_queries.awslabs_origin(write_files(tmp_path, files), "orders")


# databricks


def test_offsets_of_the_documented_form_are_read_from_a_location(tmp_path: Path) -> None:
    text = json.dumps([databricks_offset(A, "5"), databricks_offset(B, None)])
    files = {"offsets/3": f'v1\n{{"batchTimestampMs":1}}\n{text}\n', "commits/3": ""}
    location = write_files(tmp_path, files)
    found = spark_queries.databricks_origin("orders", progress=None, location=location)
    assert {shard: one.position for shard, one in found.shards.items()} == {
        A: Position.parse("AFTER:5"),
        B: None,
    }


def test_a_stream_in_two_sources_of_a_query_stands_at_no_one_record(tmp_path: Path) -> None:
    """The later source was taken, and what the other one had not read was lost."""
    texts = [json.dumps([databricks_offset(A, number)]) for number in ("5", "9")]
    files = {"offsets/0": 'v1\n{"batchTimestampMs":1}\n' + "\n".join(texts), "commits/0": ""}
    location = write_files(tmp_path, files)
    with pytest.raises(MigrationError, match=f"reads shard {A} of stream orders in several"):
        spark_queries.databricks_origin("orders", progress=None, location=location)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sources": [{"endOffset": 5}]}', "\x00"])
def test_what_is_no_progress_is_a_sentence(text: str, tmp_path: Path) -> None:
    file = tmp_path / "last.json"
    file.write_text(text)
    with pytest.raises(
        MigrationError, match=r"the progress in .*last.json is damaged|has no endOffset"
    ):
        spark_queries.databricks_origin("orders", progress=file, location=None)


AT = Position.parse("2026-01-31T12:00:00Z")


def places(
    stored: dict[str, str | None],
    *shards: ShardInfo,
    drops_finished: bool = False,
    at: Position | None = None,
) -> dict[str, str]:
    origin = Origin(
        name="other",
        shards={
            name: OriginShard(stored="", position=None if text is None else Position.parse(text))
            for name, text in stored.items()
        },
        drops_finished=drops_finished,
    )
    listed = {one.shard_id: one for one in shards}
    return {one.shard_id: str(place.position) for one, place in positions(origin, listed, at)}


LINE = (shard("a"), shard("b", "a"), shard("c", "b"))
MERGED = (shard("a"), shard("b"), shard("c", "a", "b"))
BOTH = (shard("a"), shard("b"))


@pytest.mark.parametrize(
    ("stored", "family", "found"),
    [
        (
            {"a": "AFTER:5", "b": "SHARD_END"},
            (shard("a"), shard("b", closed=True)),
            {"a": "AFTER:5", "b": "SHARD_END"},
        ),
        # of a named one, also over one that is not named, and where no position is named
        (
            {"a": "AFTER:5", "c": None},
            LINE,
            {"a": "AFTER:5", "b": "TRIM_HORIZON", "c": "TRIM_HORIZON"},
        ),
        # a parent need not be listed any more
        ({"a": "SHARD_END"}, LINE[1:2], {"b": "TRIM_HORIZON"}),
        # one parent was not begun, the other was
        (
            {"a": "SHARD_END", "b": "TRIM_HORIZON"},
            MERGED,
            {"a": "SHARD_END", "b": "TRIM_HORIZON", "c": "TRIM_HORIZON"},
        ),
        # whose children are listed is closed, whatever the list says of it
        ({"a": "SHARD_END"}, LINE[:2], {"a": "SHARD_END", "b": "TRIM_HORIZON"}),
    ],
)
def test_a_position_is_kept_and_a_child_of_a_named_shard_is_read_from_its_beginning(
    stored: dict[str, str | None], family: tuple[ShardInfo, ...], found: dict[str, str]
) -> None:
    assert places(stored, *family) == found


def test_a_shard_that_a_named_one_comes_from_is_done_where_such_shards_are_forgotten() -> None:
    found = places({"c": "AFTER:5"}, *LINE, drops_finished=True)
    assert found == {"a": "SHARD_END", "b": "SHARD_END", "c": "AFTER:5"}


@pytest.mark.parametrize(
    ("stored", "family", "error"),
    [
        ({"c": "AFTER:5"}, LINE, "has no position for a, b; pass "),
        ({"a": None}, BOTH, "has no position for a, b; pass "),
        # of a stream that was created again under the name: nothing of it would ever be read
        (
            {"a": "SHARD_END"},
            BOTH[:1],
            "has the position SHARD_END for the open shard a: the state",
        ),
    ],
)
def test_a_shard_without_a_position_and_an_open_one_that_is_done_are_refused(
    stored: dict[str, str | None], family: tuple[ShardInfo, ...], error: str
) -> None:
    with pytest.raises(MigrationError, match=error):
        places(stored, *family)


def test_a_shard_without_a_position_is_read_from_the_time_that_is_asked_for() -> None:
    assert set(places({"a": None}, *BOTH, at=AT).values()) == {str(AT)}
