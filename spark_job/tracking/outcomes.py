"""Outcomes of single records: what the user's function raises, and what is noted of a record.

A record without a note was processed. Any exception but `Reject` and `Retry` counts as a failure
that is retried.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Self

from kinesis_spout.errors import described, text_of
from state.tracker.inflight_record_tracker import parse_message_id

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

MAX_REASON_CHARS = 300
MAX_DELAY_S = 10 * 366 * 86_400.0
KEY_DIGITS = 16


class Outcome(IntEnum):
    """What is noted of a record. Of several notes on one record, the highest counts.

    - `BLOCKED`: it was not tried, because an earlier record of its key or shard waits for a retry.
    - `UNCOUNTED`: it failed together with others. Nothing is known against the record itself, so
      the attempt does not count.
    - `ALONE`: it failed by itself, in a batch of which nothing succeeded. Either the record or the
      sink is bad.
    - `RETRY`: it failed, and may be tried again.
    - `REJECT`: it can never be processed.
    - `EXHAUSTED`: it was not tried, because its retries are used up: the plan says so, or its
      deliveries have ended the process (`poison_search`).
    """

    BLOCKED = 1
    UNCOUNTED = 2
    ALONE = 3
    RETRY = 4
    REJECT = 5
    EXHAUSTED = 6


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record and what is noted of it. `attempt` is the number of this delivery, from 1.

    - `after_s`: the delay until its retry that the function asked for; None for the backoff.
    - `key`: its `order_key`, where order matters.
    - `ordinal`: its place among the batch's records of its shard, None if not known. Records with
      consecutive ordinals are neighbours.
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
        """The record that a message id names. Raises ValueError for a malformed message id."""
        return cls(
            message_id, *parse_message_id(message_id), outcome, reason, after_s, key, ordinal
        )


def order_key(partition_key: str | None, shard_id: str, number: tuple[int, int]) -> str:
    """The key whose records wait for each other: the first 16 hexadecimal digits of the SHA-256 of
    the partition key, which may be secret, so only this is stored. `number`: sequence and
    sub-sequence number.

    A stream with record distribution AUTO may have records without a partition key. Such a record
    has no order to keep. It neither blocks another record nor waits for one, so the key is its own.
    """
    if partition_key is not None:
        own = partition_key.encode()
    else:
        # 0xff begins no UTF-8 text, so this is the hash of no partition key.
        own = b"\xff" + f"{shard_id}:{number[0]}.{number[1]}".encode()
    return hashlib.sha256(own).hexdigest()[:KEY_DIGITS]


class Reject(Exception):  # noqa: N818  # it is an outcome that a user names, as in `raise Reject("negative total")`
    """Raise this error in your function for a record that can never be processed.

    The record is dead-lettered now, even if it has retries left. The message becomes the dead
    letter's reason.
    """


class Retry(Exception):  # noqa: N818  # it is an outcome that a user names, as in `raise Retry("no rates yet", after_s=60)`
    """Raise this error in your function for a record that failed in this attempt.

    The record is retried after `after_s` seconds, or after its backoff if `after_s` is None. The
    attempt counts. The message becomes the dead letter's reason. Raises ValueError for a negative
    or infinite `after_s`.
    """

    def __init__(self, reason: str, *, after_s: float | None = None) -> None:
        if after_s is not None and not 0 <= after_s < float("inf"):
            raise ValueError(f"Retry.after_s is {after_s}; use 0 or more seconds")
        super().__init__(reason)
        self.after_s = after_s

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Retry, after_s=self.after_s), (str(self),)


def reason_of(error: BaseException) -> str:
    """The reason as a dead letter shows it: one line, at most `MAX_REASON_CHARS` long.

    It is the message of a `Reject` or `Retry`, and the class and message of another error.
    """
    own = one_line(error) if isinstance(error, Reject | Retry) else ""
    return own or one_line(described(error))


def one_line(reason: object) -> str:
    """A reason of any type as one line that can be stored, at most `MAX_REASON_CHARS` long."""
    # More than is kept, because spaces and line ends fall together.
    return text_of(" ".join(text_of(reason).split()), MAX_REASON_CHARS)


def delay_of(retry: Retry) -> float | None:
    """The seconds until the retry that it asks for, at most `MAX_DELAY_S`. None, as for one that
    does not say, for what is no number of seconds: a subclass may have set anything.
    """
    try:
        after_s = float(retry.after_s)  # type: ignore[arg-type]  # None is no number either
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # of the user's value
        return None
    return min(after_s, MAX_DELAY_S) if after_s >= 0 else None
