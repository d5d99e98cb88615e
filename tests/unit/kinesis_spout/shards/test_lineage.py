"""The phase of each shard, from the shard list and the shard states: a test for every line of the
module's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import pytest

from kinesis_spout.service.shard_info import HASH_KEYS
from kinesis_spout.shards.lineage import (
    ShardPhase,
    open_range_holes,
    task_of,
    unresolved_ancestors,
)
from tests.support.state.shard_values import (
    LEFT,
    RIGHT,
    WHOLE,
    drained,
    lineage,
    shard,
    state,
    waiting,
    with_records,
)

if TYPE_CHECKING:
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState


# phases -------------------------------------------------------------------------------------------
def test_every_shard_has_its_phase() -> None:
    seen = lineage(
        [
            shard("new"),
            shard("open"),
            shard("closed", closed=True),
            shard("child", "closed"),
            shard("old", "older"),
        ],
        *(state("open"), state("closed"), state("child", "closed"), state("old")),
        *(state("done", ended=True), drained("failed"), state("lost")),
    )
    assert {one: seen.phase(one) for one in seen.oldest_first()} == {
        "closed": ShardPhase.DRAINING,
        "child": ShardPhase.WAITING,
        "done": ShardPhase.FINISHED,
        "failed": ShardPhase.DRAINED,
        "lost": ShardPhase.VANISHED,
        "new": ShardPhase.NEW,
        "older": ShardPhase.PAST,
        "old": ShardPhase.READABLE,
        "open": ShardPhase.READABLE,
    }
    assert seen.readable() == ["closed", "old", "open"]
    assert seen.vanished() == ["lost"]
    assert seen.unlisted_with_retries() == ["failed"]


# parents ------------------------------------------------------------------------------------------
P, C = shard("p"), shard("c", "p")
Q, MERGED = shard("q", closed=True), shard("c", "p", "q")
ENDED_P, ENDED_Q = state("p", ended=True), state("q", ended=True)
UNREAD = state("c", "p")


@pytest.mark.parametrize(
    ("listing", "states", "readable", "waits_for"),
    [
        ([P, C], [state("p"), UNREAD], ["p"], ("p",)),
        ([P, C], [ENDED_P, UNREAD], ["c"], ()),
        ([P, C], [state("p"), state("c", "p", ended=True)], ["p"], ()),
        # its queued retries do not hold it
        ([shard("p", closed=True), C], [drained("p"), UNREAD], ["c"], ()),
        # a merge
        ([P, Q, MERGED], [state("p"), state("q"), state("c", "p", "q")], ["p", "q"], ("p", "q")),
        ([P, Q, MERGED], [ENDED_P, state("q"), state("c", "p", "q")], ["q"], ("q",)),
        ([P, Q, MERGED], [ENDED_P, ENDED_Q, state("c", "p", "q")], ["c"], ()),
        # GetRecords has named it, so its state has its parents; a state of the ancestor's has none
        ([P, shard("c")], [state("p"), UNREAD], ["p"], ("p",)),
        ([P, C], [state("p"), state("c")], ["p"], ("p",)),
        # a parent without a state: listed, or past the retention
        ([P, C], [UNREAD], [], ("p",)),
        ([C], [UNREAD], ["c"], ()),
        # one that vanished unread holds it until it is given up
        ([C], [state("p"), UNREAD], [], ("p",)),
        ([C], [ENDED_P, UNREAD], ["c"], ()),
    ],
)
def test_a_child_waits_until_its_parents_were_read_to_their_ends(
    listing: list[ShardInfo],
    states: list[ShardState],
    readable: list[str],
    waits_for: tuple[str, ...],
) -> None:
    """Whether they look open or closed. The lineage does not decide whether records are lost."""
    seen = lineage(listing, *states)
    assert (seen.readable(), seen.waits_for("c")) == (readable, waits_for)
    assert (seen.phase("c") is ShardPhase.WAITING) == bool(waits_for)


# odd listings -------------------------------------------------------------------------------------


def test_the_order_is_that_of_the_ids() -> None:
    """Including shards that are only named: the service numbers shards as it creates them."""
    seen = lineage([shard("d", "a", "b"), shard("b", "0"), shard("c")], state("x"))
    assert seen.oldest_first() == ["0", "a", "b", "c", "d", "x"]


def test_a_circle_of_parents_hides_no_shard() -> None:
    """No service creates one. A listing with one must neither hang the reader nor hide a shard."""
    seen = lineage(
        [shard("a", "b"), shard("b", "a"), shard("c")], state("a"), state("b"), state("c")
    )
    assert seen.oldest_first() == ["a", "b", "c"]
    assert seen.readable() == ["c"]


# removable states ---------------------------------------------------------------------------------
def read_ms(one: ShardState, ms: int) -> ShardState:
    return msgspec.structs.replace(one, verified_until_ms=ms)


OLD, RETRYING = read_ms(ENDED_P, 9), read_ms(drained("p"), 9)
READ_B = read_ms(state("b", "a", ended=True), 2)
READ_CHILD, GRANDCHILD = read_ms(state("q", "p", ended=True), 2), state("r", "q")


@pytest.mark.parametrize(
    ("listing", "states", "removable"),
    [
        ([C], [OLD, UNREAD], ["p"]),
        ([C], [read_ms(ENDED_P, 10), UNREAD], []),
        ([shard("p", closed=True), C], [OLD, UNREAD], []),
        # a child without a state, or no known child
        ([C, shard("d", "p")], [OLD, UNREAD], []),
        ([shard("c")], [OLD, state("c")], []),
        # queued retries, an unread end
        ([C], [RETRYING, UNREAD], []),
        ([C], [read_ms(state("p"), 9), UNREAD], []),
        # given up, with or without a known child, but not before its parents
        ([C], [ENDED_P, UNREAD], ["p"]),
        ([shard("x")], [ENDED_P], ["p"]),
        ([shard("x")], [RETRYING, state("q", "p", ended=True)], []),
        # generations: oldest first, and none before its parents
        ([shard("r", "q")], [READ_CHILD, OLD, GRANDCHILD], ["p", "q"]),
        ([shard("r", "q")], [RETRYING, READ_CHILD, GRANDCHILD], []),
        (
            [shard("c", "b")],
            [state("a", ended=True, verified_until_ms=1), READ_B, state("c", "b")],
            ["a", "b"],
        ),
    ],
)
def test_a_finished_state_is_removable_after_its_retention_once_its_children_have_states(
    listing: list[ShardInfo], states: list[ShardState], removable: list[str]
) -> None:
    """A removal that stops half-way leaves no state whose children are forgotten, or look as if
    they had never been observed.
    """
    assert lineage(listing, *states).removable(10) == removable


# children that are not known ----------------------------------------------------------------------
def test_an_ended_shard_is_unfollowed_until_children_cover_its_hash_keys() -> None:
    parent = shard("p", closed=True)
    ended = state("p", ended=True)
    left, right = shard("c", "p", keys=LEFT), shard("d", "p", keys=RIGHT)
    for listing in ([parent], [parent, left], [parent, right], [parent, shard("x")]):
        assert lineage(listing, ended).unfollowed() == ["p"]
    for first_child, second_child, found in (
        ((0, 0), (1, HASH_KEYS - 1), []),
        ((0, 4), (6, HASH_KEYS - 1), ["p"]),
        ((0, 4), (5, HASH_KEYS - 2), ["p"]),
    ):
        children = shard("c", "p", keys=first_child), shard("d", "p", keys=second_child)
        assert lineage([parent, *children], ended).unfollowed() == found
    for listing in ([parent, left, right], [parent, shard("c", "p", "q")]):
        assert lineage(listing, ended).unfollowed() == []
    half, beyond = shard("p", keys=(0, 4)), shard("d", "p", keys=(6, 9))
    assert lineage([half, shard("c", "p", keys=(0, 4)), beyond], ended).unfollowed() == []
    part, beyond = shard("p", keys=(0, 9)), shard("d", "p", keys=(10, 12))
    assert lineage([part, shard("c", "p", keys=(0, 4)), beyond], ended).unfollowed() == ["p"]
    # the parent's last page names all children, before the list shows any
    assert lineage([parent], ended, state("c", "p")).unfollowed() == []
    assert lineage([parent], state("p")).unfollowed() == []


@pytest.mark.parametrize(
    ("listing", "states", "out_of_sight"),
    [
        ([shard("x")], [OLD], ["p"]),
        ([shard("x")], [read_ms(ENDED_P, 10)], []),
        ([shard("x"), shard("p", closed=True)], [OLD], []),
        ([P], [OLD], []),
        ([C], [OLD], []),
        ([], [OLD, UNREAD], []),
        ([], [RETRYING], []),
    ],
)
def test_an_expired_shard_without_known_children_is_out_of_sight(
    listing: list[ShardInfo], states: list[ShardState], out_of_sight: list[str]
) -> None:
    assert lineage(listing, *states).out_of_sight(10) == out_of_sight


# holes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("open_ranges", "holes"),
    [
        ([RIGHT, LEFT], []),
        ([WHOLE, RIGHT, LEFT], []),
        ([], [WHOLE]),
        ([LEFT], [RIGHT]),
        ([RIGHT], [LEFT]),
        ([(0, 5), (8, 20), (10, 12), (22, HASH_KEYS - 1)], [(6, 7), (21, 21)]),
        ([(1, HASH_KEYS - 2)], [(0, 0), (HASH_KEYS - 1, HASH_KEYS - 1)]),
        ([(0, HASH_KEYS - 2), (HASH_KEYS - 1, HASH_KEYS - 1)], []),
    ],
)
def test_hash_keys_that_no_open_shard_covers_are_holes(
    open_ranges: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    """A closed shard covers none."""
    listing = [shard(f"s{index}", keys=keys) for index, keys in enumerate(open_ranges)]
    assert open_range_holes([*listing, shard("t", closed=True)]) == holes


# some shards --------------------------------------------------------------------------------------


# ancestors ----------------------------------------------------------------------------------------
def states(**parents: str) -> dict[str, ShardState]:
    """By name, a shard's parents. A name in capitals has an unresolved record."""
    found = {name: state(name, *named) for name, named in parents.items()}
    return {
        name: with_records(one, waiting(1)) if name.isupper() else one
        for name, one in found.items()
    }


def test_a_shard_waits_for_the_unresolved_records_of_ancestors_of_every_generation() -> None:
    """A split, a split again, and a merge. Each ancestor once, whatever ways lead to it."""
    found = unresolved_ancestors(states(A="", b="A", c="A", D="b", e="b", f="cD", g="e"))
    assert {shard: "".join(sorted(ancestors)) for shard, ancestors in found.items()} == {
        "b": "A",
        "c": "A",
        "D": "A",
        "e": "A",
        "f": "AD",
        "g": "A",
    }
    assert unresolved_ancestors(states(a="", b="a", c="A", D="")) == {}
    circle = unresolved_ancestors(states(A="b", b="A", c="b"))
    assert circle == {"b": ("A",), "c": ("A",)}, "no shard waits for itself"


def test_a_shard_belongs_to_the_task_of_its_number() -> None:
    """The children of a split belong to different tasks; an id without a number has one, too."""
    shard_ids = [f"shardId-{number:012}" for number in (0, 1, 2, 3, 5, 10)]
    assert [task_of(shard_id, 3) for shard_id in shard_ids] == [0, 1, 2, 0, 2, 1]
    assert task_of("2nd of odd ids", 1000) == crc32(b"2nd of odd ids") % 1000
