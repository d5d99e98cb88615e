"""Spouts for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake


def spout_on(fake: ServedFake, **settings: Any) -> KinesisSpout:
    """A spout that is not open yet. It reads stream `orders` from TRIM_HORIZON, as fast as it can,
    unless `settings` say otherwise.
    """
    return spout_of(AwsConfig(**fake.aws), **settings)


def spout_of(aws: AwsConfig, **settings: Any) -> KinesisSpout:
    """The same on any service."""
    given: dict[str, Any] = {
        "stream": "orders",
        "aws": aws,
        "starting_position": "TRIM_HORIZON",
        "rate": ReadRate(reads_per_second=1_000, bytes_per_second=1e9),
        "commit_interval_s": 0.05,
        "idle_poll_s": 0.02,
    }
    return KinesisSpout(SpoutConfig(**(given | settings)))
