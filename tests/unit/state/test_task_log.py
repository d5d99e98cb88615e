"""What a task's log accepts, and what was read of each shard according to it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.errors import TaskLogError
from state.plan import (
    ChildShard,
    RangePart,
    ShardReadResult,
    ShortRange,
    TaskResult,
    UserRecords,
)
from state.position import Position
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog

number = SequenceNumber
CHILD = ChildShard(shard_id="c", parents=("a",))
PART = RangePart(last=number(8), rest=number(9), count=2)


def read(begin: int = 0, end: int = 0, shard_id: str = "a", **more: Any) -> ShardReadResult:
    """All numbers from `begin` to `end`; no records by default."""
    if not begin:
        return ShardReadResult(shard_id=shard_id, **more)
    values: dict[str, Any] = {
        "first": number(begin),
        "last": number(end),
        "count": end - begin + 1,
    }
    return ShardReadResult(shard_id=shard_id, **(values | more))


def log(*entries: ShardReadResult, seal: bool = False) -> TaskLog:
    """Appended one by one, as rounds of one entry each; sealed with an empty round."""
    appended = TaskLog()
    for entry in entries:
        appended = appended.extended([entry], seal=False)
    return appended.extended([], seal=True) if seal else appended


def folded(*entries: ShardReadResult) -> ShardReadResult:
    """What is read of the entries' only shard."""
    (shard,) = log(*entries).folded().shards
    return shard


RETRIED = read(retries_done=2, retry_rows=3, retries_gone=(number(1),), payload_bytes=7, gone=True)


# appending
# ---------


def test_a_log_counts_its_rows_and_bytes_with_those_of_retries() -> None:
    one = log(RETRIED, read(10, 13, payload_bytes=100), read(1, 2, "b", payload_bytes=20))
    assert (one.rows, one.payload_bytes) == (3 + 4 + 2, 127)
    assert (TaskLog().rows, TaskLog().payload_bytes) == (0, 0)


def test_nothing_is_appended_to_a_sealed_log() -> None:
    """Not even nothing: a sealed log is what an attempt completes with."""
    assert TaskLog().extended((), seal=True) == TaskLog(sealed=True)
    sealed = log(read(1, 2)).extended((), seal=True)
    for entries in ([read(3, 4)], []):
        with pytest.raises(TaskLogError, match=r"^the task's log is complete"):
            sealed.extended(entries, seal=True)


@pytest.mark.parametrize(
    ("before", "entry", "message"),
    [
        ([read(1, 5)], read(5, 6), "starts at 5, but the previous entry ends at 5"),
        ([read(1, 5)], read(2, 3), "starts at 2, but the previous entry ends at 5"),
        ([read(1, 5), read()], read(5, 6), "starts at 5, but the previous entry ends at 5"),
        ([read(1, 5, at_shard_end=True)], read(6, 6), "records after the end of the shard"),
        ([read(at_shard_end=True)], read(6, 6), "records after the end of the shard"),
        ([read(at_shard_end=True), read()], read(6, 6), "records after the end of the shard"),
        ([read(7, 8)], RETRIED, "retries after new records"),
        ([read(7, 8)], read(retries_done=1, retry_rows=1), "retries after new records"),
        ([RETRIED], RETRIED, "retries after new records"),
        ([RETRIED, read()], RETRIED, "retries after new records"),
        ([read(7, 8)], read(retry_rows=1, retry_part=PART), "retries after new records"),
        ([read(retry_rows=1, retry_part=PART)], RETRIED, "retries after new records"),
        ([], read(1, 2, count=0), "counts 0 records from 1 to 2"),
        ([], read(1, 2, first=None), "counts 2 records from None to 2"),
        ([], read(1, 2, last=None), "counts 2 records from 1 to None"),
        ([], read(count=2), "counts 2 records from None to None"),
        ([read(1, 2)], read(last=number(9)), "counts 0 records from None to 9"),
        ([read(1, 2)], read(8, 9, count=-1), "counts -1 records from 8 to 9"),
        ([read(1, 2)], read(9, 8, count=2), "counts 2 records from 9 to 8"),
    ],
)
def test_an_entry_that_does_not_continue_its_shard_is_refused(
    before: list[ShardReadResult], entry: ShardReadResult, message: str
) -> None:
    """Settling would ack records twice, or ones that nobody has read. All earlier entries of the
    shard count, and the others of the same round; other shards do not.
    """
    before_it = log(*before)
    with pytest.raises(TaskLogError, match=f"^shard a: .*{message}"):
        before_it.extended([entry], seal=False)
    with pytest.raises(TaskLogError, match=message):
        TaskLog().extended([*before, entry], seal=False)
    if before:
        assert before_it.extended([replace(before[0], shard_id="b")], seal=False).entries


# iterators
# ---------
def test_only_a_shards_last_entry_keeps_its_iterator() -> None:
    """Within a round and over rounds. It is a hint for the next read, which begins there."""
    one = log(read(1, 2, iterator="a1"), read(1, 2, "b", iterator="b1"), read(3, 4, iterator="a2"))
    assert [entry.iterator for entry in one.entries] == [None, "b1", "a2"]
    both = TaskLog().extended([read(1, 2, iterator="a1"), read(3, 4, iterator="a2")], seal=False)
    assert [entry.iterator for entry in both.entries] == [None, "a2"]
    assert [entry.iterator for entry in log(read(1, 2, iterator="a1"), read()).entries] == [
        None
    ] * 2
    again = read(iterator="same")
    assert [entry.iterator for entry in log(again, again).entries] == [None, "same"]


def test_a_log_without_hints_is_the_same_otherwise() -> None:
    hints: dict[str, Any] = {"iterator": "a1", "next_read_ms": 7, "next_subscribe_ms": 8}
    one = log(read(1, 2, **hints), read(1, 2, "b", iterator="b1"), seal=True)
    without = one.without_hints()
    assert without == log(read(1, 2), read(1, 2, "b"), seal=True)
    assert without.continues(one.entries)


# following
# ---------
def test_a_log_continues_what_was_handed_over_when_it_begins_with_its_rows() -> None:
    """Iterators and tails may differ: no row comes of them."""
    handed_over = log(read(1, 2, iterator="i", at_tip=True), read(1, 2, "b")).entries
    assert log(read(1, 2), read(1, 2, "b")).continues(handed_over)
    assert log(read(1, 2), read(1, 2, "b"), read(3, 3), seal=True).continues(handed_over)
    assert TaskLog().continues(())
    assert log(read(1, 2)).continues(())


@pytest.mark.parametrize(
    "other",
    [
        TaskLog(),
        log(RETRIED),
        log(read(1, 2, "b"), RETRIED),
        log(RETRIED, read(1, 2, "c")),
        log(RETRIED, read(1, 3, "b")),
        log(RETRIED, read(1, 2, "b", first=number(2), count=2)),
        log(RETRIED, read(1, 2, "b", count=1)),
        log(replace(RETRIED, retries_done=1), read(1, 2, "b")),
        log(replace(RETRIED, retry_rows=2), read(1, 2, "b")),
        log(replace(RETRIED, retries_gone=()), read(1, 2, "b")),
        log(replace(RETRIED, retry_part=PART), read(1, 2, "b")),
    ],
)
def test_a_log_with_other_rows_does_not_continue_them(other: TaskLog) -> None:
    """It was removed or replaced by hand while its rows were handed over."""
    assert not other.continues((RETRIED, read(1, 2, "b")))


# folding
# -------
def test_shards_are_folded_in_the_order_of_their_first_entries() -> None:
    one = log(read(1, 2, "b"), read(1, 2), read(3, 4, "b"), read(8, 9))
    assert one.folded() == TaskResult(shards=(read(1, 4, "b"), read(1, 9, count=4)), sealed=False)
    assert one.extended((), seal=True).folded().sealed
    assert TaskLog().folded() == TaskResult(shards=(), sealed=False)


SHORT = ShortRange(first=number(4), missing=1)
START, WITHIN = Position.at(number(3)), Position.at(number(1, 3))
END = read(1, 2, at_shard_end=True, tip_ms=50, children=(CHILD,))
PACKED = read(3, 4, users=UserRecords(count=7, first=number(3, 1), last=number(4, 2)))
NOTHING = UserRecords(count=0)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            [
                read(position=START, pushed=1, throttled=3, fallback="a"),
                read(3, 4, payload_bytes=5, last_arrival_ms=50, pushed=2, throttled=2),
                read(6, 9, payload_bytes=6, last_arrival_ms=60, fallback="b"),
                read(last_arrival_ms=None),
            ],
            {
                "first": number(3),
                "last": number(9),
                "count": 6,
                "payload_bytes": 11,
                "last_arrival_ms": 60,
                "position": START,
                "pushed": 3,
                "throttled": 3,
                "fallback": "b",
            },
        ),
        (
            [
                replace(RETRIED, retries_short=(SHORT,), retry_part=PART),
                read(20, 21, payload_bytes=3, position=START),
                read(22, 22, payload_bytes=1, lapsed_ms=70),
                read(24, 24, lapsed_ms=80),
            ],
            {
                "retries_done": 2,
                "retry_rows": 3,
                "retries_gone": (number(1),),
                "retries_short": (SHORT,),
                "retry_part": PART,
                "count": 4,
                "payload_bytes": 11,
                "gone": True,  # the service did not know the shard when its retries were looked for
                "position": START,
                "lapsed_ms": 70,  # a lapse is said from its page on
            },
        ),
        ([read(), RETRIED], {"retries_done": 2, "retry_rows": 3}),
        ([read(1, 2), read(gone=True)], {"gone": True}),
        ([read(1, 2), read(3, 4)], {"gone": False, "at_shard_end": False, "fallback": None}),
        # the last one says where the tip is and where to read on
        (
            [
                read(1, 2, at_tip=True, tip_ms=50, iterator="i"),
                read(3, 4, millis_behind_latest=9, iterator="j"),
            ],
            {"at_tip": False, "tip_ms": None, "millis_behind_latest": 9, "iterator": "j"},
        ),
        (
            [read(1, 2), read(at_tip=True, tip_ms=60)],
            {"at_tip": True, "tip_ms": 60, "last": number(2)},
        ),
        # a shard's end stays its end: another attempt may know less of it
        *(
            ([END, later], {"at_shard_end": True, "tip_ms": 50, "children": (CHILD,)})
            for later in (
                read(),
                read(millis_behind_latest=5, iterator="i"),
                read(at_shard_end=True, tip_ms=60),
            )
        ),
        (
            [replace(END, children=()), replace(END, first=None, last=None, count=0)],
            {"children": (CHILD,)},
        ),
        (
            [read(1, 2, at_tip=True, tip_ms=50), read(at_shard_end=True, tip_ms=60)],
            {"at_shard_end": True, "tip_ms": 60},
        ),
        # entries count Kinesis records: limits and replays go by these. Outcomes name user records
        (
            [read(1, 2), PACKED, read(5, 5)],
            {"count": 10, "first": number(1), "last": number(5), "users": None},
        ),
        ([read(1, 2), PACKED], {"count": 9, "last": number(4, 2)}),
        ([PACKED], {"count": 7, "first": number(3, 1)}),
        # none of the user records is the shard's: the next read begins after them
        ([read(1, 2, users=NOTHING)], {"first": number(1), "last": number(2), "count": 0}),
        ([read(1, 2, users=NOTHING), read(3, 4)], {"first": number(3), "count": 2}),
        (
            [read(1, 2, users=NOTHING), read(3, 4, users=NOTHING)],
            {"first": number(1), "last": number(4), "count": 0},
        ),
        # those before the place within an aggregate where the read began are pending or acked
        (
            [read(1, 2, users=NOTHING, position=WITHIN)],
            {"first": WITHIN.sequence, "last": number(2)},
        ),
        (
            [read(1, 1, users=NOTHING, position=WITHIN)],
            {"first": WITHIN.sequence, "last": WITHIN.sequence},
        ),
    ],
)
def test_a_shard_is_what_its_entries_say_together(
    entries: list[ShardReadResult], expected: dict[str, Any]
) -> None:
    shard = folded(*entries)
    assert {name: getattr(shard, name) for name in expected} == expected
