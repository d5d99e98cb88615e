"""Rules about the application's state of a stream, what a shard waits for, its unresolved records,
and the current batch. Pure.
"""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Found, Next, Noun, Role, Subject
from kinesis_spout.inspection.health import SEVERITY
from kinesis_spout.inspection.process_rules import (
    application_of,
    error_facts,
    has_reader,
    is_down,
    is_in_a_loop,
    is_restarting,
)
from kinesis_spout.shards.lineage import ShardPhase
from state.plan import PlanStatus
from state.report import OnFailure, ReportStatus
from state.shard_state import TIMED_OUT
from state.store.ownership import ProcessState
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import ShardLook
    from state.retry_policy import RetryPolicy
    from state.shard_state import UnresolvedRecord
    from state.store.view import PlanView

MAX_UNRESOLVED = 100_000
"""The default of both consumers."""
_FIRST_BATCH_MS = 30_000
_MANY_TIMES = 5  # as long as the batch before: then its function may hang
_OF_THE_FUNCTION = frozenset({"sink", "function", "not reported"})  # stages
_MAX_NAMES = 5  # of other applications, or shards; a part of the shards is always named
_OF_A_BURST = 0.1  # of the pace of the clock: nobody provides for so little
_LATELY_MS = 10 * 60_000


# the application's state -------------------------------------------------------------------------
def other_stream(shard: ShardLook) -> Found | None:
    known, stream = shard.now.stored.identity, shard.now.stream
    if known is None or not shard.now.is_of_another_stream:
        return None
    facts: dict[str, Fact | None]
    if known.arn == stream.arn:
        facts = {"is_earlier": True, "state_created_at_ms": known.created_ms}
        facts["stream_created_at_ms"] = stream.created_ms
    else:
        region, here = (arn.split(":")[3:4] for arn in (known.arn, stream.arn))
        facts = {"state_arn": known.arn, "stream_arn": stream.arn}
        facts["region"] = region[0] if region and region != here else None
    return Found(facts, subject=application_of(shard))


def no_application(shard: ShardLook) -> Found | None:
    """The fix names the one that may have been meant, the likeliest."""
    stored, now = shard.now.stored, shard.now
    if now.is_known or stored.owners or now.last_log.runs or stored.reset is not None:
        return None
    applications = _likeliest(stored.of_the_stream, now.application)
    streams = _likeliest(stored.of_the_application, now.stream.name)
    return Found(
        subject=application_of(shard),
        application=now.application,
        stream=now.stream.name,
        applications=applications or None,
        more_applications=max(0, len(stored.of_the_stream) - _MAX_NAMES) or None,
        streams=streams or None,
        likely_application=next(iter(applications), None),
        likely_stream=None if applications else next(iter(streams), None),
    )


def _likeliest(names: Iterable[str], wanted: str) -> tuple[str, ...]:
    by_likeness = sorted(names, key=lambda name: -SequenceMatcher(None, wanted, name).ratio())
    return tuple(by_likeness[:_MAX_NAMES])


def not_begun(shard: ShardLook) -> Found | None:
    reset, subject = shard.now.stored.reset, application_of(shard)
    if shard.now.is_known:
        return None
    if shard.now.stored.owners:
        return Found(subject=subject, stage="starting")
    if shard.now.last_log.runs:
        return Found(subject=subject, then=Next.JOB, stage="ended", role=Role.EFFECT)
    if reset is None:
        return Found(subject=subject, stage="removed")
    by: dict[str, Fact | None] = {"pid": reset.pid, "host": reset.host}
    return Found(by, subject=subject, stage="removed", removed_at_ms=reset.since_ms)


# whether it is tracked, and complete -------------------------------------------------------------
def not_tracked(shard: ShardLook) -> Found | None:
    if shard.shard_id not in shard.now.known_shards:
        return Found(is_unknown=True)
    if shard.phase is not ShardPhase.NEW or shard.now.lineage.waits_for(shard.shard_id):
        return None
    if not has_reader(shard):
        return Found(then=Next.JOB, role=Role.EFFECT)
    option = "shard_refresh_interval_s" if shard.now.was_spout else "shardRefreshInterval"
    return Found(is_to_be_listed=True, option=option)


def records_expired(shard: ShardLook) -> Found | None:
    """The shard is gone before it was read to its end, or was last seen complete longer ago than
    the stream keeps its records.
    """
    now, horizon_ms, since_ms = shard.now, shard.look.expired_until_ms, shard.verified_ms
    is_gone = shard.phase is ShardPhase.VANISHED
    if not is_gone and not shard.has_lapsed:
        return None
    is_dated = since_ms is not None and since_ms < horizon_ms
    if is_gone or shard.keeps_up:
        is_read = now.stored.owners and not now.stored.paused and not is_down(shard)
        then = Next.END if is_read else Next.JOB
    else:
        then = Next.BELOW
    lost = tuple(
        one.shard_id
        for one in map(shard.look.of, now.shard_ids if now.was_spout else ())
        if one.has_lapsed or one.phase is ShardPhase.VANISHED
    )
    # One command sets all of them to their oldest records, as a job names all of them, too. Without
    # a name it is for all shards. A spout's program may have no option for it; all have positions.
    is_all = len(lost) > _MAX_NAMES and len(lost) == len(now.states)
    return Found(
        then=then,
        is_gone=is_gone,
        from_at_ms=since_ms if is_dated else None,
        to_at_ms=horizon_ms if is_dated else None,
        age_ms=None if since_ms is None else now.now_ms - since_ms,
        retention_ms=now.stream.retention_ms,
        consumer=now.consumer,
        lost_shards=(() if is_all else lost) if now.was_spout else None,
    )


def waits_for_parents(shard: ShardLook) -> Found | None:
    parents = shard.now.lineage.waits_for(shard.shard_id)
    if not parents or shard.phase not in {ShardPhase.WAITING, ShardPhase.NEW}:
        return None
    worst = max(parents, key=lambda parent: SEVERITY[shard.look.of(parent).health])
    return Found(shard_id=worst, parents=tuple(parents))


# how far it is read ------------------------------------------------------------------------------
def caught_up(shard: ShardLook) -> Found | None:
    over = {ShardPhase.PAST: "past", ShardPhase.FINISHED: "finished"}.get(shard.phase)
    if over is not None:
        return Found(progress=over)
    if not shard.is_read or not shard.keeps_up:
        return None
    now, tip, end = shard.now, shard.tip, shard.now.ended_in_order
    if shard.is_unsettled:
        plan_id = None if now.open_plan is None else now.open_plan.plan_id
        return Found(then=Next.JOB, role=Role.EFFECT, progress="not settled", plan_id=plan_id)
    is_idle, has_owner = tip is not None and tip.next_ms is None, bool(now.stored.owners)
    if is_down(shard) or now.stored.paused or not (is_idle or has_owner):
        return Found(then=Next.JOB, role=Role.EFFECT, progress="not read", leaves_next=end is None)
    return Found(
        throttle_facts(shard),
        then=Next.BELOW if shard.unresolved else Next.END,
        progress="idle" if is_idle else "reading",
        has_no_owner=not has_owner,
        ended_at_ms=None if has_owner or end is None else end.time_ms,
    )


def set_back(shard: ShardLook) -> Found | None:
    move = shard.set_back
    if move is None:
        return None
    return Found(command=move.cause, moved_at_ms=move.time_ms, is_read=has_reader(shard))


def behind(shard: ShardLook) -> Found | None:
    """The position has moved. It may be that the process that moved it ends again and again, or has
    ended.
    """
    if not shard.is_read or not shard.has_moved:
        return None
    lag_ms, is_in_loop = shard.lag_ms, is_in_a_loop(shard)
    if is_in_loop or shard.owner is None:
        facts: dict[str, Fact | None] = {"lag_ms": lag_ms or None, "is_in_loop": is_in_loop}
        return Found(facts, then=Next.JOB, role=Role.EFFECT, pace="interrupted")
    if shard.keeps_up:
        return None
    facts = {"lag_ms": lag_ms, **throttle_facts(shard)}
    if not (
        speed := shard.speed
    ):  # it has moved, so 0 only says that no time of arrival was stored meanwhile
        return Found(facts, pace="not known")
    if speed > 1 and lag_ms is not None:
        tip_ms = shard.now.now_ms + round(lag_ms / (speed - 1))
        return Found(facts, pace="catching up", tip_at_ms=tip_ms)
    limits: dict[str, Fact | None] = {"batch_limit": _filled(shard)}
    if (run := shard.run) is not None:
        bytes_per_second = run.bytes_per_second
        limits["reads_per_second"] = run.reads_per_second
        limits["mb_per_second"] = bytes_per_second and bytes_per_second / 1_000_000
    is_after_burst = speed < _OF_A_BURST
    is_limited = "throttled" in facts or any(one is not None for one in limits.values())
    return Found(
        facts | limits | expiry_facts(shard),
        pace="falling behind",
        speed=round(speed, 3),
        read_ms=round(speed * shard.look.window_ms),
        window_ms=shard.look.window_ms,
        is_after_burst=is_after_burst,
        has_reason=is_limited or is_after_burst,
        consumer=shard.now.consumer,
    )


def expiry_facts(shard: ShardLook) -> dict[str, Fact | None]:
    """In what time unread records expire. No record is kept for longer than the retention, so a
    slow loss of pace, which reaches further, is reported as that.
    """
    lost_ms, retention_ms = shard.expires_in_ms, shard.now.stream.retention_ms
    is_late = lost_ms is not None and lost_ms > retention_ms
    # Of what may have expired, its cause says so.
    is_soon = shard.expires_soon_ms is not None and not shard.has_lapsed
    facts: dict[str, Fact | None] = {"expires_soon": is_soon}
    return facts | ({"retention_ms": retention_ms} if is_late else {"expires_in_ms": lost_ms})


def _filled(shard: ShardLook) -> int | None:
    """How many records of the shard a batch may have, where the newest one that was read has as
    many; else None.
    """
    for one in (shard.now, shard.look.before):
        plan = None if one.is_spout else one.stored.plan
        for task in () if plan is None else plan.tasks:
            for planned in () if task.log is None else task.plan.shards:
                if (
                    planned.shard_id == shard.shard_id
                    and planned.max_records
                    and task.log is not None
                ):
                    read = {each.shard_id: each.count for each in task.log.folded().shards}
                    is_full = read.get(shard.shard_id, 0) >= planned.max_records
                    return planned.max_records if is_full else None
    return None


def throttle_facts(shard: ShardLook) -> dict[str, Fact | None]:
    """That the shard's reads were refused since its oldest unread record came, or within the last
    ten minutes, as its consumer reports; empty where they were not.
    """
    result, plan = shard.result, shard.now.open_plan
    own: dict[str, Fact | None] = {"reads_itself": shard.has_moved}
    if plan is not None and result is not None and result.payload_bytes:
        # Less than that of its reads: the batch does more in this time.
        seconds = max(1.0, (shard.now.now_ms - plan.created_ms) / 1000)
        mb_per_second = round(result.payload_bytes / seconds / 1_000_000, 1)
        own = {"reads_itself": True, "own_mb_per_second": mb_per_second}
    if shard.shard_id in shard.look.throttled:
        return {"throttled": "now", **own}
    if result is not None and result.throttled:
        return {"throttled": "batch", "refused_reads": result.throttled, **own}
    reported = shard.log.throttled.get(shard.shard_id)
    lately_ms, frontier_ms = shard.now.now_ms - _LATELY_MS, shard.frontier_ms
    since_ms = lately_ms if frontier_ms is None else min(frontier_ms, lately_ms)
    if reported is None or reported.last_ms < since_ms:
        return {}
    refused = {"refused_reads": reported.count, "refused_at_ms": reported.last_ms}
    return {"throttled": "lately", **refused, **own}


def unread(shard: ShardLook) -> Found:
    tip, stored = shard.tip, shard.now.stored
    if shard.is_at_end:
        return Found(left="settling")
    if tip is not None and tip.next_ms is None:
        return Found(left="end")
    was_forward = stored.move is not None and shard.shard_id in stored.move.forward
    return Found(
        expiry_facts(shard),
        left="records" if tip is not None else "not known",
        lag_ms=shard.lag_ms,
        is_never_read=shard.is_never_read,
        was_skipped=was_forward and not stored.owners,
    )


# Kinesis -----------------------------------------------------------------------------------------
def kinesis_silent(shard: ShardLook) -> Found | None:
    """The service throttles the shard, where it is asked now or where its consumer reports it; or
    it fails where it is asked, so the job may fare no better.
    """
    facts = throttle_facts(shard) or _silence_facts(shard)
    return Found(facts, consumer=shard.now.consumer) if facts else None


def _silence_facts(shard: ShardLook) -> dict[str, Fact | None]:
    silent = shard.look.unanswered.get(shard.shard_id)
    return {} if silent is None else error_facts(silent)


def not_asked(shard: ShardLook) -> Found | None:
    """Nothing but the state shows anything, and by it nothing was left when it was stored."""
    if shard.state is None or not shard.state.at_tip or shard.tip is not None or shard.unresolved:
        return None
    return Found(is_refused=shard.look.refusal is not None)


# order -------------------------------------------------------------------------------------------
def _order(shard: ShardLook) -> OnFailure:
    policy = shard.now.stored.policy
    return OnFailure.CONTINUE if policy is None else policy.on_failure


def held_by_order(shard: ShardLook) -> Found | None:
    """Failed records, of the shard or of an ancestor, hold new records of the shard, or its own
    retries.
    """
    order = _order(shard)
    if order is OnFailure.CONTINUE or shard.state is None or not has_reader(shard):
        return None
    blocks_shard = order is OnFailure.BLOCK_SHARD
    if shard.is_read:
        holder = shard.now.held_by.get(shard.shard_id)
        if holder is not None or (blocks_shard and shard.unresolved):
            return Found(shard_id=holder, held="new records", holder=holder, order=order.value)
    ancestors = shard.now.unresolved_ancestors.get(shard.shard_id, ())
    if not ancestors or not shard.unresolved or not _asks_for_retries(shard):
        return None
    keys = {one.key for one in shard.now.states[ancestors[0]].unresolved}
    own = {one.key for one in shard.unresolved}
    if not blocks_shard and None not in keys | own and not keys & own:
        return None
    facts = {"held": "retries", "holder": ancestors[0], "order": order.value}
    return Found(facts, shard_id=ancestors[0], unresolved=shard.state.unresolved_count)


def _asks_for_retries(shard: ShardLook) -> bool:
    """Whether what is left of the shard are its unresolved records: nothing else is to be read, or
    they hold it.
    """
    if shard.is_at_end or shard.keeps_up is True:
        return True
    if shard.state is None or not shard.is_read or not has_reader(shard):
        return False
    blocks = _order(shard) is OnFailure.BLOCK_SHARD and bool(shard.unresolved)
    return shard.shard_id in shard.now.held_by or blocks


# unresolved records ------------------------------------------------------------------------------
def unresolved_record(shard: ShardLook) -> Found | None:
    """What is left of the shard are its unresolved records: how far the first of them has come."""
    if not shard.unresolved:
        return None
    if not _asks_for_retries(shard):
        return _keeps_the_end(shard)
    now, record = shard.now, _first_to_go(shard)
    retries = () if shard.planned is None else shard.planned.slice.retries
    if not has_reader(shard):
        stage = "not read"
    elif shard.refused_letters is not None:
        stage = "letter refused"
    elif any(one.first <= record.first <= one.end for one in retries):
        stage = "delivered"
    elif now.is_spout and record.first_failure_ms is None:
        return _with_program(shard, record)
    elif shard.is_given_up(record):
        stage = "dead letter"
    elif shard.outage_until_ms is not None:
        stage = "outage"
    else:
        stage = "due" if record.due_ms <= now.now_ms else "waits"
    return _found(shard, record, stage, Next.END if stage == "waits" else Next.JOB)


def unresolved_besides(shard: ShardLook) -> Found | None:
    """The unresolved records of a shard that has more to read, and so is held by none of them."""
    if not shard.unresolved or shard.refused_letters is not None:
        return None
    return _found(shard, _first_to_go(shard), "besides")


def _keeps_the_end(shard: ShardLook) -> Found | None:
    """A record that the program of a spout has, and that is all that is left of a closed shard: its
    end is read, and its children begin, once the record is answered.
    """
    if shard.tip is None or shard.tip.next_ms is not None or not shard.now.is_spout:
        return None
    out = [one for one in shard.unresolved if one.first_failure_ms is None and not one.reason]
    if not out or shard.is_at_end or not has_reader(shard):
        return None
    return _with_program(shard, out[0], keeps_end=True)


def _with_program(shard: ShardLook, record: UnresolvedRecord, *, keeps_end: bool = False) -> Found:
    """A record that was out all the time is rather kept than worked on."""
    run, was, now_ms = shard.run, shard.was, shard.now.now_ms
    # The history has the time of a shard's first one, the look before that of all.
    known = [] if was is None or record not in was.unresolved else [shard.look.before.now_ms]
    held_ms = shard.now.stored.held_since_ms.get(shard.shard_id)
    if held_ms is not None and shard.unresolved[0].first == record.first:
        known.append(held_ms)
    since_ms = min((one for one in known if one < now_ms), default=None)
    facts: dict[str, Fact | None] = {"keeps_end": keeps_end, "out_since_at_ms": since_ms}
    facts["out_ms"] = None if since_ms is None else now_ms - since_ms
    if run is not None:
        facts["timeout_ms"] = run.message_timeout_ms or None
        facts["has_no_timeout"] = run.message_timeout_ms == 0
    if failing := [one for one in shard.unresolved if one.reason]:
        facts["other_failures"] = sum(one.count for one in failing) or None
        facts["other_reason"] = min(failing, key=lambda one: one.due_ms).reason
    return _found(shard, record, "with the program", Next.END, **facts)


def _found(
    shard: ShardLook,
    record: UnresolvedRecord,
    stage: str,
    then: Next | None = None,
    **more: Fact | None,
) -> Found:
    now_ms, first_ms = shard.now.now_ms, record.first_failure_ms
    policy, is_given_up = shard.retry_policy, shard.is_given_up(record)
    unresolved = shard.unresolved_count
    waiting = sum(one.count for one in shard.unresolved if one.blocked)
    is_out = first_ms is None and not record.reason
    facts: dict[str, Fact | None] = {
        "unresolved": unresolved,
        "is_at_end": shard.is_at_end,
        "record": str(record.first),
        "sequence": str(record.first.whole),
        "consumer": shard.now.consumer,
        "is_out": is_out,
        "stage": stage,
    }
    if _order(shard) is not OnFailure.CONTINUE and 0 < waiting < unresolved:
        facts |= {"failed": unresolved - waiting, "waiting": waiting}
    if not is_out:
        # Nothing is wrong with a record of an outage, and one that is given up is not tried again.
        is_outage = stage != "not read" and shard.outage_until_ms is not None
        is_over = stage in {"letter refused", "dead letter"} or (
            stage == "not read" and is_given_up
        )
        facts |= {
            "attempt": None if is_given_up else record.attempts + 1,
            "attempts_max": None if policy is None or is_given_up else policy.retry_limit + 1,
            "failures": record.attempts if is_given_up and not record.rejected else None,
            "is_rejected": record.rejected,
            "due_at_ms": record.due_ms if record.due_ms > now_ms and not is_given_up else None,
            "is_due": 0 < record.due_ms <= now_ms and not is_given_up,
            "is_blocked": record.blocked,
            "reason": None if record.blocked else record.reason,
            "fault": None if is_outage or is_over else _fault(record),
            "still_ms": _still_ms(shard) if record.reason == TIMED_OUT else None,
            "letter_is_far": _letter_is_far(shard, record, policy),
            "becomes_letter": shard.now.was_spout and not is_given_up and not record.blocked,
            "is_expired": first_ms is not None
            and now_ms - first_ms > shard.now.stream.retention_ms,
        }
    return Found(facts | more, subject=Subject(Noun.RECORD, str(record.first)), then=then)


def _letter_is_far(shard: ShardLook, record: UnresolvedRecord, policy: RetryPolicy | None) -> bool:
    """Whether the stream keeps the record for less time than its retries take, each at least as
    long as the one that it waits for.
    """
    if policy is None or record.last_failure_ms is None:
        return False
    left_ms = (policy.retry_limit + 1 - record.attempts) * (record.due_ms - record.last_failure_ms)
    return min(left_ms, policy.max_age_ms or left_ms) > shard.now.stream.retention_ms


def _fault(record: UnresolvedRecord) -> str | None:
    """What is to be corrected: the program that does not answer, the worker that ends, or what the
    reason names. Nothing is known against the record of one attempt whose process ended.
    """
    if record.reason == TIMED_OUT:
        return "program"
    if record.reason and record.reason.startswith(UNANSWERED):
        return "worker" if record.attempts > 1 else None
    return "reason" if record.reason else None


def _still_ms(shard: ShardLook) -> int | None:
    """For how long there was no answer at all, as far as the checkpoint shows."""
    was, now = shard.was, shard.state
    stands = was is not None and now is not None and was.checkpoint_text == now.checkpoint_text
    return shard.look.window_ms or None if stands else None


def _first_to_go(shard: ShardLook) -> UnresolvedRecord:
    """The record on which the others wait, or which is due first."""
    order = _order(shard)
    ordered = sorted(shard.unresolved, key=lambda one: one.first)
    if order is OnFailure.BLOCK_SHARD:
        return ordered[0]
    heads: dict[str | None, UnresolvedRecord] = {}
    for one in ordered if order is OnFailure.BLOCK_KEY else ():
        if None in heads:
            break
        if one.key is not None or not heads:  # an unknown key waits for all before it
            heads.setdefault(one.key, one)
    return min(list(heads.values()) or ordered, key=lambda one: one.due_ms)


def letters_refused(shard: ShardLook) -> Found | None:
    """The dead letters of the shard's records are refused, and nothing else is left of it, or they
    fill its room.
    """
    limit = None if shard.run is None else shard.run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    is_full = limit is None or 2 * shard.unresolved_count >= limit
    if not is_full and not _asks_for_retries(shard):
        return None
    return letters_refused_besides(shard, max_unresolved=limit if is_full else None)


def letters_refused_besides(shard: ShardLook, *, max_unresolved: int | None = None) -> Found | None:
    """The same of a shard that is read all the same."""
    refused = shard.refused_letters
    if refused is None:
        return None
    return Found(
        letters=refused.count,
        refused_at_ms=refused.last_ms,
        error=refused.says,
        unresolved=shard.unresolved_count,
        max_unresolved=max_unresolved,
        reason=next((one.reason for one in shard.unresolved if one.reason), None),
    )


def outage(shard: ShardLook) -> Found | None:
    until_ms = shard.outage_until_ms
    if until_ms is None:
        return None
    reasons = Counter[str]()
    for state in shard.now.states.values():
        for one in state.unresolved:
            if one.reason:
                reasons[one.reason] += one.count
    most = max(reasons, key=reasons.__getitem__, default=None)
    facts: dict[str, Fact | None] = {"until_at_ms": until_ms}
    if most is not None:
        facts |= {"reason": most, "records": reasons[most]}
    return Found(facts, subject=application_of(shard))


def unresolved_limit(shard: ShardLook) -> Found | None:
    """Records are unresolved, and nothing new is read. Of a Spark job, the limit is not stored."""
    now, tip, planned, run = shard.now, shard.tip, shard.planned, shard.run
    has_unread = tip is not None and tip.next_ms is not None and not shard.keeps_up
    if not shard.unresolved or not has_unread or shard.has_moved:
        return None
    is_searching = now.open_plan is not None and now.open_plan.delivery_limit is not None
    if is_searching or _trigger_facts(shard) or (planned is not None and planned.slice.max_records):
        return None  # the batch is what it waits for
    count = shard.unresolved_count
    limit = None if run is None else run.max_unresolved_per_shard
    # Of a spout's records, some are not stored while they are out.
    if limit is not None and 2 * count < limit:
        return None
    record = _first_to_go(shard)
    total = sum(one.unresolved_count for one in now.states.values())
    return Found(
        unresolved=count,
        option="max_unresolved_per_shard" if now.was_spout else "maxUnresolvedPerShard",
        max_unresolved=limit,
        usual_max=MAX_UNRESOLVED if limit is None else None,
        is_reached=count >= (limit or MAX_UNRESOLVED),
        total=total if now.is_spout else None,
        record=str(record.first),
        sequence=str(record.first.whole),
        reason=record.reason,
        fault=None if shard.outage_until_ms is not None else _fault(record),
    )


# the batch ---------------------------------------------------------------------------------------
def batch(shard: ShardLook) -> Found | None:
    """The batch under way, by the stage that it has reached; or the time between two batches."""
    plan, now_ms, facts = shard.now.open_plan, shard.now.now_ms, _trigger_facts(shard)
    if plan is None:
        return Found(facts, subject=application_of(shard)) if facts else None
    if plan.delivery_limit is not None:
        facts = {"stage": "search", "delivery_limit": plan.delivery_limit}
    elif not facts:
        facts = _stage_facts(shard, plan)
    age_ms = max(0, now_ms - plan.created_ms)
    began_ms = max([plan.created_ms, *(one.info.since_ms for one in shard.now.stored.owners)])
    at_work_ms = max(0, now_ms - began_ms)  # a batch may be older than the run that has it
    usual_ms = None if plan.previous_ms is None else plan.created_ms - plan.previous_ms
    is_long = at_work_ms > (_FIRST_BATCH_MS if usual_ms is None else usual_ms)
    is_late = usual_ms is not None and at_work_ms > max(_MANY_TIMES * usual_ms, _FIRST_BATCH_MS)
    return Found(
        facts,
        subject=Subject(Noun.BATCH, plan.plan_id),
        plan_id=plan.plan_id,
        age_ms=age_ms,
        usual_ms=usual_ms,
        run_ms=at_work_ms if at_work_ms < age_ms else None,
        is_long=is_long or "error" in facts,
        is_late=is_late and facts.get("stage") in _OF_THE_FUNCTION,
        is_restarting=is_restarting(shard),
    )


def _trigger_facts(shard: ShardLook) -> dict[str, Fact | None]:
    """Of a Spark query between two batches, whose trigger is known; else empty."""
    trigger_ms, plan, last_batch = shard.now.trigger_ms, shard.now.open_plan, "none"
    if not trigger_ms:
        return {}
    if plan is not None:
        is_sealed = all(task.log is not None and task.log.sealed for task in plan.tasks)
        is_done = plan.status is not PlanStatus.CLOSED and plan.report is ReportStatus.DONE
        # Without a report nobody knows whether the sink has written it.
        is_read = shard.now.stored.policy is None and plan.report is None and is_sealed
        is_overdue = shard.now.now_ms - plan.created_ms > trigger_ms + shard.look.window_ms
        if is_overdue or not (is_done or is_read):
            return {}
        last_batch = "done" if is_done else "read"
    times = {"due_at_ms": shard.now.next_trigger_ms, "trigger_ms": trigger_ms}
    return {"stage": "trigger", "last_batch": last_batch, **times}


def _stage_facts(shard: ShardLook, plan: PlanView) -> dict[str, Fact | None]:
    if plan.status is PlanStatus.CLOSED:
        return {"stage": "settling"}
    tasks = plan.tasks if shard.planned is None else (shard.planned.task,)
    logs = [task.log for task in tasks]
    if any(log is None or not log.sealed for log in logs):
        if silence := _silence_facts(shard):
            return {"stage": "no answer", **silence}
        throttled = throttle_facts(shard)
        if None not in logs:
            rows = sum(log.rows for log in logs if log is not None)
            return {"stage": "reading", "rows": rows, **throttled}
        # At the first batch of a run, an executor is missing rather than that the function hangs.
        since_ms = max((one.info.since_ms for one in shard.now.stored.owners), default=0)
        is_first = bool(since_ms) and (plan.previous_ms is None or plan.previous_ms < since_ms)
        return {"stage": "not begun", "is_first": is_first, **throttled}
    stage = "sink" if shard.now.stored.policy is None else "not reported"
    if plan.report is ReportStatus.OPEN:
        stage = "unanswered" if plan.openings > 1 else "function"
    elif plan.report is not None:
        stage = "reported"
    return {"stage": stage, "openings": plan.openings or None}


def not_visible(shard: ShardLook) -> Found:
    run = shard.run
    facts: dict[str, Fact | None] = {}
    if run is not None and shard.now.process_states.get(run.owner) is not ProcessState.RUNS:
        facts = {"pid": run.owner.pid, "host": run.owner.host}
        facts["session_timeout_ms"] = run.session_timeout_ms
    return Found(
        facts,
        subject=application_of(shard),
        consumer=shard.now.consumer,
        keeps_up=shard.now.is_spout and shard.keeps_up is True,
        is_restarting=is_restarting(shard),
    )
