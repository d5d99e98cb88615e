"""The rules about the process that owns the application: what it told of its runs
(`state.owner.run_log`), and what this machine sees of it. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import THE_NEXT_RULE, Act, Advice, Cause
from kinesis_spout.inspection.health import READ_PHASES
from kinesis_spout.inspection.wording import moment, records, short_shard
from state.owner.owner_info import Sight
from state.owner.run_log import DEACTIVATED, DONE, FAILED, FULL, SPARK
from state.plan import PlanStatus
from state.report import ReportStatus
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.inspection.health import Look
    from state.owner.owner_info import OwnerInfo
    from state.owner.run_log import RefusedLetters, Run, RunEnd, RunLog
    from state.shard_state import UnresolvedRecord
    from state.state_store import OwnerView

CRASHES = 3  # so many starts in a row are a loop
_LOOP_MS = 15 * 60_000  # if each came so soon after the one before
_PATIENCE_MS = 10_000
LOSS, RIGHT = "loss", "right"  # what several causes of a chain may advise on
_DENIED = re.compile(r"not authorized to perform: ([a-z]+:[A-Za-z]+)")
_DEEDS = frozenset(
    {"allow", "check", "correct", "enable", "give", "lower", "raise", "repair", "restore", "set"}
    | {"start", "use"}
)
_LATELY_MS = 10 * 60_000
OTHER_CONSUMERS = (
    "see who else reads the stream: give the others consumers of their own (enhanced fan-out), or "
    "fewer reads, or split the shard"
)
_LOG = Advice(Act.LOOK, "see its log, and that of what starts it")
CORRECT_SINK = Advice(
    Act.CHANGE,
    "correct dead_letter, or what it writes to: the letters are sent again by themselves, within "
    "60 s, and their records leave with them",
)


# no owner ----------------------------------------------------------------------------------------
def last_run(look: Look, shard_id: str) -> Cause | None:
    """How the last run ended, where nothing runs now; None where no run told of itself."""
    log = look.now.last_log
    run = None if log is None else log.newest
    if log is None or run is None:
        return None
    sight = look.now.sights.get(run.owner)
    if run.end is None and sight is Sight.STOPPED:
        return _frozen(shard_id, run)
    if run.end is None and sight is Sight.RUNS:
        return _cut_off(shard_id, run)
    loop = _crashes(log)
    if len(loop) >= CRASHES:
        return _crash_loop(look, shard_id, loop)
    return _ended(look, shard_id, run)


def _ended(look: Look, shard_id: str, run: Run) -> Cause:
    now_ms, end, open_plan = look.now.now_ms, run.end, look.now.open_plan
    again = ""
    if open_plan is not None:
        again = f"; the batch of plan {open_plan.plan_id} comes again when it is started"
    what = f"no process owns the application: its last run, {_who(run)},"
    if end is not None and end.kind == FAILED:
        return Cause(
            kind="run failed",
            about=shard_id,
            says=f"{what} ended at {moment(end.time_ms, now_ms)} with: {_said(run)}{again}",
            advice=(_remedy(run), Advice(Act.START, "start it again after that"), _LOG),
        )
    if end is not None and end.kind == DONE:
        return _over(look, shard_id, run, end)
    if end is not None:
        return Cause(
            kind="run stopped",
            about=shard_id,
            says=f"{what} was stopped at {moment(end.time_ms, now_ms)}, in order and without an "
            f"error{again}",
            advice=(Advice(Act.START, "start the job"),),
        )
    since = f"began at {moment(run.owner.since_ms, now_ms)}"
    if run.kind == SPARK:
        says = f"{since} and ended without a word{_silence(look)}"
    else:
        says = f"{since} and was killed: it did not close its spout (kill -9, out of memory, host)"
    return Cause(
        kind="run vanished",
        about=shard_id,
        says=f"{what} {says}{again}",
        advice=(Advice(Act.START, "start the job"), *_what_ended(look, run)),
    )


def _silence(look: Look) -> str:
    """What may have ended a Spark job that told nothing, the likeliest first. A tracked function's
    errors are told, and Spark tells a source nothing of the errors of other functions and sinks.
    """
    plan = look.now.open_plan
    logs = [task.log for task in (() if plan is None else plan.tasks)]
    if look.now.stored.policy is not None:
        return (
            ": its query was stopped, its driver was killed (kill -9, out of memory), or a record "
            "of the batch ended its Python worker"
        )
    where = ""
    if plan is not None and logs and all(log is not None and log.sealed for log in logs):
        where = f"the batch of plan {plan.plan_id} was read, and was with its sink; "
    return (
        f": {where}Spark tells a source nothing of why a query ends: most likely its sink or "
        "foreachBatch function raised an error; else its query was stopped, or its driver killed "
        "(kill -9, out of memory)"
    )


def _what_ended(look: Look, run: Run) -> tuple[Advice, ...]:
    host = run.owner.host
    killed = Advice(
        Act.LOOK,
        f"see on {host} what ended it: its log, dmesg for the OOM killer, what starts and stops it",
    )
    if run.kind != SPARK:
        return (killed,)
    if look.now.stored.policy is not None:
        worker = Advice(
            Act.LOOK,
            "see the end of the job's own log: where a Python worker crashed or exited, a record "
            "of the batch ends it, by its memory or a fault of the function, at each start",
        )
        return worker, killed
    return (
        Advice(
            Act.LOOK,
            "see the end of the job's own log: the exception of its sink or function stands there",
        ),
        Advice(
            Act.LOOK,
            f"or, if no exception is there: see on {host} what killed it or stopped it: dmesg for "
            "the OOM killer, its memory limit, what starts and stops it",
        ),
    )


def over_told(look: Look) -> str:
    """How the last run ended, which was to end by itself: a sentence without its full stop."""
    now_ms, log, end = look.now.now_ms, look.now.last_log, look.now.ended_in_order
    run = None if log is None else log.newest
    if run is None or end is None:
        return ""
    plan = look.now.stored.plan
    upto = None if plan is None or run.kind != SPARK else plan.until_ms
    read = "all that there was" if upto is None else f"all that came up to {moment(upto, now_ms)}"
    kind = "an AvailableNow run" if run.kind == SPARK else "a run that was to end, as by --until"
    left = f"; {_said(run)}" if end.says else ""
    verb = "was to read" if end.says else "read"
    return (
        f"no process runs now, and none is to: the last run ({kind}) {verb} {read}, and ended in "
        f"order at {moment(end.time_ms, now_ms)}{left}"
    )


def _over(look: Look, shard_id: str, run: Run, end: RunEnd) -> Cause:
    told = over_told(look)
    if not told:  # another task of the application did not end so
        told = (
            f"its last run, {_who(run)}, ended in order at {moment(end.time_ms, look.now.now_ms)}"
        )
    interval_ms = look.now.run_interval_ms
    again = Advice(Act.START, "start the job again when its next run is due: it reads on from here")
    if look.waits_for_next_run or interval_ms is None:
        says = f"{told}; the next run reads what came since"
        advice: tuple[Advice, ...] = (again,)
    else:
        says = (
            f"{told}; the next run, which reads what came since, is overdue: the runs before began "
            f"within {duration(interval_ms)} of each other"
        )
        advice = (
            Advice(Act.START, "start the job again: it reads on from here"),
            Advice(Act.LOOK, "see why its schedule has not started it"),
        )
    return Cause(kind="run over", about=shard_id, says=says, advice=advice)


def _crashes(log: RunLog) -> Sequence[Run]:
    """The last runs in a row of which each ended badly, soon after it had begun."""
    found: list[Run] = []
    for run in reversed(log.runs):
        is_bad = run.end is None or run.end.kind == FAILED
        soon = not found or found[-1].owner.since_ms - run.owner.since_ms <= _LOOP_MS
        if not is_bad or not soon:
            break
        found.append(run)
    return found[::-1]


def restarts(look: Look, shard_id: str) -> Cause | None:
    """The process that runs now is one more of a crash loop, as far as can be told."""
    owner = look.now.owner_of(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    if log is None or log.newest is None or log.newest.end is not None:
        return None
    runs = _crashes(log)
    if len(runs) <= CRASHES:
        return None
    # One that has lived for much longer than those before it does not end as they did.
    if look.now.now_ms - runs[-1].owner.since_ms > _PATIENCE_MS + 3 * _interval_ms(runs[:-1]):
        return None
    return Cause(
        kind="crash loop",
        about=shard_id,
        says=f"{_loop(look, runs[:-1])}; it was started again at "
        f"{moment(log.newest.owner.since_ms, look.now.now_ms)}",
        advice=_mend(look, runs[:-1]),
        leads_to=None if look.has_moved(shard_id) else THE_NEXT_RULE,
    )


def _crash_loop(look: Look, shard_id: str, runs: Sequence[Run]) -> Cause:
    return Cause(
        kind="crash loop",
        about=shard_id,
        says=f"no process owns the application: {_loop(look, runs)}",
        advice=_mend(look, runs),
    )


def _loop(look: Look, runs: Sequence[Run]) -> str:
    """How often it has ended, how soon, and with what."""
    count, first_ms, every_ms = len(runs), runs[0].owner.since_ms, _interval_ms(runs)
    start = (
        f"its job ends soon after each start: it was started {count} times since "
        f"{moment(first_ms, look.now.now_ms)}, about every {duration(every_ms)}, and"
    )
    ends = [(run, run.end) for run in runs if run.end is not None]
    if not ends:
        why = (
            f"{_silence(look)}, perhaps by a record that ends its process"
            if runs[-1].kind == SPARK
            else ": killed (kill -9, out of memory), perhaps by a record that ends its process"
        )
        return f"{start} ended each time without a word{why}"
    last, _end = ends[-1]
    killed = "" if len(ends) == count else f" ({count - len(ends)} of them ended without a word)"
    lasted = sorted(max(0, end.time_ms - run.owner.since_ms) for run, end in ends)
    after = duration(lasted[len(lasted) // 2])
    said = "each time" if len({end.says for _, end in ends}) == 1 else "the last time"
    return f"{start} ended after about {after}, {said} with: {_said(last)}{killed}"


def _interval_ms(runs: Sequence[Run]) -> int:
    """Between two starts, on average."""
    return (runs[-1].owner.since_ms - runs[0].owner.since_ms) // (len(runs) - 1)


def _remedy(run: Run) -> Advice:
    """What the error names that ended the run, as a deed. Our errors end with it."""
    says = printable((run.end.says if run.end is not None else None) or "")
    mends = ""
    if "fail_on_data_loss" in says or "failOnDataLoss" in says:
        mends = LOSS
    elif "AccessDenied" in says or "KMS" in says:
        mends = RIGHT
    return Advice(Act.CHANGE, _deed_of(says) or "mend what that error names", mends=mends)


def _deed_of(says: str) -> str | None:
    """What an error of ours asks for; None where it does not."""
    denied = _DENIED.search(says)
    if denied is not None:
        return f"allow {denied[1]} to the role or user of the job (IAM)"
    deeds: list[str] = []
    for clause in reversed(says.split("; ")):
        if clause.split(" ", 1)[0] not in _DEEDS or clause.endswith("..."):
            break
        deeds.insert(0, clause)
    return "; or, ".join(deeds) or None


def _mend(look: Look, runs: Sequence[Run]) -> tuple[Advice, ...]:
    if any(run.end is not None for run in runs):
        last = next(run for run in reversed(runs) if run.end is not None)
        remedy = _remedy(last)
        return replace(remedy, text=f"{remedy.text}; to start it again alone does not help"), _LOG
    return _what_ended(look, runs[-1])


def is_down(look: Look, shard_id: str) -> bool:
    """Whether it is known that nobody reads the shard's next record, though somebody should: the
    last run ended with an error or without a word, or its process is halted.
    """
    if not look.now.stored.owners:
        log = look.now.last_log
        run = None if log is None else log.newest
        return run is not None and (run.end is None or run.end.kind == FAILED)
    rules = (process_halted, not_told_to_read)
    return any(rule(look, shard_id) is not None for rule in rules)


# an owner that does nothing ----------------------------------------------------------------------
def process_halted(look: Look, shard_id: str) -> Cause | None:
    """The owner's process, which is on this machine, is gone or stopped."""
    owner = look.now.owner_of(shard_id)
    sight = None if owner is None else look.now.sights.get(owner.info)
    if owner is not None and owner.info in look.now.stopped_jvms:
        return _jvm_stopped(shard_id, owner.info, look.now.stopped_jvms[owner.info])
    if owner is None or sight in {None, Sight.RUNS}:
        return None
    log = look.now.log_of(owner)
    run = None if log is None else log.newest
    timeout = "its session's timeout" if run is None else duration(run.session_timeout_ms)
    if log is not None and run is not None and run.end is not None:
        # It told how it ended. Its session is open for a moment more.
        loop = _crashes(log)
        is_loop = len(loop) >= CRASHES
        return _crash_loop(look, shard_id, loop) if is_loop else _ended(look, shard_id, run)
    if sight is Sight.STOPPED:
        return Cause(
            kind="process stopped",
            about=shard_id,
            says=f"its process ({_process(owner.info)}) is stopped (SIGSTOP, or Ctrl-Z in its "
            f"terminal): it reads nothing, and ZooKeeper ends its session {timeout} after it was "
            "stopped",
            advice=_wake_or_end(owner.info),
        )
    return Cause(
        kind="process gone",
        about=shard_id,
        says=f"its process ({_process(owner.info)}) is gone; ZooKeeper keeps its session for up to "
        f"{timeout} after its death, until {_latest(look, run)} at the latest",
        advice=(
            Advice(
                Act.START,
                f"start it again: on {owner.info.host} it takes over at once, elsewhere it waits "
                "for that session",
            ),
            Advice(Act.LOOK, "see what ended it: its log, dmesg for the OOM killer"),
        ),
    )


def _jvm_stopped(shard_id: str, owner: OwnerInfo, jvm_pid: int) -> Cause:
    host = owner.host
    return Cause(
        kind="JVM stopped",
        about=shard_id,
        says=f"Spark's JVM (pid {jvm_pid} on {host}) is stopped (SIGSTOP, or Ctrl-Z in its "
        f"terminal), so no batch goes on; its Python process (pid {owner.pid}) runs beside it, and "
        "keeps the session with ZooKeeper",
        advice=(
            Advice(Act.RESUME, f"let it go on: kill -CONT {jvm_pid} (on {host})"),
            Advice(
                Act.START,
                f"or, if it is not to go on: end it (kill -KILL {jvm_pid}) and start the job again",
            ),
        ),
    )


def session_clause(look: Look, shard_id: str) -> str:
    """Since when an owner's process may be dead, at most; empty where that is not known."""
    owner = look.now.owner_of(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    run = None if log is None else log.newest
    if run is None or look.now.sights.get(run.owner) is Sight.RUNS:
        return ""
    return (
        f"; its session is open, so its process ({_process(run.owner)}) was alive within the last "
        f"{duration(run.session_timeout_ms)}"
    )


def _frozen(shard_id: str, run: Run) -> Cause:
    return Cause(
        kind="process stopped",
        about=shard_id,
        says=f"no process owns the application: {_process(run.owner)}, which owned it, is stopped "
        f"(SIGSTOP, or Ctrl-Z in its terminal), so ZooKeeper has ended its session "
        f"({duration(run.session_timeout_ms)} without a sign of life)",
        advice=_wake_or_end(run.owner),
    )


def _cut_off(shard_id: str, run: Run) -> Cause:
    return Cause(
        kind="cut off",
        about=shard_id,
        says=f"no process owns the application: {_process(run.owner)}, which owned it, still runs, "
        f"but ZooKeeper has ended its session, after {duration(run.session_timeout_ms)} without a "
        "sign of life: it is cut off from ZooKeeper, or its spout was not closed",
        advice=(
            Advice(
                Act.LOOK,
                "see in its log whether it reaches ZooKeeper; it goes on by itself when it does",
            ),
            Advice(Act.START, "or, if it hangs: end it and start it again"),
        ),
    )


def _wake_or_end(owner: OwnerInfo) -> tuple[Advice, ...]:
    return (
        Advice(Act.RESUME, f"let it go on: kill -CONT {owner.pid} (on {owner.host})"),
        Advice(
            Act.START,
            f"or, if it is not to go on: end it (kill -KILL {owner.pid}) and start it again",
        ),
    )


# an owner that works -----------------------------------------------------------------------------
def not_told_to_read(look: Look, shard_id: str) -> Cause | None:
    """The owner reads some shards only, and not this one."""
    owner = look.now.owner_of(shard_id)
    run = None if owner is None else run_of(look, owner)
    if run is None or not run.shards or shard_id in run.shards:
        return None
    some = [short_shard(one) for one in run.shards[:5]]
    more = f" and {len(run.shards) - 5:,} more" if len(run.shards) > 5 else ""
    only = f"shard {some[0]}" if len(run.shards) == 1 else f"shards {joined_texts(some)}{more}"
    return Cause(
        kind="shard not told",
        about=shard_id,
        says=f"the running job ({_process(run.owner)}) reads only {only} (--shard, or `shards`): "
        "nobody reads this one",
        advice=(
            Advice(
                Act.CHANGE,
                "start it again without --shard, or with this shard too; a second process beside "
                "it needs --task-index and --total-tasks",
            ),
        ),
    )


def held_by_program(look: Look, shard_id: str) -> Cause | None:
    """The spout's own program has stopped it, or does not answer."""
    owner = look.now.owner_of(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    run = None if log is None else log.newest
    if log is None or run is None or log.hold is None:
        return None
    since = moment(log.hold.since_ms, look.now.now_ms)
    if log.hold.kind == DEACTIVATED:
        return Cause(
            kind="deactivated",
            about=shard_id,
            says=f"its program ({_process(run.owner)}) deactivated the spout at {since}: it gives "
            "no record until activate() is called",
            advice=(Advice(Act.CHANGE, "make its program call activate()"),),
        )
    if log.hold.kind != FULL:
        return None
    limit = "max_pending" if run.max_pending is None else records(run.max_pending)
    return Cause(
        kind="full",
        about=shard_id,
        says=f"the limit of {limit} (max_pending) is out with its program "
        f"({_process(run.owner)}), which has answered none since {since}: nothing new is given out",
        advice=(
            Advice(
                Act.LOOK,
                "see what the program waits for: it must ack or fail the records that it has",
            ),
            Advice(Act.CHANGE, "or, if it needs more records at a time: raise max_pending"),
        ),
    )


def letters_refused(look: Look, shard_id: str) -> Cause | None:
    """The spout's records whose retries are used up fill the shard's room, as their letters are
    refused.
    """
    owner, state = look.now.owner_of(shard_id), look.now.states.get(shard_id)
    run = None if owner is None else run_of(look, owner)
    limit = None if run is None else run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    if state is None or limit is None or 2 * state.unresolved_count < limit:
        return None
    refused = refused_letters(look, shard_id)
    if refused is None:
        return None
    return Cause(
        kind="letters refused",
        about=shard_id,
        says=f"the spout reads nothing new of it while so many of its records are not acked "
        f"(max_unresolved_per_shard, {limit:,}): {refusal_told(look, refused)}",
        advice=(CORRECT_SINK,),
    )


def refused_letters(look: Look, shard_id: str) -> RefusedLetters | None:
    """The dead letters that the shard's spout cannot write, where the shard may have some."""
    owner, state = look.now.owner_of(shard_id), look.now.states.get(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    if log is None or log.refused_letters is None or state is None:
        return None
    policy = retry_policy(look, shard_id)
    has_some = any(one.rejected or is_exhausted(policy, look, one) for one in state.unresolved)
    return log.refused_letters if has_some else None


def refusal_told(look: Look, refused: RefusedLetters) -> str:
    """A clause: how many records cannot be dead-lettered, and why."""
    is_one = refused.count == 1
    its, stay = ("its letter", "stays") if is_one else ("their letters", "stay")
    return (
        f"{records(refused.count)} whose retries are used up cannot be dead-lettered: dead_letter "
        f"refuses {its}, last at {moment(refused.last_ms, look.now.now_ms)} with: "
        f"{printable(refused.says)}; until {its} {'is' if is_one else 'are'} written, "
        f"{'it' if is_one else 'they'} {stay} unresolved, and the checkpoint stays below"
    )


def retry_policy(look: Look, shard_id: str) -> RetryPolicy | None:
    """That of a tracked query, or of the spout that reads the shard, as it told."""
    if look.now.stored.policy is not None and not look.now.is_spout:
        return look.now.stored.policy.retry
    owner = look.now.owner_of(shard_id)
    run = None if owner is None else run_of(look, owner)
    if run is None or run.max_attempts is None:
        return None
    return RetryPolicy(retry_limit=max(0, run.max_attempts - 1), max_age_ms=run.max_age_ms)


def is_exhausted(policy: RetryPolicy | None, look: Look, record: UnresolvedRecord) -> bool:
    return policy is not None and policy.exhausted(
        record.attempts, record.first_counted_failure_ms, look.now.now_ms
    )


def next_trigger(look: Look, shard_id: str) -> Cause | None:
    """A Spark query between two batches, whose trigger is known."""
    trigger_ms = look.now.trigger_ms
    if not trigger_ms:
        return None
    now_ms, plan = look.now.now_ms, look.now.open_plan
    due_ms = (now_ms // trigger_ms + 1) * trigger_ms
    is_done = plan is None or (
        plan.status is not PlanStatus.CLOSED and plan.report is ReportStatus.DONE
    )
    # Without a report nobody knows whether the sink has written it.
    is_read = plan is not None and look.now.stored.policy is None and plan.report is None
    is_read = is_read and all(
        task.log is not None and task.log.sealed for task in ([] if plan is None else plan.tasks)
    )
    is_overdue = plan is not None and now_ms - plan.created_ms > trigger_ms + look.window_ms
    if not (is_done or is_read) or is_overdue:
        return None
    what = "no batch is under way"
    if plan is not None:
        what = "the last batch is done"
        if not is_done:
            what = f"the batch of plan {plan.plan_id} was read, and its sink has it or wrote it"
    return Cause(
        kind="trigger waits",
        about=shard_id,
        says=f"{what}; the next batch is due about {moment(due_ms, now_ms)} (its trigger comes "
        f"every {duration(trigger_ms)})",
        advice=(
            Advice(Act.WAIT, f"wait until {moment(due_ms, now_ms)}", until_ms=due_ms),
            Advice(Act.CHANGE, "or, if that is too late: give the query a shorter trigger"),
        ),
    )


def not_subscribed(look: Look, shard_id: str) -> Cause | None:
    """A shard that is to be read by subscription gets none, as its consumer told."""
    owner = look.now.owner_of(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    told = None if log is None else log.not_subscribed
    if told is None or look.phase(shard_id) not in READ_PHASES:
        return None
    says = printable(told.says)
    deed = _deed_of(says) or "see that its consumer is there (kinesis-spout consumers list)"
    return Cause(
        kind="not subscribed",
        about=shard_id,
        says="is to be read by enhanced fan-out, and cannot be subscribed to since "
        f"{moment(told.since_ms, look.now.now_ms)}: {says}; while it is polled instead, it shares "
        "its five reads and 2 MB a second with all that poll it",
        advice=(
            Advice(
                Act.CHANGE,
                f"{deed}; or, if it is gone for good: give the job another consumer (consumerName, "
                "--consumer-name). It subscribes again by itself",
                is_urgent=True,
            ),
        ),
        leads_to=THE_NEXT_RULE,
    )


def throttled_clause(look: Look, shard_id: str) -> str:
    """That the shard's reads were refused since its oldest unread record came, or within the last
    ten minutes, as its consumer told; empty where they were not.
    """
    owner = look.now.owner_of(shard_id)
    log = None if owner is None else look.now.log_of(owner)
    planned = look.now.planned.get(shard_id)
    read = None if planned is None else planned.result
    if shard_id in look.throttled:
        return "; it is throttled now: its five reads or 2 MB a second are used up"
    if read is not None and read.throttled:
        return (
            f"; the service throttles it: {_refused(read.throttled)} in the batch under way, as "
            "its five reads or 2 MB a second were used up"
        )
    told = None if log is None else log.throttled.get(shard_id)
    if told is None:
        return ""
    frontier_ms, now_ms = look.frontier_ms(shard_id), look.now.now_ms
    since_ms = now_ms - _LATELY_MS if frontier_ms is None else min(frontier_ms, now_ms - _LATELY_MS)
    if told.last_ms < since_ms:
        return ""
    return (
        f"; the service throttled it: {_refused(told.count)} since the job began, the last at "
        f"{moment(told.last_ms, now_ms)}, as its five reads or 2 MB a second were used up"
    )


def _refused(count: int) -> str:
    return "1 read was refused" if count == 1 else f"{count:,} reads were refused"


# private -----------------------------------------------------------------------------------------
def joined_texts(texts: Sequence[str]) -> str:
    *rest, last = texts
    return f"{', '.join(rest)} and {last}" if rest else last


def run_of(look: Look, owner: OwnerView) -> Run | None:
    log = look.now.log_of(owner)
    return None if log is None else log.newest


def _who(run: Run) -> str:
    kind = "a Spark job" if run.kind == SPARK else "a spout"
    return f"{kind} ({_process(run.owner)})"


def _process(owner: OwnerInfo) -> str:
    return f"pid {owner.pid} on {owner.host}"


def _said(run: Run) -> str:
    says = None if run.end is None else run.end.says
    return "an error" if says is None else printable(says)


def printable(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _latest(look: Look, run: Run | None) -> str:
    timeout_ms = 0 if run is None else run.session_timeout_ms
    return moment(look.now.now_ms + timeout_ms, look.now.now_ms)
