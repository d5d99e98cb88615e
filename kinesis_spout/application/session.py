"""The session of an application's owner, which is a Spark driver or a spout. Its steps:

    step            effect                                                       when
    claim           own the application, or a task's share of it; begin the run  first
    load            check the stream, load the states, watch for a pause         after claim
    pin_start       read or store the application's start                        after load
    is_paused       whether the application is paused; `keep_during_pause`       before each look
    record_history  store the application's progress                             after each look
    on_stored       write states, and repeat the step after a conflict           at each write
    run.end         store how the run has ended                                  last

Spark and the spout differ on purpose in these points:

- A Spark driver owns the whole application. The tasks of a spout share it, so one task leads: only
  the leader writes the shard list and the history (`lead`).
- A Spark driver settles an open plan, because Spark's checkpoint shows whether the batch is done. A
  spout cannot know that, so it closes an open plan before it loads the states (`close_open_plan`).
- Spark's checkpoint may name a plan. If no start is stored then, the state is lost, and the driver
  reports that. A spout has no second memory.
- A pause stops a spout's deliveries at once. A batch that Spark has planned is read to its end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from kinesis_spout.application.history_recorder import HistoryRecorder
from kinesis_spout.application.run_recorder import RunRecorder
from kinesis_spout.shards.start_position import pin_start
from state.errors import ConflictError
from state.plan import PlanStatus
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kinesis_spout.clock import Clock
    from kinesis_spout.shards.catalog import ShardCatalog
    from kinesis_spout.shards.start_position import RequestedStart
    from state.plan import Plan
    from state.store.identity import Pause, PauseStore, StartPin
    from state.store.ownership import OwnerInfo, TaskShare
    from state.store.plans import PlanStore
    from state.store.runs import Run
    from state.znodes.topics import StoreTopics

_T = TypeVar("_T")
log = logging.getLogger("kinesis_spout")
STANDS_STILL = "a paused application keeps its ownership, and reads no records"
KEPT_S = 10.0  # between two checks of the ownership during a pause, when nothing else writes
# Conflicts in a row. Another task may write the same child's first state, but only once.
MAX_CONFLICTS = 5


class ApplicationSession:
    """The session of one owner for one stream. The constructor does no I/O. Each step blocks on the
    store; `load` and `pin_start` also block on Kinesis. For one thread at a time; any thread may
    call `keep` and `on_stored`.

    - `run`: the log of the run; it does nothing before `claim`.
    - `task`: the task's share; None for the whole application.
    - `is_closing`: whether the ownership is being released.
    - `on_pause`: called in a thread of the store when a pause may have begun or ended.
    """

    def __init__(
        self,
        application: str,
        store: StoreTopics,
        clock: Clock,
        catalog: ShardCatalog,
        *,
        task: TaskShare | None = None,
        is_closing: Callable[[], bool] = lambda: False,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.run = RunRecorder(store.runs, clock)
        self.leads = task is None
        self.is_loaded = False
        self._store = store
        self._clock = clock
        self._catalog = catalog
        catalog.loss.on_accepted = self.run.lost
        self._task = task
        self._is_closing = is_closing
        self._pause = PauseWatch(store.pause, application, on_pause)
        self._history = HistoryRecorder(store.history, clock)
        self._owner: OwnerInfo | None = None
        self._pin: StartPin | None = None
        self._kept_s = float("-inf")

    # opening --------------------------------------------------------------------------------------
    def claim(self, run: Run, *, timeout_s: float) -> None:
        """Own the application or the task's share as `run.owner`. See `OwnershipStore.acquire`."""
        self._store.ownership.acquire(run.owner, timeout_s=timeout_s, task=self._task)
        self._owner = run.owner
        self.run.begin(run)

    def load(self) -> None:
        """Bind the state to the stream, load all states, and watch for a pause.

        Raises `StreamMismatchError` if the state belongs to another stream.
        """
        self._catalog.stream.describe(bind=True)
        self._catalog.load()
        self._pause.watch()
        self.is_loaded = True

    def pin_start(
        self, requested: Callable[[], RequestedStart], *, only: Collection[str] = ()
    ) -> StartPin:
        """Return the application's start. If no start is stored, store the start that `requested`
        returns; `requested` may raise. `only`: the ids of the shards that are read; empty for all.
        See `start_position.pin_start`.
        """
        if self._pin is None:
            self._pin = self._store.identity.read_start()
        if self._pin is None:
            identity, stream = self._store.identity, self._catalog.stream
            self._pin = pin_start(identity, stream.client, requested(), stream.now_ms(), only=only)
            log.info(
                "application %s starts to read at %s", self._pause.application, self._pin.position
            )
        return self._pin

    @property
    def pin(self) -> StartPin:
        """The application's start, after `pin_start`."""
        if self._pin is None:
            raise RuntimeError(
                "the starting position of the application is not known; call pin_start first"
            )
        return self._pin

    # between two steps of the consumer ------------------------------------------------------------
    def is_paused(self, *, meanwhile: str = STANDS_STILL) -> bool:
        """Whether the application is paused now. If so, call `keep_during_pause`, too. Blocks only
        after a change. `meanwhile`: what the consumer does during the pause, for the log.
        """
        return self._pause.look(meanwhile)

    def keep_during_pause(self) -> None:
        """Call `keep` every `KEPT_S` seconds."""
        now_s = self._clock.monotonic_s()
        if now_s - self._kept_s >= KEPT_S:
            self._kept_s = now_s
            self.keep()

    def keep(self) -> bool:
        """Check that this process still has the ownership, and acquire it again if its session has
        lapsed. Raises `StaleOwnerError` if another process has taken over. Returns False, without a
        check, while the ownership is being released.
        """
        with self._catalog.lock:
            if self._owner is None or self._is_closing():
                return False
            self._store.ownership.acquire(self._owner, timeout_s=0.0, task=self._task)
            return True

    def lead(self) -> None:
        """Try to become the shard list leader, or check that this task still is (`leads`)."""
        self.leads = self._store.shard_list.try_lead()

    def was_moved(self) -> bool:
        """Whether ZooKeeper shows that an operator has moved, imported or removed the state. (An
        import has no plans.) Needs no ownership.
        """
        store = self._store
        if store.plans.pointer() is None and store.identity.read_start() is not None:
            return True
        is_moved = any(mark.moved for mark in store.history.index().marks)
        return is_moved or store.identity.read_reset() is not None

    def record_history(self, *, at_once: bool = False) -> None:
        """Store the progress of all tasks' shards, according to the states that were loaded last.
        A state that another task has stored since then is ahead of that, never behind.
        """
        if self.leads:
            self._history.record(
                self._catalog.states,
                now_ms=self._catalog.stream.known_now_ms(),
                retention_ms=self._catalog.stream.retention_ms,
                at_once=at_once,
            )

    def on_stored(self, step: Callable[[], _T]) -> _T:
        """Run a step that computes new states from the loaded states and writes them. If a stored
        state is not the loaded state, load all states and run the step again, a few times.

        Reasons for such a conflict: the response to an earlier write was lost; another task has
        written a child's first state or has given up a shard; an operator has repaired a state. If
        the load fails, the next step finds out by another conflict.
        """
        for _ in range(MAX_CONFLICTS):
            try:
                return step()
            except ConflictError:
                self._catalog.load()
        return step()


class PauseWatch:
    """Watches the node `paused`, so that `look` reads it only after a change. For one thread.
    `on_change` is called in a thread of the store when the node may have changed; then call `look`.
    """

    def __init__(self, store: PauseStore, application: str, on_change: Callable[[], None]) -> None:
        self.application = application
        self._store = store
        self._on_change = on_change
        self._may_have_changed = True
        self._is_on = False

    def watch(self) -> None:
        """Start to watch. Blocks on the store."""
        self._store.watch(self._on_watch)

    def look(self, meanwhile: str) -> bool:
        """Whether the application is paused. Reads the node only after a change, and logs when a
        pause begins and ends. `meanwhile`: what the consumer does during a pause.
        """
        if self._may_have_changed:
            # Reset before the read, so that a change during the read is read again.
            self._may_have_changed = False
            try:
                pause = self._store.read()
            except BaseException:
                self._may_have_changed = True
                raise
            if pause is None and self._is_on:
                log.warning(
                    (
                        "the pause of application %s has ended, and the application reads "
                        "records again"
                    ),
                    self.application,
                )
            elif pause is not None and not self._is_on:
                log.warning(
                    "application %s is paused%s: %s; to end the pause, run `kinesis-spout resume`",
                    self.application,
                    pause_clause(pause),
                    meanwhile,
                )
            self._is_on = pause is not None
        return self._is_on

    def _on_watch(self) -> None:
        self._may_have_changed = True
        self._on_change()


def pause_clause(pause: Pause) -> str:
    """Return ` by ann on host-a since 2026-01-31T12:00:00.000Z ('deploy')`, without what is
    unknown.
    """
    by = ""
    if pause.by is not None:
        # Quoted with escapes if it has characters that a terminal may obey.
        by = f" by {pause.by if pause.by.isprintable() else repr(pause.by)}"
    since = "" if pause.since_ms is None else f" since {Position.at_timestamp(pause.since_ms)}"
    reason = "" if pause.reason is None else f" ({pause.reason!r})"
    return f"{by}{since}{reason}"


def close_open_plan(plans: PlanStore) -> None:
    """Close the newest plan if it is open, so that no task of its batch can publish any more. Only
    the owner may call it; blocks.

    The plan is not settled, so none of its outcomes is stored. When a Spark driver owns the
    application again, it compares each result with the stored position.
    """
    while True:
        pointer = plans.pointer()
        if pointer is None or pointer.status is not PlanStatus.OPEN:
            return
        try:
            plans.close(pointer.id)
        except ConflictError:
            continue  # another task of this application closes it, too: look again
        log.warning(
            "a Spark job of this application left batch %s open, so this process has closed it. "
            "Its records without a stored outcome are read again",
            pointer.id,
        )
        return


def closed_plan(plans: PlanStore) -> Plan | None:
    """Close the newest plan and return it; None if there is none. Only the owner may call it;
    blocks.
    """
    close_open_plan(plans)
    pointer = plans.pointer()
    return None if pointer is None else plans.read(pointer.id)
