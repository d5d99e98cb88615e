"""The driver's side of a query: owns the application's state, plans batches, and settles them.
What there is to plan, and how long to wait for it, is `due_work`'s.

This is Spark's protocol as observed on PySpark 4.3.0, and this module's answer to each part of it:

- `latestOffset(start)` gets plan k as `start` only after batch k is in Spark's commit log. This
  holds after a restart too, and at the end of an AvailableNow run, where `commit(k)` never comes.
  So the query settles plan k then, and `commit` does nothing.
- `initialOffset` is called twice in batch 0, and again when batch 0 is replayed, which nobody can
  distinguish. So it does nothing, and `next_plan` or `tasks` pins the start: they are told the plan
  that Spark knows, and a plan without a pin is data loss.
- A restart may begin with `partitions` of a batch to replay, without `latestOffset` before it. So
  `next_plan` and `tasks` both acquire the ownership, unless it is held already.
- Planning processes construct a reader too. So the constructor does no I/O.
- The default trigger polls `latestOffset` every 10 ms. So `next_plan` waits up to `idleWait`.
- An error in any call ends the query. So the client and the store retry transient faults.
- `stop` does not come when a query stops normally: Spark kills the worker. So the ownership is
  ephemeral, and a successor waits until the old session has expired.
- A stateful query runs batches without data. So plans have numbers of their own and never use
  Spark's batch ids.

While an operator pauses the application, `next_plan` settles the last plan, makes no other one, and
asks the service nothing. A batch that is under way, or that Spark replays, is read to its end. What
the pause hides is looked at when it ends, as after a restart: new shards, lost records.

ZooKeeper is the authority on what has been consumed. Everything that this object remembers is a
cache that may be lost at any time. Every method but `report` blocks on ZooKeeper and Kinesis. Spark
calls all of them from one thread.
"""

from __future__ import annotations

import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.reading.subscription_counts import SharedConsumer
from kinesis_spout.shards.catalog import RELIST_S, ShardCatalog
from kinesis_spout.shards.history_recorder import HistoryRecorder
from kinesis_spout.shards.pause import PauseWatch
from kinesis_spout.shards.run_recorder import RunRecorder
from kinesis_spout.shards.start_position import OLDEST, pin_start
from spark_job.driver.consumer import QueryConsumer
from spark_job.driver.due_work import DueWork
from spark_job.driver.outcome_summary import OutcomeSummary
from spark_job.driver.planner import PlanLimits, make_plan
from spark_job.driver.settle_plan import settle
from spark_job.driver.shard_tips import ShardTips
from spark_job.driver.subscription_counts import SubscriptionCounts
from spark_job.driver.trigger_interval import TriggerInterval
from spark_job.rows import FAIL
from state.errors import ConflictError
from state.failpoint import failpoint
from state.plan import PlanStatus, TaskPlan, make_plan_id, plan_number
from state.position import Position
from state.process import this_process
from state.store.runs import DONE, SPARK, Run, throttled_again

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from spark_job.driver.settle_plan import Settled
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import Plan, ShardReadResult
    from state.store.identity import StartPin
    from state.store.ownership import OwnerInfo
    from state.store.runs import Throttle

log = logging.getLogger("kinesis_spout")
NONCE_BYTES = 6
# The service's Date header has whole seconds, and arrival times are approximate.
UNTIL_MARGIN_MS = 2_000
NO_LIMIT_MS = 2**62
MAX_REPORTED_SHARDS = 100


class Coordinator:
    """Plans and settles one stream of a query. `close` releases the ownership."""

    def __init__(self, settings: SourceSettings, services: ProcessServices) -> None:
        self.settings = settings
        self._store = services.store
        self._client = services.client
        self.clock = services.clock
        self._tips = ShardTips()
        self._catalog = ShardCatalog(
            settings,
            services.client,
            services.clock,
            self._tips,
            identity=services.store.identity,
            shard_states=services.store.shard_states,
            shard_list=services.store.shard_list,
        )
        self._history = HistoryRecorder(services.store.history, services.clock)
        self._outcomes = OutcomeSummary(settings, services.store.plans, services.store.reports)
        self._due = DueWork(
            settings, services, tips=self._tips, catalog=self._catalog, outcomes=self._outcomes
        )
        self._consumer = QueryConsumer(settings, services.client, services.clock)
        self._subscriptions = SubscriptionCounts()
        self._shared_consumer = SharedConsumer(
            settings.consumer_name or settings.consumer_arn or "", option="consumerName"
        )
        self._pause = PauseWatch(services.store.pause, services.clock, settings.application)
        self._run = RunRecorder(services.store.runs, services.clock)
        self._throttled: dict[str, Throttle] = {}
        self._owner: OwnerInfo | None = None
        self._trigger = TriggerInterval()
        self._opened = False
        self._pin: StartPin | None = None
        self._newest_plan = ""  # for the progress report
        self._plan_of_this_run = ""  # the newest plan, unless an earlier run made it
        self._created_plan: Plan | None = None
        self.came_back_empty = False  # the last settled plan, though a shard of it is behind

    # Spark's calls
    # ----------------------------------------------------------------------------------------------
    def pin_start(self, known_plan: str = "") -> StartPin:
        """Pin the position where the application starts, unless it is pinned already. Needs no
        ownership and changes nothing else.

        `known_plan`: a plan that Spark's checkpoint names; empty for none. With one, a missing pin
        means that ZooKeeper has lost the application. Raises `DataLossError` then; or, where
        `failOnDataLoss` is false, starts at the oldest record, whatever start was requested.
        """
        if self._pin is None:
            self._pin = self._store.identity.read_start()
        if self._pin is None:
            summary = self._catalog.describe()
            known_plan = known_plan or max(self._settled_plans(), key=plan_number, default="")
            if known_plan:
                self._report_lost_progress(known_plan)
            self._pin = pin_start(
                self._store.identity,
                OLDEST if known_plan else self.settings.starting_position,
                self._catalog.service_now_ms(),
                self._client.list_shards(),
                new_iterator=self._client.shard_iterator,
            )
            log.info(
                "stream %s: application %s starts at %s",
                summary.name,
                self.settings.application,
                self._pin.position,
            )
        return self._pin

    def _report_lost_progress(self, plan_id: str) -> None:
        application, reset = self.settings.application, self._store.identity.read_reset()
        if reset is not None:
            by = f"pid {reset.pid} on {reset.host}, {Position.at_timestamp(reset.since_ms)}"
            self._catalog.loss.report(
                f"plan {plan_id} of application {application} is known to Spark's checkpoint, and "
                f"the state of {application} on stream {self.settings.stream.name} was removed "
                f"(kinesis-spout reset, {by}); give the query a new checkpointLocation",
                going_on="starting at the oldest record",
            )
            return
        self._catalog.loss.report(
            f"plan {plan_id} of application {application} is known, but ZooKeeper has no start of "
            f"{application} on stream {self.settings.stream.name} any more; restore ZooKeeper, or "
            "name the right one in option zookeeper, or, after a reset, give the query a new "
            "checkpointLocation",
            going_on="starting at the oldest record",
        )

    def _settled_plans(self) -> list[str]:
        """The last settled plan of each shard whose state names one."""
        plans = (stored.state.settled_plan for stored in self._catalog.states.values())
        return [plan for plan in plans if plan is not None]

    def prepare_available_now(self) -> None:
        """Begin an AvailableNow run: plan until every shard is read up to the service's time now
        and the failed records are retried.
        """
        self._catalog.describe()
        self._catalog.expire()  # only a listing made after now shows which shards are closed now
        self._pause.meanwhile = "this run ends without reading on"
        self._due.begin_available_now(self._catalog.service_now_ms() + UNTIL_MARGIN_MS)
        self._plan_of_this_run = ""

    def note_asked(self) -> None:
        """Spark asks for a batch now: its trigger shows in when it does."""
        self._trigger.called(self.clock.now_ms())

    def failed(self, error: BaseException) -> None:
        """The query ends with this error, which somebody who looks is told. Raises nothing."""
        self._run.failed(error)

    # The steps of `QueryDriver`, which it takes for all streams of a query in turn.
    def settle(self, start: str) -> None:
        """Settle plan `start`, if it is the newest one."""
        self._settle_if_current(start, self._open(start))
        if self._trigger.is_known and not self.is_available_now:
            self._run.trigger(self._trigger.known_ms)

    def look(self, begun_s: float) -> float | None:
        """Look for something to plan, once, in a wait that began at `begun_s`.

        Returns None when something was found or the wait is over, else the seconds to wait until
        the next look.
        """
        self._due.forget()
        self._refresh(self.pin_start())
        # After settling: a shard that is given up would not fit the plan that has read of it.
        self._catalog.give_up_vanished()
        self._outcomes.queue.release(self._catalog.gone())
        self._record_history()
        return self._due.look(begun_s)

    def note_looked(self) -> None:
        """A wait is over, also of a stream that has nothing to plan: store what its looks have
        verified, and whether its shards are subscribed to.
        """
        self._catalog.save_verified()
        self._consumer.arn()
        taken = self._shared_consumer.sentence(self.clock.monotonic_s())
        self._run.not_subscribed(self._consumer.refusal or taken or self._subscriptions.refusal)

    @property
    def found_shards(self) -> int:
        """How many shards the last look has found to plan."""
        return len(self._due.shards)

    @property
    def has_work(self) -> bool:
        """Whether the last look has found something to plan."""
        return self._due.is_any

    def note_waited(self, seconds: float) -> None:
        self._due.waited(seconds)

    def plan(
        self,
        start: str,
        *,
        max_records: int | None,
        max_tasks: int | None = None,
        max_search_ms: int | None = None,
    ) -> str | None:
        """Make a plan of what the last look has found, and return its id; None when there is
        nothing. `max_tasks`, `max_search_ms`: lower limits than those of the options.
        """
        self.note_looked()
        settings = self.settings
        limits = PlanLimits(
            max_records_per_trigger=max_records,
            max_records_per_shard=settings.max_records_per_shard,
            max_bytes_per_task=settings.max_bytes_per_task,
            max_fetch_time_ms=settings.max_fetch_time_ms,
            max_search_time_ms=min(settings.max_search_time_ms, max_search_ms or NO_LIMIT_MS),
            max_tasks=max_tasks or settings.max_tasks,
            max_unresolved_per_shard=settings.max_unresolved_per_shard,
            retention_ms=self._catalog.retention_ms,
            aggregated_records=settings.aggregated_records,
            consumer_arn=self._consumer.arn(),
        )
        return self._create_plan(start, self._due.shards, limits)

    def without_plan(self, *, is_paused: bool) -> None:
        """There is nothing to plan. Warn of what an AvailableNow run leaves, since this ends it."""
        if self.is_available_now and is_paused:
            self._run.end(DONE, "the application was paused, so it did not read all")
        elif self.is_available_now:
            self._record_history(at_once=True)
            self._run.end(DONE, self._due.leftovers())

    def tasks(self, plan_id: str) -> dict[int, TaskPlan]:
        """The tasks of a plan, by number.

        Leaves out the tasks of a closed plan that published no end: they may not publish any more,
        and later batches read their records. A plan of an earlier run is closed when a published
        end of it was removed, or when it refused aggregates and the option no longer does. A plan
        that ZooKeeper no longer has gives no tasks, with a warning.
        """
        self._open(plan_id)
        pointer = self._store.plans.pointer()
        if pointer is not None and pointer.id != plan_id and pointer.status is PlanStatus.OPEN:
            # Spark replays an older batch. A tracked batch takes the open plan for its own, so no
            # other plan may be open.
            self._store.plans.close(pointer.id)
        plan = self._plan_in_memory(plan_id) or self._store.plans.read(plan_id)
        if plan is None:
            log.warning(
                "plan %s is no longer in ZooKeeper, so its batch is empty; later batches read its "
                "unacked records, from the shard states",
                plan_id,
            )
            return {}
        tasks = dict(enumerate(plan.tasks))
        if plan_id != self._plan_of_this_run:  # a replay, which polls
            tasks = {task: replace(one, consumer_arn=None) for task, one in tasks.items()}
        is_open = (
            pointer is not None and pointer.id == plan_id and pointer.status is PlanStatus.OPEN
        )
        if is_open and plan_id == self._plan_of_this_run:
            return tasks
        if is_open and not self._can_go_on(plan):
            self._store.plans.close(plan_id)
            is_open = False
        ends = self._store.plans.read_ends(plan_id)
        if is_open:
            self._check_replayed(
                tasks[task] for task in tasks if task not in ends or not ends[task].sealed
            )
            return tasks
        log.warning(
            "plan %s is closed, so its batch replays only the %d of its %d tasks that published "
            "an end; later batches read the records of the others",
            plan_id,
            len(ends),
            len(tasks),
        )
        return {task: tasks[task] for task in tasks if task in ends}

    def close_open_plan(self, known_plan: str) -> None:
        """Close the newest plan if it is open: the batch that runs next has nothing of it.

        In a query of several streams a batch may have no plan of this one, and a tracked batch
        takes an open plan for its own. `known_plan`: as in `pin_start`.
        """
        self._open(known_plan)
        pointer = self._store.plans.pointer()
        if pointer is not None and pointer.status is PlanStatus.OPEN:
            self._store.plans.close(pointer.id)

    def is_open(self, plan_id: str) -> bool:
        """Whether this is the newest plan, and open."""
        pointer = self._store.plans.pointer()
        return pointer is not None and pointer.id == plan_id and pointer.status is PlanStatus.OPEN

    def knows(self, plan_id: str) -> bool:
        """Whether the stream has or had this plan, as far as ZooKeeper can still tell."""
        pointer = self._store.plans.pointer()
        if pointer is not None and pointer.id == plan_id:
            return True
        if plan_id in self._store.plans.known():
            return True
        return any(
            stored.state.settled_plan == plan_id
            for stored in self._store.shard_states.load().values()
        )

    def check_owner(self) -> None:
        """Raise `StaleOwnerError` if another driver has taken over."""
        self._store.shard_list.try_lead()

    def was_moved(self) -> bool:
        """Whether an operator has moved, imported or removed the state, as far as ZooKeeper can
        still tell. An import brings no plans.
        """
        if self._store.plans.pointer() is None and self._store.identity.read_start() is not None:
            return True
        is_moved = any(mark.moved for mark in self._store.history.index().marks)
        return is_moved or self._store.identity.read_reset() is not None

    @property
    def is_available_now(self) -> bool:
        return self._due.is_available_now

    @property
    def is_opened(self) -> bool:
        """Whether the state is owned, and the stream was reached."""
        return self._opened

    def _can_go_on(self, plan: Plan) -> bool:
        """Whether the tasks of an open plan of an earlier run may read what they have not read yet.
        Warns where they may not.
        """
        if removed := self._store.plans.removed_logs(plan.plan_id):
            # Rows of these logs may have been handed over, in a range that nobody knows any more.
            log.warning(
                "somebody removed from ZooKeeper what tasks %s of plan %s had published, so the "
                "plan is closed and their records are delivered again",
                ", ".join(map(str, removed)),
                plan.plan_id,
            )
            return False
        if plan.aggregated_records == FAIL != self.settings.aggregated_records:
            # What its tasks published has no aggregate. With one option or another, what they did
            # not read would be read in two ways if the option changed again.
            log.warning(
                "plan %s was made while aggregatedRecords was %s, so it is closed, and what it did "
                "not read comes with the next plan",
                plan.plan_id,
                FAIL,
            )
            return False
        return True

    def _check_replayed(self, unread: Iterable[TaskPlan]) -> None:
        """Report data loss for shards of an old plan whose records may have expired since it was
        made.

        Once the plan is settled, the loss could no longer be detected.
        """
        shards = [one.shard_id for task in unread for one in task.shards if one.max_records]
        self._catalog.check_retention([shard for shard in shards if shard in self._catalog.states])

    def report(self) -> dict[str, Any]:
        """The source's part of Spark's progress report: the newest plan, the lag in milliseconds of
        arrival time, the outcomes. Does no I/O.

        Spark writes it into every progress report, so it names single shards only where they are
        `MAX_REPORTED_SHARDS` or fewer.
        """
        lags_ms = self._catalog.lags_ms()
        named = lags_ms if len(lags_ms) <= MAX_REPORTED_SHARDS else {}
        return {
            "format": 1,
            "application": self.settings.application,
            "stream": self.settings.label,
            "plan": self._newest_plan,
            "lagMs": max(lags_ms.values(), default=0),
            "retentionMs": self._catalog.retention_ms,
            "readableShards": len(self._catalog.readable()),
            "dataLosses": self._catalog.loss.reports,
            **self._outcomes.report(self._due.now_ms()),
            **(self._subscriptions.report() if self._consumer.is_wanted else {}),
            "shards": {
                shard_id: self._of_shard(shard_id, lag_ms)
                for shard_id, lag_ms in sorted(named.items())
            },
        }

    def _of_shard(self, shard_id: str, lag_ms: int) -> dict[str, int]:
        return {"lagMs": lag_ms, **self._outcomes.of_shard(shard_id)}

    def close(self) -> None:
        self._due.close()
        self._store.close()

    # opening and settling -------------------------------------------------------------------------
    def _open(self, known_plan: str) -> StartPin:
        if not self._opened:
            self._acquire()
            self._catalog.bind()
            self._catalog.states = dict(self._store.shard_states.load())
            self._outcomes.open(self._catalog.states, self._due.set_time())
            self._note_subscriptions_of_earlier_run()
            self._pause.begin()
            self._opened = True
        return self.pin_start(known_plan)

    def _note_subscriptions_of_earlier_run(self) -> None:
        """The newest plan says when its tasks have subscribed, so that this run waits for that."""
        pointer = self._store.plans.pointer() if self._consumer.is_wanted else None
        if pointer is not None:
            for task in self._store.plans.read_ends(pointer.id).values():
                for end in task.shards:
                    self._tips.on_subscribed(end)

    def is_paused(self) -> bool:
        """Whether the application is paused. A paused one still writes its history, and keeps its
        ownership.
        """
        if not self._pause.look():
            return False
        self._record_history()
        if not self.is_available_now:
            self._pause.hold(self._acquire)
        return True

    def _acquire(self) -> None:
        settings = self.settings
        owner = self._owner = self._owner or this_process(self.clock.now_ms())
        reads, size = settings.rate.own_limits()
        self._store.ownership.acquire(owner, timeout_s=settings.owner_wait_ms / 1000)
        self._run.begin(
            Run(
                owner=owner,
                kind=SPARK,
                session_timeout_ms=settings.zookeeper_session_timeout_ms,
                read_mode=settings.read_mode,
                max_records=settings.max_records_per_trigger,
                max_unresolved_per_shard=settings.max_unresolved_per_shard,
                reads_per_second=reads,
                bytes_per_second=size,
            )
        )

    def _refresh(self, pin: StartPin) -> None:
        """List the shards if it is time."""
        if self._catalog.refresh(pin):
            self._due.on_listed()

    def _settle_if_current(self, plan_id: str, pin: StartPin) -> None:
        """Settle the plan if it is the newest one and is not settled yet.

        Spark passes a plan only after its batch is in the commit log. When ZooKeeper points to
        another plan (new checkpoint location, restored backup), nothing is settled, and the records
        of that other plan are delivered again.
        """
        pointer = self._store.plans.pointer()
        if pointer is None or pointer.id != plan_id or pointer.status is PlanStatus.SETTLED:
            return
        # Settling raises the time up to which every shard counts as tracked. A shard that was
        # created before that time must have a state by then, so the shards are listed first.
        self._refresh(pin)
        settled = self._settled(plan_id, pin)
        self._catalog.states = settled.states
        self.came_back_empty = not any(settled.deliveries.emitted.values()) and any(
            not (end.at_tip or end.at_shard_end) for end in settled.ends
        )
        self._subscriptions.note(settled.ends)
        self._note_throttled(settled.ends)
        if any(end.fallback == Fallback.MISSING for end in settled.ends):
            self._consumer.forget()
        for end in settled.ends:
            # Its own tasks wait for the service's five seconds: plans say when these are over.
            if end.fallback == Fallback.IN_USE:
                self._shared_consumer.note(end.shard_id, self.clock.monotonic_s())
            if end.at_shard_end:
                self._catalog.expire()  # list the shards now: its children are new
            self._due.on_read(
                end,
                is_of_this_run=plan_id == self._plan_of_this_run,
                redelivered=end.shard_id in settled.redelivered,
            )
        # Older plans are removed only now: a replayed batch that skips its reads finds its ends.
        for old in self._store.plans.known():
            if plan_number(old) < plan_number(plan_id):
                self._store.plans.remove(old)
        self._outcomes.on_settled(plan_id, settled, self._due.set_time())
        self._on_unknown(settled.unknown_shards)

    def _note_throttled(self, ends: Iterable[ShardReadResult]) -> None:
        now_ms = self.clock.now_ms()
        for end in ends:
            if end.throttled:
                self._throttled = throttled_again(
                    self._throttled, end.shard_id, now_ms, count=end.throttled
                )
        self._run.throttled(self._throttled)

    def _settled(self, plan_id: str, pin: StartPin) -> Settled:
        once = partial(
            settle,
            self._store.plans,
            self._store.shard_states,
            self._store.reports,
            plan_id,
            states_per_write=self.settings.states_per_write,
            tracked_since_ms=self._catalog.tracked_since_ms(pin),
            on_lapsed=self._catalog.report_lapsed,
            plan=self._plan_in_memory(plan_id),
        )
        try:
            return once(known=self._catalog.states)
        except ConflictError:  # the answer to an earlier write was lost; or an operator's repair
            self._catalog.load()
            return once(known=self._catalog.states)

    def _on_unknown(self, shards: Collection[str]) -> None:
        """Note that the service answered not to know these shards.

        One such answer proves nothing: the next listings do. Until then the shards' retries are not
        asked for again and again, but every few seconds.
        """
        if shards:
            self._catalog.expire()
            self._outcomes.queue.hold(shards, self._due.now_ms() + round(RELIST_S * 1000))

    def _record_history(self, *, at_once: bool = False) -> None:
        self._history.record(
            self._catalog.states,
            now_ms=self._catalog.known_now_ms(),
            retention_ms=self._catalog.retention_ms,
            at_once=at_once,
        )

    # making a plan --------------------------------------------------------------------------------
    def _create_plan(self, start: str, shards: Sequence[str], limits: PlanLimits) -> str | None:
        """Store a plan and return its id; None when there is nothing to plan."""
        now_ms = self.clock.now_ms()
        is_wanted = bool(shards) or self._due.has_retries()
        retries = self._outcomes.queue.due(self._due.now_ms()) if is_wanted else {}
        if not shards and not retries:
            return None
        number = self._next_number(start)
        now_s = self.clock.monotonic_s()
        plan = make_plan(
            make_plan_id(number, secrets.token_hex(NONCE_BYTES)),
            shards,
            self._catalog.verified_states({*shards, *retries}),
            limits,
            endings=self._catalog.endings(),
            iterators=self._tips.iterators(shards, now_s),
            next_reads=self._tips.next_reads([*shards, *retries], now_ms),
            next_subscribes=self._tips.next_subscribes(shards, now_ms),
            hash_keys=self._catalog.hash_key_ranges(),
            now_ms=now_ms,
            until_ms=self._due.until_ms,
            turn=number,
            retries=retries,
            gone=self._catalog.gone(),
            in_order=self._outcomes.queue.in_order,
            outages=self._outcomes.outages,
            delivery_limit=self._outcomes.delivery_limit,
        )
        self._store.plans.create(plan)
        failpoint("plan-created")
        self._due.on_planned(now_s)
        self._newest_plan = self._plan_of_this_run = plan.plan_id
        self._created_plan = plan
        return plan.plan_id

    def _plan_in_memory(self, plan_id: str) -> Plan | None:
        """The plan, if this process has created it and no later one: plans never change."""
        plan = self._created_plan
        return plan if plan is not None and plan.plan_id == plan_id else None

    def _next_number(self, start: str) -> int:
        """A plan number above all in Spark's log and in ZooKeeper, since either may have been
        restored from a backup, and the states may have been moved to another ZooKeeper.
        """
        if self._newest_plan:  # the owner alone makes plans, and this process has read them all
            return 1 + max(map(plan_number, filter(None, (start, self._newest_plan))))
        pointer = self._store.plans.pointer()
        seen = [
            start,
            pointer.id if pointer else "",
            *self._store.plans.known(),
            *self._settled_plans(),
        ]
        return 1 + max((plan_number(plan_id) for plan_id in seen if plan_id), default=0)
