"""A command that processes records: one process, which gets and answers each as a line of JSON.

    to its stdin      {"id": "shardId-000000000000:4964...:1", "shard": ..., "data": ...}
    from its stdout   {"id": "shardId-000000000000:4964...:1", "ok": true}
                      {"id": ..., "ok": false, "reason": "no rates", "retry": true}

`record_lines.record_line` makes the input. `reason` and `retry` may be left out of an answer.
Answers may come late and in any order. The command's stderr is that of this process, or goes line
by line to a callback.
"""

import fcntl
import json
import logging
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, cast

import msgspec

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.line_io import LineSplitter, LineWriter, LongLine
from kinesis_spout.errors import ConfigError
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.listener import SpoutListener


class CommandEndedError(CliError):
    """The command has ended by itself. `explain` knows the error by this name."""


log = logging.getLogger("kinesis_spout")
MAX_LATE_ANSWERS = 10_000  # how many timed-out records may still be answered
MAX_ANSWER_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_ID = re.compile(rb'"id"\s*:\s*"([^"\\]+)"')
_TERMINATION_S = 5.0
_MOMENT_S = 0.5


class _Answer(msgspec.Struct):
    id: str
    ok: bool
    reason: Any = None
    retry: bool = True


class _Records:
    """The records that the command has. Any thread may call it."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[SpoutEmission, int]] = {}  # and `_lines` when it was sent
        self._lock = threading.Lock()
        self._lines = 0  # that the command has written
        self._is_said_silent = False
        self._late: OrderedDict[str, None] = OrderedDict()  # message ids

    def sent(self, emission: SpoutEmission) -> None:
        with self._lock:
            self.waiting[emission.message_id] = emission, self._lines

    def next_line(self) -> int:
        """The number of the line that the command has written now."""
        with self._lock:
            self._lines += 1
            self._is_said_silent = False
            return self._lines

    def answered(self, message_id: str) -> tuple[SpoutEmission | None, bool]:
        """The record if it waits for this answer, and whether it has timed out."""
        with self._lock:
            emission, _ = self.waiting.pop(message_id, (None, 0))
            return emission, self._late.pop(message_id, self) is None

    def timed_out(self, message_id: str, *, is_read: Callable[[], bool]) -> bool:
        """Remember the record for a while. Whether it is news that the command is silent: it has
        written nothing since it got the record, though it has read all.
        """
        with self._lock:
            emission, lines = self.waiting.pop(message_id, (None, 0))
            if emission is None:
                return False
            self._late[message_id] = None
            if len(self._late) > MAX_LATE_ANSWERS:
                self._late.popitem(last=False)
            is_news = lines == self._lines and not self._is_said_silent and is_read()
            self._is_said_silent |= is_news
            return is_news


class ExecProcess(SpoutListener):
    """One process of the command. `send` and `close` are for one thread.

    It listens to the spout for time-outs. Threads of this class call `warn`, with a sentence for
    each line of output that is not a valid answer, and `on_stderr`, with each line of the command's
    stderr; without it, the command writes to the stderr of this process. `stopped()` is polled
    while the command reads nothing; once it is true, the command has a few seconds more.
    """

    def __init__(
        self,
        text: str,
        *,
        warn: Callable[[str], None],
        stopped: Callable[[], bool],
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as exc:
            problem = f"is not a valid command line ({exc})"
            raise ConfigError.of(
                "exec", problem, text, remedy="check the command line's quotes"
            ) from exc
        if not self._words:
            remedy = "pass the name of a program, then its arguments"
            raise ConfigError.of("exec", "is empty", text, remedy=remedy)
        self.bad_answers = 0
        self.has_read_nothing = False  # of what it was sent, when it ended: known after `close`
        self._warn = warn
        self._stopped = stopped
        self._on_stderr = on_stderr
        self._records = _Records()
        self._ack_late: Callable[[str], bool] = lambda _: False
        self._process: subprocess.Popen[bytes]  # from `open` on
        self._writer: LineWriter
        self._readers: list[threading.Thread] = []
        self._answers_ended = threading.Event()
        self._had_to_be_stopped = False
        self._sent_bytes = 0

    def open(self, ack_late: Callable[[str], bool]) -> None:
        """Start the process. `ack_late` acks a record that has timed out, by its message id
        (`KinesisSpout.ack`). Raises `ConfigError` if the program cannot be started.

        It has a process group of its own, so that Ctrl-C in the terminal does not end it: it can
        still answer the records that it has. A Python program does not keep its answers in a buffer
        (PYTHONUNBUFFERED); no variable does that for programs of any language.
        """
        self._ack_late = ack_late
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._on_stderr is None else subprocess.PIPE,
                env={"PYTHONUNBUFFERED": "1", **os.environ},
                process_group=0,
            )
        except OSError as exc:
            problem, remedy = (
                f"cannot be started: {exc.strerror}",
                "pass a path, or a program that is in PATH",
            )
            raise ConfigError.of("exec", problem, self._words[0], remedy=remedy) from exc
        self._writer = LineWriter(self._stdin.fileno(), lambda: self._stopped() or self.has_ended)
        for read, pipe in (
            (self._read_answers, self._process.stdout),
            (self._forward, self._process.stderr),
        ):
            if pipe is not None:
                reader = threading.Thread(target=read, args=(pipe,), daemon=True)
                self._readers.append(reader)
                reader.start()

    @property
    def _stdin(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    @property
    def waiting(self) -> int:
        """The number of records that are not answered and have not timed out."""
        return len(self._records.waiting)

    @property
    def has_ended(self) -> bool:
        """No more answers will come: the process has ended, or has closed its stdout."""
        return self._answers_ended.is_set() or self._process.poll() is not None

    @property
    def has_crashed(self) -> bool:
        """Whether it was killed, or ended with an error, while records waited for its answer that
        it has read. Call it after `close`.
        """
        return self.waiting > 0 and bool(self._process.returncode) and not self.has_read_nothing

    @property
    def outcome(self) -> str:
        """How the process ended, in words. Call it after `close`."""
        if self._had_to_be_stopped:
            return "the command closed its stdout but did not exit"
        code = self._process.returncode
        if code < 0:
            return f"the command was killed by {signal.Signals(-code).name}"
        return f"the command ended with exit code {code}"

    def send(self, emission: SpoutEmission, line: bytes) -> bool:
        """Pass a record to the command, as this line. Blocks while the command reads nothing.

        False if it could not be passed: the command has ended, or reads nothing and `stopped()`.
        """
        self._records.sent(emission)
        try:
            written = self._writer.write(line)
        except BrokenPipeError:
            return False
        self._sent_bytes += written
        return written == len(line)

    def timed_out(self, emission: SpoutEmission) -> None:
        """A late ack still counts. The log says so if the command is silent."""
        if self._records.timed_out(
            emission.message_id, is_read=lambda: _unread_bytes(self._stdin) == 0
        ):
            log.warning(
                "the command has read all its records but has written no answer within "
                "--message-timeout. Its answers may still be in its output buffer: flush the "
                "buffer after each line (print(..., flush=True), stdbuf -oL)"
            )

    def close(self, grace_s: float) -> None:
        """Close the command's stdin, wait up to `grace_s` for its last answers, and end it.

        A process that does not end by itself gets SIGTERM, and SIGKILL 5 s later.
        """
        process = self._process
        # One that ends has closed its stdout a moment before.
        if self.has_ended and _has_ended(process, _MOMENT_S):
            self.has_read_nothing = _unread_bytes(self._stdin) >= self._sent_bytes
        self._stdin.close()
        self._answers_ended.wait(grace_s)
        if not _has_ended(process, _TERMINATION_S if self._answers_ended.is_set() else 0.0):
            self._had_to_be_stopped = True
            os.killpg(process.pid, signal.SIGTERM)
            if not _has_ended(process, _TERMINATION_S):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for reader in self._readers:
            reader.join(_TERMINATION_S)

    def _forward(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(MAX_ANSWER_BYTES):
                if self._on_stderr is not None:
                    self._on_stderr(line.decode(errors="replace").rstrip("\r\n"))

    def _read_answers(self, answers: IO[bytes]) -> None:
        splitter = LineSplitter(MAX_ANSWER_BYTES)
        try:
            with answers:
                while chunk := os.read(answers.fileno(), _READ_BYTES):
                    for line in splitter.feed(chunk):
                        self._apply(line)
            if (last := splitter.rest()) is not None:
                self._apply(last)
        finally:
            self._answers_ended.set()

    def _apply(self, line: bytes | LongLine) -> None:
        number = self._records.next_line()
        if not isinstance(line, LongLine) and not line.strip():
            return
        answer, fault = _answer_of(line)
        if answer is not None:
            emission, is_late = self._records.answered(answer.id)
            if emission is not None and answer.ok:
                emission.ack()
            elif emission is not None:
                emission.fail(answer.reason, retry=answer.retry)
            elif is_late and answer.ok:  # a late failure changes nothing: the time-out was one
                self._ack_late(answer.id)
            elif not is_late:
                fault = fault or (
                    "the line is ignored, because its record is not waiting for an answer"
                )
        if fault:
            self.bad_answers += 1
            self._warn(f"line {number} of the command's output: {fault}")


def _answer_of(line: bytes | LongLine) -> tuple[_Answer | None, str]:
    """The answer of a line, and what is wrong with the line; None for one that is no answer. An
    answer that is not valid, or too long to be read, is a failure of its record, which else would
    time out, again and again.

    JSON is read as other programs write it: with bytes that are not UTF-8, with halves of surrogate
    pairs, with NaN, with integers of any length. Of one that is nested too deeply, only the id is
    read.
    """
    named = _ID.search(line.head if isinstance(line, LongLine) else line)
    message_id = "" if named is None else named[1].decode(errors="replace")
    if isinstance(line, LongLine):
        size = f"has {line.size_bytes:,} bytes"
        return (
            _Answer(message_id, ok=False, reason=f"its answer {size}"),
            f"the line {size}, but {MAX_ANSWER_BYTES:,} are allowed. The record counts as failed",
        )
    found: Any = None
    why = ""
    try:
        found = json.loads(line.decode(errors="replace"), parse_int=_whole)
    except ValueError as exc:
        why = f": {exc}"
    except RecursionError:
        if message_id and b'"ok"' in line:
            found = {"id": message_id, "ok": None}
    if not isinstance(found, dict) or not {"id", "ok"} <= found.keys():
        such = '{"id": "...", "ok": true}'
        return None, f"the line is not an answer such as {such}{why}. The line is ignored"
    try:
        answer = msgspec.convert(found, _Answer)
    except msgspec.ValidationError as exc:
        answer = _Answer(str(found["id"]), ok=False, reason=f"its answer is not valid: {exc}")
        return answer, f"the answer is not valid: {exc}. The record counts as failed"
    if answer.reason is not None and not isinstance(answer.reason, str | float):
        answer.reason = json.dumps(answer.reason)
    return answer, ""


def _whole(text: str) -> float:
    """Python refuses to make an int of thousands of digits."""
    return int(text) if len(text) < 20 else float(text)


def _has_ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _unread_bytes(pipe: IO[bytes]) -> int:
    """How many bytes of a pipe nobody has read; -1 where the system does not tell."""
    try:
        unread = fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(struct.calcsize("i")))
    except (OSError, ValueError):  # it was closed meanwhile
        return -1
    return int.from_bytes(unread, sys.byteorder, signed=True)
