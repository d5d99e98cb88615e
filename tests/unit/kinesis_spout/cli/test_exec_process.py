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
    acks, payloads = AckCount(1), [bytes([number]) * SIZE for number in range(2)]
    program = ANSWERS_THE_FIRST_AFTER_THE_SECOND
    with fed(tmp_path, program, acks, payloads=payloads, prefetch_bytes=1) as made:
        under_test, spout, command, (first, second) = made
        assert command.send(first, record_line(first))
        assert second.extend(1_000)
        under_test.clock.advance(100)
        under_test.loops.take("timeouts")
        assert spout.metrics().total.counts.timed_out == 1
        assert command.send(second, record_line(second))
        assert acks.reached.wait(30)  # the second, and answers are read in their order
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


class Failures(SpoutListener):
    """The reasons of the failures, and whether `wanted` of them counted."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.reasons: list[str | None] = []
        self.reached = threading.Event()

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        del emission
        self.reasons.append(reason)
        if len(self.reasons) == self._wanted:
            self.reached.set()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (rb'{"id": "NAME", "ok": false, "reason": "half \ud83d"}', r"half \ud83d"),
        (rb'{"id": "NAME", "ok": false, "reason": "a\u0000b"}', r"a\x00b"),
        (b'{"id": "NAME", "ok": false, "reason": "caf\xe9"}', "caf\N{REPLACEMENT CHARACTER}"),
        (b'{"id": "NAME", "ok": false, "reason": {"code": 1}}', '{"code": 1}'),
        (b'{"id": "NAME", "ok": false, "reason": "%b"}' % (b"x" * 500_000), "x" * 997 + "..."),
        (b'{"id": "NAME", "ok": false, "reason": %b}' % (b"9" * 5_000), "inf"),
    ],
    ids=["half", "nul", "latin-1", "object", "long", "digits"],
)
def test_an_answer_with_any_reason_fails_its_record(
    answer: bytes, reason: str, tmp_path: Path
) -> None:
    """It is not ignored: without an outcome the record would time out, again and again."""
    failures, command = answered(tmp_path, answer)
    assert failures.reasons == [reason]
    assert command.bad_answers == 0


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id": "NAME", "ok": "true"}',
        b'{"id": "NAME", "ok": false, "retry": "no"}',
        b'{"id": "NAME", "ok": false, "reason": %b}' % (b"[" * 5_000 + b"]" * 5_000),
    ],
    ids=["ok", "retry", "nested"],
)
def test_an_answer_that_is_not_valid_fails_its_record(answer: bytes, tmp_path: Path) -> None:
    failures, command = answered(tmp_path, answer)
    (reason,) = failures.reasons
    assert "its answer is not valid" in str(reason)
    assert command.bad_answers == 1


def test_a_line_that_repeats_the_record_is_no_answer(tmp_path: Path) -> None:
    """As a worker that prints what it reads: the answer comes after it."""
    failures, command = answered(
        tmp_path, b'{"id": "NAME", "data": "x"}\n{"id": "NAME", "ok": false, "reason": "no"}'
    )
    assert failures.reasons == ["no"]
    assert command.bad_answers == 1


def answered(folder: Path, answer: bytes) -> tuple[Failures, ExecProcess]:
    """A command that has given this answer to a record, and the failure has counted."""
    failures = Failures(1)
    with fed(folder, ANSWERS_EACH.format(answers=[answer]), failures) as made:
        *_, command, (emission,) = made
        assert command.send(emission, record_line(emission))
        assert failures.reached.wait(30)
    return failures, command


def test_a_python_program_answers_at_once_without_flushing(tmp_path: Path) -> None:
    """Its output goes to a pipe, where Python keeps it in a buffer unless told otherwise."""
    program = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        '    print(json.dumps({"id": json.loads(line)["id"], "ok": True}))\n'
    )
    acks = AckCount(1)
    with fed(tmp_path, program, acks) as (_, _, command, (emission,)):
        assert command.send(emission, record_line(emission))
        assert acks.reached.wait(30)
