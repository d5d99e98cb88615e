"""`kinesis-spout consume` by enhanced fan-out, killed and started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing.faults.plan import slow
from tests.support.shell.consuming import LIMIT_S, running

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake


def test_a_process_that_was_killed_is_succeeded_at_once(
    fake_kinesis: ServedFake, zookeeper_chroot: str
) -> None:
    """Its last subscription may live on at the service, which refuses the next one for five
    seconds. Every record comes, and none is polled for.
    """
    fake_kinesis.model.create("orders")
    wanted = [f"{number}" for number in range(30)]
    application = ("--application", "pushed", "--zookeeper", zookeeper_chroot)
    pushed = (*application, "--read-mode", "efo", "--consumer-name", "reader")
    start = ("consume", "orders", "--from", "TRIM_HORIZON", "--raw", *pushed)
    for data in wanted[:10]:
        fake_kinesis.model.put("orders", "key", data.encode())
    with running(fake_kinesis, *start) as process:
        assert process.stdout is not None
        came = [process.stdout.readline().strip() for _ in range(10)]
        process.kill()
        process.wait(LIMIT_S)
    for data in wanted[10:]:
        fake_kinesis.model.put("orders", "key", data.encode())
    fake_kinesis.model.faults.add(slow(0.0), operation="GetRecords", times=None)
    with running(fake_kinesis, *start) as process:
        assert process.stdout is not None
        while len(set(came)) < len(wanted):
            came.append(process.stdout.readline().strip())
        process.kill()
    assert set(came) == set(wanted)
    assert fake_kinesis.model.faults.struck == []
