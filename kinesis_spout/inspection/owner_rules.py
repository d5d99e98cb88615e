"""The rules about an owner that runs: what it was told, what it waits for, what the service and its
program let it do, as it told (`state.store.runs`). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import THE_NEXT_RULE, Act, Advice, Cause
from kinesis_spout.inspection.health import READ_PHASES
from kinesis_spout.inspection.run_rules import (
    ANSWERS,
    PATIENCE_MS,
    deed_of,
    pid_of,
    printable,
    process_halted,
)
from kinesis_spout.inspection.wording import moment, records, short_shard
from state.plan import PlanStatus
from state.report import ReportStatus
from state.retry_policy import RetryPolicy
from state.store.runs import DEACTIVATED, FAILED, FULL, NOT_TAKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.inspection.health import Look
    from state.shard_state import UnresolvedRecord
    from state.store.ownership import OwnerView
    from state.store.runs import RefusedLetters, Run

_LATELY_MS = 10 * 60_000
OTHER_CONSUMERS = (
    "see who else reads the stream: give the others consumers of their own (enhanced fan-out), or "
    "fewer reads, or split the shard"
)
CORRECT_SINK = Advice(
    Act.CHANGE,
    "correct dead_letter, or what it writes to: the letters are sent again by themselves, within "
    "60 s, and their records leave with them",
)

ANSWER_AT_ALL = Advice(
    Act.CHANGE,
    "make the program ack or fail each record that it has, and restart it if it hangs; a command "
    "of --exec that keeps its answers in a buffer must flush each line (print(..., flush=True), "
    "stdbuf -oL)",
    mends=ANSWERS,
    is_urgent=True,
)


def is_down(look: Look, shard_id: str) -> bool:
    """Whether it is known that nobody reads the shard's next record, though somebody should: the
    last run ended with an error or without a word, or its process is halted.
    """
    if not look.now.stored.owners:
        log = look.now.last_log_for(shard_id)
        run = None if log is None else log.newest
        if run is None:
            return look.now.last_log is not None
        return run.end is None or run.end.kind == FAILED
    rules = (process_halted, not_told_to_read, reads_fail)
    return any(rule(look, shard_id) is not None for rule in rules)


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
        says=f"the running job ({pid_of(run.owner)}) reads only {only} (--shard, or `shards`): "
        "nobody reads this one",
        advice=(
            Advice(
                Act.CHANGE,
                "start it again without --shard, or with this shard too; a second process beside "
                "it needs --task-index and --total-tasks",
            ),
        ),
    )


def reads_fail(look: Look, shard_id: str) -> Cause | None:
    """The spout's reads get no answer, or an error, as it told."""
    log = look.now.log_for(shard_id)
    run = None if log is None else log.newest
    told = None if log is None else log.failing_reads
    if told is None or run is None or look.has_moved(shard_id):
        return None
    since = moment(told.since_ms, look.now.now_ms)
    how = f"get no answer since {since}"
    if told.says is not None:
        how = f"fail since {since}, and are tried again, last with: {printable(told.says)}"
    deed = None if told.says is None else deed_of(printable(told.says))
    if deed is not None and deed.startswith(("check the network", "try again")):
        deed = None
    see: tuple[Advice, ...]
    if shard_id in look.unanswered:
        how += "; explain meets the same, so it is not of the spout's host"
    if deed is not None:
        see = (Advice(Act.CHANGE, f"{deed}; the spout goes on by itself then"),)
    elif shard_id in look.unanswered:
        see = (
            Advice(Act.WAIT, "wait until the service answers: the spout goes on by itself"),
            Advice(Act.LOOK, "see the AWS Health Dashboard of the region if it lasts"),
        )
    else:
        here = " (it answers explain)" if look.tips else ""
        see = (
            Advice(
                Act.LOOK,
                f"see why Kinesis{here} does not answer it on {run.owner.host}: its endpoint, DNS, "
                "proxy, VPC endpoint, security groups; it goes on by itself when it is answered",
            ),
        )
    return Cause(
        kind="reads fail",
        about=shard_id,
        says=f"the spout ({pid_of(run.owner)}) runs, and its reads {how}",
        advice=see,
    )


def held_by_program(look: Look, shard_id: str) -> Cause | None:
    """The spout's own program has stopped it, or does not answer."""
    log = look.now.log_for(shard_id)
    run = None if log is None else log.newest
    if log is None or run is None or log.hold is None:
        return None
    since = moment(log.hold.since_ms, look.now.now_ms)
    if log.hold.kind == DEACTIVATED:
        return Cause(
            kind="deactivated",
            about=shard_id,
            says=f"its program ({pid_of(run.owner)}) deactivated the spout at {since}: it gives "
            "no record until activate() is called",
            advice=(Advice(Act.CHANGE, "make its program call activate()"),),
        )
    if log.hold.kind == NOT_TAKEN and look.now.now_ms - log.hold.since_ms >= PATIENCE_MS:
        return Cause(
            kind="not taken",
            about=shard_id,
            says=f"its program ({pid_of(run.owner)}) has taken no record since {since}, though "
            "some wait for it: nothing new is read",
            advice=(
                Advice(
                    Act.LOOK,
                    "see what the program does: it hangs, works on records that it has, or nobody "
                    "reads what it prints; restart it if it hangs",
                    mends=ANSWERS,
                ),
            ),
        )
    if log.hold.kind != FULL:
        return None
    limit = "max_pending" if run.max_pending is None else records(run.max_pending)
    return Cause(
        kind="full",
        about=shard_id,
        says=f"the limit of {limit} (max_pending) is out with its program "
        f"({pid_of(run.owner)}), which has answered none since {since}: nothing new is given out",
        advice=(
            Advice(
                Act.LOOK,
                "see what the program waits for: it must ack or fail the records that it has",
                mends=ANSWERS,
            ),
            Advice(Act.CHANGE, "or, if it needs more records at a time: raise max_pending"),
        ),
    )


def answers_none(look: Look, shard_id: str) -> Cause | None:
    """The spout's program answers no record at all, as it told: each times out."""
    log = look.no_answers_for(shard_id)
    run = None if log is None else log.newest
    if log is None or run is None or log.no_answers is None:
        return None
    told, now_ms = log.no_answers, look.now.now_ms
    timeout = duration(run.message_timeout_ms) if run.message_timeout_ms else "its timeout"
    verb = "has answered" if run.end is None else "answered"
    return Cause(
        kind="answers none",
        about=shard_id,
        says=f"its program ({pid_of(run.owner)}) {verb} no record since "
        f"{moment(told.since_ms, now_ms)}, and {records(told.count)} timed out (after {timeout}, "
        "message_timeout_s): each comes again, and becomes a dead letter after its last attempt, "
        "though it may be processed",
        advice=(ANSWER_AT_ALL,),
        # All else is well where it keeps up: no rule behind this one may say so.
        leads_to=None if look.keeps_up(shard_id) else THE_NEXT_RULE,
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
    refused = look.now.refused_letters_for(shard_id)
    if refused is None:
        return None
    return Cause(
        kind="letters refused",
        about=shard_id,
        says=f"the spout reads nothing new of it while so many of its records are not acked "
        f"(max_unresolved_per_shard, {limit:,}): {refusal_told(look, refused)}",
        advice=(CORRECT_SINK,),
    )


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
    trigger_ms, due_ms = look.now.trigger_ms, look.now.next_trigger_ms
    if not trigger_ms or due_ms is None:
        return None
    now_ms, plan = look.now.now_ms, look.now.open_plan
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
    log = look.now.log_for(shard_id)
    told = None if log is None else log.not_subscribed
    if told is None or look.phase(shard_id) not in READ_PHASES:
        return None
    says = printable(told.says)
    deed = deed_of(says) or "see that its consumer is there (kinesis-spout consumers list)"
    if not deed.startswith("give "):
        deed += (
            "; or, if it is gone for good: give the job another consumer (consumerName, "
            "--consumer-name). It subscribes again by itself"
        )
    return Cause(
        kind="not subscribed",
        about=shard_id,
        says="is to be read by enhanced fan-out, and keeps no subscription since "
        f"{moment(told.since_ms, look.now.now_ms)}: {says}; while it is polled instead, it shares "
        "its five reads and 2 MB a second with all that poll it",
        advice=(Advice(Act.CHANGE, deed, is_urgent=True),),
        leads_to=THE_NEXT_RULE,
    )


def throttled_clause(look: Look, shard_id: str) -> str:
    """That the shard's reads were refused since its oldest unread record came, or within the last
    ten minutes, as its consumer told; empty where they were not.
    """
    log = look.now.log_for(shard_id)
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


def joined_texts(texts: Sequence[str]) -> str:
    *rest, last = texts
    return f"{', '.join(rest)} and {last}" if rest else last


def run_of(look: Look, owner: OwnerView) -> Run | None:
    log = look.now.log_of(owner)
    return None if log is None else log.newest
