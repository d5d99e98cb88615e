"""Rules about the process that is to read a shard: whether it may, whether it runs, how its last
runs ended, and what it told of itself (`state.store.runs`). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Noun, Subject
from kinesis_spout.inspection.error_text import Topic, split
from kinesis_spout.inspection.table import Found, Next, found
from state.plan import PlanStatus
from state.store.ownership import ProcessState
from state.store.runs import DONE, FAILED, FULL, NOT_TAKEN, SPARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look
    from state.store.ownership import OwnerInfo
    from state.store.runs import Run, RunLog

CRASHES = 3  # so many starts in a row are a loop
PATIENCE_MS = 10_000
_LOOP_MS = 15 * 60_000  # if each came so soon after the one before


# which process -----------------------------------------------------------------------------------
def has_reader(look: Look, shard_id: str) -> bool:
    """Whether a process that is to read the shard runs, and may."""
    return not look.now.stored.paused and look.now.owner_of(shard_id) is not None


def _subject(look: Look, shard_id: str) -> Subject:
    share = look.now.share_of(shard_id)
    if share is None:
        return Subject(Noun.APPLICATION, look.now.application)
    return Subject(Noun.TASK, f"{share.index} of {share.total}")


def _process(owner: OwnerInfo) -> Subject:
    return Subject(Noun.PROCESS, f"pid {owner.pid} on {owner.host}")


def _found_of(run: Run, then: Next | None = None, **facts: Fact | None) -> Found:
    """An answer about the process of that run."""
    subject, owner = _process(run.owner), run.owner
    return found({"pid": owner.pid, "host": owner.host, **facts}, subject=subject, then=then)


def is_down(look: Look, shard_id: str) -> bool:
    """Whether it is known that nobody reads the shard's next record, though somebody should: the
    last run ended with an error or without a word, or its process is halted.
    """
    if not look.now.stored.owners:
        run = look.now.reader_log(shard_id).newest
        if run is None:
            return bool(look.now.last_log.runs)
        return run.end is None or run.end.kind == FAILED
    return is_halted(look, shard_id) or any(
        rule(look, shard_id) is not None for rule in (not_assigned, reads_fail)
    )


def is_halted(look: Look, shard_id: str) -> bool:
    """Whether the shard has an owner, and its process is stopped, gone or ended with an error."""
    return look.now.owner_of(shard_id) is not None and (
        process_halted(look, shard_id) is not None or _has_ended(look, shard_id)
    )


def _has_ended(look: Look, shard_id: str) -> bool:
    """Whether the owner told how it ended. Its session is open for a moment more."""
    owner, run = look.now.owner_of(shard_id), look.now.run_for(shard_id)
    if owner is None or run is None or run.end is None:
        return False
    is_gone = look.now.process_states.get(owner.info) in {ProcessState.GONE, ProcessState.STOPPED}
    return run.end.kind == FAILED or is_gone


# whether it may ----------------------------------------------------------------------------------
def paused(look: Look, shard_id: str) -> Found | None:
    pause, now_ms = look.now.stored.pause, look.now.now_ms
    if pause is None:
        return None
    # Who ends the pause alone would wait for a process that is not there.
    is_running = look.now.owner_of(shard_id) is not None and not is_halted(look, shard_id)
    return found(
        subject=Subject(Noun.APPLICATION, look.now.application),
        then=Next.END if is_running else Next.BELOW,
        by=pause.by,
        since_at_ms=pause.since_ms,
        age_ms=None if pause.since_ms is None else max(0, now_ms - pause.since_ms),
        reason=pause.reason,
        is_running=is_running,
    )


def kinesis_refuses(look: Look, shard_id: str) -> Found | None:
    """The service refuses the credentials of `explain`. A job that reads needs no other right."""
    if look.refused is None or shard_id in look.tips or look.has_moved(shard_id):
        return None
    error, state = split(look.refused), look.now.states.get(shard_id)
    is_key = error.topic is Topic.KEY
    if look.now.stored.owners and not is_key and state is not None and state.at_tip:
        return None
    return found(error=error.message, remedy=error.remedy, is_key=is_key)


def zookeeper_refuses(look: Look, _: str) -> Found | None:
    """Nobody may write some nodes, so that an owner ends with its next write. Or some are perhaps
    another identity's, where the last run was refused, or cannot have told how it ended: under
    which identity an owner runs is not stored.
    """
    subject = Subject(Noun.APPLICATION, look.now.application)
    if locked := look.now.locked:
        keepers = frozenset[str]().union(*(look.now.access[one].keepers for one in locked))
        return found(
            subject=subject,
            nodes=len(locked),
            node=locked[0],
            keepers=tuple(sorted(keepers)) or None,
        )
    run = look.now.last_log.newest
    end = None if run is None else run.end
    was_refused = (
        look.now.hides_runs if end is None else split(end.says, end.remedy).topic is Topic.ACCESS
    )
    if look.now.stored.owners or not look.now.reserved or not was_refused:
        return None
    writers, paths = max(look.now.reserved.items(), key=lambda pair: len(pair[1]))
    return found(subject=subject, nodes=len(paths), node=paths[0], writers=tuple(sorted(writers)))


# whether it runs ---------------------------------------------------------------------------------
def crash_loop(look: Look, shard_id: str) -> Found | None:
    """The last runs ended badly one after the other, each soon after its start. Or the one that
    runs now has the batch again of one that did, or was started just now.
    """
    log = look.now.reader_log(shard_id)
    run = log.newest
    if run is None:
        return None
    runs = _crashes(log)
    if look.now.owner_of(shard_id) is not None and run.end is None:
        return _loop_that_runs(look, shard_id, log, run, runs)
    is_here = look.now.process_states.get(run.owner) in {ProcessState.STOPPED, ProcessState.RUNS}
    if len(runs) < CRASHES or (run.end is None and is_here):
        return None
    return found(_loop_facts(look, runs), subject=_subject(look, shard_id))


def _loop_that_runs(
    look: Look, shard_id: str, log: RunLog, run: Run, runs: Sequence[Run]
) -> Found | None:
    has_more = _has_more_to_tell(look, shard_id, run)
    then = Next.BELOW if has_more else Next.END
    if is_restarting(look, shard_id):
        facts = _loop_facts(look, runs[:-1])
        return found(
            facts, subject=_process(run.owner), then=then, restarted_at_ms=run.owner.since_ms
        )
    if len(log.runs) < 2 or look.has_moved(shard_id):
        return None
    before, plan, now_ms = log.runs[-2], look.now.open_plan, look.now.now_ms
    if before.end is not None and before.end.kind != FAILED:
        return None
    ended_ms = run.owner.since_ms if before.end is None else before.end.time_ms
    has_same_batch = plan is not None and plan.created_ms <= ended_ms
    is_young = now_ms - run.owner.since_ms <= PATIENCE_MS + 3 * (ended_ms - before.owner.since_ms)
    if not has_same_batch and not (plan is None and is_young and before.end is not None):
        return None
    return found(
        _end_facts(look, before, is_loop=True),
        subject=_process(run.owner),
        then=then,
        has_same_batch=has_same_batch,
        restarted_at_ms=run.owner.since_ms,
    )


def is_restarting(look: Look, shard_id: str) -> bool:
    """Whether the process that runs now is one more of a crash loop, as far as can be told."""
    log = look.now.log_for(shard_id)
    if log.newest is None or log.newest.end is not None:
        return False
    runs = _crashes(log)
    if len(runs) <= CRASHES:
        return False
    # One that has lived for much longer than those before it does not end as they did.
    age_ms = look.now.now_ms - runs[-1].owner.since_ms
    return age_ms <= PATIENCE_MS + 3 * _interval_ms(runs[:-1])


def is_in_a_loop(look: Look, shard_id: str) -> bool:
    """Whether the process that is to read the shard ends again and again, also between two runs."""
    if look.now.owner_of(shard_id) is not None:
        return is_restarting(look, shard_id)
    return not look.now.stored.owners and len(_crashes(look.now.reader_log(shard_id))) >= CRASHES


def _has_more_to_tell(look: Look, shard_id: str, run: Run) -> bool:
    """Whether what a run does that follows upon others which ended badly is worth a look: it has
    not gone again, and has a batch or some time behind it.
    """
    if look.has_moved(shard_id) or look.now.process_states.get(run.owner) is ProcessState.GONE:
        return False
    is_young = look.now.now_ms - run.owner.since_ms <= PATIENCE_MS
    return look.now.open_plan is not None or not is_young


def _crashes(log: RunLog) -> Sequence[Run]:
    """The last runs in a row of which each ended badly, soon after it had begun."""
    runs: list[Run] = []
    for run in reversed(log.runs):
        is_bad = run.end is None or run.end.kind == FAILED
        soon = not runs or runs[-1].owner.since_ms - run.owner.since_ms <= _LOOP_MS
        if not is_bad or not soon:
            break
        runs.append(run)
    return runs[::-1]


def _interval_ms(runs: Sequence[Run]) -> int:
    """Between two starts, on average."""
    return (runs[-1].owner.since_ms - runs[0].owner.since_ms) // (len(runs) - 1)


def _loop_facts(look: Look, runs: Sequence[Run]) -> dict[str, Fact | None]:
    """How often it was started, how soon it ended, and with what."""
    ends = [(run, run.end) for run in runs if run.end is not None]
    lasted = sorted(max(0, end.time_ms - run.owner.since_ms) for run, end in ends)
    return {
        **_end_facts(look, ends[-1][0] if ends else runs[-1], is_loop=True),
        "starts": len(runs),
        "first_at_ms": runs[0].owner.since_ms,
        "every_ms": _interval_ms(runs),
        "lasted_ms": lasted[len(lasted) // 2] if ends else None,
        "silent": (len(runs) - len(ends)) or None,
    }


def process_halted(look: Look, shard_id: str) -> Found | None:
    """The process is stopped or gone, as this machine sees it; or it runs, and has lost its
    session.
    """
    owner, run = look.now.owner_of(shard_id), look.now.reader_log(shard_id).newest
    info = owner.info if owner is not None else None if run is None else run.owner
    if info is None or (run is not None and run.end is not None):
        return None
    state, jvm_pid = look.now.process_states.get(info), look.now.stopped_jvms.get(info)
    if owner is not None and jvm_pid is not None:
        halt = "jvm stopped"
    elif state is ProcessState.STOPPED:
        halt = "stopped"
    elif state is ProcessState.GONE and owner is not None:
        halt = "gone"
    elif state is ProcessState.RUNS and owner is None:
        halt = "cut off"
    else:
        return None
    timeout_ms = None if run is None else run.session_timeout_ms
    return found(
        subject=_process(info),
        halt=halt,
        pid=info.pid,
        host=info.host,
        jvm_pid=jvm_pid,
        owns=owner is not None,
        session_timeout_ms=timeout_ms,
        session_until_at_ms=None if timeout_ms is None else look.now.now_ms + timeout_ms,
    )


def not_running(look: Look, shard_id: str) -> Found | None:
    """Nobody owns the application, or the shard's share of it; or its owner told that it ended."""
    if look.now.owner_of(shard_id) is not None and not _has_ended(look, shard_id):
        return None
    share = look.now.share_of(shard_id)
    log, plan = look.now.reader_log(shard_id), look.now.open_plan
    run = log.newest
    facts: dict[str, Fact | None] = {"end": "not told", **_until_facts(look)}
    if run is not None:
        facts = {**_end_facts(look, run), **(_schedule_facts(look, run) if _is_over(run) else {})}
    elif share is not None:
        facts = {"end": "never ran"}
    starts = sum(plan is not None and one.owner.since_ms > plan.created_ms for one in log.runs)
    return found(
        facts,
        subject=_subject(look, shard_id),
        task_index=None if share is None else share.index,
        total_tasks=None if share is None else share.total,
        is_nobody=not look.now.stored.owners,
        plan_id=None if plan is None or facts["end"] == DONE else plan.plan_id,
        starts_with_batch=starts or None,
    )


def _is_over(run: Run) -> bool:
    return run.end is not None and run.end.kind == DONE


def _until_facts(look: Look) -> dict[str, Fact | None]:
    """Of an AvailableNow run of an earlier version, which told nothing of itself."""
    plan = look.now.stored.plan
    if plan is None or plan.until_ms is None:
        return {}
    is_settled = plan.status is PlanStatus.SETTLED
    return {"end": DONE, "schedule": "due", "until_at_ms": plan.until_ms} if is_settled else {}


def _end_facts(look: Look, run: Run, *, is_loop: bool = False) -> dict[str, Fact | None]:
    """How a run ended, as far as it told. `suspect`: what may have ended one that told nothing."""
    facts: dict[str, Fact | None] = {
        "consumer": run.kind,
        "pid": run.owner.pid,
        "host": run.owner.host,
        "started_at_ms": run.owner.since_ms,
        "end": "silent",
    }
    if run.end is None:
        return facts | {"suspect": _suspect(look, run)}
    facts |= {"end": run.end.kind, "ended_at_ms": run.end.time_ms}
    if run.end.kind == FAILED:
        error = split(run.end.says, run.end.remedy)
        topic = Topic.RIGHT if error.topic is Topic.KEY else error.topic
        facts |= {"error": error.message, "remedy": error.remedy, "topic": topic.value}
        if is_loop and topic is Topic.START:  # which alone does not help
            facts["remedy"] = None
    return facts


def _suspect(look: Look, run: Run) -> str:
    """A tracked function's errors are told, and Spark tells a source nothing of the errors of other
    functions and sinks.
    """
    if look.now.hides_runs:
        return "refusal"
    if run.kind != SPARK:
        return "kill"
    if look.now.stored.policy is not None:
        return "worker"
    return "stop" if run.tells_errors else "sink"


def _schedule_facts(look: Look, run: Run) -> dict[str, Fact | None]:
    """Of a run that was to end by itself, and of the one that is to follow."""
    plan, end, interval_ms = look.now.stored.plan, run.end, look.now.run_interval_ms
    schedule = "due"
    if interval_ms is None:
        schedule = "not known"
    elif not look.waits_for_next_run:
        schedule = "overdue"
    return {
        "until_at_ms": None if plan is None or run.kind != SPARK else plan.until_ms,
        "left": None if end is None else end.says,
        "schedule": schedule,
        "interval_ms": interval_ms,
    }


# what it does ------------------------------------------------------------------------------------
def not_assigned(look: Look, shard_id: str) -> Found | None:
    """The owner reads some shards only, and not this one."""
    run = look.now.run_for(shard_id)
    if run is None or not run.shards or shard_id in run.shards:
        return None
    return _found_of(run, shards=tuple(run.shards))


def reads_fail(look: Look, shard_id: str) -> Found | None:
    """The spout's reads get no answer, or an error, as it told."""
    log, run = look.now.log_for(shard_id), look.now.run_for(shard_id)
    told = log.failing_reads
    if told is None or run is None or look.has_moved(shard_id):
        return None
    error = None if told.says is None else split(told.says, told.remedy)
    is_useful = error is not None and error.topic is not Topic.NETWORK
    return _found_of(
        run,
        since_at_ms=told.since_ms,
        error=None if error is None else error.message,
        remedy=error.remedy if error is not None and is_useful else None,
        explain_too=shard_id in look.unanswered,
        answers_explain=bool(look.tips),
    )


def program_waits(look: Look, shard_id: str) -> Found | None:
    """The spout's own program has stopped it, or does not answer."""
    log, run = look.now.log_for(shard_id), look.now.run_for(shard_id)
    hold = log.hold
    if hold is None or run is None:
        return None
    if hold.kind == NOT_TAKEN and look.now.now_ms - hold.since_ms < PATIENCE_MS:
        return None
    return _found_of(
        run,
        hold=hold.kind,
        since_at_ms=hold.since_ms,
        max_pending=run.max_pending if hold.kind == FULL else None,
    )


def no_answers(look: Look, shard_id: str) -> Found | None:
    """The spout's program answers no record at all, as it told: each times out."""
    log = look.no_answers_for(shard_id)
    run = None if log is None else log.newest
    if log is None or run is None or log.no_answers is None:
        return None
    return _found_of(
        run,
        # All else is well where it keeps up: no row below may say so.
        Next.END if look.keeps_up(shard_id) else Next.BELOW,
        since_at_ms=log.no_answers.since_ms,
        timed_out=log.no_answers.count,
        timeout_ms=run.message_timeout_ms or None,
        has_ended=run.end is not None,
    )


def not_subscribed(look: Look, shard_id: str) -> Found | None:
    """A shard that is to be read by subscription gets none, as its consumer told."""
    told = look.now.log_for(shard_id).not_subscribed
    if told is None or not look.is_read(shard_id):
        return None
    error = split(told.says, told.remedy)
    return found(
        since_at_ms=told.since_ms,
        error=error.message,
        remedy=error.remedy,
        is_missing=error.topic is not Topic.RIGHT,
    )
