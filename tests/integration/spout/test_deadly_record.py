"""A real process that one record kills at each delivery, started again each time."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from tests.support.spout import deadly_program
from tests.support.spout.deadly_program import DEADLY, RETRY_LIMIT

if TYPE_CHECKING:
    from pathlib import Path

RECORDS, MAX_STARTS, LIMIT_S = 200, 8, 60.0


def test_a_record_that_kills_its_process_each_time_is_dead_lettered_and_all_others_are_processed(
    zookeeper_chroot: str, tmp_path: Path
) -> None:
    """No other record loses an attempt."""
    fake = FakeKinesis()
    fake.create(deadly_program.STREAM, shards=2)
    for number in range(RECORDS):
        fake.put(deadly_program.STREAM, f"key {number}", b"%d" % number)
    log = tmp_path / "log"
    with FakeKinesisServer(fake) as server:
        arguments = [server.endpoint_url, zookeeper_chroot, "billing", str(log)]
        codes: list[int] = []
        while 0 not in codes and len(codes) < MAX_STARTS:
            ended = subprocess.run(
                [sys.executable, deadly_program.__file__, *arguments], timeout=LIMIT_S, check=False
            )
            codes.append(ended.returncode)
    # Twice at full speed, and then once for each attempt that counts.
    assert codes == [-signal.SIGKILL] * (2 + RETRY_LIMIT + 1) + [0]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [line[1:] for line in lines if line[0] == "letter"] == [
        [str(DEADLY), str(RETRY_LIMIT + 1)]
    ]
    delivered = [(int(line[1]), int(line[2])) for line in lines if line[0] == "record"]
    assert {number for number, _ in delivered} == set(range(RECORDS))
    assert {attempt for number, attempt in delivered if number != DEADLY} == {1}
