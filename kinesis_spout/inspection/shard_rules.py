"""The rules that say what holds a shard itself. Pure. `OF_THE_SHARD` is their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.application_rules import another_stream, not_begun
from kinesis_spout.inspection.cause import (
    NOTHING,
    THE_JOB,
    THE_NEXT_RULE,
    Act,
    Advice,
    Cause,
    has_reader,
    is_at_end,
)
from kinesis_spout.inspection.consumer_words import words_of
from kinesis_spout.inspection.health import READ_PHASES, SEVERITY
from kinesis_spout.inspection.owner_rules import (
    OTHER_CONSUMERS,
    answers_none,
    is_down,
    not_subscribed,
    run_of,
    throttled_clause,
)
from kinesis_spout.inspection.retry_rules import (
    held_by_order,
    keeps_the_end,
    letters_wait,
    retries,
    unresolved_besides,
    waits_for_ancestor,
)
from kinesis_spout.inspection.run_rules import LOSS, is_in_a_loop, over_told
from kinesis_spout.inspection.wording import (
    expiry,
    moment,
    move_told,
    plan_stage,
    records,
    shards_named,
)
from kinesis_spout.shards.lineage import ShardPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.inspection.health import Look


_MAX_NAMED = 5  # of all shards; a part of them is always named
_OF_A_BURST = 0.1  # of the pace of the clock: nobody provides for so little
_RAISE = Advice(
    Act.CHANGE,
    "raise the limit of the batches: maxRecordsPerTrigger, which all shards share, or "
    "maxRecordsPerShard",
)
_RAISE_RATE = Advice(
    Act.CHANGE,
    "raise its limits of reading: readsPerSecond and readBytesPerSecond, or a spout's rate",
)
_AFTER_A_BURST = Advice(
    Act.WAIT, "wait some minutes and look again: behind what came at once it gets on faster"
)


def _unknown_shard(look: Look, shard_id: str) -> Cause | None:
    if shard_id in look.now.known_shards:
        return None
    return Cause(
        kind="unknown shard",
        about=shard_id,
        says="is not listed by the stream, and has no state in the application",
        advice=(Advice(Act.LOOK, "see the shards", ("shards",)),),
    )


def _past(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.PAST:
        return None
    return Cause(
        kind="past",
        about=shard_id,
        says="expired before the application began, is only named as a parent, and holds nothing "
        "back",
        advice=(NOTHING,),
    )


def _finished(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.FINISHED:
        return None
    return Cause(
        kind="finished",
        about=shard_id,
        says="was read to its end, and every record of it is acked",
        advice=(NOTHING,),
    )


def _vanished(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.VANISHED:
        return None
    return Cause(
        kind="vanished",
        about=shard_id,
        says=f"is not listed by the stream any more, and was not read to its end: what was unread"
        f"{_arrived(look, shard_id)} has expired (or the listing is late, right after a split or "
        "merge)",
        advice=(
            Advice(Act.LOOK, "look again in a minute"),
            Advice(
                Act.CHANGE,
                f"if it stays so, the records are lost: {words_of(look).without}",
                _without_the_lost(look),
                mends=LOSS,
            ),
        ),
        leads_to=None if look.now.stored.owners and not look.now.stored.paused else THE_JOB,
    )


def _new(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.NEW or look.now.lineage.waits_for(shard_id):
        return None
    says = "is listed by the stream, and has no state in the application yet"
    if not has_reader(look, shard_id):
        return Cause(kind="not tracked", about=shard_id, says=says, leads_to=THE_JOB)
    return Cause(
        kind="not tracked",
        about=shard_id,
        says=f"{says}: {words_of(look).it} learns of it with its next listing",
        advice=(
            Advice(Act.WAIT, f"wait for the next listing ({words_of(look).refresh})"),
            Advice(Act.LOOK, f"if it stays so, {words_of(look).some_shards}"),
        ),
    )


def _lapsed_ms(look: Look, shard_id: str) -> int | None:
    """When the shard was last seen complete, where that is longer ago than the retention."""
    progress = look.now.progress(shard_id)
    if (
        progress is None
        or progress.verified_ms is None
        or progress.position.is_end
        or progress.verified_ms >= look.horizon_ms
    ):
        return None
    return progress.verified_ms


def _arrived(look: Look, shard_id: str) -> str:
    """A clause that says which records are lost, by when they arrived."""
    progress, now_ms = look.now.progress(shard_id), look.now.now_ms
    since_ms = None if progress is None else progress.verified_ms
    if since_ms is None or since_ms >= look.horizon_ms:
        return ""
    return f" that arrived from {moment(since_ms, now_ms)} to {moment(look.horizon_ms, now_ms)}"


def _without_the_lost(look: Look) -> tuple[str, ...]:
    """The command that goes on without what is lost, of all shards: a job names them all, too. A
    spout's program may not have an option for it; all of them have positions. Empty for a Spark
    job, which has one.
    """
    if not look.now.was_spout:
        return ()
    losing = [
        one
        for one in look.now.shard_ids
        if _lapsed_ms(look, one) is not None or look.phase(one) is ShardPhase.VANISHED
    ]
    named = [argument for one in losing for argument in ("--shard", one)]
    if len(losing) > _MAX_NAMED and len(losing) == len(look.now.states):
        named = []
    return ("checkpoint", "set", *named, "--to", "TRIM_HORIZON", "--allow-skip")


def _lapsed(look: Look, shard_id: str) -> Cause | None:
    verified_ms = _lapsed_ms(look, shard_id)
    if verified_ms is None:
        return None
    return Cause(
        kind="lapsed",
        about=shard_id,
        says=f"was last seen complete {duration(look.now.now_ms - verified_ms)} ago, and "
        f"the stream keeps records for {duration(look.now.stream.retention_ms)}: records"
        f"{_arrived(look, shard_id)} may have expired unread",
        advice=(
            Advice(
                Act.CHANGE,
                "raise the stream's retention while there is something to save",
                is_urgent=True,
            ),
            Advice(
                Act.CHANGE,
                words_of(look).lossy,
                _without_the_lost(look),
                mends=LOSS,
                is_urgent=True,
            ),
        ),
        leads_to=None if look.keeps_up(shard_id) else THE_NEXT_RULE,
    )


def _waiting(look: Look, shard_id: str) -> Cause | None:
    parents = look.now.lineage.waits_for(shard_id)
    if not parents or look.phase(shard_id) not in {ShardPhase.WAITING, ShardPhase.NEW}:
        return None
    whose = "its parent" if len(parents) == 1 else "its parents"
    return Cause(
        kind="waits for parents",
        about=shard_id,
        says=f"waits for {whose}, {shards_named(parents)}: records of a key go on in it, so what "
        "came before must be read to the end first",
        leads_to=max(parents, key=lambda parent: SEVERITY[look.health(parent)]),
    )


def _caught_up(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) not in READ_PHASES or not look.keeps_up(shard_id):
        return None
    if look.is_unsettled(shard_id):
        return Cause(
            kind="not settled",
            about=shard_id,
            says=f"was read up to its newest record, by a batch that is not settled{_stage(look)}",
            leads_to=THE_JOB,
        )
    tip = look.tips.get(shard_id)
    is_idle = tip is not None and tip.next_ms is None
    newest = "its newest record" if is_idle else "what came just now"
    if is_down(look, shard_id) or not (is_idle or look.now.stored.owners):
        next_one = "" if look.now.ended_in_order is not None else "; what comes next is not read"
        besides = unresolved_besides(look, shard_id)
        return Cause(
            kind="idle, and nobody reads it",
            about=shard_id,
            says=f"was read up to {newest}{next_one}{besides.says}",
            advice=besides.advice,
            leads_to=THE_JOB,
        )
    says, nothing = "is read as fast as records come", NOTHING
    if is_idle:
        says = "is read up to its newest record, and waits for the next one"
        if not look.now.stored.owners:
            says, nothing = _idle_without_owner(look)
    held = look.now.states[shard_id].unresolved_count
    throttled = throttled_clause(look, shard_id)
    if throttled:
        nothing = Advice(Act.CHANGE, f"if it falls behind again, {OTHER_CONSUMERS}")
    return Cause(
        kind="idle" if is_idle else "healthy",
        about=shard_id,
        says=f"{says}{throttled}",
        advice=(nothing,),
        leads_to=THE_NEXT_RULE if held else None,
    )


def _idle_without_owner(look: Look) -> tuple[str, Advice]:
    """Nothing is unread, and no process runs."""
    read = "was read up to its newest record"
    if told := over_told(look):
        return f"{read}; {told}", Advice(Act.NOTHING, "nothing to do until its next run is due")
    return (
        f"{read}; no process owns the application now",
        Advice(Act.NOTHING, "nothing to do for what came so far; start the job to read what comes"),
    )


def _stage(look: Look) -> str:
    """How far the open plan has come, where no owner is left whose cause says so."""
    plan = look.now.open_plan
    if plan is None or look.now.stored.owners:
        return ""
    age = duration(max(0, look.now.now_ms - plan.created_ms))
    return f" (plan {plan.plan_id}, made {age} ago: {plan_stage(look, plan)})"


def _set_back(look: Look, shard_id: str) -> Cause | None:
    move = look.set_back(shard_id)
    if move is None:
        return None
    reads = "reads" if has_reader(look, shard_id) else "is to read"
    meant = Advice(Act.WAIT, "wait: it was set back on purpose, and is over when it has caught up")
    return Cause(
        kind="set back",
        about=shard_id,
        says=f"was {move_told(move, look.now.now_ms)}, and {reads} again what it had read before, "
        "on purpose",
        advice=(meant,) if has_reader(look, shard_id) else (),
        leads_to=THE_NEXT_RULE,
    )


def _behind(look: Look, shard_id: str) -> Cause | None:
    if (
        look.phase(shard_id) not in READ_PHASES
        or not look.has_moved(shard_id)
        or look.keeps_up(shard_id)
    ):
        return None
    besides, throttled = unresolved_besides(look, shard_id), throttled_clause(look, shard_id)
    others = (Advice(Act.CHANGE, OTHER_CONSUMERS),) if throttled else ()
    lag_ms, speed = look.lag_ms(shard_id), look.speed(shard_id)
    behind = "" if lag_ms is None else f" {duration(lag_ms)}"
    if speed is not None and speed > 1 and lag_ms is not None:
        until_ms = look.now.now_ms + round(lag_ms / (speed - 1))
        return Cause(
            kind="catching up",
            about=shard_id,
            says=f"is read, is{behind} behind, and catches up{throttled}{besides.says}",
            advice=(
                Advice(
                    Act.WAIT,
                    f"wait; at this pace it is at the tip at {moment(until_ms, look.now.now_ms)}",
                    until_ms=until_ms,
                ),
                *others,
                *besides.advice,
            ),
        )
    if not speed:  # it has moved, so 0 only says that no time of arrival was stored meanwhile
        return Cause(
            kind="of unknown pace",
            about=shard_id,
            says=f"is read, is{behind} behind, and at what pace is not known yet"
            f"{throttled}{besides.says}",
            advice=(
                *others,
                Advice(Act.WAIT, "wait a minute and look again"),
                *besides.advice,
            ),
        )
    limit, own = _filled(look, shard_id), _own_rate(look, shard_id)
    besides = besides._replace(says=f"{own}{besides.says}")
    first = (
        *others,
        *((_RAISE_RATE,) if own else ()),
        *((_RAISE,) if limit is not None else ()),
        *((_AFTER_A_BURST,) if speed < _OF_A_BURST else ()),
    )
    faster = words_of(look).faster
    return Cause(
        kind="falling behind",
        about=shard_id,
        says=f"is read, is{behind} behind, and {_pace(look, shard_id, speed, limit)}{throttled}"
        f"{besides.says}",
        advice=(
            *first,
            Advice(Act.CHANGE, f"or, if it is still too slow: {faster}" if first else faster),
            *_retention(look, shard_id),
            *besides.advice,
        ),
    )


def _pace(look: Look, shard_id: str, speed: float, limit: int | None) -> str:
    """A clause about a shard that is read more slowly than records came. `limit`: of its batches,
    which are filled to it; None where they are not.
    """
    lost_ms = look.lost_in_ms(shard_id)
    told = "" if lost_ms is None else expiry(lost_ms, look.now.stream.retention_ms)
    lost = f"; at this pace unread records expire in {told}" if told else ""
    at_once = ", most likely because much came at once then"
    filled = "" if limit is None else f"; its batches take as many as they may, {records(limit)}"
    return (
        f"read what came within {duration(round(speed * look.window_ms))} in the last "
        f"{duration(look.window_ms)}"
        f"{at_once if speed < _OF_A_BURST else ': it does not catch up'}{filled}{lost}"
    )


def _own_rate(look: Look, shard_id: str) -> str:
    """A clause about the limits that its consumer has set to its reads; empty without."""
    owner = look.now.owner_of(shard_id)
    run = None if owner is None else run_of(look, owner)
    limits = []
    if run is not None and run.reads_per_second is not None:
        limits.append(f"{run.reads_per_second:g} reads")
    if run is not None and run.bytes_per_second is not None:
        limits.append(f"{run.bytes_per_second / 1_000_000:.2g} MB")
    return f"; it may read at most {' and '.join(limits)} a second, as it is set" if limits else ""


def _filled(look: Look, shard_id: str) -> int | None:
    """How many records of the shard a batch may have, where the newest one that was read has as
    many; else None.
    """
    for one in (look.now, look.before):
        plan = None if one.is_spout else one.stored.plan
        for task in () if plan is None else plan.tasks:
            if task.log is None:
                continue
            counts = {each.shard_id: each.count for each in task.log.folded().shards}
            for planned in task.plan.shards:
                if planned.shard_id == shard_id and planned.max_records:
                    is_full = counts.get(shard_id, 0) >= planned.max_records
                    return planned.max_records if is_full else None
    return None


def _read_between_crashes(look: Look, shard_id: str) -> Cause | None:
    """The position has moved, but the process that moved it ends again and again, or has ended."""
    is_in_loop = is_in_a_loop(look, shard_id)
    ends = is_in_loop or look.now.owner_of(shard_id) is None
    if look.phase(shard_id) not in READ_PHASES or not look.has_moved(shard_id) or not ends:
        return None
    besides, lag_ms = unresolved_besides(look, shard_id), look.lag_ms(shard_id)
    behind = f", is {duration(lag_ms)} behind," if lag_ms else ""
    when = "between one end of its process and the next" if is_in_loop else "until just now"
    return Cause(
        kind="read between crashes" if is_in_loop else "read until just now",
        about=shard_id,
        says=f"{'is' if is_in_loop else 'was'} read{behind} {when}{besides.says}",
        advice=besides.advice,
        leads_to=THE_JOB,
    )


def _retention(look: Look, shard_id: str) -> tuple[Advice, ...]:
    """To raise the retention, where unread records expire soon."""
    if look.expires_soon_ms(shard_id) is None or _lapsed_ms(look, shard_id) is not None:
        return ()  # of what may have expired, its cause says so
    return (
        Advice(
            Act.CHANGE,
            "raise the stream's retention first (aws kinesis increase-stream-retention-period): "
            "unread records do not expire meanwhile",
            is_urgent=True,
        ),
    )


def _was_skipped(look: Look, shard_id: str) -> tuple[Advice, ...]:
    """Of a shard that an operator has set forward, and that nobody has read since."""
    move = look.now.stored.move
    if move is None or shard_id not in move.forward or look.now.stored.owners:
        return ()
    return (
        Advice(
            Act.LOOK,
            "see, before the job is started, whether its records were to be skipped",
            ("checkpoint", "history"),
            is_urgent=True,
        ),
    )


def _not_read(look: Look, shard_id: str) -> Cause:
    """The last rule: nothing of the shard itself holds it."""
    if is_at_end(look, shard_id):
        return Cause(
            kind="end to be settled",
            about=shard_id,
            says=f"was read to its end by the batch under way{_stage(look)}",
            leads_to=THE_JOB,
        )
    lag_ms = look.lag_ms(shard_id)
    tip = look.tips.get(shard_id)
    if tip is not None and tip.next_ms is None:
        return Cause(
            kind="end not read",
            about=shard_id,
            says="is closed, and all its records were read; its end was not, for which its "
            "children wait",
            leads_to=THE_JOB,
        )
    if tip is None:
        seen = "" if lag_ms is None else f"; it was last seen complete {duration(lag_ms)} ago"
        says = f"may have records that were not read{seen}"
    else:
        says = f"has records that were not read, the oldest of {duration(lag_ms or 0)} ago"
        lost_ms = look.lost_in_ms(shard_id)
        if lost_ms is not None:
            says += f", which expires in {duration(lost_ms)}"
    besides = unresolved_besides(look, shard_id)
    return Cause(
        kind="not read",
        about=shard_id,
        says=f"{says}{besides.says}",
        advice=(*_retention(look, shard_id), *_was_skipped(look, shard_id), *besides.advice),
        leads_to=THE_JOB,
    )


OF_THE_SHARD: tuple[Callable[[Look, str], Cause | None], ...] = (
    another_stream,
    not_begun,
    _unknown_shard,
    _past,
    _finished,
    _vanished,
    _new,
    _lapsed,
    _waiting,
    not_subscribed,
    answers_none,
    _caught_up,
    _set_back,
    held_by_order,
    _read_between_crashes,
    _behind,
    waits_for_ancestor,
    letters_wait,
    retries,
    keeps_the_end,
    _not_read,
)
