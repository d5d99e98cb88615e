"""The outages of a drill's job: what fails while their file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.drills.spark_arguments import Outage, SparkArguments
from kinesis_spout.drills.teller import Teller
from spark_job.commands.drill_job import Outages, letters_to, telling, users_function

if TYPE_CHECKING:
    from pathlib import Path


def test_an_outage_lasts_while_its_file_is_there(tmp_path: Path) -> None:
    outages = Outages(str(tmp_path))
    outages.check(Outage.RECORDS)
    (tmp_path / "records").touch()
    with pytest.raises(OSError, match="outage of records"):
        outages.check(Outage.RECORDS)
    outages.check(Outage.SINK)
    (tmp_path / "records").unlink()
    outages.check(Outage.RECORDS)


def test_no_letter_is_told_in_an_outage(tmp_path: Path) -> None:
    """A letter that is told counts as written."""
    (tmp_path / "letters").touch()
    told = tmp_path / "job.told"
    write = letters_to(Teller(str(told)), Outages(str(tmp_path)))
    with pytest.raises(OSError, match="outage of letters"):
        write([])
    assert told.read_bytes() == b""


def test_a_function_is_not_called_while_the_sink_is_out(tmp_path: Path) -> None:
    (tmp_path / "sink").touch()
    called: list[object] = []
    process = telling(called.append, Teller(str(tmp_path / "told")), Outages(str(tmp_path)))
    with pytest.raises(OSError, match="outage of sink"):
        process(_EmptyBatch())  # type: ignore[arg-type]  # the part of a batch that it uses
    assert called == []


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

    def __init__(self) -> None:
        self.df = self

    def select(self, *_columns: str) -> _EmptyBatch:
        return self

    def toArrow(self) -> _EmptyBatch:  # noqa: N802  # Spark's name
        return self

    def to_pylist(self) -> list[object]:
        return []

    def at_end(self, _callback: object) -> None:
        return None
