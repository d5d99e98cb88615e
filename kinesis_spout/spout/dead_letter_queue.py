"""Sends a spout's dead letters. A letter is written first; then its record counts as acked.

Several letters are sent concurrently, so that a letter that hangs or is refused does not delay
other letters. Each letter has its own backoff.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff
from kinesis_spout.dead_letter.letter import Letter, moment
from kinesis_spout.errors import KinesisError, described, error_sentence
from kinesis_spout.spout.outages import SpoutPart
from state.store.runs import RefusedLetters, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.services import SpoutContext
    from kinesis_spout.spout.tracked_shard import RecordRun
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord

log = logging.getLogger("kinesis_spout")
LETTERS_AT_ONCE = 4
MAX_HANGING = 12  # calls beyond their time limit; with so many, no further letter is sent
LETTER_TIMEOUT_S = 30.0
REFUSALS = 5  # after so many refusals in a row, a letter counts as refused
_BATCH = 100
_STEP_INTERVAL_S = 0.2
_REFUSED = Backoff(first_s=1.0, longest_s=60.0)

_Key = tuple[str, "SequenceNumber"]


class LetterRefusedError(KinesisError):
    """`dead_letter` raised for a record, or did not return in time. The record stays unresolved,
    and its letter is sent again, but not before the call has ended.
    """

    retryable = True


@dataclass(slots=True, eq=False, repr=False)
class _Sending:
    """A letter, from the first call for it until it is written or its record has another outcome.
    While `future` is None, it waits for its next call.
    """

    assigned: AssignedShard
    record: UnresolvedRecord  # may be a range
    run: RecordRun | None = None  # the records of the running call, as far as they are left
    future: Future[None] | None = None  # the running call
    since_s: float = 0.0  # when the running call began
    hangs: bool = False  # the running call is beyond its time limit, and counts as refused
    refusals: int = 0  # in a row
    wait_until_s: float = -math.inf

    @property
    def key(self) -> _Key:
        return (self.assigned.shard.shard_id, self.record.first)


class SpoutDeadLetterQueue:
    """The dead letters of an open spout. One thread calls `step`, which does not wait for the
    user's function; another thread calls `finish` at the end.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._clock = context.services.clock
        self._write = context.config.dead_letter or _log_letter
        self._pool = context.services.new_pool(LETTERS_AT_ONCE + MAX_HANGING, "kinesis-letter")
        self._stepping = threading.Lock()
        self._due: deque[_Sending] = deque()
        self._sendings: dict[_Key, _Sending] = {}
        self._last_refusal = (0, "")  # its time and its error as a sentence
        self._is_closed = False

    def step(self) -> float:
        """Send the letters that are due. Returns the seconds until the next step.

        If the user's function raises, the letter is sent again after a backoff.
        """
        with self._stepping:
            self._settle()
            while self._send_next():
                self._settle()
            count = sum(one.refusals > 0 for one in self._sendings.values())
            last_ms, says = self._last_refusal
            self._context.outages.refused_letters = (
                RefusedLetters(count=count, last_ms=last_ms, says=says) if count else None
            )
        return _STEP_INTERVAL_S

    def finish(self, deadline_s: float) -> bool:
        """Send each letter once more, regardless of its backoff, until a monotonic time. Waits for
        running calls. Returns whether a letter was written.
        """
        if not self._stepping.acquire(timeout=max(0.0, deadline_s - self._clock.monotonic_s())):
            return False  # a listener hangs
        try:
            written = self._settle()
            for one in self._sendings.values():
                if one.future is None:
                    one.wait_until_s = -math.inf
            while (left_s := deadline_s - self._clock.monotonic_s()) > 0:
                if not self._send_next():
                    running = [one.future for one in self._running() if not one.hangs]
                    if not running:
                        break
                    wait(filter(None, running), timeout=left_s, return_when=FIRST_COMPLETED)
                written += self._settle()
            return written > 0
        finally:
            self._stepping.release()

    def refused(self) -> Counter[str]:
        """Return how many letters count as refused, by shard. For any thread."""
        sendings = list(self._sendings.values())
        return Counter(one.key[0] for one in sendings if one.refusals >= REFUSALS)

    def close(self) -> None:
        """Send no further letter. Running calls continue."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    # sending --------------------------------------------------------------------------------------
    def _running(self) -> list[_Sending]:
        return [one for one in self._sendings.values() if one.future is not None]

    def _send_next(self) -> bool:
        """Send the next due letter if there is room for a call. Returns whether one was sent."""
        running = self._running()
        hanging = sum(one.hangs for one in running)
        is_full = len(running) - hanging >= LETTERS_AT_ONCE or hanging >= MAX_HANGING
        if is_full or self._is_closed:
            return False
        with self._scheduler.changed:
            if not self._due:
                self._due.extend(islice(self._find_due(), _BATCH))
            while self._due:
                one = self._due.popleft()
                one.run = one.assigned.shard.held.runs.get(one.record.first)
                # A late ack may have come in the meantime.
                if not one.assigned.is_released and one.run is not None:
                    break
            else:
                return False
        self._sendings[one.key] = one
        one.since_s, one.hangs = self._clock.monotonic_s(), False
        one.future = self._pool.submit(self._write_all, one)
        one.future.add_done_callback(lambda _: self._scheduler.wake("letters"))
        return True

    def _find_due(self) -> Iterator[_Sending]:
        """Yield the letters that may be sent now."""
        waiting = {key for key, one in self._sendings.items() if one.future is None}
        if waiting:  # forget the refusals of records that were acked late or released
            exhausted = {
                (shard_id, record.first)
                for shard_id, assigned in self._scheduler.assigned.items()
                for record in assigned.shard.tracker.exhausted
            }
            for key in waiting - exhausted:
                del self._sendings[key]
        now_s = self._clock.monotonic_s()
        for assigned, record in self._scheduler.letters():
            new = _Sending(assigned, record)
            one = self._sendings.get(new.key, new)
            if one.future is None and one.wait_until_s <= now_s:
                one.assigned, one.record = assigned, record
                yield one

    def _write_all(self, one: _Sending) -> None:
        for letter in self._letters(one):
            self._write(letter)

    def _letters(self, one: _Sending) -> Iterator[Letter]:
        """Yield one letter per record that is left; one letter for all if none is left."""
        config = self._context.config
        new = partial(
            Letter.of_record,
            one.record,
            stream_name=config.stream_ref.name,
            shard_id=one.assigned.shard.shard_id,
            application=config.application,
        )
        if (run := one.run) is None or not run.size:
            yield new()
            return
        for number, data, key, arrival_ms in zip(
            run.sequences, run.data, run.keys, run.arrivals, strict=True
        ):
            arrival = moment(arrival_ms, per_second=1_000)
            yield new(number, data=data, partition_key=key, approximate_arrival=arrival)

    # outcomes -------------------------------------------------------------------------------------
    def _settle(self) -> int:
        """Handle completed calls, and count calls that take too long as refused. Returns the number
        of letters that were written.
        """
        now_s, written = self._clock.monotonic_s(), 0
        for one in self._running():
            if one.future is not None and one.future.done():
                error, one.future = one.future.exception(), None
                if error is None:
                    written += 1
                    del self._sendings[one.key]
                    self._on_written(one)
                    continue
                one.run = None
                if not one.hangs:
                    self._on_refused(one, error)
            elif not one.hangs and now_s - one.since_s >= LETTER_TIMEOUT_S:
                one.hangs = True
                what = f"dead_letter did not return within {LETTER_TIMEOUT_S:g} s"
                self._on_refused(one, TimeoutError(what))
        return written

    def _on_written(self, one: _Sending) -> None:
        self._context.outages.succeeded(SpoutPart.LETTERS)
        for letter in self._letters(one):
            self._context.hooks.notify("exhausted", letter)
        self._scheduler.dead_lettered(one.assigned, one.record.first, one.record.count)

    def _on_refused(self, one: _Sending, error: BaseException) -> None:
        one.refusals += 1
        one.wait_until_s = self._clock.monotonic_s() + _REFUSED.wait_s(one.refusals)
        self._last_refusal = (self._clock.now_ms(), sentence(error_sentence(error)))
        self._scheduler.letter_refused(one.assigned, one.record.first)
        shard_id, first = one.key
        writes_again = f"writes the dead letter again within {_REFUSED.longest_s:g} s"
        if one.hangs:
            writes_again = "waits for the end of this call"
        self._context.outages.failed(
            SpoutPart.LETTERS,
            LetterRefusedError(
                f"the dead letter of record {shard_id}:{first} could not be written "
                f"({described(error)}). The record stays unresolved, and the spout {writes_again}",
                "fix the function configured as dead_letter, or make sure its output file is "
                "writable",
            ),
        )


def _log_letter(letter: Letter) -> None:
    log.error(
        "record %s failed %d times, so it is dropped: %s. To keep such records, set dead_letter",
        letter.message_id,
        letter.attempts,
        letter.reason,
    )
