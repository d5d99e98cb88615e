"""The process of `consume --exec`: what it keeps of records that timed out."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from kinesis_spout.cli.exec_process import ExecProcess
from kinesis_spout.spout.listener import SpoutListener
from tests.support.spout.held_bytes import held_bytes
from tests.support.spout.spout_world import SpoutUnderTest, drain

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.spout.emission import SpoutEmission

SIZE = 4_000
READS_ALL = "import sys; sys.stdin.read()"
ANSWERS_THE_FIRST_AFTER_THE_SECOND = """
import json, sys
first, second = (json.loads(sys.stdin.readline())["id"] for _ in range(2))
for one in (first, second):
    print(json.dumps({"id": one, "ok": True}), flush=True)
sys.stdin.read()
"""


class AckCount(SpoutListener):
    """Tells when so many acks counted."""

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self.reached = threading.Event()

    def acked(self, emission: SpoutEmission) -> None:
        del emission
        self._left -= 1
        if not self._left:
            self.reached.set()


def command_of(folder: Path, program: str) -> ExecProcess:
    script = folder / "command.py"
    script.write_text(program)
    return ExecProcess(f"{sys.executable} {script}", warn=print, stopped=lambda: False)


def test_records_that_timed_out_are_kept_without_their_payloads(tmp_path: Path) -> None:
    under_test = SpoutUnderTest()
    for number in range(100):
        under_test.put(1, data=bytes([number]) * SIZE)
    command = command_of(tmp_path, READS_ALL)
    budget = 10 * SIZE
    with under_test.fresh(listeners=(command,), prefetch_bytes=budget) as spout:
        command.open(spout.ack)
        try:
            for emission in drain(spout, under_test.loops):
                assert command.send(emission)
            del emission
            under_test.clock.advance(100)
            under_test.loops.take("timeouts")
            assert spout.metrics().total.counts.timed_out == 100
            assert command.waiting == 0
            assert held_bytes(command, size=SIZE) <= budget
        finally:
            command.close(0.0)


def test_a_late_answer_counts(tmp_path: Path) -> None:
    """Also when the payload of its record is not in memory any more."""
    under_test = SpoutUnderTest()
    for number in range(2):
        under_test.put(1, data=bytes([number]) * SIZE)
    command, acks = command_of(tmp_path, ANSWERS_THE_FIRST_AFTER_THE_SECOND), AckCount(1)
    with under_test.fresh(listeners=(command, acks), prefetch_bytes=1) as spout:
        command.open(spout.ack)
        try:
            first, second = drain(spout, under_test.loops)
            assert command.send(first)
            assert second.extend(1_000)
            under_test.clock.advance(100)
            under_test.loops.take("timeouts")
            assert spout.metrics().total.counts.timed_out == 1
            assert command.send(second)
            assert acks.reached.wait(30)  # the second, and answers are read in their order
            assert spout.metrics().total.counts.acked == 2
            assert command.bad_answers == 0
        finally:
            command.close(0.0)
