"""The process of `consume --exec`: what it keeps of records that timed out."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.exec_process import ExecProcess
from kinesis_spout.cli.record_lines import record_line
from kinesis_spout.spout.listener import SpoutListener
from tests.support.spout.spout_world import SpoutUnderTest, drain
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.kinesis_spout import KinesisSpout

SIZE = 4_000
ANSWERS_THE_FIRST_AFTER_THE_SECOND = """
import json, sys
first, second = (json.loads(sys.stdin.readline())["id"] for _ in range(2))
for one in (first, second):
    print(json.dumps({"id": one, "ok": True}), flush=True)
sys.stdin.read()
"""


class Outcomes(SpoutListener):
    """The acks, and the reasons of the failures. `reached`: so many have counted."""

    def __init__(self, wanted: int = 1) -> None:
        self._left = wanted
        self.acks = 0
        self.reasons: list[str | None] = []
        self.reached = threading.Event()

    def acked(self, emission: SpoutEmission) -> None:
        del emission
        self.acks += 1
        self._count()

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        del emission
        self.reasons.append(reason)
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self.reached.set()


def command_of(folder: Path, program: str) -> ExecProcess:
    script = folder / "command.py"
    script.write_text(program)
    return ExecProcess(f"{sys.executable} {script}", warn=print, stopped=lambda: False)


@contextmanager
def fed(
    folder: Path,
    program: str,
    *listeners: SpoutListener,
    payloads: Sequence[bytes] = (b"x",),
    grace_s: float = 30.0,
    **options: Any,
) -> Iterator[tuple[SpoutUnderTest, KinesisSpout, ExecProcess, list[SpoutEmission]]]:
    """A spout and its command, and what is to be sent to it."""
    under_test = SpoutUnderTest()
    for data in payloads:
        under_test.put(1, data=data)
    command = command_of(folder, program)
    with under_test.fresh(listeners=(command, *listeners), **options) as spout:
        command.open(spout.ack)
        try:
            yield under_test, spout, command, drain(spout, under_test.loops)
        finally:
            command.close(grace_s)


def ended(folder: Path, program: str) -> ExecProcess:
    """A command that was sent a record, and has ended."""
    with fed(folder, program) as (_, _, command, (emission,)):
        command.send(emission, record_line(emission))
        wait_until(lambda: command.has_ended)
    return command


def test_no_record_has_ended_a_command_that_has_read_none(tmp_path: Path) -> None:
    """As one whose module is missing. One that has read may have been ended by what it read."""
    waits = "import os, select, sys; select.select([0], [], []); "
    unread = ended(tmp_path, waits + "sys.exit(1)")
    assert (unread.has_read_nothing, unread.has_crashed) == (True, False)
    gone = ended(tmp_path, "import sys; sys.exit(1)")
    assert (gone.has_read_nothing, gone.has_crashed) == (True, False)
    read = ended(tmp_path, waits + "os.read(0, 1); sys.exit(1)")
    assert (read.has_read_nothing, read.has_crashed) == (False, True)


def test_a_late_answer_counts(tmp_path: Path) -> None:
    """Also when the payload of its record is not in memory any more."""
    outcomes, payloads = Outcomes(2), [bytes([number]) * SIZE for number in range(2)]
    program = ANSWERS_THE_FIRST_AFTER_THE_SECOND
    with fed(tmp_path, program, outcomes, payloads=payloads, prefetch_bytes=1) as made:
        under_test, spout, command, (first, second) = made
        assert command.send(first, record_line(first))
        assert second.extend(1_000)
        under_test.clock.advance(100)
        under_test.loops.take("timeouts")
        assert spout.metrics().total.counts.timed_out == 1
        assert command.send(second, record_line(second))
        assert outcomes.reached.wait(30)  # the second was acked: answers are read in order
        assert spout.metrics().total.counts.acked == 2
        assert command.bad_answers == 0


ANSWERS_EACH = """
import json, sys
for line, answer in zip(sys.stdin, {answers!r}):
    name = json.loads(line)["id"].encode()
    sys.stdout.buffer.write(answer.replace(b"NAME", name) + b"\\n")
    sys.stdout.buffer.flush()
sys.stdin.read()
"""


INVALID = "its answer is not valid"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (rb'"ok": false, "reason": "half \ud83d"', r"half \ud83d"),
        (b'"ok": false, "reason": "caf\xe9"', "caf\N{REPLACEMENT CHARACTER}"),
        (b'"ok": false, "reason": {"code": 1}', '{"code": 1}'),
        (b'"ok": false, "reason": %b' % (b"9" * 5_000), "inf"),
        # one that is not valid
        (b'"ok": "true"', INVALID),
        (b'"ok": false, "retry": "no"', INVALID),
        (b'"ok": false, "reason": %b' % (b"[" * 5_000 + b"]" * 5_000), INVALID),
        # a worker that prints what it reads: the answer comes after it
        (b'"data": "x"}\n{"id": "NAME", "ok": false, "reason": "no"', "no"),
    ],
    ids=["half", "latin-1", "object", "digits", "ok", "retry", "nested", "repeated"],
)
def test_any_answer_fails_its_record_with_its_reason(
    answer: bytes, reason: str, tmp_path: Path
) -> None:
    """It is not ignored: without an outcome the record would time out, again and again."""
    outcomes = Outcomes()
    program = ANSWERS_EACH.format(answers=[b'{"id": "NAME", %b}' % answer])
    with fed(tmp_path, program, outcomes) as (_, _, command, (emission,)):
        assert command.send(emission, record_line(emission))
        assert outcomes.reached.wait(30)
    (found,) = outcomes.reasons
    assert found == reason or (reason == INVALID and INVALID in str(found))
    assert command.bad_answers == (reason in {INVALID, "no"})


def test_a_python_program_answers_at_once_without_flushing(tmp_path: Path) -> None:
    """Its output goes to a pipe, where Python keeps it in a buffer unless told otherwise."""
    program = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        '    print(json.dumps({"id": json.loads(line)["id"], "ok": True}))\n'
    )
    outcomes = Outcomes()
    with fed(tmp_path, program, outcomes) as (_, _, command, (emission,)):
        assert command.send(emission, record_line(emission))
        assert outcomes.reached.wait(30)
    assert outcomes.acks == 1
