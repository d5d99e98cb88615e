"""Call rates of the control plane operations.

Source: API reference, each operation; Developer Guide, "Quotas and limits". A call above the rate
gets LimitExceededException. The shape of the service's windows is not documented; these slide over
one second. Some quotas are per account, some per stream. Two other quotas count changes, not calls:
how many streams may be changing at once, and how often a stream may be scaled in 24 hours. The
control plane checks those.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kinesis_spout.testing.errors import limit_exceeded
from kinesis_spout.testing.stream.shard_limits import counted

CHANGES_UNDER_WAY = 5
SCALINGS_PER_DAY = 10
DAY_MS = 86_400_000


class Quota(NamedTuple):
    """Calls per second, of each stream or of the account."""

    calls: int
    of_each_stream: bool = False


QUOTAS = {
    "CreateStream": Quota(5),
    "DeleteStream": Quota(5),
    "ListStreams": Quota(5),
    "DescribeLimits": Quota(1),
    "DescribeStream": Quota(10),
    "DescribeStreamSummary": Quota(20),
    "ListShards": Quota(1_000, of_each_stream=True),
    "SplitShard": Quota(5),
    "MergeShards": Quota(5),
    "UpdateShardCount": Quota(5),
    "IncreaseStreamRetentionPeriod": Quota(5, of_each_stream=True),
    "DecreaseStreamRetentionPeriod": Quota(5, of_each_stream=True),
    "RegisterStreamConsumer": Quota(5, of_each_stream=True),
    "DeregisterStreamConsumer": Quota(5, of_each_stream=True),
    "DescribeStreamConsumer": Quota(20, of_each_stream=True),
    "ListStreamConsumers": Quota(5, of_each_stream=True),
}


class ControlLimits:
    """The calls of the last second.

    A call that is refused for another reason counts; one that is refused here does not.
    """

    def __init__(self, account_id: str) -> None:
        self._account_id = account_id
        self._calls_ms: dict[tuple[str, str | None], deque[int]] = {}

    def count(self, operation: str, stream_name: str | None, now_ms: int) -> None:
        """Count a call of `operation` for a stream (None: for no stream).

        Raises LimitExceededException when the quota is used up.
        """
        quota = QUOTAS.get(operation)
        if quota is None:
            return
        calls_ms = self._calls_ms.setdefault(
            (operation, stream_name if quota.of_each_stream else None), deque()
        )
        if not counted(calls_ms, now_ms, quota.calls):
            of = f"stream {stream_name} under account" if quota.of_each_stream else "account"
            raise limit_exceeded(
                f"Rate exceeded for {operation} of {of} {self._account_id}: {quota.calls} calls a "
                "second."
            )
