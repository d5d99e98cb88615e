"""Why a read is polled that was to be pushed. Pure."""

from __future__ import annotations

from enum import StrEnum


class Fallback(StrEnum):
    """Why a shard is polled that was to be read by subscription.

    REFUSED   the service did not open the subscription
    MISSING   the service does not know the consumer, or the shard
    BROKEN    the connection broke, the service ended it with an error, or an event is no event
    SILENT    nothing was pushed in time; it may push again
    ENDED     the subscription lived its five minutes
    """

    REFUSED = "refused"
    MISSING = "missing"
    BROKEN = "broken"
    SILENT = "silent"
    ENDED = "ended"
