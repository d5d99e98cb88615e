"""Nodes in ZooKeeper that their owner may not write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.inspection.explanation import explain
from state.owner.run_log import FAILED, RunEnd
from state.znodes.access import NodeAccess
from tests.support.inspection.looks import (
    NOW_MS,
    after,
    behind,
    listed,
    look,
    run_log,
    shard,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.inspection.health import Look
    from state.owner.run_log import RunLog

BASE = "/kinesis-spout/etl/orders"
STATE, RUNS, PLAN = f"{BASE}/{shard(1)}/state", f"{BASE}/runs/all", f"{BASE}/plan"
OPEN = NodeAccess(frozenset({"anyone"}), frozenset({"anyone"}))
ANN = NodeAccess(frozenset({"digest ann"}), frozenset({"digest ann"}))
BOB = NodeAccess(frozenset({"digest bob"}), frozenset({"digest bob"}))
LOCKED = NodeAccess(frozenset(), frozenset())
KEPT = NodeAccess(frozenset(), frozenset({"digest ann"}))
DENIED = RunEnd(
    time_ms=NOW_MS - 9_000,
    kind=FAILED,
    says="ZooKeeper denies access to /x; check the user and password, or the access control list "
    "of that node",
)
SILENT, TOLD = run_log(60_000), run_log(60_000, ends=(DENIED,))


def stood(access: Mapping[str, NodeAccess], log: RunLog = SILENT) -> Look:
    seen = look(listed(1), state(1, after(5)), owners=(), log=log, tips={1: behind(60_000)})
    return replace(seen, now=replace(seen.now, access=access))


def said(seen: Look) -> str:
    return " / ".join(cause.says for cause in explain(seen, shard(1)).causes)


def deeds(seen: Look) -> list[str]:
    return [one.text for one in explain(seen, shard(1)).advice()]


def test_nodes_that_nobody_may_write_are_the_cause() -> None:
    """Their list is changed first, and nobody is said to have killed the job."""
    seen = stood({BASE: OPEN, STATE: LOCKED, RUNS: LOCKED})
    assert f"nobody may write 2 nodes in ZooKeeper (one is {STATE}), by their access" in said(seen)
    assert "killed" not in said(seen)
    assert "has not told how it ended, which it may have been refused to store there" in said(seen)
    first, start, *_ = deeds(seen)
    assert first.startswith("give the application's identity all rights to them again")
    assert "as ZooKeeper's superuser: no other may" in first
    assert start == "start the job"
    assert "as digest ann)" in deeds(stood({BASE: OPEN, STATE: KEPT}))[0]


def test_the_list_of_a_node_is_told_by_one_arrow() -> None:
    """The error of the run asks for the same."""
    found = deeds(stood({STATE: LOCKED, RUNS: OPEN}, TOLD))
    assert sum("all rights" in one or "access control" in one for one in found) == 1
    assert found[1] == "start it again after that"


def test_an_owner_that_runs_is_told_of_them_too() -> None:
    seen = look(listed(1), state(1, after(5)), tips={1: behind(60_000)}, log=run_log(60_000))
    seen = replace(seen, now=replace(seen.now, access={STATE: LOCKED}))
    assert f"nobody may write {STATE} in ZooKeeper" in said(seen)


def test_nodes_of_one_identity_beside_those_of_others_may_be_the_cause() -> None:
    """Where the run was refused, or may have been refused to tell."""
    for others in (OPEN, BOB):
        for access in (
            {BASE: others, STATE: ANN, RUNS: ANN, PLAN: ANN},
            {BASE: others, STATE: ANN, RUNS: ANN},
        ):
            seen = stood(access)
            assert "may be written by digest ann alone" in said(seen)
            assert "has not told how it ended" in said(seen)
            assert deeds(seen)[0].startswith("see whether the application is digest ann (")
    assert "by digest ann alone" in said(stood({BASE: OPEN, STATE: ANN, RUNS: OPEN}, TOLD))


def test_nothing_is_said_of_lists_that_explain_nothing() -> None:
    """All nodes are one identity's; or the run told another end; or the lists were not read."""
    lost = run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=FAILED, says="no rates"),))
    for seen in (
        stood({BASE: ANN, STATE: ANN, RUNS: ANN}),
        stood({BASE: OPEN, STATE: ANN, RUNS: ANN}, lost),
        stood({BASE: OPEN, STATE: ANN, RUNS: OPEN}),
        stood({}),
    ):
        kinds = {one.kind for one in explain(seen, shard(1)).causes}
        assert not kinds & {"nobody may write", "reserved nodes"}
