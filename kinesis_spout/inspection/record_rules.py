"""Rules about unresolved records, and about the batch under way. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Noun, Subject
from kinesis_spout.inspection.error_text import error_text
from kinesis_spout.inspection.process_rules import application_of, has_reader, is_restarting
from kinesis_spout.inspection.shard_rules import throttle_facts
from kinesis_spout.inspection.table import Found, Next, found
from kinesis_spout.inspection.wording import printable
from state.plan import PlanStatus
from state.report import OnFailure, ReportStatus
from state.shard_state import TIMED_OUT
from state.store.ownership import ProcessState
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look
    from state.shard_state import ShardState, UnresolvedRecord
    from state.store.view import PlanView

MAX_UNRESOLVED = 100_000
"""The default of both consumers."""
_FIRST_BATCH_MS = 30_000


# order -------------------------------------------------------------------------------------------
def _order(look: Look) -> OnFailure:
    policy = look.now.stored.policy
    return OnFailure.CONTINUE if policy is None else policy.on_failure


def held_by_order(look: Look, shard_id: str) -> Found | None:
    """Failed records, of the shard or of an ancestor, hold new records of the shard, or its own
    retries.
    """
    order, state = _order(look), look.now.states.get(shard_id)
    if order is OnFailure.CONTINUE or state is None or not has_reader(look, shard_id):
        return None
    blocks_shard = order is OnFailure.BLOCK_SHARD
    if look.is_read(shard_id):
        holder = look.now.held_by.get(shard_id)
        if holder is not None or (blocks_shard and state.unresolved):
            return found(shard_id=holder, held="new records", holder=holder, order=order.value)
    ancestors = look.now.unresolved_ancestors.get(shard_id, ())
    if not ancestors or not state.unresolved or not _asks_for_retries(look, shard_id):
        return None
    keys = {one.key for one in look.now.states[ancestors[0]].unresolved}
    own = {one.key for one in state.unresolved}
    if not blocks_shard and None not in keys | own and not keys & own:
        return None
    return found(
        shard_id=ancestors[0],
        held="retries",
        holder=ancestors[0],
        order=order.value,
        unresolved=state.unresolved_count,
    )


def _asks_for_retries(look: Look, shard_id: str) -> bool:
    """Whether what is left of the shard are its unresolved records: nothing else is to be read, or
    they hold it.
    """
    state = look.now.states.get(shard_id)
    if look.is_at_end(shard_id) or look.keeps_up(shard_id) is True:
        return True
    if state is None or not look.is_read(shard_id) or not has_reader(look, shard_id):
        return False
    blocks = _order(look) is OnFailure.BLOCK_SHARD and bool(state.unresolved)
    return shard_id in look.now.held_by or blocks


# unresolved records ------------------------------------------------------------------------------
def unresolved_record(look: Look, shard_id: str) -> Found | None:
    """What is left of the shard are its unresolved records: how far the first of them has come."""
    state = look.now.states.get(shard_id)
    if state is None or not state.unresolved:
        return None
    if not _asks_for_retries(look, shard_id):
        return _keeps_the_end(look, state)
    record = _first_to_go(look, state)
    if not has_reader(look, shard_id):
        stage = "not read"
    elif look.now.refused_letters_for(shard_id) is not None:
        stage = "letter refused"
    elif _is_under_way(look, shard_id, record):
        stage = "delivered"
    elif look.now.is_spout and record.first_failure_ms is None:
        return _with_program(look, state, record)
    elif look.now.is_given_up(shard_id, record):
        stage = "dead letter"
    elif look.outage_until_ms(shard_id) is not None:
        stage = "outage"
    else:
        stage = "due" if record.due_ms <= look.now.now_ms else "waits"
    return _found(look, state, record, stage, Next.END if stage == "waits" else Next.JOB)


def unresolved_besides(look: Look, shard_id: str) -> Found | None:
    """The unresolved records of a shard that has more to read, and so is held by none of them."""
    state = look.now.states.get(shard_id)
    if state is None or not state.unresolved or look.now.refused_letters_for(shard_id) is not None:
        return None
    return _found(look, state, _first_to_go(look, state), "besides")


def _keeps_the_end(look: Look, state: ShardState) -> Found | None:
    """A record that the program of a spout has, and that is all that is left of a closed shard: its
    end is read, and its children begin, once the record is answered.
    """
    tip, shard_id = look.tips.get(state.shard_id), state.shard_id
    if tip is None or tip.next_ms is not None or not look.now.is_spout:
        return None
    out = [one for one in state.unresolved if one.first_failure_ms is None and not one.reason]
    if not out or look.is_at_end(shard_id) or not has_reader(look, shard_id):
        return None
    return _with_program(look, state, out[0], keeps_end=True)


def _with_program(
    look: Look, state: ShardState, record: UnresolvedRecord, *, keeps_end: bool = False
) -> Found:
    """A record that was out all the time is rather kept than worked on."""
    run, now_ms = look.now.run_for(state.shard_id), look.now.now_ms
    # The history has the time of a shard's first one, the look before that of all.
    was = look.before.states.get(state.shard_id)
    known = [] if was is None or record not in was.unresolved else [look.before.now_ms]
    held_ms = look.now.stored.held_since_ms.get(state.shard_id)
    if held_ms is not None and state.unresolved[0].first == record.first:
        known.append(held_ms)
    since_ms = min((one for one in known if one < now_ms), default=None)
    failing = [one for one in state.unresolved if one.reason]
    facts: dict[str, Fact | None] = {
        "keeps_end": keeps_end,
        "timeout_ms": None if run is None else run.message_timeout_ms or None,
        "has_no_timeout": run is not None and run.message_timeout_ms == 0,
        "out_since_at_ms": since_ms,
        "out_ms": None if since_ms is None else now_ms - since_ms,
        "other_failures": sum(one.count for one in failing) or None,
        "other_reason": min(failing, key=lambda one: one.due_ms).reason if failing else None,
    }
    return _found(look, state, record, "with the program", Next.END, **facts)


def _found(
    look: Look,
    state: ShardState,
    record: UnresolvedRecord,
    stage: str,
    then: Next | None = None,
    **more: Fact | None,
) -> Found:
    now_ms, shard_id = look.now.now_ms, state.shard_id
    policy, is_given_up = look.now.retry_policy(shard_id), look.now.is_given_up(shard_id, record)
    waiting = sum(one.count for one in state.unresolved if one.blocked)
    failed = state.unresolved_count - waiting
    is_parted = _order(look) is not OnFailure.CONTINUE and bool(waiting) and bool(failed)
    is_out, first_ms = (
        record.first_failure_ms is None and not record.reason,
        record.first_failure_ms,
    )
    facts: dict[str, Fact | None] = {
        "unresolved": state.unresolved_count,
        "is_at_end": look.is_at_end(shard_id),
        "record": str(record.first),
        "sequence": str(record.first.whole),
        "consumer": look.now.consumer,
        "failed": failed if is_parted else None,
        "waiting": waiting if is_parted else None,
        "is_out": is_out,
        "stage": stage,
    }
    if not is_out:
        # Nothing is wrong with a record of an outage, and one that is given up is not tried again.
        is_outage = stage != "not read" and look.outage_until_ms(shard_id) is not None
        is_over = stage in {"letter refused", "dead letter"} or (
            stage == "not read" and is_given_up
        )
        facts |= {
            "attempt": None if is_given_up else record.attempts + 1,
            "attempts_max": None if policy is None or is_given_up else policy.retry_limit + 1,
            "failures": record.attempts if is_given_up and not record.rejected else None,
            "is_rejected": record.rejected,
            "due_at_ms": record.due_ms if record.due_ms > now_ms else None,
            "is_due": 0 < record.due_ms <= now_ms,
            "is_blocked": record.blocked,
            "reason": None if record.blocked else record.reason,
            "fault": None if is_outage or is_over else _fault(record),
            "still_ms": _still_ms(look, state) if record.reason == TIMED_OUT else None,
            "becomes_letter": look.now.was_spout and not is_given_up and not record.blocked,
            "is_expired": first_ms is not None and now_ms - first_ms > look.now.stream.retention_ms,
        }
    return found(facts | more, subject=Subject(Noun.RECORD, str(record.first)), then=then)


def _fault(record: UnresolvedRecord) -> str | None:
    """What is to be corrected: the program that does not answer, the worker that ends, or what the
    reason names. Nothing is known against the record of one attempt whose process ended.
    """
    if not record.reason:
        return None
    if record.reason == TIMED_OUT:
        return "program"
    if record.reason.startswith(UNANSWERED):
        return "worker" if record.attempts > 1 else None
    return "reason"


def _still_ms(look: Look, state: ShardState) -> int | None:
    """For how long there was no answer at all, as far as the checkpoint shows."""
    was = look.before.states.get(state.shard_id)
    stands = was is not None and was.checkpoint_text == state.checkpoint_text
    return look.window_ms if stands and look.window_ms else None


def _is_under_way(look: Look, shard_id: str, record: UnresolvedRecord) -> bool:
    planned = look.now.planned.get(shard_id)
    return planned is not None and any(
        one.first <= record.first <= one.end for one in planned.slice.retries
    )


def _first_to_go(look: Look, state: ShardState) -> UnresolvedRecord:
    """The record on which the others wait, or which is due first."""
    order = _order(look)
    ordered = sorted(state.unresolved, key=lambda one: one.first)
    if order is OnFailure.BLOCK_SHARD:
        return ordered[0]
    heads: dict[str | None, UnresolvedRecord] = {}
    for one in ordered if order is OnFailure.BLOCK_KEY else ():
        if None in heads:
            break
        if one.key is not None or not heads:  # an unknown key waits for all before it
            heads.setdefault(one.key, one)
    return min(list(heads.values()) or ordered, key=lambda one: one.due_ms)


def letters_refused(look: Look, shard_id: str) -> Found | None:
    """The dead letters of the shard's records are refused, and nothing else is left of it, or they
    fill its room.
    """
    run, state = look.now.run_for(shard_id), look.now.states.get(shard_id)
    limit = None if run is None else run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    is_full = limit is None or (state is not None and 2 * state.unresolved_count >= limit)
    if not is_full and not _asks_for_retries(look, shard_id):
        return None
    return letters_refused_besides(look, shard_id, max_unresolved=limit if is_full else None)


def letters_refused_besides(
    look: Look, shard_id: str, *, max_unresolved: int | None = None
) -> Found | None:
    """The same of a shard that is read all the same."""
    refused, state = look.now.refused_letters_for(shard_id), look.now.states.get(shard_id)
    if state is None or refused is None:
        return None
    return found(
        letters=refused.count,
        refused_at_ms=refused.last_ms,
        error=printable(refused.says),
        unresolved=state.unresolved_count,
        max_unresolved=max_unresolved,
        reason=next((one.reason for one in state.unresolved if one.reason), None),
    )


def outage(look: Look, shard_id: str) -> Found | None:
    until_ms = look.outage_until_ms(shard_id)
    if until_ms is None:
        return None
    reasons = Counter[str]()
    for state in look.now.states.values():
        for one in state.unresolved:
            if one.reason:
                reasons[one.reason] += one.count
    reason = max(reasons, key=reasons.__getitem__, default=None)
    return found(
        subject=application_of(look),
        reason=reason,
        records=None if reason is None else reasons[reason],
        until_at_ms=until_ms,
    )


def unresolved_limit(look: Look, shard_id: str) -> Found | None:
    """Records are unresolved, and nothing new is read. Of a Spark job, the limit is not stored."""
    state, tip = look.now.states.get(shard_id), look.tips.get(shard_id)
    has_unread = tip is not None and tip.next_ms is not None and not look.keeps_up(shard_id)
    if state is None or not state.unresolved or not has_unread or look.has_moved(shard_id):
        return None
    planned, run, plan = (
        look.now.planned.get(shard_id),
        look.now.run_for(shard_id),
        look.now.open_plan,
    )
    is_searching = plan is not None and plan.delivery_limit is not None
    if is_searching or _trigger_facts(look) or (planned is not None and planned.slice.max_records):
        return None  # the batch is what it waits for
    count, limit = state.unresolved_count, None if run is None else run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    if limit is not None and 2 * count < limit:
        return None
    record = _first_to_go(look, state)
    total = sum(one.unresolved_count for one in look.now.states.values())
    return found(
        unresolved=count,
        option="max_unresolved_per_shard" if look.now.was_spout else "maxUnresolvedPerShard",
        max_unresolved=limit,
        usual_max=MAX_UNRESOLVED if limit is None else None,
        is_reached=count >= (limit or MAX_UNRESOLVED),
        total=total if look.now.is_spout else None,
        record=str(record.first),
        sequence=str(record.first.whole),
        reason=record.reason,
        fault=None if look.outage_until_ms(shard_id) is not None else _fault(record),
    )


# the batch ---------------------------------------------------------------------------------------
def batch(look: Look, shard_id: str) -> Found | None:
    """The batch under way, by the stage that it has reached; or the time between two batches."""
    plan, now_ms = look.now.open_plan, look.now.now_ms
    facts = _trigger_facts(look)
    if plan is None:
        return found(facts, subject=application_of(look)) if facts else None
    if plan.delivery_limit is not None:
        facts = {"stage": "search", "delivery_limit": plan.delivery_limit}
    elif not facts:
        facts = _stage_facts(look, shard_id, plan)
    age_ms = max(0, now_ms - plan.created_ms)
    began_ms = max([plan.created_ms, *(one.info.since_ms for one in look.now.stored.owners)])
    at_work_ms = max(0, now_ms - began_ms)  # a batch may be older than the run that has it
    usual_ms = None if plan.previous_ms is None else plan.created_ms - plan.previous_ms
    is_long = at_work_ms > (_FIRST_BATCH_MS if usual_ms is None else usual_ms)
    return found(
        facts,
        subject=Subject(Noun.BATCH, plan.plan_id),
        plan_id=plan.plan_id,
        age_ms=age_ms,
        usual_ms=usual_ms,
        run_ms=at_work_ms if at_work_ms < age_ms else None,
        is_long=is_long or "error" in facts,
        is_restarting=is_restarting(look, shard_id),
    )


def _trigger_facts(look: Look) -> dict[str, Fact | None]:
    """Of a Spark query between two batches, whose trigger is known; else empty."""
    trigger_ms, due_ms, plan = look.now.trigger_ms, look.now.next_trigger_ms, look.now.open_plan
    if not trigger_ms or due_ms is None:
        return {}
    last_batch = "none"
    if plan is not None:
        is_sealed = all(task.log is not None and task.log.sealed for task in plan.tasks)
        is_done = plan.status is not PlanStatus.CLOSED and plan.report is ReportStatus.DONE
        # Without a report nobody knows whether the sink has written it.
        is_read = look.now.stored.policy is None and plan.report is None and is_sealed
        is_overdue = look.now.now_ms - plan.created_ms > trigger_ms + look.window_ms
        if is_overdue or not (is_done or is_read):
            return {}
        last_batch = "done" if is_done else "read"
    return {
        "stage": "trigger",
        "last_batch": last_batch,
        "due_at_ms": due_ms,
        "trigger_ms": trigger_ms,
    }


def _stage_facts(look: Look, shard_id: str, plan: PlanView) -> dict[str, Fact | None]:
    if plan.status is PlanStatus.CLOSED:
        return {"stage": "settling"}
    planned, silent = look.now.planned.get(shard_id), look.unanswered.get(shard_id)
    logs = [task.log for task in (plan.tasks if planned is None else (planned.task,))]
    if any(log is None or not log.sealed for log in logs):
        if silent is not None:
            message, remedy, _ = error_text(silent.message, silent.remedy)
            return {"stage": "no answer", "error": message, "remedy": remedy}
        throttled = throttle_facts(look, shard_id)
        if None not in logs:
            rows = sum(log.rows for log in logs if log is not None)
            return {"stage": "reading", "rows": rows, **throttled}
        # At the first batch of a run, an executor is missing rather than that the function hangs.
        since_ms = max((one.info.since_ms for one in look.now.stored.owners), default=0)
        is_first = bool(since_ms) and (plan.previous_ms is None or plan.previous_ms < since_ms)
        return {"stage": "not begun", "is_first": is_first, **throttled}
    stage = "sink" if look.now.stored.policy is None else "not reported"
    if plan.report is ReportStatus.OPEN:
        stage = "unanswered" if plan.openings > 1 else "function"
    elif plan.report is not None:
        stage = "reported"
    return {"stage": stage, "openings": plan.openings or None}


def not_visible(look: Look, shard_id: str) -> Found:
    """The last rule: an owner runs, and nothing in ZooKeeper says what it waits for."""
    run = look.now.run_for(shard_id)
    facts: dict[str, Fact | None] = {}
    if run is not None and look.now.process_states.get(run.owner) is not ProcessState.RUNS:
        facts = {"pid": run.owner.pid, "host": run.owner.host}
        facts["session_timeout_ms"] = run.session_timeout_ms
    return found(
        facts,
        subject=application_of(look),
        consumer=look.now.consumer,
        keeps_up=look.now.is_spout and look.keeps_up(shard_id) is True,
        is_restarting=is_restarting(look, shard_id),
    )
