"""The health of each shard, judged over a window, and one verdict on all. Pure.

The window is between two snapshots. It is the only measure of patience, so there is no threshold:

    ok       all that was in the shard when the window began was read when it ended, and so was the
             end of a closed shard; an idle shard is ok
    lagging  it was not, but the position has moved, or the current batch takes no longer than
             the one before it, or the application is paused, or its last run has read all that it
             was to read (AvailableNow, `--until`) and the next one is not overdue
    stalled  it was not, and the position stands still; or it was, by a batch that takes longer than
             the one before it, or that no process works on; or a record that failed before the
             window began, and failed again at a retry, holds it to keep the order; or no process
             reads it, as the last run has ended with an error; or it has records whose dead
             letters are refused; or a spout's program answers nothing; or a spout's reads have
             failed since before the window, and they are refused, or nobody can tell how far it is
    losing   records have expired unread, or may have: the shard is not listed any more and its end
             was not read, or nothing was verified for longer than the stream keeps its records
    unknown  nobody asked the service for the shard's tip, and the state does not tell; or the
             application has no state at all

A shard that waits for its parents is as healthy as they are. The verdict is the worst of all
shards; `unknown` is worse than `ok` alone. Where that is `ok` or `lagging`, the verdict on an
application that is paused is `paused`, and on one that no process runs `not running`.

`TipAnswer` is what one GetRecords says, at the position of the last snapshot: whether there is
another record, when it arrived, and how far the position is behind the tip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from kinesis_spout.errors import (
    AccessDeniedError,
    CredentialsError,
    KeyAccessError,
    StaleCredentialsError,
)
from kinesis_spout.inspection.snapshot import NOTHING_REPORTED
from kinesis_spout.shards.lineage import ShardPhase, task_of
from state.position import TRIM_HORIZON
from state.report import OnFailure, ReportStatus
from state.retry_policy import RetryPolicy
from state.store.ownership import TaskShare
from state.store.runs import FAILED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.inspection.snapshot import Snapshot
    from state.shard_state import UnresolvedRecord
    from state.store.history import OperatorMove
    from state.store.runs import RefusedLetters, RunLog

_REFUSALS = frozenset(
    one.__name__
    for one in (AccessDeniedError, KeyAccessError, CredentialsError, StaleCredentialsError)
)
OVER = frozenset({ShardPhase.FINISHED, ShardPhase.PAST})
READ_PHASES = frozenset({ShardPhase.READABLE, ShardPhase.DRAINING})


class Health(StrEnum):
    """As the module's docstring defines it. In the order of `SEVERITY`. `PAUSED` and `NOT_RUNNING`
    are verdicts on an application alone, never the health of a shard.
    """

    OK = "ok"
    UNKNOWN = "unknown"
    PAUSED = "paused"
    NOT_RUNNING = "not running"
    LAGGING = "lagging"
    STALLED = "stalled"
    LOSING = "losing"


SEVERITY = {health: place for place, health in enumerate(Health)}
# Of `kinesis-spout status`. Cron jobs rely on 0 for an application that is paused, or that does not
# run because its last run has read all.
EXIT_CODES = {one: int(one in {"unknown", "stalled", "losing"}) for one in Health}


def worst(*healths: Health) -> Health:
    return max(healths, key=SEVERITY.__getitem__, default=Health.OK)


@dataclass(frozen=True, slots=True)
class TipAnswer:
    """What the service said of a shard at the reader's position.

    - `asked_ms`: the service's time.
    - `next_ms`: when the oldest record after the position arrived, as far as the answer shows; None
      at the tip, or at the end of a closed shard.
    """

    asked_ms: int
    next_ms: int | None


@dataclass(frozen=True, kw_only=True)
class Look:
    """Two snapshots, at the beginning and at the end of the window, and the answers on tips.

    With one snapshot (`before` is `now`), nothing is known of movement: the window is zero.

    - `tips_before`: answers at the positions of the first snapshot, of shards that were behind.
    - `throttled`: the shards that did not answer because their reads are used up.
    - `unanswered`: the errors of shards that did not answer for another reason.
    - `refusal`: why no shard was asked; None where those that decide were.
    """

    before: Snapshot
    now: Snapshot
    tips: Mapping[str, TipAnswer] = field(default_factory=dict)
    tips_before: Mapping[str, TipAnswer] = field(default_factory=dict)
    throttled: Collection[str] = frozenset()
    unanswered: Mapping[str, KinesisError] = field(default_factory=dict)
    refusal: KinesisError | None = None

    @property
    def window_ms(self) -> int:
        return max(0, self.now.now_ms - self.before.now_ms)

    @property
    def horizon_ms(self) -> int:
        """Records that arrived before this time have expired."""
        return self.now.now_ms - self.now.stream.retention_ms

    @property
    def expired_until_ms(self) -> int:
        """The same time, or a later one: of what arrived before it, more may have expired while the
        retention was shorter.
        """
        known = self.now.stored.identity
        return max(self.horizon_ms, 0 if known is None else known.expired_ms)

    def of(self, shard_id: str) -> ShardLook:
        """One shard, also one that nobody knows."""
        if shard_id not in self._shards:
            self._shards[shard_id] = ShardLook(self, shard_id)
        return self._shards[shard_id]

    @cached_property
    def _shards(self) -> dict[str, ShardLook]:
        return {}

    @property
    def has_one_batch(self) -> bool:
        """Whether one batch was under way all through the window."""
        was, plan = self.before.open_plan, self.now.open_plan
        return was is not None and plan is not None and was.plan_id == plan.plan_id

    @cached_property
    def left_shards(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """By what a newest run was limited to (`--shard`), the other shards that are not over."""
        newest = (log.newest for log in self.now.stored.runs.values())
        live = [one for one in self.now.shard_ids if self.of(one).phase not in OVER]
        return {
            run.shards: tuple(one for one in live if one not in run.shards)
            for run in newest
            if run is not None and run.shards
        }

    @cached_property
    def verdict(self) -> Health:
        """The worst of all shards; unknown, too, where no shard is listed."""
        return worst(*self.healths.values()) if self.now.is_known else Health.UNKNOWN

    @cached_property
    def healths(self) -> dict[str, Health]:
        if not self.now.is_readable:
            return dict.fromkeys(self.now.shard_ids, Health.UNKNOWN)
        found: dict[str, Health] = {}
        for shard_id in self.now.shard_ids:  # parents before their children
            parents = (found.get(one, Health.OK) for one in self.now.lineage.waits_for(shard_id))
            found[shard_id] = worst(self.of(shard_id).judged, *parents)
        for held, holder in self.now.held_by.items():
            # What stands still for its sake is the holder's matter, though it is read itself.
            if holder in found and held in found:
                found[holder] = worst(found[holder], found[held])
        return found

    @property
    def waits_for_next_run(self) -> bool:
        """Whether the last run has ended as it should, and the next one is not known to be overdue:
        where the starts of at least three runs are known, by the longest time between them.
        """
        now, run = self.now, self.now.last_log.newest
        if now.ended_in_order is None or run is None:
            return False
        left_ms = run.owner.since_ms + self.window_ms - now.now_ms
        return now.run_interval_ms is None or left_ms + now.run_interval_ms >= 0

    @property
    def has_time(self) -> bool:
        """Whether a position may stand still for longer than the window: nobody has moved it yet
        in a window of zero, the application is paused, its next run is not due yet, or its batch
        takes no longer than the one before it or than its trigger's interval.
        """
        if not self.window_ms or self.now.stored.paused or self.waits_for_next_run:
            return True
        plan = self.now.stored.plan
        if plan is None or not self.now.stored.owners or self.now.is_spout:
            return False
        age_ms = self.now.now_ms - plan.created_ms
        usual_ms = 0 if plan.previous_ms is None else plan.created_ms - plan.previous_ms
        # A batch is settled when Spark asks for the next one, which is when its trigger is due.
        due_ms = self.window_ms + (self.now.trigger_ms or 0)
        return age_ms <= max(usual_ms, due_ms)


class ShardLook:
    """One shard of a look, and the process that is to read it.

    - `state`: as it is stored, None for a shard without; `was`: before the window.
    - `planned`: what the open plan reads of it. `result`: what its task has published so far.
    - `position`, `verified_ms`: as the snapshot has them.
    - `owner`: the process that is to read it; None if none runs. It may be one of several.
    - `log`: what that reports; empty if none runs. `run`: its newest run.
    """

    def __init__(self, look: Look, shard_id: str) -> None:
        self.look, self.now, self.shard_id = look, look.now, shard_id
        self.state = self.now.states.get(shard_id)
        self.was = look.before.states.get(shard_id)
        self.unresolved = () if self.state is None else self.state.unresolved
        self.planned = self.now.planned.get(shard_id)
        self.result = None if self.planned is None else self.planned.result
        self.tip = look.tips.get(shard_id)
        self.position = self.now.position(shard_id)
        self.verified_ms = self.now.verified_ms(shard_id)
        self.owner = self.now.owner_of(shard_id)
        self.log = NOTHING_REPORTED if self.owner is None else self.now.log_of(self.owner)
        self.run = self.log.newest

    @property
    def unresolved_count(self) -> int:
        return 0 if self.state is None else self.state.unresolved_count

    @property
    def share(self) -> TaskShare | None:
        """The task that reads the shard, or is to read it; None where one process has all of it, or
        nobody has taken it.
        """
        stored = self.now.stored
        total = stored.total_tasks
        if self.owner is None and not stored.owners:
            last = next(
                (share for share, log in stored.runs.items() if log is self.now.last_log), None
            )
            total = None if last is None else last.total
        if total is None or total == 1:
            return None
        return TaskShare(task_of(self.shard_id, total), total)

    @property
    def reader_log(self) -> RunLog:
        """What the process reports that reads the shard, or that is to read it and does not run."""
        if self.owner is not None:
            return self.log
        if self.share is None:
            return self.now.last_log
        return self.now.stored.runs.get(self.share, NOTHING_REPORTED)

    @property
    def retry_policy(self) -> RetryPolicy | None:
        """That of a tracked query, or of the spout that reads the shard, as it reports."""
        if self.now.stored.policy is not None and not self.now.is_spout:
            return self.now.stored.policy.retry
        if self.run is None or self.run.max_attempts is None:
            return None
        limit = max(0, self.run.max_attempts - 1)
        return RetryPolicy(retry_limit=limit, max_age_ms=self.run.max_age_ms)

    def is_given_up(self, record: UnresolvedRecord) -> bool:
        """Whether the record is not tried again."""
        policy, first_ms = self.retry_policy, record.first_counted_failure_ms
        return record.rejected or (
            policy is not None and policy.exhausted(record.attempts, first_ms, self.now.now_ms)
        )

    @property
    def refused_letters(self) -> RefusedLetters | None:
        """The dead letters that the shard's process cannot write, where the shard may have some."""
        refused = self.log.refused_letters
        return refused if refused and any(map(self.is_given_up, self.unresolved)) else None

    @cached_property
    def phase(self) -> ShardPhase:
        """Its phase, the open plan's reads included."""
        phase = self.now.lineage.phase(self.shard_id)
        # Until the plan is settled.
        return ShardPhase.DRAINED if phase in READ_PHASES and self.is_at_end else phase

    @property
    def is_read(self) -> bool:
        """Whether the shard is in a phase in which its records are read."""
        return self.phase in READ_PHASES

    @property
    def is_at_end(self) -> bool:
        """Whether the shard was read to its end, by the current batch at the latest."""
        return self.position is not None and self.position.is_end

    @property
    def outage_until_ms(self) -> int | None:
        """When a Spark job tries again, if it takes its last batch for an outage, and the shard is
        not in the current batch; None otherwise.
        """
        plan = self.now.stored.plan
        if plan is None or self.now.is_spout or self.shard_id in self.now.planned:
            return None
        is_out = plan.outages > 0
        if plan.report is ReportStatus.DONE and plan.outcomes is not None:
            is_out = plan.outcomes.outage
        due_ms = [one.due_ms for state in self.now.states.values() for one in state.unresolved]
        return min(due_ms) if is_out and due_ms else None

    @property
    def frontier_ms(self) -> int | None:
        """The arrival time of the oldest unread record, or a time before it; None if there is none,
        or it is not known.
        """
        if self.tip is not None and self.is_measured:
            return self.tip.next_ms
        position, verified_ms = self.position, self.verified_ms
        if position is None or position.is_end or verified_ms is None:
            return None
        if self.is_never_read:
            return verified_ms if self.has_lapsed else None
        return min(verified_ms, position.timestamp_ms or verified_ms)

    @property
    def is_never_read(self) -> bool:
        """Whether nothing of the shard was read since a start at its oldest record: that may have
        arrived long before the shard was first seen.
        """
        if self.state is None or self.state.at_tip or self.position != TRIM_HORIZON:
            return False
        return self.result is None or not self.result.at_tip

    @property
    def is_measured(self) -> bool:
        """Whether the service has said how far the reader is behind. That nothing is left to read
        says nothing of a shard whose records may have expired unread.
        """
        return self.tip is not None and (self.tip.next_ms is not None or not self.has_lapsed)

    @property
    def lag_ms(self) -> int | None:
        """How far the reader is behind, in time of arrival; 0 at the tip. An upper bound unless the
        service was asked. None where it is not known, or at the end.
        """
        frontier_ms = self.frontier_ms
        if frontier_ms is not None:
            return max(0, self.now.now_ms - frontier_ms)
        return 0 if self.is_measured else None

    @property
    def has_moved(self) -> bool:
        """Whether the shard was read on during the window."""
        before, now = self.look.before.position(self.shard_id), self.position
        return before is not None and now is not None and before != now

    @property
    def set_back(self) -> OperatorMove | None:
        """The operator's move that has set the shard back, until it is read up to that time."""
        move, frontier_ms = self.now.stored.move, self.frontier_ms or self.verified_ms
        if move is None or frontier_ms is None or frontier_ms >= move.time_ms:
            return None
        is_back = self.shard_id in move.back and self.is_read
        return move if is_back and not self.keeps_up else None

    @property
    def is_unsettled(self) -> bool:
        """Whether one batch, not settled, has had rows of the shard since the window began."""
        rows = 0 if self.result is None else self.result.count + self.result.retry_rows
        return self.look.has_one_batch and rows > 0

    def _is_end_unsettled(self) -> bool:
        """The same of the shard's end: its children wait for that."""
        state, before = self.state, self.look.before.position(self.shard_id)
        was_read = before is not None and before.is_end
        is_stored = state is None or state.end_was_read
        return self.look.has_one_batch and was_read and not is_stored

    @property
    def speed(self) -> float | None:
        """How fast the position moves through the stream's time: 1 keeps pace with the clock, less
        falls behind; never negative. None where it is not known, as where the position has moved
        and the times of arrival go back, and where there was nothing to read.
        """
        has_nothing = self.keeps_up and not self.has_moved
        return None if has_nothing or not self.is_read else self._pace()

    def _pace(self) -> float | None:
        """None, too, where an earlier record arrived later, or the position was set back."""
        look, tip, took_ms = self.look, self.tip, self.look.window_ms
        was = look.tips_before.get(self.shard_id)
        next_ms = None if tip is None else tip.next_ms
        before_ms, now_ms = look.before.verified_ms(self.shard_id), self.verified_ms
        if was is not None and tip is not None and was.next_ms and next_ms:
            if not self.has_moved:
                return 0.0  # the answers may differ, as the service tells its time in seconds
            took_ms = tip.asked_ms - was.asked_ms
            before_ms, now_ms, next_ms = was.next_ms, next_ms, None
        if took_ms <= 0 or before_ms is None or now_ms is None:
            return None
        pace = (now_ms - before_ms) / took_ms
        if next_ms is not None and self.has_moved:
            # The times in the state may be older than the position, as they are not stored with
            # each, or later, as that of a start at the oldest record.
            reached = (next_ms - before_ms) / took_ms
            return None if pace < 0 or reached < 0 or pace < 1 < reached else pace
        return None if pace < 0 else pace

    @property
    def expires_in_ms(self) -> int | None:
        """In what time the oldest unread record expires at this pace; 0 if it may have expired.
        None for a shard that keeps its pace, or of which nothing is unread.

        A position that gains on the clock reaches every record in time, unless it expires before
        that: so the speed counts, not the position alone.
        """
        if self.phase is ShardPhase.VANISHED:
            return 0
        frontier_ms = self.frontier_ms
        if frontier_ms is None or self.health is Health.OK:
            return None
        left_ms = max(0, frontier_ms - self.look.horizon_ms)
        # A time of verification that moves alone takes no record out of the shard.
        pace = self._pace() or 0.0 if self.has_moved else 0.0
        if left_ms and pace >= 1:
            return None
        return round(left_ms / (1 - pace)) if left_ms else 0

    @property
    def expires_soon_ms(self) -> int | None:
        """The same, where that is less than has passed since it arrived: the fix may take as long
        as it has taken so far. None otherwise.
        """
        lost_ms, lag_ms = self.expires_in_ms, self.lag_ms
        return None if lost_ms is None or lag_ms is None or lost_ms > lag_ms else lost_ms

    @property
    def keeps_up(self) -> bool | None:
        """Whether all that was in the shard when the window began was read by its end. None where
        nobody asked the service, and the state does not tell.
        """
        tip, before_ms = self.tip, self.look.before.now_ms
        if tip is not None and tip.next_ms is not None:
            return tip.next_ms >= before_ms
        if self.lacks_end:
            return None if tip is None else False
        if tip is not None:
            return True
        is_late = self.verified_ms is None or self.verified_ms < before_ms
        return None if is_late or not self.look.window_ms else True

    @property
    def lacks_end(self) -> bool:
        """Whether the shard was closed all through the window, and its end is not read: its
        children wait for that, though no record of it may be left.
        """
        closed = ShardPhase.DRAINING
        return self.phase is closed and self.look.before.lineage.phase(self.shard_id) is closed

    # judgement ------------------------------------------------------------------------------------
    @property
    def health(self) -> Health:
        return self.look.healths.get(self.shard_id, Health.OK)

    @property
    def judged(self) -> Health:
        """As it stands, and how its process does, without what it has of the shards that it waits
        for, or that wait for it. A pause is meant to have nobody read it.
        """
        run, is_over = self.reader_log.newest, self.phase in OVER
        has_failed = run is not None and run.end is not None and run.end.kind == FAILED
        is_down = has_failed and not is_over and not self.now.stored.paused
        is_down = is_down or self.refused_letters is not None
        is_down = is_down or self._gets_no_records()
        return worst(self._judged_by_position(), Health.STALLED if is_down else Health.OK)

    def _gets_no_records(self) -> bool:
        """Whether the shard's process reports that its reads have failed since before the window.
        Its error may be that of another shard, unless its credentials are refused.
        """
        fails = self.log.failing_reads
        if fails is None or fails.since_ms >= self.look.before.now_ms or not self.is_read:
            return False
        is_known = fails.error in _REFUSALS or self.keeps_up is None
        return is_known and not self.now.stored.paused and not self.has_moved

    def _judged_by_position(self) -> Health:
        phase, was = self.phase, self.look.before.lineage.phase(self.shard_id)
        if phase is ShardPhase.VANISHED:
            return Health.LOSING if was is phase else Health.UNKNOWN
        if phase is ShardPhase.DRAINED:
            hangs = self._is_end_unsettled() and not self.look.has_time
            return Health.STALLED if hangs else self._judged_retries()
        if phase is ShardPhase.NEW:
            waits = self.now.lineage.waits_for(self.shard_id)
            is_late = was is phase and self.look.window_ms and not waits
            return Health.LAGGING if is_late else Health.OK
        is_read = phase in READ_PHASES
        if (is_read or phase is ShardPhase.WAITING) and self.has_lapsed:
            return Health.LOSING
        if not is_read:
            return Health.OK
        if self.reader_log.no_answers is not None:
            return Health.STALLED
        return worst(self._judged_position(), self._judged_retries())

    @property
    def has_lapsed(self) -> bool:
        """Whether records may have expired unread: the shard was last seen complete longer ago than
        the retention. No answer of the service shows what is gone.
        """
        verified_ms = None if self.is_at_end else self.verified_ms
        return verified_ms is not None and verified_ms < self.look.expired_until_ms

    def _judged_position(self) -> Health:
        keeps_up = self.keeps_up
        if keeps_up:
            hangs = self.is_unsettled and not self.look.has_time
            return Health.STALLED if hangs else Health.OK
        if self.has_moved:
            return Health.LAGGING
        if keeps_up is None:
            return Health.UNKNOWN
        has_time = self.look.has_time or self.waits_for_trigger
        return Health.LAGGING if has_time and not self._is_held() else Health.STALLED

    def _is_held(self) -> bool:
        """Whether a record that fails again has held the shard all through the window: its order is
        kept, so batches move other shards alone.
        """
        now, policy = self.now, self.now.stored.policy
        if policy is None or now.stored.paused or self.owner is None:
            return False
        is_own = policy.on_failure is OnFailure.BLOCK_SHARD
        state = now.states.get(now.held_by.get(self.shard_id, self.shard_id if is_own else ""))
        if state is None or not state.unresolved or not self.look.window_ms:
            return False
        first = min(state.unresolved, key=lambda one: one.first)
        failed_ms = first.first_failure_ms
        return first.attempts > 1 and failed_ms is not None and failed_ms < self.look.before.now_ms

    @property
    def waits_for_trigger(self) -> bool:
        """Whether what is unread came after the last time at which the query's trigger was due, or
        that was just now. A trigger is due at the multiples of its interval.
        """
        trigger_ms, frontier_ms = self.now.trigger_ms, self.frontier_ms
        now_ms, window_ms, plan = self.now.now_ms, self.look.window_ms, self.now.open_plan
        # One that fired while its batch was under way fires again behind that batch.
        if not trigger_ms or (
            plan is not None and now_ms - plan.created_ms > trigger_ms + window_ms
        ):
            return False
        due_ms = now_ms // trigger_ms * trigger_ms
        is_just_due = due_ms >= self.look.before.now_ms
        return is_just_due or (frontier_ms is not None and frontier_ms >= due_ms - window_ms)

    def _judged_retries(self) -> Health:
        """Records that were due before the window began, and that nobody has tried since."""
        overdue = any(0 < one.due_ms < self.look.before.now_ms for one in self.unresolved)
        is_untried = self.was is not None and self.unresolved == self.was.unresolved
        if not overdue or not is_untried or not self.look.window_ms:
            return Health.OK
        # An owner that runs has its reasons: order, an outage, the batch under way.
        has_time = self.owner is not None or self.look.has_time
        return Health.LAGGING if has_time else Health.STALLED


def worth_asking(look: Look, most: int) -> list[str]:
    """The shards whose tip decides on their health, at most so many: first those that stand still,
    and of these the ones that were verified longest ago.
    """
    urgent = sorted(
        (one.has_moved, one.verified_ms or 0, one.shard_id)
        for one in map(look.of, look.now.shard_ids)
        if one.is_read and one.keeps_up is None
    )
    return [one for *_, one in urgent[:most]]
