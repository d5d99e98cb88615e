"""What an explanation asks for: without doubles, in the order in which a person does it; and which
shards it is told of together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinesis_spout.inspection.cause import Act
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import Look
from state.owner.owner_info import Sight
from state.owner.run_log import FAILED, FULL, STOPPED, Hold, RunEnd
from state.position import SHARD_END
from state.report import ReportStatus
from state.shard_state import TIMED_OUT
from state.task_log import TaskLog
from state.znodes.access import NodeAccess
from tests.support.inspection.looks import (
    AT_TIP,
    BEGAN_MS,
    HOUR_MS,
    NOW_MS,
    after,
    behind,
    failed,
    listed,
    look,
    plan,
    run_log,
    shard,
    slice_of,
    snapshot,
    state,
    task,
)
from tests.unit.kinesis_spout.inspection.test_causes import (
    BEHIND,
    BLOCK_KEY,
    CONTINUE,
    GONE,
    HERE,
    LAPSED,
    MEND,
    NOBODY,
    OLD,
    ONE,
    OUTAGE,
    START,
    TABLE,
    TIP,
    WAIT,
    YOUNG,
    deeds,
    drained,
    ended,
    kinds,
    spout_look,
    stood,
    with_access,
)

SEE, DENIED_KEY = "see the record", "enable the KMS key that the stream is encrypted with"
HELD = state(1, after(9), unresolved=(failed(3),))
READ = plan(task(slice_of(HELD), log=TaskLog(sealed=True)), report=ReportStatus.DONE)


def holding(**stored: Any) -> Look:
    """A shard that is behind, and holds a failed record."""
    given: dict[str, Any] = {"tips": BEHIND, "policy": CONTINUE}
    return look(ONE, HELD, **(given | stored))


@pytest.mark.parametrize(
    ("seen", "order"),
    [
        (holding(**ended(STOPPED)), [MEND, SEE, START]),
        (holding(**GONE), [MEND, START]),
        (holding(**(GONE | {"tips": TIP})), [MEND, START]),
        (drained(failed(3), policy=CONTINUE, **ended(STOPPED)), [MEND, START]),
        (drained(failed(3), policy=CONTINUE, paused=True), [MEND, "end the pause"]),
        (holding(plan=READ), [MEND, WAIT]),
        (look(HERE, **ended(STOPPED)), ["look again in a minute", "if it stays so", START]),
        (stood(tips={1: behind(20 * HOUR_MS)}, owners=()), ["raise the stream's ret", START]),
        (stood(tips={1: behind(4 * HOUR_MS)}, owners=()), [START]),
        (look(ONE, LAPSED, tips=BEHIND, owners=()), ["raise the stream's retention", START]),
        (stood(paused=True, **GONE), ["end the pause", START]),
        (stood(paused=True, owners=()), ["end the pause", START]),
        (stood(paused=True, log=run_log(HOUR_MS), sight=Sight.GONE), ["end the pause", "start it"]),
    ],
)
def test_what_comes_first_is_done_first(seen: Look, order: list[str]) -> None:
    """What fails is corrected before its job is started, or it fails again; what may expire is
    saved before that.
    """
    found = deeds(seen)
    assert found[0].startswith(order[0])
    places = [next(at for at, one in enumerate(found) if one.startswith(it)) for it in order]
    assert places == sorted(places)


def test_in_an_outage_no_record_is_to_be_given_up_or_put_back() -> None:
    """Nothing is wrong with the records."""
    held = state(1, after(9), unresolved=(failed(3), failed(4, due_ms=NOW_MS - 1)))
    for tips in (BEHIND, TIP):
        advice = explain(look(ONE, held, tips=tips, **OUTAGE), shard(1)).advice()
        assert [one.act for one in advice] == [Act.CHANGE, Act.WAIT]
        assert not any(one.arguments for one in advice)


def test_a_record_whose_letters_are_refused_is_not_to_be_given_up() -> None:
    refused = [seen for seen, told in TABLE if "letters refused" in told]
    assert len(refused) == 2
    for seen in refused:
        assert not any("skip" in one.arguments for one in explain(seen, shard(1)).advice())


@pytest.mark.parametrize(
    ("says", "deed"),
    [
        (
            "(User: u is not authorized to perform: kinesis:GetRecords on resource: x); allow y",
            "allow kinesis:GetRecords to the role or user of the job (IAM)",
        ),
        ("the disk is full; set path to another one", "set path to another one"),
        ("OSError: No space left", "mend what that error names"),
        ("the service refuses it (ExpiredTokenException); get new ones", "get new ones"),
        ("no letter is written; repair the sink, and start the query again", "repair the sink"),
        (
            "no start; restore ZooKeeper, or name it; set option failOnDataLoss to false to go on",
            "restore ZooKeeper, or name it; or, set option failOnDataLoss to false to go on",
        ),
    ],
)
def test_the_deed_that_an_error_names_is_the_arrow(says: str, deed: str) -> None:
    """Of two, the one that loses nothing comes first. Of a loop, a start alone does not help."""
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    once = stood(owners=(), log=run_log(60_000, ends=(end,)))
    assert deeds(once)[:2] == [deed, "start it again after that"]
    loop = stood(owners=(), log=run_log(60_000, 40_000, 20_000, ends=(end, end, end)))
    assert deeds(loop)[0] == f"{deed}; to start it again alone does not help"


@pytest.mark.parametrize("seen", [seen for seen, _ in TABLE])
def test_no_deed_is_told_twice(seen: Look) -> None:
    """Nor are two starts, or two raises of the retention. Nobody waits for two things."""
    found = deeds(seen)
    acts = [one.act for one in explain(seen, shard(1)).advice()]
    assert acts.count(Act.WAIT) <= 1
    assert len(set(found)) == len(found)
    for begins in ("start ", "raise the stream's retention", "correct what fails", MEND):
        assert sum(one.startswith(begins) for one in found) <= 1, found


def died(says: str) -> dict[str, Any]:
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    return {"owners": (), "log": run_log(60_000, ends=(end,))}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            look(
                ONE, LAPSED, tips=BEHIND, plan=plan(), **died("lost; set failOnDataLoss to false")
            ),
            ("failOnDataLoss",),
        ),
        (
            spout_look(
                failed(3, reason=TIMED_OUT),
                tip=behind(60_000),
                max_pending=10,
                hold=Hold(kind=FULL, since_ms=NOW_MS - 9_000),
            ),
            ("program",),
        ),
        (
            with_access(
                stood(**died("ZooKeeper denies access to /x; check its access control list")),
                {"/a/state": NodeAccess(NOBODY, NOBODY)},
            ),
            ("all rights", "access control"),
        ),
        (
            replace(stood(**died(f"no; {DENIED_KEY}")), refused=f"no; {DENIED_KEY}"),
            (DENIED_KEY,),
        ),
    ],
)
def test_what_two_causes_ask_for_is_told_by_one_arrow(seen: Look, words: tuple[str, ...]) -> None:
    """In other words, too."""
    assert sum(any(word in one for word in words) for one in deeds(seen)) == 1


def test_nobody_waits_for_a_batch_of_a_job_that_ends_again_and_again() -> None:
    """Its end is what is to be mended. The batch is told all the same."""
    seen = stood(plan=plan(task(slice_of(HERE), log=TaskLog(sealed=True))), **YOUNG)
    assert kinds(explain(seen, shard(1))) == ["not read", "crash loop", "sink writes"]
    assert not any("wait" in one for one in deeds(seen))


def test_advice_names_only_commands_that_there_are() -> None:
    told = explain(drained(failed(3), policy=CONTINUE), shard(1)).advice({"redrive"})
    assert [one.command for one in told] == [None, None, "redrive"]


def test_of_two_parents_the_one_in_trouble_is_explained() -> None:
    """The other one is at its tip, and was closed just now."""
    parts = (listed(0, closed=True), listed(1, 2, 0), state(0, after(1)), state(1, after(0), 2, 0))
    seen = Look(
        before=snapshot(listed(2), *parts, state(2, after(1)), now_ms=BEGAN_MS),
        now=snapshot(listed(2, closed=True), *parts, state(2, after(1))),
        tips={shard(2): AT_TIP, shard(0): behind(HOUR_MS)},
    )
    assert explain(seen, shard(1)).root.about == shard(0)


def test_the_first_to_go_of_a_key_is_the_record_that_the_others_wait_for() -> None:
    """Not the one that is due first."""
    held = (
        failed(3, key="k", due_ms=NOW_MS + 60_000, reason="first"),
        failed(4, key="k", due_ms=NOW_MS + 1, reason="second", blocked=True),
    )
    assert "'first'" in explain(drained(*held, policy=BLOCK_KEY), shard(1)).root.says


def test_a_record_that_the_stream_no_longer_keeps_is_said_to_be_gone() -> None:
    seen = drained(failed(3, first_failure_ms=NOW_MS - OLD))
    assert "the stream no longer keeps it" in explain(seen, shard(1)).root.says


def test_one_command_accepts_all_that_is_lost() -> None:
    """A job names all of it in its error, and reads nothing until all of it is accepted."""
    old = {"verified_until_ms": NOW_MS - 26 * HOUR_MS}
    states = [state(index, after(9), **(old if index != 3 else {})) for index in (1, 2, 3, 4)]
    seen = look(*map(listed, (1, 2, 3)), *states, owners=())  # the fourth has vanished
    named = [word for index in (1, 2, 4) for word in ("--shard", shard(index))]
    for index in (1, 4):
        (command,) = (
            one.arguments for one in explain(seen, shard(index)).advice() if one.arguments
        )
        assert list(command) == [
            *("checkpoint", "set", *named, "--to", "TRIM_HORIZON", "--allow-skip")
        ]


# groups -----------------------------------------------------------------------------------------
def test_shards_with_one_cause_are_one_group() -> None:
    """The worst first. An application that nobody knows is one."""
    seen = look(
        *(listed(index) for index in (1, 2, 3)),
        *(state(index, after(5)) for index in (1, 2, 3)),
        tips={1: AT_TIP, 2: behind(60_000), 3: behind(90_000)},
        owners=(),
    )
    assert [(one.shards, kinds(one.explanation)) for one in grouped(seen)] == [
        ((shard(2), shard(3)), ["not read", "no owner"]),
        ((shard(1),), ["idle"]),
    ]
    unknown = look(listed(1), listed(2), pin=None, owners=())
    assert [kinds(one.explanation) for one in grouped(unknown)] == [["application unknown"]]


def test_shards_that_differ_in_numbers_and_times_only_are_one_group() -> None:
    """Told by the one that has to wait the longest. Another reason is another group."""
    reasons = ((1, "order 17"), (2, "order 19"), (3, "order 18"), (4, "no rates"))
    holding_ = [
        state(at, SHARD_END, unresolved=(failed(at, due_ms=NOW_MS + at * 60_000, reason=reason),))
        for at, reason in reasons
    ]
    closed = [listed(index, closed=True) for index in (1, 2, 3, 4)]
    found = grouped(look(*closed, *holding_, policy=CONTINUE))
    assert [one.shards for one in found] == [(shard(1), shard(2), shard(3)), (shard(4),)]
    assert found[0].explanation.shard_id == shard(3)
