"""The rules that say what holds a shard itself. Pure. `OF_THE_SHARD` is their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import (
    LOG,
    NOTHING,
    THE_JOB,
    THE_NEXT_RULE,
    Act,
    Advice,
    Cause,
    has_reader,
    is_at_end,
)
from kinesis_spout.inspection.health import READ_PHASES, SEVERITY
from kinesis_spout.inspection.retry_rules import (
    held_by_order,
    retries,
    unresolved_besides,
    waits_for_ancestor,
)
from kinesis_spout.inspection.wording import moment, short_shard
from kinesis_spout.shards.lineage import ShardPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.inspection.health import Look


def _another_stream(look: Look, shard_id: str) -> Cause | None:
    if not look.now.is_of_another_stream:
        return None
    return Cause(
        kind="another stream",
        about=shard_id,
        says="the stored state belongs to a stream that had this name before, and a job refuses it",
        advice=(
            Advice(Act.RUN, "remove that state with `kinesis-spout reset`", "reset"),
            Advice(Act.CHANGE, "give the job another application name"),
        ),
    )


def _not_begun(look: Look, shard_id: str) -> Cause | None:
    if look.now.is_known:
        return None
    if look.now.stored.owners:
        return Cause(
            kind="just started",
            about=shard_id,
            says="the application has an owner, which has not pinned its start yet",
            advice=(Advice(Act.WAIT, "wait for its first listing of the shards"), LOG),
        )
    return Cause(
        kind="application unknown",
        about=shard_id,
        says=f"ZooKeeper holds nothing of application {look.now.application} on stream "
        f"{look.now.stream.name}: it never ran there, or under another name, --zookeeper-root or "
        "ZooKeeper",
        advice=(
            Advice(Act.LOOK, "compare application, stream, ZooKeeper and root with the job's"),
            Advice(Act.START, "start the job"),
        ),
    )


def _unknown_shard(look: Look, shard_id: str) -> Cause | None:
    if shard_id in look.now.known_shards:
        return None
    return Cause(
        kind="unknown shard",
        about=shard_id,
        says="the stream does not list it, and the application has no state of it",
        advice=(Advice(Act.LOOK, "see the shards with `kinesis-spout shards`"),),
    )


def _past(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.PAST:
        return None
    return Cause(
        kind="past",
        about=shard_id,
        says="it expired before the application began, and is only named as a parent; it holds "
        "nothing back",
        advice=(NOTHING,),
    )


def _finished(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.FINISHED:
        return None
    return Cause(
        kind="finished",
        about=shard_id,
        says="it was read to its end, and every record of it is acked",
        advice=(NOTHING,),
    )


def _vanished(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.VANISHED:
        return None
    return Cause(
        kind="vanished",
        about=shard_id,
        says="the stream does not list it any more, though it was not read to its end: what was "
        "unread has expired (or the listing is late, right after a split or merge)",
        advice=(
            Advice(Act.LOOK, "look again in a minute"),
            Advice(
                Act.CHANGE,
                "if it stays so, the records are lost: the job stops with that error, or goes on "
                "without them where failOnDataLoss is false",
            ),
        ),
        leads_to=None if look.now.stored.owners and not look.now.stored.paused else THE_JOB,
    )


def _new(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) is not ShardPhase.NEW or look.now.lineage.waits_for(shard_id):
        return None
    says = "the stream lists it, and the application has no state of it yet"
    if not has_reader(look, shard_id):
        return Cause(kind="not tracked", about=shard_id, says=says, leads_to=THE_JOB)
    return Cause(
        kind="not tracked",
        about=shard_id,
        says=f"{says}: the job learns of it with its next listing",
        advice=(
            Advice(Act.WAIT, "wait for the next listing (shardRefreshInterval)"),
            Advice(
                Act.LOOK, "if it stays so, see whether the job is told to read some shards only"
            ),
        ),
    )


def _lapsed(look: Look, shard_id: str) -> Cause | None:
    progress = look.now.progress(shard_id)
    if (
        progress is None
        or progress.verified_ms is None
        or progress.position.is_end
        or progress.verified_ms >= look.horizon_ms
    ):
        return None
    return Cause(
        kind="lapsed",
        about=shard_id,
        says=f"was last seen complete {duration(look.now.now_ms - progress.verified_ms)} ago, and "
        f"the stream keeps records for {duration(look.now.stream.retention_ms)}: records may have "
        "expired unread",
        advice=(
            Advice(
                Act.CHANGE,
                "raise the stream's retention while there is something to save",
                is_urgent=True,
            ),
            Advice(
                Act.CHANGE,
                "the job stops with that error; failOnDataLoss=false goes on with what is left",
            ),
        ),
        leads_to=None if look.keeps_up(shard_id) else THE_NEXT_RULE,
    )


def _waiting(look: Look, shard_id: str) -> Cause | None:
    parents = look.now.lineage.waits_for(shard_id)
    if not parents or look.phase(shard_id) not in {ShardPhase.WAITING, ShardPhase.NEW}:
        return None
    names = " and ".join(map(short_shard, parents))
    return Cause(
        kind="waits for parents",
        about=shard_id,
        says=f"waits for {'shard' if len(parents) == 1 else 'shards'} {names}, which it continues "
        "and which must be read to the end first",
        leads_to=max(parents, key=lambda parent: SEVERITY[look.health(parent)]),
    )


def _caught_up(look: Look, shard_id: str) -> Cause | None:
    if look.phase(shard_id) not in READ_PHASES or not look.keeps_up(shard_id):
        return None
    if look.is_unsettled(shard_id):
        return Cause(
            kind="not settled",
            about=shard_id,
            says="was read up to its newest record, by a batch that is not settled",
            leads_to=THE_JOB,
        )
    tip = look.tips.get(shard_id)
    is_idle = tip is not None and tip.next_ms is None
    says = "is read as fast as records come"
    if is_idle:
        says = "is read up to its newest record, and waits for the next one"
        if not look.now.stored.owners:
            says = "was read up to its newest record; no process owns the application now"
    held = look.now.states[shard_id].unresolved_count
    return Cause(
        kind="idle" if is_idle else "healthy",
        about=shard_id,
        says=says,
        advice=(NOTHING,),
        leads_to=THE_NEXT_RULE if held else None,
    )


def _behind(look: Look, shard_id: str) -> Cause | None:
    if (
        look.phase(shard_id) not in READ_PHASES
        or not look.has_moved(shard_id)
        or look.keeps_up(shard_id)
    ):
        return None
    besides = unresolved_besides(look, shard_id)
    lag_ms, speed = look.lag_ms(shard_id), look.speed(shard_id)
    behind = "" if lag_ms is None else f" {duration(lag_ms)}"
    if speed is not None and speed > 1 and lag_ms is not None:
        until_ms = look.now.now_ms + round(lag_ms / (speed - 1))
        return Cause(
            kind="catching up",
            about=shard_id,
            says=f"is read, is{behind} behind, and catches up{besides.says}",
            advice=(
                Advice(
                    Act.WAIT,
                    f"wait; at this pace it is at the tip at {moment(until_ms, look.now.now_ms)}",
                    until_ms=until_ms,
                ),
                *besides.advice,
            ),
        )
    lost_ms = look.lost_in_ms(shard_id)
    lost = "" if lost_ms is None else f"; at this pace records expire in {duration(lost_ms)}"
    return Cause(
        kind="falling behind",
        about=shard_id,
        says=f"is read, is{behind} behind, and does not catch up{lost}{besides.says}",
        advice=(
            Advice(
                Act.CHANGE,
                "give the job more cores, or its function less to do; split the shard if it is "
                "read at 2 MB a second; see the limits maxRecordsPerTrigger and readsPerSecond",
            ),
            *_retention(look, shard_id),
            *besides.advice,
        ),
    )


def _retention(look: Look, shard_id: str) -> tuple[Advice, ...]:
    """To raise the retention, where less time is left than has passed since the oldest unread
    record came: what mends the root may take as long as it has taken so far.
    """
    lost_ms, lag_ms = look.lost_in_ms(shard_id), look.lag_ms(shard_id)
    if lost_ms is None or lag_ms is None or lost_ms > lag_ms:
        return ()
    return (
        Advice(
            Act.CHANGE,
            "raise the stream's retention first: unread records do not expire meanwhile",
            is_urgent=True,
        ),
    )


def _not_read(look: Look, shard_id: str) -> Cause:
    """The last rule: nothing of the shard itself holds it."""
    if is_at_end(look, shard_id):
        return Cause(
            kind="end to be settled",
            about=shard_id,
            says="was read to its end by the batch under way",
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
        advice=(*_retention(look, shard_id), *besides.advice),
        leads_to=THE_JOB,
    )


OF_THE_SHARD: tuple[Callable[[Look, str], Cause | None], ...] = (
    _another_stream,
    _not_begun,
    _unknown_shard,
    _past,
    _finished,
    _vanished,
    _new,
    _lapsed,
    _waiting,
    _caught_up,
    held_by_order,
    _behind,
    waits_for_ancestor,
    retries,
    _not_read,
)
