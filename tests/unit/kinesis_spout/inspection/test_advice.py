"""What an explanation asks for: without doubles, in the order in which a person does it; and which
shards are one group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.inspection.cause import ActionKind
from kinesis_spout.inspection.explanation import explain, grouped
from state.report import ReportStatus
from state.store.ownership import ProcessState
from state.store.runs import FAILED, STOPPED, RunEnd
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
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
    state,
    task,
)
from tests.unit.kinesis_spout.inspection.test_causes import (
    BEHIND,
    CONTINUE,
    GONE,
    HERE,
    LAPSED,
    MEND,
    ONE,
    OUTAGE,
    START,
    TABLE,
    TIP,
    WAIT,
    deeds,
    ended,
    kinds,
    stood,
)

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look

SEE = "see the record"
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
        (holding(plan=READ), [MEND, WAIT]),
        (
            look(HERE, **ended(STOPPED)),
            ["look again in a minute", "set the shard to the oldest", START],
        ),
        (stood(tips={1: behind(20 * HOUR_MS)}, owners=()), ["raise the stream's ret", START]),
        (look(ONE, LAPSED, tips=BEHIND, owners=()), ["raise the stream's retention", START]),
        (stood(paused=True, **GONE), ["end the pause", START]),
        (stood(tips=TIP, paused=True), ["end the pause"]),
        (look(ONE, LAPSED, tips=BEHIND, paused=True), ["end the pause", "raise the stream's"]),
        (
            stood(paused=True, log=run_log(HOUR_MS), process=ProcessState.GONE),
            ["end the pause", "start it"],
        ),
    ],
)
def test_what_comes_first_is_done_first(seen: Look, order: list[str]) -> None:
    """What fails is corrected before its job is started, or it fails again; what may expire is
    saved before that. While the application is paused, nothing else helps.
    """
    found = deeds(seen)
    assert found[0].startswith(order[0])
    places = [next(at for at, one in enumerate(found) if one.startswith(it)) for it in order]
    assert places == sorted(places)


def test_in_an_outage_no_record_is_to_be_given_up_or_put_back() -> None:
    """Nothing is wrong with the records."""
    held = state(1, after(9), unresolved=(failed(3), failed(4, due_ms=NOW_MS - 1)))
    for tips in (BEHIND, TIP):
        actions = explain(look(ONE, held, tips=tips, **OUTAGE), shard(1)).actions()
        assert [one.kind for one in actions] == [ActionKind.CHANGE, ActionKind.WAIT]
        assert not any(one.command for one in actions)


def test_a_record_whose_letters_are_refused_is_not_to_be_given_up() -> None:
    for refused in (seen for seen, told in TABLE if "letters refused" in told):
        assert not any("skip" in one.command for one in explain(refused, shard(1)).actions())


@pytest.mark.parametrize(
    ("says", "deed"),
    [
        (
            "(User: u is not authorized to perform: kinesis:GetRecords on resource: x); allow y",
            "allow kinesis:GetRecords to the role or user of the job (IAM)",
        ),
        ("the disk is full; set path to another one", "set path to another one"),
        ("no letter is written; repair the sink, and start the query again", "repair the sink"),
        (
            "no start; restore ZooKeeper, or name it; set option failOnDataLoss to false to go on",
            "restore ZooKeeper, or name it; or, set option failOnDataLoss to false to go on",
        ),
    ],
)
def test_the_deed_that_an_error_names_is_the_arrow(says: str, deed: str) -> None:
    """Of two, the one that loses nothing comes first. In a loop, a start alone does not help."""
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    once = stood(owners=(), log=run_log(60_000, ends=(end,)))
    assert deeds(once)[:2] == [deed, "start it again after that"]
    loop = stood(owners=(), log=run_log(60_000, 40_000, 20_000, ends=(end, end, end)))
    assert deeds(loop)[0] == deed
    assert not any(one.kind is ActionKind.START for one in explain(loop, shard(1)).actions())


@pytest.mark.parametrize("seen", [seen for seen, _ in TABLE])
def test_no_deed_is_told_twice(seen: Look) -> None:
    """Nor are two starts, or two raises of the retention. Nobody waits for two things."""
    found = deeds(seen)
    kinds_of_action = [one.kind for one in explain(seen, shard(1)).actions()]
    assert kinds_of_action.count(ActionKind.WAIT) <= 1
    assert len(set(found)) == len(found)
    for begins in ("start ", "raise the stream's retention", "correct the cause", MEND):
        assert sum(one.startswith(begins) for one in found) <= 1, found


def test_one_command_accepts_all_that_is_lost() -> None:
    """A job names all of it in its error, and reads nothing until all of it is accepted."""
    old = {"verified_until_ms": NOW_MS - 26 * HOUR_MS}
    states = [state(index, after(9), **(old if index != 3 else {})) for index in (1, 2, 3, 4)]
    seen = look(*map(listed, (1, 2, 3)), *states, owners=())  # the fourth has vanished
    named = [word for index in (1, 2, 4) for word in ("--shard", shard(index))]
    for index in (1, 4):
        (command,) = (one.command for one in explain(seen, shard(index)).actions() if one.command)
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
        ((shard(2), shard(3)), ["unread", "not running"]),
        ((shard(1),), ["caught up"]),
    ]
    unknown = look(listed(1), listed(2), pin=None, owners=())
    assert [kinds(one.explanation) for one in grouped(unknown)] == [["no application"]]
