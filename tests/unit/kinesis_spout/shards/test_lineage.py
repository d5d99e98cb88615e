"""The phase of each shard, from the shard list and the shard states: a test for every line of the
module's table.
"""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from kinesis_spout.shards.lineage import HASH_KEYS, ShardLineage, ShardPhase, open_range_holes
from state.position import SHARD_END
from state.shard_state import Lifecycle
from tests.support.state.shard_values import LEFT, RIGHT, WHOLE, drained, lineage, shard, state


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


def test_a_finished_shard_is_finished_also_while_it_is_listed() -> None:
    seen = lineage(
        [shard("p", closed=True), shard("q", closed=True)], state("p", ended=True), drained("q")
    )
    assert [seen.phase(one) for one in ("p", "q")] == [ShardPhase.FINISHED, ShardPhase.DRAINED]


# parents ------------------------------------------------------------------------------------------
def test_a_child_waits_until_its_parent_was_read_to_its_end() -> None:
    listing = [shard("p"), shard("c", "p")]
    waiting = lineage(listing, state("p"), state("c", "p"))
    assert (waiting.readable(), waiting.waits_for("c")) == (["p"], ("p",))
    free = lineage(listing, state("p", ended=True), state("c", "p"))
    assert (free.readable(), free.waits_for("c")) == (["c"], ())


def test_a_merged_child_waits_for_both_parents() -> None:
    listing = [shard("p", closed=True), shard("q", closed=True), shard("c", "p", "q")]
    both = lineage(listing, state("p"), state("q"), state("c", "p", "q"))
    assert both.waits_for("c") == ("p", "q")
    one = lineage(listing, state("p", ended=True), state("q"), state("c", "p", "q"))
    assert (one.readable(), one.waits_for("c")) == (["q"], ("q",))
    assert lineage(
        listing, state("p", ended=True), state("q", ended=True), state("c", "p", "q")
    ).readable() == ["c"]


def test_a_parent_is_known_from_the_listing_or_from_the_state_alone() -> None:
    """A child that GetRecords has named has its parents in its state. A state that the ancestor
    wrote has none: its parents are in the listing only.
    """
    assert lineage([shard("p"), shard("c")], state("p"), state("c", "p")).waits_for("c") == ("p",)
    assert lineage([shard("p"), shard("c", "p")], state("p"), state("c")).waits_for("c") == ("p",)


def test_queued_retries_of_a_drained_parent_do_not_hold_its_children() -> None:
    assert lineage(
        [shard("p", closed=True), shard("c", "p")], drained("p"), state("c", "p")
    ).readable() == ["c"]


def test_a_child_that_is_listed_while_its_parent_still_looks_open_waits() -> None:
    seen = lineage([shard("p"), shard("c", "p")], state("p"), state("c", "p"))
    assert [seen.phase(one) for one in ("p", "c")] == [ShardPhase.READABLE, ShardPhase.WAITING]


def test_a_parent_past_retention_that_has_no_state_is_not_waited_for() -> None:
    assert lineage([shard("c", "p")], state("c", "p")).readable() == ["c"]


def test_a_listed_parent_without_a_state_holds_its_child() -> None:
    seen = lineage([shard("p"), shard("c", "p")], state("c", "p"))
    assert (seen.readable(), seen.waits_for("c")) == ([], ("p",))


def test_a_parent_that_vanished_unread_holds_its_child_until_it_is_given_up() -> None:
    """The lineage does not decide whether its records are lost."""
    assert lineage([shard("c", "p")], state("p"), state("c", "p")).waits_for("c") == ("p",)
    assert lineage([shard("c", "p")], state("p", ended=True), state("c", "p")).readable() == ["c"]


def test_each_of_several_generations_waits_for_the_one_before() -> None:
    """UpdateShardCount creates shards that live for seconds: closed, maybe empty, and they hold
    their children all the same.
    """
    listing = [
        shard("a", closed=True),
        shard("b", "a", closed=True),
        shard("c", "b", closed=True),
        shard("d", "c"),
    ]
    states = {
        one.shard_id: one for one in (state("a"), state("b", "a"), state("c", "b"), state("d", "c"))
    }
    for readable in "abcd":
        seen = ShardLineage.of(listing, states)
        assert seen.readable() == [readable]
        states[readable] = msgspec.structs.replace(
            states[readable], read_position=SHARD_END, lifecycle=Lifecycle.FINISHED
        )
    assert ShardLineage.of(listing, states).readable() == []


def test_a_shard_that_is_no_longer_listed_is_not_read_but_reported() -> None:
    seen = lineage([], state("a"), state("b", ended=True))
    assert (seen.readable(), seen.vanished()) == ([], ["a"])


# odd listings -------------------------------------------------------------------------------------
def test_a_shard_that_is_listed_twice_is_closed_if_one_entry_is() -> None:
    for listing in permutations([shard("p"), shard("p", closed=True), shard("c", "p")]):
        seen = lineage(list(listing), state("p"), state("c", "p"))
        assert seen.oldest_first() == ["p", "c"]
        assert seen.phase("p") is ShardPhase.DRAINING


def test_the_order_is_oldest_first_and_by_id_among_equals() -> None:
    """Parents come first, whatever their ids, including those that are only named."""
    seen = lineage([shard("a", "z"), shard("b", "y", "a"), shard("c")], state("x"))
    assert seen.oldest_first() == ["c", "x", "y", "z", "a", "b"]


def test_a_circle_of_parents_hides_no_shard() -> None:
    """No service creates one. A listing with one must neither hang the reader nor hide a shard."""
    seen = lineage(
        [shard("a", "b"), shard("b", "a"), shard("c")], state("a"), state("b"), state("c")
    )
    assert seen.oldest_first() == ["c", "a", "b"]
    assert seen.readable() == ["c"]


# removable states ---------------------------------------------------------------------------------
def test_a_finished_state_is_removable_after_its_retention_once_its_children_have_states() -> None:
    finished, child = state("p", ended=True, verified_until_ms=9), state("c", "p")
    assert lineage([shard("c", "p")], finished, child).removable(10) == ["p"]
    assert lineage([shard("c", "p")], finished, child).removable(9) == []
    assert lineage([shard("p", closed=True), shard("c", "p")], finished, child).removable(10) == []
    assert lineage([shard("c", "p"), shard("d", "p")], finished, child).removable(10) == []


def test_a_state_that_is_needed_or_of_unknown_age_stays() -> None:
    """It has queued retries, no known child, no time of reading, or an unread end."""
    child = state("c", "p")
    for kept in (
        msgspec.structs.replace(drained("p"), verified_until_ms=9),
        state("p", ended=True),
        state("p", verified_until_ms=9),
    ):
        assert lineage([shard("c", "p")], kept, child).removable(10) == []
    assert (
        lineage([shard("c")], state("p", ended=True, verified_until_ms=9), state("c")).removable(10)
        == []
    )


def test_whole_generations_are_removable_oldest_first() -> None:
    """A removal that stops half-way then leaves no state whose children are forgotten."""
    old = [
        state("z", ended=True, verified_until_ms=1),
        state("a", "z", ended=True, verified_until_ms=2),
        state("c", "a"),
    ]
    assert lineage([shard("c", "a")], *old).removable(10) == ["z", "a"]


def test_no_state_is_removable_before_its_parents() -> None:
    """The parent still has retries queued. Without its child it would look as if its children had
    never been observed.
    """
    parent = msgspec.structs.replace(drained("p"), verified_until_ms=1)
    child, grandchild = state("c", "p", ended=True, verified_until_ms=2), state("g", "c")
    assert lineage([shard("g", "c")], parent, child, grandchild).removable(10) == []
    finished = state("p", ended=True, verified_until_ms=1)
    assert lineage([shard("g", "c")], finished, child, grandchild).removable(10) == ["p", "c"]


# children that are not known ----------------------------------------------------------------------
def test_an_ended_shard_is_unfollowed_until_children_cover_its_hash_keys() -> None:
    parent = shard("p", closed=True)
    ended = state("p", ended=True)
    left, right = shard("c", "p", keys=LEFT), shard("d", "p", keys=RIGHT)
    for listing in ([parent], [parent, left], [parent, right], [parent, shard("x")]):
        assert lineage(listing, ended).unfollowed() == ["p"]
    for listing in ([parent, left, right], [parent, shard("c", "p", "q")]):
        assert lineage(listing, ended).unfollowed() == []
    assert lineage([parent], state("p")).unfollowed() == []


def test_a_child_that_only_the_parents_last_page_has_named_follows_it() -> None:
    """That page names all children, before the list shows any."""
    assert (
        lineage([shard("p", closed=True)], state("p", ended=True), state("c", "p")).unfollowed()
        == []
    )


def test_an_expired_shard_without_known_children_is_out_of_sight() -> None:
    ended = state("p", ended=True, verified_until_ms=9)
    assert lineage([shard("x")], ended).out_of_sight(10) == ["p"]
    assert lineage([shard("x")], ended).out_of_sight(9) == []
    assert lineage([shard("x"), shard("p", closed=True)], ended).out_of_sight(10) == []
    assert lineage([shard("c", "p")], ended).out_of_sight(10) == []
    assert lineage([], ended, state("c", "p")).out_of_sight(10) == []
    assert lineage([shard("p")], ended).out_of_sight(10) == []
    assert (
        lineage([], msgspec.structs.replace(drained("p"), verified_until_ms=9)).out_of_sight(10)
        == []
    )


# holes --------------------------------------------------------------------------------------------
def test_open_shards_that_cover_all_hash_keys_leave_no_hole() -> None:
    assert open_range_holes([shard("b", keys=RIGHT), shard("a", keys=LEFT)]) == []
    assert (
        open_range_holes([shard("p"), shard("c", "p", keys=RIGHT), shard("b", "p", keys=LEFT)])
        == []
    )


@pytest.mark.parametrize(
    ("open_ranges", "holes"),
    [
        ([], [WHOLE]),
        ([LEFT], [RIGHT]),
        ([RIGHT], [LEFT]),
        ([(0, 5), (8, 20), (10, 12), (22, HASH_KEYS - 1)], [(6, 7), (21, 21)]),
        ([(1, HASH_KEYS - 2)], [(0, 0), (HASH_KEYS - 1, HASH_KEYS - 1)]),
    ],
)
def test_hash_keys_that_no_open_shard_covers_are_holes(
    open_ranges: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    """A closed shard covers none, even if the listing has a second entry of it that is open."""
    listing = [shard(f"s{index}", keys=keys) for index, keys in enumerate(open_ranges)]
    assert open_range_holes([*listing, shard("t", closed=True), shard("t")]) == holes


# some shards --------------------------------------------------------------------------------------
def test_among_some_shards_the_others_hold_no_child() -> None:
    """They are neither read nor missed. No ids means all shards."""
    seen = lineage(
        [shard("p", closed=True), shard("c", "p"), shard("d", "c")],
        state("p"),
        state("c", "p"),
        state("d", "c"),
        state("x"),
    )
    assert seen.among(frozenset({"c", "d"})).readable() == ["c"]
    assert seen.among(frozenset({"c", "d"})).waits_for("d") == ("c",)
    assert seen.among(frozenset({"c", "d"})).vanished() == []
    assert seen.among(frozenset()) is seen
