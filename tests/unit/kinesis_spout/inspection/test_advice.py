"""What an explanation asks for: short, without doubles, in the order in which a person does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.inspection.cause import Act, Advice, Cause, Explanation
from kinesis_spout.inspection.explanation import explain
from state.owner.run_log import FAILED, FULL, STOPPED, Hold, RunEnd
from state.position import SHARD_END
from state.report import ReportStatus
from state.shard_state import TIMED_OUT
from state.state_store import OperatorMove, OwnerView
from state.task_log import TaskLog
from state.tracker.inflight_record_tracker import UNANSWERED
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
    spout_task,
    state,
    task,
)
from tests.unit.kinesis_spout.inspection.test_causes import CONTINUE, spout_look

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look
    from state.position import Position

ONE = listed(1)
BEHIND = {1: behind(60_000)}
HERE = state(1, after(9))
CORRECT = "correct what fails with 'no rates'"
SEE = "see the record"
IN_ORDER = run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=STOPPED),))
VANISHED = run_log(60_000)


def deeds(seen: Look) -> list[str]:
    return [one.text for one in explain(seen, shard(1)).advice()]


def holding(reason: str = "no rates", **stored: Any) -> Look:
    """A shard that is behind, and holds a failed record."""
    held = state(1, after(9), unresolved=(failed(3, reason=reason),))
    return look(ONE, held, tips=BEHIND, policy=CONTINUE, **stored)


def in_a_loop(**stored: Any) -> Look:
    """A process that runs, and is the fourth that was started within a minute."""
    log = run_log(35_000, 25_000, 15_000, 5_000)
    owner = OwnerView(None, log.runs[-1].owner)
    return look(ONE, state(1, after(9)), log=log, owners=(owner,), tips=BEHIND, **stored)


# the order --------------------------------------------------------------------------------------
def test_what_fails_is_corrected_before_the_job_is_started() -> None:
    """Else its records fail again."""
    assert deeds(holding(owners=(), log=IN_ORDER))[:3] == [CORRECT, SEE, "start the job"]
    vanished = deeds(holding(owners=(), log=VANISHED))
    assert vanished.index(CORRECT) < vanished.index("start the job")


@pytest.mark.parametrize("position", [SHARD_END, after(9)])
def test_of_a_stopped_job_whose_records_fail_both_are_told(position: Position) -> None:
    """Also where nothing but these records is left of the shard."""
    held = state(1, position, unresolved=(failed(3),))
    for log in (IN_ORDER, VANISHED):
        seen = look(ONE, held, owners=(), log=log, tips={1: AT_TIP}, policy=CONTINUE)
        told = [one for one in deeds(seen) if one != SEE]
        assert told[:2] == [CORRECT, "start the job"]
        assert "'no rates'" in " ".join(one.says for one in explain(seen, shard(1)).causes)


def test_of_a_paused_job_whose_records_fail_what_fails_is_corrected_first() -> None:
    held = state(1, SHARD_END, unresolved=(failed(3),))
    seen = look(ONE, held, paused=True, policy=CONTINUE)
    assert deeds(seen) == [CORRECT, "end the pause when its reason is over"]


def test_what_fails_is_corrected_before_a_batch_is_waited_for() -> None:
    held = state(1, after(9), unresolved=(failed(3, due_ms=NOW_MS - 1),))
    read = plan(task(slice_of(held), log=TaskLog(sealed=True)), report=ReportStatus.DONE)
    found = deeds(look(ONE, held, plan=read, policy=CONTINUE, tips=BEHIND))
    assert found.index(CORRECT) < found.index("wait for its end")


def test_a_vanished_shard_is_looked_at_again_before_the_job_is_started() -> None:
    found = deeds(look(state(1, after(5)), owners=(), log=IN_ORDER))
    assert found[0] == "look again in a minute"
    assert found[1].startswith("if it stays so")
    assert found[-2] == "start the job"


def test_within_a_cause_the_order_is_that_of_its_rule() -> None:
    """What comes behind waiting is for those who have waited."""

    def asks(kind: str, *acts: Act) -> Cause:
        told = tuple(Advice(act, f"{kind} {act}") for act in acts)
        return Cause(kind=kind, about="0", says="-", advice=told)

    link, root = asks("link", Act.LOOK), asks("root", Act.WAIT, Act.CHANGE)
    found = [one.text for one in Explanation("0", (link, root)).advice()]
    assert found == ["link look", "root wait", "root change"]
    link, root = asks("link", Act.CHANGE), asks("root", Act.START, Act.LOOK)
    found = [one.text for one in Explanation("0", (link, root)).advice()]
    assert found == ["link change", "root start", "root look"]


def test_an_alternative_stays_with_its_deed() -> None:
    one = Cause(kind="a", about="0", says="-", advice=(Advice(Act.START, "start it"),))
    two = Cause(
        kind="b",
        about="0",
        says="-",
        advice=(Advice(Act.CHANGE, "correct it"), Advice(Act.WAIT, "or, if so: wait")),
    )
    found = [each.text for each in Explanation("0", (two, one)).advice()]
    assert found == ["correct it", "or, if so: wait", "start it"]


# no doubles -------------------------------------------------------------------------------------
def test_a_job_is_started_again_by_one_arrow() -> None:
    """Errors of ours may end with it."""
    says = "the sink failed, so nothing is acked; repair the sink, and start the query again"
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    ended = look(ONE, state(1, after(5)), owners=(), log=run_log(60_000, ends=(end,)), tips=BEHIND)
    assert deeds(ended)[:2] == ["repair the sink", "start it again after that"]
    log = run_log(60_000, 40_000, 20_000, ends=(end, end, end))
    loop = look(ONE, state(1, after(5)), owners=(), log=log, tips=BEHIND)
    assert deeds(loop)[0] == "repair the sink; to start it again alone does not help"


def test_an_error_that_asks_for_a_start_alone_is_told_by_one_arrow_too() -> None:
    says = "its log cannot be replaced; start the query again, which delivers the records again"
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    ended = look(ONE, state(1, after(5)), owners=(), log=run_log(60_000, ends=(end,)), tips=BEHIND)
    assert sum("again" in one for one in deeds(ended)) == 1
    log = run_log(60_000, 40_000, 20_000, ends=(end, end, end))
    loop = look(ONE, state(1, after(5)), owners=(), log=log, tips=BEHIND)
    assert deeds(loop)[0] == "mend what that error names; to start it again alone does not help"


def test_at_the_limit_of_unresolved_records_what_fails_is_named_once() -> None:
    held = state(1, after(5), unresolved=(failed(3, due_ms=NOW_MS - 1),))
    found = deeds(look(ONE, held, tips=BEHIND, policy=CONTINUE))
    assert found[0] == CORRECT
    assert not any("mend what they fail" in one for one in found)


def test_nobody_waits_for_a_batch_of_a_job_that_ends_again_and_again() -> None:
    """Its end is what is to be mended. The batch is told all the same."""
    read = plan(task(slice_of(HERE), log=TaskLog(sealed=True)), report=ReportStatus.DONE)
    seen = in_a_loop(plan=read, policy=CONTINUE)
    assert [one.kind for one in explain(seen, shard(1)).causes] == [
        "not read",
        "crash loop",
        "reported",
    ]
    assert not any("wait" in one for one in deeds(seen))
    assert "job's own log" in deeds(seen)[0]
    assert not any("wait" in one for one in deeds(in_a_loop()))


def test_in_a_search_the_workers_are_looked_at_by_one_arrow() -> None:
    read = plan(task(slice_of(HERE), log=TaskLog(sealed=True)), delivery_limit=4)
    found = deeds(in_a_loop(plan=read, policy=CONTINUE))
    assert "wait until the search is over" in found
    assert sum("worker" in one.lower() for one in found) == 1


def test_a_program_that_does_not_answer_is_looked_at_by_one_arrow() -> None:
    held = failed(3, reason=TIMED_OUT)
    seen = spout_look(
        held, tip=behind(60_000), max_pending=10, hold=Hold(kind=FULL, since_ms=NOW_MS - 9_000)
    )
    assert sum("program" in one for one in deeds(seen)) == 1


def test_nobody_waits_for_two_things() -> None:
    """What the root waits for is over last."""
    move = OperatorMove(
        time_ms=NOW_MS - 30_000,
        cause="rewind",
        back=frozenset({shard(1)}),
    )
    seen = look(ONE, HERE, tips=BEHIND, move=move)
    assert explain(seen, shard(1)).causes[0].kind == "set back"
    assert sum(one.startswith("wait") for one in deeds(seen)) == 1


def test_a_letter_is_waited_for_before_the_log_is_read() -> None:
    spent = failed(3, attempts=4, due_ms=NOW_MS - 1)
    seen = look(ONE, state(1, SHARD_END, unresolved=(spent,)), policy=CONTINUE)
    acts = [one.act for one in explain(seen, shard(1)).advice()]
    assert acts == [Act.WAIT, Act.LOOK, Act.LOOK]


# short ------------------------------------------------------------------------------------------
def test_records_that_hold_nothing_are_not_to_be_given_up() -> None:
    """More is to be read, and it is not they that hold it: they get their retries meanwhile."""
    found = deeds(holding(owners=(), log=IN_ORDER))
    assert found[:3] == [CORRECT, SEE, "start the job"]


def test_a_record_whose_process_ended_is_not_to_be_corrected() -> None:
    """Nothing is known against it: the process may have been killed."""
    held = state(1, SHARD_END, unresolved=(failed(3, reason=UNANSWERED),))
    owner: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
    found = deeds(look(ONE, held, **owner))
    assert found[0].startswith("wait until")
    assert not any("correct what fails" in one for one in found)
    often = state(1, SHARD_END, unresolved=(failed(3, reason=UNANSWERED, attempts=2),))
    found = deeds(look(ONE, often, **owner))
    assert found[0].startswith("see whether the record ends the process that gets it")


def test_the_deed_that_an_error_asks_for_is_told_once() -> None:
    """As an arrow, not in the error too. Of a loop, so are the ends without a word."""
    end = RunEnd(
        time_ms=NOW_MS,
        kind=FAILED,
        says="no letter is written (refused); repair the sink, and start the query again",
    )
    once = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(end,)), tips=BEHIND)
    says = explain(once, shard(1)).root.says
    assert "with: no letter is written (refused)" in says
    assert "repair the sink" not in says
    assert deeds(once)[0] == "repair the sink"
    loop = run_log(80_000, 60_000, 40_000, ends=(end, None, end))
    told = explain(look(ONE, HERE, owners=(), log=loop, tips=BEHIND), shard(1)).root.says
    assert told.endswith(
        "but for one without a word, each time with: no letter is written (refused)"
    )


def test_what_is_lost_is_told_by_its_arrival_and_one_command_accepts_all_of_it() -> None:
    """A job names all of it in its error, and reads nothing until all of it is accepted."""
    old = {"verified_until_ms": NOW_MS - 26 * HOUR_MS}
    seen = look(
        listed(1),
        listed(2),
        listed(3),
        state(1, after(9), **old),
        state(2, after(9), **old),
        state(3, after(9)),
        state(4, after(9), **old),  # it has vanished
        owners=(),
    )
    command = ["checkpoint", "set"]
    for index in (1, 2, 4):
        command += ["--shard", shard(index)]
    command += ["--to", "TRIM_HORIZON", "--allow-skip"]
    for index in (1, 4):
        explained = explain(seen, shard(index))
        assert list(next(one for one in explained.advice() if one.arguments).arguments) == command
        arrived = "that arrived from 2027-01-14 06:00:00 to 2027-01-14 08:00:00"
        assert arrived in explained.causes[0].says
