"""Sends a spout's dead letters: the letter is written first, then its record counts as acked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.spout.emission import DeadLetter
from kinesis_spout.spout.outages import SpoutPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.spout.retry_buffer import DueLetter
    from kinesis_spout.spout.services import SpoutContext

log = logging.getLogger("kinesis_spout")
_STEP_INTERVAL_S = 0.2
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0


class SpoutDeadLetterQueue:
    """One per open spout. One thread calls `step`, which blocks as long as the callable does."""

    def __init__(self, context: SpoutContext) -> None:
        self._stream = context.config.stream_ref.name
        self._write = context.config.dead_letter or _log_letter
        self._scheduler = context.scheduler
        self._hooks = context.hooks
        self._outages = context.outages
        self._changed = context.changed
        self._failures = 0

    def step(self) -> float:
        """Write the letters that are due. Returns the seconds until the next step.

        If the callable raises, the letter is written again after a backoff, and the letters behind
        it wait.
        """
        with self._changed:
            due = list(self._scheduler.letters())
        for assigned, letter in due:
            try:
                self._write_all(letter, assigned.shard.shard_id)
            except Exception as exc:  # noqa: BLE001  # any error: the record stays unresolved
                self._failures += 1
                self._outages.failed(SpoutPart.LETTERS, exc)
                with self._changed:
                    self._scheduler.letter_refused(assigned, letter.record.first)
                return min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (self._failures - 1))
            self._failures = 0
            self._outages.succeeded(SpoutPart.LETTERS)
            with self._changed:
                self._scheduler.dead_lettered(assigned, letter.record.first, letter.record.count)
                self._changed.notify_all()
        return _STEP_INTERVAL_S

    def _write_all(self, letter: DueLetter, shard_id: str) -> None:
        for one in _letters(letter, self._stream, shard_id):
            self._write(one)
            self._hooks.exhausted(one)


def _letters(letter: DueLetter, stream: str, shard_id: str) -> Iterator[DeadLetter]:
    """One letter per record that is left of a due letter; one for all of them when none is left."""
    record, run = letter
    known = {
        "stream_name": stream,
        "shard_id": shard_id,
        "attempts": record.attempts,
        "reason": record.reason,
        "first_failure_ms": record.first_failure_ms,
        "last_failure_ms": record.last_failure_ms,
    }
    if run is None:
        yield DeadLetter(
            **known,  # type: ignore[arg-type]  # the mapping's values have the types of their fields
            sequence_number=str(record.first.sequence),
            sub_sequence_number=record.first.sub,
            last_sequence_number=str(record.last.sequence),
            count=record.count,
            data=None,
            partition_key=None,
            approximate_arrival_ms=None,
        )
        return
    for at, sequence in enumerate(run.texts):
        yield DeadLetter(
            **known,  # type: ignore[arg-type]  # the mapping's values have the types of their fields
            sequence_number=sequence,
            last_sequence_number=sequence,
            data=run.data[at],
            partition_key=run.keys[at],
            approximate_arrival_ms=run.arrivals[at],
        )


def _log_letter(letter: DeadLetter) -> None:
    log.error(
        "record %s failed %d times and is dropped: %s; set dead_letter to keep such records",
        letter.message_id,
        letter.attempts,
        letter.reason,
    )
