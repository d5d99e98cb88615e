"""Each cause has a look in which it is the root of the chain, or a link of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from kinesis_spout.inspection.cause import Act
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import Look, TipAnswer
from kinesis_spout.inspection.job_rules import OF_THE_JOB
from kinesis_spout.inspection.shard_rules import OF_THE_SHARD
from kinesis_spout.inspection.status import status_of, verdict_sentence
from kinesis_spout.inspection.wording import moment
from state.owner.owner_info import Sight
from state.owner.run_log import (
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
    Throttle,
)
from state.plan import PlannedRetry, PlanStatus
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure, OutcomePolicy, PlanReport, ReportStatus
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.state_store import OperatorMove, OwnerView, TaskShare
from state.task_log import TaskLog
from state.znodes.access import NodeAccess
from tests.support.inspection.looks import (
    AT_TIP,
    BEGAN_MS,
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
    from collections.abc import Mapping, Sequence

    from kinesis_spout.inspection.cause import Explanation
    from state.shard_state import UnresolvedRecord

OLD = 30 * HOUR_MS  # longer ago than the stream keeps its records
CONTINUE = OutcomePolicy(retry=RetryPolicy(retry_limit=3))
BLOCK_KEY = OutcomePolicy(on_failure=OnFailure.BLOCK_KEY)
BLOCK_SHARD = OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD)
HERE = state(1, after(5))
OPEN = slice_of(HERE)
UNSEALED, SEALED = TaskLog(entries=(read_of(1, 0),)), TaskLog(sealed=True)
BEHIND = {1: behind(60_000)}
IN_FLIGHT = failed(
    3, attempts=0, due_ms=0, first_failure_ms=None, last_failure_ms=None, reason=None
)
FAILURE = RunEnd(time_ms=NOW_MS - 20_000, kind=FAILED, says="records have expired unread")
YOUNG = OwnerView(None, structs.replace(OWNER.info, since_ms=NOW_MS - 5_000))


def in_plan(log: TaskLog | None, policy: OutcomePolicy | None = None, **fields: Any) -> Look:
    """A shard that is behind, and in an open plan."""
    made = plan(task(OPEN, log=log), **fields)
    return look(listed(1), HERE, plan=made, tips=BEHIND, policy=policy)


ONE = listed(1)
NOT_SUBSCRIBED = NotSubscribed(
    since_ms=NOW_MS - 60_000, says="stream orders has no consumer reader; see the others"
)
REFUSED = RefusedLetters(count=4, last_ms=NOW_MS - 3_000, says="FileNotFoundError: no /mnt")


def spout_look(*held: UnresolvedRecord, tip: TipAnswer | None = None, **log: Any) -> Look:
    """A spout that keeps up with what comes, unless its tip says other, and holds these."""
    told = run_log(HOUR_MS, kind="spout", max_attempts=4, **log)
    return look(
        ONE,
        state(1, after(9), unresolved=held),
        tips={1: tip or behind(1_000)},
        owners=(spout_task(0, 1),),
        total_tasks=1,
        share=TaskShare(0, 1),
        log=told,
    )


NOBODY, ALL, ANN = frozenset[str](), frozenset({"anyone"}), frozenset({"digest ann"})


def with_access(seen: Look, access: Mapping[str, NodeAccess]) -> Look:
    return replace(seen, now=replace(seen.now, access=access))


TABLE: dict[str, tuple[Look, list[str]]] = {
    "another stream": (
        look(ONE, HERE, identity=RECREATED),
        ["another stream"],
    ),
    "application unknown": (look(ONE, pin=None, owners=()), ["application unknown"]),
    "just started": (look(ONE, pin=None), ["just started"]),
    "unknown shard": (look(listed(2), state(2)), ["unknown shard"]),
    "past": (look(listed(2, 1), state(2, after(1), 1)), ["past"]),
    "finished": (look(ONE, state(1, SHARD_END)), ["finished"]),
    "vanished": (look(state(1, after(5))), ["vanished"]),
    "not tracked": (look(ONE), ["not tracked"]),
    "not tracked, as nothing runs": (look(ONE, owners=()), ["not tracked", "no owner"]),
    "lapsed": (
        look(ONE, state(1, after(5), verified_until_ms=NOW_MS - OLD), owners=()),
        ["lapsed", "not read", "no owner"],
    ),
    "lapsed, with nothing left to read": (
        look(ONE, state(1, after(5), verified_until_ms=NOW_MS - OLD), tips={1: AT_TIP}),
        ["lapsed"],
    ),
    "waits for parents": (
        look(listed(0, closed=True), listed(1, 0), state(0), state(1, after(0), 0), owners=()),
        ["waits for parents", "not read", "no owner"],
    ),
    "a new shard waits for its parents too": (
        look(listed(0, closed=True), listed(1, 0), state(0), owners=()),
        ["waits for parents", "not read", "no owner"],
    ),
    "idle": (look(ONE, HERE, tips={1: AT_TIP}), ["idle"]),
    "not settled": (
        look(
            ONE,
            HERE,
            plan=plan(task(OPEN, log=TaskLog(entries=(read_of(1, 9),), sealed=True))),
            tips={1: AT_TIP},
            owners=(),
        ),
        ["not settled", "no owner"],
    ),
    "end not read": (
        look(listed(1, closed=True), HERE, tips={1: AT_TIP}, owners=()),
        ["end not read", "no owner"],
    ),
    "healthy": (look(ONE, HERE, tips={1: behind(1_000)}), ["healthy"]),
    "healthy, not asked": (
        look(ONE, state(1, after(5), verified_until_ms=NOW_MS - 1_000)),
        ["healthy"],
    ),
    "catching up": (
        look(
            ONE,
            state(1, after(9), verified_until_ms=NOW_MS - 60_000),
            before=(state(1, after(5), verified_until_ms=NOW_MS - 120_000),),
            tips=BEHIND,
        ),
        ["catching up"],
    ),
    "falling behind": (
        look(
            ONE,
            state(1, after(9), verified_until_ms=NOW_MS - 60_000),
            before=(state(1, after(5), verified_until_ms=NOW_MS - 61_000),),
            tips=BEHIND,
        ),
        ["falling behind"],
    ),
    "of unknown pace": (
        look(
            ONE,
            state(1, after(9)),
            before=(state(1, after(5), verified_until_ms=None),),
            tips=BEHIND,
        ),
        ["of unknown pace"],
    ),
    "read between crashes": (
        look(
            ONE,
            state(1, after(9), verified_until_ms=NOW_MS - 60_000),
            before=(state(1, after(5), verified_until_ms=NOW_MS - 61_000),),
            owners=(YOUNG,),
            log=run_log(90_000, 60_000, 40_000, 5_000),
            tips=BEHIND,
        ),
        ["read between crashes", "crash loop"],
    ),
    "held by a record": (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), policy=BLOCK_SHARD, tips=BEHIND),
        ["held by a record", "retry waits"],
    ),
    "held by an ancestor": (
        look(
            listed(0, closed=True),
            listed(1, 0),
            state(0, SHARD_END, unresolved=(failed(3),)),
            state(1, after(5), 0),
            policy=BLOCK_SHARD,
            tips=BEHIND,
        ),
        ["held by an ancestor", "retry waits"],
    ),
    "held by an ancestor's record without a key": (
        look(
            listed(0, closed=True),
            listed(1, 0),
            state(0, SHARD_END, unresolved=(failed(3),)),
            state(1, after(5), 0),
            policy=BLOCK_KEY,
            tips=BEHIND,
        ),
        ["held by an ancestor", "retry waits"],
    ),
    "order over a reshard": (
        look(
            listed(0, closed=True),
            listed(1, 0),
            state(0, SHARD_END, unresolved=(failed(3, key="k"),)),
            state(1, after(9), 0, unresolved=(failed(8, key="k", due_ms=NOW_MS - 1),)),
            policy=BLOCK_KEY,
            tips={1: AT_TIP},
        ),
        ["idle", "order over a reshard", "retry waits"],
    ),
    "retry waits": (
        look(ONE, state(1, SHARD_END, unresolved=(failed(3),)), policy=CONTINUE),
        ["retry waits"],
    ),
    "retries, and nothing runs": (
        look(ONE, state(1, SHARD_END, unresolved=(failed(3),)), owners=()),
        ["retries", "no owner"],
    ),
    "retry under way": (
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
        ["retry under way", "task not begun"],
    ),
    "retry due": (
        look(ONE, state(1, SHARD_END, unresolved=(failed(3, due_ms=NOW_MS - 9_000),))),
        ["retry due", "not to be seen"],
    ),
    "to be dead-lettered": (
        look(ONE, state(1, SHARD_END, unresolved=(failed(3, attempts=4),)), policy=CONTINUE),
        ["to be dead-lettered", "not to be seen"],
    ),
    "run failed": (
        look(ONE, HERE, owners=(), log=run_log(60_000, ends=(FAILURE,)), tips=BEHIND),
        ["not read", "run failed"],
    ),
    "crash loop": (
        look(ONE, HERE, owners=(), log=run_log(60_000, 40_000, 20_000), tips=BEHIND),
        ["not read", "crash loop"],
    ),
    "restarts": (
        look(
            ONE,
            HERE,
            owners=(YOUNG,),
            log=run_log(90_000, 60_000, 40_000, 5_000),
            tips=BEHIND,
        ),
        ["not read", "crash loop"],
    ),
    "a run that lasts longer, behind those that crashed": (
        look(
            ONE,
            HERE,
            owners=(OwnerView(None, structs.replace(OWNER.info, since_ms=NOW_MS - 30_000)),),
            log=run_log(180_000, 130_000, 80_000, 30_000),
            tips=BEHIND,
        ),
        ["not read", "crash loop", "not to be seen"],
    ),
    "run over, told": (
        look(
            ONE,
            HERE,
            owners=(),
            log=run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=DONE),)),
            tips=BEHIND,
        ),
        ["not read", "run over"],
    ),
    "run stopped": (
        look(
            ONE,
            HERE,
            owners=(),
            log=run_log(60_000, ends=(RunEnd(time_ms=NOW_MS, kind=STOPPED),)),
            tips=BEHIND,
        ),
        ["not read", "run stopped"],
    ),
    "run vanished": (
        look(ONE, HERE, owners=(), log=run_log(60_000), tips=BEHIND),
        ["not read", "run vanished"],
    ),
    "frozen until its session ended": (
        look(ONE, HERE, owners=(), log=run_log(60_000), sight=Sight.STOPPED, tips=BEHIND),
        ["not read", "process stopped"],
    ),
    "cut off": (
        look(ONE, HERE, owners=(), log=run_log(60_000), sight=Sight.RUNS, tips=BEHIND),
        ["not read", "cut off"],
    ),
    "idle, and nobody reads it": (
        look(ONE, HERE, owners=(), log=run_log(60_000), tips={1: AT_TIP}),
        ["idle, and nobody reads it", "run vanished"],
    ),
    "process gone": (
        look(ONE, HERE, log=run_log(HOUR_MS), sight=Sight.GONE, tips=BEHIND),
        ["not read", "process gone"],
    ),
    "process stopped": (
        look(ONE, HERE, log=run_log(HOUR_MS), sight=Sight.STOPPED, tips=BEHIND),
        ["not read", "process stopped"],
    ),
    "shard not told": (
        look(ONE, HERE, log=run_log(HOUR_MS, shards=(shard(0),)), tips=BEHIND),
        ["not read", "shard not told"],
    ),
    "deactivated": (
        look(
            ONE,
            HERE,
            log=run_log(HOUR_MS, hold=Hold(kind=DEACTIVATED, since_ms=NOW_MS)),
            tips=BEHIND,
        ),
        ["not read", "deactivated"],
    ),
    "full": (
        look(ONE, HERE, log=run_log(HOUR_MS, hold=Hold(kind=FULL, since_ms=NOW_MS)), tips=BEHIND),
        ["not read", "full"],
    ),
    "not taken": (
        look(
            ONE,
            HERE,
            log=run_log(HOUR_MS, hold=Hold(kind=NOT_TAKEN, since_ms=NOW_MS - 10_000)),
            tips=BEHIND,
        ),
        ["not read", "not taken"],
    ),
    "busy with a record": (
        look(
            ONE,
            HERE,
            log=run_log(HOUR_MS, hold=Hold(kind=NOT_TAKEN, since_ms=NOW_MS - 9_999)),
            tips=BEHIND,
        ),
        ["not read", "not to be seen"],
    ),
    "letters refused": (
        spout_look(failed(3, attempts=4, due_ms=NOW_MS - 9_000), refused_letters=REFUSED),
        ["healthy", "letters refused"],
    ),
    "letters refused, and no room left": (
        spout_look(
            failed(3, attempts=4, due_ms=NOW_MS - 9_000),
            refused_letters=REFUSED,
            tip=behind(60_000),
            max_unresolved_per_shard=1,
        ),
        ["not read", "letters refused"],
    ),
    "not subscribed": (
        spout_look(not_subscribed=NOT_SUBSCRIBED),
        ["not subscribed", "healthy"],
    ),
    "trigger waits": (
        look(ONE, HERE, log=run_log(HOUR_MS, trigger_ms=900_000), tips=BEHIND),
        ["not read", "trigger waits"],
    ),
    "never began": (
        look(ONE, pin=None, owners=(), log=run_log(60_000, ends=(FAILURE,))),
        ["never began", "run failed"],
    ),
    "unanswered": (
        look(
            ONE,
            state(
                1,
                SHARD_END,
                unresolved=(failed(3, attempts=0, due_ms=0, first_failure_ms=None, reason=None),),
            ),
            owners=(spout_task(0, 1),),
            total_tasks=1,
        ),
        ["unanswered"],
    ),
    "an unanswered record keeps the end of a closed shard": (
        look(
            listed(1, closed=True),
            listed(2, 1),
            state(
                1,
                after(5),
                unresolved=(failed(3, attempts=0, due_ms=0, first_failure_ms=None, reason=None),),
            ),
            state(2, TRIM_HORIZON, 1),
            owners=(spout_task(0, 1),),
            total_tasks=1,
            tips={1: AT_TIP},
        ),
        ["unanswered"],
    ),
    "end to be settled": (
        look(
            ONE,
            HERE,
            plan=plan(
                task(
                    OPEN,
                    log=TaskLog(
                        entries=(read_of(1, 9, at_shard_end=True, tip_ms=NOW_MS),), sealed=True
                    ),
                )
            ),
        ),
        ["end to be settled", "sink writes"],
    ),
    "paused": (look(ONE, HERE, tips=BEHIND, paused=True), ["not read", "paused"]),
    "paused, and nothing runs": (
        look(ONE, HERE, tips=BEHIND, paused=True, owners=(), log=run_log(60_000)),
        ["not read", "paused", "run vanished"],
    ),
    "no owner": (look(ONE, HERE, tips=BEHIND, owners=()), ["not read", "no owner"]),
    "task missing": (
        look(ONE, HERE, tips=BEHIND, owners=(spout_task(0, 2),), total_tasks=2),
        ["not read", "task missing"],
    ),
    "outage": (
        look(
            ONE,
            HERE,
            state(2, SHARD_END, unresolved=(failed(3),)),
            tips=BEHIND,
            policy=CONTINUE,
            plan=plan(
                status=PlanStatus.SETTLED,
                report=ReportStatus.DONE,
                outcomes=PlanReport(outage=True),
            ),
        ),
        ["not read", "outage"],
    ),
    "retry in an outage": (
        look(
            ONE,
            state(1, after(9), unresolved=(failed(3),)),
            tips={1: AT_TIP},
            policy=CONTINUE,
            plan=plan(
                status=PlanStatus.SETTLED,
                report=ReportStatus.DONE,
                outcomes=PlanReport(outage=True),
            ),
        ),
        ["idle", "retry in an outage", "outage"],
    ),
    "search": (
        look(ONE, HERE, tips=BEHIND, plan=plan(task(OPEN), delivery_limit=5)),
        ["not read", "search"],
    ),
    "settling": (in_plan(SEALED, status=PlanStatus.CLOSED), ["not read", "settling"]),
    "task not begun": (in_plan(None), ["not read", "task not begun"]),
    "task runs": (in_plan(UNSEALED), ["not read", "task runs"]),
    "sink writes": (in_plan(SEALED), ["not read", "sink writes"]),
    "not reported": (in_plan(SEALED, CONTINUE), ["not read", "not reported"]),
    "function runs": (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=1),
        ["not read", "function runs"],
    ),
    "unanswered batch": (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=3),
        ["not read", "unanswered batch"],
    ),
    "reported": (
        in_plan(SEALED, CONTINUE, report=ReportStatus.DONE),
        ["not read", "reported"],
    ),
    "was at its tip": (
        look(ONE, state(1, after(5), at_tip=True)),
        ["not read", "was at its tip"],
    ),
    "throttled": (
        replace(look(ONE, state(1, after(5), at_tip=True)), throttled={shard(1)}),
        ["not read", "throttled"],
    ),
    "the service fails": (
        replace(look(ONE, state(1, after(5), at_tip=True)), unanswered={shard(1): "it failed"}),
        ["not read", "service fails"],
    ),
    "no shard may be asked": (
        replace(look(ONE, state(1, after(5), at_tip=True)), refused="no right to read"),
        ["not read", "tip not told"],
    ),
    "set back": (
        look(
            ONE,
            HERE,
            tips=BEHIND,
            owners=(),
            move=OperatorMove(cause="rewind", time_ms=NOW_MS - 9, back=frozenset({shard(1)})),
        ),
        ["set back", "not read", "no owner"],
    ),
    "refused": (
        replace(look(ONE, HERE, owners=()), refused="no right; give it"),
        ["not read", "refused", "no owner"],
    ),
    "unresolved limit": (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), tips=BEHIND, policy=CONTINUE),
        ["not read", "unresolved limit"],
    ),
    "unresolved limit, beside a batch of other shards": (
        look(
            listed(1),
            listed(2),
            state(1, after(5), unresolved=(failed(3),)),
            state(2, after(5)),
            plan=plan(task(slice_of(state(2, after(5))))),
            tips=BEHIND,
            policy=CONTINUE,
        ),
        ["not read", "unresolved limit"],
    ),
    "a run that was to end": (
        look(
            ONE,
            HERE,
            plan=plan(status=PlanStatus.SETTLED, until_ms=BEGAN_MS),
            tips=BEHIND,
            owners=(),
        ),
        ["not read", "run over"],
    ),
    "a failing record of a busy shard that keeps up": (
        look(
            ONE,
            state(1, after(9), unresolved=(failed(3),)),
            before=(state(1, after(5)),),
            tips={1: behind(1_000)},
            policy=CONTINUE,
        ),
        ["healthy", "retry waits"],
    ),
    "reads fail": (
        spout_look(tip=behind(60_000), failing_reads=FailingReads(since_ms=NOW_MS - 50_000)),
        ["not read", "reads fail"],
    ),
    "answers none": (
        spout_look(no_answers=NoAnswers(since_ms=NOW_MS - 50_000, count=304)),
        ["answers none"],
    ),
    "answers none, and is behind": (
        spout_look(tip=behind(60_000), no_answers=NoAnswers(since_ms=NOW_MS - 50_000, count=304)),
        ["answers none", "not read", "not to be seen"],
    ),
    "answered none": (
        look(
            ONE,
            state(1, after(9)),
            tips={1: behind(1_000)},
            owners=(),
            log=run_log(
                HOUR_MS,
                kind="spout",
                ends=(RunEnd(time_ms=NOW_MS - 20_000, kind=DONE),),
                no_answers=NoAnswers(since_ms=NOW_MS - 50_000, count=304),
            ),
        ),
        ["answers none"],
    ),
    "idle, and its reads fail": (
        spout_look(failing_reads=FailingReads(since_ms=NOW_MS - 50_000, says="no route")),
        ["idle, and nobody reads it", "reads fail"],
    ),
    "the stream of another region": (
        look(ONE, HERE, identity=structs.replace(IDENTITY, arn=IDENTITY.arn.replace("eu", "us"))),
        ["another stream"],
    ),
    "state removed": (
        look(ONE, identity=None, pin=None, owners=(), reset=OWNER.info),
        ["state removed"],
    ),
    "a batch whose reads the service fails": (
        replace(
            in_plan(UNSEALED), unanswered={shard(1): "KMS limits it; raise the quota"}, tips={}
        ),
        ["not read", "task gets no answer"],
    ),
    "read until just now": (
        look(ONE, HERE, before=(state(1, after(1)),), tips=BEHIND, owners=()),
        ["read until just now", "no owner"],
    ),
    "failed before": (
        look(
            ONE,
            HERE,
            plan=plan(task(slice_of(HERE)), created_ms=NOW_MS - 65_000),
            tips=BEHIND,
            log=run_log(2 * HOUR_MS, HOUR_MS, ends=(FAILURE, None)),
        ),
        ["not read", "failed before", "task not begun"],
    ),
    "nobody may write": (
        with_access(look(ONE, HERE, tips=BEHIND), {"/a/state": NodeAccess(NOBODY, NOBODY)}),
        ["not read", "nobody may write", "not to be seen"],
    ),
    "reserved nodes": (
        with_access(
            look(ONE, HERE, tips=BEHIND, owners=(), log=run_log(60_000)),
            {"/a": NodeAccess(ALL, ALL), "/a/runs/all": NodeAccess(ANN, ANN)},
        ),
        ["not read", "reserved nodes", "run vanished"],
    ),
    "not to be seen": (look(ONE, HERE, tips=BEHIND), ["not read", "not to be seen"]),
    "a spout's own plan-less wait": (
        look(
            ONE,
            HERE,
            tips=BEHIND,
            owners=(spout_task(0, 1),),
            total_tasks=1,
            plan=plan(task(OPEN)),
        ),
        ["not read", "not to be seen"],
    ),
}


def kinds(explained: Explanation) -> list[str]:
    return [cause.kind for cause in explained.causes]


@pytest.mark.parametrize(("seen", "expected"), TABLE.values(), ids=TABLE.keys())
def test_each_cause_explains_its_look(seen: Look, expected: Sequence[str]) -> None:
    """The chain ends with something to do, in a sentence."""
    explained = explain(seen, shard(1))
    assert kinds(explained) == expected
    assert explained.advice()
    assert all(cause.says for cause in explained.causes)


def test_a_failing_record_of_a_shard_that_is_behind_is_named_too() -> None:
    seen = look(
        ONE,
        state(1, after(9), unresolved=(failed(3),)),
        before=(state(1, after(5)),),
        tips=BEHIND,
        policy=CONTINUE,
    )
    explained = explain(seen, shard(1))
    assert kinds(explained) == ["of unknown pace"]
    assert "1 record that is not acked" in explained.root.says
    assert "'no rates'" in explained.root.says
    assert any(one.command == "peek" for one in explained.advice())


def test_what_may_expire_comes_before_what_mends_the_root() -> None:
    """Where less time is left than has passed."""
    for lag_ms, first in ((20 * HOUR_MS, Act.CHANGE), (4 * HOUR_MS, Act.START)):
        seen = look(ONE, HERE, tips={1: behind(lag_ms)}, owners=())
        assert explain(seen, shard(1)).advice()[0].act is first


def test_the_missing_task_and_the_reason_of_an_outage_are_named() -> None:
    missing = explain(TABLE["task missing"][0], shard(1)).root
    assert "is read by the second of the 2 tasks" in missing.says
    assert missing.advice[0].text == "start the second of the 2 tasks (index 1)"
    assert "'no rates'" in explain(TABLE["outage"][0], shard(1)).root.says


@pytest.mark.parametrize(
    ("says", "first"),
    [
        (
            (
                "the service refuses the credentials (UnrecognizedClientException); check the "
                "access key and the secret key; put new ones where the job finds them"
            ),
            "check the access key and the secret key; or, put new ones where the job finds them",
        ),
        (
            "GetRecords failed (KMSThrottlingException); raise the account's KMS request quota",
            "raise the account's KMS request quota",
        ),
    ],
)
@pytest.mark.parametrize("met_by", ["spout", "explain too"])
def test_reads_that_the_service_refuses_are_no_fault_of_the_network(
    says: str, first: str, met_by: str
) -> None:
    """The advice is the error's own: the service has answered."""
    failing = FailingReads(since_ms=NOW_MS - 50_000, says=says)
    seen = spout_look(tip=behind(60_000), failing_reads=failing)
    if met_by == "explain too":
        seen = replace(seen, unanswered={shard(1): says}, tips={})
    advice = explain(seen, shard(1)).advice()
    assert advice[0].text.startswith(first)
    assert "goes on by itself" in advice[0].text
    assert not any("DNS" in one.text or "Health Dashboard" in one.text for one in advice)


def test_how_the_last_run_of_a_missing_task_ended_is_told() -> None:
    """Where it failed, that is to be mended first."""
    shared: dict[str, Any] = {"owners": (spout_task(0, 2),), "total_tasks": 2}
    shared["share"] = TaskShare(1, 2)
    for end, told, first in (
        (FAILURE, "ended at 07:59:40 with: records have expired unread", Act.CHANGE),
        (None, "began at 07:00:00 and was killed", Act.START),
    ):
        log = run_log(HOUR_MS, ends=(end,), kind="spout")
        root = explain(look(ONE, HERE, tips=BEHIND, log=log, **shared), shard(1)).root
        assert f"its last run, a spout (pid 42 on host-a), {told}" in root.says
        assert root.advice[0].act is first
    untold = explain(TABLE["task missing"][0], shard(1)).root
    assert untold.says.endswith("it has told of no run yet")
    loop = run_log(*range(90_000, 50_000, -10_000), ends=(FAILURE,) * 4, kind="spout")
    again = explain(look(ONE, HERE, tips=BEHIND, log=loop, **shared), shard(1)).root
    assert "it was started 4 times since" in again.says
    assert again.advice[0].text.endswith("to start it again alone does not help")


def test_each_task_that_does_not_run_is_told_by_its_own_last_run() -> None:
    """Where none of them runs: the one was stopped, the other crashes, the third told nothing."""
    crashes = run_log(*range(90_000, 50_000, -10_000), ends=(FAILURE,) * 4, kind="spout")
    stopped = run_log(HOUR_MS, ends=(RunEnd(time_ms=NOW_MS - 60_000, kind=STOPPED),), kind="spout")
    parts = [part for index in range(3) for part in (listed(index), state(index, after(5)))]
    seen = look(*parts, tips=dict.fromkeys(range(3), behind(60_000)), owners=())
    told = replace(seen.now.stored, runs={TaskShare(0, 3): stopped, TaskShare(1, 3): crashes})
    seen = replace(seen, now=replace(seen.now, stored=told))
    roots = [explain(seen, shard(index)).root for index in range(3)]
    assert [one.kind for one in roots] == ["run stopped", "crash loop", "task missing"]
    assert "the shard is of its first task (index 0 of 3): its last run" in roots[0].says
    assert "of its third task (index 2 of 3): it has told of no run yet" in roots[2].says


def test_the_stream_of_the_state_is_named_where_another_is_looked_at() -> None:
    """Nothing is advised that forgets the state."""
    seen = TABLE["the stream of another region"][0]
    first, *others = explain(seen, shard(1)).advice()
    assert first.text.endswith("(--region us-west-1)")
    assert not any(one.arguments for one in (first, *others))
    assert verdict_sentence(status_of(seen)).startswith("its state belongs to a stream in another")


def test_of_an_unknown_application_those_that_are_there_are_named() -> None:
    there = tuple(f"app-{number}" for number in range(8))
    seen = look(
        ONE,
        identity=None,
        pin=None,
        owners=(),
        of_the_stream=(*there, "etl-prod"),
        of_the_application=("orders-2",),
    )
    says = explain(seen, shard(1)).root.says
    assert "of this stream it holds etl-prod, app-0, app-1, app-2, app-3 and 4 more" in says
    assert says.endswith("; of this application it holds stream orders-2")


def test_the_error_of_the_run_before_is_told_until_the_next_one_gets_further() -> None:
    log = run_log(HOUR_MS + 60_000, HOUR_MS, ends=(FAILURE, None))
    old = plan(task(slice_of(HERE)), created_ms=NOW_MS - 30_000)
    again = explain(look(ONE, HERE, plan=old, tips=BEHIND, log=log), shard(1))
    assert "with: records have expired unread; the one that runs now" in again.causes[1].says
    assert again.causes[1].says.endswith("and has the same batch again")
    fresh = plan(task(slice_of(HERE)), created_ms=NOW_MS - 10_000)
    further = explain(look(ONE, HERE, plan=fresh, tips=BEHIND, log=log), shard(1))
    assert "failed before" not in kinds(further)


def test_credentials_that_have_expired_are_to_be_renewed() -> None:
    says = "the service refuses the credentials (ExpiredTokenException); get new ones"
    end = RunEnd(time_ms=NOW_MS - 20_000, kind=FAILED, says=says)
    root = explain(
        look(ONE, HERE, tips=BEHIND, owners=(), log=run_log(HOUR_MS, ends=(end,))), shard(1)
    ).root
    assert root.advice[0].text == "get new ones"
    assert root.says.endswith("(ExpiredTokenException)")


def test_a_job_that_would_have_told_an_error_was_killed_or_stopped() -> None:
    told = run_log(HOUR_MS, tells_errors=True)
    root = explain(look(ONE, HERE, tips=BEHIND, owners=(), log=told), shard(1)).root
    assert "ended without a word: its driver was killed" in root.says
    assert "would have been told" in root.says
    untold = explain(look(ONE, HERE, tips=BEHIND, owners=(), log=run_log(HOUR_MS)), shard(1)).root
    assert "its sink or foreachBatch function raised an error" in untold.says


def test_a_batch_that_outlasts_its_runs_is_told_with_them() -> None:
    """A job that was killed in it twice is not just to be started."""
    old = plan(task(slice_of(HERE)), created_ms=NOW_MS - 90_000)
    once = look(ONE, HERE, plan=old, tips=BEHIND, owners=(), log=run_log(100_000))
    assert explain(once, shard(1)).root.advice[0].text == "start the job"
    log = run_log(100_000, 50_000)
    twice = explain(look(ONE, HERE, plan=old, tips=BEHIND, owners=(), log=log), shard(1)).root
    assert "plan 7-ab, which it has had at 2 starts, comes again when" in twice.says
    assert [one.act for one in twice.advice] == [Act.LOOK, Act.LOOK, Act.START]
    runs = look(ONE, HERE, plan=old, tips=BEHIND, log=run_log(2 * HOUR_MS, HOUR_MS))
    late = replace(runs.now.stored.plan or old, created_ms=NOW_MS - HOUR_MS - 1)
    again = look(ONE, HERE, plan=late, tips=BEHIND, log=run_log(2 * HOUR_MS, HOUR_MS))
    assert kinds(explain(again, shard(1))) == ["not read", "failed before", "task not begun"]
    assert "failed before" not in kinds(explain(runs, shard(1)))


def test_every_rule_has_a_look_in_the_table() -> None:
    """A rule that no look needs is found here."""
    used = {cause.kind for seen, _ in TABLE.values() for cause in explain(seen, shard(1)).causes}
    for rule in (*OF_THE_SHARD, *OF_THE_JOB):
        answers = [
            rule(seen, about) for seen, _ in TABLE.values() for about in (shard(0), shard(1))
        ]
        found = {cause.kind for cause in answers if cause is not None}
        assert found & used, f"{rule.__name__} explains no look of the table"


def test_the_chain_of_the_issue_of_a_waiting_shard() -> None:
    """Down to the record, its attempt, its due time and its reason."""
    seen = look(
        listed(0, closed=True),
        listed(1, 0),
        state(0, SHARD_END, unresolved=(failed(3, attempts=2),)),
        state(1, after(5), 0),
        policy=OutcomePolicy(retry=RetryPolicy(retry_limit=3), on_failure=OnFailure.BLOCK_SHARD),
    )
    explained = explain(seen, shard(1))
    held, waits = explained.causes
    assert (held.about, waits.about) == (shard(1), shard(0))
    assert held.says.startswith("no new record is read while records of shard 0, which it")
    assert waits.says == (
        "was read to its end, but holds 1 record that is not acked: record 3 is on attempt 3 of 4, "
        f"due {moment(NOW_MS + 60_000, NOW_MS)}, failing with 'no rates'"
    )
    change, peek, wait, redrive, skip = explained.advice()
    assert (wait.act, wait.until_ms) == (Act.WAIT, NOW_MS + 60_000)
    assert change.text == "correct what fails with 'no rates'"
    assert (peek.text, peek.arguments) == ("see the record", ("peek", shard(0), "3"))
    assert redrive.arguments == ("redrive", "PATH")
    assert skip.text == "or, if the record is not needed: stop the job and give the record up"
    assert skip.arguments == ("checkpoint", "skip", "--shard", shard(0), "3")


def test_of_two_parents_the_one_in_trouble_is_explained() -> None:
    """The other one is at its tip, and was closed just now."""
    parts = (listed(0, closed=True), listed(1, 2, 0), state(0, after(1)), state(1, after(0), 2, 0))
    seen = Look(
        before=snapshot(listed(2), *parts, state(2, after(1)), now_ms=BEGAN_MS),
        now=snapshot(listed(2, closed=True), *parts, state(2, after(1))),
        tips={shard(2): AT_TIP, shard(0): behind(HOUR_MS)},
    )
    explained = explain(seen, shard(1))
    assert "waits for its parents, shards 2 and 0" in explained.causes[0].says
    assert explained.root.about == shard(0)


def test_advice_names_only_commands_that_there_are() -> None:
    seen = look(ONE, state(1, SHARD_END, unresolved=(failed(3),)), policy=CONTINUE)
    told = [one.command for one in explain(seen, shard(1)).advice({"redrive"})]
    assert told == [None, None, "redrive"]


def test_parents_in_a_circle_end_somewhere() -> None:
    """No service creates them."""
    seen = look(listed(1, 2), listed(2, 1), state(1, after(1), 2), state(2, after(1), 1))
    assert kinds(explain(seen, shard(1)))[-1] == "not to be seen"


def test_one_look_without_a_window_explains_too() -> None:
    seen = snapshot(ONE, HERE)
    assert kinds(explain(Look(before=seen, now=seen), shard(1))) == ["not read", "not to be seen"]


def test_the_first_to_go_of_a_key_is_the_record_that_the_others_wait_for() -> None:
    """Not the one that is due first."""
    policy = OutcomePolicy(on_failure=OnFailure.BLOCK_KEY)
    held = (
        failed(3, key="k", due_ms=NOW_MS + 60_000, reason="first"),
        failed(4, key="k", due_ms=NOW_MS + 1, reason="second", blocked=True),
    )
    explained = explain(look(ONE, state(1, SHARD_END, unresolved=held), policy=policy), shard(1))
    assert "'first'" in explained.root.says


def test_a_record_that_the_stream_no_longer_keeps_is_said_to_be_gone() -> None:
    record = failed(3, first_failure_ms=NOW_MS - OLD)
    explained = explain(look(ONE, state(1, SHARD_END, unresolved=(record,))), shard(1))
    assert "the stream no longer keeps it" in explained.root.says


def test_a_batch_that_takes_longer_than_the_one_before_is_to_be_looked_at_first() -> None:
    usual = in_plan(SEALED)
    long = in_plan(SEALED, created_ms=NOW_MS - HOUR_MS, previous_ms=NOW_MS - HOUR_MS - 8_000)
    assert [one.act for one in explain(usual, shard(1)).advice()] == [Act.WAIT, Act.LOOK]
    assert [one.act for one in explain(long, shard(1)).advice()] == [Act.LOOK, Act.WAIT]


def test_shards_with_one_cause_are_one_group() -> None:
    """The worst first."""
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


def test_shards_that_differ_in_numbers_and_times_only_are_one_group() -> None:
    """Told by the one that has to wait the longest. Another reason is another group."""
    holding = [
        state(
            index,
            SHARD_END,
            unresolved=(failed(index, due_ms=NOW_MS + index * 60_000, reason=reason),),
        )
        for index, reason in ((1, "order 17"), (2, "order 19"), (3, "order 18"), (4, "no rates"))
    ]
    closed = [listed(index, closed=True) for index in (1, 2, 3, 4)]
    found = grouped(look(*closed, *holding, policy=CONTINUE))
    assert [one.shards for one in found] == [(shard(1), shard(2), shard(3)), (shard(4),)]
    assert found[0].explanation.shard_id == shard(3)


def test_shards_that_catch_up_are_one_group_until_the_last_of_them_has() -> None:
    before = [state(one, after(5), verified_until_ms=NOW_MS - 900_000) for one in (1, 2)]
    now = [
        state(one, after(9), verified_until_ms=NOW_MS - 600_000 - one * 60_000) for one in (1, 2)
    ]
    tips = {one: behind(600_000 + one * 60_000) for one in (1, 2)}
    (only,) = grouped(look(listed(1), listed(2), *now, before=tuple(before), tips=tips))
    assert only.shards == (shard(1), shard(2))
    assert only.explanation.shard_id == shard(2)


def test_an_application_that_nobody_knows_is_one_group() -> None:
    unknown = look(listed(1), listed(2), pin=None, owners=())
    assert [kinds(one.explanation) for one in grouped(unknown)] == [["application unknown"]]


def test_a_tip_that_was_asked_counts_more_than_the_state() -> None:
    """The state may be of an hour ago."""
    one = state(1, after(5), at_tip=True)
    tip = {1: TipAnswer(NOW_MS, NOW_MS - 60_000)}
    assert kinds(explain(look(ONE, one, tips=tip), shard(1))) == ["not read", "not to be seen"]


def test_a_failed_run_is_told_with_its_sentence_and_time() -> None:
    seen = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(FAILURE,)), tips=BEHIND)
    says = explain(seen, shard(1)).root.says
    assert says == (
        "no process owns the application: its last run, a Spark job (pid 42 on host-a), ended at "
        f"{moment(NOW_MS - 20_000, NOW_MS)} with: records have expired unread"
    )


def test_a_crash_loop_is_told_with_count_and_interval() -> None:
    ends = tuple(
        RunEnd(time_ms=NOW_MS - age_ms + 5_000, kind=FAILED, says="no rates")
        for age_ms in (60_000, 40_000, 20_000)
    )
    log = run_log(60_000, 40_000, 20_000, ends=ends)
    says = explain(look(ONE, HERE, owners=(), log=log, tips=BEHIND), shard(1)).root.says
    assert says == (
        "no process owns the application: its job ends soon after each start: it was started 3 "
        f"times since {moment(NOW_MS - 60_000, NOW_MS)}, about every 20 s, and ended after about "
        "5.0 s, each time with: no rates"
    )


def test_runs_that_are_hours_apart_are_no_loop() -> None:
    log = run_log(9 * HOUR_MS, 6 * HOUR_MS, 3 * HOUR_MS)
    seen = look(ONE, HERE, owners=(), log=log, tips=BEHIND)
    assert explain(seen, shard(1)).root.kind == "run vanished"


def test_what_an_earlier_owner_told_is_not_told_of_this_one() -> None:
    """A process of an earlier version of the package tells nothing."""
    log = run_log(2 * HOUR_MS, shards=(shard(0),), hold=Hold(kind=FULL, since_ms=1))
    seen = look(ONE, HERE, log=log, tips=BEHIND)
    assert explain(seen, shard(1)).root.kind == "not to be seen"


def test_a_missing_subscription_is_told_beside_throttling_and_its_deed_comes_first() -> None:
    """Who polls shares the limits. The consumer is what one can mend."""
    throttled = {shard(1): Throttle(count=7, last_ms=NOW_MS - 5_000)}
    seen = spout_look(tip=behind(60_000), not_subscribed=NOT_SUBSCRIBED, throttled=throttled)
    causes = explain(seen, shard(1)).causes
    assert causes[0].kind == "not subscribed"
    assert "stream orders has no consumer reader" in causes[0].says
    assert any("throttled" in one.says for one in causes[1:])
    first, *_ = explain(seen, shard(1)).advice()
    assert "another consumer" in first.text


def test_a_missing_right_to_subscribe_is_named() -> None:
    denied = "AccessDeniedException: ann is not authorized to perform: kinesis:SubscribeToShard"
    seen = spout_look(not_subscribed=NotSubscribed(since_ms=NOW_MS, says=denied))
    first, *_ = explain(seen, shard(1)).advice()
    assert first.text.startswith("allow kinesis:SubscribeToShard")


def test_of_two_ways_out_of_an_error_the_one_that_loses_nothing_comes_first() -> None:
    """An error that would go on with what is left names that last."""
    says = (
        "records may be lost: ZooKeeper has no start of it; restore ZooKeeper, or name the "
        "right one; set option failOnDataLoss to false to go on with what is left"
    )
    end = RunEnd(time_ms=NOW_MS - 20_000, kind=FAILED, says=says)
    seen = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(end,)), tips=BEHIND)
    first, *_ = explain(seen, shard(1)).advice()
    assert first.text.startswith("restore ZooKeeper, or name the right one; or, set option")


def test_the_ack_timeout_and_the_own_limits_of_reading_are_told() -> None:
    out: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
    for timeout_ms, told in (
        (None, "30 s unless set"),
        (0, "there is no message_timeout_s"),
        (3_600_000, "fails it after 60 min"),
    ):
        log = run_log(HOUR_MS, kind="spout", message_timeout_ms=timeout_ms)
        seen = look(
            ONE, state(1, SHARD_END, unresolved=(IN_FLIGHT,)), log=log, share=TaskShare(0, 1), **out
        )
        assert any(told in one.text for one in explain(seen, shard(1)).advice())
    slow = run_log(HOUR_MS, reads_per_second=0.5, bytes_per_second=200_000.0)
    seen = look(
        ONE,
        state(1, after(9), verified_until_ms=NOW_MS - 59_000),
        before=(state(1, after(5), verified_until_ms=NOW_MS - 62_000),),
        tips=BEHIND,
        log=slow,
    )
    (root,) = explain(seen, shard(1)).causes
    assert root.kind == "falling behind"
    assert "it may read at most 0.5 reads and 0.2 MB a second, as it is set" in root.says
    assert explain(seen, shard(1)).advice()[0].text.startswith("raise its limits of reading")
