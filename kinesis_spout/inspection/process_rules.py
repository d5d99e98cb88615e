"""Rules about the process that is to read a shard: whether it may, whether it runs, how its last
runs ended, and what it reports of itself (`state.store.runs`). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.errors import KeyAccessError
from kinesis_spout.inspection.cause import Found, Next, Noun, Subject
from kinesis_spout.inspection.wording import Topic, topic_of
from state.plan import PlanStatus
from state.store.ownership import ProcessState
from state.store.runs import DONE, FAILED, FULL, NOT_TAKEN, SPARK, STOPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import ShardLook
    from state.store.ownership import OwnerInfo
    from state.store.runs import Run, RunLog

_HALTED = frozenset({ProcessState.GONE, ProcessState.STOPPED})
CRASHES = 3  # so many starts in a row are a loop
PATIENCE_MS = 10_000
_LOOP_MS = 15 * 60_000  # if each came so soon after the one before


# which process -----------------------------------------------------------------------------------
def has_reader(shard: ShardLook) -> bool:
    """Whether a process that is to read the shard runs, and may."""
    return not shard.now.stored.paused and shard.owner is not None


def application_of(shard: ShardLook) -> Subject:
    return Subject(Noun.APPLICATION, shard.now.application)


def _task(shard: ShardLook) -> Subject:
    if shard.share is None:
        return application_of(shard)
    return Subject(Noun.TASK, f"{shard.share.index} of {shard.share.total}")


def _process(owner: OwnerInfo) -> Subject:
    return Subject(Noun.PROCESS, f"pid {owner.pid} on {owner.host}")


def _found_of(run: Run, then: Next | None = None, **facts: Fact | None) -> Found:
    """An answer about the process of that run."""
    facts |= {"pid": run.owner.pid, "host": run.owner.host}
    return Found(facts, subject=_process(run.owner), then=then)


def is_down(shard: ShardLook) -> bool:
    """Whether it is known that nobody reads the shard's next record, though somebody should: the
    last run ended with an error or without a message, or its process is halted. While other tasks
    run, a task that was stopped should run, too.
    """
    now = shard.now
    if shard.owner is not None:
        limits = not_assigned(shard) or reads_fail(shard)
        return limits is not None or is_halted(shard)
    run = shard.reader_log.newest
    if run is None:
        return bool(now.last_log.runs)
    is_stopped = run.end is not None and run.end.kind == STOPPED
    return _ended_badly(run) or (bool(now.stored.owners) and is_stopped)


def is_halted(shard: ShardLook) -> bool:
    """Whether the shard has an owner, and its process is stopped, gone or ended with an error."""
    return shard.owner is not None and (process_halted(shard) is not None or _has_ended(shard))


def _has_ended(shard: ShardLook) -> bool:
    """Whether the owner has reported its end. Its session is open for a moment more."""
    run = shard.run
    is_gone = run is not None and shard.now.process_states.get(run.owner) in _HALTED
    return run is not None and run.end is not None and (run.end.kind == FAILED or is_gone)


def _ended_badly(run: Run) -> bool:
    return run.end is None or run.end.kind == FAILED


# whether it may ----------------------------------------------------------------------------------
def paused(shard: ShardLook) -> Found | None:
    pause = shard.now.stored.pause
    if pause is None:
        return None
    # Who ends the pause alone would wait for a process that is not there.
    is_running = shard.owner is not None and not (is_halted(shard) or is_restarting(shard))
    since_ms = pause.since_ms
    return Found(
        subject=application_of(shard),
        then=Next.END if is_running else Next.BELOW,
        by=pause.by,
        since_at_ms=since_ms,
        age_ms=None if since_ms is None else max(0, shard.now.now_ms - since_ms),
        reason=pause.reason,
        is_running=is_running,
    )


def kinesis_refuses(shard: ShardLook) -> Found | None:
    """The service refuses the credentials of `explain`. A job that reads needs no other right."""
    if shard.look.refusal is None or shard.tip is not None or shard.has_moved:
        return None
    is_key, at_tip = (
        isinstance(shard.look.refusal, KeyAccessError),
        shard.state and shard.state.at_tip,
    )
    if shard.now.stored.owners and not is_key and at_tip:
        return None
    return Found(error_facts(shard.look.refusal), is_key=is_key)


def error_facts(error: KinesisError) -> dict[str, Fact | None]:
    return {"error": error.message, "remedy": error.remedy or None}


def zookeeper_refuses(shard: ShardLook) -> Found | None:
    """Nobody may write some nodes, so that an owner ends with its next write. Or some are perhaps
    another identity's, where the last run was refused, or cannot have reported its end: under
    which identity an owner runs is not stored.
    """
    if locked := shard.now.locked:
        keepers = frozenset[str]().union(*(shard.now.access[one].keepers for one in locked))
        names = {"keepers": tuple(sorted(keepers)) or None}
        return Found(names, subject=application_of(shard), nodes=len(locked), node=locked[0])
    run, was_refused = shard.now.last_log.newest, shard.now.hides_runs
    if run is not None and run.end is not None:
        was_refused = topic_of(run.end.error) is Topic.ACCESS
    if shard.now.stored.owners or not shard.now.reserved or not was_refused:
        return None
    writers, paths = max(shard.now.reserved.items(), key=lambda pair: len(pair[1]))
    names = {"writers": tuple(sorted(writers))}
    return Found(names, subject=application_of(shard), nodes=len(paths), node=paths[0])


# whether it runs ---------------------------------------------------------------------------------
def crash_loop(shard: ShardLook) -> Found | None:
    """The last runs ended badly one after the other, each soon after its start. Or the one that
    runs now has the batch again of one that did, or was started just now.
    """
    log = shard.reader_log
    run, runs = log.newest, _crashes(log)
    if run is None:
        return None
    if shard.owner is not None and run.end is None:
        return _loop_that_runs(shard, log, runs)
    is_here = shard.now.process_states.get(run.owner) in {ProcessState.STOPPED, ProcessState.RUNS}
    if len(runs) < CRASHES or (run.end is None and is_here):
        return None
    # Whoever started it so often starts it no more.
    silence_ms = shard.now.now_ms - runs[-1].owner.since_ms
    is_over = silence_ms > PATIENCE_MS + 3 * _interval_ms(runs)
    return Found(_loop_facts(shard, runs), subject=_task(shard), is_over=is_over)


def _loop_that_runs(shard: ShardLook, log: RunLog, runs: Sequence[Run]) -> Found | None:
    run, plan, now_ms = log.runs[-1], shard.now.open_plan, shard.now.now_ms
    facts: dict[str, Fact | None] = {"restarted_at_ms": run.owner.since_ms}
    if is_restarting(shard):
        facts |= _loop_facts(shard, runs[:-1])
    else:
        before = log.runs[-2] if len(log.runs) > 1 else run
        if before is run or shard.has_moved or not _ended_badly(before):
            return None
        ended_ms = run.owner.since_ms if before.end is None else before.end.time_ms
        has_same_batch = plan is not None and plan.created_ms <= ended_ms
        young_ms = PATIENCE_MS + 3 * (ended_ms - before.owner.since_ms)
        is_young = before.end is not None and now_ms - run.owner.since_ms <= young_ms
        if not has_same_batch and (plan is not None or not is_young):
            return None
        facts |= {**_end_facts(shard, before), "has_same_batch": has_same_batch}
    # What it does is worth a look where it has a batch or some time behind it.
    is_gone = shard.now.process_states.get(run.owner) is ProcessState.GONE
    is_old = plan is not None or now_ms - run.owner.since_ms > PATIENCE_MS
    is_worth = is_old and not is_gone and not shard.has_moved
    return Found(facts, subject=_process(run.owner), then=Next.BELOW if is_worth else Next.END)


def is_restarting(shard: ShardLook) -> bool:
    """Whether the process that runs now is one more of a crash loop, as far as can be seen."""
    runs = _crashes(shard.log)
    if len(runs) <= CRASHES or runs[-1].end is not None:
        return False
    # One that has lived for much longer than those before it does not end as they did.
    age_ms = shard.now.now_ms - runs[-1].owner.since_ms
    return age_ms <= PATIENCE_MS + 3 * _interval_ms(runs[:-1])


def is_in_a_loop(shard: ShardLook) -> bool:
    """Whether the process that is to read the shard ends again and again, also between two runs."""
    if shard.owner is not None:
        return is_restarting(shard)
    return not shard.now.stored.owners and len(_crashes(shard.reader_log)) >= CRASHES


def _crashes(log: RunLog) -> Sequence[Run]:
    """The last runs in a row of which each ended badly, soon after it had begun."""
    runs: list[Run] = []
    for run in reversed(log.runs):
        is_late = runs and runs[-1].owner.since_ms - run.owner.since_ms > _LOOP_MS
        if is_late or not _ended_badly(run):
            break
        runs.append(run)
    return runs[::-1]


def _interval_ms(runs: Sequence[Run]) -> int:
    """Between two starts, on average."""
    return (runs[-1].owner.since_ms - runs[0].owner.since_ms) // (len(runs) - 1)


def _loop_facts(shard: ShardLook, runs: Sequence[Run]) -> dict[str, Fact | None]:
    """How often it was started, how soon it ended, and with what."""
    ended = [run for run in runs if run.end is not None]
    lasted = sorted(max(0, one.end.time_ms - one.owner.since_ms) for one in ended if one.end)
    return {
        **_end_facts(shard, ended[-1] if ended else runs[-1]),
        "starts": len(runs),
        "first_at_ms": runs[0].owner.since_ms,
        "every_ms": _interval_ms(runs),
        "lasted_ms": lasted[len(lasted) // 2] if lasted else None,
        "silent": (len(runs) - len(ended)) or None,
    }


def process_halted(shard: ShardLook) -> Found | None:
    """The process is stopped or gone, as this machine sees it; or it runs, and has lost its
    session.
    """
    owner, run = shard.owner, shard.reader_log.newest
    info = owner.info if owner is not None else None if run is None else run.owner
    if info is None or (run is not None and run.end is not None):
        return None
    owns, timeout_ms = owner is not None, None if run is None else run.session_timeout_ms
    state, jvm_pid = shard.now.process_states.get(info), shard.now.stopped_jvms.get(info)
    if owns and jvm_pid is not None:
        facts: dict[str, Fact | None] = {"halt": "jvm stopped", "halted": jvm_pid}
    elif state is ProcessState.STOPPED:
        facts = {"halt": "stopped", "halted": info.pid}
    elif state is (ProcessState.GONE if owns else ProcessState.RUNS):
        facts = {"halt": "gone" if owns else "cut off"}
    else:
        return None
    if timeout_ms is not None:
        facts["session_until_at_ms"] = shard.now.now_ms + timeout_ms
    facts |= {"pid": info.pid, "host": info.host, "session_timeout_ms": timeout_ms}
    return Found(facts, subject=_process(info), owns=owns)


def not_running(shard: ShardLook) -> Found | None:
    """Nobody owns the application, or the shard's share of it; or its owner reports its end."""
    now = shard.now
    if shard.owner is not None and not _has_ended(shard):
        return None
    share, log, plan = shard.share, shard.reader_log, now.open_plan
    facts: dict[str, Fact | None]
    if log.newest is not None:
        facts = {**_end_facts(shard, log.newest), **_schedule_facts(shard, log.newest)}
        facts |= _left_facts(shard, log.newest)
    elif share is not None:
        facts = {"end": "never ran"}
    else:
        facts = {"end": "unknown", **_until_facts(shard)}
    if share is not None:
        facts |= {"task_index": share.index, "total_tasks": share.total}
    if plan is not None and facts["end"] != DONE:
        facts["plan_id"] = plan.plan_id
        starts = sum(one.owner.since_ms > plan.created_ms for one in log.runs)
        facts["starts_with_batch"] = starts or None
    return Found(facts, subject=_task(shard), is_nobody=not now.stored.owners)


def _until_facts(shard: ShardLook) -> dict[str, Fact | None]:
    """Of an AvailableNow run of an earlier version, which reported nothing of itself."""
    plan = shard.now.stored.plan
    if plan is None or plan.until_ms is None or plan.status is not PlanStatus.SETTLED:
        return {}
    return {"end": DONE, "schedule": "due", "until_at_ms": plan.until_ms}


def _end_facts(shard: ShardLook, run: Run) -> dict[str, Fact | None]:
    """How a run ended, as far as it reported. `suspect`: what may have ended a silent one."""
    facts: dict[str, Fact | None] = {
        "consumer": run.kind,
        "pid": run.owner.pid,
        "host": run.owner.host,
        "started_at_ms": run.owner.since_ms,
    }
    if run.end is None:
        return facts | {"end": "silent", "suspect": _suspect(shard, run)}
    facts |= {"end": run.end.kind, "ended_at_ms": run.end.time_ms}
    if run.end.kind == FAILED:
        facts |= {"error": run.end.says or "an error", "remedy": run.end.remedy}
        facts["topic"] = topic_of(run.end.error).value
        refusal = shard.look.refusal
        facts["is_same_error"] = refusal is not None and run.end.says == refusal.message
    return facts


def _suspect(shard: ShardLook, run: Run) -> str:
    """A tracked function's errors are reported, and Spark reports to a source nothing of the errors
    of other functions and sinks.
    """
    if shard.now.hides_runs:
        return "refusal"
    if run.kind != SPARK:
        return "kill"
    if shard.now.stored.policy is not None:
        return "worker"
    return "stop" if run.tells_errors else "sink"


def _schedule_facts(shard: ShardLook, run: Run) -> dict[str, Fact | None]:
    """Of a run that was to end by itself and did, and of the one that is to follow."""
    if run.end is None or run.end.kind != DONE:
        return {}
    plan, interval_ms = shard.now.stored.plan, shard.now.run_interval_ms
    is_due = "due" if shard.look.waits_for_next_run else "overdue"
    return {
        "until_at_ms": None if plan is None or run.kind != SPARK else plan.until_ms,
        "left": run.end.says,
        "schedule": "not known" if interval_ms is None else is_due,
        "interval_ms": interval_ms,
    }


def _left_facts(shard: ShardLook, run: Run) -> dict[str, Fact | None]:
    """Of a run that ended by itself, why it left the shard, or records of it that had arrived
    before it began: the next run, with the same limits, does not read them either.
    """
    if run.end is None or run.end.kind != DONE:
        return {}
    if run.shards and shard.shard_id not in run.shards:
        parents = shard.now.lineage.parents(shard.shard_id)
        return {
            "left_by": "shards",
            "only_shards": run.shards,
            "left_shards": shard.look.left_shards[run.shards],
            "continued": tuple(one for one in parents if one in run.shards) or None,
        }
    tip = shard.tip
    is_left = tip is not None and tip.next_ms is not None and tip.next_ms < run.owner.since_ms
    return {"left_by": "limit"} if is_left and run.end.says is None else {}


# what it does ------------------------------------------------------------------------------------
def not_assigned(shard: ShardLook) -> Found | None:
    """The owner reads some shards only, and not this one."""
    run = shard.run
    if run is None or not run.shards or shard.shard_id in run.shards:
        return None
    return _found_of(run, shards=tuple(run.shards))


def reads_fail(shard: ShardLook) -> Found | None:
    """The spout's reads get no answer, or an error, as it reports."""
    fails, run = shard.log.failing_reads, shard.run
    if fails is None or run is None or shard.has_moved:
        return None
    return _found_of(
        run,
        since_at_ms=fails.since_ms,
        error=fails.says,
        remedy=None if topic_of(fails.error) is Topic.NETWORK else fails.remedy,
        explain_too=shard.shard_id in shard.look.unanswered,
        answers_explain=bool(shard.look.tips),
    )


def program_waits(shard: ShardLook) -> Found | None:
    """The spout's own program has stopped it, or does not answer."""
    hold, run = shard.log.hold, shard.run
    if hold is None or run is None:
        return None
    if hold.kind == NOT_TAKEN and shard.now.now_ms - hold.since_ms < PATIENCE_MS:
        return None
    max_pending = run.max_pending if hold.kind == FULL else None
    return _found_of(run, hold=hold.kind, since_at_ms=hold.since_ms, max_pending=max_pending)


def no_answers(shard: ShardLook) -> Found | None:
    """The spout's program answers no record at all, as it reports: each times out."""
    log = shard.reader_log
    if not shard.is_read or log.newest is None or log.no_answers is None:
        return None
    return _found_of(
        log.newest,
        # All else is well where it keeps up: no row below may say so.
        Next.END if shard.keeps_up else Next.BELOW,
        since_at_ms=log.no_answers.since_ms,
        timed_out=log.no_answers.count,
        timeout_ms=log.newest.message_timeout_ms or None,
        has_ended=log.newest.end is not None,
    )


def not_subscribed(shard: ShardLook) -> Found | None:
    """A shard that is to be read by subscription gets none, as its consumer reports."""
    fails = shard.log.not_subscribed
    if fails is None or not shard.is_read:
        return None
    return Found(
        since_at_ms=fails.since_ms,
        error=fails.says,
        remedy=fails.remedy,
        is_missing=topic_of(fails.error) is not Topic.RIGHT,
    )
