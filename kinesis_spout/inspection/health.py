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
from kinesis_spout.shards.lineage import ShardPhase
from state.position import TRIM_HORIZON
from state.report import OnFailure, ReportStatus
from state.store.runs import FAILED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesis_spout.errors import KinesisError
    from kinesis_spout.inspection.snapshot import Snapshot
    from state.store.history import OperatorMove
    from state.store.runs import RunLog

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

    # one shard ------------------------------------------------------------------------------------
    def phase(self, shard_id: str) -> ShardPhase:
        """The shard's phase, the open plan's reads included."""
        return self._phases.get(shard_id, ShardPhase.PAST)

    @cached_property
    def _phases(self) -> dict[str, ShardPhase]:
        found = {one: self.now.lineage.phase(one) for one in self.now.shard_ids}
        for shard_id, phase in found.items():
            if phase in READ_PHASES and self.is_at_end(shard_id):  # until the plan is settled
                found[shard_id] = ShardPhase.DRAINED
        return found

    def is_read(self, shard_id: str) -> bool:
        """Whether the shard is in a phase in which its records are read."""
        return self.phase(shard_id) in READ_PHASES

    def is_at_end(self, shard_id: str) -> bool:
        """Whether the shard was read to its end, by the current batch at the latest."""
        position = self.now.position(shard_id)
        return position is not None and position.is_end

    def outage_until_ms(self, shard_id: str) -> int | None:
        """When a Spark job tries again, if it takes its last batch for an outage, and the shard is
        not in the current batch; None otherwise.
        """
        plan = self.now.stored.plan
        if plan is None or self.now.is_spout or shard_id in self.now.planned:
            return None
        is_out = plan.outages > 0
        if plan.report is ReportStatus.DONE and plan.outcomes is not None:
            is_out = plan.outcomes.outage
        due_ms = [one.due_ms for state in self.now.states.values() for one in state.unresolved]
        return min(due_ms) if is_out and due_ms else None

    def frontier_ms(self, shard_id: str) -> int | None:
        """The arrival time of the oldest unread record, or a time before it; None if there is none,
        or it is not known.
        """
        tip = self.tips.get(shard_id)
        if tip is not None and self.is_measured(shard_id):
            return tip.next_ms
        position, verified_ms = self.now.position(shard_id), self.now.verified_ms(shard_id)
        if position is None or position.is_end or verified_ms is None:
            return None
        if self.is_never_read(shard_id):
            return verified_ms if self.has_lapsed(shard_id) else None
        return min(verified_ms, position.timestamp_ms or verified_ms)

    def is_never_read(self, shard_id: str) -> bool:
        """Whether nothing of the shard was read since a start at its oldest record: that may have
        arrived long before the shard was first seen.
        """
        state, planned = self.now.states.get(shard_id), self.now.planned.get(shard_id)
        if state is None or state.at_tip or self.now.position(shard_id) != TRIM_HORIZON:
            return False
        return planned is None or planned.result is None or not planned.result.at_tip

    def is_measured(self, shard_id: str) -> bool:
        """Whether the service has said how far the reader is behind. That nothing is left to read
        says nothing of a shard whose records may have expired unread.
        """
        tip = self.tips.get(shard_id)
        return tip is not None and (tip.next_ms is not None or not self.has_lapsed(shard_id))

    def lag_ms(self, shard_id: str) -> int | None:
        """How far the reader is behind, in time of arrival; 0 at the tip. An upper bound unless the
        service was asked. None where it is not known, or at the end.
        """
        frontier_ms = self.frontier_ms(shard_id)
        if frontier_ms is not None:
            return max(0, self.now.now_ms - frontier_ms)
        return 0 if self.is_measured(shard_id) else None

    def has_moved(self, shard_id: str) -> bool:
        """Whether the shard was read on during the window."""
        before, now = self.before.position(shard_id), self.now.position(shard_id)
        return before is not None and now is not None and before != now

    def no_answers_for(self, shard_id: str) -> RunLog | None:
        """What the shard's process reports, or did last, if its program answers no record."""
        log = self.now.reader_log(shard_id)
        return log if self.is_read(shard_id) and log.no_answers is not None else None

    def set_back(self, shard_id: str) -> OperatorMove | None:
        """The operator's move that has set the shard back, until it is read up to that time."""
        move, verified_ms = self.now.stored.move, self.now.verified_ms(shard_id)
        frontier_ms = self.frontier_ms(shard_id) or verified_ms
        if move is None or frontier_ms is None or frontier_ms >= move.time_ms:
            return None
        is_back = shard_id in move.back and self.is_read(shard_id)
        return move if is_back and not self.keeps_up(shard_id) else None

    def is_unsettled(self, shard_id: str) -> bool:
        """Whether one batch, not settled, has had rows of the shard since the window began."""
        planned = self.now.planned.get(shard_id)
        result = None if planned is None else planned.result
        return self._has_one_batch and result is not None and result.count + result.retry_rows > 0

    def _is_end_unsettled(self, shard_id: str) -> bool:
        """The same of the shard's end: its children wait for that."""
        state, before = self.now.states.get(shard_id), self.before.position(shard_id)
        was_read = before is not None and before.is_end
        return self._has_one_batch and was_read and state is not None and not state.end_was_read

    @property
    def _has_one_batch(self) -> bool:
        """Whether one batch was under way all through the window."""
        was, plan = self.before.open_plan, self.now.open_plan
        return was is not None and plan is not None and was.plan_id == plan.plan_id

    def speed(self, shard_id: str) -> float | None:
        """How fast the position moves through the stream's time: 1 keeps pace with the clock, less
        falls behind; never negative. None where it is not known, as where the position has moved
        and the times of arrival go back, and where there was nothing to read.
        """
        has_nothing = self.keeps_up(shard_id) and not self.has_moved(shard_id)
        return None if has_nothing or not self.is_read(shard_id) else self._pace(shard_id)

    def _pace(self, shard_id: str) -> float | None:
        """None, too, where an earlier record arrived later, or the position was set back."""
        was, tip, took_ms = self.tips_before.get(shard_id), self.tips.get(shard_id), self.window_ms
        next_ms = None if tip is None else tip.next_ms
        before_ms, now_ms = self.before.verified_ms(shard_id), self.now.verified_ms(shard_id)
        if was is not None and tip is not None and was.next_ms and next_ms:
            took_ms = tip.asked_ms - was.asked_ms
            before_ms, now_ms, next_ms = was.next_ms, next_ms, None
        if took_ms <= 0 or before_ms is None or now_ms is None:
            return None
        pace = (now_ms - before_ms) / took_ms
        if next_ms is not None and self.has_moved(shard_id):
            # The times in the state may be older than the position, as they are not stored with
            # each, or later, as that of a start at the oldest record.
            reached = (next_ms - before_ms) / took_ms
            return None if pace < 0 or reached < 0 or pace < 1 < reached else pace
        return None if pace < 0 else pace

    def expires_in_ms(self, shard_id: str) -> int | None:
        """In what time the oldest unread record expires at this pace; 0 if it may have expired.
        None for a shard that keeps its pace, or of which nothing is unread.

        A position that gains on the clock reaches every record in time, unless it expires before
        that: so the speed counts, not the position alone.
        """
        if self.phase(shard_id) is ShardPhase.VANISHED:
            return 0
        frontier_ms = self.frontier_ms(shard_id)
        if frontier_ms is None or self.health(shard_id) is Health.OK:
            return None
        left_ms = max(0, frontier_ms - self.horizon_ms)
        # A time of verification that moves alone takes no record out of the shard.
        pace = self._pace(shard_id) or 0.0 if self.has_moved(shard_id) else 0.0
        if left_ms and pace >= 1:
            return None
        return round(left_ms / (1 - pace)) if left_ms else 0

    def expires_soon_ms(self, shard_id: str) -> int | None:
        """The same, where that is less than has passed since it arrived: the fix may take as long
        as it has taken so far. None otherwise.
        """
        lost_ms, lag_ms = self.expires_in_ms(shard_id), self.lag_ms(shard_id)
        return None if lost_ms is None or lag_ms is None or lost_ms > lag_ms else lost_ms

    def keeps_up(self, shard_id: str) -> bool | None:
        """Whether all that was in the shard when the window began was read by its end. None where
        nobody asked the service, and the state does not tell.
        """
        tip, verified_ms = self.tips.get(shard_id), self.now.verified_ms(shard_id)
        if tip is not None and tip.next_ms is not None:
            return tip.next_ms >= self.before.now_ms
        if self.lacks_end(shard_id):
            return None if tip is None else False
        if tip is not None:
            return True
        is_late = verified_ms is None or verified_ms < self.before.now_ms
        return None if is_late or not self.window_ms else True

    def lacks_end(self, shard_id: str) -> bool:
        """Whether the shard was closed all through the window, and its end is not read: its
        children wait for that, though no record of it may be left.
        """
        closed = ShardPhase.DRAINING
        return self.phase(shard_id) is closed and self.before.lineage.phase(shard_id) is closed

    # judgement ------------------------------------------------------------------------------------
    def health(self, shard_id: str) -> Health:
        return self._healths.get(shard_id, Health.OK)

    def own_health(self, shard_id: str) -> Health:
        """The same without what it has of the shards that it waits for, or that wait for it."""
        return self._judged(shard_id) if self.now.is_readable else Health.UNKNOWN

    @cached_property
    def left_shards(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """By what a newest run was limited to (`--shard`), the other shards that are not over."""
        newest = (log.newest for log in self.now.stored.runs.values())
        live = [one for one in self.now.shard_ids if self.phase(one) not in OVER]
        return {
            run.shards: tuple(one for one in live if one not in run.shards)
            for run in newest
            if run is not None and run.shards
        }

    @cached_property
    def verdict(self) -> Health:
        """The worst of all shards; unknown, too, where no shard is listed."""
        return worst(*self._healths.values()) if self.now.is_known else Health.UNKNOWN

    @cached_property
    def _healths(self) -> dict[str, Health]:
        if not self.now.is_readable:
            return dict.fromkeys(self.now.shard_ids, Health.UNKNOWN)
        found: dict[str, Health] = {}
        for shard_id in self.now.shard_ids:  # parents before their children
            parents = (found.get(one, Health.OK) for one in self.now.lineage.waits_for(shard_id))
            found[shard_id] = worst(self._judged(shard_id), *parents)
        for held, holder in self.now.held_by.items():
            # What stands still for its sake is the holder's matter, though it is read itself.
            if holder in found and held in found:
                found[holder] = worst(found[holder], found[held])
        return found

    def _judged(self, shard_id: str) -> Health:
        """As it stands, and how its process does. A pause is meant to have nobody read it."""
        run, is_over = self.now.reader_log(shard_id).newest, self.phase(shard_id) in OVER
        has_failed = run is not None and run.end is not None and run.end.kind == FAILED
        is_down = has_failed and not is_over and not self.now.stored.paused
        is_down = is_down or self.now.refused_letters_for(shard_id) is not None
        is_down = is_down or self._gets_no_records(shard_id)
        return worst(self._judged_by_position(shard_id), Health.STALLED if is_down else Health.OK)

    def _gets_no_records(self, shard_id: str) -> bool:
        """Whether the shard's process reports that its reads have failed since before the window.
        Its error may be that of another shard, unless its credentials are refused.
        """
        fails = self.now.log_for(shard_id).failing_reads
        if fails is None or fails.since_ms >= self.before.now_ms or not self.is_read(shard_id):
            return False
        is_known = fails.error in _REFUSALS or self.keeps_up(shard_id) is None
        return is_known and not self.now.stored.paused and not self.has_moved(shard_id)

    def _judged_by_position(self, shard_id: str) -> Health:
        phase, was = self.phase(shard_id), self.before.lineage.phase(shard_id)
        if phase is ShardPhase.VANISHED:
            return Health.LOSING if was is phase else Health.UNKNOWN
        if phase is ShardPhase.DRAINED:
            hangs = self._is_end_unsettled(shard_id) and not self._has_time()
            return Health.STALLED if hangs else self._judged_retries(shard_id)
        if phase is ShardPhase.NEW:
            is_late = was is phase and self.window_ms and not self.now.lineage.waits_for(shard_id)
            return Health.LAGGING if is_late else Health.OK
        is_read = phase in READ_PHASES
        if (is_read or phase is ShardPhase.WAITING) and self.has_lapsed(shard_id):
            return Health.LOSING
        if not is_read:
            return Health.OK
        if self.no_answers_for(shard_id) is not None:
            return Health.STALLED
        return worst(self._judged_position(shard_id), self._judged_retries(shard_id))

    def has_lapsed(self, shard_id: str) -> bool:
        """Whether records may have expired unread. No answer of the service shows what is gone."""
        verified_ms = self.now.verified_ms(shard_id)
        return verified_ms is not None and verified_ms < self.expired_until_ms

    def _judged_position(self, shard_id: str) -> Health:
        keeps_up = self.keeps_up(shard_id)
        if keeps_up:
            hangs = self.is_unsettled(shard_id) and not self._has_time()
            return Health.STALLED if hangs else Health.OK
        if self.has_moved(shard_id):
            return Health.LAGGING
        if keeps_up is None:
            return Health.UNKNOWN
        has_time = self._has_time() or self.waits_for_trigger(shard_id)
        return Health.LAGGING if has_time and not self._is_held(shard_id) else Health.STALLED

    def _is_held(self, shard_id: str) -> bool:
        """Whether a record that fails again has held the shard all through the window: its order is
        kept, so batches move other shards alone.
        """
        now, policy = self.now, self.now.stored.policy
        if policy is None or now.stored.paused or now.owner_of(shard_id) is None:
            return False
        is_own = policy.on_failure is OnFailure.BLOCK_SHARD
        state = now.states.get(now.held_by.get(shard_id, shard_id if is_own else ""))
        if state is None or not state.unresolved or not self.window_ms:
            return False
        first = min(state.unresolved, key=lambda one: one.first)
        failed_ms = first.first_failure_ms
        return first.attempts > 1 and failed_ms is not None and failed_ms < self.before.now_ms

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

    def waits_for_trigger(self, shard_id: str) -> bool:
        """Whether what is unread came after the last time at which the query's trigger was due, or
        that was just now. A trigger is due at the multiples of its interval.
        """
        trigger_ms, frontier_ms = self.now.trigger_ms, self.frontier_ms(shard_id)
        plan = self.now.open_plan
        # One that fired while its batch was under way fires again behind that batch.
        if not trigger_ms or (
            plan is not None and self.now.now_ms - plan.created_ms > trigger_ms + self.window_ms
        ):
            return False
        due_ms = self.now.now_ms // trigger_ms * trigger_ms
        is_just_due = due_ms >= self.before.now_ms
        return is_just_due or (frontier_ms is not None and frontier_ms >= due_ms - self.window_ms)

    def _judged_retries(self, shard_id: str) -> Health:
        """Records that were due before the window began, and that nobody has tried since."""
        state, was = self.now.states.get(shard_id), self.before.states.get(shard_id)
        if state is None or was is None or not self.window_ms:
            return Health.OK
        overdue = any(0 < one.due_ms < self.before.now_ms for one in state.unresolved)
        if not overdue or state.unresolved != was.unresolved:
            return Health.OK
        # An owner that runs has its reasons: order, an outage, the batch under way.
        runs = self.now.owner_of(shard_id) is not None
        return Health.LAGGING if runs or self._has_time() else Health.STALLED

    def _has_time(self) -> bool:
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


def worth_asking(look: Look, most: int) -> list[str]:
    """The shards whose tip decides on their health, at most so many: first those that stand still,
    and of these the ones that were verified longest ago.
    """
    read = filter(look.is_read, look.now.shard_ids)
    urgent = sorted(
        (look.has_moved(one), look.now.verified_ms(one) or 0, one)
        for one in read
        if look.keeps_up(one) is None
    )
    return [one for *_, one in urgent[:most]]
