"""The outages of a drill's job: what fails while their file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.drills.spark_arguments import Outage, SparkArguments
from kinesis_spout.drills.teller import Teller
from spark_job.commands.drill_job import Outages, letters_to, telling, users_function

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_in_an_outage_nothing_is_called_or_told_while_its_file_is_there(tmp_path: Path) -> None:
    """A letter that is told counts as written."""
    outages, told = Outages(str(tmp_path)), tmp_path / "job.told"
    called: list[object] = []
    batch: Any = _EmptyBatch()
    outages.check(Outage.RECORDS)
    calls: dict[Outage, Callable[[], object]] = {
        Outage.RECORDS: lambda: outages.check(Outage.RECORDS),
        Outage.LETTERS: lambda: letters_to(Teller(str(told)), outages)([]),
        Outage.SINK: lambda: telling(called.append, Teller(str(told)), outages)(batch),
    }
    for outage, call in calls.items():
        (tmp_path / outage.value).touch()
        with pytest.raises(OSError, match=f"outage of {outage.value}"):
            call()
        (tmp_path / outage.value).unlink()
        outages.check(outage)
    assert called == []
    assert told.read_bytes() == b""


USERS_MODULE = """
def asks(batch, scratch="/data/real"):
    return batch, scratch

def asks_not(batch):
    return batch
"""


def test_a_function_gets_the_scratch_directory_where_a_parameter_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of its default, which is its real sink. Any other function is called as it is."""
    (tmp_path / "users_of_scratch.py").write_text(USERS_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    given = SparkArguments(
        source={}, master="", conf={}, path="", out="", checkpoint="", outages="", scratch="/drill"
    )
    batch: Any = object()

    asks = users_function(replace(given, process="users_of_scratch:asks"))
    assert asks(batch) == (batch, "/drill")
    asks_not = users_function(replace(given, process="users_of_scratch:asks_not"))
    assert asks_not(batch) is batch


class _EmptyBatch:
    """Of a tracked batch, what is asked before the function is called."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "df" else lambda *_: [] if name == "to_pylist" else self
