"""Situations that an operator must tell from the answer alone: its cause, and what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.inspection.cause import Act
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import Health, Look, TipAnswer
from kinesis_spout.inspection.job_rules import MAX_UNRESOLVED
from kinesis_spout.inspection.owner_rules import OTHER_CONSUMERS
from kinesis_spout.inspection.status import (
    move_sentence,
    owners_sentence,
    plan_sentence,
    status_of,
    unresolved_sentence,
    verdict_sentence,
    waits_sentence,
)
from kinesis_spout.inspection.wording import moment
from kinesis_spout.spout.config import SpoutConfig
from spark_job.options import OPTIONS
from state.owner.owner_info import Sight
from state.owner.run_log import DONE, FAILED, FULL, STOPPED, Hold, RefusedLetters, RunEnd, Throttle
from state.plan import PlanStatus
from state.position import SHARD_END
from state.report import OnFailure, OutcomePolicy, PlanReport, ReportStatus
from state.shard_state import TIMED_OUT
from state.state_store import OperatorMove, TaskShare
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
    BEGAN_MS,
    HOUR_MS,
    NOW_MS,
    OWNER,
    RECREATED,
    after,
    behind,
    failed,
    listed,
    look,
    plan,
    read_of,
    run_log,
    shard,
    slice_of,
    spout_task,
    state,
    task,
)
from tests.unit.kinesis_spout.inspection.test_causes import IN_FLIGHT, REFUSED, TABLE, spout_look

if TYPE_CHECKING:
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

ONE = listed(1)
BEHIND = {1: behind(HOUR_MS)}
BLOCK_KEY = OutcomePolicy(on_failure=OnFailure.BLOCK_KEY)
BLOCK_SHARD = OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD)
DENIED = (
    "GetRecords failed for shard shardId-000000000001 of stream orders in eu-west-1 "
    "(KMSDisabledException: the key is disabled); enable the KMS key that the stream is encrypted "
    "with"
)
# What a deed begins with, after `first`, `or` and a condition.
VERBS = frozenset(
    {"wait", "start", "end", "see", "read", "compare", "correct", "mend", "raise", "give", "set"}
    | {"put", "stop", "remove", "look", "enable", "explain", "make", "let", "if"}
)


def said(seen: Look, index: int = 1) -> str:
    return " / ".join(cause.says for cause in explain(seen, shard(index)).causes)


def deeds(seen: Look, index: int = 1) -> list[str]:
    return [one.text for one in explain(seen, shard(index)).advice()]


def held_by_key(*keys: str) -> Look:
    """The first record of each key fails, and nine more wait behind."""
    heads = [failed(at + 1, key=key) for at, key in enumerate(keys)]
    waiting = [
        failed(at + 10, key=keys[0], blocked=True, attempts=0, reason=None) for at in range(9)
    ]
    return look(
        ONE,
        state(1, after(50), unresolved=(*heads, *waiting)),
        policy=BLOCK_KEY,
        tips={1: AT_TIP},
    )


def test_of_a_paused_application_without_a_process_both_are_said() -> None:
    """Each alone keeps it from reading."""
    stopped = run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=STOPPED),))
    for stored in (
        {"owners": (), "log": run_log(60_000)},
        {"owners": (), "log": stopped},
        {"owners": ()},
        {"log": run_log(HOUR_MS), "sight": Sight.GONE},
        {"owners": (spout_task(0, 2),), "total_tasks": 2},
    ):
        seen = look(ONE, HERE, tips=BEHIND, paused=True, **stored)
        assert "the application is paused by ann" in said(seen)
        assert "besides, no process is there" in said(seen)
        first, second, *_ = explain(seen, shard(1)).advice()
        assert (first.act, second.act) == (Act.RESUME, Act.START)
    runs = look(ONE, HERE, tips=BEHIND, paused=True)
    assert [one.act for one in explain(runs, shard(1)).advice()] == [Act.RESUME]


@pytest.mark.parametrize("ages_ms", [(60_000,), (60_000, 40_000, 20_000)])
def test_of_a_job_that_ends_without_a_word_its_own_log_is_read_first(
    ages_ms: tuple[int, ...],
) -> None:
    """Nothing but a tracked function tells its error."""
    read = plan(task(slice_of(HERE), log=TaskLog(sealed=True)))
    stored: dict[str, Any] = {"owners": (), "log": run_log(*ages_ms), "tips": BEHIND, "plan": read}
    plain = look(ONE, HERE, **stored)
    assert "the batch of plan 7-ab was read, and was with its sink" in said(plain)
    assert said(plain).index("function raised an error") < said(plain).index("kill -9")
    looks = [one.text for one in explain(plain, shard(1)).advice() if one.act is Act.LOOK]
    assert "the job's own log: the exception of its sink or function" in looks[0]
    assert "OOM killer" in looks[1]
    tracked = look(ONE, HERE, policy=BLOCK_KEY, **stored)
    assert "raised an error" not in said(tracked)
    assert "its query was stopped, its driver was killed" in said(tracked)
    assert "a record of the batch ended its Python worker" in said(tracked)
    looks = [one.text for one in explain(tracked, shard(1)).advice() if one.act is Act.LOOK]
    assert "Python worker crashed" in looks[0]
    assert "OOM killer" in looks[1]


def test_records_without_an_answer_ask_for_the_program_not_for_the_records() -> None:
    """It hangs, is slower than its timeout, or forgets them: nothing is wrong with the records."""
    seen = spout_look(failed(3, reason=TIMED_OUT), tip=behind(60_000))
    first, *others = explain(seen, shard(1)).advice()
    assert "--message-timeout" in first.text
    assert "hangs" in first.text
    assert "did not answer within its timeout" in said(seen)
    assert not any("correct what fails" in one.text for one in others)


def test_a_task_that_has_read_nothing_is_said_to_be_throttled_where_its_shard_is() -> None:
    throttled = {shard(1): Throttle(count=7, last_ms=NOW_MS - 5_000)}
    seen = look(
        ONE,
        HERE,
        plan=plan(task(slice_of(HERE))),
        tips=BEHIND,
        log=run_log(HOUR_MS, throttled=throttled),
    )
    assert "has read nothing yet; the service throttled it: 7 reads were refused" in said(seen)
    assert any(one.text == OTHER_CONSUMERS for one in explain(seen, shard(1)).advice())


def test_in_an_outage_no_record_is_to_be_given_up_or_put_back() -> None:
    """Nothing is wrong with the records."""
    for tips in (BEHIND, {1: AT_TIP}):
        seen = look(
            ONE,
            state(1, after(9), unresolved=(failed(3), failed(4, due_ms=NOW_MS - 1))),
            tips=tips,
            policy=BLOCK_KEY,
            plan=plan(
                status=PlanStatus.SETTLED,
                report=ReportStatus.DONE,
                outcomes=PlanReport(outage=True),
            ),
        )
        advice = explain(seen, shard(1)).advice()
        assert [one.act for one in advice] == [Act.CHANGE, Act.WAIT]
        assert not any(one.arguments for one in advice)


def test_of_a_stream_that_was_created_again_all_shards_are_told_one_advice() -> None:
    other = RECREATED
    seen = look(ONE, listed(2), HERE, state(2, after(5)), identity=other)
    refused = replace(seen, unanswered={shard(2): "no such number; kinesis-spout checkpoint set"})
    (group,) = grouped(refused)
    assert group.shards == (shard(1), shard(2))
    assert group.explanation.advice()[0].command == "reset"
    headline = verdict_sentence(status_of(refused))
    assert headline == "its state belongs to a stream that had this name before"


def test_the_headline_says_how_far_behind_and_which_retries_nobody_makes() -> None:
    two = (ONE, listed(2), HERE, state(2, after(5)))
    before = (state(1, after(1)), state(2, after(1)))
    seen = look(*two, before=before, tips={1: behind(60_000), 2: behind(HOUR_MS)})
    assert verdict_sentence(status_of(seen)) == "2 of 2 shards are up to 60 min behind"
    overdue = look(ONE, state(1, after(5), unresolved=(failed(3, due_ms=1),)), tips={1: AT_TIP})
    assert verdict_sentence(status_of(overdue)) == (
        "1 of 1 shard holds records that are due, and are not tried again"
    )


@pytest.mark.parametrize(
    ("says", "deed"),
    [
        (
            "(User: u is not authorized to perform: kinesis:GetRecords on resource: x); allow y",
            "allow kinesis:GetRecords to the role or user of the job (IAM)",
        ),
        ("the disk is full; set path to another one", "set path to another one"),
        ("OSError: No space left", "mend what that error names"),
    ],
)
def test_the_deed_that_an_error_names_is_the_arrow(says: str, deed: str) -> None:
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    seen = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(end,)), tips=BEHIND)
    assert deeds(seen)[:2] == [deed, "start it again after that"]
    loop = run_log(60_000, 40_000, 20_000, ends=(end, end, end))
    again = look(ONE, HERE, owners=(), log=loop, tips=BEHIND)
    assert deeds(again)[0] == f"{deed}; to start it again alone does not help"


def test_what_is_advised_above_is_not_advised_again_in_other_words() -> None:
    lost = RunEnd(time_ms=NOW_MS, kind=FAILED, says="lost; set option failOnDataLoss to false")
    old = state(1, after(5), verified_until_ms=NOW_MS - 30 * HOUR_MS)
    log = run_log(60_000, ends=(lost,))
    found = deeds(look(ONE, old, owners=(), log=log, tips=BEHIND, plan=plan()))
    assert sum("failOnDataLoss" in one for one in found) == 1
    assert "start it again after that" in found
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=DENIED)
    denied = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(end,)))
    found = deeds(replace(denied, refused=DENIED))
    assert sum("enable the KMS key" in one for one in found) == 1


# records that fail ------------------------------------------------------------------------------
def test_records_that_wait_behind_a_failed_one_are_not_said_to_fail() -> None:
    one, two = said(held_by_key("a")), said(held_by_key("a", "b"))
    assert ": 1 record failed (record 1 is on attempt 2 of 4" in one
    assert "); 9 others wait behind its key, and did not fail" in one
    assert ": 2 records failed (record 1 is" in two
    assert "9 others wait behind their keys" in two
    found = status_of(held_by_key("a"))
    assert unresolved_sentence(found).startswith(
        "10 records not acked (1 failed, 9 wait behind them), the oldest failed first"
    )


def test_records_that_wait_behind_one_of_their_shard_wait_behind_it() -> None:
    held = (failed(1), failed(2, blocked=True, attempts=0, reason=None))
    seen = look(ONE, state(1, after(5), unresolved=held), policy=BLOCK_SHARD, tips=BEHIND)
    assert "; 1 other waits behind it, and did not fail" in said(seen)


def test_a_record_that_is_out_with_the_program_is_said_to_be_out_since_when() -> None:
    """As far as the history or the look itself tells."""
    stored: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
    held = state(1, SHARD_END, unresolved=(IN_FLIGHT,))
    looked = look(ONE, held, **stored)
    assert f"it is out since {moment(BEGAN_MS, NOW_MS)} or earlier (10 s at least)" in said(looked)
    recorded = look(ONE, held, held_since_ms={shard(1): NOW_MS - HOUR_MS}, **stored)
    assert f"out since {moment(NOW_MS - HOUR_MS, NOW_MS)} or earlier (60 min" in said(recorded)
    fresh = look(ONE, held, before=(state(1, after(5)),), **stored)
    assert "out since" not in said(fresh)
    assert "message_timeout_s or --message-timeout" in deeds(looked)[1]
    both = look(ONE, state(1, SHARD_END, unresolved=(IN_FLIGHT, failed(7))), **stored)
    assert "; 1 of them failed (record 7 is on attempt 2, due" in said(both)
    assert "correct what fails with 'no rates'" in deeds(both)


@pytest.mark.parametrize(
    ("stored", "option"),
    [
        ({"policy": OutcomePolicy()}, "maxUnresolvedPerShard"),
        ({"owners": (spout_task(0, 1),), "total_tasks": 1}, "max_unresolved_per_shard"),
    ],
)
def test_the_limit_of_unresolved_records_is_named_where_nothing_new_is_read(
    stored: dict[str, Any], option: str
) -> None:
    held = tuple(failed(number, due_ms=NOW_MS - 1) for number in (1, 2))
    seen = look(ONE, state(1, after(5), unresolved=held), tips=BEHIND, **stored)
    root = explain(seen, shard(1)).root
    assert root.kind == "unresolved limit"
    assert "reads nothing new of it, while 2 records are not acked" in root.says
    assert f"may be reached ({option}, 100,000 unless set" in root.says
    full = failed(1, count=MAX_UNRESOLVED)
    reached = look(ONE, state(1, after(5), unresolved=(full,)), tips=BEHIND, **stored)
    assert "limit of unresolved records is reached" in said(reached)


@pytest.mark.parametrize("tip", [behind(1_000), behind(HOUR_MS)])
def test_letters_that_are_refused_are_the_cause_of_what_a_spout_holds(tip: TipAnswer) -> None:
    """Also where they leave no room for new records."""
    held = failed(3, attempts=4, due_ms=NOW_MS - 9_000)
    seen = spout_look(held, refused_letters=REFUSED, tip=tip, max_unresolved_per_shard=1)
    told = "4 records whose retries are used up cannot be dead-lettered: dead_letter refuses"
    assert told in said(seen)
    assert "with: FileNotFoundError: no /mnt;" in said(seen)
    assert deeds(seen)[0].startswith("correct dead_letter")
    assert not any("skip" in " ".join(one.arguments) for one in explain(seen, shard(1)).advice())
    waits = spout_look(failed(3), refused_letters=REFUSED)
    assert "dead-lettered" not in said(waits), "its retries are not used up"


def test_a_spout_that_reads_all_that_comes_is_not_said_to_be_kept_from_reading() -> None:
    """Only its retry is overdue."""
    told = said(spout_look(failed(3, due_ms=NOW_MS - 20_000)))
    assert "is read as fast as records come" in told
    assert "what is due was not seen to be tried again" in told
    assert "other consumers" not in told


def test_the_attempts_of_a_spout_are_counted_up_to_its_limit() -> None:
    assert "is on attempt 2 of 4, due" in said(spout_look(failed(3)))
    assert "failed 4 times" in said(spout_look(failed(3, attempts=4)))


def test_the_limit_of_unresolved_records_that_a_job_told_is_named() -> None:
    held = (failed(1, due_ms=NOW_MS - 1), failed(2, due_ms=NOW_MS - 1))
    reached = spout_look(*held, tip=behind(HOUR_MS), max_unresolved_per_shard=2)
    assert "limit of unresolved records is reached (max_unresolved_per_shard, 2)" in said(reached)
    far = spout_look(*held, tip=behind(HOUR_MS), max_unresolved_per_shard=100)
    assert explain(far, shard(1)).root.kind == "not to be seen"


def test_the_default_limit_is_that_of_both_consumers() -> None:
    assert SpoutConfig(stream="orders").max_unresolved_per_shard == MAX_UNRESOLVED
    assert OPTIONS["max_unresolved_per_shard"].default == str(MAX_UNRESOLVED)


# an operator ------------------------------------------------------------------------------------
SET = OperatorMove(cause="set", time_ms=NOW_MS - 60_000, back=frozenset({shard(1)}))


def test_what_an_operator_has_set_back_is_said_to_be_meant() -> None:
    """Until it has caught up."""
    now = state(1, after(9), verified_until_ms=NOW_MS - HOUR_MS)
    before = (state(1, after(5), verified_until_ms=NOW_MS - 2 * HOUR_MS),)
    seen = look(ONE, now, before=before, tips=BEHIND, move=SET)
    assert [one.kind for one in explain(seen, shard(1)).causes] == ["set back", "catching up"]
    assert (
        f"was set back at {moment(SET.time_ms, NOW_MS)} by `kinesis-spout checkpoint set`, and "
        "reads again" in said(seen)
    )
    assert "on purpose" in said(seen)
    assert move_sentence(seen) == (
        f"shard 1 was set back at {moment(SET.time_ms, NOW_MS)} by `kinesis-spout checkpoint set`, "
        "and has not caught up since"
    )
    over = look(ONE, now, before=before, tips={1: behind(30_000)}, move=SET)
    other = look(ONE, now, before=before, tips=BEHIND, move=replace(SET, back=frozenset()))
    for one in (over, other):
        assert "set back" not in said(one)
        assert move_sentence(one) is None


def test_what_is_set_back_and_not_read_leads_on_to_why() -> None:
    now = state(1, after(5), verified_until_ms=NOW_MS - HOUR_MS)
    seen = look(ONE, now, tips=BEHIND, move=SET, owners=())
    kinds = [one.kind for one in explain(seen, shard(1)).causes]
    assert kinds == ["set back", "not read", "no owner"]


# runs that end by themselves --------------------------------------------------------------------
def over(*ages_ms: int, says: str | None = None, **fields: Any) -> dict[str, Any]:
    """Runs that began so long ago, and each of which ended in order 10 s later."""
    ends = tuple(
        RunEnd(time_ms=NOW_MS - age_ms + 10_000, kind=DONE, says=says) for age_ms in ages_ms
    )
    return {"owners": (), "log": run_log(*ages_ms, ends=ends, **fields)}


def test_what_came_after_a_run_that_ended_in_order_waits_for_the_next_one() -> None:
    """That is no failure: `status` ends with 0. What to do is to start it again."""
    settled = plan(status=PlanStatus.SETTLED, until_ms=NOW_MS - 2 * HOUR_MS)
    seen = look(ONE, state(1, after(5)), tips=BEHIND, plan=settled, **over(2 * HOUR_MS))
    found = status_of(seen)
    assert found.verdict is Health.LAGGING
    assert (
        verdict_sentence(found)
        == "1 of 1 shard waits for the next run: the last one ended in order"
    )
    ended = moment(NOW_MS - 2 * HOUR_MS + 10_000, NOW_MS)
    assert owners_sentence(seen).endswith(
        f"; the last run read all that it was to, and ended in order at {ended}"
    )
    assert (
        "no process runs now: the last run (an AvailableNow run, begun at "
        f"{moment(NOW_MS - 2 * HOUR_MS, NOW_MS)}) read all that "
        f"came up to {moment(NOW_MS - 2 * HOUR_MS, NOW_MS)}, and ended in order at {ended}; the "
        "next run reads what came since"
    ) in said(seen)
    see, start = deeds(seen)
    assert see.startswith("see that its next run is scheduled")
    assert start == "start the job again when its next run is due: it reads on from here"


def test_a_run_that_ended_in_order_with_nothing_newer_is_ok_and_leaves_nothing_to_do() -> None:
    seen = look(ONE, state(1, after(5)), tips={1: AT_TIP}, **over(2 * HOUR_MS, kind="spout"))
    assert status_of(seen).verdict is Health.OK
    assert (
        "(a run that was to end, as by --until, begun at 06:00:00) read all that there was"
        in said(seen)
    )
    assert deeds(seen) == ["nothing to do until its next run is due"]


def test_records_that_a_run_leaves_for_the_next_one_are_told_and_are_no_failure() -> None:
    overdue = failed(3, due_ms=NOW_MS - HOUR_MS)
    left = over(2 * HOUR_MS, says="it left 1 record to be retried")
    seen = look(ONE, state(1, after(5), unresolved=(overdue,)), tips={1: AT_TIP}, **left)
    assert status_of(seen).verdict is Health.LAGGING
    assert "; it left 1 record to be retried; the next run reads what came since" in said(seen)


def test_a_run_that_should_have_come_again_is_missed() -> None:
    """As far as those before tell: three at least."""
    for ages_ms, verdict in (
        ((4 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS), Health.STALLED),
        ((6 * HOUR_MS, 4 * HOUR_MS, 2 * HOUR_MS), Health.LAGGING),
        ((3 * HOUR_MS, 2 * HOUR_MS), Health.LAGGING),
    ):
        seen = look(ONE, state(1, after(5)), tips=BEHIND, **over(*ages_ms))
        assert status_of(seen).verdict is verdict
        assert ("overdue: the runs before began within 60 min" in said(seen)) == (
            verdict is Health.STALLED
        )


def test_a_run_whose_session_lasts_for_a_moment_more_is_over_too() -> None:
    ended = over(HOUR_MS)["log"]
    seen = look(ONE, state(1, after(5)), tips=BEHIND, log=ended, sight=Sight.GONE)
    assert status_of(seen).verdict is Health.LAGGING
    assert [one.kind for one in explain(seen, shard(1)).causes] == ["not read", "run over"]


def test_of_a_run_that_died_it_is_not_said_that_it_ended_in_order() -> None:
    for log in (run_log(HOUR_MS), run_log(HOUR_MS, ends=(RunEnd(time_ms=NOW_MS, kind=FAILED),))):
        seen = look(ONE, state(1, after(5)), tips=BEHIND, owners=(), log=log)
        assert status_of(seen).verdict is Health.STALLED
        assert "in order" not in said(seen)
    assert "ended with an error at" in owners_sentence(seen)


def test_what_nobody_reads_is_not_said_to_be_read_as_fast_as_it_comes() -> None:
    """Records came while it was looked, and no process runs."""
    just = {1: behind(1_000)}
    stopped = run_log(HOUR_MS, ends=(RunEnd(time_ms=NOW_MS, kind=STOPPED),))
    seen = look(ONE, state(1, after(5)), tips=just, owners=(), log=stopped)
    assert "as fast as" not in said(seen)
    assert deeds(seen)[0] == "start the job"
    idle = look(ONE, state(1, after(5)), tips={1: AT_TIP}, owners=(), log=stopped)
    assert deeds(idle) == ["nothing to do for what came so far; start the job to read what comes"]


# the service ------------------------------------------------------------------------------------
def test_a_refusal_of_the_service_is_the_cause_and_comes_before_starting_the_job() -> None:
    """The job has ended because of it."""
    seen = replace(look(ONE, state(1, after(5)), owners=()), refused=DENIED)
    explained = explain(seen, shard(1))
    assert [one.kind for one in explained.causes] == ["not read", "refused", "no owner"]
    assert "KMSDisabledException: the key is disabled" in explained.causes[1].says
    assert deeds(seen)[0] == "first enable the KMS key that the stream is encrypted with"
    assert explained.advice()[1].act is Act.START


def test_a_right_that_only_the_looker_lacks_is_no_cause_of_a_job_that_reads() -> None:
    denied = "GetRecords failed (AccessDeniedException); allow kinesis:GetRecords"
    moved = look(ONE, state(1, after(9)), before=(state(1, after(5)),))
    assert "refuses" not in said(replace(moved, refused=denied))


def test_shards_that_are_throttled_are_not_said_to_be_ok() -> None:
    """Others that nobody asked do not spoil the verdict."""
    parts: list[ShardInfo | ShardState] = [
        *map(listed, (1, 2, 3)),
        *(state(index, after(5)) for index in (1, 2, 3)),
    ]
    seen = replace(look(*parts, tips={1: AT_TIP}), throttled={shard(2)})
    found = status_of(seen)
    assert (found.verdict, found.not_told) == (Health.UNKNOWN, 1)
    assert verdict_sentence(found).startswith(
        "1 of 3 shards did not tell its tip: its five reads or 2 MB a second are used up "
        "(ThrottledError), by this job or by another consumer of the stream; use enhanced fan-out"
    )
    assert found.as_json()["throttled"] == 1
    stalled = replace(look(*parts, tips={1: behind(HOUR_MS)}), throttled={shard(2)})
    assert status_of(stalled).verdict is Health.STALLED


def test_a_service_that_fails_is_named_and_is_not_ok() -> None:
    why = "GetRecords failed for shard 2 (InternalFailure)"
    parts: list[ShardInfo | ShardState] = [
        *map(listed, (1, 2)),
        *(state(index, after(5), at_tip=True) for index in (1, 2)),
    ]
    seen = replace(look(*parts, tips={1: AT_TIP}), unanswered={shard(2): why})
    found = status_of(seen)
    assert (found.verdict, found.not_told, found.not_answered) == (Health.UNKNOWN, 0, 1)
    assert verdict_sentence(found) == f"1 of 2 shards did not tell its tip: {why}"
    assert found.as_json()["notAnswered"] == 1
    assert why in said(seen, 2)
    assert any("Health Dashboard" in one for one in deeds(seen, 2))


# records that a program has ---------------------------------------------------------------------
def test_it_is_not_said_that_all_is_acked_while_a_program_has_records() -> None:
    """A spout stores nothing of them. Those of a shard at its tip are all acked."""
    spout: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
    here = state(1, after(5))
    idle = status_of(look(ONE, here, tips={1: AT_TIP}, **spout))
    busy = status_of(look(ONE, here, tips=BEHIND, **spout))
    assert unresolved_sentence(idle) == "every record that was read is acked"
    assert unresolved_sentence(busy) == (
        "no failed one; those that the program has now are not stored"
    )
    log = run_log(
        HOUR_MS, kind="spout", max_pending=10, hold=Hold(kind=FULL, since_ms=NOW_MS - 60_000)
    )
    full = {"log": log, "share": spout_task(0, 1).task, **spout}
    told = (
        "10 records (max_pending) out with the program, none answered since "
        f"{moment(NOW_MS - 60_000, NOW_MS)}"
    )
    assert unresolved_sentence(status_of(look(ONE, here, tips=BEHIND, **full))) == (
        f"no failed one; {told}"
    )
    failing = state(1, after(5), unresolved=(failed(3),))
    both = unresolved_sentence(status_of(look(ONE, failing, tips=BEHIND, **full)))
    assert both.startswith("1 record not acked, ")
    assert both.endswith(f"; {told}")


# shards that were throttled ---------------------------------------------------------------------
def throttled(age_ms: int, count: int = 7) -> dict[str, Any]:
    told = {shard(1): Throttle(count=count, last_ms=NOW_MS - age_ms)}
    return {"log": run_log(HOUR_MS, throttled=told)}


def test_a_shard_that_was_throttled_is_told_in_a_quiet_moment_too() -> None:
    """As its consumer has told it. What to do is a matter of the other consumers."""
    told = (
        f"7 reads were refused since the job began, the last at {moment(NOW_MS - 60_000, NOW_MS)}"
    )
    here = state(1, after(5))
    stands = look(ONE, here, tips=BEHIND, **throttled(60_000))
    moved = look(ONE, state(1, after(9)), before=(here,), tips=BEHIND, **throttled(60_000))
    idle = look(ONE, here, tips={1: AT_TIP}, **throttled(60_000))
    for seen in (stands, moved, idle):
        assert told in said(seen)
        assert "see who else reads the stream" in deeds(seen)[0]
    assert explain(stands, shard(1)).root.kind == "throttled"


def test_what_was_throttled_before_the_backlog_came_is_not_its_cause() -> None:
    here = state(1, after(5))
    for tips in ({1: behind(60_000)}, {1: AT_TIP}):
        assert "throttle" not in said(look(ONE, here, tips=tips, **throttled(30 * 60_000)))
    assert "throttled it" in said(look(ONE, here, tips=BEHIND, **throttled(30 * 60_000)))


def test_a_task_tells_of_throttling_before_its_batch_is_settled() -> None:
    here = state(1, after(5))
    log = TaskLog(entries=(read_of(1, 0, throttled=3),))
    seen = look(ONE, here, tips=BEHIND, plan=plan(task(slice_of(here), log=log)))
    assert "3 reads were refused in the batch under way" in said(seen)
    assert any("see who else reads the stream" in one for one in deeds(seen))


# how fast a shard is read -----------------------------------------------------------------------
def moving(verified_before_ms: int, verified_ms: int, lag_ms: int, **fields: Any) -> Look:
    """A shard that is read on, so long behind."""
    return look(
        ONE,
        state(1, after(9), verified_until_ms=verified_ms),
        before=(state(1, after(5), verified_until_ms=verified_before_ms),),
        tips={1: behind(lag_ms)},
        **fields,
    )


def test_a_backlog_that_is_read_from_the_oldest_record_catches_up_with_an_estimate() -> None:
    """Its state has the time of the start, which is later than the records. The tips tell."""
    started_ms = NOW_MS - 60_000
    seen = moving(started_ms, started_ms, HOUR_MS)
    assert explain(seen, shard(1)).root.kind == "of unknown pace"
    was = TipAnswer(BEGAN_MS, NOW_MS - HOUR_MS - 300_000)
    timed = replace(seen, tips_before={shard(1): was})
    assert timed.speed(shard(1)) == 30
    over_ms = NOW_MS + round(HOUR_MS / 29)
    assert deeds(timed)[0] == f"wait; at this pace it is at the tip at {moment(over_ms, NOW_MS)}"


def test_a_shard_whose_times_are_stored_late_is_not_said_to_fall_behind() -> None:
    """The stored time moved by a second in the window, the position by much more."""
    early = NOW_MS - 2 * HOUR_MS
    assert explain(moving(early, early + 1_000, HOUR_MS), shard(1)).root.kind == "of unknown pace"
    slow = moving(NOW_MS - HOUR_MS - 1_000, NOW_MS - HOUR_MS, HOUR_MS)
    assert explain(slow, shard(1)).root.kind == "falling behind"


# a Spark driver of two processes ----------------------------------------------------------------
def test_batches_that_are_filled_to_their_limit_are_named() -> None:
    """That of a spout is max_pending, which it tells itself."""
    now = state(1, after(9), verified_until_ms=NOW_MS - 60_000)
    was = state(1, after(5), verified_until_ms=NOW_MS - 63_000)
    tips = {1: behind(60_000)}

    def told(read: int) -> tuple[str, list[str]]:
        log = TaskLog(entries=(read_of(1, read),), sealed=True)
        filled = plan(task(slice_of(was, max_records=4), log=log), status=PlanStatus.SETTLED)
        cause = explain(look(ONE, now, before=(was,), tips=tips, plan=filled), shard(1)).root
        return cause.says, [one.text for one in cause.advice]

    says, advice = told(4)
    assert "does not catch up; its batches take as many as they may, 4 records" in says
    assert advice[0].startswith("raise the limit of the batches: maxRecordsPerTrigger")
    assert "as many as they may" not in told(3)[0]


def test_a_backlog_of_what_came_at_once_is_not_said_to_grow() -> None:
    """The position moves slowly through the time of arrival, and fast through the records."""
    tips = {1: behind(60_000)}

    def says(moved_ms: int) -> str:
        now = state(1, after(9), verified_until_ms=NOW_MS - 60_000)
        before = (state(1, after(5), verified_until_ms=NOW_MS - 60_000 - moved_ms),)
        return explain(look(ONE, now, before=before, tips=tips), shard(1)).root.says

    burst, slow = says(200), says(3_000)
    assert "read what came within 200 ms in the last 10 s" in burst
    assert "came at once" in burst
    assert "does not catch up" not in burst
    assert "read what came within 3.0 s in the last 10 s: it does not catch up" in slow


def test_a_stopped_jvm_beside_its_living_python_process_is_named() -> None:
    here = state(1, after(5))
    seen = look(ONE, here, tips=BEHIND, log=run_log(HOUR_MS))
    frozen = replace(seen, now=replace(seen.now, stopped_jvms={OWNER.info: 77}))
    assert [one.kind for one in explain(frozen, shard(1)).causes] == ["not read", "JVM stopped"]
    assert "Spark's JVM (pid 77 on host-a) is stopped" in said(frozen)
    assert deeds(frozen)[0] == "let it go on: kill -CONT 77 (on host-a)"


# retention --------------------------------------------------------------------------------------
def test_the_retention_is_raised_by_one_arrow() -> None:
    lapsed = look(
        ONE,
        state(1, after(5), verified_until_ms=NOW_MS - 30 * HOUR_MS),
        tips={1: behind(23 * HOUR_MS)},
        owners=(),
    )
    assert sum("retention" in one for one in deeds(lapsed)) == 1


def test_no_record_is_said_to_expire_later_than_the_stream_keeps_any() -> None:
    """A position that is a little slower than the clock reaches far."""
    now = state(1, after(9), verified_until_ms=NOW_MS - HOUR_MS)
    before = (state(1, after(5), verified_until_ms=NOW_MS - HOUR_MS - 5_000),)
    seen = look(ONE, now, before=before, tips=BEHIND)
    assert "unread records expire in more than 24 h" in said(seen)
    # The time of verification alone has moved.
    was = state(1, after(9), verified_until_ms=NOW_MS - HOUR_MS - 5_000)
    still = look(ONE, now, before=(was,), tips=BEHIND)
    assert still.lost_in_ms(shard(1)) == 23 * HOUR_MS


def test_every_arrow_is_a_deed() -> None:
    """What is no deed stands in the text above."""
    for seen, _ in TABLE.values():
        for one in explain(seen, shard(1)).advice():
            if one.act is Act.NOTHING:
                continue
            deed = re.sub(r"^or, [^:]+: ", "", one.text)
            first = deed.removeprefix("first ").split()[0].strip(";,")
            assert first in VERBS, one.text
            if one.text.startswith("if it stays so"):
                assert one.text.removeprefix("if it stays so, ").split()[0] in {*VERBS, "the"}


def test_what_removes_the_cause_comes_first_and_an_alternative_says_when_it_is_one() -> None:
    waits = look(ONE, state(1, SHARD_END, unresolved=(failed(3),)), policy=OutcomePolicy())
    due = moment(NOW_MS + 60_000, NOW_MS)
    assert deeds(waits) == [
        "correct what fails with 'no rates'",
        "see the record",
        f"or, if a retry may cure it: wait until {due}, when it is tried again",
        (
            "or, once it is a dead letter after its last attempt: put it back (PATH: where its "
            "DeadLetter writes)"
        ),
        "or, if the record is not needed: stop the job and give the record up",
    ]
    out: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
    kept = look(ONE, state(1, SHARD_END, unresolved=(IN_FLIGHT,)), **out)
    fresh = look(
        ONE, state(1, SHARD_END, unresolved=(IN_FLIGHT,)), before=(state(1, after(2)),), **out
    )
    assert deeds(kept)[0].startswith("see why the program")
    assert deeds(fresh)[0].startswith("wait for its ack")


def test_what_a_job_stops_without_comes_before_starting_it() -> None:
    lapsed = state(1, after(5), verified_until_ms=NOW_MS - 30 * HOUR_MS)
    seen = look(ONE, lapsed, tips=BEHIND, owners=())
    retention, lossy, start, *_ = explain(seen, shard(1)).advice()
    assert "raise the stream's retention" in retention.text
    assert lossy.command == "checkpoint"
    assert start.text == "start the job"


# words of the consumer --------------------------------------------------------------------------
SPARKS = (
    "trigger",
    "foreachBatch",
    "cores",
    "maxRecords",
    "failOnDataLoss",
    "shardRefresh",
    "Spark",
)


@pytest.mark.parametrize(
    "seen",
    [
        look(ONE, owners=(spout_task(0, 1),), total_tasks=1),
        look(state(1, after(5)), owners=(spout_task(0, 1),), total_tasks=1),
        look(ONE, state(1, after(5)), tips=BEHIND, owners=(spout_task(0, 1),), total_tasks=1),
        look(
            ONE,
            state(1, after(9), verified_until_ms=NOW_MS - 60_000),
            before=(state(1, after(5), verified_until_ms=NOW_MS - 61_000),),
            tips=BEHIND,
            owners=(spout_task(0, 1),),
            total_tasks=1,
        ),
        look(ONE, state(1, after(5), verified_until_ms=NOW_MS - 30 * HOUR_MS), owners=()),
    ],
)
def test_of_a_spout_nothing_is_said_in_words_of_spark(seen: Look) -> None:
    told = f"{said(seen)} {deeds(seen)}"
    assert not [word for word in SPARKS if word in told], told


# plans ------------------------------------------------------------------------------------------
HERE = state(1, after(5))
READ = task(slice_of(HERE), log=TaskLog(entries=(read_of(1, 9),), sealed=True))


def test_beside_an_open_plan_it_is_not_said_that_all_is_acked() -> None:
    opened = status_of(look(ONE, HERE, plan=plan(READ)))
    assert unresolved_sentence(opened) == (
        "no failed one; 9 records of the batch under way are not acked yet"
    )
    settled = status_of(look(ONE, HERE, plan=plan(READ, status=PlanStatus.SETTLED)))
    assert unresolved_sentence(settled) == "every record that was read is acked"


def test_the_batch_under_way_is_told_with_its_stage() -> None:
    for fields, stage in (
        (
            {},
            (
                "all its tasks have published (9 records); its sink is writing it, or Spark has "
                "not asked for the next batch"
            ),
        ),
        (
            {"report": ReportStatus.OPEN, "openings": 1},
            ("its function was called, and has not reported"),
        ),
        (
            {"report": ReportStatus.OPEN, "openings": 3},
            ("its function was called, delivered 3 times, and has not reported"),
        ),
        ({"report": ReportStatus.DONE}, "its function has reported; it is not committed yet"),
        ({"status": PlanStatus.CLOSED}, "its outcomes are being written to the shard states"),
    ):
        told = plan_sentence(look(ONE, HERE, plan=plan(READ, **fields)))
        assert told is not None
        assert told.startswith("7-ab ")
        assert ", made 5.0 s ago: " in told
        assert told.endswith(stage)
    tracked = look(ONE, HERE, plan=plan(READ), policy=OutcomePolicy())
    assert (plan_sentence(tracked) or "").endswith("; its function has not begun")


def test_where_nothing_runs_the_stage_of_the_batch_is_told_too() -> None:
    seen = look(ONE, HERE, plan=plan(READ), tips={1: AT_TIP}, owners=())
    assert "(plan 7-ab, made 5.0 s ago: all its tasks have published (9 records)" in said(seen)


def test_an_end_that_a_hanging_batch_has_read_is_not_ok() -> None:
    """Its children wait until the batch is settled."""
    end = task(
        slice_of(HERE),
        log=TaskLog(entries=(read_of(1, 0, at_shard_end=True, tip_ms=NOW_MS),), sealed=True),
    )
    parts = (listed(1, closed=True), listed(2, 1), HERE)
    hangs = plan(end, created_ms=NOW_MS - HOUR_MS)
    assert look(*parts, plan=hangs).health(shard(2)) is Health.STALLED
    assert look(*parts, plan=hangs).health(shard(1)) is Health.STALLED
    assert look(*parts, plan=plan(end)).health(shard(1)) is Health.OK


# shards that wait -------------------------------------------------------------------------------
def test_a_parent_that_holds_its_child_is_named_and_is_as_ill_as_the_child() -> None:
    seen = look(
        listed(0, closed=True),
        listed(1, 0),
        state(0, SHARD_END, unresolved=(failed(3),)),
        state(1, after(5), 0),
        policy=BLOCK_SHARD,
        tips=BEHIND,
    )
    assert seen.health(shard(0)) is seen.health(shard(1)) is Health.STALLED
    assert seen.now.held_up == {shard(0): (shard(1),)}
    assert waits_sentence(seen) == "shard 1 waits for shard 0 to have no failed record left"


def test_a_child_that_waits_for_the_end_of_its_parent_names_it() -> None:
    parts = (listed(0, closed=True), listed(1, 0), state(0, after(1)), state(1, after(0), 0))
    seen = look(*parts, tips={0: behind(HOUR_MS)})
    assert "waits for its parent, shard 0: " in said(seen)
    assert waits_sentence(seen) == "shard 1 waits for shard 0 to be read to its end"
    assert waits_sentence(look(ONE, HERE)) is None


# what was said wrongly ---------------------------------------------------------------------------
DIED = RunEnd(time_ms=NOW_MS - 1_000, kind=FAILED, says="the disk is full; free some of it")


def test_a_job_that_died_of_an_error_is_not_ok_though_all_that_came_was_read() -> None:
    """What comes next is not read. Its session may be open for a while."""
    gone: dict[str, Any] = {"owners": (), "log": run_log(60_000, ends=(DIED,))}
    dying: dict[str, Any] = {"log": run_log(HOUR_MS, ends=(DIED,))}
    for stored in (gone, dying):
        seen = look(ONE, HERE, tips={1: AT_TIP}, **stored)
        found = status_of(seen)
        assert found.verdict is Health.STALLED
        assert verdict_sentence(found) == (
            "the last run ended with an error at 07:59:59, and no process reads 1 of 1 shard"
        )
        assert "the disk is full" in said(seen)
    again = look(ONE, HERE, tips={1: AT_TIP}, log=run_log(90_000, HOUR_MS, ends=(DIED, None)))
    assert status_of(again).verdict is Health.OK
    over = look(listed(1, closed=True), state(1, SHARD_END), **gone)
    assert status_of(over).verdict is Health.OK


def test_a_spout_whose_dead_letters_are_refused_is_not_ok_though_it_reads_all() -> None:
    refused = RefusedLetters(count=2, last_ms=NOW_MS - 1_000, says="PermissionError: letters")
    spout: dict[str, Any] = {
        "owners": (spout_task(0, 1),),
        "total_tasks": 1,
        "runs": {
            TaskShare(0, 1): run_log(HOUR_MS, kind="spout", max_attempts=4, refused_letters=refused)
        },
    }
    held = state(1, after(5), unresolved=(failed(3, attempts=4),))
    found = status_of(look(ONE, held, tips={1: AT_TIP}, **spout))
    assert found.verdict is Health.STALLED
    assert verdict_sentence(found) == (
        "1 of 1 shard holds records whose dead letters cannot be written"
    )
    waiting = state(1, after(5), unresolved=(failed(3, attempts=1),))
    assert status_of(look(ONE, waiting, tips={1: AT_TIP}, **spout)).verdict is Health.OK


def test_nothing_is_said_of_the_records_of_an_application_without_a_state() -> None:
    """As of one that is misspelt."""
    nothing = status_of(look(ONE, owners=(), pin=None))
    assert unresolved_sentence(nothing) == (
        "nothing is known of them: it has no state on this stream"
    )
    another = status_of(look(ONE, HERE, identity=RECREATED))
    assert unresolved_sentence(another) == (
        "nothing is known of them: its state belongs to a stream that had this name before"
    )
    assert unresolved_sentence(status_of(look(ONE))) == "none was read yet"


@pytest.mark.parametrize("sight", [None, Sight.GONE])
def test_outcomes_are_not_said_to_be_written_while_nothing_runs(sight: Sight | None) -> None:
    """The process of an owner may be gone, and its session open."""
    closed = plan(READ, status=PlanStatus.CLOSED)
    stored: dict[str, Any] = {"owners": ()}
    if sight is not None:
        stored = {"log": run_log(HOUR_MS), "sight": sight}
    told = plan_sentence(look(ONE, HERE, plan=closed, **stored))
    assert told is not None
    assert told.endswith(
        "it is closed, and its outcomes were not all written before its process ended"
    )
