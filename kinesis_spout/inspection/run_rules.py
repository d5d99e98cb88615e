"""The rules about the process that owns the application, or has owned it last: how its runs ended,
as it told (`state.store.runs`), and what this machine sees of it. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import THE_NEXT_RULE, Act, Advice, Cause
from kinesis_spout.inspection.wording import kind_told, moment, ordinal
from state.store.ownership import ProcessState
from state.store.runs import DONE, FAILED, SPARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.inspection.health import Look
    from state.store.ownership import OwnerInfo
    from state.store.runs import Run, RunEnd, RunLog

CRASHES = 3  # so many starts in a row are a loop
_LOOP_MS = 15 * 60_000  # if each came so soon after the one before
PATIENCE_MS = 10_000
# What several causes of a chain may advise on.
LOSS, RIGHT, ACCESS, WORKER, ANSWERS = "loss", "right", "access", "worker", "answers"
_DENIED = re.compile(
    r"not authorized to perform: ([a-z]+:[A-Za-z]+)(?: on resource: (arn:[^\s,;]+[^\s,;.]))?"
)
_DEEDS = frozenset(
    {"allow", "check", "correct", "enable", "give", "lower", "raise", "repair", "restore", "set"}
    | {"start", "use", "ask", "create", "get", "install", "keep", "leave", "let", "make", "name"}
    | {"pass", "put", "register", "remove", "run", "see", "split", "stop", "try", "upgrade", "wait"}
)
_KINDS = {FAILED: "run failed"}
_NAMED = "mend what that error names"
_AND_START = re.compile(r",? and start the (?:job|query) again\b")  # advice of its own
_LOG = Advice(Act.LOOK, "see its log, and that of what starts it")


# no owner ----------------------------------------------------------------------------------------
def last_run(look: Look, shard_id: str) -> Cause | None:
    """How the last run ended, where nothing runs now; None where no run told of itself."""
    if look.now.last_log is None:
        return None
    log = look.now.last_log_for(shard_id)
    run = None if log is None else log.newest
    if log is None or run is None:
        return Cause(
            kind="task missing",
            about=shard_id,
            says=f"{_no_owner(look, shard_id)}: it has told of no run yet",
            advice=(Advice(Act.START, "start that task, and the others"),),
        )
    process_state = look.now.process_states.get(run.owner)
    if run.end is None and process_state is ProcessState.STOPPED:
        return _frozen(shard_id, run)
    if run.end is None and process_state is ProcessState.RUNS:
        return _cut_off(shard_id, run)
    loop = _crashes(log)
    if len(loop) >= CRASHES:
        return _crash_loop(look, shard_id, loop)
    return _ended(look, shard_id, run)


def _ended(look: Look, shard_id: str, run: Run) -> Cause:
    end, plan, starts = run.end, look.now.open_plan, _starts_with_the_batch(look, shard_id)
    if end is not None and end.kind == DONE:
        return _over(look, shard_id, run, end)
    again = ""
    if plan is not None:
        had = f", which it has had at {starts + 1} starts," if starts else ""
        again = f"; the batch of plan {plan.plan_id}{had} comes again when it is started"
    share = look.now.last_share(shard_id)
    start = "start the job" if share is None else f"start that task (index {share.index})"
    advice = _then_start(look, run, start)
    if end is None and starts:  # that alone has not helped
        advice = (*advice[1:], Advice(Act.START, "start it again after that"))
    return Cause(
        kind="run vanished" if end is None else _KINDS.get(end.kind, "run stopped"),
        about=shard_id,
        says=f"{_no_owner(look, shard_id)}: its last run, {_who(run)}, {_how_ended(look, run)}"
        f"{again}",
        advice=advice,
    )


def _starts_with_the_batch(look: Look, shard_id: str) -> int:
    """How often the job was started with the batch that is not settled, after the run that made
    it.
    """
    plan, log = look.now.open_plan, look.now.last_log_for(shard_id)
    runs = () if plan is None or log is None else log.runs
    return sum(plan is not None and one.owner.since_ms > plan.created_ms for one in runs)


def _no_owner(look: Look, shard_id: str) -> str:
    share = look.now.last_share(shard_id)
    if share is None:
        return "no process owns the application"
    return (
        "no process owns the application, and the shard is of its "
        f"{ordinal(share.index + 1)} task (index {share.index} of {share.total})"
    )


def _how_ended(look: Look, run: Run) -> str:
    """`ended at 08:32:10 with: ...`, as far as the run told."""
    now_ms, end = look.now.now_ms, run.end
    if end is not None:
        at = moment(end.time_ms, now_ms)
        if end.kind == FAILED:
            return f"ended at {at} with: {_fault(run)}"
        if end.kind == DONE:
            return f"ended in order at {at}"
        return f"was stopped at {at}, in order and without an error"
    since = f"began at {moment(run.owner.since_ms, now_ms)}"
    if look.now.hides_runs:
        return (
            f"{since} and has not told how it ended, which it may have been refused to store there"
        )
    if run.kind == SPARK:
        return f"{since} and ended without a word{_silence(look, run)}"
    return f"{since} and was killed: it did not close its spout (kill -9, out of memory, host)"


def _then_start(look: Look, run: Run, start: str) -> tuple[Advice, ...]:
    """What to do after such an end. `start`: how to start it, as a deed."""
    if run.end is None:
        return Advice(Act.START, start), *_what_ended(look, run)
    if run.end.kind == FAILED:
        return _mend_and_start(run)
    return (
        Advice(Act.START, start),
        Advice(Act.LOOK, "or, if it should run already: see in the log of what starts it why not"),
    )


def task_missing(look: Look, log: RunLog | None, start: str) -> tuple[str, tuple[Advice, ...]]:
    """How the last run of a task ended, as a clause, and what to do; the same where the process is
    one of several that share the application.
    """
    run = None if log is None else log.newest
    if log is None or run is None:
        return "it has told of no run yet", (Advice(Act.START, start),)
    loop = _crashes(log)
    if len(loop) >= CRASHES:
        return _loop(look, loop), _mend(look, loop)
    told = f"its last run, {_who(run)}, {_how_ended(look, run)}"
    return told, _then_start(look, run, start)


def _silence(look: Look, run: Run) -> str:
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
    if run.tells_errors:
        return (
            ": its driver was killed (kill -9, out of memory), or its query was stopped; an error "
            "of its sink or function would have been told"
        )
    where = ""
    if plan is not None and logs and all(log is not None and log.sealed for log in logs):
        where = f"the batch of plan {plan.plan_id} was read, and was with its sink; "
    return (
        f": {where}its sink or foreachBatch function raised an error, of which Spark tells a "
        "source nothing unless the frame came of read_stream; or its query was stopped, or its "
        "driver killed (kill -9, out of memory)"
    )


def _what_ended(look: Look, run: Run) -> tuple[Advice, ...]:
    host = run.owner.host
    if look.now.hides_runs:
        return (Advice(Act.LOOK, f"see in its log on {host} how it ended"),)
    killed = Advice(
        Act.LOOK,
        f"see on {host} what ended it: its log, dmesg for the OOM killer, what starts and stops it",
    )
    if run.kind != SPARK or run.tells_errors:
        return (killed,)
    if look.now.stored.policy is not None:
        worker = Advice(
            Act.LOOK,
            "see the end of the job's own log: where a Python worker crashed or exited, a record "
            "of the batch ends it, by its memory or a fault of the function, at each start",
            mends=WORKER,
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
    begun = moment(run.owner.since_ms, now_ms)
    return (
        f"no process runs now: the last run ({kind}, begun at {begun}) {verb} {read}, and ended in "
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
    scheduled = Advice(
        Act.LOOK,
        "see that its next run is scheduled (cron, or what starts it): nothing stored tells when "
        "it is due, and without it nobody reads what waits",
    )
    if look.waits_for_next_run or interval_ms is None:
        says = f"{told}; the next run reads what came since"
        advice: tuple[Advice, ...] = (again,)
        if interval_ms is None:
            advice = (scheduled, again)
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
    log = look.now.log_for(shard_id)
    if log is None or log.newest is None or log.newest.end is not None:
        return None
    runs = _crashes(log)
    if len(runs) <= CRASHES:
        return None
    # One that has lived for much longer than those before it does not end as they did.
    if look.now.now_ms - runs[-1].owner.since_ms > PATIENCE_MS + 3 * _interval_ms(runs[:-1]):
        return None
    return Cause(
        kind="crash loop",
        about=shard_id,
        says=f"{_loop(look, runs[:-1])}; it was started again at "
        f"{moment(log.newest.owner.since_ms, look.now.now_ms)}",
        advice=_mend(look, runs[:-1]),
        leads_to=THE_NEXT_RULE if _has_more_to_tell(look, shard_id, runs[-1]) else None,
    )


def _has_more_to_tell(look: Look, shard_id: str, run: Run) -> bool:
    """Whether what a run does that follows upon others which ended badly is worth a look: it has
    not gone again, and has a batch or some time behind it.
    """
    if look.has_moved(shard_id) or look.now.process_states.get(run.owner) is ProcessState.GONE:
        return False
    is_young = look.now.now_ms - run.owner.since_ms <= PATIENCE_MS
    return look.now.open_plan is not None or not is_young


def failed_before(look: Look, shard_id: str) -> Cause | None:
    """The run before ended badly, and the one that runs now has not got further: it has the same
    batch again, or, after an error, was started just now. Fewer times than a crash loop.
    """
    log = look.now.log_for(shard_id)
    if log is None or len(log.runs) < 2 or look.has_moved(shard_id) or restarts(look, shard_id):
        return None
    *_, before, run = log.runs
    plan, now_ms, end = look.now.open_plan, look.now.now_ms, before.end
    if run.end is not None or (end is not None and end.kind != FAILED):
        return None
    ended_ms = run.owner.since_ms if end is None else end.time_ms
    is_same_batch = plan is not None and plan.created_ms <= ended_ms
    is_young = now_ms - run.owner.since_ms <= PATIENCE_MS + 3 * (ended_ms - before.owner.since_ms)
    if not is_same_batch and not (plan is None and is_young and end is not None):
        return None
    has_again = "has the same batch again" if is_same_batch else "has not got further yet"
    return Cause(
        kind="failed before",
        about=shard_id,
        says=f"the run before, {_who(before)}, {_how_ended(look, before)}; the one that runs now "
        f"({pid_of(run.owner)}) was started at {moment(run.owner.since_ms, now_ms)}, and "
        f"{has_again}",
        advice=_mend(look, [before]),
        leads_to=THE_NEXT_RULE if _has_more_to_tell(look, shard_id, run) else None,
    )


def is_in_a_loop(look: Look, shard_id: str) -> bool:
    """Whether the process that is to read the shard ends again and again, also between two runs."""
    if look.now.owner_of(shard_id) is not None:
        return restarts(look, shard_id) is not None
    log = None if look.now.stored.owners else look.now.last_log_for(shard_id)
    return log is not None and len(_crashes(log)) >= CRASHES


def _crash_loop(look: Look, shard_id: str, runs: Sequence[Run]) -> Cause:
    return Cause(
        kind="crash loop",
        about=shard_id,
        says=f"{_no_owner(look, shard_id)}: {_loop(look, runs)}",
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
            f"{_silence(look, runs[-1])}, perhaps as its memory is too small, or by a record"
            if runs[-1].kind == SPARK
            else ": killed (kill -9, or out of memory: its limit may be too small for any start, "
            "or a record too much for it)"
        )
        return f"{start} ended each time without a word{why}"
    last, _end = ends[-1]
    silent = count - len(ends)
    lasted = sorted(max(0, end.time_ms - run.owner.since_ms) for run, end in ends)
    after = duration(lasted[len(lasted) // 2])
    said = "each time" if len({end.says for _, end in ends}) == 1 else "the last time"
    if silent:
        told = "but for one" if silent == 1 else f"but for {silent}"
        said = f"{told} without a word, {said}"
    return f"{start} ended after about {after}, {said} with: {_fault(last)}"


def _interval_ms(runs: Sequence[Run]) -> int:
    """Between two starts, on average."""
    return (runs[-1].owner.since_ms - runs[0].owner.since_ms) // (len(runs) - 1)


def _mend_and_start(run: Run) -> tuple[Advice, ...]:
    remedy = _remedy(run)
    if remedy.text.startswith("start "):
        return remedy, _LOG
    return remedy, Advice(Act.START, "start it again after that"), _LOG


def _remedy(run: Run) -> Advice:
    """What the error names that ended the run, as a deed. Our errors end with it."""
    says = printable((run.end.says if run.end is not None else None) or "")
    mends = ""
    if "fail_on_data_loss" in says or "failOnDataLoss" in says:
        mends = LOSS
    elif "AccessDenied" in says or "KMS" in says:
        mends = RIGHT
    deed = _AND_START.sub("", deed_of(says) or _NAMED)
    return Advice(Act.CHANGE, deed, mends=ACCESS if "access control list" in deed else mends)


def deed_of(says: str) -> str | None:
    """What an error of ours asks for; None where it does not."""
    denied = _DENIED.search(says)
    if denied is not None:
        on = f" on {denied[2]}" if denied[2] else ""
        return f"allow {denied[1]}{on} to the role or user of the job (IAM)"
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
        deed = _NAMED if remedy.text.startswith("start ") else remedy.text
        return replace(remedy, text=f"{deed}; to start it again alone does not help"), _LOG
    return _what_ended(look, runs[-1])


# an owner that does nothing ----------------------------------------------------------------------
def process_halted(look: Look, shard_id: str) -> Cause | None:
    """The owner's process, which is on this machine, is gone or stopped; or wherever it is, it told
    that it has ended with an error.
    """
    owner = look.now.owner_of(shard_id)
    process_state = None if owner is None else look.now.process_states.get(owner.info)
    if owner is not None and owner.info in look.now.stopped_jvms:
        return _jvm_stopped(shard_id, owner.info, look.now.stopped_jvms[owner.info])
    has_failed = look.now.failure_for(shard_id) is not None
    if owner is None or (process_state in {None, ProcessState.RUNS} and not has_failed):
        return None
    log = look.now.log_of(owner)
    run = None if log is None else log.newest
    timeout = "its session's timeout" if run is None else duration(run.session_timeout_ms)
    if log is not None and run is not None and run.end is not None:
        # It told how it ended. Its session is open for a moment more.
        loop = _crashes(log)
        is_loop = len(loop) >= CRASHES
        return _crash_loop(look, shard_id, loop) if is_loop else _ended(look, shard_id, run)
    if process_state is ProcessState.STOPPED:
        return Cause(
            kind="process stopped",
            about=shard_id,
            says=f"its process ({pid_of(owner.info)}) is stopped (SIGSTOP, or Ctrl-Z in its "
            f"terminal): it reads nothing, and ZooKeeper ends its session {timeout} after it was "
            "stopped",
            advice=_wake_or_end(owner.info),
        )
    return Cause(
        kind="process gone",
        about=shard_id,
        says=f"its process ({pid_of(owner.info)}) is gone; ZooKeeper keeps its session for up to "
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
    log = look.now.log_for(shard_id)
    run = None if log is None else log.newest
    if run is None or look.now.process_states.get(run.owner) is ProcessState.RUNS:
        return ""
    return (
        f"; its session is open, so its process ({pid_of(run.owner)}) was alive within the last "
        f"{duration(run.session_timeout_ms)}"
    )


def _frozen(shard_id: str, run: Run) -> Cause:
    return Cause(
        kind="process stopped",
        about=shard_id,
        says=f"no process owns the application: {pid_of(run.owner)}, which owned it, is stopped "
        f"(SIGSTOP, or Ctrl-Z in its terminal), so ZooKeeper has ended its session "
        f"({duration(run.session_timeout_ms)} without a sign of life)",
        advice=_wake_or_end(run.owner),
    )


def _cut_off(shard_id: str, run: Run) -> Cause:
    return Cause(
        kind="cut off",
        about=shard_id,
        says=f"no process owns the application: {pid_of(run.owner)}, which owned it, still runs, "
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


# wording -----------------------------------------------------------------------------------------
def _who(run: Run) -> str:
    return f"{kind_told(run)} ({pid_of(run.owner)})"


def pid_of(owner: OwnerInfo) -> str:
    return f"pid {owner.pid} on {owner.host}"


def _said(run: Run) -> str:
    says = None if run.end is None else run.end.says
    return "an error" if says is None else printable(says)


def _fault(run: Run) -> str:
    """What it has said, without the deed that the error asks for: that is the advice."""
    clauses = _said(run).split("; ")
    while len(clauses) > 1 and clauses[-1].split(" ", 1)[0] in _DEEDS:
        clauses.pop()
    return "; ".join(clauses)


def printable(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _latest(look: Look, run: Run | None) -> str:
    timeout_ms = 0 if run is None else run.session_timeout_ms
    return moment(look.now.now_ms + timeout_ms, look.now.now_ms)
