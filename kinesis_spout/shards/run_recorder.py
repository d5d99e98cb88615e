"""Tells of this process's run as the owner, for `kinesis-spout explain` (`state.store.runs`).

At best: what cannot be written is left out. Nothing is decided by it, and no error of it stops what
it tells of.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.errors import MAX_MESSAGE_CHARS, text_of
from state.errors import StaleOwnerError, StateError, StoreUnavailableError
from state.process import is_below, state_of, this_process
from state.store.ownership import ProcessState
from state.store.runs import FAILED, NotSubscribed, RunEnd, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_spout.clock import Clock
    from state.store.ownership import OwnerInfo
    from state.store.runs import (
        FailingReads,
        Hold,
        NoAnswers,
        RefusedLetters,
        Run,
        RunLog,
        RunStore,
        Throttle,
    )

log = logging.getLogger("kinesis_spout")
THROTTLED_TOLD_S = 60.0
REFUSED_TOLD_S = 60.0
_OURS = frozenset({"kinesis_spout", "state", "scheme", "spark_job"})


class RunRecorder:
    """One for each ownership. Blocks on the store, and raises nothing. For one thread at a time.

    Each call writes once, and only what differs from what it has written before.
    """

    def __init__(self, runs: RunStore, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._run: Run | None = None
        # By the log's field: what was written last, and until when it is not written again.
        self._told: dict[str, object] = {"trigger_ms": -1, "throttled": {}}  # -1: not told yet
        self._rests_until_s: dict[str, float] = {}

    def begin(self, run: Run) -> None:
        """The run begins: the ownership was acquired as `run.owner`. Again: a no-op."""
        if self._run is not None:
            return
        self._run = run
        try:
            self._runs.begin(run)
        except StateError as exc:
            _left_out(exc)

    def hold(self, hold: Hold | None) -> None:
        """Why the program gets no record now; None when it gets some again."""
        self._tell("hold", hold)

    def trigger(self, interval_ms: int | None) -> None:
        """The interval of the query's trigger; None where it has none."""
        self._tell("trigger_ms", interval_ms)

    def throttled(self, shards: Mapping[str, Throttle]) -> None:
        """The shards whose reads the service has refused. A shard with many consumers is refused
        again and again.
        """
        self._tell("throttled", dict(shards), every_s=THROTTLED_TOLD_S)

    def refused_letters(self, letters: RefusedLetters | None) -> None:
        """The dead letters that are refused now. Each is sent again and again."""
        self._tell("refused_letters", letters, every_s=REFUSED_TOLD_S)

    def failing_reads(self, reads: FailingReads | None) -> None:
        """The reads that get no answer now. Each is tried again."""
        self._tell("failing_reads", reads, every_s=REFUSED_TOLD_S)

    def no_answers(self, answers: NoAnswers | None) -> None:
        """The deliveries that nobody answers. More of them time out."""
        self._tell("no_answers", answers, every_s=REFUSED_TOLD_S)

    def not_subscribed(self, why: str | None) -> None:
        """The error for which shards that are to be read by subscription get none; None where each
        has one.
        """
        told = None
        if why is not None:
            before = self._told.get("not_subscribed")
            known_ms = before.since_ms if isinstance(before, NotSubscribed) else None
            since_ms = self._clock.now_ms() if known_ms is None else known_ms
            told = NotSubscribed(since_ms=since_ms, says=sentence(why))
        self._tell("not_subscribed", told)

    def end(self, kind: str, says: str | None = None) -> None:
        """The run ends without an error. `says`: what it leaves to the next one, as a clause."""
        left = None if says is None else sentence(says)
        self._end(RunEnd(time_ms=self._clock.now_ms(), kind=kind, says=left))

    def failed(self, error: BaseException) -> None:
        """The run ends with this error. Nothing is tried where the store cannot be reached, or
        another process has taken over.
        """
        # Of several streams, an error may be the cause of the one that names its stream.
        not_told = StoreUnavailableError, StaleOwnerError
        if isinstance(error, not_told) or isinstance(error.__cause__, not_told):
            return
        self._end(failure(error_sentence(error), self._clock.now_ms()))

    def _end(self, end: RunEnd) -> None:
        self._amend(lambda told: told.ended(end))

    def _tell(self, field: str, value: object, *, every_s: float = 0.0) -> None:
        """Write a field of the log. A trouble that changes all the time is written once in
        `every_s` seconds; that it is over is written at once.
        """
        now_s = self._clock.monotonic_s()
        rests = bool(value) and now_s < self._rests_until_s.get(field, now_s)
        if rests or value == self._told.get(field):
            return
        if value:
            self._rests_until_s[field] = now_s + every_s
        if self._amend(lambda told: replace(told, **{field: value})):
            self._told[field] = value

    def _amend(self, amended: Callable[[RunLog], RunLog]) -> bool:
        if self._run is None:
            return False
        try:
            return self._runs.amend(self._run.owner, amended)
        except StateError as exc:
            _left_out(exc)
            return False


def amend_newest_run(runs: RunStore, amended: Callable[[RunLog], RunLog]) -> bool:
    """Add to what the newest owner of the whole application told, if that may be a process of this
    Spark driver: for the driver's main process, which is not the owner. Blocks on the store, and
    raises nothing. Returns whether it was written.
    """
    try:
        log_there = runs.read().get(None)
        newest = None if log_there is None else log_there.newest
        if newest is None or not _may_be_of_here(newest.owner):
            return False
        return runs.amend(newest.owner, amended)
    except StateError as exc:
        _left_out(exc)
        return False


def _may_be_of_here(owner: OwnerInfo) -> bool:
    """Whether the owner may be a process of this driver, also one that has ended. Another driver on
    this machine may have taken over the application since then.
    """
    runs = state_of(owner) is ProcessState.RUNS
    return owner.host == this_process(0).host and (not runs or is_below(owner, os.getpid()))


def failure(says: str, now_ms: int) -> RunEnd:
    """The end of a run by an error. `says`: its sentence."""
    return RunEnd(time_ms=now_ms, kind=FAILED, says=sentence(says))


def error_sentence(error: BaseException) -> str:
    """The first paragraph of an error as one line. Errors of other packages are named by class."""
    text = " ".join(text_of(error, MAX_MESSAGE_CHARS).strip().split("\n\n")[0].split())
    text = text or type(error).__name__
    is_ours = type(error).__module__.split(".")[0] in _OURS
    return text if is_ours else f"{type(error).__name__}: {text}"


def _left_out(error: StateError) -> None:
    log.debug("the run's record was not written: %s", error)
