"""Why a read is polled that was to be pushed, and how many subscriptions there were. Pure."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTotals:
    """`opened`: subscriptions that gave an event. `failed`: attempts without one, and subscriptions
    that broke. `polled_shards`: shards that are polled now for want of a subscription.
    """

    opened: int = 0
    failed: int = 0
    polled_shards: int = 0
