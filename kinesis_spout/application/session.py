"""One session of the owner of an application, the same for a Spark driver and a spout. Its steps:

    step            does                                                           when
    claim           owns the application, or a task's share; the run log begins    first
    load            compares the stream, loads the states, watches the pause       after it
    pin_start       finds or pins where the application starts                     after it
    is_paused       whether to stand still; `keep_during_pause` then               before each look
    record_history  writes how far the application has come                        after each look
    on_stored       takes a step that writes states, again after a conflict        at each write
    run.end         writes how the run has ended                                   last

What the two do differently, on purpose:

- Spark owns the whole application. The tasks of a spout share it, so one of them leads: it alone
  writes the shard list and the history (`lead`).
- Spark settles the plan that is open, since its checkpoint says whether the batch is done. A spout
  cannot know, so it closes such a plan before it loads the states (`close_open_plan`).
- Spark's checkpoint may name a plan. Where nothing is pinned, the state is lost then, and the
  driver reports it (`pin_start` asks for the start only then). A spout has no second memory.
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
STANDS_STILL = "the application keeps its ownership and reads nothing"
KEPT_S = 10.0  # between two checks of the ownership: nothing else writes during a pause
# In a row. Another task may write the same child's first state, but not again and again.
MAX_CONFLICTS = 5


class ApplicationSession:
    """One for each owner, of one stream. The constructor does no I/O; each step blocks on the
    store, and `load` and `pin_start` on Kinesis, too. One thread at a time, except `keep` and
    `on_stored`, which are for any thread.

    `run`: the log of the run; it does nothing before `claim`. `task`: the share; None for the
    whole application. `is_closing`: whether the ownership is being released. `on_pause` is called
    from a thread of the store when a pause may have begun or ended.
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
        """Own the application, or the share, as `run.owner`. See `OwnershipStore.acquire`."""
        self._store.ownership.acquire(run.owner, timeout_s=timeout_s, task=self._task)
        self._owner = run.owner
        self.run.begin(run)

    def load(self) -> None:
        """Bind the state to the stream, load all states, and watch the pause.

        Raises `StreamMismatchError` when the state belongs to another stream.
        """
        self._catalog.stream.describe(bind=True)
        self._catalog.load()
        self._pause.watch()
        self.is_loaded = True

    def pin_start(
        self, requested: Callable[[], RequestedStart], *, only: Collection[str] = ()
    ) -> StartPin:
        """Where the application starts: what is pinned, or what `requested` returns, pinned now. It
        is called where nothing is pinned, and may raise. `only`: the ids of the shards that are
        read; empty for all. See `start_position.pin_start`.
        """
        if self._pin is None:
            self._pin = self._store.identity.read_start()
        if self._pin is None:
            identity, stream = self._store.identity, self._catalog.stream
            self._pin = pin_start(identity, stream.client, requested(), stream.now_ms(), only=only)
            log.info("application %s starts at %s", self._pause.application, self._pin.position)
        return self._pin

    @property
    def pin(self) -> StartPin:
        """Where the application starts. Known after `pin_start`."""
        if self._pin is None:
            raise RuntimeError("the start is not known; call pin_start first")
        return self._pin

    # between two steps of the consumer ------------------------------------------------------------
    def is_paused(self, *, meanwhile: str = STANDS_STILL) -> bool:
        """Whether the application is paused now. `meanwhile`: what the consumer does then, for the
        log. Then also call `keep_during_pause`. Reads nothing while nothing changes.
        """
        return self._pause.look(meanwhile)

    def keep_during_pause(self) -> None:
        """`keep`, from time to time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._kept_s >= KEPT_S:
            self._kept_s = now_s
            self.keep()

    def keep(self) -> bool:
        """Check that the ownership is still this process's. A session that lapsed is followed by
        another one; where another process has taken over, raises `StaleOwnerError`. False while the
        ownership is being released: then it is not taken again.
        """
        with self._catalog.lock:
            if self._owner is None or self._is_closing():
                return False
            self._store.ownership.acquire(self._owner, timeout_s=0.0, task=self._task)
            return True

    def lead(self) -> None:
        """Become the one that writes the shard list, or check whether this still is (`leads`)."""
        self.leads = self._store.shard_list.try_lead()

    def was_moved(self) -> bool:
        """Whether an operator has moved, imported or removed the state, as far as ZooKeeper can
        still tell. An import brings no plans. Needs no ownership.
        """
        store = self._store
        if store.plans.pointer() is None and store.identity.read_start() is not None:
            return True
        is_moved = any(mark.moved for mark in store.history.index().marks)
        return is_moved or store.identity.read_reset() is not None

    def record_history(self, *, at_once: bool = False) -> None:
        """Write how far the shards of all tasks have come, as this one has loaded their states
        last. A state that another task has stored since is ahead of that, never behind.
        """
        if self.leads:
            self._history.record(
                self._catalog.states,
                now_ms=self._catalog.stream.known_now_ms(),
                retention_ms=self._catalog.stream.retention_ms,
                at_once=at_once,
            )

    def on_stored(self, step: Callable[[], _T]) -> _T:
        """Take a step that writes what it computes from the loaded states. Where one of them is not
        stored as it was loaded, load all and take the step again, a few times.

        The answer to an earlier write was lost, another task has written a child's first state or
        has given a shard up, or an operator has repaired a state. What a load cannot get while the
        store does not answer, the next step finds out by another conflict.
        """
        for _ in range(MAX_CONFLICTS):
            try:
                return step()
            except ConflictError:
                self._catalog.load()
        return step()


class PauseWatch:
    """Follows the node `paused` by a watch, so that a look costs no read while nothing changes. For
    one thread. `on_change` is called from a thread of the store when the node may have changed:
    then call `look`.
    """

    def __init__(self, store: PauseStore, application: str, on_change: Callable[[], None]) -> None:
        self.application = application
        self._store = store
        self._on_change = on_change
        self._may_have_changed = True
        self._is_on = False

    def watch(self) -> None:
        """Watch from now on. Blocks on the store."""
        self._store.watch(self._on_watch)

    def look(self, meanwhile: str) -> bool:
        """Whether the application is paused. Reads the node only after a change of it; logs when a
        pause begins and ends. `meanwhile`: what the consumer does during one.
        """
        if self._may_have_changed:
            # Before the read: a change during it is looked at again.
            self._may_have_changed = False
            try:
                pause = self._store.read()
            except BaseException:
                self._may_have_changed = True
                raise
            if pause is None and self._is_on:
                log.warning(
                    ("the pause of application %s is over: the application reads again"),
                    self.application,
                )
            elif pause is not None and not self._is_on:
                log.warning(
                    "application %s is paused%s: %s; end the pause with `kinesis-spout resume`",
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
    """` by ann on host-a since 2026-01-31T12:00:00.000Z ('deploy')`, as far as it is known."""
    by = ""
    if pause.by is not None:
        # Quoted with escapes if it has characters that a terminal may obey.
        by = f" by {pause.by if pause.by.isprintable() else repr(pause.by)}"
    since = "" if pause.since_ms is None else f" since {Position.at_timestamp(pause.since_ms)}"
    reason = "" if pause.reason is None else f" ({pause.reason!r})"
    return f"{by}{since}{reason}"


def close_open_plan(plans: PlanStore) -> None:
    """Close the newest plan if it is open, so that no task of that batch publishes a result any
    more. A write of the owner; blocks.

    The plan is not settled: no outcome is taken over. When Spark owns the application again, it
    compares each result with the position that is stored then.
    """
    while True:
        pointer = plans.pointer()
        if pointer is None or pointer.status is not PlanStatus.OPEN:
            return
        try:
            plans.close(pointer.id)
        except ConflictError:
            continue  # another task of this application closes it too: look again
        log.warning(
            "batch %s, which a Spark job of this application left open, is closed. Its "
            "records without a stored outcome are read again from the stored positions",
            pointer.id,
        )
        return


def closed_plan(plans: PlanStore) -> Plan | None:
    """The newest plan, closed; None if there is none. A write of the owner; blocks."""
    close_open_plan(plans)
    pointer = plans.pointer()
    return None if pointer is None else plans.read(pointer.id)
