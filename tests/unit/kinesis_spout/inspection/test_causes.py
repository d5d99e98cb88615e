"""Each cause has a look in which it is the root of the chain, or a link of it, and a first deed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from kinesis_spout.inspection.explanation import explain
from kinesis_spout.inspection.health import Look, TipAnswer
from kinesis_spout.inspection.job_rules import OF_THE_JOB
from kinesis_spout.inspection.shard_rules import OF_THE_SHARD
from state.plan import PlannedRetry, PlanStatus
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure, OutcomePolicy, PlanReport, ReportStatus
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import TIMED_OUT
from state.store.history import OperatorMove
from state.store.ownership import OwnerView, ProcessState, TaskShare
from state.store.runs import (
    DEACTIVATED,
    DONE,
    FAILED,
    FULL,
    NOT_TAKEN,
    STOPPED,
    FailingReads,
    Hold,
    NoAnswers,
    NotSubscribed,
    RefusedLetters,
    RunEnd,
)
from state.store.view import NodeAccess
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    IDENTITY,
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
    snapshot,
    spout_task,
    state,
    task,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.inspection.cause import Explanation
    from state.shard_state import UnresolvedRecord

OLD = 30 * HOUR_MS  # longer ago than the stream keeps its records
CONTINUE = OutcomePolicy(retry=RetryPolicy(retry_limit=3))
BLOCK_KEY = OutcomePolicy(on_failure=OnFailure.BLOCK_KEY)
BLOCK_SHARD = OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD)
ONE, HERE = listed(1), state(1, after(5))
OPEN, LAPSED = slice_of(HERE), state(1, after(5), verified_until_ms=NOW_MS - OLD)
UNSEALED, SEALED = TaskLog(entries=(read_of(1, 0),)), TaskLog(sealed=True)
BEHIND, TIP = {1: behind(60_000)}, {1: AT_TIP}
IN_FLIGHT = failed(
    3, attempts=0, due_ms=0, first_failure_ms=None, last_failure_ms=None, reason=None
)
FAILURE = RunEnd(time_ms=NOW_MS - 20_000, kind=FAILED, says="records have expired unread")
SPOUT: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
GONE: dict[str, Any] = {"owners": (), "log": run_log(60_000)}
YOUNG: dict[str, Any] = {  # the fourth that was started within two minutes
    "owners": (OwnerView(None, structs.replace(OWNER.info, since_ms=NOW_MS - 5_000)),),
    "log": run_log(90_000, 60_000, 40_000, 5_000),
}
NOT_SUBSCRIBED = NotSubscribed(
    since_ms=NOW_MS - 60_000, says="stream orders has no consumer reader; see the others"
)
REFUSED = RefusedLetters(count=4, last_ms=NOW_MS - 3_000, says="FileNotFoundError: no /mnt")
NOBODY, ALL, ANN = frozenset[str](), frozenset({"anyone"}), frozenset({"digest ann"})
OUTAGE: dict[str, Any] = {
    "policy": CONTINUE,
    "plan": plan(
        status=PlanStatus.SETTLED, report=ReportStatus.DONE, outcomes=PlanReport(outage=True)
    ),
}
SILENT = NoAnswers(since_ms=NOW_MS - 50_000, count=304)


def stood(**stored: Any) -> Look:
    """A shard that is behind, and whose position stands."""
    return look(ONE, HERE, **({"tips": BEHIND} | stored))


def moved(before_ms: int | None, **stored: Any) -> Look:
    """A shard that is behind, and was read on from the record of that time."""
    return look(
        ONE,
        state(1, after(9), verified_until_ms=NOW_MS - 60_000),
        before=(state(1, after(5), verified_until_ms=before_ms),),
        tips=BEHIND,
        **stored,
    )


def drained(*held: UnresolvedRecord, **stored: Any) -> Look:
    """A shard that was read to its end, and holds these."""
    return look(ONE, state(1, SHARD_END, unresolved=held), **stored)


def family(parent: UnresolvedRecord, *held: UnresolvedRecord, **stored: Any) -> Look:
    """A parent that was read to its end and holds a record, and its child."""
    return look(
        listed(0, closed=True),
        listed(1, 0),
        state(0, SHARD_END, unresolved=(parent,)),
        state(1, after(9), 0, unresolved=held),
        **stored,
    )


def in_plan(log: TaskLog | None, policy: OutcomePolicy | None = None, **fields: Any) -> Look:
    """A shard that is behind, and in an open plan."""
    return stood(plan=plan(task(OPEN, log=log), **fields), policy=policy)


def held_back(kind: str, age_ms: int = 0) -> Look:
    return stood(log=run_log(HOUR_MS, hold=Hold(kind=kind, since_ms=NOW_MS - age_ms)))


def ended(how: str, **log: Any) -> dict[str, Any]:
    """A run that ended in order."""
    return {"owners": (), "log": run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=how),), **log)}


def spout_look(*held: UnresolvedRecord, tip: TipAnswer | None = None, **log: Any) -> Look:
    """A spout that keeps up with what comes, unless its tip says other, and holds these."""
    told = run_log(HOUR_MS, kind="spout", max_attempts=4, **log)
    return look(
        ONE,
        state(1, after(9), unresolved=held),
        tips={1: tip or behind(1_000)},
        share=TaskShare(0, 1),
        log=told,
        **SPOUT,
    )


def with_access(seen: Look, access: Mapping[str, NodeAccess]) -> Look:
    return replace(seen, now=replace(seen.now, access=access))


NEVER_ASKED = look(ONE, state(1, after(5), at_tip=True))
MEND, START, WAIT = "correct what fails with 'no rates'", "start the job", "wait for its end"
# A look, the chain of causes that explain it, and how the first deed begins.
TABLE: list[tuple[Look, str]] = [
    (stood(identity=RECREATED, tips={}), "another stream -> remove that state"),
    # the stream of another region
    (
        stood(identity=structs.replace(IDENTITY, arn=IDENTITY.arn.replace("eu", "us")), tips={}),
        "another stream -> look at the stream of the state: give its region",
    ),
    (
        look(ONE, pin=None, owners=()),
        "application unknown -> compare application, stream, ZooKeeper",
    ),
    (
        look(ONE, identity=None, pin=None, owners=(), reset=OWNER.info),
        "state removed -> start the job: it begins at its starting position",
    ),
    (look(ONE, pin=None), "just started -> wait for its first listing"),
    (
        look(ONE, pin=None, owners=(), log=run_log(60_000, ends=(FAILURE,))),
        "never began > run failed -> mend what that error names",
    ),
    (look(listed(2), state(2)), "unknown shard -> see the shards"),
    (look(listed(2, 1), state(2, after(1), 1)), "past -> nothing to do"),
    (drained(), "finished -> nothing to do"),
    (look(HERE), "vanished -> look again in a minute"),
    (look(ONE), "not tracked -> wait for the next listing"),
    (look(ONE, LAPSED, owners=()), "lapsed > not read > no owner -> raise the stream's retention"),
    (
        look(listed(0, closed=True), listed(1, 0), state(0), state(1, after(0), 0), owners=()),
        "waits for parents > not read > no owner -> start the job",
    ),
    (stood(tips=TIP), "idle -> nothing to do"),
    (
        stood(
            plan=plan(task(OPEN, log=TaskLog(entries=(read_of(1, 9),), sealed=True))),
            tips=TIP,
            owners=(),
        ),
        "not settled > no owner -> start the job",
    ),
    (
        in_plan(TaskLog(entries=(read_of(1, 9, at_shard_end=True, tip_ms=NOW_MS),), sealed=True)),
        "end to be settled > sink writes -> wait for its end",
    ),
    (stood(tips={1: behind(1_000)}), "healthy -> nothing to do"),
    (moved(NOW_MS - 120_000), "catching up -> wait; at this pace it is at the"),
    (moved(NOW_MS - 61_000), "falling behind -> give the job more cores"),
    (moved(None), "of unknown pace -> wait a minute and look again"),
    (
        moved(NOW_MS - 61_000, **YOUNG),
        "read between crashes > crash loop -> see the end of the job's own log",
    ),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), policy=BLOCK_SHARD, tips=BEHIND),
        "held by a record > retry waits -> correct what fails",
    ),
    (
        family(failed(3), policy=BLOCK_SHARD, tips=BEHIND),
        "held by an ancestor > retry waits -> correct what fails",
    ),
    (
        family(
            failed(3, key="k"), failed(8, key="k", due_ms=NOW_MS - 1), policy=BLOCK_KEY, tips=TIP
        ),
        "idle > order over a reshard > retry waits -> correct what fails",
    ),
    (drained(failed(3), policy=CONTINUE), "retry waits -> correct what fails"),
    (
        look(
            ONE,
            one := state(1, SHARD_END, unresolved=(failed(3, due_ms=NOW_MS - 9_000),)),
            plan=plan(
                task(
                    slice_of(
                        one,
                        max_records=0,
                        retries=(PlannedRetry(first=SequenceNumber(3), attempts=1),),
                    )
                )
            ),
        ),
        "retry under way > task not begun -> correct what fails",
    ),
    (drained(failed(3, due_ms=NOW_MS - 9_000)), "retry due > not to be seen -> correct what fails"),
    (
        drained(failed(3, attempts=4), policy=CONTINUE),
        "to be dead-lettered > not to be seen -> wait a moment and look again",
    ),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), tips=BEHIND, policy=CONTINUE),
        "not read > unresolved limit -> correct what fails",
    ),
    (
        look(ONE, HERE, state(2, SHARD_END, unresolved=(failed(3),)), tips=BEHIND, **OUTAGE),
        "not read > outage -> mend what the records are written to",
    ),
    # the runs of the job
    (stood(owners=()), "not read > no owner -> start the job"),
    (
        stood(owners=(), log=run_log(60_000, ends=(FAILURE,))),
        "not read > run failed -> mend what that error names",
    ),
    (
        stood(owners=(), log=run_log(60_000, 40_000, 20_000)),
        "not read > crash loop -> see the end of the job's own log",
    ),
    # runs that are hours apart are no loop
    (
        stood(owners=(), log=run_log(9 * HOUR_MS, 6 * HOUR_MS, 3 * HOUR_MS)),
        "not read > run vanished -> start the job",
    ),
    # run over, told
    (stood(**ended(DONE)), "not read > run over -> see that its next run"),
    (stood(**ended(STOPPED)), "not read > run stopped -> start the job"),
    (stood(**GONE), "not read > run vanished -> start the job"),
    (
        stood(process=ProcessState.RUNS, **GONE),
        "not read > cut off -> see in its log whether it reaches ZooKeeper",
    ),
    (stood(**(GONE | {"tips": TIP})), "idle, and nobody reads it > run vanished -> start the job"),
    (
        stood(log=run_log(HOUR_MS), process=ProcessState.GONE),
        "not read > process gone -> start it again",
    ),
    (
        stood(log=run_log(HOUR_MS), process=ProcessState.STOPPED),
        "not read > process stopped -> let it go on: kill -CONT 42 (on host-a)",
    ),
    (
        stood(
            plan=plan(task(OPEN), created_ms=NOW_MS - 65_000),
            log=run_log(2 * HOUR_MS, HOUR_MS, ends=(FAILURE, None)),
        ),
        "not read > failed before > task not begun -> see whether a Spark job of the batch runs",
    ),
    (
        stood(log=run_log(HOUR_MS, shards=(shard(0),))),
        "not read > shard not told -> start it again without --shard, or with this shard too",
    ),
    (stood(paused=True), "not read > paused -> end the pause"),
    (
        stood(log=run_log(HOUR_MS, trigger_ms=900_000)),
        "not read > trigger waits -> wait until 08:15:00",
    ),
    (
        stood(owners=(spout_task(0, 2),), total_tasks=2),
        "not read > task missing -> start the second of the 2 tasks (index 1)",
    ),
    # what a program does with its records
    # records that were not answered in time
    (
        spout_look(failed(3, reason=TIMED_OUT), tip=behind(60_000)),
        "not read > unresolved limit -> see what the program, or the command of --exec",
    ),
    (held_back(DEACTIVATED), "not read > deactivated -> make its program call"),
    (held_back(FULL), "not read > full -> see what the program waits for"),
    (held_back(NOT_TAKEN, 10_000), "not read > not taken -> see what the program does"),
    (
        spout_look(failed(3, attempts=4, due_ms=NOW_MS - 9_000), refused_letters=REFUSED),
        "healthy > letters refused -> correct dead_letter, or what it writes to",
    ),
    # letters refused, and no room left
    (
        spout_look(
            failed(3, attempts=4, due_ms=NOW_MS - 9_000),
            refused_letters=REFUSED,
            tip=behind(60_000),
            max_unresolved_per_shard=1,
        ),
        "not read > letters refused -> correct dead_letter, or what it writes to",
    ),
    (
        spout_look(not_subscribed=NOT_SUBSCRIBED),
        "not subscribed > healthy -> see the others; or, if it is gone",
    ),
    (drained(IN_FLIGHT, **SPOUT), "unanswered -> see why the program"),
    # an unanswered record keeps the end of a closed shard
    (
        look(
            listed(1, closed=True),
            listed(2, 1),
            state(1, after(5), unresolved=(IN_FLIGHT,)),
            state(2, TRIM_HORIZON, 1),
            tips=TIP,
            **SPOUT,
        ),
        "unanswered -> see why the program",
    ),
    (
        spout_look(tip=behind(60_000), failing_reads=FailingReads(since_ms=NOW_MS - 50_000)),
        "not read > reads fail -> see why Kinesis (it answers explain)",
    ),
    # the service refuses its reads
    (
        spout_look(
            tip=behind(60_000),
            failing_reads=FailingReads(since_ms=NOW_MS, says="no (UnrecognizedClient); check it"),
        ),
        "not read > reads fail -> check it",
    ),
    (spout_look(no_answers=SILENT), "answers none -> make the program ack or fail each record"),
    # the steps of a batch
    (in_plan(None, delivery_limit=5), "not read > search -> wait until the search"),
    (in_plan(SEALED, status=PlanStatus.CLOSED), "not read > settling -> wait for its end"),
    (in_plan(None), "not read > task not begun -> wait for its end"),
    (in_plan(UNSEALED), "not read > task runs -> wait for its end"),
    (in_plan(SEALED), "not read > sink writes -> wait for its end"),
    # sink writes, for longer than the batch before took
    (
        in_plan(SEALED, created_ms=NOW_MS - HOUR_MS, previous_ms=NOW_MS - HOUR_MS - 8_000),
        "not read > sink writes -> see in Spark's UI what the batch does",
    ),
    (in_plan(SEALED, CONTINUE), "not read > not reported -> wait for its end"),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=1),
        "not read > function runs -> wait for its end",
    ),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=3),
        "not read > unanswered batch -> wait for its end",
    ),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.DONE),
        "not read > reported -> wait for its end",
    ),
    # a batch whose reads the service fails
    (
        replace(
            in_plan(UNSEALED), unanswered={shard(1): "KMS limits it; raise the quota"}, tips={}
        ),
        "not read > task gets no answer -> raise the quota",
    ),
    # the service, and ZooKeeper
    (NEVER_ASKED, "not read > was at its tip -> explain this shard alone"),
    (
        replace(NEVER_ASKED, throttled={shard(1)}),
        "not read > throttled -> see who else reads the stream",
    ),
    # the service fails
    (
        replace(NEVER_ASKED, unanswered={shard(1): "it failed"}),
        "not read > service fails -> wait until the service answers",
    ),
    # no shard may be asked
    (
        replace(NEVER_ASKED, refused="no right to read"),
        "not read > tip not told -> give whoever looks the right to read",
    ),
    (
        replace(look(ONE, HERE, owners=()), refused="no right; give it"),
        "not read > refused > no owner -> first give it",
    ),
    (
        stood(
            owners=(),
            move=OperatorMove(cause="rewind", time_ms=NOW_MS - 9, back=frozenset({shard(1)})),
        ),
        "set back > not read > no owner -> start the job",
    ),
    (
        with_access(stood(), {"/a/state": NodeAccess(NOBODY, NOBODY)}),
        "not read > nobody may write > not to be seen -> give the application's identity",
    ),
    (
        with_access(
            stood(**GONE), {"/a": NodeAccess(ALL, ALL), "/a/runs/all": NodeAccess(ANN, ANN)}
        ),
        "not read > reserved nodes > run vanished -> see whether the application is digest ann",
    ),
    (stood(), "not read > not to be seen -> wait a moment and look again"),
    (
        replace(
            frozen := stood(log=run_log(HOUR_MS)),
            now=replace(frozen.now, stopped_jvms={OWNER.info: 77}),
        ),
        "not read > JVM stopped -> let it go on: kill -CONT 77 (on host-a)",
    ),
    # parents in a circle, which no service creates
    (
        look(listed(1, 2), listed(2, 1), state(1, after(1), 2), state(2, after(1), 1)),
        "waits for parents > waits for parents > not read > not to be seen -> wait a moment",
    ),
    # one look without a window
    (
        Look(before=snapshot(ONE, HERE), now=snapshot(ONE, HERE)),
        "not read > not to be seen -> wait a moment",
    ),
]


def kinds(explained: Explanation) -> list[str]:
    return [cause.kind for cause in explained.causes]


def deeds(seen: Look, index: int = 1) -> list[str]:
    return [one.text for one in explain(seen, shard(index)).advice()]


@pytest.mark.parametrize(("seen", "told"), TABLE)
def test_each_cause_explains_its_look_and_names_the_first_deed(seen: Look, told: str) -> None:
    """The chain ends with something to do, in a sentence."""
    chain, _, deed = told.partition(" -> ")
    explained = explain(seen, shard(1))
    assert kinds(explained) == chain.split(" > ")
    assert deeds(seen)[0].startswith(deed)
    assert all(cause.says for cause in explained.causes)


def test_every_rule_has_a_look_in_the_table() -> None:
    """A rule that no look needs is found here."""
    used = {kind for _, told in TABLE for kind in told.partition(" -> ")[0].split(" > ")}
    for rule in (*OF_THE_SHARD, *OF_THE_JOB):
        answers = [rule(seen, about) for seen, _ in TABLE for about in (shard(0), shard(1))]
        found = {cause.kind for cause in answers if cause is not None}
        assert found & used, f"{rule.__name__} explains no look of the table"
