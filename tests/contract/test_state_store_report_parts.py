"""The contract of the state store, for memory and ZooKeeper alike: reports that are large, damaged,
or removed by an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.codec.values import MAX_VALUE_BYTES
from state.errors import ConflictError, PlanClosedError, StoredDataError
from state.report import PlanReport, ShardOutcome
from tests.support.state.interposed_tree import interposed
from tests.support.state.state_stores import failures, owned, plan

if TYPE_CHECKING:
    from state.znodes.store import ZnodeStateStore
    from tests.support.state.state_stores import StoreWorld

REPORT = "batches/1-aa/report"
SMALL = PlanReport(failed=1, done_ms=9)


@pytest.fixture
def store(store_world: StoreWorld) -> ZnodeStateStore:
    """An owner's store with the open plan `1-aa`."""
    store = owned(store_world)
    store.create_plan(plan(1))
    return store


def test_a_large_report_is_stored_in_parts(store: ZnodeStateStore, store_world: StoreWorld) -> None:
    """10,000 failures in each of three shards. No value is above the limit, and all values are
    removed with the plan.
    """
    report = failures(10_000, shards=3)
    store.finish_report(store.open_report("1-aa", "token"), report)
    parts = store_world.children(REPORT)
    assert len(parts) > 3
    assert max(len(store_world.get(f"{REPORT}/{part}")) for part in parts) <= MAX_VALUE_BYTES
    store.close_plan("1-aa")
    assert store_world.open().read_report("1-aa") == report
    store.mark_settled("1-aa")
    store.create_plan(plan(2))
    store.remove_plan("1-aa")
    assert store_world.children("batches") == ["2-aa"]


def test_parts_of_a_process_that_died_are_not_part_of_the_next_report(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """They do not count, whether the next report is large or small. They are removed with the
    plan.
    """
    died, tree = interposed(store)
    first = died.open_report("1-aa", "first")
    tree.before_write(REPORT, lambda: store.open_report("1-aa", "second"))
    with pytest.raises(ConflictError):
        died.finish_report(first, failures(10_000, reason="old"))
    assert store_world.children(REPORT)
    opened = store.open_report("1-aa", "third")
    store.finish_report(opened, failures(9_000))
    assert store.read_report("1-aa") == failures(9_000)
    store.finish_report(store.open_report("1-aa", "fourth"), SMALL)
    assert store.read_report("1-aa") == SMALL
    store.create_plan(plan(2))
    store.remove_plan("1-aa")
    assert store_world.children("batches") == ["2-aa"]


@pytest.mark.parametrize("close", [True, False], ids=["closed", "opened"])
def test_a_batch_that_is_overtaken_between_two_parts_stops_there(
    store: ZnodeStateStore, store_world: StoreWorld, *, close: bool
) -> None:
    """The plan was closed, or the report was opened again. The remaining parts are not written."""
    batch, tree = interposed(store)
    opened = batch.open_report("1-aa", "token")

    def overtake() -> None:
        if close:
            store.close_plan("1-aa")
        else:
            store.open_report("1-aa", "other")

    tree.before_write("-1", overtake)
    with pytest.raises(PlanClosedError if close else ConflictError):
        batch.finish_report(opened, failures(10_000))
    assert len(store_world.children(REPORT)) == 1
    assert store.read_report("1-aa") is None


def test_a_reason_that_is_too_large_for_a_value_is_dropped(store: ZnodeStateStore) -> None:
    """The record is delivered again all the same."""
    report = failures(2)
    failed, other = report.shards[0].unresolved
    huge = msgspec.structs.replace(failed, reason="x" * 2 * MAX_VALUE_BYTES)
    with_huge = msgspec.structs.replace(
        report, shards=(ShardOutcome(shard_id="s", unresolved=(huge, other)),)
    )
    store.finish_report(store.open_report("1-aa", "token"), with_huge)
    read = store.read_report("1-aa")
    assert read is not None
    assert read.shards[0].unresolved == (msgspec.structs.replace(failed, reason=None), other)


def test_a_report_that_an_operator_removed_does_not_count(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """Its records are delivered again. A batch that had it open cannot finish it, and the next
    opening counts as the first.
    """
    store.finish_report(store.open_report("1-aa", "first"), failures(10_000))
    store_world.remove(REPORT)
    assert store.read_report("1-aa") is None
    opened = store.open_report("1-aa", "second")
    store_world.remove(REPORT)
    with pytest.raises(ConflictError, match="or removed"):
        store.finish_report(opened, SMALL)
    assert not store.open_report("1-aa", "third").reopened


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b'{"token":"t","status":"half"}',
        b'{"token":"t","status":"done"}',
        b'{"token":"t","status":"done","report":{},"outcomes":{"shards":[{"shardId":"s","unresolved":[["x",1,1]]}]}}',
        b'{"token":"t","status":"done","report":{},"parts":2}',
        b'{"format":2,"status":"done","outcomes":7}',
    ],
)
def test_a_damaged_or_newer_report_is_an_error_and_never_no_report(
    store: ZnodeStateStore, store_world: StoreWorld, stored: bytes
) -> None:
    """The error names the path, and of a newer format no part is used. The batch may still run
    again over it.
    """
    store_world.put(REPORT, stored)
    newer = "has format 2, written by a newer version.*upgrade" if b'"format":2' in stored else ""
    with pytest.raises(StoredDataError, match=f"flights/batches/1-aa/report.*{newer}"):
        store.read_report("1-aa")
    store.finish_report(store.open_report("1-aa", "token"), SMALL)
    assert store.read_report("1-aa") == SMALL


def test_a_damaged_part_is_an_error(store: ZnodeStateStore, store_world: StoreWorld) -> None:
    """A part is missing, cut, or replaced, also if each part by itself can be read."""
    store.finish_report(store.open_report("1-aa", "token"), failures(10_000))
    whole = {part: store_world.get(f"{REPORT}/{part}") for part in store_world.children(REPORT)}
    last = max(whole)
    for damage in (b"", whole[last][:-1], b'{"shards":[]}', whole[min(whole)]):
        store_world.put(f"{REPORT}/{last}", damage)
        with pytest.raises(
            StoredDataError,
            match="parts that were changed since they were written; restore it, or remove it",
        ):
            store.read_report("1-aa")
    store_world.remove(f"{REPORT}/{last}")
    with pytest.raises(StoredDataError, match="of which 1 are missing; restore it, or remove it"):
        store.read_report("1-aa")
