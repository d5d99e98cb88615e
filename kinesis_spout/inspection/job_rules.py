"""The rules that say why a job does not read a shard that it might. Pure. `OF_THE_JOB` is their
table.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import duration
from kinesis_spout.inspection.access_rules import nobody_may_write, reserved_nodes
from kinesis_spout.inspection.cause import LOG, THE_NEXT_RULE, Act, Advice, Cause
from kinesis_spout.inspection.consumer_words import words_of
from kinesis_spout.inspection.outage import outage_until_ms
from kinesis_spout.inspection.owner_rules import (
    OTHER_CONSUMERS,
    held_by_program,
    letters_refused,
    next_trigger,
    not_told_to_read,
    reads_fail,
    run_of,
    throttled_clause,
)
from kinesis_spout.inspection.retry_rules import unresolved_besides
from kinesis_spout.inspection.run_rules import (
    RIGHT,
    WORKER,
    deed_of,
    failed_before,
    last_run,
    process_halted,
    restarts,
    session_clause,
    task_missing,
)
from kinesis_spout.inspection.wording import (
    joined,
    moment,
    ordinal,
    pause_told,
    quoted,
    records,
)
from kinesis_spout.shards.assignment import task_of
from state.plan import PlanStatus
from state.report import ReportStatus
from state.store.ownership import TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.inspection.health import Look
    from state.store.view import PlanView

MAX_UNRESOLVED = 100_000
"""The default of both consumers."""

_FIRST_BATCH_MS = 30_000
_LOOK_AGAIN = (Advice(Act.WAIT, "wait a moment and look again"), LOG)


def _paused(look: Look, shard_id: str) -> Cause | None:
    if not look.now.stored.paused:
        return None
    # Who ends the pause alone would wait for a process that is not there.
    runs = look.now.owner_of(shard_id) is not None and process_halted(look, shard_id) is None
    return Cause(
        kind="paused",
        about=shard_id,
        says=f"the application is paused{pause_told(look)}: it keeps its place and reads nothing"
        f"{'' if runs else '; besides, no process is there that would go on after the pause'}",
        advice=(
            Advice(
                Act.RESUME,
                "end the pause when its reason is over",
                ("resume",),
                is_urgent=not runs,
            ),
        ),
        leads_to=None if runs else THE_NEXT_RULE,
    )


def _refused(look: Look, shard_id: str) -> Cause | None:
    """The service refuses who looks. A job that reads all the same is not told to mend it."""
    if look.refused is None or shard_id in look.tips or look.has_moved(shard_id):
        return None
    state = look.now.states.get(shard_id)
    is_of_the_key = "KMS" in look.refused
    if look.now.stored.owners and not is_of_the_key and state is not None and state.at_tip:
        return None
    why, _, remedy = look.refused.rpartition("; ")
    also = (
        "nobody can read the stream while its key is so"
        if is_of_the_key
        else "a job with the same credentials is refused too, and ends"
    )
    return Cause(
        kind="refused",
        about=shard_id,
        says=f"the service refuses to have it read: {why or look.refused}; {also}",
        advice=(
            Advice(
                Act.CHANGE,
                f"first {remedy}" if why else "first give the right to read it",
                mends=RIGHT,
                is_urgent=True,
            ),
        ),
        leads_to=THE_NEXT_RULE,
    )


def _no_owner(look: Look, shard_id: str) -> Cause | None:
    if look.now.stored.owners:
        return None
    ended = last_run(look, shard_id)
    if ended is not None:
        return ended
    plan, newest = look.now.open_plan, look.now.stored.plan
    rest = "" if plan is None else f"; the batch of plan {plan.plan_id} comes again when it does"
    if newest is not None and newest.until_ms is not None and newest.status is PlanStatus.SETTLED:
        return Cause(
            kind="run over",
            about=shard_id,
            says="no process runs now: the last run (AvailableNow) was to read all that came up to "
            f"{moment(newest.until_ms, look.now.now_ms)}, and has ended; the next run reads what "
            "came since",
            advice=(
                Advice(
                    Act.START,
                    "start the job again when its next run is due: it reads on from here",
                ),
            ),
        )
    was_run = plan is not None and plan.until_ms is not None
    return Cause(
        kind="no owner",
        about=shard_id,
        says=f"no process owns the application, so its job does not run{rest}",
        advice=(
            Advice(Act.START, "start its next run" if was_run else "start the job"),
            Advice(Act.LOOK, "or, if it should run already: see in its log why it ended"),
        ),
    )


def _no_task(look: Look, shard_id: str) -> Cause | None:
    if not look.now.stored.owners or look.now.owner_of(shard_id) is not None:
        return None
    total = look.now.stored.total_tasks or 1
    missing = task_of(shard_id, total)
    there = sorted(one.task.index for one in look.now.stored.owners if one.task is not None)
    run = f"that of index {there[0]} runs"
    if len(there) > 1:
        run = f"those of index {joined(there)} run"
    which = f"the {ordinal(missing + 1)} of the {total} tasks"
    log = look.now.stored.runs.get(TaskShare(missing, total))
    told, advice = task_missing(look, log, f"start {which} (index {missing})")
    return Cause(
        kind="task missing",
        about=shard_id,
        says=f"is read by {which} that share the application (index {missing}), and that one does "
        f"not run ({run}); {told}",
        advice=advice,
    )


def _outage(look: Look, shard_id: str) -> Cause | None:
    until_ms = outage_until_ms(look, shard_id)
    if until_ms is None:
        return None
    reasons = Counter[str]()
    for state in look.now.states.values():
        for one in state.unresolved:
            reasons[one.reason or ""] += one.count
    del reasons[""]
    most = reasons.most_common(1)
    with_reason = f", {most[0][1]:,} with {quoted(most[0][0])}" if most else ""
    return Cause(
        kind="outage",
        about=shard_id,
        says=f"nearly all records of the last batch failed{with_reason}, so the job takes it for "
        "an outage: no attempt counts, and nothing new is read until records get through; the "
        f"next try is due {moment(until_ms, look.now.now_ms)}",
        advice=(
            Advice(
                Act.CHANGE,
                "mend what the records are written to, or what the function calls; the log has all "
                "reasons; no record is to be given up for it",
            ),
            Advice(Act.WAIT, f"wait until {moment(until_ms, look.now.now_ms)}", until_ms=until_ms),
        ),
    )


def _search(look: Look, shard_id: str) -> Cause | None:
    plan = look.now.open_plan
    limit = None if plan is None else plan.delivery_limit
    if plan is None or limit is None:
        return None
    return Cause(
        kind="search",
        about=shard_id,
        says="a batch never answered, so one of its records may end the process that gets it: the "
        f"job delivers at most {records(limit)} at a time until it has found it",
        advice=(
            Advice(Act.WAIT, "wait until the search is over"),
            Advice(Act.LOOK, "see how the executors' Python workers ended", mends=WORKER),
        ),
    )


def _batch(look: Look, shard_id: str) -> Cause | None:
    """The batch under way, by the stage that it has reached."""
    plan = look.now.open_plan
    if plan is None:
        return None
    stage = _SETTLING if plan.status is PlanStatus.CLOSED else _stage_of(look, shard_id, plan)
    now_ms = look.now.now_ms
    age_ms = max(0, now_ms - plan.created_ms)
    began_ms = max([plan.created_ms, *(one.info.since_ms for one in look.now.stored.owners)])
    at_work_ms = max(0, now_ms - began_ms)  # a batch may be older than the run that has it
    usual_ms = None if plan.previous_ms is None else plan.created_ms - plan.previous_ms
    usual = "" if usual_ms is None else f" (the one before took {duration(usual_ms)})"
    is_long = at_work_ms > (_FIRST_BATCH_MS if usual_ms is None else usual_ms)
    if at_work_ms < age_ms:
        usual += f", and in this run for {duration(at_work_ms)}"
    is_known = stage.where == OTHER_CONSUMERS or shard_id in look.unanswered
    is_certain = is_long or usual_ms is None or is_known
    where = stage.where if is_certain else f"if it stays so, {stage.where}"
    wait, look_there = Advice(Act.WAIT, "wait for its end"), Advice(Act.LOOK, where)
    return Cause(
        kind=stage.kind,
        about=shard_id,
        says=f"the batch of plan {plan.plan_id}, made {duration(age_ms)} ago{usual}, {stage.says}",
        advice=_unless_it_ends(
            look,
            shard_id,
            *((look_there, wait) if is_long or is_known else (wait, look_there)),
        ),
    )


def _unless_it_ends(look: Look, shard_id: str, *advice: Advice) -> tuple[Advice, ...]:
    """Nothing where the process ends again and again: that is to be mended, and nobody waits for
    its batch.
    """
    return () if restarts(look, shard_id) is not None else advice


def _stage_of(look: Look, shard_id: str, plan: PlanView) -> _Stage:
    planned = look.now.planned.get(shard_id)
    tasks = plan.tasks if planned is None else (planned.task,)
    where = "a task" if planned is None else "its task"
    logs = [task.log for task in tasks]
    throttled = throttled_clause(look, shard_id)
    is_reading = any(log is None or not log.sealed for log in logs)
    if is_reading and (why := look.unanswered.get(shard_id)) is not None:
        return _Stage(
            "task gets no answer",
            f"is open, and {where} reads; explain asks the service for the shard, too, and is "
            f"answered: {why}",
            deed_of(why) or "see the AWS Health Dashboard of the region",
        )
    if None in logs:
        return _task_not_begun(look, where, throttled)
    if any(log is not None and not log.sealed for log in logs):
        rows = sum(0 if log is None else log.rows for log in logs)
        return _Stage(
            "task runs",
            f"is open, and {where} is reading ({records(rows)} so far){throttled}",
            OTHER_CONSUMERS
            if throttled
            else "see in the executor's log whether the shard is throttled: other consumers share "
            "its limits, which cannot be seen from outside",
        )
    if plan.report is ReportStatus.OPEN and plan.openings > 1:
        return _Stage(
            "unanswered batch",
            f"was delivered {plan.openings} times, and no delivery has answered: the process "
            "that ran it ended each time, or still runs",
            "see how the driver and the Python workers ended: a record may end the process",
        )
    if plan.report is not None:
        return _REPORT_STAGES[plan.report]
    return _SINK_WRITES if look.now.stored.policy is None else _NOT_REPORTED


def _task_not_begun(look: Look, where: str, throttled: str) -> _Stage:
    """At the first batch of a run, an executor is missing rather than that the function hangs."""
    if throttled:
        return _Stage(
            "task not begun",
            f"is open, and {where} has read nothing yet{throttled}",
            OTHER_CONSUMERS,
        )
    plan, owners = look.now.open_plan, look.now.stored.owners
    is_first = plan is not None and any(
        plan.previous_ms is None or plan.previous_ms < one.info.since_ms for one in owners
    )
    waits = "its task waits for an executor with a free core"
    hangs = "your function has not asked for its rows"
    see_executors = (
        "see in Spark's UI whether there are executors, and in their logs whether they reach "
        "Kinesis and ZooKeeper"
    )
    see_function = (
        "see whether a Spark job of the batch runs at all: if none does, your function "
        "(foreachBatch) hangs before it asks for the rows, and a stack dump of the driver's Python "
        "tells where"
    )
    if is_first:
        why, deed = f"{waits} (it is the first batch of this run), or {hangs}", see_executors
        other = see_function
    else:
        why, deed, other = f"{hangs}, or {waits}", see_function, see_executors
    return _Stage(
        "task not begun",
        f"is open, and {where} has read nothing yet: {why}",
        f"{deed}; if that is well, {other}",
    )


class _Stage(NamedTuple):
    """A stage of a batch: its kind of cause, a clause about it, and where to look."""

    kind: str
    says: str
    where: str


_SETTLING = _Stage(
    "settling",
    "is closed, and its outcomes are being written to the shard states",
    "see in the driver's log what holds the settling",
)
_REPORT_STAGES = {
    ReportStatus.OPEN: _Stage(
        "function runs",
        "was read, and your function is at work on it: its report is open",
        "see in Spark's UI what the batch does: its sink or function does not answer",
    ),
    ReportStatus.DONE: _Stage(
        "reported",
        "was read and reported, and is settled when Spark asks for the next batch",
        "see in the driver's log why Spark asks for no batch: a trigger's interval, or a query "
        "that hangs",
    ),
}
_NOT_REPORTED = _Stage(
    "not reported",
    "was read, and no report of its outcomes was begun",
    "see whether foreachBatch is given src.tracked(...), and what its query waits for",
)
_SINK_WRITES = _Stage(
    "sink writes",
    "was read; its sink is writing it, or Spark waits for its next trigger",
    "see in Spark's UI what the batch does",
)


def _throttled(look: Look, shard_id: str) -> Cause | None:
    """Where it is asked now, or where its consumer told of it."""
    again = Advice(Act.WAIT, "look again in a minute")
    if shard_id not in look.throttled:
        told = throttled_clause(look, shard_id)
        if not told:
            return None
        return Cause(
            kind="throttled",
            about=shard_id,
            says=f"is read by {words_of(look).it}, and nothing of its own holds it{told}",
            advice=(Advice(Act.CHANGE, OTHER_CONSUMERS), again),
        )
    return Cause(
        kind="throttled",
        about=shard_id,
        says="is throttled: a question for its newest record was refused, so its five reads or "
        f"2 MB a second are used up by its consumers, of which {words_of(look).it} is one",
        advice=(Advice(Act.CHANGE, OTHER_CONSUMERS), again),
    )


def _unanswered(look: Look, shard_id: str) -> Cause | None:
    """The service fails where it is asked, so the job may fare no better."""
    why = look.unanswered.get(shard_id)
    if why is None:
        return None
    deed = deed_of(why)
    return Cause(
        kind="service fails",
        about=shard_id,
        says=f"the service did not tell its newest record: {why}; {words_of(look).it} meets the "
        "same, and tries again until it gets an answer",
        advice=(
            *(() if deed is None else (Advice(Act.CHANGE, deed),)),
            Advice(Act.WAIT, "wait until the service answers, and look again"),
            Advice(Act.LOOK, "see the AWS Health Dashboard of the region if it lasts"),
        ),
    )


def _idle_job(look: Look, shard_id: str) -> Cause | None:
    """Nothing but the state tells, and it says that nothing was left when it was stored."""
    state = look.now.states.get(shard_id)
    if state is None or not state.at_tip or shard_id in look.tips or state.unresolved:
        return None
    if look.refused:
        return Cause(
            kind="tip not told",
            about=shard_id,
            says="was at its tip when the job last stored its state, and whether records came "
            "since is not known: no shard may be asked",
            advice=(
                Advice(Act.CHANGE, "give whoever looks the right to read (kinesis:GetRecords)"),
                LOG,
            ),
        )
    return Cause(
        kind="was at its tip",
        about=shard_id,
        says="was at its tip when the job last stored its state, and the job runs; its tip was "
        "not asked for now, so whether records came since is not known",
        advice=(Advice(Act.LOOK, "explain this shard alone, or raise --ask"),),
    )


def _unresolved_limit(look: Look, shard_id: str) -> Cause | None:
    """Records are unresolved, and nothing new is read. How many there may be is not stored."""
    state, tip = look.now.states.get(shard_id), look.tips.get(shard_id)
    has_unread = tip is not None and tip.next_ms is not None and not look.keeps_up(shard_id)
    if state is None or not state.unresolved or not has_unread or look.has_moved(shard_id):
        return None
    planned = look.now.planned.get(shard_id)
    if planned is not None and planned.slice.max_records:
        return None  # the batch under way reads it
    count, option = state.unresolved_count, words_of(look).max_unresolved
    owner = look.now.owner_of(shard_id)
    run = None if owner is None else run_of(look, owner)
    limit = None if run is None else run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    if limit is not None and 2 * count < limit:
        return None
    why = unresolved_besides(look, shard_id).advice
    likely = "is reached" if count >= (limit or MAX_UNRESOLVED) else "may be reached"
    told = (
        f"{option}, {MAX_UNRESOLVED:,} unless set; what is set is not stored"
        if limit is None
        else f"{option}, {limit:,}"
    )
    out = (
        f" Their program's limit, max_pending, counts those of all shards ({_total(look):,} now)."
        if look.now.is_spout
        else ""
    )
    return Cause(
        kind="unresolved limit",
        about=shard_id,
        says=f"{words_of(look).it} runs and reads nothing new of it, while {records(count)} "
        f"{'is' if count == 1 else 'are'} not acked: its limit of unresolved records {likely} "
        f"({told}), and then nothing new is read until some of them are acked or are dead "
        f"letters.{out}",
        advice=(
            *(why or (Advice(Act.CHANGE, "mend what they wait for"),)),
            Advice(
                Act.CHANGE,
                f"or, if {option} is set as low as {count:,}: raise it"
                if limit is None
                else f"or, if more may be unresolved at a time: raise {option}",
            ),
            LOG,
        ),
    )


def _total(look: Look) -> int:
    return sum(state.unresolved_count for state in look.now.states.values())


def _unseen_spout(look: Look, shard_id: str) -> Cause | None:
    """As `_unseen`, in the words of a spout."""
    if not look.now.is_spout:
        return None
    if look.keeps_up(shard_id):  # so nothing keeps it from reading
        return Cause(
            kind="not to be seen",
            about=shard_id,
            says="the spout runs, and what is due was not seen to be tried again: its program "
            "takes no record, as many are out with it as may be (max_pending), or it was tried "
            f"just now, and that is not stored yet{session_clause(look, shard_id)}",
            advice=_unless_it_ends(look, shard_id, *_LOOK_AGAIN),
        )
    return Cause(
        kind="not to be seen",
        about=shard_id,
        says="the spout runs, and nothing that it has stored says what it waits for: other "
        "consumers that use up the shard's limits, its own limits (max_pending, "
        "max_unresolved_per_shard, rate), its program, which takes no record, or the network"
        f"{session_clause(look, shard_id)}",
        advice=_unless_it_ends(look, shard_id, *_LOOK_AGAIN),
    )


def _unseen(look: Look, shard_id: str) -> Cause:
    """The last rule: an owner runs, and nothing in ZooKeeper says what it waits for."""
    who = "the spout" if look.now.is_spout else "the job"
    return Cause(
        kind="not to be seen",
        about=shard_id,
        says=f"{who} runs, and nothing that it has stored says what it waits for: other consumers "
        "that use up the shard's limits, a trigger's interval, its own limits (records per "
        f"trigger, unresolved records per shard), or the network{session_clause(look, shard_id)}",
        advice=_unless_it_ends(look, shard_id, *_LOOK_AGAIN),
    )


OF_THE_JOB: tuple[Callable[[Look, str], Cause | None], ...] = (
    _paused,
    _refused,
    nobody_may_write,
    reserved_nodes,
    _no_owner,
    _no_task,
    restarts,
    failed_before,
    process_halted,
    not_told_to_read,
    reads_fail,
    held_by_program,
    letters_refused,
    _outage,
    _search,
    next_trigger,
    _unresolved_limit,
    _batch,
    _throttled,
    _unanswered,
    _idle_job,
    _unseen_spout,
    _unseen,
)
