"""Rules about the application's state of a stream, and about what a shard waits for. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Role
from kinesis_spout.inspection.error_text import error_text
from kinesis_spout.inspection.health import SEVERITY
from kinesis_spout.inspection.process_rules import (
    application_of,
    has_reader,
    is_down,
    is_in_a_loop,
)
from kinesis_spout.inspection.table import Found, Next, found
from kinesis_spout.shards.lineage import ShardPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look

_MAX_NAMES = 5  # of other applications, or shards; a part of the shards is always named
_OF_A_BURST = 0.1  # of the pace of the clock: nobody provides for so little
_LATELY_MS = 10 * 60_000


# the application's state -------------------------------------------------------------------------
def other_stream(look: Look, _: str) -> Found | None:
    """The state belongs to an earlier stream of that name, or to one in another place."""
    known, stream = look.now.stored.identity, look.now.stream
    if known is None or not look.now.is_of_another_stream:
        return None
    facts: dict[str, Fact | None]
    if known.arn == stream.arn:
        facts = {"is_earlier": True, "state_created_at_ms": known.created_ms}
        facts["stream_created_at_ms"] = stream.created_ms
    else:
        region, here = (arn.split(":")[3:4] for arn in (known.arn, stream.arn))
        facts = {"state_arn": known.arn, "stream_arn": stream.arn}
        facts["region"] = region[0] if region and region != here else None
    return found(facts, subject=application_of(look))


def no_application(look: Look, _: str) -> Found | None:
    """Nothing is stored of it. The fix names the one that may have been meant, the likeliest."""
    stored, now = look.now.stored, look.now
    if now.is_known or stored.owners or now.last_log.runs or stored.reset is not None:
        return None
    applications = _likeliest(stored.of_the_stream, now.application)
    streams = _likeliest(stored.of_the_application, now.stream.name)
    return found(
        subject=application_of(look),
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


def not_begun(look: Look, _: str) -> Found | None:
    reset, subject = look.now.stored.reset, application_of(look)
    if look.now.is_known:
        return None
    if look.now.stored.owners:
        return found(subject=subject, stage="starting")
    if look.now.last_log.runs:
        return found(subject=subject, then=Next.JOB, stage="ended", role=Role.EFFECT)
    by: dict[str, Fact | None] = {}
    if reset is not None:
        by = {"removed_at_ms": reset.since_ms, "pid": reset.pid, "host": reset.host}
    return found(by, subject=subject, stage="removed")


# whether it is tracked, and complete -------------------------------------------------------------
def not_tracked(look: Look, shard_id: str) -> Found | None:
    """The stream does not list it, or lists it and the application has no state of it yet."""
    if shard_id not in look.now.known_shards:
        return found(is_unknown=True)
    if look.phase(shard_id) is not ShardPhase.NEW or look.now.lineage.waits_for(shard_id):
        return None
    if not has_reader(look, shard_id):
        return found(then=Next.JOB, role=Role.EFFECT)
    option = "shard_refresh_interval_s" if look.now.was_spout else "shardRefreshInterval"
    return found(is_to_be_listed=True, option=option)


def records_expired(look: Look, shard_id: str) -> Found | None:
    """The shard is gone before it was read to its end, or was last seen complete longer ago than
    the stream keeps its records.
    """
    now_ms, horizon_ms, progress = look.now.now_ms, look.horizon_ms, look.now.progress(shard_id)
    is_gone = look.phase(shard_id) is ShardPhase.VANISHED
    if not is_gone and not _has_lapsed(look, shard_id):
        return None
    since_ms = None if progress is None else progress.verified_ms
    is_dated = since_ms is not None and since_ms < horizon_ms
    if is_gone:
        is_served = bool(look.now.stored.owners) and not look.now.stored.paused
        then = Next.END if is_served else Next.JOB
    else:
        then = Next.END if look.keeps_up(shard_id) else Next.BELOW
    return found(
        then=then,
        is_gone=is_gone,
        from_at_ms=since_ms if is_dated else None,
        to_at_ms=horizon_ms if is_dated else None,
        age_ms=None if since_ms is None else now_ms - since_ms,
        retention_ms=look.now.stream.retention_ms,
        consumer=look.now.consumer,
        lost_shards=_lost_shards(look) if look.now.was_spout else None,
    )


def _has_lapsed(look: Look, shard_id: str) -> bool:
    """Whether the shard was last seen complete longer ago than the retention."""
    return not look.is_at_end(shard_id) and look.has_lapsed(shard_id)


def _lost_shards(look: Look) -> tuple[str, ...]:
    """Those to be set to their oldest records in one command, as a job names all of them, too;
    empty for all shards. A spout's program may have no option for it; all have positions.
    """
    lost = tuple(
        one
        for one in look.now.shard_ids
        if _has_lapsed(look, one) or look.phase(one) is ShardPhase.VANISHED
    )
    return () if len(lost) > _MAX_NAMES and len(lost) == len(look.now.states) else lost


def waits_for_parents(look: Look, shard_id: str) -> Found | None:
    parents = look.now.lineage.waits_for(shard_id)
    if not parents or look.phase(shard_id) not in {ShardPhase.WAITING, ShardPhase.NEW}:
        return None
    worst = max(parents, key=lambda parent: SEVERITY[look.health(parent)])
    return found(shard_id=worst, parents=tuple(parents))


# how far it is read ------------------------------------------------------------------------------
def caught_up(look: Look, shard_id: str) -> Found | None:
    """Nothing is left to be read."""
    over = {ShardPhase.PAST: "past", ShardPhase.FINISHED: "finished"}.get(look.phase(shard_id))
    if over is not None:
        return found(progress=over)
    if not look.is_read(shard_id) or not look.keeps_up(shard_id):
        return None
    plan, tip, end = look.now.open_plan, look.tips.get(shard_id), look.now.ended_in_order
    if look.is_unsettled(shard_id):
        plan_id = None if plan is None else plan.plan_id
        return found(then=Next.JOB, role=Role.EFFECT, progress="not settled", plan_id=plan_id)
    is_idle, has_owner = tip is not None and tip.next_ms is None, bool(look.now.stored.owners)
    if is_down(look, shard_id) or look.now.stored.paused or not (is_idle or has_owner):
        return found(then=Next.JOB, role=Role.EFFECT, progress="not read", leaves_next=end is None)
    return found(
        throttle_facts(look, shard_id),
        then=Next.BELOW if look.now.states[shard_id].unresolved else Next.END,
        progress="idle" if is_idle else "reading",
        has_no_owner=not has_owner,
        ended_at_ms=None if has_owner or end is None else end.time_ms,
    )


def set_back(look: Look, shard_id: str) -> Found | None:
    move = look.set_back(shard_id)
    if move is None:
        return None
    return found(command=move.cause, moved_at_ms=move.time_ms, is_read=has_reader(look, shard_id))


def behind(look: Look, shard_id: str) -> Found | None:
    """The position has moved. It may be that the process that moved it ends again and again, or has
    ended.
    """
    if not look.is_read(shard_id) or not look.has_moved(shard_id):
        return None
    lag_ms, is_in_loop = look.lag_ms(shard_id), is_in_a_loop(look, shard_id)
    if is_in_loop or look.now.owner_of(shard_id) is None:
        facts: dict[str, Fact | None] = {"lag_ms": lag_ms or None, "is_in_loop": is_in_loop}
        return found(facts, then=Next.JOB, role=Role.EFFECT, pace="interrupted")
    if look.keeps_up(shard_id):
        return None
    facts = {"lag_ms": lag_ms, **throttle_facts(look, shard_id)}
    speed = look.speed(shard_id)
    if not speed:  # it has moved, so 0 only says that no time of arrival was stored meanwhile
        return found(facts, pace="not known")
    if speed > 1 and lag_ms is not None:
        tip_ms = look.now.now_ms + round(lag_ms / (speed - 1))
        return found(facts, pace="catching up", tip_at_ms=tip_ms)
    run = look.now.run_for(shard_id)
    bytes_per_second = None if run is None else run.bytes_per_second
    limits = {
        "batch_limit": _filled(look, shard_id),
        "reads_per_second": None if run is None else run.reads_per_second,
        "mb_per_second": None if bytes_per_second is None else bytes_per_second / 1_000_000,
    }
    is_after_burst = speed < _OF_A_BURST
    is_limited = "throttled" in facts or any(one is not None for one in limits.values())
    return found(
        facts | limits | expiry_facts(look, shard_id),
        pace="falling behind",
        speed=round(speed, 3),
        read_ms=round(speed * look.window_ms),
        window_ms=look.window_ms,
        is_after_burst=is_after_burst,
        has_reason=is_limited or is_after_burst,
        consumer=look.now.consumer,
    )


def expiry_facts(look: Look, shard_id: str) -> dict[str, Fact | None]:
    """In what time unread records expire. No record is kept for longer than the retention, so a
    slow loss of pace, which reaches further, is reported as that.
    """
    lost_ms, retention_ms = look.expires_in_ms(shard_id), look.now.stream.retention_ms
    is_late = lost_ms is not None and lost_ms > retention_ms
    # Of what may have expired, its cause says so.
    is_soon = look.expires_soon_ms(shard_id) is not None and not _has_lapsed(look, shard_id)
    return {
        "expires_in_ms": None if is_late else lost_ms,
        "retention_ms": retention_ms if is_late else None,
        "expires_soon": is_soon,
    }


def _filled(look: Look, shard_id: str) -> int | None:
    """How many records of the shard a batch may have, where the newest one that was read has as
    many; else None.
    """
    for one in (look.now, look.before):
        plan = None if one.is_spout else one.stored.plan
        for task in () if plan is None else plan.tasks:
            for planned in () if task.log is None else task.plan.shards:
                if planned.shard_id == shard_id and planned.max_records and task.log is not None:
                    read = {each.shard_id: each.count for each in task.log.folded().shards}
                    is_full = read.get(shard_id, 0) >= planned.max_records
                    return planned.max_records if is_full else None
    return None


def throttle_facts(look: Look, shard_id: str) -> dict[str, Fact | None]:
    """That the shard's reads were refused since its oldest unread record came, or within the last
    ten minutes, as its consumer reports; empty where they were not.
    """
    if shard_id in look.throttled:
        return {"throttled": "now"}
    planned = look.now.planned.get(shard_id)
    if planned is not None and planned.result is not None and planned.result.throttled:
        return {"throttled": "batch", "refused_reads": planned.result.throttled}
    reported = look.now.log_for(shard_id).throttled.get(shard_id)
    lately_ms, frontier_ms = look.now.now_ms - _LATELY_MS, look.frontier_ms(shard_id)
    since_ms = lately_ms if frontier_ms is None else min(frontier_ms, lately_ms)
    if reported is None or reported.last_ms < since_ms:
        return {}
    return {
        "throttled": "lately",
        "refused_reads": reported.count,
        "refused_at_ms": reported.last_ms,
    }


def unread(look: Look, shard_id: str) -> Found:
    """Nothing of the shard itself holds it."""
    tip, move = look.tips.get(shard_id), look.now.stored.move
    if look.is_at_end(shard_id):
        return found(left="settling")
    if tip is not None and tip.next_ms is None:
        return found(left="end")
    was_skipped = move is not None and shard_id in move.forward and not look.now.stored.owners
    return found(
        expiry_facts(look, shard_id),
        left="records" if tip is not None else "not known",
        lag_ms=look.lag_ms(shard_id),
        was_skipped=was_skipped,
    )


# Kinesis -----------------------------------------------------------------------------------------
def kinesis_silent(look: Look, shard_id: str) -> Found | None:
    """The service throttles the shard, where it is asked now or where its consumer reports it; or
    it fails where it is asked, so the job may fare no better.
    """
    facts, silent = throttle_facts(look, shard_id), look.unanswered.get(shard_id)
    if not facts and silent is not None:
        message, remedy, _ = error_text(silent.message, silent.remedy)
        facts = {"error": message, "remedy": remedy}
    return found(facts, consumer=look.now.consumer) if facts else None


def not_asked(look: Look, shard_id: str) -> Found | None:
    """Nothing but the state shows anything, and by it nothing was left when it was stored."""
    state = look.now.states.get(shard_id)
    if state is None or not state.at_tip or shard_id in look.tips or state.unresolved:
        return None
    return found(is_refused=look.refusal is not None)
