"""The calls to AWS that processes really make: a served fake counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of
from kinesis_spout.testing import slow

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake


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
