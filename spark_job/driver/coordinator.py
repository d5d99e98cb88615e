"""The driver's side of one stream: owns the application's state, plans batches and settles them.
`Backlog` decides what to plan and how long to wait; `StreamPlans` decides what runs again after a
restart.

Spark's protocol, as observed on PySpark 4.3.0, and how this module deals with each part of it:

- Spark passes plan k to `latestOffset(start)` only after batch k is in Spark's commit log. This is
  also true after a restart, and at the end of an AvailableNow run, where Spark never calls
  `commit(k)`. So plan k is settled then, and the reader does not implement `commit`.
- Spark calls `initialOffset` twice in batch 0, and again when it replays batch 0. The calls cannot
  be distinguished. So `initialOffset` does nothing, and `settle` or `tasks` pins the start: they
  receive the plan that Spark knows, and a plan without a pinned start is data loss.
- A restart may begin with `partitions` for a replayed batch, without a call of `latestOffset`. So
  both `settle` and `tasks` acquire the ownership, unless this process has it already.
- Planning processes construct a reader too. So the constructor does no I/O.
- The default trigger calls `latestOffset` every 10 ms. So `QueryDriver` waits up to `idleWait`.
- An error in any call ends the query. So the client and the store retry transient faults.
- Spark ends a query by a SIGTERM to the worker. The reader handles it, and `close` releases the
  ownership. A killed worker releases nothing. So the ownership is ephemeral, and a successor waits
  until the old session has expired.
- A stateful query runs batches without data. So plans have their own numbers and never use Spark's
  batch ids.

While the application is paused, the driver settles the last plan, makes no new plan and sends no
request to Kinesis. A batch that is running, or that Spark replays, is read to its end. When the
pause ends, the driver looks for new shards and lost records, as after a restart.

ZooKeeper is the authority on what has been consumed. Everything in this object's memory is a cache
that may be lost at any time. Every method except `report` blocks on ZooKeeper and Kinesis. Spark
calls all of them from one thread.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesis_spout.application.session import STANDS_STILL, ApplicationSession
from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from kinesis_spout.reading.subscriptions import SharedConsumer
from kinesis_spout.service.consumers import OwnConsumer
from kinesis_spout.service.shard_info import HOUR_MS
from kinesis_spout.shards.catalog import RELIST_S, ShardCatalog
from kinesis_spout.shards.start_position import OLDEST
from spark_job.driver.backlog import (
    IDLE_INTERVAL_S,
    POLL_S,
    PROBE_MAX_SHARDS,
    AvailableNowRun,
    Backlog,
    Found,
    ShardTips,
)
from spark_job.driver.outcome_summary import OutcomeSummary
from spark_job.driver.planner import make_plan, new_records
from spark_job.driver.retry_queue import RetryQueue
from spark_job.driver.stream_plans import StreamPlans
from spark_job.settings import EFO
from state.errors import StoreUnavailableError
from state.failpoint import failpoint
from state.plan import Fallback, Plan, ShardSlice, TaskPlan, make_plan_id
from state.position import Position
from state.process import this_process
from state.store.runs import DONE, SPARK, Run, throttled_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.shards.start_position import RequestedStart
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult
    from state.shard_state import ShardState
    from state.store.identity import StartPin
    from state.store.runs import Throttle

log = logging.getLogger("kinesis_spout")
NONCE_BYTES = 6
# The service's Date header has whole seconds, and arrival times are approximate.
UNTIL_MARGIN_MS = 2_000
MIN_RETENTION_MS = 24 * HOUR_MS  # a stream's retention cannot be shorter
MAX_REPORTED_SHARDS = 100
_START_WAIT_S = 15.0  # a new consumer is CREATING for some seconds
_LOOK_AGAIN_S = 0.5
_ASK_AGAIN_S = 60.0


class Coordinator:
    """Plans and settles one stream of a query. `close` releases the ownership.

    `QueryDriver` calls `settle`, `look` and `plan`, in this order, for all of its streams.
    `session`: the application's session. `plans`: the stream's plans.
    """

    def __init__(
        self,
        settings: SourceSettings,
        services: ProcessServices,
        *,
        probe_max_shards: int = PROBE_MAX_SHARDS,
        idle_interval_s: float = IDLE_INTERVAL_S,
    ) -> None:
        store = services.store
        self.settings = settings
        self.clock = services.clock
        self._store = store
        self._tips = ShardTips()
        self._catalog = ShardCatalog(
            services.client,
            services.clock,
            self._tips,
            refresh_interval_s=settings.shard_refresh_interval_ms / 1000,
            fail_on_data_loss=settings.fail_on_data_loss,
            identity=store.identity,
            shard_states=store.shard_states,
            shard_list=store.shard_list,
        )
        self.session = ApplicationSession(
            settings.application, store, services.clock, self._catalog
        )
        self.plans = StreamPlans(
            store.plans,
            store.shard_states,
            store.reports,
            self._catalog,
            settings.aggregated_records,
        )
        self._retries = RetryQueue()
        self._outcomes = OutcomeSummary(settings, store.plans, store.reports, self._retries)
        self._backlog = Backlog(
            settings,
            services,
            tips=self._tips,
            catalog=self._catalog,
            outcomes=self._outcomes,
            retries=self._retries,
            probe_max_shards=probe_max_shards,
            idle_interval_s=idle_interval_s,
        )
        self._subscriptions = QuerySubscriptions(settings, services.client, services.clock)
        self._throttled: dict[str, Throttle] = {}

    def prepare_available_now(self) -> None:
        """Begin an AvailableNow run. It ends when every shard is read up to the service's present
        time and all failed records are retried.
        """
        stream = self._catalog.stream
        stream.describe()
        stream.expire()  # only a new listing shows which shards are closed now
        self._backlog.run = AvailableNowRun(stream.now_ms() + UNTIL_MARGIN_MS)
        self.plans.newest = None

    @property
    def is_available_now(self) -> bool:
        return self._backlog.run is not None

    # opening --------------------------------------------------------------------------------------
    def open(self, known_plan: str = "") -> StartPin:
        """Own the application, unless this process does already, and return its pinned start.

        `known_plan`: a plan that Spark's checkpoint names, or "". With such a plan, a missing pin
        means that ZooKeeper has lost the application's state: raises `DataLossError`, or, if
        `failOnDataLoss` is false, starts at the oldest record regardless of the requested start.
        """
        if not self.session.is_loaded:
            settings = self.settings
            reads, size = settings.rate.own_limits()
            run = Run(
                owner=this_process(self.clock.now_ms()),
                kind=SPARK,
                session_timeout_ms=settings.zookeeper_session_timeout_ms,
                read_mode=settings.read_mode,
                tells_errors=settings.ends_reported,
                max_records=settings.max_records_per_trigger,
                max_unresolved_per_shard=settings.max_unresolved_per_shard,
                reads_per_second=reads,
                bytes_per_second=size,
            )
            self.session.claim(run, timeout_s=settings.owner_wait_ms / 1000)
            self.session.load()
            self._outcomes.open(self._states, self._backlog.set_time())
            # The newest plan's logs say when its tasks subscribed: Kinesis refuses a second
            # subscription within five seconds, so this run waits.
            pointer = self._store.plans.pointer() if self._subscriptions.are_wanted else None
            if pointer is not None:
                for task in self._store.plans.read_results(pointer.id).values():
                    for read in task.shards:
                        self._tips.on_subscribed(read)
        return self.session.pin_start(partial(self._requested_start, known_plan))

    def _requested_start(self, known_plan: str) -> RequestedStart:
        """The start to pin. If Spark or ZooKeeper knows an earlier plan, the application's state is
        lost: reports the loss, and returns the oldest record.
        """
        plan_id = known_plan or self.plans.newest_settled()
        if not plan_id:
            return self.settings.starting_position
        application, stream = self.settings.application, self.settings.stream.name
        reset = self._store.identity.read_reset()
        if reset is None:
            what = (
                f"Spark's checkpoint refers to batch {plan_id}, but ZooKeeper has no state of "
                f"application {application} on stream {stream}. If applicationName, the stream or "
                "zookeeper was changed, correct the option. If ZooKeeper lost its data, restore "
                "the data. If the application was reset, give the query a new checkpointLocation"
            )
        else:
            by = f"pid {reset.pid} on {reset.host}, {Position.at_timestamp(reset.since_ms)}"
            what = (
                f"Spark's checkpoint refers to batch {plan_id}, but kinesis-spout reset "
                f"({by}) has removed the state of application {application} on stream {stream}. "
                "Give the query a new checkpointLocation"
            )
        self._catalog.loss.report(what, going_on="The stream is read from its oldest record")
        return OLDEST

    # settling -------------------------------------------------------------------------------------
    def settle(self, start: str) -> bool | None:
        """Settle plan `start`, if it is the newest plan and is not settled yet. Spark passes a plan
        only after its batch is in the commit log.

        Returns whether the plan returned no record although one of its shards is behind; None if
        there was nothing to settle.
        """
        pin = self.open(start)
        if not self.plans.is_unsettled(start):
            self._end_tracking()
            return None
        # Settling advances the time up to which every shard counts as tracked. A shard that was
        # created before that time must have a state by then. So the shards are listed first.
        plan, kept_ms = self.plans.known(start), self._catalog.stream.now_ms() - MIN_RETENTION_MS
        slices = {} if plan is None else plan.slices
        if any((shard.verified_until_ms or kept_ms) < kept_ms for shard in slices.values()):
            # Where the retention was lowered, only the states from before show what it has cost.
            self._catalog.stream.expire()
        self._refresh(pin, plan)
        tracked_since_ms = self._catalog.tracked_since_ms(pin)  # before any state is written
        # After a conflict, the states are loaded again and the plan is settled again.
        settled = self.session.on_stored(
            lambda: self.plans.settle(start, tracked_since_ms=tracked_since_ms)
        )
        new_reads, now_ms = settled.new_reads, self.clock.now_ms()
        self._subscriptions.note(new_reads)
        is_of_this_run = self.plans.made(start) is not None
        for read in new_reads:
            if read.throttled:
                self._throttled = throttled_again(
                    self._throttled, read.shard_id, now_ms, count=read.throttled
                )
            if read.at_shard_end:
                self._catalog.stream.expire()  # list the shards now: its children are new
            self._backlog.on_read(
                read,
                is_of_this_run=is_of_this_run,
                redelivered=read.shard_id in settled.redelivered,
            )
        self.session.run.write(throttled=self._throttled)
        # Older plans are removed only now, because a replayed batch needs the logs of its plan.
        self.plans.remove_before(start)
        self._outcomes.on_settled(
            start,
            settled,
            self._states,
            self._backlog.set_time(),
            is_available_now=self.is_available_now,
        )
        self._end_tracking()
        if unknown := [read.shard_id for read in settled.reads if read.gone]:
            # One such response does not prove that the shard is gone; the next listings do. Until
            # then, the retries of these shards are read every few seconds only.
            self._catalog.stream.expire()
            self._retries.delay(unknown, self._backlog.now_ms() + round(RELIST_S * 1000))
        return not any(read.count or read.retry_rows for read in settled.reads) and any(
            not (read.at_tip or read.at_shard_end) for read in new_reads
        )

    def _end_tracking(self) -> None:
        self._outcomes.end_tracking(self._states, self._backlog.now_ms())

    @property
    def _states(self) -> Mapping[str, ShardState]:
        """The states of all shards, as last loaded or stored."""
        return self._catalog.view.lineage.states

    def _refresh(self, pin: StartPin, unsettled: Plan | None = None) -> None:
        """List the shards if a listing is due. `unsettled`: see `ShardCatalog.refresh`."""
        if self._catalog.refresh(pin, unsettled) and self._backlog.run is not None:
            self._backlog.run.note_closed(self._catalog.stream.listing.shards)

    # looking --------------------------------------------------------------------------------------
    def look(self, begun_s: float) -> Found:
        """Look once for records to plan. Call it after `settle`. `begun_s`: the start of the wait.

        While the application is paused, it still writes its history and keeps its ownership. An
        AvailableNow run does not wait for the end of a pause.
        """
        meanwhile = (
            ("the application is paused, so this AvailableNow run is ending")
            if self.is_available_now
            else STANDS_STILL
        )
        if self.session.is_paused(meanwhile=meanwhile):
            self.session.record_history()
            self.session.keep_during_pause()
            waited_s = self.clock.monotonic_s() - begun_s
            waits = not self.is_available_now and waited_s < self.settings.idle_wait_ms / 1000
            return Found(pause_s=POLL_S if waits else None, is_paused=True)
        self._refresh(self.open())
        # Only after settling: a shard that is given up no longer matches a plan that has read it.
        self._catalog.drop_missing_shards()
        self._retries.end_delay(self._catalog.loss.gone)
        self.session.record_history()
        return self._backlog.look(begun_s)

    def note_waited(self, seconds: float) -> None:
        """Note that the query has waited for this time since the last look."""
        if self._backlog.run is not None:
            self._backlog.run.waited_s += seconds

    def end_run(self, *, is_paused: bool) -> None:
        """End an AvailableNow run, which has nothing left to plan. Warn about unread records. The
        next run may begin just before the retention has passed, so the times up to which this run
        has verified the shards are stored now.
        """
        if is_paused:
            self.session.run.end(
                DONE, "the application was paused, so the run did not read all records"
            )
        else:
            with suppress(StoreUnavailableError):
                self.session.on_stored(partial(self._catalog.save_verified, at_once=True))
            self.session.record_history(at_once=True)
            self.session.run.end(DONE, self._backlog.leftovers())

    # planning -------------------------------------------------------------------------------------
    def plan(
        self,
        start: str,
        found: Found,
        *,
        max_records: int | None,
        max_tasks: int,
        max_search_ms: int | None,
    ) -> str | None:
        """Store a plan for the shards that the last look has found, and return the plan's id; None
        if there is nothing to plan. `max_search_ms`: a limit below that of the option, or None.

        Every wait ends with this call, even for a stream without records. So it also stores the
        times up to which the looks have verified the shards, and whether shards are subscribed to.
        """
        self._catalog.save_verified()
        consumer_arn = self._subscriptions.consumer_arn()
        self.session.run.not_subscribed(self._subscriptions.why_polled())
        shards, settings = found.shards, self.settings
        retries = self._retries.due(self._backlog.now_ms()) if found.is_any else []
        if not shards and not retries:
            return None
        members, run = {*shards, *(shard for shard, _ in retries)}, self._backlog.run
        now_ms, now_s = self.clock.now_ms(), self.clock.monotonic_s()
        number = self.plans.next_number(start)
        plan = make_plan(
            Plan(
                plan_id=make_plan_id(number, secrets.token_hex(NONCE_BYTES)),
                created_ms=now_ms,
                tasks=(),
                until_ms=None if run is None else run.until_ms,
                outages=self._outcomes.outages,
                delivery_limit=found.delivery_limit,
            ),
            TaskPlan(
                shards=(),
                max_bytes=settings.max_bytes_per_task,
                fetch_time_ms=settings.max_fetch_time_ms,
                fetch_cap_ms=max(
                    settings.max_fetch_time_ms,
                    max_search_ms or settings.max_search_time_ms,
                ),
                retention_ms=self._catalog.stream.retention_ms,
                aggregated_records=settings.aggregated_records,
                consumer_arn=consumer_arn,
            ),
            shards,
            self._slices(members, now_s, now_ms),
            max_tasks=max_tasks,
            max_records=min(filter(None, (max_records, found.delivery_limit)), default=None),
            turn=number,
            retries=retries,
            in_order=self._retries.in_order,
        )
        self.plans.create(plan)
        failpoint("plan-created")
        self._backlog.newest_plan_s = now_s
        return plan.plan_id

    def _slices(self, members: Iterable[str], now_s: float, now_ms: int) -> dict[str, ShardSlice]:
        """The slices of these shards, without retries, each with its limit of new records."""
        stream, slices = self._catalog.stream, {}
        endings, hash_keys = stream.endings(), stream.hash_key_ranges()
        most = self.settings.max_records_per_shard
        max_unresolved = self._outcomes.max_unresolved_per_shard
        for shard, state in self._catalog.verified_states(members).items():
            tip, keys = self._tips.of(shard), hash_keys.get(shard)
            slices[shard] = ShardSlice(
                shard_id=shard,
                position=state.read_position,
                max_records=new_records(state, most, max_unresolved),
                iterator=tip.iterator_at(now_s),
                next_read_ms=tip.next_read_at(now_ms),
                next_subscribe_ms=tip.next_subscribe_at(now_ms),
                ending_sequence=endings.get(shard),
                verified_until_ms=state.verified_until_ms,
                hash_keys=(
                    None if keys is None or keys.is_whole else (str(keys.first), str(keys.last))
                ),
                gone=shard in self._catalog.loss.gone,
            )
        return slices

    # running --------------------------------------------------------------------------------------
    def tasks(self, plan_id: str, *, known_plan: str = "") -> dict[int, TaskPlan]:
        """Return the tasks of a plan to run now, by number (`StreamPlans.tasks`). `known_plan`: see
        `open`; it is used if the batch has no plan of this stream.
        """
        self.open(plan_id or known_plan)
        if plan_id:  # otherwise this stream's batch of an earlier run may still be unsettled
            self._end_tracking()
        return self.plans.tasks(plan_id)

    def report(self) -> dict[str, Any]:
        """Return the source's part of Spark's progress report: the newest plan, the lag in
        milliseconds of arrival time, and the outcomes. Does no I/O.

        Spark repeats it in every progress report, so it contains single shards only if the stream
        has at most `MAX_REPORTED_SHARDS`.
        """
        lags_ms, newest = self._catalog.lags_ms(), self.plans.newest
        named = lags_ms if len(lags_ms) <= MAX_REPORTED_SHARDS else {}
        return {
            "format": 1,
            "application": self.settings.application,
            "stream": self.settings.label,
            "plan": "" if newest is None else newest.plan_id,
            "lagMs": max(lags_ms.values(), default=0),
            "retentionMs": self._catalog.stream.retention_ms,
            "readableShards": len(self._catalog.view.readable),
            "dataLosses": self._catalog.loss.reports,
            **self._outcomes.report(self._backlog.now_ms()),
            **self._subscriptions.report(),
            "shards": {
                shard_id: {"lagMs": lag_ms, **self._outcomes.of_shard(shard_id)}
                for shard_id, lag_ms in sorted(named.items())
            },
        }

    def close(self) -> None:
        self._backlog.close()
        self._store.close()


class QuerySubscriptions:
    """The enhanced fan-out of one stream's tasks: the registered consumer that they use, and how
    many records they received by subscription in the plans that this run has settled. Without a
    consumer if the stream is polled. For the driver's thread.
    """

    def __init__(self, settings: SourceSettings, client: KinesisClient, clock: Clock) -> None:
        name, arn = settings.consumer_name, settings.consumer_arn
        self._label = settings.label
        self._clock = clock
        self._own = (
            OwnConsumer(client, name=name, arn=arn, clock=clock)
            if settings.read_mode == EFO
            else None
        )
        self._shared = SharedConsumer(name or arn or "", option="consumerName")
        self._start_wait_s, self._ask_at_s = _START_WAIT_S, float("-inf")
        self._no_consumer: KinesisError | None = None  # why no consumer is usable
        self._is_refused = False  # Kinesis has refused all recent subscriptions
        self._records: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()

    @property
    def are_wanted(self) -> bool:
        """Whether the query should read by subscription."""
        return self._own is not None

    def consumer_arn(self) -> str | None:
        """Return the consumer's ARN; None while no consumer is ACTIVE, so that the tasks poll.

        Registers a missing consumer if that is allowed. The first call waits up to 15 s until the
        consumer is ACTIVE; later calls check once a minute and do not wait. Errors of Kinesis are
        logged, not raised.
        """
        now_s = self._clock.monotonic_s()
        if self._own is None or now_s < self._ask_at_s:
            return None
        until_s, self._start_wait_s = now_s + self._start_wait_s, 0.0
        while True:
            try:
                arn = self._own.active_arn()
                break
            except KinesisError as exc:
                now_s = self._clock.monotonic_s()
                if exc.retryable and now_s < until_s:
                    self._clock.sleep(_LOOK_AGAIN_S)
                    continue
                self._ask_at_s = now_s + _ASK_AGAIN_S
                if self._no_consumer is None:
                    log.warning(
                        "stream %s is read with GetRecords, because its enhanced fan-out "
                        "consumer cannot be used (%s). The job tries the consumer again every "
                        "minute",
                        self._label,
                        exc,
                    )
                self._no_consumer = exc
                return None
        if self._no_consumer is not None:
            log.warning("stream %s is read by subscription again", self._label)
        self._no_consumer = None
        return arn

    def note(self, reads: Iterable[ShardReadResult]) -> None:
        """Count how the tasks of a settled plan have read: by subscription or by polling."""
        is_missing = False
        for read in reads:
            if read.pushed or read.fallback is not None:
                self._is_refused = read.fallback == Fallback.REFUSED
            self._records["pushed"] += read.pushed
            self._records["polled"] += max(0, read.count - read.pushed)
            if read.fallback is not None:
                self._fallbacks[read.fallback] += 1
            is_missing |= read.fallback == Fallback.MISSING
            # Tasks of this query wait for Kinesis's five seconds, because their plan says so. So
            # another process uses the consumer.
            if read.fallback == Fallback.IN_USE:
                self._shared.note(read.shard_id, self._clock.monotonic_s())
        if is_missing and self._own is not None:
            # Kinesis did not find the consumer or the shard for a task: look the consumer up again.
            self._own.forget()

    def why_polled(self) -> KinesisError | None:
        """Why shards are polled that should be read by subscription; None if none is polled."""
        if self._no_consumer is not None:
            return self._no_consumer
        if taken := self._shared.conflict(self._clock.monotonic_s()):
            return taken
        if not self._is_refused:
            return None
        return ServiceUnavailableError(
            "Kinesis did not open a subscription (SubscribeToShard)",
            "allow the IAM role or user of the executors to call SubscribeToShard on the consumer",
        )

    def report(self) -> dict[str, Any]:
        """Return the part for the progress report; empty if the stream is polled by choice.
        `fallbacks`: the number of reads of a shard that ended without a subscription, by cause.
        """
        if not self.are_wanted:
            return {}
        return {
            "pushedRecords": self._records["pushed"],
            "polledRecords": self._records["polled"],
            "fallbacks": dict(sorted(self._fallbacks.items())),
        }
