"""What a user's function raises to say what is to become of its record. Any other exception is a
failure that is retried.
"""

from __future__ import annotations

LONGEST_REASON = 300


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
    return named if len(named) <= LONGEST_REASON else f"{named[: LONGEST_REASON - 3]}..."
