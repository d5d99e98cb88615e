"""What a job tells of a record, and how it is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.consumer import Teller, key_and_number
from kinesis_spout.drills.history.events import Step, Told
from kinesis_spout.drills.job import Job
from kinesis_spout.drills.setting import Setting
from kinesis_spout.drills.stream import OwnStream

if TYPE_CHECKING:
    from pathlib import Path

GOT = Told(5, Step.GOT, "shard-0", "", 17, "key-1", 3, 1)
ACK = Told(6, Step.ACK, "shard-0", "", 17, "key-1", 3, 1)


@pytest.mark.parametrize("data", [b"", b'{"n": 5}', b"key-1 305", b"\xff 5", b"a b c", None])
def test_any_other_payload_has_its_partition_key_and_no_number(data: bytes | None) -> None:
    assert key_and_number(data, "key-1") == ("key-1", -1)
    assert key_and_number(data, None)[0] == "?"


def test_what_is_told_is_read_as_it_grows_and_in_the_order_of_its_times(tmp_path: Path) -> None:
    """A line that is not whole yet is read later."""
    with OwnStream("orders") as stream:
        job = Job(tmp_path, Setting(spout=True), stream, "127.0.0.1:1", spout_tasks=1)
        run = job.start()
        job.end()
    assert job.read() == []
    teller = Teller(str(job.path(run)))
    teller.tell(ACK, GOT)
    job.read()
    with job.path(run).open("ab") as file:
        file.write(b"7 fail shard-0 18 key-")
    assert [told.step for told in job.told()] == [Step.GOT, Step.ACK]
    assert job.resolved == {ACK.record}
    with job.path(run).open("ab") as file:
        file.write(b"1 4 1 not yet\n")
    assert job.told()[-1] == Told(7, Step.FAIL, "shard-0", "job-1", 18, "key-1", 4, 1, "not yet")
