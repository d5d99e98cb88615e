"""Task logs in their stored form: the newest format, and the one before it."""

from __future__ import annotations

import pytest
from hypothesis import given

from state.codec.task_logs import decode_log
from state.codec.values import encode
from state.errors import StoredDataError
from state.plan import (
    ChildShard,
    RangePart,
    ShardReadResult,
    ShortRange,
    TaskResult,
    UserRecords,
)
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.state import state_values

PATH = "/root/app/stream/batches/1-a/0/end"
ENTRIES = (
    ShardReadResult(
        shard_id="shardId-0",
        first=SequenceNumber(10),
        last=SequenceNumber(19),
        count=4,
        at_shard_end=True,
        tip_ms=700,
        children=tuple(
            ChildShard(shard_id=child, parents=("shardId-0",))
            for child in ("shardId-3", "shardId-4")
        ),
        last_arrival_ms=650,
        position=TRIM_HORIZON,
    ),
    ShardReadResult(
        shard_id="shardId-1",
        first=SequenceNumber(20),
        last=SequenceNumber(29),
        count=2,
        at_tip=True,
        tip_ms=710,
        gone=True,
        last_arrival_ms=600,
        iterator="AAAA",
        retries_done=3,
        retry_rows=4,
        retries_gone=(SequenceNumber(12),),
        retries_short=(ShortRange(first=SequenceNumber(14), missing=2),),
        retry_part=RangePart(last=SequenceNumber(17), rest=SequenceNumber(18), count=2),
        position=TRIM_HORIZON,
        lapsed_ms=720,
    ),
    ShardReadResult(
        shard_id="shardId-2",
        millis_behind_latest=86_400_000,
        position=Position.after(SequenceNumber(5)),
    ),
)
STORED_ENTRIES = (
    b'{"shardId":"shardId-0","first":"10","last":"19","count":4,"tipMs":700,"shardEnd":true,'
    b'"children":[{"shardId":"shardId-3","parents":["shardId-0"]},{"shardId":"shardId-4",'
    b'"parents":["shardId-0"]}],"lastArrivalMs":650,"position":"TRIM_HORIZON"},'
    b'{"shardId":"shardId-1","first":"20","last":"29","count":2,"atTip":true,"tipMs":710,'
    b'"gone":true,"lastArrivalMs":600,"iterator":"AAAA","retriesDone":3,"retryRows":4,'
    b'"retriesGone":["12"],"retriesShort":[{"first":"14","missing":2}],"retryPart":{"last":"17",'
    b'"rest":"18","count":2},"position":"TRIM_HORIZON","lapsedMs":720},'
    b'{"shardId":"shardId-2","millisBehindLatest":86400000,"position":"AFTER:5"}'
)
FORMAT_1 = b'{"token":"0f3a6c1e9d2b47588a1c0de4b7f69e35","shards":[' + STORED_ENTRIES + b"]}"
"""As version 1 of `TaskResult` was written: its bytes, not those of this version's encoder."""


@given(log=state_values.task_logs)
def test_a_log_comes_back_as_it_was(log: TaskLog) -> None:
    """Every field of every entry survives, in any order of shards."""
    assert decode_log(encode(log, PATH), PATH) == log


def test_the_stored_form_stays_as_it_is() -> None:
    """Executors of other versions read it."""
    log = TaskLog(entries=ENTRIES, sealed=True)
    stored = b'{"entries":[' + STORED_ENTRIES + b'],"sealed":true,"format":2}'
    assert encode(log, PATH) == stored
    assert decode_log(stored, PATH) == log
    with_bytes = TaskLog(entries=(ShardReadResult(shard_id="s", payload_bytes=7),))
    stored = b'{"entries":[{"shardId":"s","bytes":7}],"sealed":false,"format":2}'
    assert encode(with_bytes, PATH) == stored
    assert decode_log(stored, PATH) == with_bytes


def test_a_result_of_format_1_is_a_sealed_log() -> None:
    """It was published once and whole. Folded it is what it was."""
    log = decode_log(FORMAT_1, PATH)
    assert log == TaskLog(entries=ENTRIES, sealed=True)
    assert log.folded() == TaskResult(shards=ENTRIES)
    assert decode_log(b'{"token":"t","shards":[],"format":1}', PATH) == TaskLog(sealed=True)


@pytest.mark.parametrize(
    "data", [b'{"format":3}', b'{"format":3,"rounds":7,"entries":7,"shards":7}']
)
def test_a_newer_format_is_an_error_that_says_to_upgrade(data: bytes) -> None:
    """Whatever shape the newer version gave it."""
    with pytest.raises(
        StoredDataError, match=rf"{PATH} has format 3, written by a newer version.*up to 2; upgrade"
    ):
        decode_log(data, PATH)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b'{"token":"t"}',
        b'{"shards":[{}]}',
        b'{"shards":[{"shardId":"s","first":"x"}]}',
        b'{"shards":[{"shardId":"s","position":"SOMEWHERE"}]}',
        b'{"entries":[],"sealed":true}',
        b'{"entries":[],"sealed":"yes","format":2}',
        b'{"entries":[{"shardId":"s","first":"x"}],"format":2}',
        b'{"entries":[],"sealed":true,"format":2',
        b'{"entries":[],"sealed":true,"format":"2"}',
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_node(data: bytes) -> None:
    """They are never taken for an empty log."""
    with pytest.raises(StoredDataError, match=rf"^{PATH} holds b.*; restore it"):
        decode_log(data, PATH)


def test_any_part_of_a_log_is_damaged() -> None:
    """A node that was cut off, in either format."""
    for whole in (FORMAT_1, encode(TaskLog(entries=ENTRIES), PATH)):
        for length in range(len(whole)):
            with pytest.raises(StoredDataError):
                decode_log(whole[:length], PATH)


def test_the_user_records_of_an_entry_are_stored_where_they_are_others() -> None:
    """Than the Kinesis records that were read. An entry without them is as before."""
    number = SequenceNumber
    users = UserRecords(count=5, first=number(10, 2), last=number(11, 1))
    entry = ShardReadResult(
        shard_id="s", first=number(10), last=number(11), count=2, users=users, payload_bytes=9
    )
    log = TaskLog(entries=(entry,))
    stored = (
        b'{"entries":[{"shardId":"s","first":"10","last":"11","count":2,'
        b'"users":{"count":5,"first":"10.2","last":"11.1"},"bytes":9}],"sealed":false,"format":2}'
    )
    assert encode(log, PATH) == stored
    assert decode_log(stored, PATH) == log
