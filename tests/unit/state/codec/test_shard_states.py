from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.codec.unresolved_ranges import merge_neighbours, merge_range
from state.codec.values import MAX_VALUE_BYTES
from state.errors import StateTooLargeError, StoredDataError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from tests.support.state import state_values
from tests.support.state.tracker import seq

SHARD = "shardId-000000000000"
PATH = f"/root/app/stream/{SHARD}/state"


def record(
    first: int, last: int | None = None, *, attempts: int = 1, due_ms: int = 0, **fields: Any
) -> UnresolvedRecord:
    return UnresolvedRecord(
        first=SequenceNumber(first),
        last=SequenceNumber(first if last is None else last),
        attempts=attempts,
        due_ms=due_ms,
        **fields,
    )


@given(state=state_values.shard_states(st.just(SHARD)))
def test_a_shard_state_comes_back_as_it_was(state: ShardState) -> None:
    """Also the number at which a finished shard ended. The shard's id is in the path only."""
    data, stored = encode_shard_state(state, PATH)
    assert stored == state
    assert decode_shard_state(data, SHARD, PATH) == state
    assert SHARD not in msgspec.json.decode(data)


def test_a_shard_state_is_readable_json() -> None:
    """For people, and for the tools of the Kinesis Storm spout, which read `checkpoint`."""
    state = ShardState(
        shard_id=SHARD,
        checkpoint=SequenceNumber(12, 3),
        read_position=Position.after(SequenceNumber(20)),
        unresolved=(
            record(
                13,
                attempts=2,
                due_ms=99,
                first_failure_ms=80,
                last_failure_ms=90,
                reason="negative total",
            ),
            record(14, due_ms=99, first_failure_ms=90, last_failure_ms=90, reason="negative total"),
            record(15, 19, count=3, reason="gone", key="00ff", blocked=True),
            record(20, whole=True),
        ),
        settled_plan="4-ab",
    )
    assert encode_shard_state(state, PATH)[0] == (
        b'{"checkpoint":"12.3","readPosition":"AFTER:20","unresolved":[["13",2,99,80,90,0,null,false,false],'
        b'["14",1,99,90,90,0,null,false,false],[["15","19",3],1,0,null,null,"gone","00ff",true,false],'
        b'["20",1,0,null,null,null,null,false,false,true]],'
        b'"reasons":["negative total"],"userRecords":true,"settledPlan":"4-ab","format":1}'
    )


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (
            b'{"checkpoint":"7"}',
            ShardState(
                shard_id=SHARD,
                checkpoint=SequenceNumber(7),
                read_position=Position.after(SequenceNumber(7)),
            ),
        ),
        (
            b'{"checkpoint":"SHARD_END"}',
            ShardState(shard_id=SHARD, read_position=SHARD_END, lifecycle=Lifecycle.FINISHED),
        ),
        (b'{"checkpoint":"TRIM_HORIZON"}', ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)),
        (b'{"checkpoint":""}', ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)),
    ],
)
def test_the_state_of_the_kinesis_storm_spout_is_read(stored: bytes, expected: ShardState) -> None:
    """It has one key, the checkpoint: every record up to it is acked, reading goes on after it."""
    assert decode_shard_state(stored, SHARD, PATH) == expected


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x00\x01",
        b'{"checkpoint":',
        b'"7"',
        b"{}",
        b'{"checkpoint":"1e5","format":1,"readPosition":"AT:1"}',
        b'{"format":1,"readPosition":"NOWHERE"}',
        b'{"format":1,"checkpoint":"7"}',
        b'{"format":"one"}',
        b'{"format":1,"readPosition":"SHARD_END","checkpoint":"SHARD_END"}',
        b'{"format":1,"readPosition":"SHARD_END","checkpoint":"5","lifecycle":"finished"}',
        b'{"format":1,"readPosition":"AT:1","unresolved":[{"first":"1"}]}',
    ],
)
def test_damaged_bytes_are_an_error_that_names_the_path_and_what_to_do(stored: bytes) -> None:
    """It is never replaced by a default. The message names no class of this project."""
    with pytest.raises(
        StoredDataError, match=f"{PATH}.*; restore it, or reset the application$"
    ) as damaged:
        decode_shard_state(stored, SHARD, PATH)
    assert "\n" not in str(damaged.value)
    assert "StoredShardState" not in str(damaged.value)


def test_user_records_of_an_aggregate_are_stored_by_their_sub_sequence_numbers() -> None:
    """The first one has the number of the aggregate alone. The position lies within an aggregate
    that was read in part; the checkpoint counts Kinesis records.
    """
    stored = (
        b'{"checkpoint":"12","readPosition":"AT:20.7","unresolved":[["13",1,9],["13.4",2,9],'
        b'[["13.6","14.2",9],1,9]],"userRecords":true,"format":1}'
    )
    assert not any(one.whole for one in decode_shard_state(stored, SHARD, PATH).unresolved)
    first, alone, several = decode_shard_state(stored, SHARD, PATH).unresolved
    assert (first.first, first.last, first.count) == (seq(13), seq(13), 1)
    assert (alone.first, alone.last, alone.attempts) == (seq(13, 4), seq(13, 4), 2)
    assert (several.first, several.last, several.count) == (seq(13, 6), seq(14, 2), 9)
    state = decode_shard_state(stored, SHARD, PATH)
    assert state.read_position == Position.at(seq(20, 7))
    assert decode_shard_state(encode_shard_state(state, PATH)[0], SHARD, PATH) == state


def test_the_older_form_of_unresolved_records_is_read() -> None:
    """Objects, as they were written before rows were introduced; also beside rows."""
    stored = (
        b'{"readPosition":"AFTER:20","unresolved":['
        b'{"first":"13","last":"13","attempts":2,"dueMs":99,"firstFailureMs":80,'
        b'"lastFailureMs":90,"reason":"negative total"},'
        b'{"first":"15","last":"19","count":3,"attempts":1,"dueMs":0},'
        b'["20",1,7]],"format":1}'
    )
    assert decode_shard_state(stored, SHARD, PATH).unresolved == (
        record(
            13,
            attempts=2,
            due_ms=99,
            first_failure_ms=80,
            last_failure_ms=90,
            reason="negative total",
            whole=True,
        ),
        record(15, 19, count=3, whole=True),
        record(20, due_ms=7, whole=True),
    )


def test_a_queue_of_a_version_that_said_whole_of_nothing_is_of_whole_records() -> None:
    """It delivered aggregates as they were. A number with a sub-sequence number was unpacked. Once
    it is stored again, the state says so itself.
    """
    stored = (
        b'{"readPosition":"AFTER:20","unresolved":[["13",1,9],["14.4",2,9],[["15","19",3],1,9],'
        b'["20",1,9,null,null,null,null,false,false,true]],"format":1}'
    )
    state = decode_shard_state(stored, SHARD, PATH)
    assert [one.whole for one in state.unresolved] == [True, False, True, True]
    assert decode_shard_state(encode_shard_state(state, PATH)[0], SHARD, PATH) == state


@pytest.mark.parametrize(
    "row",
    [
        '["1"]',
        '["1",1,0,null,null,0]',
        '["1",1,0,null,null,-1]',
        '["1e5",1,0]',
        '[["1","x",2],1,0]',
        '[["1","2"],1,0]',
        "[1,1,0]",
        '{"first":"1","last":"1","attempts":1,"dueMs":0,"new":1}',
    ],
)
def test_a_damaged_row_is_an_error_that_names_the_path(row: str) -> None:
    """A bad index of a reason, a bad sequence number, a row that is too short."""
    stored = f'{{"readPosition":"AFTER:20","unresolved":[{row}],"format":1}}'.encode()
    with pytest.raises(StoredDataError, match=f"{PATH} .*; restore it, or reset the application$"):
        decode_shard_state(stored, SHARD, PATH)


@given(reason=st.text(st.characters(codec="utf-8")))
def test_a_reason_may_be_any_text(reason: str) -> None:
    """Shared or not; empty; with quotes, control characters and emoji."""
    for unresolved in (
        (record(1, reason=reason),),
        (record(1, reason=reason), record(2, reason=reason)),
    ):
        state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=unresolved)
        assert decode_shard_state(encode_shard_state(state, PATH)[0], SHARD, PATH) == state


def test_a_lone_surrogate_in_a_reason_is_written_as_an_escape() -> None:
    """Python has them in file names that are not UTF-8; JSON cannot hold them."""
    state = ShardState(
        shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=(record(1, reason="no file \udcff"),)
    )
    assert (
        decode_shard_state(encode_shard_state(state, PATH)[0], SHARD, PATH).unresolved[0].reason
        == "no file \\udcff"
    )


@pytest.mark.parametrize("key", [None, "0123456789abcdef"])
def test_three_thousand_failed_records_are_kept_one_by_one(key: str | None) -> None:
    """With numbers as long as the service's, their times, and one of a few reasons each; also with
    their keys.
    """
    failed = tuple(
        record(
            49590338271490256608559692538361571095921575989136588898 + n,
            attempts=1 + n % 3,
            due_ms=1_700_000_000_000 + n,
            first_failure_ms=1_600_000_000_000 + n,
            last_failure_ms=1_650_000_000_000 + n,
            reason=f"ValueError: {n % 5} is not a total that an order can have; "
            "see the order's page",
            key=key,
        )
        for n in range(3_000)
    )
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed)
    data, stored = encode_shard_state(state, PATH)
    assert stored == state
    assert len(data) <= MAX_VALUE_BYTES
    assert decode_shard_state(data, SHARD, PATH) == state


def failed_records(count: int, reason: str | None = None) -> tuple[UnresolvedRecord, ...]:
    return tuple(
        UnresolvedRecord(
            first=SequenceNumber(10**55 + n),
            last=SequenceNumber(10**55 + n),
            attempts=1 + n % 3,
            due_ms=n,
            reason=reason,
        )
        for n in range(0, 2 * count, 2)
    )


def test_reasons_are_dropped_before_records_are_merged() -> None:
    """Reasons are only for people. Without them every record can still be retried alone."""
    state = ShardState(
        shard_id=SHARD,
        read_position=TRIM_HORIZON,
        unresolved=failed_records(100, reason="x" * 1000),
    )
    data, stored = encode_shard_state(state, PATH, max_bytes=50_000)
    assert len(data) <= 50_000
    assert [(each.first, each.attempts, each.due_ms) for each in stored.unresolved] == [
        (each.first, each.attempts, each.due_ms) for each in state.unresolved
    ]


def test_records_that_do_not_fit_become_ranges() -> None:
    """20,000 records of one shard in 512 KB: ranges of a few records each, with none left out."""
    state = ShardState(
        shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed_records(20_000)
    )
    data, stored = encode_shard_state(state, PATH)
    assert 0.98 * MAX_VALUE_BYTES < len(data) <= MAX_VALUE_BYTES, (
        "no more detail is dropped than has to be"
    )
    sizes = [each.count for each in stored.unresolved]
    assert sum(sizes) == 20_000
    assert max(sizes) <= 2 * min(sizes[:-1]), "detail is dropped evenly"
    thirds = [sum(size == max(sizes) for size in sizes[start::3]) for start in range(3)]
    assert max(thirds) - min(thirds) <= len(sizes) // 6
    assert decode_shard_state(data, SHARD, PATH) == stored


@st.composite
def queues(draw: st.DrawFn) -> tuple[UnresolvedRecord, ...]:
    """Some were delivered whole and some not, because the option was changed once."""
    found = draw(st.lists(state_values.unresolved_records(), min_size=1, max_size=12))
    change, ascending = draw(st.integers(0, 12)), sorted(found, key=lambda each: each.first)
    return tuple(
        msgspec.structs.replace(each, whole=at < change) for at, each in enumerate(ascending)
    )


@given(
    records=queues(),
    max_bytes=st.integers(min_value=900, max_value=4000),
)
def test_detail_is_dropped_towards_redelivery_only(
    records: tuple[UnresolvedRecord, ...], max_bytes: int
) -> None:
    """Every record is in a range that has no more attempts, is due no later, and counts it."""
    state = ShardState(
        shard_id=SHARD, read_position=SHARD_END, lifecycle=Lifecycle.DRAINED, unresolved=records
    )
    data, stored = encode_shard_state(state, PATH, max_bytes=max_bytes)
    assert len(data) <= max_bytes
    assert sum(each.count for each in stored.unresolved) == sum(each.count for each in records)
    for record in records:
        assert any(
            each.first <= record.first
            and record.last <= each.last
            and each.whole == record.whole
            and each.attempts <= record.attempts
            and each.due_ms <= record.due_ms
            for each in stored.unresolved
        )
    assert msgspec.structs.replace(stored, unresolved=records) == state


def test_a_state_that_does_not_fit_in_any_form_is_refused() -> None:
    """ZooKeeper would drop the connection for such a write."""
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed_records(5))
    with pytest.raises(StateTooLargeError, match="also with its records as one range"):
        encode_shard_state(state, PATH, max_bytes=100)


def test_a_range_keeps_only_what_its_records_have_in_common() -> None:
    """With different keys it has no key. It is blocked only if all records are. It has a reason
    only if all records have that reason. It is whole as they are.
    """
    alike = merge_range(
        [
            record(1, key="a", blocked=True, reason="x", attempts=2),
            record(5, key="a", blocked=True, reason="x"),
        ]
    )
    assert alike == record(1, 5, count=2, key="a", blocked=True, reason="x")
    mixed = merge_range(
        [
            record(1, key="a", blocked=True, reason="x"),
            record(5, key="b", due_ms=9),
            record(6, 9, count=3),
        ]
    )
    assert mixed == record(1, 9, count=5)
    kept = [record(1, whole=True), record(6, 9, count=3, whole=True)]
    assert merge_range(kept) == record(1, 9, count=4, whole=True)


def test_what_was_delivered_whole_is_not_merged_with_user_records() -> None:
    """One range has one way to be read, and counts records of that way."""
    records = [record(n, whole=n >= 4) for n in range(1, 9)]
    for pairs, expected in ((2, 6), (3, 5)):
        merged = merge_neighbours(records, pairs)
        assert len(merged) == expected
    state = ShardState(shard_id=SHARD, read_position=SHARD_END, unresolved=tuple(records))
    data = encode_shard_state(state, PATH, max_bytes=200)[0]
    stored = decode_shard_state(data, SHARD, PATH)
    assert stored.unresolved == (
        record(1, 3, count=3),
        record(4, 8, count=5, whole=True),
    )
