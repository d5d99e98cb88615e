from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.codec.shard_states import decode_shard_state, encode_shard_state, merge_range
from state.codec.values import MAX_VALUE_BYTES
from state.errors import StateTooLargeError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.shard_state import ShardState, UnresolvedRecord
from state.znodes.reports import decode_header, decode_report
from tests.support.state import state_values
from tests.support.state.shard_values import waiting as record
from tests.support.state.tracker import seq

SHARD = "shardId-000000000000"
PATH = f"/root/app/stream/{SHARD}/state"


def waiting(*unresolved: UnresolvedRecord) -> ShardState:
    return ShardState(shard_id=SHARD, read_position=TRIM_HORIZON, unresolved=unresolved)


def stored_again(state: ShardState) -> ShardState:
    return decode_shard_state(encode_shard_state(state, PATH)[0], SHARD, PATH)


OBJECTS = b"""
    {"first":"13","last":"13","attempts":2,"dueMs":99,"firstFailureMs":80,"lastFailureMs":90,
     "reason":"negative total"},
    {"first":"15","last":"19","count":3,"attempts":1,"dueMs":0},["20",1,7]],"format":1
"""
UNRESOLVED = {
    "objects, as they were written before there were rows; also beside rows": (
        OBJECTS,
        [
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
        ],
    ),
    "a version that said whole of nothing delivered aggregates as they were": (
        b"""["13",1,9],["14.4",2,9],[["15","19",3],1,9],
            ["20",1,9,null,null,null,null,false,false,true]],"format":1""",
        [
            record(13, due_ms=9, whole=True),
            msgspec.structs.replace(
                record(14, attempts=2, due_ms=9), first=seq(14, 4), last=seq(14, 4)
            ),
            record(15, 19, count=3, due_ms=9, whole=True),
            record(20, due_ms=9, whole=True),
        ],
    ),
    "the first user record of an aggregate has the number of the aggregate alone": (
        b'["13",1,9],["13.4",2,9],[["13.6","14.2",9],1,9]],"userRecords":true,"format":1',
        [
            record(13, due_ms=9),
            msgspec.structs.replace(
                record(13, attempts=2, due_ms=9), first=seq(13, 4), last=seq(13, 4)
            ),
            msgspec.structs.replace(
                record(13, count=9, due_ms=9), first=seq(13, 6), last=seq(14, 2)
            ),
        ],
    ),
}


@pytest.mark.parametrize(("stored", "expected"), UNRESOLVED.values(), ids=UNRESOLVED)
def test_unresolved_records_of_all_versions_are_read(
    stored: bytes, expected: list[UnresolvedRecord]
) -> None:
    """Once they are stored again, the state says itself what is whole. So they are in a report,
    which is settled after an update when its batch was cut off before it.
    """
    state = decode_shard_state(
        b'{"readPosition":"AT:20.7","unresolved":[' + stored + b"}", SHARD, PATH
    )
    assert list(state.unresolved) == expected
    assert state.read_position == Position.at(seq(20, 7))
    assert stored_again(state) == state
    rows, _, rest = stored.rpartition(b"]")
    outcomes = b'{"shards":[{"shardId":"s","unresolved":[%b]}]%b}' % (rows, rest)
    report = b'{"token":"t","status":"done","report":{},"outcomes":%b}' % outcomes
    decoded = decode_report(decode_header(report, PATH), [], PATH)
    assert decoded.unresolved == {"s": (*expected,)}


def test_three_thousand_failed_records_are_kept_one_by_one() -> None:
    """With numbers as long as the service's, their times, one of a few reasons each, and a key."""
    state = waiting(
        *(
            record(
                49590338271490256608559692538361571095921575989136588898 + n,
                attempts=1 + n % 3,
                due_ms=1_700_000_000_000 + n,
                first_failure_ms=1_600_000_000_000 + n,
                last_failure_ms=1_650_000_000_000 + n,
                reason=f"ValueError: {n % 5} is not a total that an order can have; "
                "see the order's page",
                key="0123456789abcdef",
            )
            for n in range(3_000)
        )
    )
    data, stored = encode_shard_state(state, PATH)
    assert stored == state
    assert len(data) <= MAX_VALUE_BYTES
    assert decode_shard_state(data, SHARD, PATH) == state


def failed(count: int) -> ShardState:
    """So many records of one shard, which are not next to each other."""
    return waiting(
        *(
            record(10**55 + n, attempts=1 + n % 3, due_ms=n, reason=f"{n} " * 200)
            for n in range(0, 2 * count, 2)
        )
    )


def test_records_that_do_not_fit_become_ranges() -> None:
    """20,000 records of one shard in 512 KB: ranges of a few records each, with none left out.
    Their reasons go first: without them, a hundred are still kept one by one.
    """
    few = encode_shard_state(failed(100), PATH, max_bytes=20_000)[1]
    assert [one.count for one in few.unresolved] == [1] * 100
    assert None in {one.reason for one in few.unresolved}
    data, stored = encode_shard_state(failed(20_000), PATH)
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
    state = ShardState(shard_id=SHARD, read_position=SHARD_END, unresolved=records)
    data, stored = encode_shard_state(state, PATH, max_bytes=max_bytes)
    assert len(data) <= max_bytes
    assert sum(each.count for each in stored.unresolved) == sum(each.count for each in records)
    for failed_one in records:
        assert any(
            each.first <= failed_one.first
            and failed_one.last <= each.last
            and each.whole == failed_one.whole
            and each.attempts <= failed_one.attempts
            and each.due_ms <= failed_one.due_ms
            for each in stored.unresolved
        )
    assert msgspec.structs.replace(stored, unresolved=records) == state


def test_a_state_that_does_not_fit_in_any_form_is_refused() -> None:
    """ZooKeeper would drop the connection for such a write."""
    with pytest.raises(
        StateTooLargeError, match="even if all its records were stored as one range"
    ):
        encode_shard_state(failed(5), PATH, max_bytes=100)


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
