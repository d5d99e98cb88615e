"""What a job tells of a record, and how it is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.history.events import Step, Told
from kinesis_spout.drills.teller import Teller, key_and_number
from kinesis_spout.drills.world.told_files import ToldFiles

if TYPE_CHECKING:
    from pathlib import Path

GOT = Told(5, Step.GOT, "shard-0", "", 17, "key-1", 3, 1)
ACK = Told(6, Step.ACK, "shard-0", "", 17, "key-1", 3, 1)


class OneRun:
    def __init__(self, directory: Path) -> None:
        self.tasks = {"job-1": 0}
        self._directory = directory

    def path(self, run: str) -> Path:
        return self._directory / run


@pytest.mark.parametrize("data", [b"", b'{"n": 5}', b"key-1 305", b"\xff 5", b"a b c", None])
def test_any_other_payload_has_its_partition_key_and_no_number(data: bytes | None) -> None:
    assert key_and_number(data, "key-1") == ("key-1", -1)
    assert key_and_number(data, None)[0] == "?"


def test_what_is_told_is_read_as_it_grows_and_in_the_order_of_its_times(tmp_path: Path) -> None:
    """A line that is not whole yet is read later."""
    runs = OneRun(tmp_path)
    files = ToldFiles(runs)
    files.read()
    teller = Teller(str(runs.path("job-1")))
    teller.tell(ACK, GOT)
    files.read()
    with runs.path("job-1").open("ab") as file:
        file.write(b"7 fail shard-0 18 key-")
    files.read()
    assert files.last_reason == ""
    assert [told.step for told in files.told()] == [Step.GOT, Step.ACK]
    assert files.resolved == {ACK.record}
    with runs.path("job-1").open("ab") as file:
        file.write(b"1 4 1 not yet\n")
    files.read()
    assert files.told()[-1] == Told(7, Step.FAIL, "shard-0", "job-1", 18, "key-1", 4, 1, "not yet")
    teller.tell(ACK)
    files.read()
    assert files.last_reason == "not yet"
