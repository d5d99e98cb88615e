"""Each cause has a look in which it is the root of the chain, or a link of it, and a first action.
An explanation asks for no action twice, and in the order in which a person does it. Shards that
need the same are one group.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from kinesis_spout.cli.exec_process import CommandEndedError
from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.cause import ActionKind, Kind, Noun
from kinesis_spout.inspection.explanation import TABLE as ROWS
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import Look, TipAnswer
from state.plan import PlannedRetry, PlanStatus
from state.position import SHARD_END
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
    Hold,
    NoAnswers,
    ReadTrouble,
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
HALF: dict[str, Any] = {"owners": (spout_task(0, 2),), "total_tasks": 2}
YOUNG: dict[str, Any] = {  # the fourth that was started within two minutes
    "owners": (OwnerView(None, structs.replace(OWNER.info, since_ms=NOW_MS - 5_000)),),
    "log": run_log(90_000, 60_000, 40_000, 5_000),
}
NOT_SUBSCRIBED = ReadTrouble(
    since_ms=NOW_MS - 60_000, says="stream orders has no consumer reader", remedy="see the others"
)
RETRY = PlannedRetry(first=SequenceNumber(3), attempts=1)
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


def missing(end: str | None) -> Look:
    """A shard without unread records, whose task has ended so, while another task runs."""
    last = None if end is None else RunEnd(time_ms=NOW_MS - 20_000, kind=end)
    log = run_log(60_000, ends=(last,), kind="spout")
    return look(ONE, HERE, **HALF, tips=TIP, runs={TaskShare(1, 2): log})


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


def gone(*ages_ms: int, ends: tuple[RunEnd | None, ...] = (), **stored: Any) -> Look:
    """Runs that began so long ago, and none now."""
    return stood(owners=(), log=run_log(*ages_ms, ends=ends), **stored)


def refused(tip_ms: int = 1_000, **log: Any) -> Look:
    """A spout so long behind, whose sink refuses a letter."""
    letter = failed(3, attempts=4, due_ms=NOW_MS - 9_000)
    return spout_look(letter, refused_letters=REFUSED, tip=behind(tip_ms), **log)


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
MEND, START, WAIT = (
    "correct the cause of 'no rates'",
    "start the job",
    "wait for the batch to finish",
)
# What is done first about the cause at the root of a chain, unless the row says otherwise.
FIRST = {
    "batch under way": "wait: wait for the batch to finish",
    "caught up": "nothing: nothing to do",
    "crash loop": "look: look for the exception",
    "not running": "start: start the job",
    "not visible": "wait: wait a moment, and",
    "unresolved record": "look: show the record",
}
# A look, the chain of causes that explain it, facts of its root, the kind of the first action and
# how it begins.
TABLE: list[tuple[Look, str]] = [
    (stood(identity=RECREATED, tips={}), "other stream -> run: stop all processes of"),
    # the stream of another region
    (
        stood(identity=structs.replace(IDENTITY, arn=IDENTITY.arn.replace("eu", "us")), tips={}),
        "other stream -> look: to look at the stream",
    ),
    (look(ONE, pin=None, owners=()), "no application -> look: compare --application, --stream,"),
    (
        look(ONE, identity=None, pin=None, owners=(), reset=OWNER.info),
        "not begun [stage=removed] -> start: start the job (a Spark",
    ),
    (look(ONE, pin=None), "not begun [stage=starting] -> wait: wait until the application has"),
    (look(listed(2), state(2)), "not tracked -> look: list the"),
    (look(listed(2, 1), state(2, after(1), 1)), "caught up [progress=past]"),
    (drained(), "caught up [progress=finished]"),
    (look(HERE), "records expired -> look: run this command again"),
    (look(ONE), "not tracked -> wait: wait until the job lists"),
    (
        look(ONE, LAPSED, owners=()),
        "records expired > unread > not running [end=unknown] -> change: raise the stream's",
    ),
    (
        look(ONE, LAPSED, tips=TIP, owners=()),
        "records expired > not running [end=unknown] -> change: raise the stream's",
    ),
    (look(ONE, LAPSED, tips=TIP, paused=True), "records expired > paused -> resume: end the pause"),
    (
        look(listed(0, closed=True), listed(1, 0), state(0), state(1, after(0), 0), owners=()),
        "waits for parents > unread > not running [end=unknown]",
    ),
    (stood(tips=TIP), "caught up [progress=idle]"),
    (
        stood(
            plan=plan(task(OPEN, log=TaskLog(entries=(read_of(1, 9),), sealed=True))),
            tips=TIP,
            owners=(),
        ),
        "caught up > not running [end=unknown]",
    ),
    (
        in_plan(TaskLog(entries=(read_of(1, 9, at_shard_end=True, tip_ms=NOW_MS),), sealed=True)),
        "unread > batch under way [stage=sink]",
    ),
    (stood(tips={1: behind(1_000)}), "caught up [progress=reading]"),
    (moved(NOW_MS - 120_000), "behind [pace=catching up] -> wait: wait. At this speed"),
    (moved(NOW_MS - 61_000), "behind [pace=falling behind] -> change: make the job faster"),
    (moved(None), "behind [pace=not known] -> wait: wait a minute, and"),
    (moved(NOW_MS - 61_000, **YOUNG), "behind > crash loop [end=silent, suspect=sink]"),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), policy=BLOCK_SHARD, tips=BEHIND),
        "held by order > unresolved record [stage=waits, fault=reason]",
    ),
    (
        family(
            failed(3, key="k"), failed(8, key="k", due_ms=NOW_MS - 1), policy=BLOCK_KEY, tips=TIP
        ),
        "caught up > held by order > unresolved record [stage=waits]",
    ),
    (drained(failed(3), policy=CONTINUE), "unresolved record [stage=waits, fault=reason]"),
    (
        drained(
            failed(3, due_ms=NOW_MS - 9_000),
            plan=plan(task(slice_of(state(1, SHARD_END), max_records=0, retries=(RETRY,)))),
        ),
        "unresolved record > batch under way [stage=not begun] -> look: show the",
    ),
    (drained(failed(3, due_ms=NOW_MS - 9_000)), "unresolved record > not visible -> look: show"),
    (drained(failed(3, attempts=4), policy=CONTINUE), "unresolved record > not visible"),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), tips=BEHIND, policy=CONTINUE),
        "unread > unresolved limit [fault=reason] -> look: show the",
    ),
    (
        look(ONE, HERE, state(2, SHARD_END, unresolved=(failed(3),)), tips=BEHIND, **OUTAGE),
        "unread > outage -> change: repair the sink or the",
    ),
    # the runs of the job
    (stood(owners=()), "unread > not running [end=unknown]"),
    (gone(60_000, ends=(FAILURE,)), "unread > not running [end=failed] -> look: read the log of"),
    (gone(60_000, 40_000, 20_000), "unread > crash loop [end=silent, suspect=sink]"),
    # runs that are hours apart are no loop
    (
        gone(9 * HOUR_MS, 6 * HOUR_MS, 3 * HOUR_MS),
        "unread > not running [end=silent, suspect=sink]",
    ),
    # run over, told
    (stood(**ended(DONE)), "unread > not running [end=done, schedule=not known] -> look: check"),
    # a run that left records that had arrived before it began, or shards that it was not to read
    (
        stood(**ended(DONE, kind="spout") | {"tips": {1: behind(90_000)}}),
        "unread > not running [end=done, left_by=limit] -> start: start the job again with a later",
    ),
    (
        stood(**ended(DONE) | {"tips": {1: behind(90_000)}}),
        "unread > not running [end=done, left_by=limit] -> start: start the job again",
    ),
    (
        stood(**ended(DONE, shards=(shard(0),))),
        "unread > not running [end=done, left_by=shards] -> start: start the job again without",
    ),
    (stood(**ended(STOPPED)), "unread > not running [end=stopped]"),
    (
        gone(60_000, process=ProcessState.RUNS),
        "unread > process halted [halt=cut off] -> look: check in the process's log",
    ),
    (
        stood(log=run_log(HOUR_MS), process=ProcessState.GONE),
        "unread > process halted [halt=gone] -> start: start the job again. On",
    ),
    (
        stood(log=run_log(HOUR_MS), process=ProcessState.STOPPED),
        "unread > process halted [halt=stopped] -> start: resume the process on",
    ),
    (
        stood(
            plan=plan(task(OPEN), created_ms=NOW_MS - 65_000),
            log=run_log(2 * HOUR_MS, HOUR_MS, ends=(FAILURE, None)),
        ),
        "unread > crash loop > batch under way [stage=not begun] -> look: check in Spark's UI",
    ),
    (
        stood(log=run_log(HOUR_MS, shards=(shard(0),))),
        "unread > not assigned -> change: start the job",
    ),
    (stood(paused=True), "unread > paused -> resume: end the pause"),
    (
        stood(log=run_log(HOUR_MS, trigger_ms=900_000)),
        "unread > batch under way [stage=trigger, last_batch=none] -> wait: wait until 08:15:00",
    ),
    (
        stood(owners=(spout_task(0, 2),), total_tasks=2),
        "unread > not running [end=never ran] -> start: start the spout task with --task-index 1",
    ),
    # nothing is unread, but one of several tasks is missing
    (missing(None), "caught up > not running [end=silent] -> start: start the spout task with"),
    (missing(STOPPED), "caught up > not running [end=stopped] -> start: start the spout task with"),
    (missing(DONE), "caught up [progress=idle] -> nothing: nothing to do"),
    # what a program does with its records
    # records that were not answered in time
    (
        spout_look(failed(3, reason=TIMED_OUT), tip=behind(60_000)),
        "unread > unresolved limit [fault=program] -> change: check that the program",
    ),
    (held_back(DEACTIVATED), "unread > program waits [hold=deactivated] -> change: make the"),
    (held_back(FULL), "unread > program waits [hold=full] -> look: find out on"),
    (
        held_back(NOT_TAKEN, 10_000),
        "unread > program waits [hold=not taken] -> look: find out on",
    ),
    (refused(), "caught up > unresolved record > letters refused -> change: repair the file"),
    # of a spout that has not told its limit
    (refused(60_000), "unread > letters refused -> change: repair the file"),
    (
        spout_look(not_subscribed=NOT_SUBSCRIBED),
        "not subscribed > caught up [progress=reading] -> change: see the others",
    ),
    (drained(IN_FLIGHT, **SPOUT), "unresolved record [stage=with the program] -> look: find out"),
    (
        spout_look(tip=behind(60_000), failing_reads=ReadTrouble(since_ms=NOW_MS - 50_000)),
        "unread > reads fail -> look: find out why Kinesis does",
    ),
    # the service refuses its reads
    (
        spout_look(
            tip=behind(60_000),
            failing_reads=ReadTrouble(since_ms=NOW_MS, says="no", remedy="check it"),
        ),
        "unread > reads fail -> change: check it",
    ),
    (spout_look(no_answers=SILENT), "no answers -> change: make the program ack or"),
    # the steps of a batch
    (in_plan(None, delivery_limit=5), "unread > batch under way [stage=search] -> wait: wait"),
    (in_plan(SEALED, status=PlanStatus.CLOSED), "unread > batch under way [stage=settling]"),
    (in_plan(None), "unread > batch under way [stage=not begun]"),
    (in_plan(UNSEALED), "unread > batch under way [stage=reading]"),
    (in_plan(SEALED), "unread > batch under way [stage=sink]"),
    # sink writes, for longer than the batch before took
    (
        in_plan(SEALED, created_ms=NOW_MS - HOUR_MS, previous_ms=NOW_MS - HOUR_MS - 8_000),
        "unread > batch under way [stage=sink] -> look: take a thread dump of",
    ),
    (in_plan(SEALED, CONTINUE), "unread > batch under way [stage=not reported] -> wait: wait for"),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=1),
        "unread > batch under way [stage=function]",
    ),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.OPEN, openings=3),
        "unread > batch under way [stage=unanswered]",
    ),
    (
        in_plan(SEALED, CONTINUE, report=ReportStatus.DONE),
        "unread > batch under way [stage=reported]",
    ),
    # a batch whose reads the service fails
    (
        replace(
            in_plan(UNSEALED),
            unanswered={shard(1): KinesisError("KMS limits it", "raise the quota")},
            tips={},
        ),
        "unread > batch under way [stage=no answer] -> change: raise the quota",
    ),
    # the service, and ZooKeeper
    (NEVER_ASKED, "unread > not asked -> look: to read the newest record"),
    (
        replace(NEVER_ASKED, throttled={shard(1)}),
        "unread > kinesis silent [throttled=now] -> look: ask the team that owns",
    ),
    # the service fails
    (
        replace(NEVER_ASKED, unanswered={shard(1): KinesisError("it failed")}),
        "unread > kinesis silent -> wait: wait until Kinesis answers",
    ),
    # no shard may be asked
    (
        replace(NEVER_ASKED, refusal=KinesisError("no right to read")),
        "unread > not asked -> change: allow kinesis:GetRecords",
    ),
    (
        replace(look(ONE, HERE, owners=()), refusal=KinesisError("no right", "give it")),
        "unread > kinesis refuses > not running [end=unknown] -> change: give it",
    ),
    (
        stood(
            owners=(),
            move=OperatorMove(cause="rewind", time_ms=NOW_MS - 9, back=frozenset({shard(1)})),
        ),
        "set back > unread > not running [end=unknown]",
    ),
    (
        with_access(stood(), {"/a/state": NodeAccess(NOBODY, NOBODY)}),
        "unread > zookeeper refuses > not visible -> change: give the job's identity all",
    ),
    (
        with_access(
            stood(**GONE), {"/a": NodeAccess(ALL, ALL), "/a/runs/all": NodeAccess(ANN, ANN)}
        ),
        "unread > zookeeper refuses > not running [end=silent, suspect=refusal] -> look: check",
    ),
    (stood(), "unread > not visible"),
    (
        replace(
            frozen := stood(log=run_log(HOUR_MS)),
            now=replace(frozen.now, stopped_jvms={OWNER.info: 77}),
        ),
        "unread > process halted [halt=jvm stopped] -> start: resume the process on",
    ),
    # parents in a circle, which no service creates
    (
        look(listed(1, 2), listed(2, 1), state(1, after(1), 2), state(2, after(1), 1)),
        "waits for parents > waits for parents > unread > not visible",
    ),
    # one look without a window
    (Look(before=snapshot(ONE, HERE), now=snapshot(ONE, HERE)), "unread > not visible"),
]


def kinds(explained: Explanation) -> list[str]:
    return [cause.kind.value for cause in explained.chain]


def actions_of(seen: Look, index: int = 1) -> list[str]:
    return [one.text for one in explain(seen, shard(index)).actions()]


def test_a_task_that_never_ran_may_have_been_refused() -> None:
    """A refusal is stored nowhere."""
    assert actions_of(stood(**HALF)) == [
        "start the spout task with --task-index 1 --total-tasks 2",
        (
            "if the spout task was started, read its error message. A task must be started with "
            "--total-tasks 2"
        ),
    ]


@pytest.mark.parametrize(("seen", "told"), TABLE)
def test_each_cause_explains_its_look_and_names_the_first_action(seen: Look, told: str) -> None:
    """The chain ends with something to do. Each cause leads to the next, remarks come last, no
    action is named twice, and nobody waits for two things.
    """
    chain, _, action = told.partition(" -> ")
    names, _, facts = chain.rstrip("]").partition(" [")
    explained = explain(seen, shard(1))
    assert kinds(explained) == names.split(" > ")
    known = {f"{name}={fact}" for name, fact in explained.root.facts.items()}
    assert known >= set(filter(None, facts.split(", ")))
    actions = explained.actions()
    first = action or FIRST[explained.root.kind.value]
    assert f"{actions[0].kind.value}: {actions[0].text}".startswith(first)
    assert all(cause.sentences for cause in explained.causes)
    assert all(one.as_json()["facts"].keys().isdisjoint({"shard"}) for one in explained.causes)
    assert sorted(one.kind for one in explained.causes) == sorted(
        one.kind for one in (*explained.chain, *explained.remarks)
    )
    assert explained.chain[0].leads_to is None
    for effect, cause in pairwise(explained.chain):
        assert cause.leads_to == effect.subject
    words = [word for word, _ in explained.introduced()]
    assert words[0] not in {"So", "Also"}
    assert words == sorted(words, key="Also".__eq__)
    texts = [one.text for one in actions]
    assert [one.kind for one in actions].count(ActionKind.WAIT) <= 1
    assert len(set(texts)) == len(texts)
    for begins in ("start ", "raise the stream's retention", "correct the cause"):
        assert sum(one.startswith(begins) for one in texts) <= 1, texts


def test_every_kind_has_a_row_and_a_look_in_the_table() -> None:
    """A row that no look needs is found here."""
    assert len(ROWS) == len(Kind) <= 30
    used = {one for seen, _ in TABLE for one in kinds(explain(seen, shard(1)))}
    assert used == {one.value for one in Kind}


def test_a_cause_names_its_subject_and_what_it_says() -> None:
    """The grammar of all texts."""
    stopped = RunEnd(time_ms=NOW_MS - 20_000, kind=STOPPED)
    seen = stood(
        owners=(spout_task(0, 2),),
        total_tasks=2,
        runs={TaskShare(1, 2): run_log(60_000, ends=(stopped,), kind="spout")},
    )
    explained = explain(seen, shard(1))
    assert explained.root.subject == (Noun.TASK, "1 of 2")
    (word, cause), *_ = explained.introduced()
    assert f"{word}: {cause.text}" == (
        "Blocked: spout task 1 of 2 (counted from 0) is not running. The last run (pid 42 on "
        "host-a) was stopped cleanly at 07:59:40."
    )
    assert actions_of(seen)[0] == "start the spout task with --task-index 1 --total-tasks 2"
    assert cause.as_json()["facts"] == {
        "taskIndex": 1,
        "totalTasks": 2,
        "consumer": "spout",
        "pid": 42,
        "host": "host-a",
        "startedMs": NOW_MS - 60_000,
        "endedMs": NOW_MS - 20_000,
        "end": "stopped",
    }


def test_a_run_that_left_the_children_of_its_shards_is_no_reason_to_wait_for_the_next_one() -> None:
    """Its own limits omit them, so the next run with the same limits does, too."""
    seen = look(
        *(listed(0, closed=True), listed(1, 0), state(0, SHARD_END), state(1, after(5), 0)),
        **ended(DONE, shards=(shard(0),)) | {"tips": BEHIND},
    )
    root = explain(seen, shard(1)).root
    assert root.text == (
        "no process is running. The last run (pid 42 on host-a) finished at 08:00:00. The last run "
        "was limited to shard 0. Shard 1 is a child of shard 0. A run with the same --shard does "
        "not read shard 1."
    )
    assert actions_of(seen) == [
        "start the job again without --shard, or with --shard for shard 1 too"
    ]


# what it asks for --------------------------------------------------------------------------------
SEE = "show the record"
HELD = state(1, after(9), unresolved=(failed(3),))
READ = plan(task(slice_of(HELD), log=TaskLog(sealed=True)), report=ReportStatus.DONE)


def holding(**stored: Any) -> Look:
    """A shard that is behind, and holds a failed record."""
    given: dict[str, Any] = {"tips": BEHIND, "policy": CONTINUE}
    return look(ONE, HELD, **(given | stored))


@pytest.mark.parametrize(
    ("seen", "order"),
    [
        (holding(**ended(STOPPED)), [SEE, MEND, START]),
        (holding(**GONE), [SEE, MEND, START]),
        (holding(plan=READ), [SEE, MEND, WAIT]),
        (
            look(HERE, **ended(STOPPED)),
            ["run this command again", "to read the remaining records", START],
        ),
        (stood(tips={1: behind(20 * HOUR_MS)}, owners=()), ["raise the stream's ret", START]),
        (stood(paused=True, **GONE), ["end the pause", START]),
        (look(ONE, LAPSED, tips=BEHIND, paused=True), ["end the pause", "raise the stream's"]),
        (
            stood(paused=True, log=run_log(HOUR_MS), process=ProcessState.GONE),
            ["end the pause", "start the job again"],
        ),
    ],
)
def test_what_comes_first_is_done_first(seen: Look, order: list[str]) -> None:
    """What fails is corrected before its job is started, or it fails again; what may expire is
    saved before that. While the application is paused, nothing else helps.
    """
    found = actions_of(seen)
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
    """It has no retry, and waits for its dead letter alone."""
    explained = explain(refused(), shard(1))
    record = next(one for one in explained.causes if one.kind is Kind.UNRESOLVED_RECORD)
    assert "The record's retry is due" not in record.text
    assert "dead letter" not in record.text  # the cause of the refusal says so
    assert not any("skip" in one.command for one in explained.actions())


def test_the_remedy_of_an_error_is_the_arrow() -> None:
    """In a loop, a start alone does not help. The text of an error that has none is not split."""
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says="the disk is full", remedy="free some of it")
    once = stood(owners=(), log=run_log(60_000, ends=(end,)))
    assert actions_of(once)[:2] == ["free some of it", "start the job again"]
    loop = stood(owners=(), log=run_log(60_000, 40_000, 20_000, ends=(end, end, end)))
    assert actions_of(loop)[0] == "free some of it"
    assert not any(one.kind is ActionKind.START for one in explain(loop, shard(1)).actions())
    old = RunEnd(time_ms=NOW_MS, kind=FAILED, says="the disk is full; free some of it")
    seen = stood(owners=(), log=run_log(60_000, ends=(old,)))
    assert "with: the disk is full; free some of it." in explain(seen, shard(1)).root.text
    assert "correct the cause of the last run's error" in actions_of(seen)


@pytest.mark.parametrize(
    ("error", "topic"),
    [
        ("DataLossError", "loss"),
        ("StoreAccessError", "access"),
        ("AccessDeniedError", "right"),
        ("KeyAccessError", "right"),
        ("ServiceUnavailableError", "network"),
        ("CommandEndedError", "command"),
        ("ValueError", "other"),
        (None, "other"),
    ],
)
def test_what_an_error_is_about_follows_from_its_class(error: str | None, topic: str) -> None:
    """Not from its words. Older versions stored no class."""
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says="denies access; KMS", error=error)
    root = explain(stood(owners=(), log=run_log(60_000, ends=(end,))), shard(1)).root
    assert root.facts["topic"] == topic


@pytest.mark.parametrize(("says", "times"), [("no right", 1), ("no route", 2)])
def test_an_error_that_this_command_and_the_last_run_got_is_said_once(
    says: str, times: int
) -> None:
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says)
    gone = look(ONE, HERE, owners=(), log=run_log(60_000, ends=(end,)))
    causes = explain(replace(gone, refusal=KinesisError("no right")), shard(1)).causes
    texts = " ".join(cause.text for cause in causes)
    assert texts.casefold().count("no r") == times
    assert ("00 with the same error" in texts) is (times == 1)


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


@pytest.mark.parametrize(
    ("stored", "kind", "alone"),
    [
        ({}, "paused", False),
        (HALF, "not running", True),
        ({"owners": (), "log": run_log(60_000, 40_000, 20_000)}, "crash loop", True),
        ({**YOUNG, "tips": BEHIND}, "crash loop", True),
    ],
)
def test_a_pause_says_where_its_end_alone_does_not_help(
    *, stored: dict[str, Any], kind: str, alone: bool
) -> None:
    """Its end is the first action, and not the only one. That nobody runs is said below it."""
    explained = explain(stood(paused=True, **stored), shard(1))
    pause = next(one for one in explained.chain if one.kind is Kind.PAUSED)
    assert explained.root.kind.value == kind
    assert ("The pause is not the only reason why shard 1 is not read." in pause.text) is alone
    assert "process" not in pause.text


def test_a_job_that_reads_a_throttled_shard_may_use_it_up_itself() -> None:
    """Both are named: this job, whose pace is known within a batch, and others."""
    throttled: dict[str, Any] = {"throttled": {shard(1)}}
    first, then, *_ = actions_of(replace(moved(None), **throttled))
    assert first.endswith("whether other consumers read shard 1 too")
    assert then.endswith("split the shard")
    (first, *_) = actions_of(replace(NEVER_ASKED, **throttled))
    assert first.endswith("which other consumers read shard 1")
    read = read_of(1, 9, payload_bytes=9_000_000, throttled=3)
    root = explain(in_plan(TaskLog(entries=(read,))), shard(1)).root
    assert "The job itself has read 1.8 MB per second from the shard." in root.text


def test_an_application_without_state_may_have_lost_it() -> None:
    """A start would begin at the starting position: the restore comes before it."""
    explained = explain(look(ONE, pin=None, owners=()), shard(1))
    assert "its state was removed" in explained.root.text
    commands = [one.command for one in explained.actions()]
    assert commands == [(), ("checkpoint", "import", "PATH"), ()]
    assert explained.actions()[-1].kind is ActionKind.START


def test_the_error_of_a_command_is_in_the_log_of_the_job() -> None:
    """Its exit code alone says little. What it wrote to stderr is not stored."""
    says = "the command ended with exit code 2, so no more records are processed"
    end = RunEnd(time_ms=NOW_MS, kind=FAILED, says=says, error=CommandEndedError.__name__)
    once = run_log(60_000, ends=(end,), kind="spout")
    loop = run_log(60_000, 40_000, 20_000, ends=(end, end, end), kind="spout")
    for log in (once, loop):
        found = actions_of(stood(owners=(), log=log))
        assert found[:2] == [
            "read the stderr of the --exec command in the job's log on host-a",
            "correct the cause of the last run's error",
        ]
        assert sum(" log on " in one for one in found) == 1


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
