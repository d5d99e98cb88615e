"""Calls that hang until a test lets them go: of Kinesis, of the store, of a dead letter sink."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.simulation.in_process import Service
from tests.support.state.trees import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.testing import FakeKinesis
    from state.znodes.tree import Operation, Znode, ZnodeTree

TIMEOUT_S = 60.0  # of a test that would never end


class Gate:
    """Calls pass while it is open. `reached` is set once a call hangs at the shut gate."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._is_open = threading.Event()
        self._is_open.set()

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    def go_through(self) -> None:
        if not self._is_open.is_set():
            self.reached.set()
            self._is_open.wait(TIMEOUT_S)


class GatedService(Service):
    """A service whose listings and reads each have a gate."""

    def __init__(self, fake: FakeKinesis, *, listing: Gate, reading: Gate) -> None:
        super().__init__(fake)
        self._listing = listing
        self._reading = reading

    def list_shards(self, **arguments: Any) -> dict[str, Any]:
        self._listing.go_through()
        return super().list_shards(**arguments)

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        self._reading.go_through()
        return super().get_records(**arguments)


class GatedTree(ForwardingTree):
    """A tree whose reads and writes have a gate."""

    def __init__(self, tree: ZnodeTree, gate: Gate) -> None:
        super().__init__(tree)
        self._gate = gate

    def commit(self, operations: Sequence[Operation]) -> None:
        self._gate.go_through()
        super().commit(operations)

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._gate.go_through()
        return super().read(paths)


class LetterSink:
    """Refuses the letters whose numbers are in `refused`, all while it is not up, and hangs at the
    gate of one that has one. `sizes`: of the payloads that it took.
    """

    def __init__(self, *, is_up: bool = True) -> None:
        self.is_up = is_up
        self.refused: set[str] = set()
        self.gates: dict[str, Gate] = {}
        self.calls: list[str] = []
        self.taken: list[str] = []
        self.sizes: set[int | None] = set()

    def __call__(self, letter: Letter) -> None:
        number = letter.sequence_number
        self.calls.append(number)
        if not self.is_up or number in self.refused:
            raise OSError("no room")
        if (gate := self.gates.get(number)) is not None:
            gate.go_through()
        self.taken.append(number)
        self.sizes.add(None if letter.data is None else len(letter.data))
