"""A fault that a job has to outlast."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from kinesis_spout.drills import drill as module
from kinesis_spout.drills.drill import Drill, run_drill
from kinesis_spout.drills.history.events import History
from kinesis_spout.drills.world.setting import Setting

if TYPE_CHECKING:
    from pathlib import Path


class WorldOfOneEnd:
    """A world whose job ends by itself when something is done to it."""

    def __init__(self, *_: object) -> None:
        self.ended: list[str] = []
        self.notes: list[str] = []
        self.is_disturbed = False
        self.log: Path | None = None
        self.producers = SimpleNamespace(start=lambda: None)
        self.job = SimpleNamespace(start=lambda: None, close=lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait_for_acks(self, more: int) -> None: ...

    def wait_s(self, seconds: float) -> None: ...

    def drain(self, limit_s: float) -> float:
        return 1.0

    def history(self) -> History:
        return History()


def end_the_job(world: Any) -> None:
    world.ended.append("job-1")


@pytest.mark.parametrize(
    ("spares", "troubles"), [(True, ["job-1 did not outlast it"]), (False, [])]
)
def test_a_job_that_ends_by_itself_is_a_trouble_where_it_has_to_outlast_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, spares: bool, troubles: list[str]
) -> None:
    monkeypatch.setattr(module, "World", WorldOfOneEnd)
    drill = Drill(name="d", sentence="ends it", protection="p", act=end_the_job, spares=spares)

    assert run_drill(drill, Setting(), tmp_path, print).troubles == troubles
