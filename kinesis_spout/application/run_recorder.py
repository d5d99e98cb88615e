"""Writes the log of this process's run as the owner, for `kinesis-spout explain`
(`state.store.runs`).

At best: what cannot be written is left out. Nothing is decided by the log, and no error of it stops
the run.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.errors import error_sentence, text_of
from state.errors import RemediedError, StaleOwnerError, StateError, StoreUnavailableError
from state.process import is_below, state_of, this_process
from state.store.ownership import ProcessState
from state.store.runs import (
    FAILED,
    MAX_LOSSES,
    Loss,
    ReadTrouble,
    ReportedError,
    RunEnd,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.clock import Clock
    from state.store.runs import Run, RunLog, RunStore

log = logging.getLogger("kinesis_spout")
# Troubles change all the time: a shard with many consumers is refused again and again.
TROUBLES = frozenset({"throttled", "refused_letters", "failing_reads", "no_answers"})
TROUBLE_EVERY_S = 60.0
_NEVER_WRITTEN = {"trigger_ms": -1, "throttled": {}}  # other fields: None


class RunRecorder:
    """One for each ownership. Blocks on the store, and raises nothing. For one thread at a time."""

    def __init__(self, runs: RunStore, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._run: Run | None = None
        # By the log's field: what was written last, and until when it is not written again.
        self._written: dict[str, object] = dict(_NEVER_WRITTEN)
        self._kept_until_s: dict[str, float] = {}

    def begin(self, run: Run) -> None:
        """The run begins: the ownership was acquired as `run.owner`. Again: a no-op."""
        if self._run is not None:
            return
        self._run = run
        with _at_best():
            self._runs.begin(run)

    def write(self, **fields: object) -> None:
        """Write these fields of the `RunLog`, as far as they differ from what was written before.
        `TROUBLES` are written once in `TROUBLE_EVERY_S` seconds; that one is over, at once.
        """
        now_s = self._clock.monotonic_s()
        changed = {
            name: value
            for name, value in fields.items()
            if value != self._written.get(name)
            and not (value and now_s < self._kept_until_s.get(name, now_s))
        }
        for name in TROUBLES.intersection(changed):
            if changed[name]:
                self._kept_until_s[name] = now_s + TROUBLE_EVERY_S
        if changed and self._amend(lambda log: replace(log, **changed)):
            self._written |= changed

    def not_subscribed(self, error: Exception | None) -> None:
        """The error for which shards that are to be read by subscription get none; None where each
        has one.
        """
        trouble = None
        if error is not None:
            before = self._written.get("not_subscribed")
            since_ms = before.since_ms if isinstance(before, ReadTrouble) else self._clock.now_ms()
            trouble = ReadTrouble(since_ms=since_ms, **reported(error)._asdict())
        self.write(not_subscribed=trouble)

    def lost(self, says: str) -> None:
        """The consumer continues after a loss of records. For any thread."""
        loss = Loss(time_ms=self._clock.now_ms(), says=sentence(says))
        self._amend(lambda log: replace(log, losses=(*log.losses, loss)[-MAX_LOSSES:]))

    def end(self, kind: str, says: str | None = None) -> None:
        """The run ends without an error. `says`: what it leaves to the next one, as a clause."""
        left = None if says is None else sentence(says)
        self._end(RunEnd(time_ms=self._clock.now_ms(), kind=kind, says=left))

    def failed(self, error: BaseException) -> None:
        """The run ends with this error. Nothing is tried where the store cannot be reached, or
        another process has taken over.
        """
        # Of several streams, an error may be the cause of the one that names its stream.
        left_out = StoreUnavailableError, StaleOwnerError
        if not isinstance(error, left_out) and not isinstance(error.__cause__, left_out):
            self._end(failure(reported(error), self._clock.now_ms()))

    def _end(self, end: RunEnd) -> None:
        self._amend(lambda log: log.ended(end))

    def _amend(self, amended: Callable[[RunLog], RunLog]) -> bool:
        if self._run is not None:
            with _at_best():
                return self._runs.amend(self._run.owner, amended)
        return False


def amend_newest_run(runs: RunStore, amended: Callable[[RunLog], RunLog]) -> bool:
    """Add to the log of the newest owner of the whole application, if that may be a process of this
    Spark driver: for the driver's main process, which is not the owner. Blocks on the store, and
    raises nothing. Returns whether it was written.
    """
    with _at_best():
        log_there = runs.read().get(None)
        newest = None if log_there is None else log_there.newest
        if newest is None or newest.owner.host != this_process(0).host:
            return False
        # Another driver on this machine may have taken over the application since then. A process
        # of this one may also have ended.
        if state_of(newest.owner) is ProcessState.RUNS and not is_below(newest.owner, os.getpid()):
            return False
        return runs.amend(newest.owner, amended)
    return False


def failure(error: ReportedError, now_ms: int) -> RunEnd:
    """The end of a run by an error."""
    return RunEnd(time_ms=now_ms, kind=FAILED, **error._asdict())


def reported(error: BaseException) -> ReportedError:
    """The error as it is stored. One of another package is named by its class, without a remedy."""
    name, cause = type(error).__name__, error.__cause__
    if isinstance(error, RemediedError) and error.remedy:
        # One that has its cause's remedy adds a name to it, as that of a stream.
        if isinstance(cause, RemediedError) and cause.remedy == error.remedy:
            name = type(cause).__name__
        return ReportedError(sentence(text_of(error.message)), sentence(error.remedy), name)
    return ReportedError(sentence(error_sentence(error)), error=name)


@contextmanager
def _at_best() -> Iterator[None]:
    try:
        yield
    except StateError as exc:
        log.debug("the settings and the state of this run were not stored in ZooKeeper: %s", exc)
