"""A consumer as a user would write it, for a test that kills it. It acks even numbers, fails odd
ones twice, and writes a log.

python spout_program.py ENDPOINT ZOOKEEPER LOG
"""

from __future__ import annotations

import sys
from pathlib import Path

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from state.retry_policy import RetryPolicy

STREAM = "orders"
APPLICATION = "billing"


def main() -> None:
    endpoint_url, zookeeper, log = sys.argv[1:]
    config = SpoutConfig(
        stream=STREAM,
        application=APPLICATION,
        zookeeper=zookeeper,
        aws=AwsConfig(
            region="us-east-1",
            endpoint_url=endpoint_url,
            access_key_id="test",
            secret_access_key="test",
        ),  # the test's own
        starting_position="TRIM_HORIZON",
        rate=ReadRate(reads_per_second=100, bytes_per_second=1e9),
        retry=RetryPolicy(retry_limit=50, first_delay_ms=200, growth=1, jitter=0),
        idle_poll_s=0.02,
        commit_interval_s=0.2,
        shard_refresh_interval_s=0.5,
        zookeeper_session_timeout_s=4,
    )
    with KinesisSpout(config) as spout, Path(log).open("a", buffering=1) as told:
        for emission in spout.emissions():
            number = int(emission.data)
            verdict = "fail" if number % 2 and emission.attempt < 3 else "ack"  # fails twice
            if verdict == "fail":
                emission.fail("odd")
            else:
                emission.ack()
            told.write(
                f"{number} {emission.attempt} {verdict} {emission.sequence_number} "
                f"{emission.shard_id}\n"
            )


if __name__ == "__main__":
    main()
