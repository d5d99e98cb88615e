"""A consumer that one record kills: it acks each record and writes it to a log, but number 13 ends
its process by SIGKILL. It ends by itself when everything that was there has an outcome.

python deadly_program.py ENDPOINT ZOOKEEPER APPLICATION LOG
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import DeadLetter

STREAM = "orders"
DEADLY = 13
RETRY_LIMIT = 1


def main() -> None:
    endpoint_url, zookeeper, application, log = sys.argv[1:]
    with Path(log).open("a", buffering=1) as told:

        def write_letter(letter: DeadLetter) -> None:
            told.write(f"letter {int(letter.data or b'-1')} {letter.attempts}\n")

        config = SpoutConfig(
            stream=STREAM,
            application=application,
            zookeeper=zookeeper,
            aws=AwsConfig(
                region="us-east-1",
                endpoint_url=endpoint_url,
                access_key_id="test",
                secret_access_key="test",
            ),  # the test's own
            starting_position="TRIM_HORIZON",
            until="now",
            rate=ReadRate(reads_per_second=100, bytes_per_second=1e9),
            retry=RetryPolicy(retry_limit=RETRY_LIMIT, first_delay_ms=50, jitter=0),
            idle_poll_s=0.02,
            commit_interval_s=0.2,
            dead_letter=write_letter,
        )
        with KinesisSpout(config) as spout:
            for emission in spout.emissions():
                number = int(emission.data)
                told.write(f"record {number} {emission.attempt}\n")
                if number == DEADLY:
                    os.kill(os.getpid(), signal.SIGKILL)
                emission.ack()


if __name__ == "__main__":
    main()
