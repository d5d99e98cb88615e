"""How the processing of one record ended, other than by success.

The user's function raises `Reject` or `Retry`; `Outcome` is what the batch notes of a record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

from state.tracker.emission import parse_message_id

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

MAX_REASON_CHARS = 300
KEY_DIGITS = 16


class Outcome(IntEnum):
    """Where several things were said of one record, the highest counts.

    - `BLOCKED`: not tried, as an earlier record of its key or shard waits for its retry.
    - `UNCOUNTED`: failed with its whole batch; nothing is known against the record itself, so the
      attempt does not count.
    - `ALONE`: failed by itself, in a batch of which nothing succeeded: it, or the sink, is bad.
    - `RETRY`: failed, and may be tried again. `REJECT`: can never be processed.
    - `EXHAUSTED`: not tried, as the plan says that it may not be any more.
    """

    BLOCKED = 1
    UNCOUNTED = 2
    ALONE = 3
    RETRY = 4
    REJECT = 5
    EXHAUSTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """One record and its outcome. `attempt` is this delivery's number, from 1.

    `key` is `key_hash` of its partition key, where order matters. `ordinal` counts the records of
    its shard in the batch: of two records with neighbouring numbers none stands between (None: not
    known).
    """

    message_id: str
    shard_id: str
    sequence: SequenceNumber
    attempt: int
    outcome: Outcome
    reason: str | None = None
    after_s: float | None = None
    key: str | None = None
    ordinal: int | None = None

    @classmethod
    def of(
        cls,
        message_id: str,
        outcome: Outcome,
        *,
        reason: str | None = None,
        after_s: float | None = None,
        key: str | None = None,
        ordinal: int | None = None,
    ) -> Self:
        """The record that a message id names. Raises ValueError for a text that is none."""
        shard_id, sequence, attempt = parse_message_id(message_id)
        return cls(
            message_id=message_id,
            shard_id=shard_id,
            sequence=sequence,
            attempt=attempt,
            outcome=outcome,
            reason=reason,
            after_s=after_s,
            key=key,
            ordinal=ordinal,
        )


def key_hash(partition_key: str) -> str:
    """What is stored of a partition key, which may be secret: the first 16 hexadecimal digits of
    its SHA-256.
    """
    return hashlib.sha256(partition_key.encode()).hexdigest()[:KEY_DIGITS]


class Reject(Exception):  # noqa: N818  # it is an outcome that a user names, as in `raise Reject("negative total")`
    """The record can never be processed: it goes to the dead letter now, whatever is left of its
    retries.
    """


class Retry(Exception):  # noqa: N818  # it is an outcome that a user names, as in `raise Retry("no rates yet", after_s=60)`
    """The record failed in this attempt, and is tried again after `after_s` seconds (None: as the
    backoff says).
    """

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        if after_s is not None and not 0 <= after_s < float("inf"):
            raise ValueError(f"Retry.after_s is {after_s}; give a number of seconds of 0 or more")
        super().__init__(reason)
        self.after_s = after_s

    def __reduce__(self) -> tuple[object, ...]:
        return _make_retry, (str(self), self.after_s)


def _make_retry(reason: str, after_s: float | None) -> Retry:
    return Retry(reason, after_s=after_s)


def reason_of(error: BaseException) -> str:
    """The reason as a dead letter shows it, on one line, cut: an outcome's own words, or the class
    and message of an error.
    """
    words = " ".join(str(error).split())
    named = (
        words
        if isinstance(error, Reject | Retry) and words
        else f"{type(error).__name__}: {words}"
        if words
        else type(error).__name__
    )
    return named if len(named) <= MAX_REASON_CHARS else f"{named[: MAX_REASON_CHARS - 3]}..."
