"""The standalone spout: each record tracked and acked, checkpoints in ZooKeeper.

Run as

    python -m benchmarks.peers.readers.spout --endpoint URL --directory DIR
        --warm NAME:RECORDS --measured NAME:RECORDS
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.peers.readers import marks
from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from state.zookeeper import embedded


def read(stream: str, endpoint: str, zookeeper: Path) -> None:
    name, _, records = stream.partition(":")
    config = SpoutConfig(
        stream=name,
        application=name,
        zookeeper=f"embedded:{zookeeper}",
        aws=AwsConfig(
            region="us-east-1",
            endpoint_url=endpoint,
            access_key_id="peers",
            secret_access_key="peers",  # noqa: S106
        ),
        starting_position="TRIM_HORIZON",
        rate=ReadRate(reads_per_second=1000, bytes_per_second=1e9),
    )
    count = size = 0
    wanted = int(records)
    with KinesisSpout(config) as spout:
        for emission in spout.emissions():
            count += 1
            size += len(emission.data)
            emission.ack()
            if count == wanted:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--measured", required=True)
    options = parser.parse_args()
    zookeeper = options.directory / "zookeeper"
    embedded.ensure_running(zookeeper)
    try:
        read(options.warm, options.endpoint, zookeeper)
        marks.begin()
        read(options.measured, options.endpoint, zookeeper)
        marks.end(int(options.measured.partition(":")[2]))
    finally:
        embedded.stop(zookeeper)


if __name__ == "__main__":
    main()
