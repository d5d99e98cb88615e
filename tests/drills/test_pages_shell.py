"""The pages' `consume` and `produce` lines, run as written, in a shell, on a local stream and a
real ZooKeeper.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING

from tests.support.shell.command_line import environment
from tests.support.shell.consuming import (
    LIMIT_S,
    command_that,
    connection,
    data_of,
    lines_of,
)
from tests.support.shell.pages import SHELLS, blocks
from tests.support.shell.pages import lines_of as commands_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake


def line_with(*parts: str) -> str:
    """The first command line of the pages that holds all of these parts."""
    lines = [line for block in blocks(*SHELLS) for line in commands_of(block)]
    found = [line for line in lines if all(part in line for part in parts)]
    assert found, f"no page has a line with {' and '.join(parts)}"
    return found[0]


def in_shell(fake: ServedFake, folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """The line unchanged, with the checkout's command in PATH."""
    path = f"{folder}:{environment()['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(**connection(fake), PATH=path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_every_line_does_what_it_says(
    fake_kinesis: ServedFake, zookeeper: str, tmp_path: Path
) -> None:
    """A line without an end gets one. Names that do not exist here are replaced: the region, the
    ensemble, the worker.
    """
    follow = line_with("kinesis-spout consume orders", "| jq")
    catch_up = line_with("kinesis-spout consume orders", "--until now", "> orders.jsonl")
    process = line_with("kinesis-spout consume orders", "--exec", "worker.py")
    put = line_with("kinesis-spout produce orders", "--key-from customer", "< orders.txt")
    put_back = line_with("kinesis-spout produce orders", "--json", "< dead.jsonl")
    fake_kinesis.model.create("orders", shards=2)
    program(
        tmp_path,
        "kinesis-spout",
        f'exec {shlex.quote(sys.executable)} -m kinesis_spout.cli.entry "$@"',
    )
    program(tmp_path, "python3", f"exec {command_that('refuses the sevens', tmp_path / 'log')}")
    (tmp_path / "orders.txt").write_text(
        "".join(f'{{"customer": {number}}}\n' for number in range(10))
    )

    ended = in_shell(fake_kinesis, tmp_path, put)
    assert (ended.returncode, ended.stderr) == (0, "put 10 records on stream orders\n")
    for number in range(10):
        fake_kinesis.model.put("orders", "k", f"order {number}".encode())
    local = catch_up.replace("zk1:2181,zk2:2181", f"{zookeeper}/pages")
    assert in_shell(fake_kinesis, tmp_path, local).returncode == 0
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 20
    assert in_shell(fake_kinesis, tmp_path, local).returncode == 0
    assert (tmp_path / "orders.jsonl").read_text() == ""

    ended = in_shell(fake_kinesis, tmp_path, f"{process} --until now")
    assert (ended.returncode, ended.stdout) == (1, ""), "a record was dead-lettered"
    assert data_of((tmp_path / "dead.jsonl").read_text()) == [b64encode(b"order 7").decode()]
    ended = in_shell(fake_kinesis, tmp_path, put_back)
    assert (ended.returncode, ended.stderr) == (0, "put 1 record on stream orders\n")

    program(tmp_path, "jq", "cat")
    shown = in_shell(
        fake_kinesis,
        tmp_path,
        follow.replace(" --region eu-west-1", " --from TRIM_HORIZON --max-records 3"),
    )
    assert len(lines_of(shown.stdout)) == 3
