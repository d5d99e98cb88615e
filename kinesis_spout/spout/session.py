"""A spout from its opening to its closing: its parts, the threads that run them, and the lock
around what they share.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import (
    InterruptedSleepError,
    KinesisError,
    described,
    malformed_reason,
    reason_text,
)
from kinesis_spout.spout.assigner import SpoutAssigner
from kinesis_spout.spout.committer import SpoutCommitter
from kinesis_spout.spout.dead_letter_queue import SpoutDeadLetterQueue
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.listener import SpoutNotifier
from kinesis_spout.spout.outages import AnswerWatch, SpoutHealth, SpoutOutages, said
from kinesis_spout.spout.prefetcher import SpoutPrefetcher
from kinesis_spout.spout.retry_fetcher import SpoutRetryFetcher
from kinesis_spout.spout.scheduler import Limits, SpoutScheduler
from kinesis_spout.spout.services import SpoutContext, SpoutServices
from kinesis_spout.tuple_tree.acker import Acker
from kinesis_spout.tuple_tree.tracked_tuple import TupleTree, fail_timed_out
from scheme.errors import MalformedRecordError
from state.errors import StateError, StoreUnavailableError
from state.shard_state import TIMED_OUT
from state.store.runs import DONE, STOPPED
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Self

    from kinesis_spout.programs.threads import Loop
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.metrics import SpoutMetrics, WaitTimes
    from scheme.record_scheme import RecordScheme
    from state.sequence_number import SequenceNumber

log = logging.getLogger("kinesis_spout")
_NO_DEADLINE_S = 60.0
MAX_MALFORMED_PER_CALL = 100
_GRACE_S = 0.5  # for the last commit and the release, when the letters took all the time
_REST_S = 0.5  # for threads that are still busy; they are left running after that


class NothingAckedError(KinesisError):
    """Too many records failed and none was ever acked: the fault is not in the records."""


class _TreeOutcomes:
    """Passes the outcome of a tuple tree to its emission
    (`kinesis_spout.tuple_tree.tracked_tuple.Outcomes`). To the session, and not by the emission's
    own methods: a tree that times out gives no outcome inside a `with` block.
    """

    __slots__ = ("_emission", "_roots", "_session")

    def __init__(
        self, session: SpoutSession, emission: SpoutEmission, roots: dict[str, int]
    ) -> None:
        self._session = session
        self._emission = emission
        self._roots = roots  # of the trees that have not ended, by message id

    def ack(self, message_id: str) -> None:
        self._roots.pop(message_id, None)
        self._session.ack(self._emission)

    def fail(self, message_id: str, *, reason: str | None = None) -> None:
        self._roots.pop(message_id, None)
        self._session.fail(self._emission, reason, retry=True)

    def extend(self, _message_id: str, timeout_s: float | None) -> bool:
        return self._emission.extend(timeout_s)


class SpoutSession:
    """Thread-safe. Only `begin` and `end` block on the network."""

    def __init__(self, config: SpoutConfig, services: SpoutServices) -> None:
        self.error: Exception | None = None
        self.stream_name = config.stream_ref.name
        self._is_closed = False
        self.hooks = SpoutNotifier(config.listeners, on_ack=config.on_ack, on_fail=config.on_fail)
        limits = Limits(
            config.max_pending,
            config.max_unresolved_per_shard,
            config.message_timeout_ms,
            config.prefetch_bytes,
            config.max_records,
        )
        self.scheduler = SpoutScheduler(limits, SpoutEmission, self)
        self._config = config
        self._tracking = config.tracking
        self._scheme = config.scheme
        self.is_plain = (
            config.scheme is None and not self.hooks.any
        )  # nothing to decode and no listener: `emit` can take the place of `next_tuple`
        self._services = services
        self._clock = services.clock
        self._monotonic_s = services.clock.monotonic_s
        self._offset_ms = services.clock.now_ms() - services.clock.monotonic_s() * 1000
        # After its last heartbeat, a session lives at least that long: see `_check_ownership`.
        self._lease_ms = config.zookeeper_session_timeout_s * 500
        self._leased_until_ms = self.now_ms() + self._lease_ms
        # Reentrant only because its release raises in a thread that does not hold it: see `emit`.
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release
        self._changed = threading.Condition(lock)
        self._waiting = 0
        self._acker: Acker[TupleTree] = Acker(services.random)
        self._roots: dict[str, int] = {}
        self._loops: dict[str, Loop] = {}
        self._outages = SpoutOutages(
            self.hooks, services.clock, services.random, give_up_after_s=config.give_up_after_s
        )
        context = SpoutContext(
            config,
            services,
            self.scheduler,
            self.hooks,
            self._changed,
            self._outages,
            self.now_ms,
        )
        self._fetching = SpoutPrefetcher(context, lambda: self._wake("fetch"))
        self._assigner = SpoutAssigner(context, self._fetching, lambda: self._wake("coordinate"))
        self._committer = SpoutCommitter(context, self._assigner, lambda: self._wake("coordinate"))
        self._dead_letters = SpoutDeadLetterQueue(context, lambda: self._wake("letters"))
        self._answers = AnswerWatch(self.stream_name, config.message_timeout_ms or 0, self._clock)
        self._closing = SpoutClosing(
            context, self._committer, self._dead_letters, self._fetching, self._loops.values()
        )
        self._retry_fetcher = SpoutRetryFetcher(
            context,
            gone=lambda: self._assigner.catalog.loss.gone,
            on_unknown=self._assigner.list_soon,
            new_unpacker=self._assigner.shards.new_unpacker,
        )

    @classmethod
    def begin(cls, config: SpoutConfig, given: SpoutServices | None) -> Self:
        """Open everything, or nothing. Blocks on the store and on Kinesis."""
        services = SpoutServices.connect(config) if given is None else given
        services.closing.clear()
        session = cls(config, services)
        with ExitStack() as stack:
            stack.callback(services.close)
            session._fetching.open()
            stack.callback(session._fetching.close)
            session._assigner.open()
            stack.pop_all()
        session._start_loops()
        return session

    def deactivated(self, *, is_active: bool) -> None:
        """The program has activated or deactivated the spout: told with the next commit."""
        self._committer.stall.deactivated_ms = None if is_active else self._clock.now_ms()

    def end(self, *, crashed: bool, error: BaseException | None = None) -> None:
        """Stop the threads, commit, write the due dead letters and close. Blocks, at most for
        `close_timeout_s` and a second. Errors of the letters and of the commit are logged.
        `crashed`, `error`: see `KinesisSpout.close`.
        """
        why, run = self.error or error, self._assigner.session.run
        kind = DONE if self.has_ended else STOPPED
        with self._changed:
            self._is_closed = True  # an ack from now on would count, but not be committed
            self._changed.notify_all()
        self._answers.finish()
        # After a StateError this process may not be the owner any more: it writes nothing.
        self._closing.run(
            lambda: run.end(kind) if why is None else run.failed(why),
            writes=not isinstance(self.error, StateError),
            in_order=not crashed,
        )

    # emitting -------------------------------------------------------------------------------------
    def now_ms(self) -> int:
        """Milliseconds since 1970: the clock at the opening, plus a monotonic clock since then."""
        return int(self._monotonic_s() * 1000.0 + self._offset_ms)

    def next_tuple(self) -> SpoutEmission | None:
        """See `KinesisSpout.next_tuple`."""
        emission = self.emit() if self._scheme is None else self._emit_decoded(self._scheme)
        if emission is not None:
            self.hooks.emitted(emission)
        return emission

    def emit(self) -> SpoutEmission | None:
        """`next_tuple` without decoding and without listeners; see `is_plain`."""
        if self.error is not None:
            raise self.error
        # This and `ack` run once per record, and a `with` statement takes twice the time of these
        # calls. An interrupt may come at any of them: only the lock can tell whether it is held.
        now_ms = self._monotonic_s() * 1000.0 + self._offset_ms
        if now_ms > self._leased_until_ms:
            self._check_ownership()
        self._leased_until_ms = now_ms + self._lease_ms
        try:
            self._acquire()
            emission: Any = self.scheduler.emit(now_ms)  # as the scheduler was given its type
            if emission is None:
                careful = self.scheduler.careful
                if careful is not None and careful.asks_for_commit():
                    self._wake("commit")
            elif not self._tracking:
                self.scheduler.ack(emission, now_ms)
        finally:
            try:  # noqa: SIM105  # `suppress` takes longer than all the rest
                self._release()
            except RuntimeError:
                pass
        given: SpoutEmission | None = emission
        return given

    def _check_ownership(self) -> None:
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

    def _emit_decoded(self, scheme: RecordScheme) -> SpoutEmission | None:
        """The next record that the scheme can decode. Malformed ones before it are dead-lettered,
        and those for which it raises another error fail.

        None after many of these in a row, so that a call stays short.
        """
        for _ in range(MAX_MALFORMED_PER_CALL):
            emission = self.emit()
            if emission is None:
                return None
            try:
                return emission.decoded(scheme)
            except MalformedRecordError as exc:
                self.malformed(emission, malformed_reason(exc))
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever it raises is its record's failure
                emission.fail(f"its scheme raised {described(exc)}")
        return None

    @property
    def has_ended(self) -> bool:
        """See `KinesisSpout.has_ended`."""
        return self._assigner.has_ended

    def may_emit(self) -> bool:
        """Whether a call for a record may give one, or an error. The caller holds the lock."""
        return self.error is not None or self.has_ended or self.scheduler.may_emit(self.now_ms())

    def wait(self, timeout_s: float, until: Callable[[], bool]) -> float:
        """Wait until `until()` is true, but at most `timeout_s`, and not beyond the next due retry.
        Returns the seconds waited.

        `until` is called with the lock held, after each change.
        """
        if timeout_s <= 0:
            return 0.0
        began_s = self._clock.monotonic_s()
        with self._changed:
            self._waiting += 1
            try:
                due_ms = self.scheduler.next_retry_ms()
                due_s = timeout_s if due_ms is None else max(0.0, (due_ms - self.now_ms()) / 1000)
                self._changed.wait_for(until, min(timeout_s, due_s))
            finally:
                self._waiting -= 1
        return self._clock.monotonic_s() - began_s

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # outcomes -------------------------------------------------------------------------------------
    def ack(self, emission: SpoutEmission) -> bool:
        """See `SpoutEmission.ack`."""
        now_ms = self._monotonic_s() * 1000.0 + self._offset_ms
        try:
            self._acquire()
            acked = not self._is_closed and self.scheduler.ack(emission, now_ms)
            # Only while `wait` waits: notifying for each record would slow all acks down.
            if self._waiting:
                self._changed.notify_all()
        finally:
            try:  # noqa: SIM105  # `suppress` takes longer than all the rest
                self._release()
            except RuntimeError:
                pass
        if acked and self.hooks.any:
            self.hooks.acked(emission)
        return acked

    def fail(self, emission: SpoutEmission, reason: str | None, *, retry: bool) -> bool:
        """See `SpoutEmission.fail`."""
        reason = reason_text(reason)
        with self._changed:
            if self._is_closed:
                return False
            effect = self.scheduler.fail(emission, self.now_ms(), reason=reason, retry=retry)
            self._changed.notify_all()
        self._check_breaker()
        counted = effect in {Effect.QUEUED, Effect.EXHAUSTED}
        if counted:
            self.hooks.failed(emission, reason)
        return counted

    def malformed(self, emission: SpoutEmission, reason: str) -> None:
        """The record can never be processed: dead-letter it without a retry."""
        with self._changed:
            self.scheduler.fail(emission, self.now_ms(), reason=reason, retry=False)
            emission.assigned.counts.malformed += 1
        self._check_breaker()
        self.hooks.failed(emission, reason)

    def extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool:
        """See `SpoutEmission.extend`."""
        assigned = emission.assigned
        with self._changed:
            deadline_ms = None if timeout_s is None else self.now_ms() + round(timeout_s * 1000)
            extended = not assigned.is_released and assigned.shard.extend(emission, deadline_ms)
        if extended and (root := self._roots.get(emission.message_id)) is not None:
            self._acker.extend(root, deadline_ms)
        self._wake("timeouts")
        return extended

    def tree(self, emission: SpoutEmission) -> TupleTree:
        """See `SpoutEmission.tree`. The tree times out with its emission: a later outcome would not
        count.
        """
        timeout_ms = self._config.message_timeout_ms
        deadline_ms = None if timeout_ms is None else self.now_ms() + timeout_ms
        outcomes = _TreeOutcomes(self, emission, self._roots)
        tree = TupleTree(self._acker, emission.message_id, outcomes, deadline_ms=deadline_ms)
        self._roots[emission.message_id] = tree.root
        return tree

    def find(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> SpoutEmission | None:
        """The emission that a message id names, if its payload is in memory; else None."""
        with self._changed:
            assigned = self.scheduler.assigned.get(shard_id)
            delivery = None if assigned is None else assigned.shard.find(sequence, attempt)
            if assigned is None or delivery is None:
                return None
            return SpoutEmission.of(assigned, delivery)

    def ack_unheld(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> bool:
        """A late ack of a record whose payload is not in memory."""
        self._answer_unheld(shard_id, sequence, attempt, acked=True)
        with self._changed:
            assigned = self.scheduler.assigned.get(shard_id)
            acked = assigned is not None and self.scheduler.ack_unheld(assigned, sequence, attempt)
            self._changed.notify_all()
            return acked

    def fail_unheld(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> bool:
        """A late failure of a record whose payload is not in memory: it never counts."""
        self._answer_unheld(shard_id, sequence, attempt, acked=False)
        return False

    def _answer_unheld(
        self, shard_id: str, sequence: SequenceNumber, attempt: int, *, acked: bool
    ) -> None:
        """Note the outcome in the `with` block that the delivery is in, if any."""
        assigned = self.scheduler.assigned.get(shard_id)
        block = None if assigned is None else assigned.block(str(sequence), attempt)
        if block is not None:
            block.answer(f"{shard_id}:{sequence}:{attempt}", acked=acked)

    def commit_soon(self) -> None:
        """Wake the thread that commits."""
        self._wake("commit")

    def metrics(self, waits: WaitTimes) -> SpoutMetrics:
        with self._changed:
            metrics = self.scheduler.metrics(waits, self._assigner.catalog.stream.now_ms())
        return replace(
            metrics,
            failing_s=self._outages.failing_s(),
            outages=self._outages.counts(),
            subscriptions=self._fetching.subscriptions(),
        )

    def health(self) -> SpoutHealth:
        """See `KinesisSpout.health`."""
        health = self._outages.health()
        if self.error is None:
            return health
        return replace(health, ok=False, last_error=said(self.error))

    # threads --------------------------------------------------------------------------------------
    def _start_loops(self) -> None:
        steps = {
            "fetch": self._fetching.step,
            "timeouts": self._expire,
            "retries": self._retry_fetcher.step,
            "letters": self._dead_letters.step,
            "commit": self._committer.step,
            "coordinate": self._assigner.step,
        }
        for name, step in steps.items():
            self._loops[name] = self._services.start_loop(name, step, self._stopped_by)

    def _wake(self, name: str) -> None:
        if (loop := self._loops.get(name)) is not None:
            loop.wake()

    def _stopped_by(self, error: Exception) -> None:
        """A thread ended with an error, which the next call for a record raises. Acks are still
        committed. While the spout is closed, waits are interrupted, and the store is closed.
        """
        if self._services.closing.is_set() and isinstance(
            error, InterruptedSleepError | StateError
        ):
            return
        with self._changed:
            is_first = self.error is None
            self.error = self.error or error
            self._changed.notify_all()
        if is_first:
            self.hooks.stopped(error)
        else:
            self.hooks.error(error)

    def _expire(self) -> float:
        """Fail timed-out emissions, each at its deadline. Returns the seconds until the next
        deadline.

        Without a pending deadline it waits a whole timeout: a record emitted meanwhile is due after
        that at the earliest.
        """
        with self._changed:
            expired: list[Any] = list(self.scheduler.expire(self.now_ms()))
            answered = self.scheduler.answered
            if expired:
                self._changed.notify_all()
        self._check_breaker()
        self._outages.no_answers = self._answers.look(answered, len(expired))
        for emission in expired:
            self.hooks.timed_out(emission)
            self.hooks.failed(emission, TIMED_OUT)
        fail_timed_out(self._acker, self.now_ms())
        with self._changed:
            times = (self.scheduler.next_deadline_ms(), self._acker.next_deadline_ms())
        next_ms = min((ms for ms in times if ms is not None), default=None)
        timeout_s = self._config.message_timeout_s or _NO_DEADLINE_S
        return (
            timeout_s
            if next_ms is None
            else min(timeout_s, max(0.0, (next_ms - self.now_ms()) / 1000))
        )

    def _check_breaker(self) -> None:
        max_failures = self._config.breaker_failures
        with self._changed:
            failed = self.scheduler.failures_before_first_ack
        if max_failures is not None and failed >= max_failures and self.error is None:
            error = NothingAckedError(
                f"{failed} records of stream {self.stream_name} failed and none was ever acked, so "
                "the spout has stopped; fix the program that processes them, or set "
                "breaker_failures to None; no record is lost"
            )
            self._stopped_by(error)


class SpoutClosing:
    """The end of one session, after no record goes out any more: within `close_timeout_s`,
    whatever hangs.

    The order is that of importance. The last commit comes first, then the letters, then a commit of
    these, then the release of the ownership. Threads that hang in Kinesis are waited for last.
    """

    def __init__(
        self,
        context: SpoutContext,
        committer: SpoutCommitter,
        dead_letters: SpoutDeadLetterQueue,
        fetching: SpoutPrefetcher,
        loops: Collection[Loop],
    ) -> None:
        self._services = context.services
        self._clock = context.services.clock
        self._timeout_s = context.config.close_timeout_s
        self._committer = committer
        self._dead_letters = dead_letters
        self._fetching = fetching
        self._loops = loops

    def run(self, tell: Callable[[], object], *, writes: bool, in_order: bool) -> None:
        """Close everything. `writes` False: store no state. `in_order`: see `commit_last`. `tell`
        records how the run ended.

        What does not end in time is left to threads of their own, which do not keep the program
        from exiting. Raises the error of the last commit, unless that is retried.
        """
        began_s = self._clock.monotonic_s()
        self._services.closing.set()
        for loop in self._loops:
            loop.stop()
        pool = self._services.new_pool(1, "kinesis-spout-close")
        stored = pool.submit(
            self._store, tell, began_s + self._timeout_s, writes=writes, in_order=in_order
        )
        rest = pool.submit(self._release)
        pool.shutdown(wait=False)
        try:
            stored.result(self._timeout_s + _GRACE_S)
        except TimeoutError:
            if stored.done():
                raise
            self._say_what_comes_again(f"the store did not answer within {self._timeout_s:g} s")
        finally:
            spent_s = self._clock.monotonic_s() - began_s
            left_s = max(0.0, self._timeout_s + _GRACE_S - spent_s)
            if wait([rest], timeout=min(_REST_S, left_s)).not_done:
                log.warning("the spout is closed; calls that hang are left to end by themselves")

    def _store(
        self, tell: Callable[[], object], deadline_s: float, *, writes: bool, in_order: bool
    ) -> None:
        try:
            if writes and not self._committer.commit_last(in_order=in_order):
                self._say_what_comes_again("the last commit failed")
                return
            if writes and self._dead_letters.finish(deadline_s):
                self._committer.commit_last(in_order=in_order)
            tell()
        finally:
            self._dead_letters.close()
            # A step that uses the store would take its closing for an error.
            until_s = self._clock.monotonic_s() + _REST_S
            for loop in self._loops:
                loop.join(max(0.0, until_s - self._clock.monotonic_s()))
            self._services.store.close()

    def _release(self) -> None:
        """Wait for what is still running, and close the rest."""
        self._fetching.close()
        is_late = not all(loop.join(0.0) for loop in self._loops)
        for loop in self._loops:
            loop.join(None)
        if is_late:
            self._services.store.close()  # a late step may have connected it again
        self._services.client.close()

    def _say_what_comes_again(self, why: str) -> None:
        log.warning(
            "%s, so the spout is closed without its last commit; %d records that were acked or "
            "dead-lettered since the commit before come again, and so do those without an outcome",
            why,
            self._committer.not_stored,
        )
