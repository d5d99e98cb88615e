"""The standalone spout: a stream, record by record, in one Python process, with the guarantees of
the Spark source.

    with KinesisSpout(SpoutConfig(stream="orders", application="billing", zookeeper="zk:2181")) as spout:
        for emission in spout.emissions():
            with emission:
                bill(emission.data)

Every record is handed over until its outcome is an ack, or it is exhausted and dead-lettered. The
checkpoint moves only over what is acked without a gap. After a crash, what was not acked comes
again, with its attempts, and so does what was acked since the last commit.
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
from state.tracker.emission import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from kinesis_spout.spout.services import SpoutServices

__all__ = ["FailRecordError", "KinesisSpout", "SpoutClosedError", "SpoutConfig", "SpoutEmission"]
log = logging.getLogger("kinesis_spout")


class SpoutClosedError(KinesisError):
    """The spout is not open."""


class KinesisSpout:
    """Constructing it does no I/O. `next_tuple` is for one thread at a time; everything else is
    safe from any thread.

    `services` are the connections of a test or a simulation; without them the spout makes its own
    from the configuration.
    """

    def __init__(self, config: SpoutConfig, *, services: SpoutServices | None = None) -> None:
        self.config = config
        self._given = services
        self._session: SpoutSession | None = None
        self._ended: SpoutSession | None = None
        self._scheme = config.scheme
        self._active = config.start_active
        self._waits = WaitTimes()
        self._is_open = False
        self._turning = threading.Lock()
        self._turned = (
            threading.Event()
        )  # set when a spout that waits for its activation need not any more

    # life
    # ---------------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Connect, take the ownership (waits up to `owner_wait_s` for another holder's to lapse),
        begin to read ahead.

        Raises `KinesisError` and `state.errors.StateError`; nothing is left open then. Opened again
        after `close` it goes on. A spout that is not active, as it was configured or deactivated,
        does all of that when it is activated.
        """
        with self._turning:
            if self._is_open:
                raise SpoutClosedError(
                    "the spout is open already; close it before it is opened again"
                )
            self._connect()
            self._is_open = True

    def close(self) -> None:
        """Stop reading, commit what has an outcome, give the ownership up. Emissions without one
        come again. Idempotent.

        From any thread, but not from within a signal handler: the thread that it has interrupted
        may hold the spout's lock. Raise an exception there, which ends the `with` block, or set
        what the `stop` of `emissions` looks at.
        """
        with self._turning:
            session, self._session = self._session, None
            self._is_open = False
            self._turned.set()
        if session is not None:
            self._ended = session
            session.end()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def has_ended(self) -> bool:
        """All is handed over and has an outcome: up to `until`, `max_records`, or the ends of all
        shards. Found out by and by.
        """
        session = self._session
        return session is not None and session.has_ended

    @property
    def is_active(self) -> bool:
        return self._active

    def activate(self) -> None:
        """Hand records over (again). Connects, as `open` does, if that was put off."""
        with self._turning:
            self._active = True
            if self._is_open:
                self._connect()
            self._turned.set()
        if (session := self._session) is not None:
            session.notify()

    def deactivate(self) -> None:
        """Hand no more records over, and commit. Outcomes are taken, retries and time-outs counted,
        as before.
        """
        self._active = False
        if (session := self._session) is not None:
            session.commit_soon()

    # emissions
    # ----------------------------------------------------------------------------------------------------
    def next_tuple(self) -> SpoutEmission | None:
        """The next record, or None when there is none right now, the spout is not active, or
        `max_pending` are pending.

        Never waits for the network. Raises `SpoutClosedError`, and the error that has stopped the
        spout, if one has.
        """
        if self._session is None and self._is_open:
            return None  # it was not activated yet
        session = self._open_session()
        return session.next_tuple() if self._active else None

    def emissions(self, stop: Callable[[], bool] | None = None) -> Iterator[SpoutEmission]:
        """Emissions as they come, waiting in between by the strategies of the configuration.

        Ends when the spout `has_ended` or is closed, and when `stop()` is true: asked before each
        emission and each wait.
        """
        streak = 0
        while self._is_open and (stop is None or not stop()):
            session = self._session
            if session is not None:
                emit = session.emit if session.is_plain else session.next_tuple
                while (
                    self._active and self._session is session and (emission := emit()) is not None
                ):
                    streak = 0
                    yield emission
                    if stop is not None and stop():
                        return
            streak += 1
            if session is None:
                self._turned.wait(self.config.idle_wait(streak))
            elif session.error is not None:
                raise session.error
            elif session.has_ended:
                return
            else:
                self._wait(session, streak)

    def _wait(self, session: SpoutSession, streak: int) -> None:
        at_limit = session.scheduler.at_limit
        strategy = self.config.limit_wait if at_limit else self.config.idle_wait
        self._waits.add(
            session.wait(strategy(streak), lambda: self._may_emit(session)), at_limit=at_limit
        )

    # outcomes
    # -----------------------------------------------------------------------------------------------------
    def ack(self, message_id: str) -> bool:
        """As `SpoutEmission.ack`, by the message id. False for one that is unknown; raises
        ValueError for no message id.
        """
        shard_id, sequence, attempt = parse_message_id(message_id)
        session = self._session
        if session is None:
            return False
        emission = self._emission(session, message_id)
        return (
            session.ack_unheld(shard_id, sequence, attempt) if emission is None else emission.ack()
        )

    def fail(self, message_id: str, reason: str | None = None, *, retry: bool = True) -> bool:
        """As `SpoutEmission.fail`, by the message id. False for one that is unknown; raises
        ValueError for no message id.
        """
        emission = self._emission(self._session, message_id)
        return emission is not None and emission.fail(reason, retry=retry)

    # what can be seen
    # -------------------------------------------------------------------------------------------------
    def metrics(self) -> SpoutMetrics:
        """Counts per shard and in total since the spout was opened, exact at one moment. O(shards).

        Also of a spout that an error has stopped, or that was closed: as they were then. Raises
        `SpoutClosedError` for one that was never open.
        """
        session = self._session or self._ended
        return (session or self._open_session()).metrics(self._waits)

    # how
    # ----------------------------------------------------------------------------------------------------------
    def _connect(self) -> None:
        if self._active and self._session is None:
            self._turned.clear()
            self._session = SpoutSession.begin(self.config, self._given)

    def _open_session(self) -> SpoutSession:
        session = self._session
        if session is None:
            raise SpoutClosedError("the spout is not open; open it, or use it in a with statement")
        if session.error is not None:
            raise session.error
        return session

    def _may_emit(self, session: SpoutSession) -> bool:
        return self._session is not session or (self._active and session.may_emit())

    def _emission(self, session: SpoutSession | None, message_id: str) -> SpoutEmission | None:
        shard_id, sequence, attempt = parse_message_id(message_id)
        emission = None if session is None else session.find(shard_id, sequence, attempt)
        return (
            emission if emission is None or self._scheme is None else emission.decoded(self._scheme)
        )  # it was decoded before
