"""The standalone spout: delivers a stream record by record in one Python process, with the
guarantees of the Spark source.

    config = SpoutConfig(stream="orders", application="billing", zookeeper="zk:2181")
    with KinesisSpout(config) as spout:
        for emission in spout.emissions():
            with emission:
                bill(emission.data)

Every record is delivered until it is acked, or exhausted and dead-lettered. The checkpoint moves
only over acked records without a gap. After a crash, records that were not acked are delivered
again with their attempts counted on, and so are records acked since the last commit.

`KinesisSpout` is what a program has. Behind it, from its opening to its closing, is a
`SpoutSession`: the parts of the spout, and the threads that run them. The lock around what they
share is the scheduler's.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from kinesis_spout.clock import SteadyTime
from kinesis_spout.errors import (
    ConfigError,
    FailRecordError,
    InterruptedSleepError,
    KinesisError,
    described,
    error_sentence,
    malformed_reason,
)
from kinesis_spout.spout.assigner import SpoutAssigner
from kinesis_spout.spout.committer import SpoutCommitter
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.dead_letter_queue import SpoutDeadLetterQueue
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.fetching import SpoutPrefetcher, SpoutRetryFetcher
from kinesis_spout.spout.listener import SpoutNotifier
from kinesis_spout.spout.metrics import SpoutMetrics, WaitTimes
from kinesis_spout.spout.outages import AnswerWatch, SpoutHealth, SpoutOutages, SpoutPart
from kinesis_spout.spout.scheduler import SpoutScheduler
from kinesis_spout.spout.services import SpoutContext, SpoutServices
from scheme.errors import MalformedRecordError, SchemeUnavailableError
from state.errors import StateError, StoreUnavailableError
from state.shard_state import TIMED_OUT
from state.store.runs import DONE, STOPPED
from state.tracker.inflight_record_tracker import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from kinesis_spout.threads import Loop
    from state.sequence_number import SequenceNumber

__all__ = ["FailRecordError", "KinesisSpout", "SpoutClosedError", "SpoutConfig", "SpoutEmission"]
log = logging.getLogger("kinesis_spout")
_NO_DEADLINE_S = 60.0
MAX_MALFORMED_PER_CALL = 100
_GRACE_S = 0.5  # for the last commit and the release, when the letters took all the time
_REST_S = 0.5  # for threads that are still busy; they are left running after that


class SpoutClosedError(KinesisError):
    """The spout is not open."""


class KinesisSpout:
    """The constructor does no I/O. Only one thread at a time may call `next_tuple`; all other
    methods are thread-safe.

    `services` are a test's or simulation's connections. Without them, the spout creates its own
    from the configuration. Raises `ConfigError` if `config` is not a `SpoutConfig`.

    In a forked process, the spout is closed: its records, threads and connections belong to the
    process that has opened it. Outcomes that are given in a forked process do not count.
    """

    def __init__(self, config: SpoutConfig, *, services: SpoutServices | None = None) -> None:
        if not isinstance(config, SpoutConfig):
            raise ConfigError.about(
                "config",
                f" of KinesisSpout is of type {type(config).__name__}",
                'pass a SpoutConfig, such as SpoutConfig(stream="orders")',
                kind="parameter",
            )
        self.config = config
        self._given = services
        self._session: SpoutSession | None = None
        self._ended: SpoutSession | None = None
        self._active = config.start_active
        self._waits = WaitTimes()
        self._is_open = False
        # Held while the spout is opened, closed or activated. A listener that is called while the
        # spout is opened may close it.
        self._switch_lock = threading.RLock()
        # Set by `activate` and `close`: ends the wait of an inactive spout.
        self._activated = threading.Event()

    # lifecycle ------------------------------------------------------------------------------------
    def open(self) -> None:
        """Connect, acquire the ownership, and start to read ahead. Waits up to `owner_wait_s` for
        an earlier owner's session to expire.

        Raises `KinesisError` and `state.errors.StateError`; nothing stays open then. A closed spout
        can be opened again, and continues. An inactive spout does all this when it is activated.
        """
        with self._switch_lock:
            if self._is_open:
                raise SpoutClosedError(
                    "the spout is already open", "close the spout before you open it again"
                )
            self._is_open = True
            _OPENED.add(self)
            try:
                self._connect()
            except BaseException:
                self._is_open = False
                raise

    def close(self, *, crashed: bool = False, error: BaseException | None = None) -> None:
        """Stop reading, commit, write the due dead letters, and release the ownership. Emissions
        without an outcome are redelivered. Idempotent. Takes at most a second longer than
        `close_timeout_s`; records that are not stored by then are logged and redelivered. If
        another thread is opening or activating the spout, `close` first waits for it, which may
        take longer than `owner_wait_s`.

        `crashed`: a worker process ended without answering its records. This counts as if the
        spout's own process had ended: a record that ends its worker at each delivery is
        dead-lettered after a few restarts.

        `error`: why the program is ending, which `kinesis-spout explain` then shows, without
        secrets. A `with` block passes on the error that leaves it.

        Any thread may call `close`, but a signal handler may not: the interrupted thread may hold
        the spout's lock. In a handler, raise an exception that ends the `with` block, or set a flag
        that the `stop` function of `emissions` checks.
        """
        with self._switch_lock:
            session, self._session = self._session, None
            self._is_open = False
            self._activated.set()
        if session is not None:
            self._ended = session
            session.end(crashed=crashed, error=error)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close(error=error if isinstance(error, Exception) else None)

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def has_ended(self) -> bool:
        """Whether all records up to `until`, `max_records` or the ends of all shards were delivered
        and have an outcome.

        A background thread detects this, so the value becomes true a little later.
        """
        session = self._session
        return session is not None and session.has_ended

    @property
    def is_active(self) -> bool:
        return self._active

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the application (`kinesis-spout pause`). During a pause,
        no record is delivered, but outcomes are accepted and committed.
        """
        session = self._session
        return session is not None and session.scheduler.rotation.is_paused

    def activate(self) -> None:
        """Start delivering records (again). Connects as `open` does, if that was deferred."""
        with self._switch_lock:
            self._active = True
            if self._is_open:
                self._connect()
            self._activated.set()
        if (session := self._session) is not None:
            session.activated(is_active=True)

    def deactivate(self) -> None:
        """Stop delivering records, and commit. Outcomes and timeouts still count."""
        self._active = False
        if (session := self._session) is not None:
            session.activated(is_active=False)

    # emissions ------------------------------------------------------------------------------------
    def next_tuple(self) -> SpoutEmission | None:
        """The next record; None if no record is ready, the spout is inactive, or `max_pending`
        emissions are pending.

        Never blocks on the network, except in a scheme that looks something up there
        (`GlueScheme`). Raises `SpoutClosedError`, or the error that has stopped the spout.
        """
        if self._session is None and self._is_open:
            return None  # opened inactive, and not connected yet
        session = self._open_session()
        return session.emit() if self._active else None

    def emissions(self, stop: Callable[[], bool] | None = None) -> Iterator[SpoutEmission]:
        """Yield emissions as records arrive. While none is ready, wait according to the
        configuration's wait strategies.

        Ends when the spout `has_ended` or is closed, or when `stop()` is true. `stop` is called
        before each emission and each wait. Raises `SpoutClosedError` for a spout that was never
        open, and the error that has stopped the spout.
        """
        if not self._is_open and self._ended is None:
            self._open_session()
        streak = 0
        while self._is_open and (stop is None or not stop()):
            session = self._session
            if session is not None:
                emit = session.emit  # bound once: the inner loop runs once per record
                while (
                    self._active and self._session is session and (emission := emit()) is not None
                ):
                    streak = 0
                    yield emission
                    if stop is not None and stop():
                        return
            streak += 1
            if session is None:
                self._activated.wait(self.config.idle_wait(streak))
            elif session.scheduler.error is not None:
                raise session.scheduler.error
            elif session.has_ended:
                return
            else:
                self._wait(session, streak)

    def _wait(self, session: SpoutSession, streak: int) -> None:
        scheduler = session.scheduler
        at_limit = scheduler.rotation.at_limit
        strategy = self.config.limit_wait if at_limit else self.config.idle_wait
        waited_s = scheduler.wait(
            strategy(streak),
            lambda: self._session is not session or (self._active and session.may_emit()),
        )
        if at_limit:
            self._waits.at_limit_s += waited_s
        else:
            self._waits.idle_s += waited_s

    # outcomes -------------------------------------------------------------------------------------
    def ack(self, message_id: str) -> bool:
        """As `SpoutEmission.ack`, by message id. False for an unknown one; raises ValueError for a
        malformed one.
        """
        return self._answer(message_id, SpoutEmission.ack, acked=True)

    def fail(self, message_id: str, reason: str | None = None, *, retry: bool = True) -> bool:
        """As `SpoutEmission.fail`, by message id. False for an unknown one; raises ValueError for a
        malformed one.
        """
        return self._answer(message_id, lambda one: one.fail(reason, retry=retry), acked=False)

    def _answer(
        self, message_id: str, answer: Callable[[SpoutEmission], bool], *, acked: bool
    ) -> bool:
        shard_id, sequence, attempt = parse_message_id(message_id)
        if (session := self._session) is None:
            return False
        if (emission := session.find(shard_id, sequence, attempt)) is not None:
            return answer(emission)
        return session.scheduler.answer_unheld(shard_id, sequence, attempt, acked=acked)

    # observations ---------------------------------------------------------------------------------
    def metrics(self) -> SpoutMetrics:
        """Counts per shard and in total since the spout was opened, all from the same moment.
        O(shards).

        For a spout that was closed or stopped by an error, these are its last counts. Raises
        `SpoutClosedError` for a spout that was never open, or never active.
        """
        return (self._session or self._ended or self._open_session()).metrics(self._waits)

    def health(self) -> SpoutHealth:
        """Whether the spout can do its work; if not, since when and why. By default, an outage does
        not stop a spout (`give_up_after_s`), but shows here. Cheap enough for a probe.

        Also works for a spout that was closed or stopped by an error. Raises `SpoutClosedError` for
        a spout that was never open, or never active.
        """
        return (self._session or self._ended or self._open_session()).health()

    # private --------------------------------------------------------------------------------------
    def _connect(self) -> None:
        if self._active and self._session is None:
            self._activated.clear()
            self._session = SpoutSession.begin(self.config, self._given)
            if not self._is_open:  # a listener has closed it meanwhile
                self.close()

    def _open_session(self) -> SpoutSession:
        session = self._session
        if session is None:
            what, remedy = "is not open", "call open(), or use the spout in a with statement"
            if self._is_open:
                what, remedy = "has not been active since it was opened", "call activate()"
            raise SpoutClosedError(f"the spout {what}", remedy)
        if session.scheduler.error is not None:
            raise session.scheduler.error
        return session

    def _leave(self) -> None:
        """In a forked process: close this copy, without a word to the store. Another thread may
        have held any lock when the process was forked.
        """
        self._switch_lock, self._activated = threading.RLock(), threading.Event()
        self._ended, self._session, self._is_open = self._session or self._ended, None, False
        if self._ended is not None:
            self._ended.scheduler.leave()


_OPENED: WeakSet[KinesisSpout] = WeakSet()


def _leave_all() -> None:
    for spout in _OPENED:
        spout._leave()  # noqa: SLF001  # of the same file


os.register_at_fork(after_in_child=_leave_all)


class SpoutSession:
    """Thread-safe. `begin` and `end` block on the network, and so does a call for a record after a
    silence (`_check_owner`).
    """

    def __init__(self, config: SpoutConfig, services: SpoutServices) -> None:
        self.hooks = SpoutNotifier(config.listeners, on_ack=config.on_ack, on_fail=config.on_fail)
        self.scheduler = SpoutScheduler(
            config,
            SteadyTime(services.clock, services.clock.now_ms()).exact_ms,
            hooks=self.hooks,
            wake=self._wake,
            check_owner=self._check_owner,
            random=services.random,
        )
        self._scheme = config.scheme
        # Where nothing is decoded or acked at once, and nobody listens to single records.
        is_plain = config.scheme is None and config.tracking and not self.hooks.any
        self.emit = self.scheduler.emit if is_plain else self._emit_decoded
        # It waits for its scheme's registry. No other record goes out meanwhile.
        self._undecoded: SpoutEmission | None = None
        self._loops: dict[str, Loop] = {}
        self._context = context = SpoutContext(
            config,
            services,
            self.scheduler,
            self.hooks,
            SpoutOutages(
                self.hooks, services.clock, services.random, give_up_after_s=config.give_up_after_s
            ),
        )
        self._fetching = SpoutPrefetcher(context)
        self._assigner = SpoutAssigner(context, self._fetching)
        self._committer = SpoutCommitter(context, self._assigner)
        self._dead_letters = SpoutDeadLetterQueue(context)
        self._retry_fetcher = SpoutRetryFetcher(context, self._assigner.catalog)
        self._answers = AnswerWatch(
            self.scheduler.stream_name, config.message_timeout_ms or 0, services.clock
        )

    @classmethod
    def begin(cls, config: SpoutConfig, given: SpoutServices | None) -> Self:
        """Open everything, or nothing. Blocks on the store and on Kinesis."""
        services = SpoutServices.connect(config) if given is None else given
        services.closing.clear()
        session = cls(config, services)
        steps = {
            "fetch": session._fetching.step,
            "timeouts": session._expire,
            "retries": session._retry_fetcher.step,
            "letters": session._dead_letters.step,
            "commit": session._committer.step,
            "coordinate": session._assigner.step,
        }
        with ExitStack() as stack:
            stack.callback(services.close)
            stack.callback(session._fetching.close)
            session._assigner.open()
            for name, step in steps.items():
                loop = services.start_loop(name, step, session._stopped_by)
                session._loops[name] = loop
                stack.callback(loop.stop)
            stack.pop_all()
        return session

    def activated(self, *, is_active: bool) -> None:
        """The program has activated or deactivated the spout: the next commit stores that."""
        now_ms = self._context.services.clock.now_ms()
        self._committer.deactivated_ms = None if is_active else now_ms
        if is_active:
            with self.scheduler.changed:
                self.scheduler.changed.notify_all()
        else:
            self._wake("commit")

    # emitting -------------------------------------------------------------------------------------
    def _emit_decoded(self) -> SpoutEmission | None:
        """Without tracking, each emission counts as acked at once. Records that the scheme cannot
        decode have their outcome here, and the next one is taken: malformed ones are
        dead-lettered, and those for which it raises another error fail.

        None after many of these in a row, so that a call stays short; and in an outage of what the
        scheme needs. The record then stays pending, without a deadline, and is decoded later.
        """
        scheduler, scheme = self.scheduler, self._scheme
        for _ in range(MAX_MALFORMED_PER_CALL):
            # Of a spout that an error has stopped, `emit` raises it.
            waiting = self._undecoded if scheduler.error is None else None
            if waiting is not None and not self._may_decode():
                return None
            emission = scheduler.emit() if waiting is None else waiting
            if emission is None:
                return None
            if not self._context.config.tracking:
                scheduler.resolve(emission, notifies=False)
            decoded = None
            try:
                decoded = emission if scheme is None else emission.decoded(scheme)
            except SchemeUnavailableError as exc:
                # It is no failure of the record: its attempt must not end by a timeout either.
                emission.extend(None)
                self._undecoded = emission
                try:
                    self._context.outages.failed(SpoutPart.SCHEME, exc)
                except SchemeUnavailableError:  # it is time to give up
                    self._stopped_by(exc)
                    raise
                return None
            except MalformedRecordError as exc:
                reason = malformed_reason(exc)
                scheduler.record_failure(emission, reason, retry=False, is_malformed=True)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever it raises is its record's failure
                emission.fail(f"its scheme raised {described(exc)}")
            if waiting is not None:
                # Not earlier: an interrupt in its scheme must not lose a record without a deadline.
                self._undecoded = None
                self._context.outages.succeeded(SpoutPart.SCHEME)
            if decoded is not None:
                if waiting is not None:
                    emission.extend(self._context.config.message_timeout_s)
                self.hooks.notify("emitted", decoded)
                if decoded.attempt > 1:
                    self.hooks.notify("retried", decoded)
                return decoded
        return None

    def _may_decode(self) -> bool:
        """Whether it is time to try the record that waits for its scheme's registry again."""
        outages, clock = self._context.outages, self._context.services.clock
        return clock.monotonic_s() >= outages.retry_at_s(SpoutPart.SCHEME)

    def _check_owner(self) -> None:
        """Raise if another process has taken over: it has got the records that are next here.

        No record was asked for a while, so this process may have been frozen, and its session may
        have expired. An outage of the store is left to the commits.
        """
        try:
            self._assigner.session.keep()
        except StoreUnavailableError:
            pass
        except StateError as exc:
            self._stopped_by(exc)
            raise

    def find(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> SpoutEmission | None:
        """The emission that a message id names, as it was emitted, if its payload is in memory;
        else None.
        """
        emission, scheme = self.scheduler.find(shard_id, sequence, attempt), self._scheme
        if emission is None or scheme is None:
            return emission
        try:
            return emission.decoded(scheme)
        except Exception:  # noqa: BLE001  # the outcome counts, whatever the scheme does now
            return emission

    @property
    def has_ended(self) -> bool:
        """See `KinesisSpout.has_ended`."""
        return self._assigner.has_ended

    def may_emit(self) -> bool:
        """Whether a call for a record may give one, or an error. The caller holds the lock."""
        scheduler = self.scheduler
        if self._undecoded is not None and scheduler.error is None:
            return self._may_decode()
        return (
            scheduler.error is not None
            or self.has_ended
            or scheduler.rotation.may_emit(int(scheduler.now_ms()))
        )

    def metrics(self, waits: WaitTimes) -> SpoutMetrics:
        now_ms = self._assigner.catalog.stream.now_ms()
        total, shards = self.scheduler.metrics(now_ms, self._dead_letters.refused())
        failing_s, outages = self._context.outages.totals()
        pushed = self._fetching.subscriptions
        return SpoutMetrics(
            total=total,
            shards=shards,
            waits=replace(waits),
            failing_s=failing_s,
            outages=outages,
            subscriptions=None if pushed is None else pushed.counts.totals(),
        )

    def health(self) -> SpoutHealth:
        """See `KinesisSpout.health`."""
        health, error = self._context.outages.health(), self.scheduler.error
        if error is None:
            return health
        return replace(health, ok=False, last_error=error_sentence(error))

    # threads --------------------------------------------------------------------------------------
    def _wake(self, name: str) -> None:
        if (loop := self._loops.get(name)) is not None:
            loop.wake()

    def _stopped_by(self, error: Exception) -> None:
        """A thread ended with an error. While the spout is closed, waits are interrupted, and the
        store is closed.
        """
        is_closing = self._context.services.closing.is_set()
        if not (is_closing and isinstance(error, InterruptedSleepError | StateError)):
            self.scheduler.stop(error)

    def _expire(self) -> float:
        """Fail timed-out emissions, each at its deadline. Returns the seconds until the next
        deadline.

        Without a pending deadline it waits a whole timeout: a record emitted meanwhile is due after
        that at the earliest.
        """
        scheduler = self.scheduler
        expired = scheduler.expire()
        counts = scheduler.counts()
        answered = counts.acked + counts.failed - counts.timed_out
        self._context.outages.no_answers = self._answers.look(answered, len(expired))
        for emission in expired:
            self.hooks.notify("timed_out", emission)
            self.hooks.notify("failed", emission, TIMED_OUT)
        times = (scheduler.trees.expire(int(scheduler.now_ms())), scheduler.next_deadline_ms())
        next_ms = min((ms for ms in times if ms is not None), default=None)
        timeout_s = self._context.config.message_timeout_s or _NO_DEADLINE_S
        if next_ms is None:
            return timeout_s
        return min(timeout_s, max(0.0, (next_ms - int(scheduler.now_ms())) / 1000))

    # the end --------------------------------------------------------------------------------------
    def end(self, *, crashed: bool, error: BaseException | None = None) -> None:
        """Close everything within `close_timeout_s` and a second, whatever hangs. No record goes
        out any more. The order is that of importance: the last commit, the letters, a commit of
        these, the release of the ownership; threads that hang in Kinesis are waited for last. What
        does not end in time is left to threads of their own, which do not keep the program from
        exiting.

        Raises the error of the last commit, unless that is retried. `crashed`, `error`: see
        `KinesisSpout.close`.
        """
        services, clock = self._context.services, self._context.services.clock
        timeout_s = self._context.config.close_timeout_s
        self.scheduler.close()
        self._answers.report()
        began_s = clock.monotonic_s()
        services.closing.set()
        for loop in self._loops.values():
            loop.stop()
        pool = services.new_pool(1, "kinesis-spout-close")
        why = self.scheduler.error or error
        stored = pool.submit(self._store_last, why, began_s + timeout_s, in_order=not crashed)
        rest = pool.submit(self._release)
        pool.shutdown(wait=False)
        try:
            stored.result(timeout_s + _GRACE_S)
        except TimeoutError:
            if stored.done():
                raise
            self._warn_of_redelivery(f"ZooKeeper did not respond within {timeout_s:g} s")
        finally:
            left_s = max(0.0, began_s + timeout_s + _GRACE_S - clock.monotonic_s())
            if wait([rest], timeout=min(_REST_S, left_s)).not_done:
                log.warning("the spout is closed, but some of its requests have not ended yet")

    def _store_last(self, why: BaseException | None, deadline_s: float, *, in_order: bool) -> None:
        """`why` is how the run ended; `in_order`: see `SpoutCommitter.commit_last`."""
        run, clock = self._assigner.session.run, self._context.services.clock
        # After a StateError this process may not be the owner any more: it writes nothing.
        writes = not isinstance(self.scheduler.error, StateError)
        try:
            if writes and not self._committer.commit_last(in_order=in_order):
                self._warn_of_redelivery("the last commit to ZooKeeper failed")
                return
            if writes and self._dead_letters.finish(deadline_s):
                self._committer.commit_last(in_order=in_order)
            if why is None:
                run.end(DONE if self.has_ended else STOPPED)
            else:
                run.failed(why)
        finally:
            self._dead_letters.close()
            # A step that uses the store would take its closing for an error.
            until_s = clock.monotonic_s() + _REST_S
            for loop in self._loops.values():
                loop.join(max(0.0, until_s - clock.monotonic_s()))
            self._context.services.store.close()

    def _release(self) -> None:
        """Wait for what is still running, and close the rest."""
        services, loops = self._context.services, self._loops.values()
        self._fetching.close()
        is_late = not all(loop.join(0.0) for loop in loops)
        for loop in loops:
            loop.join(None)
        if is_late:
            services.store.close()  # a late step may have connected it again
        services.client.close()

    def _warn_of_redelivery(self, why: str) -> None:
        log.warning(
            "the spout closed without its last commit: %s. The next spout redelivers the "
            "unresolved records, and %d records that were acked or dead-lettered after the "
            "previous commit",
            why,
            self.scheduler.counts().resolved - self._committer.stored,
        )
