"""The status of an application: one line for each shard, and what stands above them. Pure.

`--json` prints `as_json`, one object:

    application, stream, streamStatus, retentionMs, paused
    pause             null, or by, sinceMs, reason, each null where it is not known
    timeMs            the service's time of the look; windowMs: how long the window was
    verdict           ok, unknown, paused, not running, lagging, stalled or losing
                      (`kinesis_spout.inspection.health`); unknown where the application has no
                      state here, nothing is known of any shard, or one that was asked did not
                      answer
    cause             why, as in `explain --json`: that of the worst shard; null where all is well
    owners            process, host, sinceMs, and task where several share the application
    plan              null, or planId, status, createdMs, tasks, tasksBegun, tasksSealed, report
                      (null, open, done), openings
    health, states    numbers of shards, by health and by state
    notAsked          number of shards on which nothing could be said without asking the service;
                      0 where the application has no state
    throttled         number of these that were asked and are throttled
    notAnswered       number of these that were asked, and did not answer for another reason
    shards            a list, worst first:
        shardId, health, waitsFor
        state         as in `kinesis-spout shards`
        readPosition  where the next record is read, what the open plan has read included
        checkpoint    sequence number up to which everything is acked, or SHARD_END
        lagMs, lagMeasured   lag in time of arrival; measured by the service, or an upper bound
        expiresInMs   when the oldest unread record expires if it goes on like this; 0: it may have
        unresolved    number of records that are not acked
        oldestMs      how long ago the oldest of them first failed
        attempts      the most deliveries that one of them had
        speed         stream time read in the window, as a multiple of the clock; null where
                      there was nothing to read
    A number that is not known is null.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import Kind
from kinesis_spout.inspection.explanation import cause_of, explain
from kinesis_spout.inspection.health import OVER, READ_PHASES, SEVERITY, Health
from kinesis_spout.inspection.wording import (
    kind_told,
    moment,
    move_told,
    records,
    shards_named,
    short_shard,
)
from kinesis_spout.shards.lineage import ShardPhase
from state.plan import PlanStatus
from state.store.runs import DONE, FULL, STOPPED
from state.store.runs import FAILED as FAILED_RUN

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kinesis_spout.inspection.cause import Cause
    from kinesis_spout.inspection.health import Look
    from state.store.pause import Pause

_NEVER_MS = 1 << 62
_MAX_EXPLAINED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard. The module's docstring defines the fields."""

    shard_id: str
    health: Health
    phase: ShardPhase
    position: str | None
    checkpoint: str | None
    waits_for: tuple[str, ...]
    lag_ms: int | None
    lag_measured: bool
    expires_in_ms: int | None
    unresolved: int
    oldest_ms: int | None
    attempts: int
    speed: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "shardId": self.shard_id,
            "health": self.health.value,
            "state": self.phase.value,
            "readPosition": self.position,
            "checkpoint": self.checkpoint,
            "waitsFor": list(self.waits_for),
            "lagMs": self.lag_ms,
            "lagMeasured": self.lag_measured,
            "expiresInMs": self.expires_in_ms,
            "unresolved": self.unresolved,
            "oldestMs": self.oldest_ms,
            "attempts": self.attempts,
            "speed": None if self.speed is None else round(self.speed, 3),
        }


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """A look, and its shards, worst first."""

    look: Look
    shards: tuple[ShardStatus, ...]

    @property
    def not_asked(self) -> int:
        """How many shards nothing could be said about without asking the service."""
        if not self.look.now.is_known:
            return 0
        return sum(one.health is Health.UNKNOWN for one in self.shards)

    @property
    def not_told(self) -> int:
        """How many of them were asked, and did not tell because their reads are used up."""
        return self._unknown_among(self.look.throttled)

    @property
    def not_answered(self) -> int:
        """How many of them were asked, and did not tell for another reason."""
        return self._unknown_among(self.look.unanswered)

    def _unknown_among(self, shard_ids: Collection[str]) -> int:
        if not self.look.now.is_known:
            return 0
        unknown = (one for one in self.shards if one.health is Health.UNKNOWN)
        return sum(one.shard_id in shard_ids for one in unknown)

    @property
    def live(self) -> tuple[ShardStatus, ...]:
        """The shards that are not over."""
        return tuple(one for one in self.shards if one.phase not in OVER)

    @property
    def verdict(self) -> Health:
        """That of the shards, unless it is fine and the application is paused or does not run."""
        verdict, stored = self._of_the_shards, self.look.now.stored
        if verdict not in {Health.OK, Health.LAGGING}:
            return verdict
        if stored.paused:
            return Health.PAUSED
        return verdict if stored.owners else Health.NOT_RUNNING

    @property
    def _of_the_shards(self) -> Health:
        """`unknown` of single shards that nobody asked is no more than that: the others are judged.
        Where a shard was asked and did not answer, nothing is known of any, or the state is that of
        another stream, so is the verdict.
        """
        verdict, now = self.look.verdict, self.look.now
        if now.is_of_another_stream:
            return Health.UNKNOWN
        is_certain = verdict is not Health.UNKNOWN or not now.is_known
        if is_certain or self.not_told or self.not_answered:
            return verdict
        return Health.UNKNOWN if self.not_asked == len(self.live) else Health.OK

    @property
    def worst(self) -> tuple[ShardStatus, ...]:
        """The shards that are as ill as the verdict says, without those that only wait for others
        of them.
        """
        health, asked = self._of_the_shards, {*self.look.throttled, *self.look.unanswered}
        alike = tuple(one for one in self.live if one.health is health)
        if health is Health.UNKNOWN:
            return tuple(sorted(alike, key=lambda one: one.shard_id not in asked))
        return tuple(one for one in alike if self.look.own_health(one.shard_id) is health) or alike

    @property
    def cause(self) -> Cause | None:
        """Why the verdict is what it is; None where all is well."""
        return next(iter(self.causes), None)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The cause of each of the worst shards, of at most so many; first one that is known."""
        kinds = {Health.PAUSED: Kind.PAUSED, Health.NOT_RUNNING: Kind.NOT_RUNNING}
        kind = kinds.get(self.verdict)  # also of an application whose shards are all read
        shards = [one.shard_id for one in self.worst or self.shards[:1]]
        shards = shards[:_MAX_EXPLAINED] or [self.look.now.application]
        if self.verdict is Health.OK:
            return ()
        if kind is not None and (alone := cause_of(self.look, kind, shards[0])) is not None:
            return (alone,)
        found = (explain(self.look, shard_id).causes[0] for shard_id in shards)
        return tuple(sorted(found, key=lambda one: one.kind is Kind.NOT_VISIBLE))

    def as_json(self) -> dict[str, Any]:
        now = self.look.now
        return {
            "application": now.application,
            "stream": now.stream.name,
            "streamStatus": now.stream.status,
            "retentionMs": now.stream.retention_ms,
            "paused": now.stored.paused,
            "pause": _pause_json(now.stored.pause),
            "timeMs": now.now_ms,
            "windowMs": self.look.window_ms,
            "verdict": self.verdict.value,
            "cause": None if (cause := self.cause) is None else cause.as_json(),
            "owners": [
                {
                    "process": one.info.pid,
                    "host": one.info.host,
                    "sinceMs": one.info.since_ms,
                    "task": None if one.task is None else str(one.task),
                }
                for one in now.stored.owners
            ],
            "plan": _plan_json(self.look),
            "health": dict(Counter(one.health.value for one in self.shards)),
            "states": dict(Counter(one.phase.value for one in self.shards)),
            "notAsked": self.not_asked,
            "throttled": self.not_told,
            "notAnswered": self.not_answered,
            "shards": [one.as_json() for one in self.shards],
        }


def status_of(look: Look) -> ApplicationStatus:
    """The status, its shards worst first."""
    shards = [_shard_status(look, shard_id) for shard_id in look.now.shard_ids]
    return ApplicationStatus(look, tuple(sorted(shards, key=_badness)))


def verdict_sentence(status: ApplicationStatus) -> str:
    """Why the verdict is what it is, in one clause."""
    look, verdict = status.look, status.verdict
    total = len(status.live)
    shards = f"{total:,} shard{'' if total == 1 else 's'}"
    if verdict is Health.UNKNOWN:
        return _unknown(status, shards)
    if verdict is Health.OK:
        return _all_well(status, shards)
    if verdict in {Health.PAUSED, Health.NOT_RUNNING} and status.cause is not None:
        told = status.cause.sentences
        told = (told[1:] or told) if verdict is Health.PAUSED else told[:2]
        return f"{'; '.join(told)}{_left(status, shards)}"
    alike = [one for one in status.live if one.health is verdict]
    if verdict is Health.LAGGING:
        own, others = status.worst, len(alike) - len(status.worst)
        why, soon = _waits_for_trigger(look, own), _soon(look, alike)
        more = (
            f"; {others:,} other{' waits' if others == 1 else 's wait'} for them" if others else ""
        )
        return f"{why}{len(own):,} of {shards} {_behind(look, own)}{more}{soon}"
    if verdict is Health.STALLED:
        return f"{_cause(status, len(alike))}{_soon(look, alike)}"
    return f"records of {len(alike):,} of {shards} have expired unread, or may have"


def _at(look: Look, time_ms: int) -> str:
    return moment(time_ms, look.now.now_ms)


def _left(status: ApplicationStatus, shards: str) -> str:
    """What is unread of an application that is fine, and does not read."""
    lagging = [one for one in status.worst if one.health is Health.LAGGING]
    if not lagging:
        return "" if status.not_asked else "; all records are read"
    if status.look.waits_for_next_run and not status.look.now.stored.paused:
        waits = "waits" if len(lagging) == 1 else "wait"
        return f"; {len(lagging):,} of {shards} {waits} for the next run"
    soon = _soon(status.look, lagging)
    return f"; {len(lagging):,} of {shards} {_behind(status.look, lagging)}{soon}"


def _cause(status: ApplicationStatus, waiting: int) -> str:
    """The cause, how many shards wait, and how many other kinds of cause there are."""
    causes = status.causes
    others = len({one.kind for one in causes}) - 1
    wait = f"{waiting:,} shard{' waits' if waiting == 1 else 's wait'}"
    more = f"; {others} other cause{'' if others == 1 else 's'}" if others else ""
    return f"{causes[0].sentences[0]}; {wait}{more}"


def _waits_for_trigger(look: Look, lagging: Sequence[ShardStatus]) -> str:
    """That they stand still until the next batch; empty where that is not known of all."""
    due_ms, trigger_ms = look.now.next_trigger_ms, look.now.trigger_ms
    is_long = trigger_ms is not None and trigger_ms > look.window_ms
    waits = all(look.waits_for_trigger(one.shard_id) for one in lagging)
    is_outage = any(look.outage_until_ms(one) is not None for one in look.now.shard_ids)
    if due_ms is None or not is_long or not waits or is_outage:
        return ""
    return f"the next batch is due at about {_at(look, due_ms)}, by its trigger: "


def _soon(look: Look, alike: Sequence[ShardStatus]) -> str:
    """A clause about unread records that expire soon."""
    known_ms = [look.expires_soon_ms(one.shard_id) for one in alike]
    soonest_ms = min((one for one in known_ms if one is not None), default=None)
    return "" if soonest_ms is None else f"; unread records expire in {duration(soonest_ms)}"


def _behind(look: Look, lagging: Sequence[ShardStatus]) -> str:
    """How far, as far as it is known. Others keep up, and have retries that nobody makes."""
    is_one = len(lagging) == 1
    are = "is" if is_one else "are"
    if all(look.keeps_up(one.shard_id) for one in lagging):
        return f"{'has' if is_one else 'have'} records whose retries are overdue"
    if all(look.lacks_end(one.shard_id) and one.lag_ms == 0 for one in lagging):
        return f"{are} closed and not read to the end"
    if all(one.phase is ShardPhase.NEW for one in lagging):
        return f"{are} not known to the application yet"
    known_ms = [one.lag_ms or 0 for one in lagging if one.lag_measured]
    lag_ms = max(known_ms, default=0)
    if lag_ms <= look.window_ms:
        return f"{are} more than {duration(look.window_ms)} behind"
    return f"{are} {'' if is_one else 'up to '}{duration(lag_ms)} behind"


def _unknown(status: ApplicationStatus, shards: str) -> str:
    cause, silent = status.cause, status.not_told + status.not_answered
    if cause is None or (status.look.now.is_readable and not silent):
        why = "none told its tip"
        if status.look.refused:
            why = "the service refused to tell their tips"
        return f"nothing is known of {shards}: {why}"
    more = f"; {silent:,} of {shards} did not tell {'its tip' if silent == 1 else 'their tips'}"
    return f"{cause.sentences[0]}{more if silent else ''}"


def _all_well(status: ApplicationStatus, shards: str) -> str:
    if not status.live:
        return "every shard was read to its end, and every record is acked"
    said = f"all that came was read within {duration(status.look.window_ms)}"
    if status.not_asked:
        verb = "was" if status.not_asked == 1 else "were"
        said += f"; {status.not_asked:,} of {shards} {verb} not asked"
    return said


def owners_sentence(look: Look) -> str:
    """Who owns the application, since when."""
    stored = look.now.stored
    now_ms = look.now.now_ms
    if not stored.owners:
        return f"none: no process is running{_last_run(look)}"
    first = stored.owners[0]
    if stored.total_tasks in {None, 1}:
        run = look.now.log_of(first).newest
        kind = "" if run is None else f" ({kind_told(run)})"
        since = _since(first.info.since_ms, now_ms)
        return f"process {first.info.pid} on {first.info.host}{kind}, {since}"
    total = stored.total_tasks or 1
    there = {one.task.index for one in stored.owners if one.task is not None}
    missing = [str(index) for index in range(total) if index not in there]
    oldest_ms = min(one.info.since_ms for one in stored.owners)
    hosts = sorted({one.info.host for one in stored.owners})
    lacks = f"; task{'' if len(missing) == 1 else 's'} {', '.join(missing)} missing"
    return (
        f"{len(there)} of {total} spout tasks, on {', '.join(hosts[:3])}"
        f"{' ...' if len(hosts) > 3 else ''}, the oldest {_since(oldest_ms, now_ms)}"
        f"{lacks if missing else ''}"
    )


def _last_run(look: Look) -> str:
    """How the last run ended, as it told; empty where none has told of itself."""
    run = look.now.last_log.newest
    if run is None:
        return ""
    if run.end is None:
        return "; the last run ended without a message"
    how = {
        DONE: "ended in order",
        STOPPED: "was stopped cleanly",
        FAILED_RUN: "failed",
    }.get(run.end.kind, "ended")
    return f"; the last run {how} at {moment(run.end.time_ms, look.now.now_ms)}"


def _since(since_ms: int, now_ms: int) -> str:
    return f"since {moment(since_ms, now_ms)} ({duration(max(0, now_ms - since_ms))})"


def plan_sentence(look: Look) -> str | None:
    """The newest plan; None where there is none, or spouts own the application."""
    plan = look.now.stored.plan
    if plan is None or look.now.is_spout:
        return None
    age = duration(max(0, look.now.now_ms - plan.created_ms))
    if plan.status is PlanStatus.SETTLED:
        return f"{plan.plan_id} settled, made {age} ago"
    sealed = sum(task.log is not None and task.log.sealed for task in plan.tasks)
    stage = cause_of(look, Kind.BATCH, "")
    told = "it was not settled before its process ended"
    if look.now.is_running and stage is not None:
        told = stage.sentences[0]
    read = f"{sealed:,} of {len(plan.tasks):,} tasks have read all"
    return f"{plan.plan_id} {plan.status.value}, made {age} ago: {read}; {told}"


def unresolved_sentence(status: ApplicationStatus) -> str:
    """How many records are not acked, and for how long."""
    now = status.look.now
    if not now.is_readable:
        return "nothing is known of them: the application has no state of this stream"
    if not now.states:
        return "none was read yet"
    count = sum(one.unresolved for one in status.shards)
    oldest = max(
        (one.oldest_ms for one in status.shards if one.oldest_ms is not None), default=None
    )
    since = "" if oldest is None else f", the oldest failed first {duration(oldest)} ago"
    in_batch = _unsettled(status.look)
    batch = f"; {records(in_batch)} of the batch under way are not settled" if in_batch else ""
    out = _out(status.look)
    if count:
        also = f"; {out}" if out else ""
        return f"{records(count)} not acked{_parted(status, count)}{since}{batch}{also}"
    if in_batch:
        verb = "is" if in_batch == 1 else "are"
        return f"no failed one; {records(in_batch)} of the batch under way {verb} not acked yet"
    if out:
        return f"no failed one; {out}"
    return "every record that was read is acked"


def _out(look: Look) -> str:
    """What a spout's program has, as far as is known: a spout stores nothing of records that are in
    their first delivery, behind all that is acked. Empty where there are none.
    """
    holds = (look.now.log_of(owner).hold for owner in look.now.stored.owners)
    is_full = any(hold is not None and hold.kind == FULL for hold in holds)
    may_be = look.now.is_spout and any(_may_be_out(look, one) for one in look.now.shard_ids)
    if not is_full and not may_be:
        return ""
    return "those that the program has now are not stored"


def _may_be_out(look: Look, shard_id: str) -> bool:
    """Whether a spout reads the shard, and was not seen to have no record of it left."""
    if look.phase(shard_id) not in READ_PHASES or look.now.owner_of(shard_id) is None:
        return False
    tip = look.tips.get(shard_id)
    return tip.next_ms is not None if tip is not None else not look.keeps_up(shard_id)


def _parted(status: ApplicationStatus, count: int) -> str:
    """How many of them failed, where the others only wait behind those."""
    held = [one for state in status.look.now.states.values() for one in state.unresolved]
    waiting = sum(one.count for one in held if one.blocked)
    if not waiting or waiting == count:
        return ""
    return f" ({count - waiting:,} failed, {waiting:,} wait behind them)"


def _unsettled(look: Look) -> int:
    """How many records the open plan has read."""
    plan = look.now.open_plan
    logs = () if plan is None else (task.log for task in plan.tasks)
    return sum(0 if log is None else log.rows for log in logs)


def waits_sentence(look: Look, most: int = 3) -> str | None:
    """Which shards wait for which; None where none does."""
    said = []
    for holder, waiting in look.now.held_up.items():
        verb = "waits" if len(waiting) == 1 else "wait"
        why = "to be read to its end"
        if look.now.held_by.get(waiting[0]) == holder:
            why = "to have no failed record left"
        said.append(f"{shards_named(waiting, 3)} {verb} for shard {short_shard(holder)} {why}")
    more = f"; {len(said) - most:,} more are waited for" if len(said) > most else ""
    return f"{'; '.join(said[:most])}{more}" if said else None


def move_sentence(look: Look) -> str | None:
    """What an operator has set back and has not caught up since, and what was skipped within the
    retention; None where nothing is.
    """
    move, now_ms = look.now.stored.move, look.now.now_ms
    if move is None:
        return None
    said = []
    if behind := [one for one in look.now.shard_ids if look.set_back(one) is not None]:
        verb, have = ("was", "has") if len(behind) == 1 else ("were", "have")
        told = move_told(move, now_ms)
        said.append(f"{shards_named(behind)} {verb} {told}, and {have} not caught up since")
    skipped = [one for one in look.now.shard_ids if one in move.forward]
    if skipped and move.time_ms >= look.horizon_ms:
        verb = "was" if len(skipped) == 1 else "were"
        told = move_told(move, now_ms, "forward")
        said.append(
            f"{shards_named(skipped)} {verb} {told}: what lay between was skipped (checkpoint "
            "rewind --to a time before that reads it, while it is kept)"
        )
    return "; ".join(said) or None


def _pause_json(pause: Pause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    return {"by": pause.by, "sinceMs": pause.since_ms, "reason": pause.reason}


def _plan_json(look: Look) -> dict[str, Any] | None:
    plan = look.now.stored.plan
    if plan is None:
        return None
    logs = [task.log for task in plan.tasks if task.log is not None]
    return {
        "planId": plan.plan_id,
        "status": plan.status.value,
        "createdMs": plan.created_ms,
        "tasks": len(plan.tasks),
        "tasksBegun": len(logs),
        "tasksSealed": sum(log.sealed for log in logs),
        "report": None if plan.report is None else plan.report.value,
        "openings": plan.openings,
    }


def _shard_status(look: Look, shard_id: str) -> ShardStatus:
    state, progress = look.now.states.get(shard_id), look.now.progress(shard_id)
    oldest_ms = look.now.oldest_failure_ms(shard_id)
    return ShardStatus(
        shard_id=shard_id,
        health=look.health(shard_id),
        phase=look.phase(shard_id),
        position=None if progress is None else str(progress.position),
        checkpoint=None if state is None else state.checkpoint_text,
        waits_for=look.now.lineage.waits_for(shard_id),
        lag_ms=look.lag_ms(shard_id),
        lag_measured=look.is_measured(shard_id),
        expires_in_ms=look.expires_in_ms(shard_id),
        unresolved=0 if state is None else state.unresolved_count,
        oldest_ms=None if oldest_ms is None else max(0, look.now.now_ms - oldest_ms),
        attempts=0 if state is None else max((one.attempts for one in state.unresolved), default=0),
        speed=look.speed(shard_id),
    )


def _badness(one: ShardStatus) -> tuple[int, bool, int, int, int, str]:
    """Smaller is worse."""
    return (
        -SEVERITY[one.health],
        one.phase in OVER,
        _NEVER_MS if one.expires_in_ms is None else one.expires_in_ms,
        -(one.lag_ms or 0),
        -one.unresolved,
        one.shard_id,
    )
