"""The outages of an open spout: since when they last, why, and when the spout retries.

An outage of Kinesis or of the state store does not end a spout. The spout retries each part of its
work, and each shard separately, with exponential backoff until it succeeds. An error that waiting
cannot cure stops the spout at once, for example a missing stream, a missing permission or lost
records.

`AnswerWatch` detects a program that neither acks nor fails its records.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.application.run_recorder import reported
from kinesis_spout.backoff import Backoff
from kinesis_spout.config import duration
from kinesis_spout.errors import (
    ExpiredIteratorError,
    KeyThrottledError,
    KinesisError,
    MalformedResponseError,
    StillThrottledError,
    ThrottledError,
    UnreadableRecordError,
    error_sentence,
)
from scheme.errors import SchemeUnavailableError
from state.errors import StoreUnavailableError
from state.store.runs import NoAnswers, ReadTrouble, throttled_again

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from kinesis_spout.clock import Clock
    from kinesis_spout.spout.listener import SpoutNotifier
    from state.store.runs import RefusedLetters, Throttle

log = logging.getLogger("kinesis_spout")
_PAUSE = Backoff(first_s=0.2, longest_s=10.0)
# A read is a single attempt, so that a failing shard does not occupy a thread. A fault that is over
# after a few attempts is no outage.
_BLIP_S = 2.0
_THROTTLED_BLIP_S = 120.0
_NO_ANSWER_S = 10.0
_REPORT_INTERVAL_S = 60.0


class SpoutPart(StrEnum):
    """A part of a spout's work that can fail independently."""

    FETCH = "fetch"
    RETRIES = "retries"
    LISTING = "listing"
    COMMIT = "commit"
    LETTERS = "letters"
    SCHEME = "scheme"


_WORK = {
    SpoutPart.FETCH: "read records",
    SpoutPart.RETRIES: "read failed records again",
    SpoutPart.LISTING: "list the stream's shards",
    SpoutPart.COMMIT: "commit",
    SpoutPart.LETTERS: "write dead letters",
    SpoutPart.SCHEME: "decode a record",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutOutage:
    """A part of a spout's work that is failing and being retried.

    - `part`: `fetch` (reading new records), `retries` (reading records again), `listing` (listing
      shards), `commit`, `letters` or `scheme` (what a scheme needs to decode a record).
    - `shards`: the affected shards; empty if the outage does not concern single shards.
    - `since_ms`: the time of the first failure since the last success, in ms since 1970 UTC.
      `last_error`: the last failure's message.
    """

    part: str
    shards: tuple[str, ...] = ()
    since_ms: int
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutHealth:
    """Whether a spout can do its work. `since_ms` and `last_error` describe the longest outage, or
    the error that has stopped the spout (`since_ms` may then be None). Both are None if `ok`.
    """

    ok: bool
    since_ms: int | None = None
    last_error: str | None = None
    outages: tuple[SpoutOutage, ...] = ()


@dataclass(slots=True)
class _Trouble:
    """The failures of one part, or of one part for one shard, since the last success."""

    since_s: float
    since_ms: int
    error: Exception
    failures: int = 0
    retry_at_s: float = 0.0


class SpoutOutages:
    """The outages of an open spout. Any thread may call it; it never blocks.

    `give_up_after_s`: after this time without a success of a part, or of a part for one shard,
    `failed` raises the error. None: never. Dead letters are retried forever.
    """

    def __init__(
        self, hooks: SpoutNotifier, clock: Clock, random: Random, *, give_up_after_s: float | None
    ) -> None:
        self._hooks = hooks
        self._clock = clock
        self._random = random
        self._give_up_after_s = math.inf if give_up_after_s is None else give_up_after_s
        self._lock = threading.Lock()
        self._troubles: dict[tuple[SpoutPart, str | None], _Trouble] = {}
        self._began_s: dict[SpoutPart, float] = {}  # the beginnings of the logged outages
        self._counts = dict.fromkeys(SpoutPart, 0)
        # The throttled shards. The dictionary is replaced, never changed.
        self.throttled: dict[str, Throttle] = {}
        self.refused_letters: RefusedLetters | None = None  # set by the thread of the letters
        self.not_subscribed: Exception | None = None  # set by the thread that fetches
        self.no_answers: NoAnswers | None = None  # set by the thread of the timeouts
        self._asked: dict[str, tuple[float, int]] = {}  # shards without a response, and since when

    def asks(self, shard_id: str) -> None:
        """Note a request for new records of the shard; `succeeded` ends it. Costs almost
        nothing.
        """
        if shard_id not in self._asked:
            self._asked[shard_id] = self._clock.monotonic_s(), self._clock.now_ms()

    def failing_reads(self) -> ReadTrouble | None:
        """Return since when a shard has had no response, if that is too long, and the last error.
        Throttling by the shard's own limits does not count.
        """
        latest_s = self._clock.monotonic_s() - _NO_ANSWER_S
        with self._lock:
            waiting = sorted(
                (since_ms, shard_id)
                for shard_id, (since_s, since_ms) in self._asked.copy().items()
                if since_s <= latest_s
            )
            for since_ms, shard_id in waiting:
                trouble = self._troubles.get((SpoutPart.FETCH, shard_id))
                if trouble is None:
                    return ReadTrouble(since_ms=since_ms)
                if not _is_of_the_shard(trouble.error):
                    return ReadTrouble(since_ms=since_ms, **reported(trouble.error)._asdict())
        return None

    def failed(self, part: SpoutPart, error: Exception, shard_id: str | None = None) -> None:
        """Note a failure, which is retried at `retry_at_s`, and notify the listeners.

        Raises `error` if waiting cannot cure it, or if it has lasted for `give_up_after_s`, but for
        dead letters.
        """
        if not is_transient(error):
            raise error
        with self._lock:
            if shard_id is not None and _is_of_the_shard(error):
                now_ms = self._clock.now_ms()
                self.throttled = throttled_again(self.throttled, shard_id, now_ms)
            now_s = self._clock.monotonic_s()
            new = _Trouble(now_s, self._clock.now_ms(), error)
            trouble = self._troubles.setdefault((part, shard_id), new)
            trouble.error = error
            trouble.failures += 1
            trouble.retry_at_s = now_s + _PAUSE.wait_s(trouble.failures, self._random)
            failing_s = now_s - trouble.since_s
            blip_s = 0.0
            if part in (SpoutPart.FETCH, SpoutPart.RETRIES):
                blip_s = _THROTTLED_BLIP_S if isinstance(error, ThrottledError) else _BLIP_S
            begins = part not in self._began_s and failing_s >= blip_s
            if begins:
                self._began_s[part] = trouble.since_s
                self._counts[part] += 1
        if part is not SpoutPart.LETTERS and failing_s >= self._give_up_after_s:
            if isinstance(error, ThrottledError):
                raise StillThrottledError(str(error)) from error  # which is not retryable
            raise error
        if begins:
            of_shard = "" if shard_id is None else f" of shard {shard_id}"
            keeps = "the spout cannot %s%s and keeps trying: %s"
            log.warning(keeps, _WORK[part], of_shard, error_sentence(error))
        # The outage is logged, but not each of its errors.
        self._hooks.error(error, is_logged=False)

    def succeeded(self, part: SpoutPart, shard_id: str | None = None) -> None:
        """Note a success. Costs almost nothing without an earlier failure."""
        if part is SpoutPart.FETCH and shard_id is not None:
            self._asked.pop(shard_id, None)
        if (part, shard_id) not in self._troubles:
            return
        with self._lock:
            self._troubles.pop((part, shard_id), None)
            if any(failing is part for failing, _shard_id in self._troubles):
                return
            began_s = self._began_s.pop(part, None)
        if began_s is not None:
            failed_s = self._clock.monotonic_s() - began_s
            log.warning("the spout can %s again, after an outage of %.0f s", _WORK[part], failed_s)

    def forget(self, shard_id: str) -> None:
        """Forget the failures of a released shard, which is not retried."""
        self.succeeded(SpoutPart.FETCH, shard_id)
        self.succeeded(SpoutPart.RETRIES, shard_id)

    def retry_at_s(self, part: SpoutPart, shard_id: str | None = None) -> float:
        """Return when to retry, on the clock's monotonic scale; -inf without a failure."""
        trouble = self._troubles.get((part, shard_id))
        return -math.inf if trouble is None else trouble.retry_at_s

    def health(self) -> SpoutHealth:
        """Return the present outages, the longest first. Short read faults do not count."""
        with self._lock:
            outages = sorted(map(self._outage, self._began_s), key=attrgetter("since_ms"))
        if not outages:
            return SpoutHealth(ok=True)
        first = outages[0]
        return SpoutHealth(
            ok=False,
            since_ms=first.since_ms,
            last_error=first.last_error,
            outages=tuple(outages),
        )

    def _outage(self, part: SpoutPart) -> SpoutOutage:
        of = {shard: one for (failing, shard), one in self._troubles.items() if failing is part}
        oldest = min(of.values(), key=attrgetter("since_s"))
        return SpoutOutage(
            part=str(part),
            shards=tuple(sorted(filter(None, of))),
            since_ms=oldest.since_ms,
            last_error=error_sentence(oldest.error),
        )

    def totals(self) -> tuple[Mapping[str, float], Mapping[str, int]]:
        """Return, by part, the duration of the present outage in seconds (0 without one), and the
        number of outages so far.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            failing_s = {str(part): now_s - self._began_s.get(part, now_s) for part in SpoutPart}
            return failing_s, {str(part): count for part, count in self._counts.items()}


class AnswerWatch:
    """Detects a program that neither acks nor fails its records. For the thread of the timeouts;
    `report` may be called after that thread has ended.

    `timeout_ms`: the time within which a delivery needs an outcome.
    """

    def __init__(self, stream: str, timeout_ms: int, clock: Clock) -> None:
        self._stream = stream
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._answered = 0
        self._silent: NoAnswers | None = None
        self._unreported = 0  # timeouts that are not logged yet
        self._reported_s = -math.inf

    def look(self, answered: int, timed_out: int) -> NoAnswers | None:
        """Look whether the program answers. `answered`: the number of outcomes so far. `timed_out`:
        the number of deliveries that have just timed out. If a delivery was out for a whole timeout
        since the last outcome, returns since when there was no outcome.
        """
        before = self._silent
        if answered != self._answered:
            self._answered, self._silent = answered, None
        elif timed_out:
            since_ms = self._clock.now_ms() - self._timeout_ms
            silent = before or NoAnswers(since_ms=since_ms, count=0)
            self._silent = replace(silent, count=silent.count + timed_out)
        self._unreported += timed_out
        begins = before is None and self._silent is not None
        if begins or self._clock.monotonic_s() - self._reported_s >= _REPORT_INTERVAL_S:
            self.report()
        if before is not None and self._silent is None:
            log.warning("the program acks or fails records of stream %s again", self._stream)
        return self._silent

    def report(self) -> None:
        """Log the timeouts that are not logged yet, if there are any."""
        if not self._unreported:
            return
        log.warning(
            "the program neither acked nor failed %s of stream %s within %s "
            "(message_timeout_s)%s. Each such delivery counts as a failure of its record",
            "1 delivery" if self._unreported == 1 else f"{self._unreported:,} deliveries",
            self._stream,
            duration(self._timeout_ms),
            ". In that time, the program acked or failed no other delivery of the stream"
            if self._silent
            else "",
        )
        self._unreported, self._reported_s = 0, self._clock.monotonic_s()


def is_transient(error: Exception) -> bool:
    """Whether waiting may cure an error. The spout then continues; a Spark task would fail and be
    run again.
    """
    if isinstance(error, UnreadableRecordError):
        return False
    if isinstance(error, KinesisError):
        waits = (ExpiredIteratorError, MalformedResponseError, StillThrottledError)
        return error.retryable or isinstance(error, waits)
    return isinstance(error, StoreUnavailableError | SchemeUnavailableError)


def _is_of_the_shard(error: Exception) -> bool:
    """Whether the shard's own limits are used up."""
    return isinstance(error, ThrottledError) and not isinstance(error, KeyThrottledError)
