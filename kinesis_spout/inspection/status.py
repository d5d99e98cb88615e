"""The status of an application: one verdict, the sentences on it, and a line for each shard. Pure.

`ApplicationStatus.as_json` is what `status --json` prints; `shards --json` and `checkpoint show
--json` print its `shards`. `docs/reference/status-json.md` defines every member.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import Kind
from kinesis_spout.inspection.explanation import cause_of, explain
from kinesis_spout.inspection.health import OVER, SEVERITY, Health
from kinesis_spout.inspection.wording import (
    are,
    counted,
    moment,
    records,
    shards_named,
    short_shard,
)
from kinesis_spout.service.shard_info import HASH_KEYS
from kinesis_spout.shards.lineage import ShardPhase, open_range_holes
from state.plan import PlanStatus
from state.position import Position
from state.report import ReportStatus
from state.shard_state import Lifecycle
from state.store.ownership import ProcessState
from state.store.runs import DONE, FAILED, FULL, SPARK, STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.inspection.cause import Cause
    from kinesis_spout.inspection.health import Look, ShardLook
    from kinesis_spout.inspection.snapshot import Snapshot
    from kinesis_spout.shards.lineage import ShardLineage
    from state.shard_state import ShardState
    from state.store.view import StoredApplication

_NEVER_MS = 1 << 62
_MAX_EXPLAINED = 100
_MAX_CLAUSE = 240  # characters
_NAMES = {"phase": "state", "position": "readPosition"}


# a shard ------------------------------------------------------------------------------------------
class StreamState(StrEnum):
    """Of a shard without an application, and of hash keys that no open shard covers."""

    OPEN = "open"
    CLOSED = "closed"
    HOLE = "hole"


def _member(name: str) -> str:
    first, *words = name.split("_")
    return _NAMES.get(name, first + "".join(map(str.title, words)))


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True, rename=_member):
    """One shard, or with `HOLE` and without an id, a range of hash keys. The reference page defines
    the fields.
    """

    shard_id: str
    phase: ShardPhase | StreamState | Lifecycle
    health: Health = Health.UNKNOWN
    parents: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    hash_keys: tuple[str, str] | None = None
    hash_percent: float | None = None
    position: str | None = None
    checkpoint: str | None = None
    verified_until: str | None = None
    lag_ms: int | None = None
    lag_measured: bool = False
    expires_in_ms: int | None = None
    unresolved: int = 0
    oldest_ms: int | None = None
    attempts: int = 0
    speed: float | None = None

    @property
    def badness(self) -> tuple[int, bool, int, int, int, str]:
        """Smaller is worse."""
        return (
            -SEVERITY[self.health],
            self.phase in OVER,
            _NEVER_MS if self.expires_in_ms is None else self.expires_in_ms,
            -(self.lag_ms or 0),
            -self.unresolved,
            self.shard_id,
        )


def shards_json(shards: Sequence[ShardStatus]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) | {"shardId": one.shard_id or None} for one in shards]


def shard_status(shard: ShardLook) -> ShardStatus:
    """A shard of an application, as a look shows it."""
    state, lineage, speed = shard.state, shard.now.lineage, shard.speed
    return ShardStatus(
        **(_stored(state, shard.now.now_ms) if state is not None else {})
        | _listed(lineage, shard.shard_id)
        | {
            "phase": shard.phase,
            "health": shard.health,
            "waits_for": lineage.waits_for(shard.shard_id),
            "position": shard.position and str(shard.position),
            "lag_ms": shard.lag_ms,
            "lag_measured": shard.is_measured,
            "expires_in_ms": shard.expires_in_ms,
            "speed": None if speed is None else round(speed, 3),
        }
    )


def stored_shard(state: ShardState, now_ms: int) -> ShardStatus:
    """A shard as ZooKeeper alone shows it."""
    return ShardStatus(**_stored(state, now_ms))


def shards_of_stream(seen: Snapshot) -> list[ShardStatus]:
    """The listed shards and their parents, oldest first, without an application."""
    phases = {
        one.shard_id: StreamState.CLOSED if one.is_closed else StreamState.OPEN
        for one in seen.lineage.listed.values()
    }
    return [
        ShardStatus(**_listed(seen.lineage, one), phase=phases.get(one, ShardPhase.PAST))
        for one in seen.shard_ids
    ]


def holes_of(seen: Snapshot) -> list[ShardStatus]:
    """The holes of an active stream. During a reshard they mean nothing."""
    holes = open_range_holes(seen.listing) if seen.stream.status == "ACTIVE" else []
    return [ShardStatus(shard_id="", phase=StreamState.HOLE, **_keys(one)) for one in holes]


def _listed(lineage: ShardLineage, shard_id: str) -> dict[str, Any]:
    shard = lineage.listed.get(shard_id)
    keys = {} if shard is None else _keys(shard.hash_key_range)
    return {"shard_id": shard_id, "parents": lineage.parents(shard_id), **keys}


def _keys(keys: tuple[int, int]) -> dict[str, Any]:
    """As texts, because most JSON readers cannot hold such numbers."""
    first, last = keys
    percent = round((last - first + 1) * 100 / HASH_KEYS, 4)
    return {"hash_keys": (str(first), str(last)), "hash_percent": percent}


def _stored(state: ShardState, now_ms: int) -> dict[str, Any]:
    failed_ms = [one.first_failure_ms for one in state.unresolved if one.first_failure_ms]
    verified_ms = state.verified_until_ms
    return {
        "shard_id": state.shard_id,
        "phase": state.lifecycle,
        "parents": state.parents,
        "position": str(state.read_position),
        "checkpoint": state.checkpoint_text,
        "verified_until": None if verified_ms is None else str(Position.at_timestamp(verified_ms)),
        "unresolved": state.unresolved_count,
        "oldest_ms": max(0, now_ms - min(failed_ms)) if failed_ms else None,
        "attempts": max((one.attempts for one in state.unresolved), default=0),
    }


# the application ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class ApplicationStatus:
    """A look, and its shards, worst first."""

    look: Look
    shards: tuple[ShardStatus, ...]

    @cached_property
    def live(self) -> tuple[ShardStatus, ...]:
        """The shards that are not over."""
        return tuple(one for one in self.shards if one.phase not in OVER)

    @cached_property
    def unknown(self) -> dict[str, int]:
        """Numbers of shards of which nothing is known: all of them, and those that were asked, but
        are throttled, or did not answer for another reason. 0 where the application has no state.
        """
        look, known = self.look, self.look.now.is_known
        unknown = {one.shard_id for one in self.shards if known and one.health is Health.UNKNOWN}
        return {
            "notAsked": len(unknown),
            "throttled": len(unknown.intersection(look.throttled)),
            "notAnswered": len(unknown.intersection(look.unanswered)),
        }

    @property
    def silent(self) -> int:
        """How many shards were asked and did not answer."""
        return self.unknown["throttled"] + self.unknown["notAnswered"]

    @cached_property
    def verdict(self) -> Health:
        """That of the shards, unless it is fine and the application is paused or does not run."""
        verdict, stored = self._of_the_shards, self.look.now.stored
        if verdict not in {Health.OK, Health.LAGGING}:
            return verdict
        if stored.paused:
            return Health.PAUSED
        return verdict if stored.owners else Health.NOT_RUNNING

    @cached_property
    def _of_the_shards(self) -> Health:
        """Single shards that nobody asked do not make the verdict `unknown`: the others are judged.
        It is unknown where a shard was asked and did not answer, where nothing is known of any
        shard, and where the state belongs to another stream.
        """
        verdict, now = self.look.verdict, self.look.now
        if now.is_of_another_stream:
            return Health.UNKNOWN
        if verdict is not Health.UNKNOWN or not now.is_known or self.silent:
            return verdict
        return Health.UNKNOWN if self.unknown["notAsked"] == len(self.live) else Health.OK

    @cached_property
    def worst(self) -> tuple[ShardStatus, ...]:
        """The shards that are as ill as the verdict says, without those that only wait for others
        of them. First of all those that did not answer.
        """
        health, look = self._of_the_shards, self.look
        alike = [one for one in self.live if one.health is health]
        if health is Health.UNKNOWN:
            asked = {*look.throttled, *look.unanswered}
            return tuple(sorted(alike, key=lambda one: one.shard_id not in asked))
        own = [one for one in alike if look.of(one.shard_id).judged is health]
        return tuple(own or alike)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Why the verdict is what it is: the cause of each of the worst shards, of at most so many;
        first one that is known. Empty where all is well.
        """
        if self.verdict is Health.OK:
            return ()
        kinds = {Health.PAUSED: Kind.PAUSED, Health.NOT_RUNNING: Kind.NOT_RUNNING}
        kind = kinds.get(self.verdict)  # also of an application whose shards are all read
        shards = [one.shard_id for one in self.worst or self.shards[:1]]
        shards = shards[:_MAX_EXPLAINED] or [self.look.now.application]
        if kind is not None and (alone := cause_of(self.look, kind, shards[0])) is not None:
            return (alone,)
        found = (explain(self.look, shard_id).causes[0] for shard_id in shards)
        return tuple(sorted(found, key=lambda one: one.kind is Kind.NOT_VISIBLE))

    @property
    def lag_ms(self) -> int | None:
        """The largest lag of a shard."""
        return max((one.lag_ms for one in self.live if one.lag_ms is not None), default=None)

    def as_json(self) -> dict[str, Any]:
        now, pause = self.look.now, self.look.now.stored.pause
        return {
            "application": now.application,
            "stream": now.stream.name,
            "streamStatus": now.stream.status,
            "retentionMs": now.stream.retention_ms,
            "timeMs": now.now_ms,
            "windowMs": self.look.window_ms,
            "verdict": self.verdict.value,
            "why": verdict_sentence(self),
            "cause": self.causes[0].as_json() if self.causes else None,
            "lagMs": self.lag_ms,
            "unresolved": sum(one.unresolved for one in self.shards),
            "paused": now.stored.paused,
            "pause": pause and {"by": pause.by, "sinceMs": pause.since_ms, "reason": pause.reason},
            "owners": [
                {
                    "process": one.info.pid,
                    "host": one.info.host,
                    "sinceMs": one.info.since_ms,
                    "task": None if one.task is None else str(one.task),
                }
                for one in now.stored.owners
            ],
            "plan": _plan_json(now),
            "losses": [{"timeMs": one.time_ms, "says": one.says} for one in now.losses],
            "health": dict(Counter(one.health.value for one in self.shards)),
            "states": dict(Counter(one.phase.value for one in self.shards)),
            **self.unknown,
            "shards": shards_json(self.shards),
        }


def status_of(look: Look) -> ApplicationStatus:
    """The status, its shards worst first."""
    shards = [shard_status(look.of(shard_id)) for shard_id in look.now.shard_ids]
    return ApplicationStatus(look, tuple(sorted(shards, key=lambda one: one.badness)))


def _plan_json(now: Snapshot) -> dict[str, Any] | None:
    """The plan, and what its batch has done. The report of a tracked batch counts outcomes."""
    plan = now.stored.plan
    if plan is None:
        return None
    logs = [task.log for task in plan.tasks if task.log is not None]
    counts = plan.outcomes if plan.report is ReportStatus.DONE else None
    rows, done, done_ms = sum(log.rows for log in logs), dict[str, int](), None
    if counts is not None:
        done = {"acked": max(0, rows - counts.failed), "failed": counts.failed}
        done["deadLettered"], done_ms = counts.dead_lettered, counts.done_ms or None
    took_s = None if done_ms is None else max(1, done_ms - plan.created_ms) / 1000
    return {
        "planId": plan.plan_id,
        "status": plan.status.value,
        "createdMs": plan.created_ms,
        "previousMs": plan.previous_ms,
        "tasks": len(plan.tasks),
        "tasksBegun": len(logs),
        "tasksSealed": sum(log.sealed for log in logs),
        "records": rows,
        "bytes": sum(log.payload_bytes for log in logs),
        "report": None if plan.report is None else plan.report.value,
        "openings": plan.openings,
        "doneMs": done_ms,
        "outcomes": done or None,
        "perSecond": took_s and {name: round(count / took_s, 3) for name, count in done.items()},
    }


# sentences ----------------------------------------------------------------------------------------
def verdict_sentence(status: ApplicationStatus) -> str:
    """Why the verdict is what it is, then what else is to be known. Of a long clause, which quotes
    an error, the beginning: the explanation has all of it.
    """
    return "; ".join(map(_beginning, _clauses(status)))


def _beginning(clause: str) -> str:
    """The first sentence of a long clause, and no more than fits on a few lines."""
    if len(clause) <= _MAX_CLAUSE:
        return clause
    first = clause.partition(". ")[0]
    return first if len(first) <= _MAX_CLAUSE else f"{first[:_MAX_CLAUSE]} ..."


def _clauses(status: ApplicationStatus) -> Iterator[str]:
    look, verdict, live = status.look, status.verdict, status.live
    shards, causes = counted(len(live), "shard"), status.causes
    alike = [one for one in live if one.health is verdict]
    if verdict is Health.OK:
        if not live:
            yield "all records are read and acked"
        elif all(one.lag_ms == 0 and one.lag_measured for one in live):
            yield f"{shards} {are(len(live))} read up to the newest record"
        else:
            yield f"no shard is more than {duration(look.window_ms)} behind"
        yield from _not_asked(status, shards)
    elif verdict is Health.UNKNOWN and look.now.is_readable and not status.silent:
        yield f"the lag of {shards} is not known"
        yield "Kinesis refused the read" if look.refusal else "no newest record was read"
    elif verdict is Health.UNKNOWN:
        yield causes[0].sentences[0]
        if status.silent and look.now.is_readable:
            yield f"the newest record is not known for {status.silent:,} of {shards}"
    elif verdict is Health.LOSING:
        yield f"unread records of {len(alike):,} of {shards} have expired or may have expired"
    elif verdict is Health.STALLED:
        others = len({one.kind for one in causes}) - 1
        yield causes[0].sentences[0]
        yield f"{counted(len(alike), 'shard')} {are(len(alike))} waiting"
        if all(one.lag_ms == 0 for one in alike):  # so the lag does not show why
            read = f"all records of {are(len(alike), 'the shard', 'these shards')} are read"
            is_open = any(look.of(one.shard_id).is_unsettled for one in alike)
            yield f"{read}, but their outcomes are not stored" if is_open else read
            if causes[0].facts.get("end") == FAILED:
                yield causes[0].sentences[1]
        if others:
            yield f"{are(others, 'there is', 'there are')} {counted(others, 'other cause')}"
        yield from _soon(look, alike)
    elif verdict is Health.LAGGING:
        yield from _lagging(look, status.worst, shards)
        if others := len(alike) - len(status.worst):
            waiting = are(others, "shard is waiting", "shards are waiting")
            yield f"{others:,} other {waiting} for lagging shards"
        yield from _soon(look, alike)
    else:
        said = causes[0].sentences
        if verdict is Health.PAUSED:
            # The last sentence says that resume alone does not help: the causes below say why.
            is_more = "is_running" not in causes[0].facts and len(said) > 1
            yield from said[: len(said) - is_more]
            yield from _besides_the_pause(status)
        else:
            yield from said[:2]
        yield from _unread(status, shards)
    if verdict not in {Health.UNKNOWN, Health.LOSING, Health.STALLED}:
        yield from _unresolved_beside(look, verdict)


def _besides_the_pause(status: ApplicationStatus) -> Iterator[str]:
    """Why the end of the pause alone would not have all shards read, each kind of cause once."""
    found: dict[Kind, str] = {}
    for one in status.live[:_MAX_EXPLAINED]:
        chain = explain(status.look, one.shard_id).chain
        _, *below = [*dropwhile(lambda cause: cause.kind is not Kind.PAUSED, chain)] or chain[:1]
        found |= {cause.kind: cause.sentences[0] for cause in below if cause.kind not in found}
    if not found and not status.look.now.stored.owners:
        found[Kind.NOT_RUNNING] = "no process is running"
    yield from found.values()


def _lagging(look: Look, lagging: Sequence[ShardStatus], shards: str) -> Iterator[str]:
    """How far they are behind, and until when they stand still."""
    count = len(lagging)
    looks = [look.of(one.shard_id) for one in lagging]
    known_ms = [one.lag_ms or 0 for one in lagging if one.lag_measured]
    lag_ms = max(known_ms, default=0)
    if all(one.keeps_up for one in looks):
        said = f"{are(count, 'has', 'have')} records whose retries are overdue"
    elif all(one.lacks_end and one.lag_ms == 0 for one in looks):
        said = f"{are(count)} closed but not read to the end"
    elif all(one.phase is ShardPhase.NEW for one in lagging):
        said = f"{are(count)} not known to the application yet"
    elif lag_ms <= look.window_ms:
        said = f"{are(count)} more than {duration(look.window_ms)} behind"
    else:
        said = f"{are(count, 'is', 'are up to')} {duration(lag_ms)} behind"
    yield f"{count:,} of {shards} {said}"
    due_ms, trigger_ms = look.now.next_trigger_ms, look.now.trigger_ms or 0
    is_outage = any(look.of(one).outage_until_ms is not None for one in look.now.shard_ids)
    waits = trigger_ms > look.window_ms and all(one.waits_for_trigger for one in looks)
    if due_ms is not None and waits and not is_outage:
        at = moment(due_ms, look.now.now_ms)
        yield f"the trigger starts the next batch at about {at}"


def _unread(status: ApplicationStatus, shards: str) -> Iterator[str]:
    """What is unread of an application that is fine, and does not read."""
    look, lagging = status.look, [one for one in status.worst if one.health is Health.LAGGING]
    if lagging and look.waits_for_next_run and not look.now.stored.paused:
        found = [cause_of(look, Kind.NOT_RUNNING, one.shard_id) for one in lagging]
        left = sum(one is not None and "left_by" in one.facts for one in found)
        if left:
            yield f"the last run left unread records of {left:,} of {shards}"
        if wait := len(lagging) - left:
            yield f"{wait:,} of {shards} {are(wait)} waiting for the next run"
    elif lagging:
        yield from _lagging(look, lagging, shards)
        yield from _soon(look, lagging)
    else:
        yield from list(_not_asked(status, shards)) or ["all records are read"]


def _not_asked(status: ApplicationStatus, shards: str) -> Iterator[str]:
    """That nobody has asked the service for some of the shards' newest records."""
    if count := status.unknown["notAsked"]:
        yield f"the newest record was not read for {count:,} of {shards}"


def _unresolved_beside(look: Look, verdict: Health) -> Iterator[str]:
    """How many records are unresolved. They hold back no more than checkpoints, so the verdict may
    be fine. Beside another one, only those that have failed at a retry, too.
    """
    held = [one for state in look.now.states.values() for one in state.unresolved]
    if verdict is not Health.OK:
        held = [one for one in held if one.attempts > 1 and one.first_failure_ms is not None]
    if held:
        count, most = sum(one.count for one in held), max(one.attempts for one in held)
        after = f" after {'up to ' if count > 1 else ''}{most:,} attempts" if most > 1 else ""
        yield f"{records(count)} {are(count)} unresolved{after}"


def _soon(look: Look, alike: Sequence[ShardStatus]) -> Iterator[str]:
    """That unread records expire soon."""
    known_ms = [look.of(one.shard_id).expires_soon_ms for one in alike]
    if soon_ms := [one for one in known_ms if one is not None]:
        yield f"unread records expire in {duration(min(soon_ms))}"


def facts_of(status: ApplicationStatus) -> dict[str, str]:
    """What stands below the verdict on the screen and on the page, by its name."""
    look = status.look
    paused = "yes: the application reads nothing until you run kinesis-spout resume"
    facts = {
        "owner": owners_sentence(look),
        "paused": paused if look.now.stored.paused else None,
        "batch": plan_sentence(look),
        "moved": move_sentence(look),
        "lost": loss_sentence(look),
        "records": unresolved_sentence(status),
        "waiting": waits_sentence(look),
        "newest records": None if look.refusal is None else f"not known: {look.refusal}",
    }
    return {name: said for name, said in facts.items() if said is not None}


def owners_sentence(look: Look) -> str:
    """Who owns the application, since when; or how the last run ended, as far as it reported."""
    stored, now_ms, run = look.now.stored, look.now.now_ms, look.now.last_log.newest
    # The session of a process that has reported its end is open for a moment more.
    owners = [
        one
        for one in stored.owners
        if (its := look.now.log_of(one).newest) is None or its.end is None
    ]
    if not owners:
        ended = ""
        if run is not None and run.end is None:
            kept = {
                ProcessState.STOPPED: "is suspended",
                ProcessState.RUNS: "has lost its ZooKeeper session",
            }
            if fate := kept.get(look.now.process_states.get(run.owner, ProcessState.GONE)):
                who = f"pid {run.owner.pid} on {run.owner.host}"
                return (
                    f"no process owns the application: the process of the last run ({who}) {fate}"
                )
            ended = "; the last run did not report how it ended"
        elif run is not None and run.end is not None:
            at = moment(run.end.time_ms, now_ms)
            how = {
                DONE: f"; the last run finished at {at}",
                STOPPED: f"; the last run was stopped cleanly at {at}",
                FAILED: f"; the last run failed at {at}",
            }
            ended = how.get(run.end.kind, f"; the last run ended at {at}")
        return f"no process is running{ended}"
    oldest_ms = min(one.info.since_ms for one in owners)
    since = f"since {moment(oldest_ms, now_ms)} ({duration(max(0, now_ms - oldest_ms))})"
    first, total = owners[0], stored.total_tasks or 1
    if total == 1:
        run = look.now.log_of(first).newest
        kind = "" if run is None else f" (a {'Spark job' if run.kind == SPARK else 'spout'})"
        return f"process {first.info.pid} on {first.info.host}{kind}, {since}"
    there = {one.task.index for one in owners if one.task is not None}
    missing = [str(index) for index in range(total) if index not in there]
    hosts = sorted({one.info.host for one in owners})
    lacks = (
        f"; {are(len(missing), 'task', 'tasks')} {', '.join(missing)} (counted from 0) "
        f"{are(len(missing))} missing"
    )
    oldest = "the oldest " if len(there) > 1 else ""
    return (
        f"{len(there)} of {total} spout tasks, on "
        f"{', '.join(hosts[:3])}{' ...' if len(hosts) > 3 else ''}, {oldest}{since}"
        f"{lacks if missing else ''}"
    )


def plan_sentence(look: Look) -> str | None:
    """The newest plan; None where there is none, or spouts own the application."""
    plan = look.now.stored.plan
    if plan is None or look.now.is_spout:
        return None
    made = f"planned {duration(max(0, look.now.now_ms - plan.created_ms))} ago"
    if plan.status is PlanStatus.SETTLED:
        return f"{plan.plan_id} is done, {made}"
    sealed = sum(task.log is not None and task.log.sealed for task in plan.tasks)
    # ZooKeeper keeps the session of a process that is gone for a while.
    states = [look.now.process_states.get(one.info) for one in look.now.stored.owners]
    is_running = any(one is not ProcessState.GONE for one in states)
    batch = cause_of(look, Kind.BATCH, "") if is_running else None
    stage = (
        "the process ended before the outcomes of the batch were stored"
        if batch is None
        else batch.sentences[0]
    )
    read = f"{sealed:,} of {len(plan.tasks):,} tasks have read all their records"
    return f"{plan.plan_id} is {plan.status.value}, {made}: {read}; {stage}"


def unresolved_sentence(status: ApplicationStatus) -> str:
    """How many records are not acked, and for how long."""
    now = status.look.now
    if not now.is_readable:
        return "not known: the application has no state for this stream"
    if not now.states:
        return "no record has been read yet"
    said = list(_unresolved(status))
    if not said and now.open_plan is not None:
        return "no record has failed; the outcomes of the current batch are not stored yet"
    if not said and all(state.checkpoint is None for state in now.states.values()):
        return "no record has been acked yet"
    return "; ".join(said) or "every record that was read is acked"


def _unresolved(status: ApplicationStatus) -> Iterator[str]:
    now = status.look.now
    plan_logs = () if now.open_plan is None else [task.log for task in now.open_plan.tasks]
    in_batch = sum(log.rows for log in plan_logs if log is not None)
    out = _may_be_out(status.look)
    if count := sum(one.unresolved for one in status.shards):
        held = (one for state in now.states.values() for one in state.unresolved)
        waiting = sum(one.count for one in held if one.blocked)
        waits = f"{waiting:,} {are(waiting)} waiting"
        them = are(count - waiting, "it", "them")
        parted = f" ({count - waiting:,} failed, {waits} behind {them})"
        yield f"{records(count)} {are(count)} unresolved{parted if 0 < waiting < count else ''}"
        oldest_ms = [one.oldest_ms for one in status.shards if one.oldest_ms is not None]
        if oldest_ms:
            first = "it" if count == 1 else "the oldest"
            yield f"{first} first failed {duration(max(oldest_ms))} ago"
    elif in_batch or out:
        yield "no record has failed"
    if in_batch:
        have = are(in_batch, "has", "have")
        yield f"{records(in_batch)} of the current batch {have} no stored outcome yet"
    elif out:
        yield "the number of records in flight is not known"


def _may_be_out(look: Look) -> bool:
    """Whether a spout's program may have records: a spout stores nothing of those that are in their
    first delivery, behind all that is acked.
    """
    holds = (look.now.log_of(owner).hold for owner in look.now.stored.owners)
    if any(hold is not None and hold.kind == FULL for hold in holds):
        return True
    for shard in map(look.of, look.now.shard_ids if look.now.is_spout else ()):
        if shard.is_read and shard.owner is not None:
            tip = shard.tip
            if not shard.keeps_up if tip is None else tip.next_ms is not None:
                return True
    return False


def waits_sentence(look: Look, most: int = 3) -> str | None:
    """Which shards wait for which; None where none does."""
    said = []
    for holder, waiting in look.now.held_up.items():
        is_order = look.now.held_by.get(waiting[0]) == holder
        waits = f"{shards_named(waiting, 3)} {are(len(waiting))} waiting until shard"
        waits = f"{waits} {short_shard(holder)}"
        said.append(
            f"{waits} has no failed record left" if is_order else f"{waits} is read to its end"
        )
    more = [f"{len(said) - most:,} more shards block other shards"] if len(said) > most else []
    return "; ".join([*said[:most], *more]) or None


def move_sentence(look: Look) -> str | None:
    """The shards that an operator has set back and that have not caught up, and those of which
    records were skipped within the retention; None where there are none.
    """
    move, shard_ids = look.now.stored.move, look.now.shard_ids
    if move is None:
        return None
    at = f"at {moment(move.time_ms, look.now.now_ms)} by `kinesis-spout checkpoint {move.cause}`"
    said = []
    if behind := [one for one in shard_ids if look.of(one).set_back is not None]:
        was, have = are(len(behind), "was", "were"), are(len(behind), "has", "have")
        said.append(f"{shards_named(behind)} {was} moved back {at} and {have} not caught up since")
    skipped = [one for one in shard_ids if one in move.forward]
    if skipped and move.time_ms >= look.horizon_ms:
        was = are(len(skipped), "was", "were")
        said.append(
            f"{shards_named(skipped)} {was} moved forward {at}, so the records in between are "
            "skipped (to read the skipped records, run kinesis-spout checkpoint rewind with an "
            "earlier time)"
        )
    return "; ".join(said) or None


def loss_sentence(look: Look) -> str | None:
    """The losses of records after which the job continued, the newest first; None where none is
    known.
    """
    now_ms = look.now.now_ms
    said = (f"reported at {moment(one.time_ms, now_ms)}: {one.says}" for one in look.now.losses)
    return "; ".join(said) or None


def unrest(before: StoredApplication, now: StoredApplication) -> str | None:
    """What is under way; None where nothing is: every plan is settled, every record is answered,
    and nothing was stored between the two looks. Without an owner nothing is under way.

    A spout stores nothing of records that are in their first delivery at the end of what was read;
    their acks show as a change.
    """
    if not now.owners:
        return None
    is_spout = now.total_tasks is not None
    plan = now.plan
    if plan is not None and not is_spout and plan.status is not PlanStatus.SETTLED:
        return f"the outcomes of batch {plan.plan_id} are not stored yet"
    pending = sum(
        one.count
        for state in now.states.values()
        for one in state.unresolved
        if is_spout and one.first_failure_ms is None
    )
    if pending:
        return f"the spout's program has not acked or failed {records(pending)} yet"
    was = None if before.plan is None else before.plan.plan_id
    if before.states != now.states or was != (None if plan is None else plan.plan_id):
        return "outcomes of records were stored a moment ago"
    return None
