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
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.emission import FailRecordError, SpoutEmission
from kinesis_spout.spout.metrics import SpoutMetrics, WaitTimes
from kinesis_spout.spout.session import SpoutSession
from state.tracker.inflight_record_tracker import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from kinesis_spout.spout.outages import SpoutHealth
    from kinesis_spout.spout.services import SpoutServices

__all__ = ["FailRecordError", "KinesisSpout", "SpoutClosedError", "SpoutConfig", "SpoutEmission"]
log = logging.getLogger("kinesis_spout")


class SpoutClosedError(KinesisError):
    """The spout is not open."""


class KinesisSpout:
    """The constructor does no I/O. One thread at a time may call `next_tuple`; everything else is
    thread-safe.

    `services` are the connections of a test or a simulation. Without them the spout makes its own
    from the configuration.
    """

    def __init__(self, config: SpoutConfig, *, services: SpoutServices | None = None) -> None:
        self.config = config
        self._given = services
        self._session: SpoutSession | None = None
        self._ended: SpoutSession | None = None
        self._active = config.start_active
        self._waits = WaitTimes()
        self._is_open = False
        self._switch_lock = threading.Lock()  # held while the spout is opened, closed or activated
        # Set by `activate` and `close`: ends the wait of an inactive spout.
        self._activated = threading.Event()

    # lifecycle ------------------------------------------------------------------------------------
    def open(self) -> None:
        """Connect, acquire the ownership, and start to read ahead. Waits up to `owner_wait_s` for
        the session of an earlier owner to lapse.

        Raises `KinesisError` and `state.errors.StateError`; nothing stays open then. A closed spout
        can be opened again and continues. An inactive spout does all of this when it is activated.
        """
        with self._switch_lock:
            if self._is_open:
                raise SpoutClosedError(
                    "the spout is open already", "close it before opening it again"
                )
            self._connect()
            self._is_open = True

    def close(self, *, crashed: bool = False, error: BaseException | None = None) -> None:
        """Stop reading, commit, write the due dead letters, and release the ownership. Emissions
        without an outcome are delivered again. Idempotent. Takes `close_timeout_s` and a second at
        most; what was not stored by then is logged, and delivered again.

        `crashed`: a worker process that had records has ended without answering them. It counts as
        if this process had ended so: a record that ends its worker at each delivery is
        dead-lettered after some openings.

        `error`: why the program ends, which `kinesis-spout explain` then tells, without secrets. A
        `with` block tells the error that leaves it.

        Any thread may call it, but not a signal handler: the interrupted thread may hold the
        spout's lock. In a handler, raise an exception that ends the `with` block, or set a flag
        that the `stop` of `emissions` checks.
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

        Detected by a background thread, so it becomes true a little later.
        """
        session = self._session
        return session is not None and session.has_ended

    @property
    def is_active(self) -> bool:
        return self._active

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the application (`kinesis-spout pause`): no record comes
        until the pause is over. Outcomes are taken, and committed.
        """
        session = self._session
        return session is not None and session.scheduler.is_paused

    def activate(self) -> None:
        """Deliver records (again). Connects as `open` does, if that was deferred."""
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
        """The next record. None when there is none now, the spout is inactive, or `max_pending` are
        pending.

        Never blocks on the network, but in a scheme that looks something up there (`GlueScheme`).
        Raises `SpoutClosedError`, or the error that has stopped the spout.
        """
        if self._session is None and self._is_open:
            return None  # opened inactive, and not connected yet
        session = self._open_session()
        return session.next_tuple() if self._active else None

    def emissions(self, stop: Callable[[], bool] | None = None) -> Iterator[SpoutEmission]:
        """Emissions as they come. In between it waits by the strategies of the configuration.

        Ends when the spout `has_ended` or is closed, or when `stop()` is true; `stop` is called
        before each emission and each wait.
        """
        streak = 0
        while self._is_open and (stop is None or not stop()):
            session = self._session
            if session is not None:
                # Bound once: the inner loop runs once per record.
                emit = session.scheduler.emit if session.is_plain else session.next_tuple
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
        shard_id, sequence, attempt = parse_message_id(message_id)
        if (session := self._session) is None:
            return False
        if (emission := session.find(shard_id, sequence, attempt)) is not None:
            return emission.ack()
        if (assigned := session.scheduler.assigned.get(shard_id)) is not None:
            assigned.answer(str(sequence), attempt, acked=True)
        return session.scheduler.resolve_unheld(shard_id, sequence, attempt)

    def fail(self, message_id: str, reason: str | None = None, *, retry: bool = True) -> bool:
        """As `SpoutEmission.fail`, by message id. False for an unknown one; raises ValueError for a
        malformed one.
        """
        shard_id, sequence, attempt = parse_message_id(message_id)
        if (session := self._session) is None:
            return False
        if (emission := session.find(shard_id, sequence, attempt)) is not None:
            return emission.fail(reason, retry=retry)
        if (assigned := session.scheduler.assigned.get(shard_id)) is not None:
            assigned.answer(str(sequence), attempt, acked=False)
        return False  # a late failure of a record whose payload is not in memory never counts

    # observations ---------------------------------------------------------------------------------
    def metrics(self) -> SpoutMetrics:
        """Counts per shard and in total since the spout was opened, consistent at one moment.
        O(shards).

        Also for a spout that was closed or that an error has stopped: its last counts. Raises
        `SpoutClosedError` for a spout that was never open.
        """
        session = self._session or self._ended
        return (session or self._open_session()).metrics(self._waits)

    def health(self) -> SpoutHealth:
        """Whether the spout can do its work, and since when and why not. An outage ends no spout
        (`give_up_after_s`); this tells of it. Cheap enough for a probe.

        Also for a spout that was closed or that an error has stopped. Raises `SpoutClosedError` for
        a spout that was never open.
        """
        session = self._session or self._ended
        return (session or self._open_session()).health()

    # private --------------------------------------------------------------------------------------
    def _connect(self) -> None:
        if self._active and self._session is None:
            self._activated.clear()
            self._session = SpoutSession.begin(self.config, self._given)

    def _open_session(self) -> SpoutSession:
        session = self._session
        if session is None:
            raise SpoutClosedError(
                "the spout is not open", "call open(), or use it in a with statement"
            )
        if session.scheduler.error is not None:
            raise session.scheduler.error
        return session
