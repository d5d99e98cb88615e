from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.codec import MAX_VALUE_BYTES, decode, encode
from state.errors import StateTooLargeError, StoredDataError
from state.plan import PlanPointer, PlanStatus, TaskEnd, TaskPlan
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.shard_state_codec import decode_shard_state, encode_shard_state
from state.state_store import OwnerInfo, StartPin, StreamIdentity
from tests.support import state_values

SHARD = "shardId-000000000000"
PATH = f"/root/app/stream/{SHARD}/state"


@given(
    value=st.one_of(
        state_values.task_plans,
        state_values.task_ends,
        state_values.stream_identities,
        state_values.start_pins,
        state_values.owner_infos,
    )
)
def test_everything_stored_comes_back_as_it_was(value: TaskPlan | TaskEnd | StreamIdentity | StartPin | OwnerInfo) -> None:
    """Every field of every struct survives the way through JSON."""
    assert decode(encode(value, PATH), type(value), PATH) == value


@given(state=state_values.shard_states(st.just(SHARD)))
def test_a_shard_state_comes_back_as_it_was(state: ShardState) -> None:
    """Also the number at which a finished shard ended. The shard's id is in the path only."""
    data, stored = encode_shard_state(state, PATH)
    assert stored == state
    assert decode_shard_state(data, SHARD, PATH) == state
    assert SHARD not in msgspec.json.decode(data)


def test_a_shard_state_is_readable_json() -> None:
    """For people, and for the ancestor's tools, which look at `checkpoint`."""
    state = ShardState(
        shard_id=SHARD,
        checkpoint=SequenceNumber(12, 3),
        read_position=Position.after(SequenceNumber(20)),
        unresolved=(UnresolvedRecord(first=SequenceNumber(13), last=SequenceNumber(13), attempts=2, due_ms=99),),
        settled_plan="4-ab",
    )
    assert encode_shard_state(state, PATH)[0] == (
        b'{"checkpoint":"12.3","readPosition":"AFTER:20","unresolved":[{"first":"13","last":"13","attempts":2,"dueMs":99}],'
        b'"settledPlan":"4-ab","format":1}'
    )


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (
            b'{"checkpoint":"7"}',
            ShardState(shard_id=SHARD, checkpoint=SequenceNumber(7), read_position=Position.after(SequenceNumber(7))),
        ),
        (b'{"checkpoint":"SHARD_END"}', ShardState(shard_id=SHARD, read_position=SHARD_END, lifecycle=Lifecycle.FINISHED)),
        (b'{"checkpoint":"TRIM_HORIZON"}', ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)),
        (b'{"checkpoint":""}', ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)),
    ],
)
def test_the_ancestors_state_is_read(stored: bytes, expected: ShardState) -> None:
    """One key, and nothing else: all up to it is acked, read on after it."""
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
    """Never a default in the place of what cannot be read. And no name of a class of ours."""
    with pytest.raises(StoredDataError, match=f"{PATH}.*; restore it, or reset the application$") as damaged:
        decode_shard_state(stored, SHARD, PATH)
    assert "\n" not in str(damaged.value)
    assert "StoredShardState" not in str(damaged.value)


@pytest.mark.parametrize("kind", [TaskEnd, StreamIdentity, StartPin])
def test_a_newer_format_is_an_error_that_says_to_upgrade(kind: type) -> None:
    """Whatever shape the newer version gave it."""
    with pytest.raises(StoredDataError, match=r"has format 2, written by a newer version.*upgrade"):
        decode(b'{"format":2,"token":7}', kind, PATH)


def test_an_unknown_status_is_an_error() -> None:
    """A plan's status decides whether its records are acked."""
    assert decode(b'{"id":"1-a","status":"open"}', PlanPointer, PATH) == PlanPointer("1-a", PlanStatus.OPEN)
    with pytest.raises(StoredDataError):
        decode(b'{"id":"1-a","status":"half"}', PlanPointer, PATH)


def test_a_value_above_the_limit_is_refused() -> None:
    """Half of what ZooKeeper takes in one request."""
    identity = StreamIdentity(arn="a" * MAX_VALUE_BYTES, name="n", created_ms=1)
    with pytest.raises(StateTooLargeError, match=PATH):
        encode(identity, PATH)


def failed_records(count: int, reason: str | None = None) -> tuple[UnresolvedRecord, ...]:
    return tuple(
        UnresolvedRecord(
            first=SequenceNumber(10**55 + n), last=SequenceNumber(10**55 + n), attempts=1 + n % 3, due_ms=n, reason=reason
        )
        for n in range(0, 2 * count, 2)
    )


def test_reasons_go_before_records_are_put_together() -> None:
    """What is only for people is dropped first: every record is still retried alone."""
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed_records(100, reason="x" * 1000))
    data, stored = encode_shard_state(state, PATH, max_bytes=50_000)
    assert len(data) <= 50_000
    assert [(each.first, each.attempts, each.due_ms) for each in stored.unresolved] == [
        (each.first, each.attempts, each.due_ms) for each in state.unresolved
    ]


def test_records_that_do_not_fit_become_ranges() -> None:
    """20,000 records of one shard, 512 KB: ranges of a few, nothing left out."""
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed_records(20_000))
    data, stored = encode_shard_state(state, PATH)
    assert MAX_VALUE_BYTES / 4 < len(data) <= MAX_VALUE_BYTES
    assert sum(each.count for each in stored.unresolved) == 20_000
    assert decode_shard_state(data, SHARD, PATH) == stored


@given(
    records=st.lists(state_values.unresolved_records(), min_size=1, max_size=12).map(tuple),
    max_bytes=st.integers(min_value=900, max_value=4000),
)
def test_detail_is_dropped_towards_redelivery_only(records: tuple[UnresolvedRecord, ...], max_bytes: int) -> None:
    """Every record is within a range that has no more attempts, is due no later, and counts it."""
    state = ShardState(shard_id=SHARD, read_position=SHARD_END, lifecycle=Lifecycle.DRAINED, unresolved=records)
    data, stored = encode_shard_state(state, PATH, max_bytes=max_bytes)
    assert len(data) <= max_bytes
    assert sum(each.count for each in stored.unresolved) == sum(each.count for each in records)
    for record in records:
        assert any(
            each.first <= record.first
            and record.last <= each.last
            and each.attempts <= record.attempts
            and each.due_ms <= record.due_ms
            for each in stored.unresolved
        )
    assert msgspec.structs.replace(stored, unresolved=records) == state


def test_a_state_that_fits_in_no_form_is_refused() -> None:
    """Better an error than a write that costs the connection."""
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=failed_records(5))
    with pytest.raises(StateTooLargeError, match="also with its records as one range"):
        encode_shard_state(state, PATH, max_bytes=100)
