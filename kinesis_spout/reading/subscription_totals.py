"""What the subscriptions of one process have come to, as figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTotals:
    """`opened`: subscriptions that gave an event. `failed`: attempts without one, and subscriptions
    that broke. `polled_shards`: shards that are polled now for want of a subscription.
    """

    opened: int = 0
    failed: int = 0
    polled_shards: int = 0
