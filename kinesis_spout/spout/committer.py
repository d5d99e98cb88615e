"""Commits the states of a spout's shards at intervals, and writes what its program waits for into
the log of the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

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
    """One per open spout. Blocks on the store, never on Kinesis: so Kinesis holds up no commit. One
    thread calls `step`; it and the assigner's write shard states under the lock of the catalog.

    `deactivated_ms`: since when the program has the spout deactivated, in milliseconds since 1970;
    None while it is active. Any thread may set it.
    """

    def __init__(self, context: SpoutContext, assigner: SpoutAssigner) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._session = assigner.session
        self._catalog = assigner.catalog
        self._assigner = assigner
        self.stored = 0  # of the records that were resolved, those that a commit has stored
        self.deactivated_ms: int | None = None
        # Why the program seems to get no record, and what was emitted by then; and since when.
        self._seen_stall: tuple[str | None, int] = (None, 0)
        self._stalled_since_ms = 0

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
                    # The last commit has its own count.
                    if not self._context.services.closing.is_set():
                        self._session.on_stored(self._assigner.starts.on_commit)
            except StoreUnavailableError as exc:
                self._context.hooks.error(exc)
        return self._context.config.commit_interval_s

    def _stall(self) -> Hold | None:
        """Why the program gets no record, though there may be some: what two calls in a row have
        found. None without a reason. Does no I/O.
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
        # A busy spout is at its limit most of the time, and emits with each outcome. Most of the
        # rest of the time it has a record for its program, which asks for it soon.
        if self._seen_stall != seen:
            self._seen_stall = seen
            self._stalled_since_ms = self._context.services.clock.now_ms()
            return None
        return None if kind is None else Hold(kind=kind, since_ms=self._stalled_since_ms)

    def commit(self) -> bool:
        """Store every state that has changed. False when it failed: they are stored later."""
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
            # There may be children to assign, or nothing left to read.
            self._scheduler.wake("coordinate")
        return True

    def commit_last(self, *, in_order: bool) -> bool:
        """Commit at the end, and note it as an orderly one. Returns whether it succeeded: an outage
        of the store is not waited for.
        """
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
        """Store what has changed. Returns the shards that were released before, and the changes by
        shard. The caller holds the catalog's lock.
        """
        released = self._assigner.release()
        scheduler, changed = self._scheduler, self._scheduler.changed
        with changed:
            dirty = [assigned for assigned in scheduler.assigned.values() if assigned.is_dirty]
            # Cleared before the write: an outcome that comes during it makes the shard dirty again.
            for assigned in dirty:
                assigned.is_dirty = False
            changes = {
                assigned.shard.shard_id: change
                for assigned in dirty
                if (change := self._change(assigned)) is not None
            }
            # Of the shards whose states now say that they ended, with their children.
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
        if ends:  # a shard ends by a split or a merge: list its children
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
        """The change to store, or None.

        A later `verified_until_ms` alone is not stored here: the catalog does that at longer
        intervals (`ShardCatalog.save_verified`).
        """
        before = self._catalog.states[assigned.shard.shard_id]
        after = assigned.shard.snapshot()
        known_ms = before.state.verified_until_ms
        is_same = replace(after, verified_until_ms=known_ms) == before.state
        # An earlier one is that of a shard that is read for the first time.
        is_earlier = (after.verified_until_ms or 0) < (known_ms or 0)
        return None if is_same and not is_earlier else StateChange(before=before, after=after)
