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
from state.task_log import LOG_FORMAT, TaskLog

CHILD = ChildShard(shard_id="c", parents=("a",))


def read(begin: int = 0, end: int = 0, shard_id: str = "a", **more: Any) -> ShardReadResult:
    """All numbers from `begin` to `end`; no records by default."""
    if not begin:
        return ShardReadResult(shard_id=shard_id, **more)
    values: dict[str, Any] = {
        "first": SequenceNumber(begin),
        "last": SequenceNumber(end),
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


RETRIED = read(
    retries_done=2, retry_rows=3, retries_gone=(SequenceNumber(1),), payload_bytes=7, gone=True
)


# appending
# ---------
def test_entries_are_appended_at_the_end_in_their_order() -> None:
    first = TaskLog().extended([read(1, 2), read(1, 5, "b")], seal=False)
    both = first.extended([read(3, 4), read(6, 6, "b")], seal=True)
    assert first.entries == (read(1, 2), read(1, 5, "b"))
    assert both.entries == (*first.entries, read(3, 4), read(6, 6, "b"))
    assert (first.sealed, both.sealed, both.format) == (False, True, LOG_FORMAT)


def test_a_log_counts_its_rows_and_bytes_with_those_of_retries() -> None:
    one = log(RETRIED, read(10, 13, payload_bytes=100), read(1, 2, "b", payload_bytes=20))
    assert (one.rows, one.payload_bytes) == (3 + 4 + 2, 127)
    assert (TaskLog().rows, TaskLog().payload_bytes) == (0, 0)


def test_nothing_is_appended_to_a_sealed_log() -> None:
    """Not even nothing: a sealed log is what an attempt completes with."""
    sealed = log(read(1, 2)).extended((), seal=True)
    for entries in ([read(3, 4)], []):
        with pytest.raises(TaskLogError, match="the log is sealed"):
            sealed.extended(entries, seal=True)


def test_a_log_may_be_sealed_without_an_entry() -> None:
    assert TaskLog().extended((), seal=True) == TaskLog(sealed=True)


@pytest.mark.parametrize(
    ("before", "entry", "message"),
    [
        ([read(1, 5)], read(5, 6), "records from 5 on follow those up to 5"),
        ([read(1, 5)], read(2, 3), "records from 2 on follow those up to 5"),
        ([read(1, 5), read()], read(5, 6), "records from 5 on follow those up to 5"),
        ([read(1, 5, at_shard_end=True)], read(6, 6), "records follow the shard's end"),
        ([read(at_shard_end=True)], read(6, 6), "records follow the shard's end"),
        ([read(at_shard_end=True), read()], read(6, 6), "records follow the shard's end"),
        ([read(7, 8)], RETRIED, "retries follow other records"),
        ([RETRIED], RETRIED, "retries follow other records"),
        ([RETRIED, read()], RETRIED, "retries follow other records"),
        (
            [read(7, 8)],
            read(
                retry_rows=1,
                retry_part=RangePart(last=SequenceNumber(2), rest=SequenceNumber(3), count=1),
            ),
            "retries follow other records",
        ),
        (
            [
                read(
                    retry_rows=1,
                    retry_part=RangePart(last=SequenceNumber(2), rest=SequenceNumber(3), count=1),
                )
            ],
            RETRIED,
            "retries follow other records",
        ),
        ([], read(1, 2, count=0), "counts 0 records from 1 to 2"),
        ([], read(1, 2, first=None), "counts 2 records from None to 2"),
        ([], read(1, 2, last=None), "counts 2 records from 1 to None"),
        ([], read(count=2), "counts 2 records from None to None"),
        ([read(1, 2)], read(last=SequenceNumber(9)), "counts 0 records from None to 9"),
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


def test_a_shards_new_records_follow_its_retries() -> None:
    """Whatever their numbers are."""
    assert log(RETRIED, read(10, 12)).rows == 6


def test_an_entry_without_records_may_follow_any() -> None:
    """As the last answer for a shard, which says where its tip is."""
    assert len(log(read(1, 2), read(at_tip=True), read(), read(3, 4)).entries) == 4
    assert len(log(read(1, 2, at_shard_end=True), read(at_shard_end=True)).entries) == 2


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
    one = log(read(1, 2, iterator="a1", next_read_ms=7), read(1, 2, "b", iterator="b1"), seal=True)
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
        log(RETRIED, read(1, 2, "b", first=SequenceNumber(2), count=2)),
        log(RETRIED, read(1, 2, "b", count=1)),
        log(replace(RETRIED, retries_done=1), read(1, 2, "b")),
        log(replace(RETRIED, retry_rows=2), read(1, 2, "b")),
        log(replace(RETRIED, retries_gone=()), read(1, 2, "b")),
        log(
            replace(
                RETRIED,
                retry_part=RangePart(last=SequenceNumber(5), rest=SequenceNumber(6), count=1),
            ),
            read(1, 2, "b"),
        ),
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


def test_a_shard_of_one_entry_is_that_entry() -> None:
    """So a log of format 1 gives what was written in it."""
    one = read(1, 2, at_tip=True, iterator="i", position=Position.at(SequenceNumber(1)))
    assert folded(one) is one


def test_records_are_counted_from_the_first_to_the_last() -> None:
    entries = (
        read(position=Position.at(SequenceNumber(3))),
        read(3, 4, payload_bytes=5, last_arrival_ms=50),
        read(6, 9, payload_bytes=6, last_arrival_ms=60),
        read(payload_bytes=0),
    )
    shard = folded(*entries)
    assert (shard.first, shard.last) == (SequenceNumber(3), SequenceNumber(9))
    assert (shard.count, shard.payload_bytes, shard.last_arrival_ms) == (6, 11, 60)
    assert shard.position == Position.at(SequenceNumber(3))


def test_retries_are_kept_beside_the_new_records_that_follow_them() -> None:
    part = RangePart(last=SequenceNumber(8), rest=SequenceNumber(9), count=2)
    short = ShortRange(first=SequenceNumber(4), missing=1)
    retried = replace(RETRIED, retries_short=(short,), retry_part=part)
    shard = folded(retried, read(20, 21, payload_bytes=3), read(22, 22, payload_bytes=1))
    assert (shard.retries_done, shard.retry_rows) == (2, 3)
    assert (shard.retries_gone, shard.retries_short) == ((SequenceNumber(1),), (short,))
    assert shard.retry_part == part
    assert (shard.count, shard.payload_bytes) == (3, 11)
    assert shard.gone  # the service did not know the shard when its retries were looked for


def test_the_position_and_the_first_lapse_of_a_shard_are_kept() -> None:
    """An attempt says the position once. A lapse is said from its page on."""
    start = Position.at(SequenceNumber(3))
    shard = folded(
        RETRIED,
        read(20, 21, position=start),
        read(22, 23, lapsed_ms=70),
        read(24, 24, lapsed_ms=80),
    )
    assert (shard.position, shard.lapsed_ms) == (start, 70)


def test_a_shard_that_is_gone_stays_so() -> None:
    assert folded(read(1, 2), read(gone=True)).gone
    assert folded(read(gone=True), read()).gone


def test_the_last_entry_says_where_the_tip_is_and_where_to_read_on() -> None:
    shard = folded(
        read(1, 2, at_tip=True, tip_ms=50, iterator="i", millis_behind_latest=0),
        read(3, 4, millis_behind_latest=9, iterator="j"),
    )
    assert (shard.at_tip, shard.tip_ms) == (False, None)
    assert (shard.millis_behind_latest, shard.iterator) == (9, "j")
    shard = folded(read(1, 2), read(at_tip=True, tip_ms=60))
    assert (shard.at_tip, shard.tip_ms, shard.last) == (True, 60, SequenceNumber(2))


def test_a_shards_end_stays_its_end_and_its_children_are_kept() -> None:
    """Another attempt may append for this shard what it knows without records: less than that."""
    end = read(1, 2, at_shard_end=True, tip_ms=50, children=(CHILD,))
    for later in (read(), read(at_tip=False, millis_behind_latest=5, iterator="i")):
        shard = folded(end, later)
        assert (shard.at_shard_end, shard.tip_ms, shard.children) == (True, 50, (CHILD,))
    named_later = read(at_shard_end=True, tip_ms=60, children=(CHILD,))
    shard = folded(read(1, 2, at_shard_end=True, tip_ms=50), named_later)
    assert (shard.tip_ms, shard.children) == (50, (CHILD,))
    assert folded(read(1, 2, at_tip=True, tip_ms=50), named_later).tip_ms == 60
    assert folded(end, read(at_shard_end=True, tip_ms=60)).children == (CHILD,)


# user records
# ------------
def test_what_was_handed_over_counts_user_records() -> None:
    """The entries count Kinesis records: limits and replays go by these. Outcomes name user
    records.
    """
    number = SequenceNumber
    packed = UserRecords(count=7, first=number(3, 1), last=number(4, 2))
    entries = read(1, 2), read(3, 4, users=packed), read(5, 5)
    assert log(*entries).rows == 5
    assert (folded(*entries).count, folded(*entries[:2]).last) == (10, number(4, 2))
    assert (folded(*entries).first, folded(*entries).last) == (number(1), number(5))
    assert folded(entries[1]).first == number(3, 1)
    assert folded(*entries).users is None


def test_a_range_without_user_records_of_the_shard_keeps_its_numbers() -> None:
    """Nothing was handed over, and the next read begins after it."""
    nothing = read(1, 2, users=UserRecords(count=0))
    assert folded(nothing) == replace(read(1, 2), count=0)
    assert (folded(nothing, read(3, 4)).first, folded(nothing, read(3, 4)).count) == (
        SequenceNumber(3),
        2,
    )


def test_a_range_without_user_records_begins_where_it_was_read_from() -> None:
    """A read that began within an aggregate has not read the user records before that, which are
    pending or acked.
    """
    start = SequenceNumber(1, 3)
    nothing = read(1, 2, users=UserRecords(count=0), position=Position.at(start))
    assert (folded(nothing).first, folded(nothing).last) == (start, SequenceNumber(2))
    alone = read(1, 1, users=UserRecords(count=0), position=Position.at(start))
    assert (folded(alone).first, folded(alone).last) == (start, start)
