"""Commits the states of a spout's shards at intervals, and stores in the run log why the program
gets no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.shards.catalog import VERIFIED_STEP_MS
from kinesis_spout.spout.outages import SpoutPart
from state.errors import ConflictError, StoreUnavailableError
from state.plan import ShardReadResult
from state.settle import children_first
from state.store.runs import DEACTIVATED, FULL, NOT_TAKEN, Hold
from state.store.shard_states import StateChange

if TYPE_CHECKING:
    from kinesis_spout.spout.assigner import SpoutAssigner
    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.services import SpoutContext


class SpoutCommitter:
    """The committer of an open spout. Blocks on the store but never on Kinesis, so a slow Kinesis
    does not delay commits. One thread calls `step`. This thread and the assigner's thread write
    shard states, under the catalog's lock.

    `deactivated_ms`: when the program deactivated the spout, in milliseconds since 1970; None while
    the spout is active. Any thread may set it.
    """

    def __init__(self, context: SpoutContext, assigner: SpoutAssigner) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._session = assigner.session
        self._catalog = assigner.catalog
        self._assigner = assigner
        self.stored = 0  # the number of resolved records whose outcome is stored
        self.deactivated_ms: int | None = None
        # The suspected reason why the program gets no records, with the count of emitted records;
        # and since when.
        self._seen_stall: tuple[str | None, int] = (None, 0)
        self._stalled_since_ms = 0
        self._verified_step_ms = VERIFIED_STEP_MS

    def step(self) -> float:
        """Commit. Returns the seconds until the next commit."""
        run, outages = self._session.run, self._context.outages
        run.not_subscribed(outages.not_subscribed)
        run.write(
            hold=self._stall(),
            throttled=outages.throttled,
            refused_letters=outages.refused_letters,
            failing_reads=outages.failing_reads(),
            no_answers=outages.no_answers,
        )
        if self.commit():
            try:
                with self._catalog.lock:
                    # `commit_last` counts for itself.
                    if not self._context.services.closing.is_set():
                        self._session.on_stored(self._assigner.starts.on_commit)
            except StoreUnavailableError as exc:
                self._context.hooks.error(exc)
        return self._context.config.commit_interval_s

    def _stall(self) -> Hold | None:
        """Why the program gets no records although there may be some, if two calls in a row have
        found the same reason. Does no I/O.
        """
        if (since_ms := self.deactivated_ms) is not None:
            return Hold(kind=DEACTIVATED, since_ms=since_ms)
        scheduler, rotation = self._scheduler, self._scheduler.rotation
        kind = None
        with scheduler.changed:
            if rotation.at_limit and not (rotation.is_full or rotation.is_paused):
                kind = FULL
            elif rotation.may_emit(int(scheduler.now_ms())):
                kind = NOT_TAKEN
            seen = kind, scheduler.counts().emitted
        # A busy spout is at its limit most of the time, and emits a record with each outcome. For
        # most of the remaining time it has a record that its program will request soon.
        if self._seen_stall != seen:
            self._seen_stall = seen
            self._stalled_since_ms = self._context.services.clock.now_ms()
            return None
        return None if kind is None else Hold(kind=kind, since_ms=self._stalled_since_ms)

    def commit(self) -> bool:
        """Store all changed states. Returns False if that failed; a later commit stores them."""
        hooks = self._context.hooks
        try:
            with self._catalog.lock:
                released, changes = self._session.on_stored(self._save_changes)
        except StoreUnavailableError as exc:
            self._context.outages.failed(SpoutPart.COMMIT, exc)
            return False
        for shard_id, change in changes.items():
            hooks.notify("checkpointed", shard_id, change.after.checkpoint_text)
        released += self._assigner.release()
        for shard_id in released:
            hooks.notify("shard_finished", shard_id)
        if released or any(change.after.end_was_read for change in changes.values()):
            # There may be children to assign, or no shard left to read.
            self._scheduler.wake("coordinate")
        return True

    def commit_last(self, *, in_order: bool) -> bool:
        """Commit for the last time, and store whether the end is clean. Returns whether it
        succeeded. An outage of the store is not waited for.
        """
        self._verified_step_ms = 1  # the next start may come after most of the retention
        if in_order:
            with self._scheduler.changed:
                self._scheduler.rotation.isolation.withdraw()
        if not self.commit():
            return False
        if in_order:
            try:
                with self._catalog.lock:
                    self._context.services.store.ownership.save_unclean_starts(0)
            except (StoreUnavailableError, ConflictError) as exc:
                self._context.hooks.error(exc)
            self._session.record_history(at_once=True)
        return True

    def _save_changes(self) -> tuple[list[str], dict[str, StateChange]]:
        """Store the changed states. Returns the shards that were released before that, and the
        changes by shard. The caller holds the catalog's lock.
        """
        released = self._assigner.release()
        scheduler, changed = self._scheduler, self._scheduler.changed
        with changed:
            dirty = [assigned for assigned in scheduler.assigned.values() if assigned.is_dirty]
            # Cleared before the write, so that an outcome during the write makes the shard dirty.
            for assigned in dirty:
                assigned.is_dirty = False
            changes = {
                assigned.shard.shard_id: change
                for assigned in dirty
                if (change := self._change(assigned)) is not None
            }
            # The ends of the shards whose new states are read to the end, with their children.
            ends = [
                ShardReadResult(
                    shard_id=shard_id,
                    at_shard_end=True,
                    tip_ms=page.service_time_ms,
                    children=page.child_shards,
                )
                for shard_id, change in changes.items()
                if change.after.end_was_read
                and (page := scheduler.assigned[shard_id].shard.pages.last_page) is not None
            ]
            isolation = scheduler.rotation.isolation
            isolated, with_outcome = isolation.emission, not isolation.waits_for_outcome
            resolved = scheduler.counts().resolved
        if ends:  # a shard ends by a split or a merge, so there are children to list
            self._catalog.stream.expire()
        try:
            written = children_first(
                changes.values(),
                ends,
                self._catalog.states.keys(),
                tracked_since_ms=self._catalog.tracked_since_ms(self._session.pin),
            )
            self._catalog.save(written)
        except (StoreUnavailableError, ConflictError):
            with changed:
                for assigned in dirty:
                    assigned.is_dirty = True
            raise
        self._context.outages.succeeded(SpoutPart.COMMIT)
        if isolated is not None:
            with changed:
                isolation.on_commit(isolated, with_outcome=with_outcome)
                changed.notify_all()
        self.stored = resolved
        return released, changes

    def _change(self, assigned: AssignedShard) -> StateChange | None:
        """Return the change to store, or None. A slightly later `verified_until_ms` alone is not
        stored, because that of an idle shard advances with each read.
        """
        before = self._catalog.states[assigned.shard.shard_id]
        after = assigned.shard.snapshot()
        known_ms = before.state.verified_until_ms
        is_same = replace(after, verified_until_ms=known_ms) == before.state
        later_ms = (after.verified_until_ms or 0) - (known_ms or 0)
        # It is below 0 if the first read of a shard has set the time back.
        if is_same and 0 <= later_ms < self._verified_step_ms:
            return None
        return StateChange(before=before, after=after)
