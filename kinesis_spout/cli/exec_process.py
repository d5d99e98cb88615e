"""A command that processes records: one process, which gets each as a line of JSON and answers each
with a line of JSON.

    to its stdin      {"id": "shardId-000000000000:4964...:1", "shard": ..., "data": ...}      see `record_lines.record_line`
    from its stdout   {"id": "shardId-000000000000:4964...:1", "ok": true}
                      {"id": ..., "ok": false, "reason": "no rates", "retry": true}            reason and retry may be left out

It may answer in any order, and late. Its stderr is the one of this process, or goes line by line to
who has a screen of its own.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.cli.line_io import LineWriter
from kinesis_spout.cli.record_lines import record_line
from kinesis_spout.errors import ConfigError
from kinesis_spout.spout.listener import SpoutListener

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, BinaryIO

    from kinesis_spout.spout.emission import SpoutEmission

LATE_ANSWERS = 10_000  # so many records that timed out may still be answered
_LONGEST_REASON = 1_000
_LONGEST_ANSWER_BYTES = 1024 * 1024
_TERMINATED_S = 5.0


class _Answer(msgspec.Struct):
    id: str
    ok: bool
    reason: str | None = None
    retry: bool = True


_decoder = msgspec.json.Decoder(_Answer)


class AnsweringCommand(SpoutListener):
    """One process. It listens to the spout, to know of time-outs. `send` and `close` are for one
    thread.

    `complain` gets a sentence for every line that is no answer to anything; it is called in a
    thread of the command's own. `stopped()`: asked while the command reads nothing; from then on it
    is given a few seconds more. `on_stderr` gets each line of its stderr, without the line's end,
    in another such thread; None: they go to this process's.
    """

    def __init__(
        self,
        text: str,
        *,
        complain: Callable[[str], None],
        stopped: Callable[[], bool],
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as exc:
            raise ConfigError.of(
                "exec", f"cannot be split into words ({exc}); mind its quotes", text
            ) from exc
        if not self._words:
            raise ConfigError.of("exec", "is empty; give a program and its arguments", text)
        self.bad_answers = 0
        self._complain = complain
        self._stopped = stopped
        self._lock = threading.Lock()
        self._waiting: dict[str, SpoutEmission] = {}
        self._late: OrderedDict[str, SpoutEmission] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: LineWriter | None = None
        self._on_stderr = on_stderr
        self._readers: list[threading.Thread] = []
        self._answers_ended = threading.Event()

    def open(self) -> None:
        """Start the process, in a process group of its own: a ctrl-C in the terminal lets it answer
        what it has.

        Raises `ConfigError` if there is no such program.
        """
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._on_stderr is None else subprocess.PIPE,
                process_group=0,
            )
        except OSError as exc:
            raise ConfigError.of(
                "exec", f"cannot be started: {exc.strerror}; give a program in PATH", self._words[0]
            ) from exc
        self._process = process
        if process.stdin is not None:
            self._writer = LineWriter(
                process.stdin.fileno(), lambda: self._stopped() or self.has_ended
            )
        self._start_reader("answers", self._read, process.stdout)
        if process.stderr is not None:
            self._start_reader("stderr", self._pass_on, process.stderr)

    @property
    def waiting(self) -> int:
        """How many records it has not answered, and that have not timed out."""
        with self._lock:
            return len(self._waiting)

    @property
    def has_ended(self) -> bool:
        """The process has ended, or has closed its stdout: there will be no more answers."""
        return (
            self._answers_ended.is_set()
            or self._process is None
            or self._process.poll() is not None
        )

    @property
    def how_it_ended(self) -> str:
        """In words, of a process that is closed."""
        code = None if self._process is None else self._process.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def send(self, emission: SpoutEmission) -> bool:
        """Hand a record over. False if it could not be: the command has ended, or reads nothing and
        this side is to stop.
        """
        line = record_line(emission)
        with self._lock:
            self._waiting[emission.message_id] = emission
        try:
            return self._writer is not None and self._writer.write(line) == len(line)
        except BrokenPipeError:
            return False

    def timed_out(self, emission: SpoutEmission) -> None:
        """An answer is still the truth when it comes late."""
        with self._lock:
            if self._waiting.pop(emission.message_id, None) is not None:
                self._late[emission.message_id] = emission
                if len(self._late) > LATE_ANSWERS:
                    self._late.popitem(last=False)

    def close(self, grace_s: float) -> None:
        """Send nothing more, take its last answers for so many seconds at most, and end it if it
        has not ended by itself.
        """
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        self._answers_ended.wait(grace_s)
        if not _has_ended(process, _TERMINATED_S if self._answers_ended.is_set() else 0.0):
            os.killpg(process.pid, signal.SIGTERM)
            if not _has_ended(process, _TERMINATED_S):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for reader in self._readers:
            reader.join(_TERMINATED_S)

    def _start_reader(
        self, name: str, read: Callable[[BinaryIO], None], pipe: IO[bytes] | None
    ) -> None:
        reader = threading.Thread(
            target=read, args=(pipe,), name=f"kinesis-spout-{name}", daemon=True
        )
        self._readers.append(reader)
        reader.start()

    def _pass_on(self, said: BinaryIO) -> None:
        with said:
            while line := said.readline(_LONGEST_ANSWER_BYTES):
                if self._on_stderr is not None:
                    self._on_stderr(line.decode(errors="replace").rstrip("\r\n"))

    def _read(self, answers: BinaryIO) -> None:
        number = 0
        try:
            with answers:
                while line := answers.readline(_LONGEST_ANSWER_BYTES):
                    number += 1
                    if line.strip():
                        self._take(number, line)
        finally:
            self._answers_ended.set()

    def _take(self, number: int, line: bytes) -> None:
        try:
            answer = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            self._refuse(
                f'line {number} of the command\'s output is no answer like {{"id": "...", "ok": true}}: {exc}; ignored'
            )
            return
        with self._lock:
            emission = self._waiting.pop(answer.id, None) or self._late.pop(answer.id, None)
        if emission is None:
            self._refuse(
                f"line {number} of the command's output answers for a record that waits for no "
                "answer; ignored"
            )
        elif answer.ok:
            emission.ack()
        else:
            emission.fail(
                None if answer.reason is None else answer.reason[:_LONGEST_REASON],
                retry=answer.retry,
            )

    def _refuse(self, sentence: str) -> None:
        self.bad_answers += 1
        self._complain(sentence)


def _has_ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
