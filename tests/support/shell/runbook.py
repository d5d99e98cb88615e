"""Plays docs/runbook.md and pages like it: the commands in their order, each output compared with
the page's.

A symptom is a `##` section; its `console` blocks hold commands (`$ ...`) with what they print on
stdout and stderr, without blank lines. The page is written again, with what the commands print now,
where the environment has `WRITE_RUNBOOK=1`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tests.support.shell.command_line import environment, without_waits
from tests.support.shell.consuming import connection
from tests.support.shell.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

PAGE = ROOT / "docs" / "runbook.md"
CONNECT = "zk1:2181"  # the ensemble's name on the page
_LIMIT_S = 180.0  # a second owner waits a minute
_WRITES = os.environ.get("WRITE_RUNBOOK") == "1"
_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SEQUENCE = re.compile(r"\b\d{50,}\b")
# What differs from run to run, and what stands for it. Widths follow values, so spaces and line
# ends count as one space.
_DIFFERS = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\b(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b(AT|AFTER):\.\.\d+", "POSITION"),
    (r"\b\d{50,}\b|\.\.\d{8,12}\b", "SEQUENCE"),
    # a look may end before Kinesis says that there is no more
    (r"(<|at most )\d+(\.\d+)? m?s\b", "0 s"),
    (r"\d+ shards? (is|are) read up to the newest record", "UP TO DATE"),
    (r"\bno shard is more than \d+(\.\d+)? m?s behind", "UP TO DATE"),
    # what is beyond a day is told as more than one: it depends on how fast the records were put
    (r"(>|\bmore than )?(?<![\w.])\d+(\.\d+)? (ms|s|min|h|d)\b", "DURATION"),
    (r"\b\d+\.\d+x", "SPEED"),
    (r"DURATION +\d+$", "DURATION TRIES"),
    # which of equally bad shards is named
    (r"\b(Behind:|details below:) shard \d+", r"\1 shard N"),
    (r"\b(attempts?) \d+", r"\1 N"),
    (r"\b\d+ attempts\b", "N attempts"),
    (r"\b(process|pid) \d+", r"\1 PID"),
    (r"127\.0\.0\.1:\d+|\[?::1\]?:\d+", "ADDRESS"),
    (r"\bplan +\S+-\S+", "plan NAME"),
    (r"\s+", " "),
)
_AWS = """
import os, re, sys
import boto3
service, action, *words = sys.argv[1:]
given = {
    "".join(part.capitalize() for part in name[2:].split("-")): value
    for name, value in zip(words[::2], words[1::2])
}
asked = {name: int(value) if value.isdigit() else value for name, value in given.items()}
getattr(boto3.client(service), action.replace("-", "_"))(**asked)
"""
_PROCESS = """
import json, os, sys, time
for line in sys.stdin:
    record = json.loads(line)
    done = {}
    exec(open("does.py").read())
    print(json.dumps({"id": record["id"], "ok": True} | done), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the page, as a shell takes it, and the output that the page shows."""

    command: str
    output: str


def section(title: str, page: Path = PAGE) -> str:
    """The text below a `##` heading, up to the next one."""
    pattern = rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)"
    (found,) = re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def steps(text: str) -> list[Step]:
    """The commands of a part of the page."""
    return [
        Step(*_parted(shown))
        for block in _FENCE.findall(text)
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


def normalised(text: str) -> str:
    """The text with a word for each value that differs from run to run, and the rows of shards in
    the order of their names: equally bad ones may come in any order.
    """
    groups = groupby(text.splitlines(), key=lambda line: line.startswith("shardId-"))
    text = "\n".join(
        line for is_row, lines in groups for line in (sorted(lines) if is_row else lines)
    )
    for pattern, word in _DIFFERS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.strip()


class RunbookPlayer:
    """One symptom, or another section of `page`, on a service and a ZooKeeper of its own.
    `zookeeper` is the server that the page's `zk1:2181` stands for, `others` are more names of the
    page. Each is replaced in the commands, and put back in what they print. A sequence number in a
    command is replaced by `sequence`, the one of this run. `variables` are more variables of the
    environment.
    """

    def __init__(
        self,
        title: str,
        folder: Path,
        fake: ServedFake,
        zookeeper: str,
        *,
        page: Path = PAGE,
        **others: str,
    ) -> None:
        self.folder = folder
        self.fake = fake
        self.variables: dict[str, str] = {}
        self.sequence = ""
        self._title = title
        self._page = page
        self._text = section(title, page)
        self._steps = steps(self._text)
        self._at = 0
        self._names = {CONNECT: zookeeper} | {
            name.replace("_", ":"): v for name, v in others.items()
        }
        self._printed: list[str] = []
        self._write_program("kinesis-spout", "-m", "kinesis_spout.cli.entry")
        self._write_program("aws", "-c", _AWS)
        self._write_program("process", "-u", "-c", _PROCESS)
        self.does("")

    def does(self, body: str) -> None:
        """What the job's command does with a `record` from now on, and puts into `done`."""
        new = self.folder / "does.new"
        new.write_text(body)
        new.replace(self.folder / "does.py")

    def run(self, count: int = 1, *, code: int = 0) -> None:
        """The page's next commands, which end with this exit code."""
        for _ in range(count):
            step = self._next()
            ended = subprocess.run(
                ["bash", "-c", self._here(step.command)],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
            self._compare(step, self._as_on_the_page(ended.stdout))
            assert ended.returncode == code, f"{step.command}: {ended.returncode}\n{ended.stdout}"

    @contextmanager
    def job(self, stream: str = "orders", *options: str) -> Iterator[None]:
        """The page's job, with more options, while the block runs. It is stopped in order."""
        (step,) = steps(section("The job"))
        command = self._here(step.command).replace(" orders ", f" {stream} ")
        log = self.folder / "job.log"
        with (
            log.open("w") as said,
            subprocess.Popen(
                ["bash", "-c", f"exec {command} {shlex.join(options)}"],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                text=True,
            ) as process,
        ):
            try:
                yield
                process.send_signal(signal.SIGTERM)
                process.wait(_LIMIT_S)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()

    def end(self) -> None:
        """All commands of the symptom were run."""
        assert self._at == len(self._steps), f"not run: {self._steps[self._at].command}"
        if _WRITES:
            text = self._text
            printed = iter(self._printed)
            text = _FENCE.sub(
                lambda block: (
                    "```console\n"
                    + "".join(f"$ {part}" for part in [next(printed) for _ in steps(block[0])])
                    + "```"
                ),
                text,
            )
            page = self._page.read_text("utf-8")
            self._page.write_text(page.replace(self._text, text))

    # private

    def _next(self) -> Step:
        assert self._at < len(self._steps), f"the page has no more commands under {self._title}"
        self._at += 1
        step = self._steps[self._at - 1]
        if not _SEQUENCE.search(step.command):
            return step
        assert self.sequence, f"whose sequence number is in {step.command}?"
        return Step(_SEQUENCE.sub(self.sequence, step.command), step.output)

    def _compare(self, step: Step, printed: str) -> None:
        self._printed.append(f"{step.command}\n{printed}")
        if not _WRITES:
            assert normalised(printed) == normalised(step.output), f"{step.command}\n{printed}"

    def _here(self, command: str) -> str:
        for name, here in self._names.items():
            command = command.replace(name, here)
        return command

    def _as_on_the_page(self, text: str) -> str:
        for name, here in self._names.items():
            text = text.replace(here, name).replace(here.partition("/")[0], name)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host-a", text)
        lines = [line.rstrip() for line in without_waits(text).splitlines()]
        return "".join(f"{line}\n" for line in lines if line)

    def _environment(self) -> dict[str, str]:
        path = f"{self.folder}:{environment()['PATH']}"
        return environment(**connection(self.fake), PATH=path, COLUMNS="100", **self.variables)

    def _write_program(self, name: str, *arguments: str) -> None:
        words = shlex.join([sys.executable, *arguments])
        (self.folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (self.folder / name).chmod(0o755)


def _parted(shown: str) -> tuple[str, str]:
    """A command, which may be continued, and its output."""
    lines = shown.splitlines(keepends=True)
    last = next(at for at, line in enumerate(lines) if not line.endswith("\\\n"))
    return "".join(lines[: last + 1]).rstrip("\n"), "".join(lines[last + 1 :])
