"""The calls to AWS that processes really make: a served fake counts them, or botocore tells of each
before it is sent, to other services too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of
from kinesis_spout.testing import slow

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

FOLDER = Path(__file__).with_name("call_recorder")


def allowed(*uses: Use) -> set[str]:
    return {action_of(name) for use in uses for name in PERMISSIONS[use].all_operations}


class ServedCalls:
    """The calls that a fake has got since it was made, or since `clear`."""

    def __init__(self, fake: ServedFake) -> None:
        self._plan = fake.model.faults
        self._plan.add(slow(0.0), times=None)

    def clear(self) -> None:
        self._plan.struck.clear()

    def actions(self) -> set[str]:
        return {f"kinesis:{operation}" for operation, _ in self._plan.struck}


class RecordedCall(NamedTuple):
    """`action` as in a policy; `stream` is its name, empty for a call that names none."""

    action: str
    stream: str


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """Calls of all processes that were started since `clear`."""

    file: Path
    folder: Path = FOLDER

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)

    def all(self) -> list[RecordedCall]:
        if not self.file.exists():
            return []
        return [RecordedCall(*line.split(" ", 1)) for line in self.file.read_text().splitlines()]

    def actions(self, *, stream: str | None = None) -> set[str]:
        """The actions that were called; of one stream, where it is named."""
        return {one.action for one in self.all() if stream is None or one.stream == stream}


@pytest.fixture
def recorded_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedCalls:
    """Records the calls of each Python process that the test starts."""
    file = tmp_path / "calls.txt"
    path = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("RECORDED_CALLS_FILE", str(file))
    return RecordedCalls(file)
