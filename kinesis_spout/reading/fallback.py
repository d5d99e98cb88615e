"""Why a read is polled that was to be pushed. Pure."""

from __future__ import annotations

from enum import StrEnum


class Fallback(StrEnum):
    """Why a shard is polled that was to be read by subscription.

    REFUSED   the service did not open the subscription
    IN_USE    another subscription of the consumer to the shard is open, was opened less than five
              seconds before, or has replaced this one
    MISSING   the service does not know the consumer, or the shard
    BROKEN    the connection broke, the service ended it with an error, or an event is no event
    SILENT    no record was pushed in time; it may push again
    ENDED     the subscription lived its five minutes
    """

    REFUSED = "refused"
    IN_USE = "in_use"
    MISSING = "missing"
    BROKEN = "broken"
    SILENT = "silent"
    ENDED = "ended"
