"""Sends a spout's dead letters: the letter is written first, then its record counts as acked.

Letters go out side by side, so that one which hangs or is refused holds up no other. Each has a
backoff of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kinesis_spout.application.run_recorder import error_sentence
from kinesis_spout.backoff import Backoff
from kinesis_spout.dead_letter.letter import Letter, moment
from kinesis_spout.errors import KinesisError, described
from kinesis_spout.spout.outages import SpoutPart
from state.store.runs import RefusedLetters, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from concurrent.futures import Future

    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.services import SpoutContext
    from kinesis_spout.spout.tracked_shard import DueLetter
    from state.sequence_number import SequenceNumber

log = logging.getLogger("kinesis_spout")
LETTERS_AT_ONCE = 4
MAX_HANGING = 12  # calls beyond the time limit; with more than these, no letter goes out
LETTER_TIMEOUT_S = 30.0
REFUSALS = 5  # in a row; then the letter is counted as refused, and said to be
_MAX_SAID = 10  # refused letters that are said one by one, until a letter passes again
_BATCH = 100
_STEP_INTERVAL_S = 0.2
_REFUSED = Backoff(first_s=1.0, longest_s=60.0)

_Key = tuple[str, "SequenceNumber"]


class LetterRefusedError(KinesisError):
    """`dead_letter` raised, or did not return in time, several times in a row for one record. The
    record stays unresolved, and its letter is sent again.
    """

    retryable = True


class _Sending:
    """A letter from its first call until it was written, or its record has another outcome."""

    __slots__ = ("assigned", "future", "hangs", "letter", "refusals", "since_s", "wait_until_s")

    def __init__(self, assigned: AssignedShard, letter: DueLetter) -> None:
        self.assigned = assigned
        self.letter = letter
        self.future: Future[None] | None = None  # of the call that is running
        self.since_s = 0.0  # when that call began
        self.hangs = False  # that call is beyond the time limit, and counted as refused
        self.refusals = 0  # in a row
        self.wait_until_s = float("-inf")

    @property
    def key(self) -> _Key:
        return (self.assigned.shard.shard_id, self.letter.record.first)

    @property
    def is_due(self) -> bool:
        """Whether its record still waits for the letter."""
        return (
            not self.assigned.is_released and self.letter.record.first in self.assigned.shard.held
        )

    def letters(self, stream_name: str, application: str | None) -> Iterator[Letter]:
        """One letter per record that is left; one for all of them when none is left."""
        record, run = self.letter
        new = partial(
            Letter.of_record,
            record,
            stream_name=stream_name,
            shard_id=self.assigned.shard.shard_id,
            application=application,
        )
        if run is None:
            yield new()
            return
        for number, data, key, arrival_ms in zip(
            run.sequences, run.data, run.keys, run.arrivals, strict=True
        ):
            arrival = moment(arrival_ms, per_second=1_000)
            yield new(number, data=data, partition_key=key, approximate_arrival=arrival)


class _Refusals:
    """The letters that were refused and wait for their next call, and what is said of refusals: the
    first one after a letter that passed, and each letter when it counts as refused, until too many
    were said.
    """

    def __init__(self) -> None:
        self.waiting: dict[_Key, _Sending] = {}
        self._passes = True  # the last letter was not refused
        self._said = 0
        self._last = (0, "")  # its time, and the sentence of its error

    def on_written(self) -> None:
        self._passes, self._said = True, 0

    def on_refused(
        self, one: _Sending, error: BaseException, now_ms: int
    ) -> LetterRefusedError | None:
        """Returns what is to be said; None when enough was said."""
        self._last = (now_ms, sentence(error_sentence(error)))
        passed, self._passes = self._passes, False
        is_said = one.refusals == REFUSALS and self._said < _MAX_SAID
        if not (passed or is_said):
            return None
        self._said += is_said
        shard_id, first = one.key
        how_often = f"{REFUSALS} times in a row" if is_said else "once"
        return LetterRefusedError(
            f"the dead letter of record {shard_id}:{first} was refused {how_often} "
            f"({described(error)}). The record stays unresolved, and its letter is sent again "
            f"within {_REFUSED.longest_s:g} s",
            "correct the file or function that dead_letter names",
        )

    def now(self, sent: Collection[_Sending]) -> RefusedLetters | None:
        """What is refused at the moment, those that are `sent` again included."""
        count = len(self.waiting) + sum(one.refusals > 0 for one in sent)
        last_ms, says = self._last
        return RefusedLetters(count=count, last_ms=last_ms, says=says) if count else None


class SpoutDeadLetterQueue:
    """One per open spout. One thread calls `step`, which does not wait for the callable, and
    another one `finish` at the end.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._origin = context.config.stream_ref.name, context.config.application
        self._write = context.config.dead_letter or _log_letter
        self._scheduler = context.scheduler
        self._clock = context.services.clock
        self._hooks = context.hooks
        self._outages = context.outages
        self._pool = context.services.new_pool(LETTERS_AT_ONCE + MAX_HANGING, "kinesis-letter")
        self._stepping = threading.Lock()
        self._due: deque[_Sending] = deque()
        self._sent: dict[_Key, _Sending] = {}  # their calls are running
        self._refusals = _Refusals()
        self._is_closed = False

    def step(self) -> float:
        """Send the letters that are due. Returns the seconds until the next step.

        If the callable raises, or takes too long, the letter is sent again after a backoff.
        """
        with self._stepping:
            self._settle()
            while self._send_next():
                self._settle()
            self._outages.refused_letters = self._refusals.now(self._sent.values())
        return _STEP_INTERVAL_S

    def finish(self, deadline_s: float) -> bool:
        """Send each letter once more, up to a monotonic time. Returns whether one was written. A
        call that is running is waited for, and not made again.
        """
        if not self._stepping.acquire(timeout=max(0.0, deadline_s - self._clock.monotonic_s())):
            return False  # a listener hangs
        try:
            self._due.clear()
            written = self._settle()
            tried = set(self._sent)
            while True:
                written += self._settle()
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    break
                if self._send_next(tried):
                    continue
                running = [
                    one.future
                    for one in self._sent.values()
                    if one.future is not None and not one.hangs
                ]
                if not running:
                    break
                wait(running, timeout=left_s, return_when=FIRST_COMPLETED)
            return written > 0
        finally:
            self._stepping.release()

    def close(self) -> None:
        """Send no further letter. Calls that are running are left."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    # sending --------------------------------------------------------------------------------------
    def _send_next(self, tried: set[_Key] | None = None) -> bool:
        """Send the next due letter, if there is room for it. Returns whether it was sent. At the
        end, where `tried` is given, whatever its backoff, but only if it is not among these.
        """
        hanging = sum(one.hangs for one in self._sent.values())
        is_full = len(self._sent) - hanging >= LETTERS_AT_ONCE or hanging >= MAX_HANGING
        if is_full or self._is_closed:
            return False
        with self._scheduler.changed:
            if not self._due:
                self._due.extend(islice(self._find_due(tried), _BATCH))
            # An ack may have come since they were found.
            while self._due and not self._due[0].is_due:
                self._due.popleft()
            if not self._due:
                return False
            one = self._due.popleft()
        if tried is not None:
            tried.add(one.key)
        self._refusals.waiting.pop(one.key, None)
        self._sent[one.key] = one
        one.since_s, one.hangs = self._clock.monotonic_s(), False
        one.future = self._pool.submit(self._write_all, one)
        one.future.add_done_callback(lambda _: self._scheduler.wake("letters"))
        return True

    def _find_due(self, tried: set[_Key] | None) -> Iterator[_Sending]:
        """The letters that may be sent now. `tried`: see `_send_next`."""
        self._forget_resolved()
        now_s = self._clock.monotonic_s()
        for assigned, letter in self._scheduler.letters():
            new = _Sending(assigned, letter)
            if new.key in self._sent:
                continue
            one = self._refusals.waiting.get(new.key, new)
            if one.wait_until_s <= now_s if tried is None else new.key not in tried:
                one.assigned, one.letter = assigned, letter
                yield one

    def _forget_resolved(self) -> None:
        """Forget the refusals of letters whose records were acked late, or released."""
        waiting = self._refusals.waiting
        if not waiting:
            return
        exhausted = {
            (shard_id, record.first)
            for shard_id, assigned in self._scheduler.assigned.items()
            for record in assigned.shard.tracker.exhausted
        }
        for key in waiting.keys() - exhausted:
            self._uncount(waiting.pop(key))

    def _write_all(self, one: _Sending) -> None:
        for letter in one.letters(*self._origin):
            self._write(letter)

    # outcomes -------------------------------------------------------------------------------------
    def _settle(self) -> int:
        """Take the outcomes of the calls, and count those that take too long as refused. Returns
        how many were written.
        """
        now_s, written = self._clock.monotonic_s(), 0
        for key, one in list(self._sent.items()):
            if one.future is not None and one.future.done():
                del self._sent[key]
                error, one.future = one.future.exception(), None
                if error is None:
                    written += 1
                    self._on_written(one)
                    continue
                self._refusals.waiting[key] = one
                one.letter = one.letter._replace(run=None)  # found again when it is due
                if not one.hangs:
                    self._on_refused(one, error)
            elif not one.hangs and now_s - one.since_s >= LETTER_TIMEOUT_S:
                one.hangs = True
                self._on_refused(
                    one, TimeoutError(f"dead_letter did not return within {LETTER_TIMEOUT_S:g} s")
                )
        return written

    def _on_written(self, one: _Sending) -> None:
        self._refusals.on_written()
        self._outages.succeeded(SpoutPart.LETTERS)
        for letter in one.letters(*self._origin):
            self._hooks.exhausted(letter)
        record = one.letter.record
        with self._scheduler.changed:
            self._uncount(one)
            self._scheduler.dead_lettered(one.assigned, record.first, record.count)

    def _on_refused(self, one: _Sending, error: BaseException) -> None:
        one.refusals += 1
        one.wait_until_s = self._clock.monotonic_s() + _REFUSED.wait_s(one.refusals)
        said = self._refusals.on_refused(one, error, self._clock.now_ms())
        reported = error if isinstance(error, Exception) else LetterRefusedError(described(error))
        self._outages.failed(SpoutPart.LETTERS, reported, is_reported=True)
        with self._scheduler.changed:
            self._scheduler.letter_refused(one.assigned, one.letter.record.first)
            if one.refusals == REFUSALS:
                one.assigned.refused_letters += 1
        if said is not None:
            self._hooks.error(said)

    def _uncount(self, one: _Sending) -> None:
        """The letter does not count as refused any more. The caller holds the scheduler's lock."""
        if one.refusals >= REFUSALS:
            one.assigned.refused_letters -= 1


def _log_letter(letter: Letter) -> None:
    log.error(
        "record %s failed %d times and is dropped: %s. Set dead_letter to keep such records",
        letter.message_id,
        letter.attempts,
        letter.reason,
    )
